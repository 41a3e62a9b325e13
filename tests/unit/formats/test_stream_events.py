"""A reply out of its stream's events: whole, or broken off at any of them."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.harness.model_wires import overloaded, streamed_reply

from recollect.core.formats.replies import StreamedReply, read_reply, read_usage
from recollect.core.values.model import Usage
from recollect.errors import FormatError
from recollect.testing.scripted_model import Says, ScriptedCall, WireName, whole_reply

WIRES: tuple[WireName, ...] = ("anthropic", "openai-chat", "openai-responses")
SAYS = Says(
    text="The crane stands at quay seven; ｜ 港口 ｜ and it is red.",
    thinking="They ask about the quay, so I look it up.",
    calls=(
        ScriptedCall(id="call_1", name="read_file", input={"path": "crane.py", "lines": [1, 2]}),
        ScriptedCall(id="call_2", name="list", input={}),
    ),
    usage=Usage(input_tokens=40, output_tokens=12, cache_read_tokens=8),
)


def events_of(wire: WireName) -> list[Any]:
    return [event for _, event in streamed_reply(wire, SAYS, model="m", usage=True)]


def as_object(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{name: as_object(one) for name, one in value.items()})
    return [as_object(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("objects", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_it_is_the_reply_that_would_have_come_whole(wire: WireName, objects: bool) -> None:
    whole = whole_reply(wire, SAYS, model="m")
    events = [as_object(event) if objects else event for event in events_of(wire)]
    streamed = StreamedReply(events)
    assert streamed.whole
    assert not streamed.broken_off
    assert read_reply(wire, streamed.reply()) == read_reply(wire, whole)
    assert read_usage(streamed.reply()) == read_usage(whole) == SAYS.usage


def spoken(event: Any) -> str:
    """The text of the reply that an event adds, by the wires' own words."""
    if event.get("type") == "response.output_text.delta":
        return str(event["delta"])
    if event.get("type") == "content_block_delta":
        return str(event["delta"].get("text", ""))
    choices = event.get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")


@pytest.mark.parametrize("wire", WIRES)
def test_broken_off_after_any_event_it_says_what_had_come(wire: WireName) -> None:
    events = events_of(wire)
    came = ""
    for cut in range(1, len(events)):
        streamed = StreamedReply(events[:cut])
        said = b"".join(read_reply(wire, streamed.reply())).decode()
        came = "".join(spoken(event) for event in events[:cut])
        assert came in said
        if streamed.broken_off and came != SAYS.text:
            assert came == "" or SAYS.text[: len(came) + 1] not in said
    assert came == SAYS.text


@pytest.mark.parametrize("wire", WIRES)
def test_a_call_that_broke_off_is_kept_as_it_was_written(wire: WireName) -> None:
    path = "harbour/cranes/the/one/at/quay/seven.py"
    says = Says(calls=(ScriptedCall(id="c1", name="write", input={"path": path}),))
    events = [event for _, event in streamed_reply(wire, says, model="m", usage=False)]
    written = [json.dumps(StreamedReply(events[:at]).reply()) for at in range(1, len(events))]
    half = next(at for at, reply in enumerate(written, start=1) if "cranes" in reply)
    streamed = StreamedReply(events[:half])
    assert streamed.broken_off
    (raw,) = read_reply(wire, streamed.reply())
    assert b"harbour/cranes" in raw
    assert b"write" in raw
    assert b"seven.py" not in raw


@pytest.mark.parametrize("wire", WIRES)
def test_an_error_in_the_midst_ends_it(wire: WireName) -> None:
    events = [*events_of(wire)[:9], overloaded(wire)[1]]
    streamed = StreamedReply(events)
    assert streamed.broken_off
    assert "Overloaded" in str(streamed.error)


def test_what_is_no_stream_is_told() -> None:
    with pytest.raises(FormatError, match="none of these 2 is a known stream event"):
        StreamedReply([{"type": "message", "role": "assistant"}, {"a": 1}])
    assert StreamedReply([]).reply() == {}
