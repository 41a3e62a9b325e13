"""How far the words of a message may be trusted, from who said them.

Owns one decision: the user's and the operator's words are high, the model's are medium, what
a tool brought in is low. Always holds: a message is trusted no more than the least trusted of
its parts, whatever role carries it; a file, a hook or a request makes no difference.
"""

from __future__ import annotations

from recollect.values.message import Message, Other, Role, ToolResult
from recollect.values.segment import Trust

_BY_ROLE: dict[Role, Trust] = {
    "system": "high",
    "user": "high",
    "assistant": "medium",
    "tool": "low",
}
# Blocks in which a provider's own tools answer: web pages, files, other servers' output.
_BROUGHT_IN = ("_tool_result", "_call", "_output")


def trust_of_role(role: Role) -> Trust:
    """The trust of words that this role said itself."""
    return _BY_ROLE[role]


def trust_of(message: Message) -> Trust:
    """The trust of a message: its role's, or less where it carries less trusted words.

    Some formats carry tool results under the user's role. A summary stands there too, but
    the model wrote it.
    """
    for part in message.parts:
        if isinstance(part, ToolResult):
            return "low"
        if isinstance(part, Other) and part.kind.endswith(_BROUGHT_IN):
            return "low"
    if message.summary and message.role != "tool":
        return "medium"
    return _BY_ROLE[message.role]
