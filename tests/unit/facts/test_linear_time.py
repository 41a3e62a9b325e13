"""Reading for facts takes time in proportion to what was said, whatever was said.

The texts make a careless pattern try again from each place: long runs of one sign, of words, of
brackets and quotes that never close.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import pytest
from tests.harness.waiting import assert_linear
from tests.unit.facts.fact_segments import segment

from recollect.core.facts.history import name_property, other_value, same_words
from recollect.core.facts.reading import read_page, readable
from recollect.core.facts.support import (
    find_quote,
    is_order,
    is_supported,
    read_statement,
    states_nothing,
)

CHARS: Final = 8_000
UNITS: Final = (
    " ", "\n", "\t ", "7", "a", "a ", "the port of ", '"', "'a ", "(", "[", "a, ", ",", "a.b.",
    "-a", "#", "> ", "a=1 ", "a: ", "/a", "`", "http://a", "a@b ", "_", "is 80 ", "not now, ",
    "please ", "should be ", "ABC ", "instead of ", "我们决定用", "端口是", "不是", "user: ",
)  # fmt: skip
READERS: Final[dict[str, Callable[[str], object]]] = {
    "readable": lambda text: readable(segment("user", text)),
    "read_page": lambda text: read_page([segment("user", text)], tokens=9_999),
    "name_property": name_property,
    "other_value": lambda text: other_value(text, "the port is 8000"),
    "same_words": lambda text: same_words(text, "the port is 8000"),
    "is_order": is_order,
    "read_statement": read_statement,
    "find_quote": lambda text: find_quote("the port is 8000", text, len(text)),
    "states_nothing": states_nothing,
    "is_supported": lambda text: is_supported("the port is 8000", [text]),
}


@pytest.mark.parametrize("name", READERS)
def test_reading_takes_linear_time(name: str) -> None:
    def read(unit: str, chars: int) -> None:
        READERS[name](unit * (chars // len(unit)))

    for unit in UNITS:
        assert_linear(partial(read, unit), CHARS)
