"""Messages read from a reply are the messages that the client sends back in its next request."""

import json
from typing import Any

import pytest

from recollect.core.formats.codec import CODECS
from recollect.core.formats.replies import read_reply
from recollect.core.formats.request import split_request
from recollect.core.rules.identity import identify
from recollect.core.values.message import MessageId
from recollect.core.values.model import FormatName

SECRET = b"k" * 32


class SdkObject:
    """As the providers' libraries: fields that came are set, all others have a default."""

    def __init__(self, came: dict[str, Any], **defaults: Any) -> None:
        self._came = {name: _wrapped(value) for name, value in came.items()}
        for name, value in {**defaults, **self._came}.items():
            setattr(self, name, value)
        self._defaults = defaults

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def model_dump(
        self, *, mode: str = "python", exclude_unset: bool = False, warnings: bool = True
    ) -> dict[str, Any]:
        assert mode in ("python", "json")
        shown = self._came if exclude_unset else {**self._defaults, **self._came}
        return {name: _unwrapped(value, exclude_unset) for name, value in shown.items()}


def _wrapped(value: Any) -> Any:
    if isinstance(value, dict):
        if "role" not in value and value.get("type") != "text":
            return SdkObject(value)
        return SdkObject(value, citations=None, refusal=None, audio=None, annotations=None)
    return [_wrapped(item) for item in value] if isinstance(value, list) else value


def _unwrapped(value: Any, exclude_unset: bool) -> Any:
    if isinstance(value, SdkObject):
        return value.model_dump(mode="json", exclude_unset=exclude_unset)
    if isinstance(value, list):
        return [_unwrapped(item, exclude_unset) for item in value]
    return value


def ids(raws: tuple[bytes, ...], format_name: FormatName) -> list[MessageId]:
    return [identify(CODECS[format_name].read(raw), SECRET) for raw in raws]


def sent_back(format_name: FormatName, field: str, messages: list[Any]) -> list[MessageId]:
    """The identities of these messages as the next request brings them."""
    as_mapping = ids(split_request({field: messages}, format_name).messages, format_name)
    plain = [_unwrapped(message, True) for message in messages]
    body = json.dumps({field: plain}, default=lambda item: _unwrapped(item, True)).encode()
    assert ids(split_request(body, format_name).messages, format_name) == as_mapping
    return as_mapping


def spellings(reply: dict[str, Any]) -> list[Any]:
    """A reply as bytes, as a mapping and as a library's object."""
    return [json.dumps(reply).encode(), reply, _wrapped(reply)]


ANTHROPIC: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [
        {"type": "thinking", "thinking": "Look first.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "c2VhbGVk"},
        {"type": "text", "text": "I will look.", "citations": None},
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
        {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a.py", "n": 1}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 5, "output_tokens": 7},
}


def test_anthropic_content_sent_back_as_it_came() -> None:
    for reply in spellings(ANTHROPIC):
        found = read_reply("anthropic", reply)
        content = reply.content if isinstance(reply, SdkObject) else ANTHROPIC["content"]
        resent = [{"role": "assistant", "content": content}]
        assert len(found) == 1
        assert ids(found, "anthropic") == sent_back("anthropic", "messages", resent)
        assert set(json.loads(found[0])) == {"role", "content"}


def test_anthropic_text_sent_back_as_a_string_or_with_a_cache_mark() -> None:
    reply = {**ANTHROPIC, "content": [{"type": "text", "text": "Done.", "citations": None}]}
    for content in (
        "Done.",
        [{"type": "text", "text": "Done."}],
        [{"type": "text", "text": "Done.", "cache_control": {"type": "ephemeral"}}],
        [_wrapped(reply["content"][0]).model_dump()],
    ):
        resent = [{"role": "assistant", "content": content}]
        found = ids(read_reply("anthropic", reply), "anthropic")
        assert found == sent_back("anthropic", "messages", resent)


def chat(message: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}
    return {"id": "c", "object": "chat.completion", "choices": [choice], "usage": {}}


CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "read", "arguments": '{"path": "a.py",  "n": 1}'},
}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "Done.", "refusal": None, "annotations": []},
        {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None},
        {"role": "assistant", "content": "Look.", "tool_calls": [CALL, CALL], "audio": None},
        {"role": "assistant", "content": None, "refusal": "I cannot."},
        {"role": "assistant", "content": None, "audio": {"id": "a1", "transcript": "Hi."}},
        {"role": "assistant", "content": "x", "function_call": None, "tool_calls": None},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "assistant", "content": "Done.", "reasoning_content": "Because."},
    ],
)
def test_chat_messages_appended_as_objects_or_dumped(message: dict[str, Any]) -> None:
    for reply in spellings(chat(message)):
        found = read_reply("openai-chat", reply)
        appended = reply.choices[0].message if isinstance(reply, SdkObject) else message
        said = {name: value for name, value in message.items() if value is not None}
        for resent in (appended, said, {"content": None, **said}):
            back = sent_back("openai-chat", "messages", [resent])
            assert ids(found, "openai-chat") == back
        if isinstance(reply, SdkObject):
            dumped = reply.choices[0].message.model_dump()
            back = sent_back("openai-chat", "messages", [dumped])
            assert ids(found, "openai-chat") == back


