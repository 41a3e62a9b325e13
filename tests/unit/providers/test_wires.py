"""The three wires against a real server: what is said, streamed and whole, and what it cost."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.harness.model_server import Asked, ModelServer
from tests.unit.providers.wire_models import (
    KEY,
    PATHS,
    SECRET,
    WIRES,
    calls_of,
    done_of,
    model_at,
    request_of,
    run_stream,
    streamed,
    text_of,
    thinking_of,
    using,
)

from recollect.core.formats.replies import read_reply, read_usage
from recollect.core.values.model import Overflow, Prompt, Usage
from recollect.errors import ModelOverflow, ModelUnavailable
from recollect.testing.scripted_model import Fails, Says, ScriptedCall, WireName, whole_reply

pytestmark = pytest.mark.parametrize("wire", WIRES)
PARALLEL = Says(
    text="Both.",
    thinking="Two files, so two calls.",
    calls=(
        ScriptedCall(id="call_a", name="read", input={"path": "a.py", "lines": [1, 2]}),
        ScriptedCall(id="call_b", name="read", input={"path": "über/日本.py"}),
    ),
)


def test_a_streamed_reply_is_the_one_that_would_have_come_whole(wire: WireName) -> None:
    with ModelServer([PARALLEL]) as server:
        events = run_stream(wire, server)
        server.check()
    done = done_of(events)
    assert done.reply == whole_reply(wire, PARALLEL, model="scripted")
    assert text_of(events) == PARALLEL.text
    assert thinking_of(events) == PARALLEL.thinking
    assert calls_of(events) == [("call_a", "read"), ("call_b", "read")]
    assert done.stop == "tool-calls"
    assert done.overflow is None
    assert read_reply(wire, done.reply)


def test_the_callers_body_goes_out_unchanged_but_for_the_streaming(wire: WireName) -> None:
    request = {**request_of(wire), "temperature": 0.25, "metadata": {"user": "ü\u2028"}}
    with ModelServer([Says(text="yes")]) as server:
        model = model_at(wire, server)
        using(model, lambda: streamed(model, request))
        asked = server.asked[0]
    sent = dict(asked.body)
    if wire == "openai-chat":
        assert sent.pop("stream_options") == {"include_usage": True}
    assert sent == {**request, "stream": True}
    assert asked.path == PATHS[wire]
    given = asked.headers["x-api-key" if wire == "anthropic" else "authorization"]
    assert given.removeprefix("Bearer ") == KEY


@pytest.mark.parametrize("piece_bytes", [1, 3, 7])
def test_characters_torn_across_pieces_are_whole_again(wire: WireName, piece_bytes: int) -> None:
    odd = "naïve 日本語 🎉 \u2028\x0c\x85 line\nnext\r\nlast"
    says = Says(text=odd, calls=(ScriptedCall(id="c", name="écho", input={"t": odd}),))
    with ModelServer([Says(**{**_fields(says), "piece_bytes": piece_bytes})]) as server:
        events = run_stream(wire, server)
    assert text_of(events) == odd
    assert done_of(events).reply == whole_reply(wire, says, model="scripted")


def test_usage_is_reported_whole_with_its_cached_part(wire: WireName) -> None:
    write = 30 if wire == "anthropic" else 0
    usage = Usage(
        input_tokens=500, output_tokens=42, cache_read_tokens=400, cache_write_tokens=write
    )
    says = Says(text="ok", usage=usage)
    with ModelServer([says, says]) as server:
        events = run_stream(wire, server)
        model = model_at(wire, server)
        answer = using(model, lambda: model.ask(Prompt(text="hi")))
    assert done_of(events).usage == usage
    assert read_usage(done_of(events).reply) == usage
    assert answer.usage == usage


@pytest.mark.parametrize("stop", ["stop", "length", "refusal"])
@pytest.mark.parametrize("text", ["", "I would rather not."])
def test_why_it_stopped_is_told(wire: WireName, stop: Any, text: str) -> None:
    says = Says(text=text, stop=stop)
    with ModelServer([says, says]) as server:
        events = run_stream(wire, server)
        model = model_at(wire, server)
        answer = using(model, lambda: model.ask(Prompt(text="hi")))
    assert done_of(events).stop == stop
    assert (answer.stop, answer.text) == (stop, text)


def test_a_prompt_is_asked_with_its_system_text_and_its_room(wire: WireName) -> None:
    with ModelServer([Says(text="Short.")]) as server:
        model = model_at(wire, server)
        prompt = Prompt(text=SECRET, system="Be brief.", max_output_tokens=77)
        answer = using(model, lambda: model.ask(prompt))
        body = server.asked[0].body
    assert answer.text == "Short."
    assert "stream" not in body
    assert {77} <= {value for value in body.values() if isinstance(value, int)}
    sent = json.dumps(body)
    assert "Be brief." in sent
    assert SECRET in sent


def test_an_answer_is_held_to_its_schema(wire: WireName) -> None:
    schema = {
        "type": "object",
        "properties": {"facts": {"type": "array", "items": {"type": "string"}}},
        "required": ["facts"],
        "additionalProperties": False,
    }
    given = {"facts": ["a", "ü"]}

    def answer_of(asked: Asked) -> Says:
        assert schema in _values(asked.body)
        if wire == "anthropic":
            assert asked.body["tool_choice"]["type"] == "tool"
            name = asked.body["tool_choice"]["name"]
            return Says(calls=(ScriptedCall(id="c", name=name, input=given),))
        assert True in _values(asked.body)  # strict
        return Says(text=json.dumps(given))

    with ModelServer(answer_of) as server:
        model = model_at(wire, server)
        answer = using(model, lambda: model.ask(Prompt(text="hi", schema=schema)))
    assert json.loads(answer.text) == given
    assert answer.stop == "stop"


def test_an_overflow_is_told_with_the_providers_numbers(wire: WireName) -> None:
    with ModelServer(window_tokens=10) as server:
        model = model_at(wire, server)
        for work in (
            lambda: model.ask(Prompt(text=SECRET)),
            lambda: streamed(model, request_of(wire)),
        ):
            with pytest.raises(ModelOverflow) as caught:
                using(model, work)
            assert isinstance(caught.value.overflow, Overflow)
            if wire != "openai-responses":
                assert caught.value.overflow.limit_tokens == 10
        assert len(server.asked) == 2, "an overflow is never tried again"


def test_an_overflow_inside_the_stream_is_an_overflow(wire: WireName) -> None:
    with ModelServer(window_tokens=10, overflow="inside") as server, pytest.raises(ModelOverflow):
        run_stream(wire, server)


def test_a_silent_overflow_is_told_with_the_reply(wire: WireName) -> None:
    with ModelServer(
        [Says(text="cut"), Says(text="cut")], window_tokens=10, overflow="silent"
    ) as server:
        done = done_of(run_stream(wire, server, window_tokens=10))
        assert done.overflow is not None
        assert done.overflow.pattern_name == "silently_cut_request"
        assert done.overflow.limit_tokens == 10
        model = model_at(wire, server, window_tokens=10)
        with pytest.raises(ModelOverflow):
            using(model, lambda: model.ask(Prompt(text=SECRET)))


@pytest.mark.parametrize("events", [1, 3, 5])
def test_a_stream_cut_half_way_is_no_reply(wire: WireName, events: int) -> None:
    says = Says(text="A reply of some length.", cut_after_events=events)
    with ModelServer([says]) as server:
        with pytest.raises(ModelUnavailable):
            run_stream(wire, server)
        server.check()


def test_an_error_in_the_midst_of_a_stream_is_told_and_not_tried_again(wire: WireName) -> None:
    with ModelServer([Says(text="Half of it", fail_after_events=3)]) as server:
        with pytest.raises(ModelUnavailable):
            run_stream(wire, server)
        assert len(server.asked) == 1


def test_cancelling_the_task_closes_the_connection(wire: WireName) -> None:
    with ModelServer([Says(text="x", hang_after_events=0)]) as server:
        model = model_at(wire, server)

        async def cancel() -> bool:
            task = asyncio.create_task(model.ask(Prompt(text="hi")))
            while not server.asked:  # noqa: ASYNC110 - the server's thread fills it
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await asyncio.to_thread(server.wait_until_hung_up)

        assert using(model, cancel)


def test_a_server_that_does_not_stream_is_read_all_the_same(wire: WireName) -> None:
    whole = whole_reply(wire, PARALLEL, model="scripted")
    with ModelServer([Fails(status=200, body=whole)]) as server:
        events = run_stream(wire, server)
    assert done_of(events).reply == whole
    assert text_of(events) == PARALLEL.text
    assert calls_of(events) == [("call_a", "read"), ("call_b", "read")]


@pytest.mark.parametrize("body", ["<html>Welcome</html>", {"hello": "there"}, "[]", ""])
def test_what_is_no_reply_is_never_taken_for_one(wire: WireName, body: Any) -> None:
    with ModelServer(lambda _: Fails(status=200, body=body)) as server:
        model = model_at(wire, server)
        for work in (
            lambda: model.ask(Prompt(text="hi")),
            lambda: streamed(model, request_of(wire)),
        ):
            with pytest.raises(ModelUnavailable):
                using(model, work)


def _fields(says: Says) -> dict[str, Any]:
    return {name: getattr(says, name) for name in Says.__dataclass_fields__}


def _values(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [value, *(found for item in value.values() for found in _values(item))]
    if isinstance(value, list):
        return [found for item in value for found in _values(item)]
    return [value]
