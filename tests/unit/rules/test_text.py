"""How messages are written down, how far they are trusted, and what no store can hold."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.waiting import assert_linear

from recollect.core.formats.codec import CODECS
from recollect.core.rules.noise import without_reminders
from recollect.core.rules.text import (
    SegmentText,
    clean_text,
    segment_text,
    sentence_spans,
    without_recalled_blocks,
    without_thinking,
)
from recollect.core.rules.trust import trust_of
from recollect.core.values.message import CallId, Message
from recollect.core.values.model import FormatName
from recollect.core.values.recall import BLOCK_CLOSING, BLOCK_OPENING


def message(wire: Any, format_name: FormatName = "anthropic") -> Message:
    return CODECS[format_name].read(json.dumps(wire).encode())


def written(*blocks: Any, role: str = "assistant") -> SegmentText:
    return segment_text(message({"role": role, "content": list(blocks)}))


def test_parts_stand_in_reading_order() -> None:
    said = written(
        {"type": "thinking", "thinking": "Look first.", "signature": "sealed"},
        {"type": "text", "text": "I will look."},
        {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "a.py", "limit": 5}},
        {"type": "tool_use", "id": "b", "name": "ls", "input": {}},
    )
    assert said.text == (
        "[thinking]\nLook first.\n[/thinking]\nI will look.\n"
        'read({"limit":5,"path":"a.py"})\nls({})'
    )
    assert (said.tool, said.role, said.says_something) == ("read", "assistant", True)
    assert without_thinking(said.text).startswith("\nI will look.")


@pytest.mark.parametrize(
    "block",
    [
        {"type": "redacted_thinking", "data": "c2VhbGVk"},
        {"type": "thinking", "thinking": "", "signature": "c2VhbGVk"},
        {"type": "thinking", "thinking": " \n", "signature": "c2VhbGVk"},
    ],
)
def test_sealed_and_empty_thinking_leaves_nothing(block: Any) -> None:
    assert written(block).text == ""
    assert written(block, {"type": "text", "text": "done"}).text == "done"


def test_errors_are_marked_and_results_are_their_tools_words() -> None:
    failed = {"type": "tool_result", "tool_use_id": "a", "content": "no such file"}
    said = written(failed | {"is_error": True}, role="user")
    assert (said.text, said.role) == ("[error] no such file", "tool")
    assert written(failed, role="user").text == "no such file"
    names = {CallId("a"): "read"}
    again = segment_text(message({"role": "user", "content": [failed]}), names)
    assert again.tool == "read"
    item = {"type": "function_call_output", "call_id": "c1", "output": "done"}
    names = {CallId("local_shell_call:c1"): "local_shell"}
    assert segment_text(message(item, "openai-responses"), names).tool == "local_shell"


def test_other_blocks_give_their_words_and_never_their_data() -> None:
    found = [{"type": "web_search_result", "title": "uv docs", "url": "https://x.dev/uv"}]
    found[0]["encrypted_content"] = "QUJD" * 400
    block = {"type": "web_search_tool_result", "tool_use_id": "s", "content": found}
    said = written(block)
    assert "uv docs" in said.text and "https://x.dev/uv" in said.text
    assert "QUJDQUJD" not in said.text
    plain = {"type": "document", "title": "Plan", "source": {"type": "text", "data": "Step one."}}
    assert written(plain, role="user").text.endswith("Step one.\nPlan")
    audio = {"role": "assistant", "content": None, "audio": {"id": "a", "data": "QUJD" * 99}}
    audio["audio"]["transcript"] = "Hello there."  # type: ignore[index]
    heard = segment_text(message(audio, "openai-chat"))
    assert heard.text.endswith("Hello there.") and "QUJD" not in heard.text
    refused = {"role": "assistant", "content": None, "refusal": "I cannot do that."}
    assert segment_text(message(refused, "openai-chat")).text.endswith("I cannot do that.")


@pytest.mark.parametrize(
    ("wire", "format_name", "trust"),
    [
        ({"role": "user", "content": "hi"}, "anthropic", "high"),
        ({"role": "system", "content": "hi"}, "openai-chat", "high"),
        ({"role": "developer", "content": "hi"}, "openai-chat", "high"),
        ({"role": "assistant", "content": "hi"}, "anthropic", "medium"),
        ({"role": "tool", "tool_call_id": "a", "content": "hi"}, "openai-chat", "low"),
        ({"role": "toolResult", "toolCallId": "a", "content": []}, "pi", "low"),
        ({"role": "compactionSummary", "summary": "was so"}, "pi", "medium"),
        ({"type": "web_search_call", "id": "w", "action": {}}, "openai-responses", "outside"),
        ({"type": "file_search_call", "id": "w", "results": []}, "openai-responses", "outside"),
        ({"type": "function_call", "call_id": "w", "name": "f"}, "openai-responses", "medium"),
    ],
)
def test_trust_is_that_of_the_least_trusted_words(
    wire: Any, format_name: FormatName, trust: str
) -> None:
    assert trust_of(message(wire, format_name)) == trust


@given(st.text(st.characters(exclude_categories=())))
def test_clean_text_can_be_held_anywhere_and_cleans_once(text: str) -> None:
    clean = clean_text(text)
    clean.encode()
    assert "\x00" not in clean
    assert len(clean) == len(text)
    assert clean_text(clean) is clean or clean_text(clean) == clean


_PIECES = st.sampled_from(
    [BLOCK_OPENING, BLOCK_CLOSING, "\n", "<recalled-context", ">", "said", " ", "`"]
)


@given(st.lists(_PIECES, max_size=12).map("".join), st.booleans())
def test_blocks_are_left_out_once_and_for_all(text: str, any_spelling: bool) -> None:
    once = without_recalled_blocks(text, any_spelling=any_spelling)
    assert without_recalled_blocks(once, any_spelling=any_spelling) == once
    assert len(once) <= len(text)


_LINEAR = {
    "opened": f"\n{BLOCK_OPENING}",
    "tags": "\n<recalled-context ",
    "blocks": f"\n{BLOCK_OPENING}{BLOCK_CLOSING}",
    "thoughts": "[thinking]\n",
    "thoughts closed": "[thinking]\nx\n[/thinking]\n",
    "closings": "\n[/thinking]",
    "reminders": "<system-reminder>x</system-reminder>\nabc\n",
}


@pytest.mark.parametrize("name", _LINEAR)
def test_a_megabyte_takes_linear_time(name: str) -> None:
    def read(chars: int) -> None:
        text = _LINEAR[name] * (chars // len(_LINEAR[name]))
        without_recalled_blocks(text, any_spelling=True)
        without_recalled_blocks(text, any_spelling=False)
        without_thinking(text)
        without_reminders(text)

    assert_linear(read, 1_000_000)


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


@pytest.mark.parametrize(
    "text",
    [
        "Mrs. Haverkamp signs the lease.",
        "Send the scan to Dr. Osei before noon.",
        "Our contact is Liesel K. Brandt at the port authority.",
        "J. R. Vance owns the boat.",
        "Prof. Lund reviews it, see Fig. 4 of the report.",
        "Die Miete zahlt Hr. Aydin bzw. Frau Weber.",
        "Use a queue, e.g. Redis Streams.",
    ],
)
def test_a_title_or_an_initial_ends_no_sentence(text: str) -> None:
    assert sentences(text) == [text]


@pytest.mark.parametrize(
    "text",
    [
        "It takes 50 ms. The limit is 80.",
        "We follow plan B. Nobody liked plan A.",
        "The driver is written in C. It needs no runtime.",
        "So do I. Then it is settled.",
        "We meet at 5 p.m. Bring the keys.",
        "Not yet. The doctor said no. We wait.",
    ],
)
def test_a_sentence_still_ends_where_it_ends(text: str) -> None:
    assert len(sentences(text)) == text.count(". ") + 1
