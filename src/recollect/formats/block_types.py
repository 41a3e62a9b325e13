"""Every block and item type that the providers document, and its part in a pair of call and result.

The one table that pairing works from. A type that is not in it passes exactly as it came: nobody
knows what it needs, so nothing of it is repaired, and it never answers for a type that is known.
Sources: the request types of anthropic-sdk-python (BetaContentBlockParam), openai-python
(ResponseInputItemParam and its beta) and the chat reference, as of November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from recollect.values.message import Role
from recollect.values.model import FormatName

PairRole: TypeAlias = Literal["call", "result", "neither"]
RunBy: TypeAlias = Literal["client", "provider", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockType:
    """A block or item type of a wire format."""

    name: str
    pair: PairRole = "neither"
    run_by: RunBy = ""
    """Who runs the tool: what the client runs it must answer, the provider answers its own."""
    answers: tuple[str, ...] = ()
    """The call types whose result it may be."""
    id_field: str = ""
    """Where the id stands that a pair shares."""
    said_by: Role = "assistant"
    """Whose message it is read as; of an item that says no role itself."""


def _call(name: str, run_by: RunBy, id_field: str) -> BlockType:
    return BlockType(name=name, pair="call", run_by=run_by, id_field=id_field)


def _result(
    name: str, run_by: RunBy, answers: tuple[str, ...], id_field: str, said_by: Role
) -> BlockType:
    return BlockType(
        name=name,
        pair="result",
        run_by=run_by,
        answers=answers,
        id_field=id_field,
        said_by=said_by,
    )


def _server_result(name: str, call: str = "server_tool_use") -> BlockType:
    return _result(name, "provider", (call,), "tool_use_id", "assistant")


def _neither(name: str, said_by: Role = "assistant") -> BlockType:
    return BlockType(name=name, said_by=said_by)


_ANTHROPIC: Final = (
    _neither("text", "user"),
    _neither("image", "user"),
    _neither("document", "user"),
    _neither("search_result", "user"),
    _neither("container_upload", "user"),
    _neither("mid_conv_system", "user"),
    _neither("thinking"),
    _neither("redacted_thinking"),
    _neither("compaction"),
    _neither("fallback"),
    _call("tool_use", "client", "id"),
    _result("tool_result", "client", ("tool_use",), "tool_use_id", "user"),
    _call("server_tool_use", "provider", "id"),
    _server_result("web_search_tool_result"),
    _server_result("web_fetch_tool_result"),
    _server_result("code_execution_tool_result"),
    _server_result("bash_code_execution_tool_result"),
    _server_result("text_editor_code_execution_tool_result"),
    _server_result("tool_search_tool_result"),
    _server_result("advisor_tool_result"),
    _call("mcp_tool_use", "provider", "id"),
    _server_result("mcp_tool_result", "mcp_tool_use"),
)

_RESPONSES: Final = (
    _neither("message", "user"),
    _neither("reasoning"),
    _neither("compaction"),
    _neither("compaction_trigger", "user"),
    _neither("item_reference"),
    _neither("agent_message"),
    _neither("additional_tools", "system"),
    _neither("configuration_update", "system"),
    _neither("file_search_call"),
    _neither("web_search_call"),
    _neither("code_interpreter_call"),
    _neither("image_generation_call"),
    _neither("mcp_list_tools"),
    _call("function_call", "client", "call_id"),
    _result(
        "function_call_output",
        "client",
        ("function_call", "local_shell_call"),  # Codex answers its shell so (docs/sources.md)
        "call_id",
        "tool",
    ),
    _call("custom_tool_call", "client", "call_id"),
    _result("custom_tool_call_output", "client", ("custom_tool_call",), "call_id", "tool"),
    _call("local_shell_call", "client", "call_id"),
    _result("local_shell_call_output", "client", ("local_shell_call",), "call_id", "tool"),
    _call("shell_call", "client", "call_id"),
    _result("shell_call_output", "client", ("shell_call",), "call_id", "tool"),
    _call("apply_patch_call", "client", "call_id"),
    _result("apply_patch_call_output", "client", ("apply_patch_call",), "call_id", "tool"),
    _call("computer_call", "client", "call_id"),
    _result("computer_call_output", "client", ("computer_call",), "call_id", "tool"),
    _call("tool_search_call", "client", "call_id"),
    _result("tool_search_output", "client", ("tool_search_call",), "call_id", "tool"),
    _call("program", "provider", "call_id"),
    _result("program_output", "provider", ("program",), "call_id", "assistant"),
    _call("multi_agent_call", "provider", "call_id"),
    _result("multi_agent_call_output", "provider", ("multi_agent_call",), "call_id", "assistant"),
    _call("mcp_approval_request", "provider", "id"),
    _result(
        "mcp_approval_response",
        "provider",
        ("mcp_approval_request",),
        "approval_request_id",
        "user",
    ),
    BlockType(name="mcp_call", answers=("mcp_approval_request",), id_field="approval_request_id"),
)

_CHAT: Final = (
    _neither("text", "user"),
    _neither("image_url", "user"),
    _neither("input_audio", "user"),
    _neither("file", "user"),
    _neither("refusal"),
    _neither("audio"),
    _call("function", "client", "id"),
    _call("custom", "client", "id"),
    _result("tool", "client", ("function", "custom"), "tool_call_id", "tool"),
    _call("function_call", "client", "name"),
    _result("function", "client", ("function_call",), "name", "tool"),
)

BLOCK_TYPES: Final[Mapping[FormatName, tuple[BlockType, ...]]] = {
    "anthropic": _ANTHROPIC,
    "openai-responses": _RESPONSES,
    "openai-chat": _CHAT,
}
ANTHROPIC_TYPES: Final[Mapping[str, BlockType]] = {row.name: row for row in _ANTHROPIC}
RESPONSES_TYPES: Final[Mapping[str, BlockType]] = {row.name: row for row in _RESPONSES}


def page() -> str:
    """The table as the documentation shows it (docs/providers.md)."""
    lines: list[str] = []
    for format_name, rows in BLOCK_TYPES.items():
        lines += [f"**{format_name}**", "", "| type | in a pair | run by | tied by |"]
        lines.append("|---|---|---|---|")
        for row in rows:
            said = {"call": "call", "result": "result of ", "neither": ""}[row.pair]
            if row.pair == "neither" and row.answers:
                said = "belongs to "
            named = ", ".join(f"`{name}`" for name in row.answers)
            tied = f"`{row.id_field}`" if row.id_field else ""
            lines.append(f"| `{row.name}` | {said}{named} | {row.run_by} | {tied} |")
        lines.append("")
    return "\n".join(lines[:-1])


if __name__ == "__main__":
    print(page())  # noqa: T201
