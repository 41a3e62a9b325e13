"""Slash commands: how a line is read, and the answers that need no agent.

A command is never sent to a model. A line that is no command of ours is an ordinary message, since
a path begins with a slash too; only a likely typo is asked about. `/memory` changes only what was
named, and leaves no fact's text in the transcript: forgetting could not reach it there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from recollect.core.engine.engine import Engine
from recollect.core.values.compaction import CompactionResult
from recollect.core.values.recall import FILE_SESSIONS
from recollect.errors import RecollectError
from recollect.hosts.inspect.turns import messages_meant, turn_of, turn_text
from recollect.hosts.tools.answers import fact_line
from recollect.hosts.tools.handler import MemoryTools

if TYPE_CHECKING:
    from recollect.core.values.report import Report

CommandName: TypeAlias = Literal[
    "compact",
    "undo",
    "status",
    "why",
    "receipt",
    "memory",
    "model",
    "name",
    "export",
    "new",
    "help",
]
COMMANDS: Final[Mapping[CommandName, tuple[str, str]]] = {
    "compact": ("/compact [INSTRUCTIONS]", "replace older messages with a summary now"),
    "undo": ("/undo", "take back the last compaction"),
    "status": ("/status", "share of the window, tokens by kind, compactions, cost, cache"),
    "why": ("/why [NUMBER|WORDS]", "the outcome of each message of the request, and why"),
    "receipt": ("/receipt [NUMBER]", "what a compaction kept, what can be recalled, what is lost"),
    "memory": ("/memory show|search|why|add|forget", "facts, memory files and stored messages"),
    "model": ("/model [NAME]", "show the model, or change it for this chat"),
    "name": ("/name TEXT", "name this session"),
    "export": ("/export [FILE]", "write this session as Markdown, or whole to FILE.jsonl"),
    "new": ("/new", "start a new session; the old transcript stays"),
    "help": ("/help", "show this list"),
}
TerminalCommand: TypeAlias = Literal["show", "exit"]
TERMINAL_COMMANDS: Final[Mapping[TerminalCommand, tuple[str, str]]] = {
    "show": ("/show [NUMBER]", "print a folded line in full (in a terminal)"),
    "exit": ("/exit", "end the chat (in a terminal)"),
}
_LINE = re.compile(r"/(\s*)([A-Za-z]+)(?:\s+(.*))?", re.DOTALL)
_CLOSE: Final = 0.75
_TAKES: Final[Mapping[CommandName, tuple[str, ...]]] = {
    **dict.fromkeys(("undo", "new", "help", "status"), ("",)),
}
"""The arguments of commands that take no free text."""
_AS_MESSAGE: Final = "To send a message that begins with a slash, put a space before it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of the user's."""

    name: CommandName
    argument: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistyped:
    """Likely a typo: nothing is done, and the user is told."""

    answer: str


def read_command(text: str) -> Command | Mistyped | None:
    """Read a line of the user's; None for an ordinary message, also with a space before it."""
    match = _LINE.fullmatch(text.rstrip())
    if match is None:
        return None
    space, word, argument = match[1], match[2], (match[3] or "").strip()
    for name in get_args(CommandName):
        if name == word and not space:
            if argument not in _TAKES.get(name, (argument,)):
                return Mistyped(answer=f"Use {COMMANDS[name][0]} without more. {_AS_MESSAGE}")
            return Command(name=name, argument=argument)
    names = [*get_args(CommandName), *get_args(TerminalCommand)]
    close = get_close_matches(word.lower(), names, n=1, cutoff=_CLOSE)
    if not close:
        return None
    if word in TERMINAL_COMMANDS and not space:
        return Mistyped(answer=f"/{word} works in a terminal, alone on its line. {_AS_MESSAGE}")
    return Mistyped(answer=f"Did you mean /{close[0]}? {_AS_MESSAGE}")


def help_text() -> str:
    """List every command."""
    lines = [*COMMANDS.values(), *TERMINAL_COMMANDS.values()]
    width = max(len(usage) for usage, _ in lines)
    return "\n".join(f"{usage:{width}}  {does}" for usage, does in lines)


def compaction_text(result: CompactionResult, *, undo: str = "/undo") -> str:
    """Answer `/compact`; `undo` is the command that takes it back."""
    if not result.compacted:
        word = "Nothing was compacted" if result.ok else "Compaction failed"
        return f"{word}: {result.reason}. The conversation is unchanged."
    sizes = f"{result.tokens_before} → {result.tokens_after} tokens"
    lines = [f"Compacted: {result.compacted_messages} messages are now a summary, {sizes}."]
    if (receipt := result.receipt) is not None:
        kept, recallable = receipt.count("in summary"), receipt.count("recallable")
        known = f"{kept} in the summary, {recallable} recallable, {receipt.count('lost')} lost"
        lines.append(f"Known items: {known}.")
    lines.append(f"{undo} takes it back.")
    return "\n".join(lines)


def why_text(report: Report, wanted: str, *, which: str) -> str:
    """Explain the outcome of a request's messages: all, one by its number, or those with words."""
    turn = turn_of(report)
    if wanted:
        return turn_text(turn, messages_meant(report, wanted))
    return f"The {which} request.\n{report.summary()}\n{turn_text(turn)}"


