"""Commands as text: what a line that begins with a slash means, and what `/memory` answers.

A command is never sent to a model; `/compact` instructions are used once. A line that is no
command of ours is an ordinary message: a path begins with a slash, too; only what looks like a
mistyped command is asked about. `/memory` shows, adds
and forgets facts through `Engine.facts`: it changes only what was named, writes no fact's text
into the transcript (forgetting could not reach it there), and answers every error with what to
do next. A fact's text is printed on one line, without control characters; a shown id is unique.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from recollect.core.engine.engine import Engine
from recollect.core.values.compaction import CompactionResult
from recollect.core.values.fact import Fact
from recollect.core.values.recall import FILE_SESSIONS
from recollect.core.values.segment import SPEAKERS
from recollect.core.values.upkeep import Certificate
from recollect.errors import RecollectError
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.core.engine.facts.book import FactBook
    from recollect.core.facts.results import FactSource, FactWhy, FactWritten


CommandName: TypeAlias = Literal[
    "compact",
    "undo",
    "status",
    "why",
    "receipt",
    "replay",
    "memory",
    "facts",
    "model",
    "sessions",
    "resume",
    "name",
    "branch",
    "export",
    "new",
    "reset",
    "help",
]
COMMANDS: Final[Mapping[CommandName, tuple[str, str]]] = {
    "compact": ("/compact [INSTRUCTIONS]", "replace the past by a summary, now"),
    "undo": ("/undo", "take the last compaction back"),
    "status": ("/status [detail]", "share of the window, tokens by kind, compactions, cost, cache"),
    "why": ("/why [NUMBER|WORDS]", "what became of a message of the request, and why"),
    "receipt": ("/receipt [NUMBER]", "what a compaction kept, what can be recalled, what is lost"),
    "replay": ("/replay [TURN]", "what was sent at a turn; without one, the turns"),
    "memory": ("/memory show|search|why|add|forget", "facts, notes, files and the archive"),
    "facts": ("/facts [WORDS]", "the facts, or those that hold these words"),
    "model": ("/model [NAME]", "which model answers; or change it for the next turns"),
    "sessions": ("/sessions", "the sessions of this workspace"),
    "resume": ("/resume ID", "go on with another session"),
    "name": ("/name TEXT", "name this session"),
    "branch": ("/branch [NUMBER]", "go on before one of your messages; without one, list them"),
    "export": ("/export [FILE]", "write this session out: as Markdown, or FILE.jsonl whole"),
    "new": ("/new", "begin a new session; the old transcript stays"),
    "reset": ("/reset", "the same"),
    "help": ("/help", "this list"),
}
TerminalCommand: TypeAlias = Literal["show", "exit", "quit"]
TERMINAL_COMMANDS: Final[Mapping[TerminalCommand, tuple[str, str]]] = {
    "show": ("/show [NUMBER]", "what was folded to a line, whole (in a terminal)"),
    "exit": ("/exit", "end the chat (in a terminal)"),
    "quit": ("/quit", "the same"),
}
"""Those that a terminal carries out by itself."""
_LINE = re.compile(r"/(\s*)([A-Za-z]+)(?:\s+(.*))?", re.DOTALL)
_CLOSE: Final = 0.75
"""How much a word must be like a command's name to be taken for a mistyped one."""
_TAKES: Final[Mapping[CommandName, tuple[str, ...]]] = {
    **dict.fromkeys(("undo", "sessions", "new", "reset", "help"), ("",)),
    "status": ("", "detail"),
}
"""All that may stand behind a command, of those that take no words of the user's."""
_AS_MESSAGE: Final = "A message that begins with a slash is sent with a space before it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What the user wants done."""

    name: CommandName
    argument: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCommand:
    """An ordinary message, and why it is one."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistyped:
    """Neither a command nor likely a message: nothing is done, and the user is told."""

    answer: str


def read_command(text: str) -> Command | NoCommand | Mistyped:
    """The command in a line of the user's; a space before the slash makes it a message."""
    match = _LINE.fullmatch(text.rstrip())
    if match is None:
        return NoCommand(reason="it does not begin with a slash and a word")
    space, word, argument = match[1], match[2], (match[3] or "").strip()
    for name in get_args(CommandName):
        if name == word and not space:
            if argument not in _TAKES.get(name, (argument,)):
                return Mistyped(answer=f"It is {COMMANDS[name][0]}, and no more. {_AS_MESSAGE}")
            return Command(name=name, argument=argument)
    names = [*get_args(CommandName), *get_args(TerminalCommand)]
    close = get_close_matches(word.lower(), names, n=1, cutoff=_CLOSE)
    if not close:
        return NoCommand(reason="no command of this name")
    if word in TERMINAL_COMMANDS and not space:
        return Mistyped(answer=f"/{word} is for a terminal, alone on its line. {_AS_MESSAGE}")
    return Mistyped(answer=f"Did you mean /{close[0]}? {_AS_MESSAGE}")


