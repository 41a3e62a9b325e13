"""Slash commands: parses a line, answers commands that need no agent, and exports a session.

`agent/loop.py` runs the other commands. A line that begins with a slash and a word is never sent to
a model, also if there is no such command. A line that begins with a path is a message. `/memory`
writes no fact's text into the transcript, because forgetting the fact would not remove it there."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from recollect.adapters.session.files import OWNER_ONLY, translate_errors
from recollect.core.engine.engine import Engine
from recollect.core.values.compaction import CompactionResult
from recollect.core.values.recall import FILE_SESSIONS
from recollect.errors import RecollectError, TranscriptError
from recollect.hosts.inspect.turns import find_messages, turn_of
from recollect.hosts.tools.answers import fact_line
from recollect.hosts.tools.handler import Confirm, MemoryTools
from recollect.system.durable import sync_file
from recollect.system.plain_text import number_of, plain_line

if TYPE_CHECKING:
    from recollect.core.values.report import Report


COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "compact": ("/compact [INSTRUCTIONS]", "replace older messages with a summary now"),
    "undo": ("/undo", "take back the last compaction"),
    "status": ("/status", "share of the window, tokens by kind, compactions, cost, cache"),
    "context": ("/context list|detail", "tokens by kind; size of each workspace file, as sent"),
    "why": ("/why [NUMBER|WORDS]", "the outcome of each message of the request, and why"),
    "receipt": ("/receipt [NUMBER]", "what a compaction kept, what can be recalled, what is lost"),
    "memory": ("/memory show|search|add|forget", "facts, memory files and stored messages"),
    "model": ("/model [NAME]", "show the model, or change it for this chat"),
    "name": ("/name TEXT", "name this session"),
    "export": ("/export [FILE]", "copy this session's transcript to a new file"),
    "new": ("/new", "start a new session; the old transcript stays"),
    "reset": ("/reset", "the same as /new"),
    "help": ("/help", "show this list"),
}
TERMINAL_COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "show": ("/show [NUMBER]", "print the text of a numbered line (in a terminal)"),
    "exit": ("/exit", "end the chat (in a terminal)"),
}
_LINE = re.compile(r"/([A-Za-z][\w:-]*)(?:\s+(.*))?", re.DOTALL)
ANSWER_CELLS: Final = 80
"""The width of most terminals. Not measured: a pipe has no width."""
_WITHOUT_ARGUMENT: Final = frozenset({"undo", "new", "reset", "help", "status"})
_FOLDER = re.compile("bin|boot|dev|etc|home|lib|media|mnt|opt|proc|root|run|srv|sys|tmp|usr|var")
"""Names of folders in `/`: "/tmp is full" is a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that the user typed."""

    name: str
    argument: str = field(default="", repr=False)


def read_command(text: str) -> Command | str | None:
    """Parse a line that the user typed. Return a string that corrects a line that is no command.
    Return None for an ordinary message, and for a line that begins with a space."""
    match = _LINE.fullmatch(text.rstrip())
    if match is None:
        return None
    word, argument = match[1], (match[2] or "").strip()
    if word in COMMANDS and not (argument and word in _WITHOUT_ARGUMENT):
        return Command(name=word, argument=argument)
    names = (*COMMANDS, *TERMINAL_COMMANDS)
    close = get_close_matches(word.lower(), names, n=1, cutoff=0.75)
    if word in _WITHOUT_ARGUMENT:
        wrong = f"/{word} takes no argument."
    elif word in TERMINAL_COMMANDS:
        wrong = f"/{word} works only in a terminal."
    elif close:
        wrong = f"Did you mean /{close[0]}?"
    elif _FOLDER.fullmatch(word):
        return None
    else:
        wrong = f"There is no command /{word}; /help lists the commands."
    return f"{wrong} To send this line as a message, put a space before it."


def help_text() -> str:
    lines = [*COMMANDS.values(), *TERMINAL_COMMANDS.values()]
    width = max(len(usage) for usage, _ in lines)
    return "\n".join(f"{usage:{width}}  {does}" for usage, does in lines)


def compaction_text(result: CompactionResult) -> str:
    """Describe the result of `/compact`."""
    if not result.compacted:
        word = "Nothing was compacted" if result.ok else "Compaction failed"
        return f"{word}: {result.reason}. The conversation is unchanged."
    sizes = f"{result.tokens_before} → {result.tokens_after} tokens"
    lines = [f"Compacted: {result.compacted_messages} messages are now a summary, {sizes}."]
    if (receipt := result.receipt) is not None:
        in_summary, recallable = receipt.count("in summary"), receipt.count("recallable")
        findings_text = (
            f"{in_summary} in the summary, {recallable} recallable, {receipt.count('lost')} lost"
        )
        lines.append(f"{receipt.checked_text}: {findings_text}.")
    lines.append("/undo takes it back.")
    return "\n".join(lines)


def why_text(report: Report, argument: str, *, request_name: str) -> str:
    """Explain the outcome of each message of a request, or of those that `wanted` names."""
    from recollect.hosts.inspect.text import message_lines, stretch_lines

    fates = turn_of(report).messages
    if argument:
        numbers = find_messages(report, argument)
        lines = message_lines([fate for fate in fates if fate.number in numbers], ANSWER_CELLS)
        return "\n".join(lines)
    lines = stretch_lines(fates, ANSWER_CELLS)
    return "\n".join([f"The {request_name} request.", report.summary(), *lines])


async def receipt_text(engine: Engine, session: str, number: str) -> str:
    """Show the receipt of a compaction: of the newest, or of the one with this number."""
    from recollect.hosts.inspect.sessions import read_receipts
    from recollect.hosts.inspect.text import receipt_lines

    if number and not number.isdigit():
        raise RecollectError("give the number of a compaction, such as /receipt 2")
    await engine.settle()
    receipts = await engine.parts.store.call(read_receipts, session)
    if not receipts.records:
        return "This session has no stored compaction."
    page = receipts.page(int(number or 0) or None)
    return "\n".join(receipt_lines(page, ANSWER_CELLS))


MemoryAction: TypeAlias = Literal["show", "add", "search", "forget"]
USAGE: Final = (
    "Use /memory show, /memory search WORDS, /memory add STATEMENT or /memory forget ID. The other "
    "commands show the ids."
)


def recordable_argument(command: Command) -> str:
    """Return the part of a command's argument that the transcript may contain: none of the words
    that forgetting would not remove there."""
    if command.name == "memory":
        return _read_memory(command.argument)[0] or ""
    return "" if command.name == "why" else command.argument


async def answer_memory(
    argument: str, engine: Engine, session_id: str, confirm: Confirm | None = None
) -> str:
    """Run `/memory` and return its output. Raise RecollectError if the command fails. `confirm`
    asks the user before anything is forgotten."""
    action, words = _read_memory(argument)
    if action is None or (action != "show" and not words):
        return USAGE
    only = session_id if engine.settings.recall.scope == "session" else None
    tools = MemoryTools(engine, session=only, confirm=confirm)
    if action == "show":
        await engine.parts.read_files()
        sessions = await engine.parts.store.sessions()
        conversations = [
            session for session in sessions if not session.session.startswith(FILE_SESSIONS)
        ]
        files = [
            f"{plain_line(session.session.removeprefix(FILE_SESSIONS))}: "
            f"{number_of(session.segments, 'section')}"
            for session in sessions
            if session not in conversations
        ]
        stored_line = (
            f"Stored: {sum(session.segments for session in conversations):,} messages of "
            f"{len(conversations):,} sessions, {len(files):,} memory files. "
            "/memory search WORDS searches them."
        )
        return "\n".join([*await tools.lines("memory_recall"), stored_line, *files])
    if action == "forget":
        lines = await tools.lines("memory_forget", ids=words.split())
        return "\n".join([*lines, "To forget text in transcripts, run `recollect memory forget`."])
    if action == "search":
        await engine.settle()
        return "\n".join(await tools.lines("memory_search", query=words))
    # a fact without a session is visible in every session
    written_fact = await (await engine.facts()).add(words)
    if written_fact.fact is None:
        return f"Not stored: {written_fact.reason}."
    titles = {"known": "Known already", "replaced": "Stored in place of an earlier fact"}
    masked_note = (
        f"\n{written_fact.masked} secrets in the fact were masked" if written_fact.masked else ""
    )
    return (
        f"{titles.get(written_fact.outcome, 'Stored')}: {fact_line(written_fact.fact)}{masked_note}"
    )


def _read_memory(argument: str) -> tuple[MemoryAction | None, str]:
    word, _, words = argument.strip().partition(" ")
    for action in get_args(MemoryAction):
        if action == (word or "show"):
            return action, words.strip()
    return None, ""


def export_session(transcript: Path, file: Path) -> int:
    """Copy a session's transcript to a new file. Return the number of bytes. Raise TranscriptError
    if the file exists, or if its name promises another format."""
    if file.suffix.lower() != ".jsonl":
        raise TranscriptError(f"{file.name} must end in .jsonl: the file is a copy of a transcript")
    with translate_errors(file, "written"):
        content = transcript.read_bytes()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            descriptor = os.open(file, flags, OWNER_ONLY)
        except FileExistsError:
            raise TranscriptError(f"{file} exists already; give another name") from None
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            sync_file(out.fileno())
    return len(content)
