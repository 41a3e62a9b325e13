"""Slash commands: parses a line, answers commands that need no agent, and exports a session.

`agent/loop.py` runs the other commands. A line that begins with a slash and a word is never sent to
a model, also if there is no such command. A line that begins with a path is a message. `/memory`
writes no fact's text into the transcript, because forgetting the fact would not remove it there."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from recollect.adapters.session.entries import is_undo
from recollect.adapters.session.files import OWNER_ONLY, translate_errors
from recollect.adapters.session.transcript import read_session_file
from recollect.core.engine.engine import Engine
from recollect.core.formats.blocks import texts_of
from recollect.core.formats.pi_session import PiEntry, PiSession, path_to
from recollect.core.values.compaction import CompactionResult
from recollect.core.values.recall import FILE_SESSIONS
from recollect.errors import RecollectError, TranscriptError
from recollect.hosts.inspect.turns import messages_meant, turn_of, turn_text
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
    "export": ("/export [FILE]", "write this session as Markdown, or whole to FILE.jsonl"),
    "new": ("/new", "start a new session; the old transcript stays"),
    "reset": ("/reset", "the same as /new"),
    "help": ("/help", "show this list"),
}
TERMINAL_COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "show": ("/show [NUMBER]", "print the text of a numbered line (in a terminal)"),
    "exit": ("/exit", "end the chat (in a terminal)"),
}
_LINE = re.compile(r"/([A-Za-z][\w:-]*)(?:\s+(.*))?", re.DOTALL)
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
        kept, recallable = receipt.count("in summary"), receipt.count("recallable")
        known = f"{kept} in the summary, {recallable} recallable, {receipt.count('lost')} lost"
        lines.append(f"{receipt.checked_text}: {known}.")
    lines.append("/undo takes it back.")
    return "\n".join(lines)


def why_text(report: Report, wanted: str, *, which: str) -> str:
    """Explain the outcome of each message of a request, or of those that `wanted` names."""
    turn = turn_of(report)
    if wanted:
        return turn_text(turn, messages_meant(report, wanted))
    return f"The {which} request.\n{report.summary()}\n{turn_text(turn)}"


async def receipt_text(engine: Engine, session: str, wanted: str) -> str:
    """Show the receipt of a compaction: of the newest, or of the one with this number."""
    from recollect.hosts.inspect.sessions import read_receipts
    from recollect.hosts.inspect.text import receipt_lines

    if wanted and not wanted.isdigit():
        raise RecollectError("give the number of a compaction, such as /receipt 2")
    await engine.settle()
    found = await engine._look_up(lambda store: read_receipts(store, session))
    if not found.records:
        return "This session has no stored compaction."
    page = found.page(int(wanted or 0) or None)
    return "\n".join(receipt_lines(page, 80))  # this many columns fit most terminals


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
    action, rest = _read_memory(argument)
    if action is None or (action != "show" and not rest):
        return USAGE
    only = session_id if engine.settings.recall.scope == "session" else None
    tools = MemoryTools(engine, session=only, confirm=confirm)
    if action == "show":
        await engine._read_files()
        found = await engine._look_up(lambda store: store.sessions())
        said = [one for one in found if not one.session.startswith(FILE_SESSIONS)]
        files = [
            f"{plain_line(one.session.removeprefix(FILE_SESSIONS))}: "
            f"{number_of(one.segments, 'section')}"
            for one in found
            if one not in said
        ]
        stored = (
            f"Stored: {sum(one.segments for one in said):,} messages of {len(said):,} sessions, "
            f"{len(files):,} memory files. /memory search WORDS searches them."
        )
        return "\n".join([*await tools.lines("memory_recall"), stored, *files])
    if action == "forget":
        lines = await tools.lines("memory_forget", ids=rest.split())
        return "\n".join([*lines, "To forget text in transcripts, run `recollect memory forget`."])
    if action == "search":
        await engine.settle()
        return "\n".join(await tools.lines("memory_search", query=rest))
    written = await (await engine.facts()).add(
        rest
    )  # a fact without a session is visible in every session
    if written.fact is None:
        return f"Not stored: {written.reason}."
    titles = {"known": "Known already", "replaced": "Stored in place of an earlier fact"}
    masked = f"\n{written.masked} secrets in the fact were masked" if written.masked else ""
    return f"{titles.get(written.outcome, 'Stored')}: {fact_line(written.fact)}{masked}"


def _read_memory(argument: str) -> tuple[MemoryAction | None, str]:
    word, _, rest = argument.strip().partition(" ")
    for action in get_args(MemoryAction):
        if action == (word or "show"):
            return action, rest.strip()
    return None, ""


MOST_RESULT_LINES: Final = 40
"""Number of lines of a tool's result in a Markdown export. The JSONL export has all lines."""


