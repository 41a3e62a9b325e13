"""What the engine is taught of a reply is what the next request holds of it."""

from collections.abc import Mapping
from typing import Any

import pytest

from recollect.core.formats.codec import CODECS
from recollect.core.formats.json_text import encode
from recollect.core.formats.replies import read_reply, read_usage
from recollect.core.formats.translate import Speaker, as_resent, to_pi, to_wire
from recollect.core.rules.identity import identify
from recollect.core.values.model import StopReason
from recollect.testing.scripted_model import WireName

USED: Mapping[str, Any] = {"prompt_tokens": 7, "completion_tokens": 2}


def chat(**message: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", **message}}], "usage": USED}


def chat_call(arguments: str, **named: Any) -> dict[str, Any]:
    function = {"name": "bash", "arguments": arguments}
    return chat(content=None, tool_calls=[{"type": "function", "function": function, **named}])


def anthropic(*content: Mapping[str, Any]) -> dict[str, Any]:
    used = {"input_tokens": 7, "output_tokens": 2}
    return {"role": "assistant", "content": list(content), "usage": used}


TEXT = {"type": "text", "text": "hello"}
WHOLE = '{"command": "echo 1"}'
ODD: Mapping[str, tuple[WireName, StopReason, dict[str, Any]]] = {
    "a long id": ("openai-chat", "tool-calls", chat_call(WHOLE, id="call_" + "x" * 60)),
    "no id": ("openai-chat", "tool-calls", chat_call(WHOLE)),
    "arguments that are cut off": ("openai-chat", "length", chat_call('{"comma', id="c")),
    "a list of texts": ("openai-chat", "stop", chat(content=[TEXT, {**TEXT, "text": "b"}])),
    "reasoning of another name": ("openai-chat", "stop", chat(content="a", reasoning="hm")),
    "unsigned thinking": (
        "anthropic",
        "stop",
        anthropic({"type": "thinking", "thinking": "hm", "signature": ""}, TEXT),
    ),
    "a block nobody knows": ("anthropic", "stop", anthropic({"type": "server_tool_use"}, TEXT)),
    "an odd id": (
        "anthropic",
        "tool-calls",
        anthropic({"type": "tool_use", "id": "a.b", "name": "bash", "input": {}}),
    ),
    "a long call id": (
        "openai-responses",
        "tool-calls",
        {
            "output": [
                {"type": "function_call", "call_id": "c" * 70, "name": "bash", "arguments": WHOLE}
            ],
            "usage": {"input_tokens": 7, "input_tokens_details": {}, "output_tokens": 2},
        },
    ),
}


@pytest.mark.parametrize("case", list(ODD))
def test_an_odd_reply_has_the_identity_of_what_is_sent_back(case: str) -> None:
    wire, stop, reply = ODD[case]
    speaker = Speaker(format=wire, model="m")
    message = to_pi(reply, speaker, stop=stop, usage=None, timestamp=1_773_230_400_000)
    taught = as_resent(reply, speaker, stop=stop, message=message)
    codec = CODECS[wire]
    seen = [identify(codec.read(raw), b"k") for raw in read_reply(wire, taught)]
    sent = to_wire([message], speaker).messages
    assert seen == [identify(codec.read(encode(one)), b"k") for one in sent]
    assert seen, "something was said"
    used = read_usage(taught)
    assert used is not None
    assert used.input_tokens == 7


def test_of_a_refusal_only_the_usage_is_taught() -> None:
    speaker = Speaker(format="anthropic", model="m")
    taught = as_resent(anthropic(TEXT), speaker, stop="refusal")
    assert read_reply("anthropic", taught) == ()
    assert read_usage(taught) is not None