async def receipt_text(engine: Engine, session: str, wanted: str) -> str:
    """Show what a compaction kept and lost: the newest, or the one with this number."""
    from recollect.hosts.inspect.drawn import Sheet, as_text, draw_receipt
    from recollect.hosts.inspect.sessions import read_receipts

    if wanted and not wanted.isdigit():
        raise RecollectError("give the number of a compaction, such as /receipt 2")
    await engine.settle()
    found = await engine._look_up(lambda store: read_receipts(store, session))
    if not found.records:
        return "This session has no stored compaction."
    return as_text(draw_receipt(found.page(int(wanted or 0) or None), Sheet(width=100)))


# /memory


MemoryAction: TypeAlias = Literal["show", "add", "forget", "search", "why"]
USAGE: Final = (
    "Use /memory show, /memory search WORDS, /memory why ID, /memory add STATEMENT or "
    "/memory forget ID. A unique id prefix of a fact is enough."
)
_ID: Final = re.compile(r"(?=[0-9]*[a-f])[0-9a-f]{4,64}")
"""The only argument that a transcript keeps: other words may be what is to be forgotten."""
_WORDS: Final = re.compile(r"(\S+)(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryScope:
    """The memory that a command works on."""

    engine: Engine
    session_id: str
    workspace: Path


def recordable(command: Command) -> str:
    """The part of a command's argument that the transcript may keep: actions and ids, no words
    that forgetting could not reach there."""
    if command.name == "memory":
        action, rest = _read_memory(command.argument)
        named = action in ("forget", "why") and _ID.fullmatch(rest)
        return f"{action} {rest}" if named else action or ""
    return "" if command.name == "why" else command.argument


async def answer_memory(argument: str, scope: MemoryScope) -> str:
    """Carry out `/memory`; RecollectError if it cannot be done."""
    action, rest = _read_memory(argument)
    if action is None or (action != "show" and not rest):
        return USAGE
    engine = scope.engine
    only = scope.session_id if engine.settings.recall.scope == "session" else None
    tools = MemoryTools(engine, session=only)
    if action == "show":
        return "\n".join([*await tools.lines("memory_recall"), await _stored_text(engine)])
    if action == "search":
        await engine.settle()
        return "\n".join(await tools.lines("memory_search", query=rest))
    if action == "why":
        return "\n".join(await tools.lines("memory_get", id=rest))
    if action == "add":
        written = await (await engine.facts()).add(rest)  # known in every session
        if written.fact is None:
            return f"Not stored: {written.reason}."
        titles = {"known": "Known already", "replaced": "Stored in place of an earlier fact"}
        masked = f"\n{written.masked} secrets in it were masked" if written.masked else ""
        return f"{titles.get(written.outcome, 'Stored')}: {fact_line(written.fact)}{masked}"
    return await _forget(rest, scope, tools)


def _read_memory(argument: str) -> tuple[MemoryAction | None, str]:
    match = _WORDS.fullmatch(argument.strip())
    if match is None:
        return "show", ""
    for action in get_args(MemoryAction):
        if action == match[1]:
            return action, (match[2] or "").strip()
    return None, ""


async def _stored_text(engine: Engine) -> str:
    await engine._read_files()
    found = await engine._look_up(lambda store: store.sessions())
    said = [one for one in found if not one.session.startswith(FILE_SESSIONS)]
    return (
        f"Stored: {sum(one.segments for one in said):,} messages of {len(said):,} sessions, "
        f"{len(found) - len(said):,} memory files. /memory search WORDS searches them."
    )


async def _forget(id_: str, scope: MemoryScope, tools: MemoryTools) -> str:
    """Forget a fact. Its messages are in the transcript too, which this agent holds open."""
    from recollect.core.upkeep.forget import CANNOT

    def command(*segments: str) -> str:
        named = " ".join(f"--segment {one}" for one in segments)
        places = f"--workspace {quote(str(scope.workspace))} --space {quote(scope.engine.space)}"
        return f"recollect memory forget {named} {places}"

    if (message := await tools.find_message(id_)) is not None:
        return (
            "That is a message, which is also in the transcript that this chat holds open. End "
            f"the chat and run\n  {command(message.segment.id)}"
        )
    if waiting := await scope.engine.settle():
        return (
            f"Nothing was forgotten: {waiting} batches still wait for the store, and could hold "
            "it. Try again when the store answers."
        )
    book = await scope.engine.facts(scope.session_id)
    why = await book.why(id_)
    certificate = await book.forget(await book.order_to_forget([why.fact.id]))
    lines = [f"Forgotten permanently: {certificate.counts.get('facts', 0)} facts."]
    if sources := [one.id for one in why.sources if one.stored is not None]:
        lines.append(
            "The messages that it came from stay. To forget them too, end the chat and run"
        )
        lines.append(f"  {command(*sources)}")
    lines.extend(f"Not reached: {text}" for text in certificate.cannot if text not in CANNOT)
    return "\n".join(lines)