def export_session(transcript: Path, file: Path) -> int:
    """Write a session to a new file: the transcript itself if the name ends in `.jsonl`, else
    Markdown. Return the number of bytes. Raise TranscriptError if the file exists."""
    session = read_session_file(transcript)
    with translate_errors(file, "written"):
        whole = file.suffix.lower() == ".jsonl"
        content = transcript.read_bytes() if whole else session_markdown(session).encode()
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


def session_markdown(session: PiSession) -> str:
    """Write the newest branch as Markdown, with one line per tool call and long results cut."""
    path = path_to(session.entries)
    names = [entry.text("name") for entry in session.entries if entry.kind == "session_info"]
    title = (names[-1] if names else "") or "Session"
    id_ = "" if session.header is None else session.header.id
    times = [entry.milliseconds for entry in path if entry.milliseconds]
    when = f", {_when(times[0])} to {_when(times[-1])} UTC" if times else ""
    lines = [f"# {' '.join(title.split())}", "", f"Session `{id_}`{when}."]
    speaker = ""
    for entry in path:
        said, by = list(_entry_lines(entry)), _speaker(entry)
        if not said:
            continue
        if by and by != speaker:
            speaker = by
            lines += ["", f"## {by}, {_when(entry.milliseconds)}"]
        lines += ["", *said]
    return "\n".join(lines) + "\n"


def _speaker(entry: PiEntry) -> str:
    message = entry.message or {}
    if entry.role == "user":
        return "User"
    if entry.role == "assistant":
        return str(message.get("model") or "Assistant")
    return ""


def _entry_lines(entry: PiEntry) -> Iterator[str]:
    if entry.kind == "model_change":
        yield f"*{entry.text('modelId') or 'Another model'} answers from here on.*"
    elif entry.kind == "compaction":
        if is_undo(entry):
            yield "*A compaction was undone here.*"
            return
        yield "*Compacted here. The model sees this summary instead of the messages before:*"
        yield ""
        yield from (f"> {line}".rstrip() for line in (entry.text("summary") or "").splitlines())
    elif entry.message is not None and entry.role in ("user", "assistant"):
        yield from _blocks(entry.message.get("content"))
    elif entry.message is not None and entry.role == "toolResult":
        yield from _result(entry.message)


def _blocks(content: Any) -> Iterator[str]:
    """Return a message's text and tool calls, without the model's thinking."""
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    for at, block in enumerate(block for block in blocks if isinstance(block, Mapping)):
        text = ""
        if block.get("type") == "text":
            text = str(block.get("text") or "").strip()
        elif block.get("type") == "image":
            text = "*(an image)*"
        elif block.get("type") == "toolCall":
            arguments = json.dumps(block.get("arguments") or {}, ensure_ascii=False)
            mark = _fence(arguments, 1)
            text = f"**{block.get('name')}** {mark} {arguments} {mark}"
        if text:
            yield from ["", text] if at else [text]


def _result(message: Mapping[str, Any]) -> Iterator[str]:
    text = "\n".join(texts_of(message.get("content") or ()))
    lines = text.splitlines()
    fence = _fence(text, 3)
    yield f"{message.get('toolName')} {'failed' if message.get('isError') else 'answered'}:"
    yield ""
    yield fence
    yield from lines[:MOST_RESULT_LINES]
    if len(lines) > MOST_RESULT_LINES:
        yield f"… {len(lines) - MOST_RESULT_LINES:,} more lines"
    yield fence


def _fence(text: str, least: int) -> str:
    """Return a fence of more backticks than the text contains, so that it closes no code block."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)


def _when(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M")
