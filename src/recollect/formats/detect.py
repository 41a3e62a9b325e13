"""Which wire format a request is in, by its content.

Looks at keys and at the words that only one format has. A request that could be several (plain
strings under `messages`) is taken as Anthropic's, whose rules are the strictest: what satisfies
them satisfies the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recollect.values.request import FormatName

_PI_WORDS = (b'"toolResult"', b'"toolCall"', b'"bashExecution"', b'"compactionSummary"')
_CHAT_WORDS = (
    b'"tool_calls"',
    b'"tool_call_id"',
    b'"function_call"',
    b'"image_url"',
    b'"refusal"',
)
_ANTHROPIC_WORDS = (b'"tool_use"', b'"tool_result"', b'"thinking"', b'"cache_control"', b'"source"')
_CHAT_ROLES = (b'"role":"system"', b'"role":"developer"', b'"role":"tool"', b'"role":"function"')
_CHAT_MODELS = (b'"gpt', b'"o1', b'"o3', b'"o4', b'"deepseek', b'"mistral', b'"qwen', b'"llama')
_LOOK_AT = 12
"""How many messages are looked at from each end; formats do not change in between."""


def detect_request_format(
    field: str, messages: Sequence[bytes], spans: Mapping[str, bytes]
) -> FormatName:
    """The format of a request whose messages stand under `field`."""
    if field == "input":
        return "openai-responses"
    if "systemPrompt" in spans:
        return "pi"
    looked_at = [*messages[:_LOOK_AT], *messages[_LOOK_AT:][-_LOOK_AT:]]
    votes = {"pi": 0, "openai-chat": 0, "anthropic": 0}
    for raw in looked_at:
        votes["pi"] += any(word in raw for word in _PI_WORDS)
        votes["openai-chat"] += any(word in raw for word in _CHAT_WORDS)
        votes["openai-chat"] += any(word in raw.replace(b": ", b":") for word in _CHAT_ROLES)
        votes["anthropic"] += any(word in raw for word in _ANTHROPIC_WORDS)
    if votes["pi"] > max(votes["openai-chat"], votes["anthropic"]):
        return "pi"
    if "system" in spans or votes["anthropic"] > votes["openai-chat"]:
        return "anthropic"
    if votes["openai-chat"] or spans.get("model", b"").lower().startswith(_CHAT_MODELS):
        return "openai-chat"
    return "anthropic"