RESPONSES: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "error": None,
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2Vh"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "x"}},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Hi.", "annotations": [], "logprobs": []}],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "read",
            "arguments": '{"path":"a.py"}',
            "status": "completed",
        },
    ],
}


def test_responses_output_added_to_the_input() -> None:
    for reply in spellings(RESPONSES):
        found = read_reply("openai-responses", reply)
        input_: list[Any] = []
        input_ += reply.output if isinstance(reply, SdkObject) else RESPONSES["output"]
        assert len(found) == 4
        assert ids(found, "openai-responses") == sent_back("openai-responses", "input", input_)


def test_the_event_that_ends_a_stream_holds_the_whole_reply() -> None:
    event = {"type": "response.completed", "sequence_number": 9, "response": RESPONSES}
    whole = read_reply("openai-responses", RESPONSES)
    for reply in spellings(event):
        assert ids(read_reply("openai-responses", reply), "openai-responses") == ids(
            whole, "openai-responses"
        )


def test_pi_messages_are_their_own_bytes() -> None:
    message = {
        "role": "assistant",
        "content": [{"type": "text", "text": "Hi."}],
        "usage": {"cost": {"total": 0.000045}},
        "stopReason": "stop",
        "timestamp": 1,
    }
    raw = b' {"usage":{"cost":{"total":0.000045}},"role":"assistant","content":[{"type":"text",'
    raw += b'"text":"Hi."}],"stopReason":"stop","timestamp":1}'
    assert read_reply("pi", raw) == (raw,)
    for reply in spellings(message):
        back = sent_back("pi", "messages", [message])
        assert ids(read_reply("pi", reply), "pi") == back


@pytest.mark.parametrize("format_name", ["anthropic", "openai-chat", "openai-responses", "pi"])
@pytest.mark.parametrize(
    "reply",
    [
        None,
        "text",
        b"",
        b"not json",
        b"[]",
        {},
        [],
        iter(()),
        ValueError("overloaded"),
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        {"error": {"message": "too long"}},
        {"role": "assistant", "content": []},
        {"choices": []},
        {"choices": [None]},
        {"choices": [{"delta": {"content": "Hi"}}]},
        {"choices": [{"message": {"role": "assistant", "content": None}}]},
        {"choices": [{"message": {"role": "assistant", "content": ""}}]},
        {"output": None},
        {"status": "failed", "error": {"message": "x"}, "output": []},
        {"status": "in_progress", "output": RESPONSES["output"]},
        {"type": "response.failed", "response": {"status": "failed", "output": []}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "H"}},
    ],
)
def test_errors_streams_and_the_unknown_add_nothing(format_name: FormatName, reply: Any) -> None:
    assert read_reply(format_name, reply) == ()
