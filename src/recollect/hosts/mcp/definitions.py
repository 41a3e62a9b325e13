"""The tools of the MCP server: the memory tools, `why` and `context_status`, with their hints.

Must not import the engine or the SDK: a client that has just started waits for the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from msgspec import Meta

from recollect.core.formats.codec import tool_definition
from recollect.core.values.tenant import KeyScope
from recollect.hosts.tools.arguments import KINDS, Arguments, ToolKind


class WhyArguments(Arguments):
    """Arguments of `why`."""

    message: Annotated[
        str,
        Meta(
            max_length=400,
            description="Which message: its id as memory_search shows it, or words that stand in "
            "it; left out: what the whole request held",
        ),
    ] = ""
    turn: Annotated[int, Meta(ge=0, description="Which request of the session; 0: the newest")] = 0
    session: Annotated[
        str, Meta(max_length=1_000, description="Which session; left out: the newest")
    ] = ""
    max_tokens: Annotated[
        int, Meta(description="How long the answer may be; 0: as long as is allowed")
    ] = 0


class StatusArguments(Arguments):
    """Arguments of `context_status`."""

    session: Annotated[
        str, Meta(max_length=1_000, description="Which session; left out: the newest")
    ] = ""


WHY: Final = ToolKind(
    name="why",
    description=(
        "What a request of a conversation held and why, or what became of one message in it: sent "
        "as it came, shortened, left out, or shown as a summary. Use it when something that was "
        "said is missing from what you see, or the user asks why you do not know it."
    ),
    arguments=WhyArguments,
    example={"message": "invoices are printed by"},
)
STATUS: Final = ToolKind(
    name="context_status",
    description=(
        "How full a conversation's context window was at its last request: tokens and share of "
        "the window, system prompt, tools, messages, compactions; and what the memory holds."
    ),
    arguments=StatusArguments,
    example={},
)
PAST_KINDS: Final[Mapping[str, ToolKind]] = {kind.name: kind for kind in (WHY, STATUS)}
"""The tools that read past requests: `past_requests`."""

_READS: Final = {"readOnlyHint": True, "openWorldHint": False}
_ADDS: Final = {
    "readOnlyHint": False,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": False,
}
_DESTROYS: Final = {**_ADDS, "destructiveHint": True}
_HINTS: Final[Mapping[str, Mapping[str, bool]]] = {
    "memory_search": _READS,
    "memory_get": _READS,
    "memory_store": _ADDS,
    "memory_recall": _READS,
    "memory_forget": _DESTROYS,
    "why": _READS,
    "context_status": _READS,
}


def scope_of(tool: str) -> KeyScope:
    """What a key of a service has to be good for to call a tool."""
    hints = _HINTS[tool]
    if hints["readOnlyHint"]:
        return "read"
    return "forget" if hints["destructiveHint"] else "write"


TOOL_NAMES: Final = frozenset(_HINTS)


def listed_tools() -> list[dict[str, Any]]:
    """All tools as `tools/list` shows them; they are the same for everybody."""
    return [
        {
            **tool_definition("mcp", kind.name, kind.description, kind.parameters),
            "annotations": dict(_HINTS[kind.name]),
        }
        for kind in (*KINDS.values(), *PAST_KINDS.values())
    ]
