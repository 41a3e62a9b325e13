"""Servers that only speak a provider's wire: their addresses, their liberties, their windows."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.harness.model_server import Asked, ModelServer
from tests.unit.providers.wire_models import (
    PATHS,
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

from recollect.adapters.providers.calls import read_address
from recollect.core.formats.replies import read_reply
from recollect.core.values.model import Prompt, ReplyEvent
from recollect.errors import ModelError, ModelOverflow, ModelRefused, ModelUnavailable
from recollect.testing.scripted_model import Fails, Says, WireName

OWN = "https://api.example.org/v1"
EVENTS = {"Content-Type": "text/event-stream"}


@pytest.mark.parametrize(
    ("given", "url"),
    [
        (None, "https://api.example.org/v1/models"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/models"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1/models"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1/models"),
        ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080/v1/models"),
        ("http://h/v1/chat/completions", "http://h/v1/models"),
        ("https://h/api/v1", "https://h/api/v1/models"),
        ("https://h/v1beta/openai/", "https://h/v1beta/openai/models"),
        ("https://h/openai", "https://h/openai/v1/models"),
        (" https://h/v1?api-version=2 ", "https://h/v1/models?api-version=2"),
    ],
)
def test_base_urls_are_taken_with_and_without_a_version(given: str | None, url: str) -> None:
    assert read_address(given, own_url=OWN).url("/models") == url


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://h/v1", "https://", "http://h:port"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ModelRefused, match="base URL"):
        read_address(url, own_url=OWN)


def chunk(delta: Mapping[str, Any], **further: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None, **further}]}


def told(events: Sequence[Any], end: str = "data: [DONE]\n\n") -> Fails:
    written = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    return Fails(status=200, body=written + end, headers=EVENTS)


def chat(events: Sequence[Any], end: str = "data: [DONE]\n\n") -> list[ReplyEvent]:
    with ModelServer([told(events, end)]) as server:
        return run_stream("openai-chat", server)


END = chunk({}, finish_reason="stop")


def test_the_usage_that_a_server_refuses_to_stream_is_done_without() -> None:
    def particular(asked: Asked) -> Says | Fails:
        if "stream_options" in asked.body:
            return Fails(status=400, body={"error": {"message": "unknown field stream_options"}})
        return Says(text="fine")

    with ModelServer(particular) as server:
        model = model_at("openai-chat", server)
        for _ in range(2):
            events = using(model, lambda: streamed(model, request_of("openai-chat")))
            assert text_of(events) == "fine"
            assert done_of(events).usage is None
        assert len(server.asked) == 3, "what was refused once is not sent again"


def test_room_for_the_reply_is_named_as_the_server_wants_it() -> None:
    refusal = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."

    def newer(asked: Asked) -> Says | Fails:
        if "max_tokens" in asked.body:
            return Fails(status=400, body={"error": {"message": refusal}})
        return Says(text=str(asked.body["max_completion_tokens"]))

    with ModelServer(newer) as server:
        model = model_at("openai-chat", server)
        for _ in range(2):
            answer = using(model, lambda: model.ask(Prompt(text="hi", max_output_tokens=9)))
            assert answer.text == "9"
        assert len(server.asked) == 3


def call(index: int | None, call_id: str | None, name: str | None, arguments: Any) -> Any:
    given: dict[str, Any] = {"function": {"arguments": arguments}}
    if name is not None:
        given["function"]["name"] = name
    if index is not None:
        given["index"] = index
    if call_id is not None:
        given["id"] = call_id
    return chunk({"tool_calls": [given]})


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(
            [call(0, "a", "f", '{"x":'), call(0, None, None, "1}"), call(1, "b", "g", "{}")],
            id="as-openai",
        ),
        pytest.param(
            [
                call(None, "a", "f", '{"x":'),
                call(None, None, None, "1}"),
                call(None, "b", "g", "{}"),
            ],
            id="no-index",
        ),
        pytest.param([call(0, "a", "f", '{"x":1}'), call(0, "b", "g", "{}")], id="one-index"),
        pytest.param(
            [call(0, "a", "f", '{"x":'), call(0, "a", "f", "1}"), call(1, "b", "g", "{}")],
            id="id-and-name-every-time",
        ),
        pytest.param([call(0, "a", "f", {"x": 1}), call(1, "b", "g", {})], id="objects"),
    ],
)
def test_calls_are_put_together_whatever_a_server_numbers(events: list[Any]) -> None:
    events = chat([*events, chunk({}, finish_reason="stop")])
    done = done_of(events)
    calls = done.reply["choices"][0]["message"]["tool_calls"]
    assert [(each["id"], each["function"]["name"]) for each in calls] == [("a", "f"), ("b", "g")]
    assert [json.loads(each["function"]["arguments"]) for each in calls] == [{"x": 1}, {}]
    assert all(each["type"] == "function" and "index" not in each for each in calls)
    assert calls_of(events) == [("a", "f"), ("b", "g")]
    assert done.stop == "tool-calls"


def test_reasoning_is_joined_under_its_own_name_and_told_once() -> None:
    details = [{"type": "reasoning.text", "index": 0, "text": "Hm"}]
    more = [{"type": "reasoning.text", "index": 0, "text": "m.", "signature": "sig"}]
    events = chat(
        [
            chunk({"reasoning": "Hm", "reasoning_content": "Hm", "reasoning_details": details}),
            chunk({"reasoning": "m.", "reasoning_content": "m.", "reasoning_details": more}),
            chunk({"content": "So."}),
            END,
        ]
    )
    assert thinking_of(events) == "Hmm."
    message = done_of(events).reply["choices"][0]["message"]
    assert message["reasoning"] == message["reasoning_content"] == "Hmm."
    assert message["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "Hmm.", "signature": "sig"}
    ]


def test_done_without_a_reason_to_stop_is_no_reply() -> None:
    with pytest.raises(ModelUnavailable):
        chat([chunk({"content": "Hi"})])


def test_a_refusal_of_the_model_is_words_and_a_refusal() -> None:
    events = chat([chunk({"refusal": "I can"}), chunk({"refusal": "not."}), END])
    assert text_of(events) == "I cannot."
    assert done_of(events).stop == "refusal"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"error": {"code": 502, "message": "upstream"}}, ModelUnavailable),
        ({"error": {"code": 400, "message": "bad"}}, ModelRefused),
        ({"error": {"message": "?"}}, ModelUnavailable),
        ({"object": "error", "type": "BadRequestError", "code": 400, "message": "x"}, ModelRefused),
        (
            {
                "error": {
                    "code": 400,
                    "message": "request (9000 tokens) exceeds the available context size (4096 "
                    "tokens), try increasing it",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": 9000,
                    "n_ctx": 4096,
                }
            },
            ModelOverflow,
        ),
    ],
)
def test_errors_in_chunks_are_classified_as_their_status_would_be(
    error: dict[str, Any], kind: type[ModelError]
) -> None:
    with pytest.raises(ModelError) as caught:
        chat([chunk({"content": "H"}), error])
    assert type(caught.value) is kind
    if isinstance(caught.value, ModelOverflow):
        overflow: Any = caught.value.overflow
        assert (overflow.limit_tokens, overflow.requested_tokens) == (4096, 9000)


def responses(events: Sequence[Any]) -> list[ReplyEvent]:
    with ModelServer([told(events, end="")]) as server:
        return run_stream("openai-responses", server)


def test_items_that_the_last_event_leaves_out_are_kept() -> None:
    part = {"type": "output_text", "text": "Hi"}
    item = {"type": "message", "role": "assistant", "content": [part]}
    last = {"id": "r", "status": "completed", "output": []}
    done = done_of(
        responses(
            [
                {"type": "response.output_item.done", "output_index": 0, "item": item},
                {"type": "response.completed", "response": last},
            ]
        )
    )
    assert done.reply["output"] == [item]
    assert read_reply("openai-responses", done.reply)


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"type": "error", "code": "server_error", "message": "x"}, ModelUnavailable),
        ({"type": "error", "code": "invalid_prompt", "message": "x"}, ModelRefused),
        (
            {"type": "response.failed", "response": {"error": {"code": "context_length_exceeded"}}},
            ModelOverflow,
        ),
        (
            {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded"}}},
            ModelUnavailable,
        ),
    ],
)
def test_failed_responses_are_classified(event: dict[str, Any], kind: type[ModelError]) -> None:
    with pytest.raises(ModelError) as caught:
        responses([event])
    assert type(caught.value) is kind


def anthropic(events: Sequence[Any]) -> list[ReplyEvent]:
    message = {"id": "m", "role": "assistant", "content": [], "usage": {"input_tokens": 5}}
    with ModelServer(
        [told([{"type": "message_start", "message": message}, *events], end="")]
    ) as server:
        return run_stream("anthropic", server)


def block(at: int, start: Mapping[str, Any], *deltas: Mapping[str, Any]) -> list[Any]:
    return [
        {"type": "content_block_start", "index": at, "content_block": start},
        *({"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": at},
    ]


def settled(stop: str, **usage: int) -> list[Any]:
    delta = {"stop_reason": stop, "stop_sequence": None}
    return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def test_a_call_without_arguments_and_one_cut_off_are_told_apart() -> None:
    tool = {"type": "tool_use", "name": "f", "input": {}}
    partial = {"type": "input_json_delta", "partial_json": '{"path": "a'}
    events = anthropic(
        [
            *block(0, {**tool, "id": "a"}, {"type": "input_json_delta", "partial_json": ""}),
            *block(1, {**tool, "id": "b"}, partial),
            *settled("max_tokens", output_tokens=4),
        ]
    )
    whole, cut = done_of(events).reply["content"]
    assert whole["input"] == {}
    assert cut["input"] == {"INVALID_JSON": '{"path": "a'}
    assert done_of(events).stop == "length"


def test_citations_signatures_and_blocks_nobody_knows_are_kept() -> None:
    cited = {"type": "citations_delta", "citation": {"cited_text": "x"}}
    events = anthropic(
        [
            *block(0, {"type": "redacted_thinking", "data": "abc"}),
            *block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hi"}, cited),
            *block(
                2,
                {"type": "compaction", "content": None},
                {"type": "compaction_delta", "content": "sum"},
            ),
            *settled("end_turn", output_tokens=4, cache_read_input_tokens=7),
        ]
    )
    done = done_of(events)
    assert done.reply["content"] == [
        {"type": "redacted_thinking", "data": "abc"},
        {"type": "text", "text": "Hi", "citations": [{"cited_text": "x"}]},
        {"type": "compaction", "content": "sum"},
    ]
    assert done.usage is not None
    assert (done.usage.input_tokens, done.usage.output_tokens) == (12, 4)


@pytest.mark.parametrize(
    ("pages", "window"),
    [
        ({"/v1/models": {"data": [{"id": "scripted", "context_length": 8192}]}}, 8192),
        ({"/v1/models": {"data": [{"id": "any", "max_model_len": 4096}]}}, 4096),
        ({"/v1/models": {"data": [{"id": "a", "n_ctx": 1}, {"id": "b", "n_ctx": 2}]}}, None),
        ({"/v1/models": {"data": [{"id": "x", "meta": {"n_ctx_train": 131072}}]}}, None),
        ({"/v1/models": {"data": [{"id": "x", "meta": {"n_ctx": 4096}}]}}, 4096),
        (
            {
                "/v1/models": {"data": [{"id": "x", "meta": {"n_ctx": 8192}}]},
                "/props": {"default_generation_settings": {"n_ctx": 4096}},
            },
            4096,
        ),
        ({"/props": {"default_generation_settings": {"n_ctx": 2048}}}, 2048),
        ({"/v1/models": ["odd"], "/props": {"default_generation_settings": 7}}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("wire", WIRES)
def test_a_window_is_known_where_the_server_states_it(
    wire: WireName, pages: dict[str, Any], window: int | None
) -> None:
    with ModelServer(pages=pages) as server:
        model = model_at(wire, server)
        assert using(model, model.stated_window) == window
        assert model.window_tokens == window


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_every_spelling_reaches_the_server(wire: WireName, end: str) -> None:
    with ModelServer([Says(text="here")]) as server:
        assert text_of(run_stream(wire, server.url + end)) == "here"
        assert server.asked[0].path == PATHS[wire]
