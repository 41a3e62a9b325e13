"""What a provider's server sends beside whole replies: streams, errors, refusals for size."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from recollect.testing.scripted_model import Says, WireName, whole_reply

Events: TypeAlias = list[tuple[str, Mapping[str, Any]]]


def streamed_reply(wire: WireName, says: Says, *, model: str, usage: bool) -> Events:
    """The same reply as events; `usage`: a chat request asked for it."""
    if wire == "anthropic":
        return list(_message_events(says, model))
    if wire == "openai-chat":
        return list(_chunks(says, model, usage=usage))
    return list(_response_events(says, model))


def error_body(wire: WireName, *, code: str, message: str) -> dict[str, Any]:
    """An error response in the wire's own form."""
    if wire == "anthropic":
        return {"type": "error", "error": {"type": code, "message": message}}
    return {"error": {"message": message, "type": code, "param": None, "code": code}}


def overloaded(wire: WireName) -> tuple[str, Mapping[str, Any]]:
    """The event that tells an error in the midst of a stream."""
    code = "overloaded_error" if wire == "anthropic" else "server_error"
    return error_event(wire, error_body(wire, code=code, message="Overloaded"))


def overflow_body(wire: WireName, *, tokens: int, window: int) -> dict[str, Any]:
    """A request over the window, in the provider's own words."""
    if wire == "anthropic":
        message = f"prompt is too long: {tokens} tokens > {window} maximum"
        return error_body(wire, code="invalid_request_error", message=message)
    if wire == "openai-chat":
        message = (
            f"This model's maximum context length is {window} tokens. However, your messages "
            f"resulted in {tokens} tokens. Please reduce the length of the messages."
        )
    else:
        message = "Your input exceeds the context window of this model. Adjust it and try again."
    return error_body(wire, code="context_length_exceeded", message=message)


def error_event(wire: WireName, body: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """An error body as an event of a stream."""
    if wire == "anthropic":
        return "error", body
    if wire == "openai-chat":
        return "", body
    failed = {"id": "resp_1", "object": "response", "status": "failed", **body, "output": []}
    return "response.failed", {"type": "response.failed", "response": failed}


def stretches(text: str, says: Says) -> list[str]:
    """The text in stretches of the reply's size."""
    size = says.stretch_chars
    return [text[at : at + size] for at in range(0, len(text), size)]


def _message_events(says: Says, model: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    message = whole_reply("anthropic", says, model=model)
    begun = {**message, "content": [], "stop_reason": None}
    begun["usage"] = {**message["usage"], "output_tokens": 1}
    yield _named({"type": "message_start", "message": begun})
    yield _named({"type": "ping"})
    for at, block in enumerate(message["content"]):
        yield _named({"type": "content_block_start", "index": at, "content_block": _empty(block)})
        for delta in _block_deltas(block, says):
            yield _named({"type": "content_block_delta", "index": at, "delta": delta})
        yield _named({"type": "content_block_stop", "index": at})
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    usage = {"output_tokens": message["usage"].get("output_tokens", 0)}
    yield _named({"type": "message_delta", "delta": delta, "usage": usage})
    yield _named({"type": "message_stop"})


def _empty(block: Mapping[str, Any]) -> dict[str, Any]:
    cleared = {"text": "", "thinking": "", "signature": "", "input": {}}
    return {name: cleared.get(name, value) for name, value in block.items()}


def _block_deltas(block: Mapping[str, Any], says: Says) -> Iterator[dict[str, Any]]:
    if block["type"] == "tool_use":
        for part in stretches(json.dumps(block["input"], ensure_ascii=False), says):
            yield {"type": "input_json_delta", "partial_json": part}
        return
    kind = block["type"]
    for part in stretches(block[kind], says):
        yield {"type": f"{kind}_delta", kind: part}
    if "signature" in block:
        yield {"type": "signature_delta", "signature": block["signature"]}


def _chunks(says: Says, model: str, *, usage: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
    completion = whole_reply("openai-chat", says, model=model)
    top = {name: completion[name] for name in ("id", "created", "model")}
    top["object"] = "chat.completion.chunk"

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> tuple[str, dict[str, Any]]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return "", {**top, "choices": [choice]}

    yield chunk({"role": "assistant", "content": None})
    for part in stretches(says.thinking, says):
        yield chunk({"reasoning_content": part})
    for part in stretches(says.text, says):
        yield chunk({"content": part})
    for at, call in enumerate(says.calls):
        begun = {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": ""},
        }
        yield chunk({"tool_calls": [{"index": at, **begun}]})
    for at, call in enumerate(says.calls):
        for part in stretches(json.dumps(call.input, ensure_ascii=False), says):
            yield chunk({"tool_calls": [{"index": at, "function": {"arguments": part}}]})
    yield chunk({}, completion["choices"][0]["finish_reason"])
    if usage and says.usage is not None:
        yield "", {**top, "choices": [], "usage": completion["usage"]}


def _response_events(says: Says, model: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    response = whole_reply("openai-responses", says, model=model)
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    yield _named({"type": "response.created", "response": begun})
    for at, item in enumerate(response["output"]):
        blank = {"content": [], "summary": [], "arguments": ""}
        added = {name: blank.get(name, value) for name, value in item.items()}
        yield _named({"type": "response.output_item.added", "output_index": at, "item": added})
        place = {"item_id": item["id"], "output_index": at}
        for event in _item_events(item, says):
            yield _named({**place, **event})
        yield _named({"type": "response.output_item.done", "output_index": at, "item": item})
    yield _named({"type": f"response.{response['status']}", "response": response})


def _item_events(item: Mapping[str, Any], says: Says) -> Iterator[Mapping[str, Any]]:
    """What comes between the beginning and the end of an item."""
    if item["type"] == "function_call":
        for piece in stretches(item["arguments"], says):
            yield {"type": "response.function_call_arguments.delta", "delta": piece}
        return
    if item["type"] == "reasoning":
        part, place, whose = item["summary"][0], {"summary_index": 0}, "reasoning_summary_part"
        kind, field = "reasoning_summary_text", "text"
    else:
        part, place, whose = item["content"][0], {"content_index": 0}, "content_part"
        kind, field = ("refusal",) * 2 if "refusal" in part else ("output_text", "text")
    yield {"type": f"response.{whose}.added", **place, "part": {**part, field: ""}}
    for piece in stretches(part[field], says):
        yield {"type": f"response.{kind}.delta", **place, "delta": piece}
    yield {"type": f"response.{kind}.done", **place, field: part[field]}
    yield {"type": f"response.{whose}.done", **place, "part": part}


def _named(event: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    return str(event["type"]), event
