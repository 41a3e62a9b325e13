"""Commands as text: what a line that begins with a slash means, and what is answered.

A command is never sent to a model; `/compact` instructions are used once. A line that is no
command of ours is an ordinary message: a path begins with a slash, too. `/memory` shows, adds
and forgets facts through `Engine.facts`: it changes only what was named, writes no fact's text
into the transcript (forgetting could not reach it there), and answers every error with what to
do next. A fact's text is printed on one line, without control characters; a shown id is unique.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from recollect.agent.tools.outcome import Tool
from recollect.engine.engine import Engine
from recollect.errors import RecollectError
from recollect.formats.json_text import encode
from recollect.session.index import SessionRecord
from recollect.session.workspace import LoadedWorkspace
from recollect.values.compaction import CompactionResult
from recollect.values.fact import Fact
from recollect.values.segment import SPEAKERS
from recollect.values.upkeep import Certificate

if TYPE_CHECKING:
    from recollect.engine.facts.book import FactBook
    from recollect.facts.results import FactSource, FactWhy, FactWritten


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
    match = _LINE.fullmatch(text.strip())
    if match is None:
        return NoCommand(reason="it does not begin with a slash and a word")
    for name in get_args(CommandName):
        if name == match[1]:
            return Command(name=name, argument=(match[2] or "").strip())
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


# What `/memory` answers


MOST_SHOWN: Final = 30
"""About a screen; the command line lists them all."""
LEAST_ID_CHARS: Final = 8
EXCERPT_CHARS: Final = 160
_OUTCOMES: Final = {"added": "Noted", "replaced": "Noted, in place of what was known"}


def facts_text(
    facts: Sequence[Fact], every: Sequence[Fact], *, searched: bool, elsewhere: str
) -> str:
    """What `/memory show` and `/memory search` answer; `every` are all that ids can mean."""
    if not facts:
        if searched:
            return "No fact holds all of these words. /memory show lists what is known."
        return "Nothing is known yet. Say what to remember, or use /memory add STATEMENT."
    pinned = [fact for fact in facts if fact.pinned]
    others = [fact for fact in facts if not fact.pinned]
    room = max(MOST_SHOWN - len(pinned), 0)
    shown = [*pinned[:MOST_SHOWN], *others[len(others) - min(room, len(others)) :]]
    chars = _id_chars(every)
    lines = [_line(fact, chars) for fact in shown]
    if left := len(facts) - len(shown):
        lines.append(f"… and {left} older ones: /memory search WORDS, or `{elsewhere}`")
    return "\n".join(lines)


def written_text(written: FactWritten) -> str:
    """What `/memory add` answers."""
    fact = written.fact
    if written.outcome == "known":
        known = "" if fact is None else f" ({fact.id[:LEAST_ID_CHARS]}: {one_line(fact.told)})"
        return f"That is known already{known}."
    if fact is None:
        return f"That was not noted: {written.reason}."
    lines = [f"{_OUTCOMES[written.outcome]}, as {fact.id}: {one_line(fact.told)}"]
    lines.extend(f"  before: {one_line(other.told)}" for other in written.replaced)
    if written.masked:
        lines.append(f"  {written.masked} secrets in it were masked")
    return "\n".join(lines)


def why_text(why: FactWhy, *, session_id: str) -> str:
    """What `/memory why` answers."""
    fact = why.fact
    lines = [one_line(fact.told), f"{_marks(fact)}, {fact.type.replace('_', ' ')}, {fact.id}"]
    if fact.valid_to is not None:
        lines.append(f"It held until {_when(fact.valid_to)}.")
    if why.rests_on is not None:
        lines.append("You put it into these words; what it was before rests on:")
    elif not why.sources:
        lines.append("It was written or imported, and rests on no message.")
    lines.extend(_source_line(source, session_id) for source in why.sources)
    return "\n".join(lines)


def forgotten_text(
    certificate: Certificate,
    *,
    unreached: Sequence[str],
    messages: int,
    versions: Sequence[str],
    elsewhere: str,
) -> str:
    """What `/memory forget` answers: what is gone, and what is not."""
    count = certificate.counts.get("facts", 0)
    gone = "1 fact" if count == 1 else f"{count} facts"
    lines = [f"Forgotten for good: {gone}. Nothing is extracted again in the same words."]
    if messages:
        text = "1 message stays" if messages == 1 else f"{messages} messages stay"
        lines.append(f"{text} that it came from. To forget that, too, end this agent and run")
        lines.append(f"  {elsewhere}")
    if versions:
        named = ", ".join(versions)
        lines.append(f"What it said before or after is kept as history: {named}")
    lines.extend(f"Not reached: {text}" for text in unreached)
    return "\n".join(lines)


def one_line(text: str) -> str:
    """A text on one line, cut where it is long, without signs that a terminal acts upon."""
    kept = "".join(
        " " if sign.isspace() else sign
        for sign in text
        if sign.isspace() or unicodedata.category(sign)[0] != "C"
    )
    line = " ".join(kept.split())
    return line if len(line) <= EXCERPT_CHARS else f"{line[: EXCERPT_CHARS - 1]}…"


def _id_chars(facts: Sequence[Fact]) -> int:
    """How much of an id tells every fact from the others."""
    longest = max((len(fact.id) for fact in facts), default=LEAST_ID_CHARS)
    for chars in range(LEAST_ID_CHARS, longest):
        if len({fact.id[:chars] for fact in facts}) == len(facts):
            return chars
    return longest


def _line(fact: Fact, chars: int) -> str:
    mark = "*" if fact.pinned else " "
    return f"{mark} {fact.id[:chars]}  {one_line(fact.told)}  ({_marks(fact)})"


def _marks(fact: Fact) -> str:
    text = SPEAKERS[fact.trust]
    by = text if fact.trust == "outside" else f"said by {text}"
    return f"{by}, {_when(fact.at)[:10]}"


def _source_line(source: FactSource, session_id: str) -> str:
    if source.stored is None:
        return f"- a message that is not there any more ({source.id})"
    segment = source.stored.segment
    where = "this session" if segment.session == session_id else f"session {segment.session}"
    spans = [segment.text[span.start : span.end] for span in source.spans]
    quoted = one_line(" … ".join(spans) if spans else segment.text)
    who = segment.role if segment.tool is None else f"{segment.role} {segment.tool}"
    return f"- {who}, {_when(segment.said_at)}, {one_line(where)}: »{quoted}« ({segment.id})"


def _when(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return "at a time nobody knows"


MemoryAction: TypeAlias = Literal["show", "add", "forget", "search", "why"]
USAGE: Final = (
    "/memory show, /memory search WORDS, /memory why ID, /memory add STATEMENT or "
    "/memory forget ID. A beginning of an id that only one fact has will do."
)
_ID: Final = re.compile(r"(?=[0-9]*[a-f])[0-9a-f]{4,64}")
"""What may be kept of the words behind a command: anything else may be what is to be forgotten."""
_WORDS: Final = re.compile(r"(\S+)(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryScope:
    """Whose memory it is."""

    engine: Engine
    session_id: str
    workspace: Path

    def command_line(self, rest: str) -> str:
        """A command for the same memory, to be run elsewhere."""
        return f"recollect {rest} --space {quote(self.engine.space)}"


def recordable(argument: str) -> str:
    """What the transcript may keep of the words behind `/memory`: what was done, and ids."""
    action, rest = _read(argument)
    if action is None:
        return ""
    named = action in ("forget", "why") and _ID.fullmatch(rest)
    return f"{action} {rest}" if named else action


async def answer_memory(argument: str, scope: MemoryScope) -> str:
    """Carry the command out; what it answers."""
    action, rest = _read(argument)
    if action is None:
        return f"That is nothing /memory does. It knows {USAGE}"
    if action != "show" and not rest:
        return f"Something is missing behind `/memory {action}`. It knows {USAGE}"
    try:
        book = await scope.engine.facts(scope.session_id)
        if action in ("show", "search"):
            return await _listed(book, rest if action == "search" else "", scope)
        if action == "add":
            return written_text(await book.add(rest))
        if action == "why":
            return why_text(await book.why(rest), session_id=scope.session_id)
        return await _forget(book, rest, scope)
    except RecollectError as error:
        return f"That could not be done: {str(error).rstrip('.')}."


def _read(argument: str) -> tuple[MemoryAction | None, str]:
    match = _WORDS.fullmatch(argument.strip())
    if match is None:
        return "show", ""
    for action in get_args(MemoryAction):
        if action == match[1]:
            return action, (match[2] or "").strip()
    return None, ""


async def _listed(book: FactBook, search: str, scope: MemoryScope) -> str:
    from recollect.facts.results import FactFilter

    facts = await book.list(FactFilter(search=search))
    every = await book.list(FactFilter(superseded=True))
    elsewhere = scope.command_line("facts list")
    return facts_text(facts, every, searched=bool(search), elsewhere=elsewhere)


async def _forget(book: FactBook, id: str, scope: MemoryScope) -> str:  # noqa: A002
    """Forget a fact in the store; what only a command can reach is named with that command."""
    from recollect.upkeep.forget import CANNOT

    if waiting := await scope.engine.settle():
        return (
            f"Nothing was forgotten: {waiting} batches still wait for the store, and could hold "
            "it. Try again when the store answers."
        )
    why = await book.why(id)
    history = await book.history(why.fact.id)
    order = await book.order_to_forget([why.fact.id])
    certificate = await book.forget(order)
    # The store has taken it out of this session's recalled blocks: the next turn reads them there.
    segments = [f"--segment {source.id}" for source in why.sources if source.stored is not None]
    rest = " ".join(["memory forget", *segments, "--workspace", quote(str(scope.workspace))])
    return forgotten_text(
        certificate,
        unreached=[text for text in certificate.cannot if text not in CANNOT],
        messages=len(segments),
        versions=[fact.id for fact in history.facts if fact.id != why.fact.id],
        elsewhere=scope.command_line(rest),
    )
