"""Commands as text: what a line that begins with a slash means, and what is answered.

Pure. A command is never said to a model; `/compact` instructions are used once. A line that is
no command of ours is an ordinary message: a path begins with a slash, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from recollect.agent.tools.outcome import Tool
from recollect.formats.json_text import encode
from recollect.session.index import SessionRecord
from recollect.session.workspace import LoadedWorkspace
from recollect.values.compaction import CompactionResult

CommandName: TypeAlias = Literal["compact", "new", "reset", "status", "undo", "context", "memory"]
_LINE = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)
_DETAILED_FILES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What the user wants done."""

    name: CommandName
    argument: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCommand:
    """An ordinary message, and why it is one."""

    reason: str


def read_command(text: str) -> Command | NoCommand:
    """The command in a line of the user's."""
    found = _LINE.fullmatch(text.strip())
    if found is None:
        return NoCommand(reason="it does not begin with a slash and a word")
    for name in get_args(CommandName):
        if name == found[1]:
            return Command(name=name, argument=(found[2] or "").strip())
    return NoCommand(reason="no command of this name")


def compaction_text(result: CompactionResult) -> str:
    """What `/compact` answers."""
    if not result.compacted:
        word = "Nothing was compacted" if result.ok else "Compaction failed"
        return f"{word}: {result.reason}. The conversation is as it was."
    sizes = f"{result.tokens_before} → {result.tokens_after} tokens"
    lines = [f"Compacted: {result.compacted_messages} messages are now a summary, {sizes}."]
    if (receipt := result.receipt) is not None:
        kept, recallable = receipt.count("in summary"), receipt.count("recallable")
        known = f"{kept} in the summary, {recallable} recallable, {receipt.count('lost')} lost"
        lines.append(f"Of what was known: {known}.")
    lines.append("/undo takes it back.")
    return "\n".join(lines)


def status_text(
    *,
    session_id: str,
    model: str,
    window_tokens: int | None,
    messages: int,
    compactions: int,
    record: SessionRecord | None,
) -> str:
    """What `/status` answers."""
    lines = [
        f"session {session_id}",
        f"model {model}, window {window_tokens or 'not known'}",
        f"{messages} messages, {compactions} compactions standing",
    ]
    if record is not None and record.total_tokens is not None:
        known = "last request" if record.tokens_are_fresh else "next request, by estimate"
        lines.append(f"{known}: {record.total_tokens} tokens")
    return "\n".join(lines)


def context_text(
    workspace: LoadedWorkspace,
    tools: Sequence[Tool],
    *,
    system_chars: int,
    messages: int,
    message_chars: int,
    detail: bool,
) -> str:
    """What `/context` answers: what stands in every request, raw and as it is injected."""
    lines = [
        f"system prompt: {system_chars} characters",
        f"history: {messages} messages, {message_chars} characters",
        f"tools: {len(tools)}, {sum(_tool_chars(tool) for tool in tools)} characters",
        f"workspace files: {len(workspace.files)}",
    ]
    for file in workspace.files[:_DETAILED_FILES]:
        cut = ", shortened" if file.truncated else ""
        lines.append(
            f"  {file.name}: raw {file.raw_chars}, injected {file.injected_chars} characters{cut}"
        )
    if detail:
        lines.extend(f"  tool {tool.name}: {_tool_chars(tool)} characters" for tool in tools)
    lines.extend(workspace.notes)
    return "\n".join(lines)


def _tool_chars(tool: Tool) -> int:
    return len(tool.name) + len(tool.description) + len(encode(dict(tool.parameters)))
