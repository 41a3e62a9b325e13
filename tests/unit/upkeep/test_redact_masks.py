"""What masks leave of a text and of JSON: no secret, all the rest, and the same the second time."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.core.rules.patterns import compile_patterns
from recollect.core.rules.secret_values import MASK
from recollect.core.upkeep.masks import Masks, strings_in
from recollect.errors import SettingsError

TOKEN = "ghp_" + "Zq7LmT2xVb9KsR4wYd1NcF6hJp3QaE8uGi5o"
STAFF = Masks(patterns=compile_patterns([r"ACME-\d+", r"code \w+ \w+"]))
PARTS = st.sampled_from(
    ["ACME-77", "code red", " ", "ACME-", "12", TOKEN, "é\n", '"', "\\", "[REDACTED:own-pattern-1]"]
)
TEXTS = st.lists(PARTS, max_size=8).map("".join)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(TEXTS)
def test_no_match_is_left_outside_of_masks_and_twice_is_once(text: str) -> None:
    done = STAFF.text(text)
    assert STAFF.text(done.text).kinds == {}
    assert STAFF.text(done.text).text == done.text
    between = MASK.split(done.text)
    assert not any(re.search(r"ACME-\d+", part) for part in between)
    assert done.text == text or done.kinds


@given(VALUES)
def test_json_stays_json_of_the_same_shape(value: object) -> None:
    raw = json.dumps({"said": value}).encode()
    done = STAFF.json(raw)
    assert _shape(json.loads(done.body)) == _shape({"said": value})
    assert STAFF.json(done.body).body == done.body
    for said in strings_in(done.body):
        assert not any(re.search(r"ACME-\d+", part) for part in MASK.split(said))


def _shape(value: object) -> object:
    if isinstance(value, dict):
        return {key: _shape(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_shape(one) for one in value]
    return type(value)


@given(TEXTS, TEXTS)
def test_a_span_without_a_secret_stands_for_the_same_words(before: str, behind: str) -> None:
    marked = f"{before}<kept>{behind}"
    done = STAFF.text(marked)
    start, end = done.move_span(len(before), len(before) + len("<kept>"))
    assert done.text[start:end] == "<kept>"


def test_inner_json_is_read_and_ids_are_left() -> None:
    inner = json.dumps({"path": "a\nACME-5"})
    raw = json.dumps({"id": "ACME-1", "arguments": inner, "ACME-9": "x"}).encode()
    done = STAFF.json(raw, leave=frozenset({"id"}))
    held = json.loads(done.body)
    assert held["id"] == "ACME-1"
    assert json.loads(held["arguments"]) == {"path": "a\n[REDACTED:own-pattern-1]"}
    assert STAFF.left_in(done.body), "keys and ids hold things together, and are told"
    assert not STAFF.left_in(STAFF.json(json.dumps({"a": inner}).encode()).body)


@pytest.mark.parametrize("written", ["(secret", ".*", "x?"])
def test_a_pattern_that_is_none_or_matches_everything_is_refused(written: str) -> None:
    with pytest.raises(SettingsError) as refused:
        compile_patterns([written])
    assert written not in str(refused.value).replace("pattern 1", "")