def compaction_text(result: CompactionResult, *, undo: str = "/undo") -> str:
    """What `/compact` answers; `undo` is the command that takes it back."""
    if not result.compacted:
        word = "Nothing was compacted" if result.ok else "Compaction failed"
        return f"{word}: {result.reason}. The conversation is as it was."
    sizes = f"{result.tokens_before} → {result.tokens_after} tokens"
    lines = [f"Compacted: {result.compacted_messages} messages are now a summary, {sizes}."]
    if (receipt := result.receipt) is not None:
        kept, recallable = receipt.count("in summary"), receipt.count("recallable")
        known = f"{kept} in the summary, {recallable} recallable, {receipt.count('lost')} lost"
        lines.append(f"Of what was known: {known}.")
    lines.append(f"{undo} takes it back.")
    return "\n".join(lines)


# What `/memory` answers


MOST_SHOWN: Final = 30
"""About a screen; the command line lists them all."""
MOST_FOUND: Final = 10
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
    line = plain_line(text)
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
_SEGMENT_ID: Final = re.compile(r"[0-9a-f]{32}")
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


def recordable(command: Command) -> str:
    """What the transcript may keep of the words behind a command: what was done, and ids.

    Of words that are looked for, added or to be forgotten nothing: forgetting could not reach them
    there.
    """
    if command.name == "memory":
        return _recordable_memory(command.argument)
    return "" if command.name in ("why", "facts") else command.argument


def _recordable_memory(argument: str) -> str:
    action, rest = _read(argument)
    if action is None:
        return ""
    named = action in ("forget", "why") and _ID.fullmatch(rest)
    return f"{action} {rest}" if named else action


async def answer_facts(words: str, scope: MemoryScope) -> str:
    """What `/facts` answers: all of them, or those that hold these words."""
    try:
        return await _listed(await scope.engine.facts(scope.session_id), words, scope)
    except RecollectError as error:
        return f"That could not be done: {str(error).rstrip('.')}."


async def answer_memory(argument: str, scope: MemoryScope) -> str:
    """Carry the command out; what it answers."""
    action, rest = _read(argument)
    if action is None:
        return f"That is nothing /memory does. It knows {USAGE}"
    if action != "show" and not rest:
        return f"Something is missing behind `/memory {action}`. It knows {USAGE}"
    try:
        book = await scope.engine.facts(scope.session_id)
        if action == "show":
            return f"{await _listed(book, '', scope)}\n{await _beside_facts(scope)}"
        if action == "search":
            return f"{await _listed(book, rest, scope)}\n{await _found(rest, scope)}"
        if action == "add":
            shared = await scope.engine.facts()  # written by hand: known in every session
            return written_text(await shared.add(rest))
        if action == "why":
            return why_text(await book.why(rest), session_id=scope.session_id)
        if _SEGMENT_ID.fullmatch(rest):
            return _forget_message(rest, scope)
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
    from recollect.core.facts.results import FactFilter

    facts = await book.list(FactFilter(search=search))
    every = await book.list(FactFilter(superseded=True))
    elsewhere = scope.command_line("facts list")
    return facts_text(facts, every, searched=bool(search), elsewhere=elsewhere)


async def _beside_facts(scope: MemoryScope) -> str:
    """What else is known: memory files that are followed, and how much was said in sessions."""
    await scope.engine._read_files()
    files: list[str] = []
    said = sessions = 0
    for summary in await scope.engine._look_up(lambda store: store.sessions()):
        if summary.session.startswith(FILE_SESSIONS):
            path = one_line(summary.session.removeprefix(FILE_SESSIONS))
            files.append(f"  {path}: {summary.segments} sections")
        else:
            said, sessions = said + summary.segments, sessions + 1
    of = "1 session" if sessions == 1 else f"{sessions:,} sessions"
    lines = [f"Archive: {said:,} messages of {of}. /memory search WORDS finds them."]
    if files:
        lines.append("Notes and memory files:")
        lines.extend(files[-MOST_SHOWN:])
    return "\n".join(lines)


async def _found(search: str, scope: MemoryScope) -> str:
    """Messages and sections of memory files that answer to these words, best first."""
    await scope.engine.settle()
    only = scope.session_id if scope.engine.settings.recall.scope == "session" else None
    recalled = await scope.engine.search(search, session=only)
    lines = [
        f"- {passage.speaker or passage.role}, {passage.said_at}: "
        f"»{one_line(passage.text)}« ({one_line(passage.source or passage.segment or '')})"
        for passage in recalled.passages[:MOST_FOUND]
    ]
    lines.extend(str(note) for note in recalled.notes)
    title = "Said in sessions, or written in memory files:"
    return "\n".join([title, *lines] if lines else ["No message or memory file answers to that."])


def _forget_message(id: str, scope: MemoryScope) -> str:  # noqa: A002
    """A message stands in the transcript, too, which a running agent holds."""
    rest = f"memory forget --segment {id} --workspace {quote(str(scope.workspace))}"
    return (
        "That is a message: it is in this agent's transcript, too, which is in use. End the agent "
        f"and run `{scope.command_line(rest)}`."
    )


async def _forget(book: FactBook, id: str, scope: MemoryScope) -> str:  # noqa: A002
    """Forget a fact in the store; what only a command can reach is named with that command."""
    from recollect.core.upkeep.forget import CANNOT

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
