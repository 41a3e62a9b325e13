"""Nothing that a transcript holds can act on a terminal, and nothing secret is shown."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from recollect.core.values.message import CallId, Image, Text, ToolCall, ToolResult
from recollect.hosts.inspect.drawn import clipped, percent, short_tokens
from recollect.hosts.inspect.turns import EXCERPT_CHARS, excerpt_of, shown_text
from recollect.system.plain_text import plain_line

_ANY_TEXT = st.text(
    st.one_of(st.characters(), st.sampled_from("\x1b\x9b[]31m;\x07\u202e\u200d\ufe0f\ud83d \n")),
    max_size=80,
)


@given(_ANY_TEXT)
def test_a_plain_line_is_one_printable_encodable_line(text: str) -> None:
    line = plain_line(text)
    assert not {unicodedata.category(sign) for sign in line} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    line.encode()
    assert line == " ".join(line.split())
    assert plain_line(line) == line


@given(_ANY_TEXT, st.integers(0, 40))
def test_clipping_keeps_within_its_cells(text: str, cells: int) -> None:
    line = plain_line(text)
    assert cell_len(clipped(line, cells)) <= cells
    if cell_len(line) <= cells:
        assert clipped(line, cells) == line


def test_a_secret_is_masked_before_the_text_is_clipped() -> None:
    secret = "ghp_" + "a1B2c3D4e5" * 4
    for lead in ("", "x " * 70, "x " * 76):
        shown = shown_text(f"{lead}token {secret} after")
        assert secret[:12] not in shown
        assert len(shown) <= EXCERPT_CHARS


def test_a_message_is_known_by_its_first_words() -> None:
    image = Image(media_type="image/png", data="AAAA")
    assert excerpt_of([Text(text="  \n"), Text(text="hello\nthere")]) == "hello there"
    assert excerpt_of([ToolCall(id=CallId("1"), name="read", arguments='{"p":1}')]).startswith(
        "read {"
    )
    assert excerpt_of([ToolResult(call_id=CallId("1"), content=(image,))]) == "[image]"
    assert excerpt_of([]) == ""


def test_numbers_are_short_and_readable() -> None:
    told = [short_tokens(n) for n in (0, 999, 8_000, 9_600, 128_000, 999_999, 1_048_576)]
    assert told == ["0", "999", "8k", "9.6k", "128k", "1M", "1.05M"]
    assert [percent(n, 1000) for n in (0, 1, 10, 500, 1000)] == ["0%", "<1%", "1%", "50%", "100%"]
    assert percent(3, 0) == "0%"
