"""Answers the calls of memory tools: one handler for every wire format.

Owns what each tool does. It never raises for what a model sends, nor for a store that is away: the
answer says what is wrong and what to do. Always holds: an answer is no longer than its budget, is
marked as recalled and known again when it comes back in a request; nothing is forgotten that a
person did not confirm; what a model stores is the model's word, and replaces no preference,
decision or rule of the user's.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, cast, overload

from recollect.core.blocking import BlockingEngine
from recollect.core.boundary import Failure, attempted
from recollect.core.engine.engine import Engine
from recollect.core.engine.lookup import MemoryLookup
from recollect.core.facts.results import FactFilter
from recollect.core.formats.codec import DefinitionFormat, tool_definition
from recollect.core.search.bm25 import KeyLines
from recollect.core.search.tokenize import tokenize
from recollect.core.values.fact import Fact
from recollect.core.values.history import SessionId
from recollect.core.values.recall import FILE_SESSIONS, Recalled, RecalledPassage
from recollect.core.values.segment import Segment, SegmentId, StoredSegment
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import RecollectError
from recollect.hosts.tools.answers import (
    ID_CHECK_CHARS,
    AnswerLines,
    fact_line,
    forget_line,
    framed,
    indented,
    message_line,
    plain,
    short_id,
)
from recollect.hosts.tools.arguments import (
    KINDS,
    MOST_AROUND,
    BadArguments,
    ForgetArguments,
    GetArguments,
    RecallArguments,
    SearchArguments,
    StoreArguments,
    ToolName,
    moment,
    read_arguments,
)

ANSWER_TOKENS: Final = 2_500
"""How long an answer may be, unless the host says otherwise: a page or two of evidence."""
LEAST_TOKENS: Final = 200
_SEARCH_SHARE: Final = 1.2
"""Of an answer's budget, what is looked for: what repeats a message's heading is shown once, and
what does not fit behind the best is left out."""
_HITS_WITH_LINES: Final = 24
_LINE_CHARS: Final = 160
_PROSE_CHARS: Final = 4_000
"""Hits for which it is looked up what tools printed beside them, how much of that is shown, and how
much of what was said there is read for what the tool was called for."""
_LEAST_ID_CHARS: Final = 4
"""Of the beginning of an id."""
_MOST_NAMED: Final = 5
_SEGMENT_ID: Final = re.compile(r"[0-9a-f]{32}")
_SHORT_ID: Final = re.compile(rf"([0-9]{{1,15}})\.([0-9a-f]{{1,{ID_CHECK_CHARS}}})")
"""Its last part may be cut short, but not left out: a number that was made up leads nowhere."""
_ID_BEGINNING: Final = re.compile(r"[0-9a-f]{8,31}")
_FORMATS: Final[tuple[DefinitionFormat, ...]] = (
    "anthropic",
    "openai-chat",
    "openai-responses",
    "mcp",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAnswer:
    """What a memory tool answers: the text of the tool's result."""

    text: str = field(repr=False)
    is_error: bool = False
    """The call could not be carried out; the text says why and what to do."""

    def __str__(self) -> str:
        """The text."""
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRequest:
    """What a model wants forgotten, for a person to confirm."""

    facts: tuple[Fact, ...]
    messages: tuple[Segment, ...]

    def __str__(self) -> str:
        """One line for each fact and message."""
        facts = [fact_line(fact) for fact in self.facts]
        messages = [f"{forget_line(one)}: {plain(one.text)}" for one in self.messages]
        return "\n".join([*facts, *messages])

    def whole(self) -> str:
        """The same with every message whole, its lines set back: what a person is shown."""
        facts = [fact_line(fact) for fact in self.facts]
        messages = [f"{forget_line(one)}\n{indented(one.text)}" for one in self.messages]
        return "\n".join([*facts, *messages])


Confirm: TypeAlias = Callable[[ForgetRequest], bool | Awaitable[bool]]
"""Asks a person; a plain function runs in a thread."""


class MemoryTools:
    """The memory tools over one memory; made by `memory_tools`."""

    def __init__(
        self,
        memory: Engine,
        *,
        session: SessionId | None = None,
        confirm: Confirm | None = None,
        answer_tokens: int = ANSWER_TOKENS,
    ) -> None:
        self._lookup = MemoryLookup(memory, session)
        self._confirm = confirm
        self._most_tokens = max(LEAST_TOKENS, answer_tokens)

    @property
    def names(self) -> tuple[ToolName, ...]:
        """The names that `call` answers to."""
        return cast(tuple[ToolName, ...], tuple(KINDS))

    def definitions(self, format: DefinitionFormat) -> list[dict[str, Any]]:  # noqa: A002
        """The tools as a request of this format, or an MCP server, lists them."""
        if format not in _FORMATS:
            raise ValueError(f"format {format!r} is none of {', '.join(_FORMATS)}")
        return [
            tool_definition(format, kind.name, kind.description, kind.parameters)
            for kind in KINDS.values()
        ]

    async def call(
        self, name: str, arguments: Mapping[str, Any] | str | bytes | None = None
    ) -> MemoryAnswer:
        """Carry a call out; `arguments` as an object, or as the JSON that the provider sent."""
        answer = await self._answered(name, arguments)
        await self._lookup.keep_told()
        return answer

    async def _answered(
        self, name: str, arguments: Mapping[str, Any] | str | bytes | None
    ) -> MemoryAnswer:
        kind = KINDS.get(name)
        if kind is None:
            return MemoryAnswer(
                text=f"There is no memory tool {plain(name)!r}; {_there_are()}.", is_error=True
            )
        read = read_arguments(kind, arguments)
        if isinstance(read, BadArguments):
            return MemoryAnswer(text=read.told(kind), is_error=True)
        done = await attempted(self._carried_out(read))
        if not isinstance(done, Failure):
            return done
        if issubclass(done.error, RecollectError):
            return self._refusal(f"{name}: {done.said}")
        return self._refusal(f"{name} failed ({done.error.__name__}); go on without it.")

    async def _carried_out(self, read: Any) -> MemoryAnswer:
        if isinstance(read, SearchArguments):
            return await self._search(read)
        if isinstance(read, GetArguments):
            return await self._get(read)
        if isinstance(read, StoreArguments):
            return await self._store(read)
        if isinstance(read, RecallArguments):
            return await self._recall(read)
        return await self._forget(cast(ForgetArguments, read))

    # memory_search

    async def _search(self, asked: SearchArguments) -> MemoryAnswer:
        after, before = _span(asked.since, asked.until)
        answer = self._answer(asked.max_tokens)
        recalled = await self._lookup.search(
            asked.query,
            budget_tokens=int(_SEARCH_SHARE * answer.budget_tokens),
            said_after=after,
            said_before=before,
        )
        ids = [one.segment for one in recalled.passages if one.segment is not None]
        stored = {one.segment.id: one for one in await self._lookup.messages(ids)}
        known = await self._facts_of(recalled)
        if known:
            answer.head("Facts:")
            for fact in known:
                answer.add([fact_line(fact)], [])
        found = _by_message(recalled.passages, stored)
        if found:
            where = " (of this session, unless a line names another place)" * bool(
                self._lookup.own_session
            )
            answer.head(f"Messages and memory files, best first{where}:")
            printed = await self._printed_for([one for one, _ in found], asked.query)
            shown: dict[SegmentId, str] = {}
            for one, passages in found:
                lines = _hit_lines(self._heading(one), one, passages)
                if not answer.add(lines, [one.segment.message_id]):
                    continue
                shown[one.segment.id] = _one_line(passages)
                result, line = printed.get(one.segment.id, (one, ""))
                if line and line not in shown.get(result.segment.id, ""):
                    heading = f"{self._heading(result)}, one line of it"
                    answer.add([heading, indented(line)], [result.segment.message_id])
        if not known and not found:
            answer.head("Nothing in memory answers to that; try other words, or ask the user.")
        elif answer.left_out:
            answer.head(f"({answer.left_out} more did not fit; search more narrowly.)")
        return self._told(answer)

    async def _facts_of(self, recalled: Recalled) -> list[Fact]:
        ids = [fact.id for fact in recalled.facts if fact.id is not None]
        if not ids:
            return []
        book = await self._lookup.facts()
        by_id = {fact.id: fact for fact in await book.list(FactFilter(superseded=True))}
        return [by_id[id_] for id_ in ids if id_ in by_id]

    async def _printed_for(
        self, hits: Sequence[StoredSegment], query: str
    ) -> dict[SegmentId, tuple[StoredSegment, str]]:
        """For hits beside which tools printed something: the line that bears most on it, once.

        People ask for what a tool found out with the words in which they had it looked for, or in
        which the model spoke of it: the line itself shares none of them.
        """
        exchanges = await self._lookup.exchanges(hits[:_HITS_WITH_LINES])
        outputs = {
            one.segment.id: one for near in exchanges.values() for one in near if _is_output(one)
        }
        lines = KeyLines(_LINE_CHARS)
        for one in outputs.values():
            lines.read(one.segment.text)
        told: set[SegmentId] = set()
        found: dict[SegmentId, tuple[StoredSegment, str]] = {}
        for hit, near in exchanges.items():
            said = [one.segment.text[:_PROSE_CHARS] for one in near if not _is_output(one)]
            words = {*tokenize("\n".join([query, *said]))}
            for one in near:
                if hit in found or one.segment.id not in outputs or one.segment.id in told:
                    continue
                if line := lines.of(one.segment.text, words):
                    told.add(one.segment.id)
                    found[hit] = one, line
        return found

    # memory_get

    async def _get(self, asked: GetArguments) -> MemoryAnswer:
        if bool(asked.id) == bool(asked.path):
            raise RecollectError(
                "give either the `id` of a message or the `path` of a memory file."
            )
        if asked.path:
            return await self._lines(asked)
        stored = await self._meant(asked.id)
        if isinstance(stored, Fact):
            return await self._fact_with_sources(stored, asked)
        segment = stored.segment
        if asked.offset and asked.offset >= len(segment.text):
            raise RecollectError(f"the message ends at character {len(segment.text)}.")
        each = min(asked.around, MOST_AROUND)
        before, after = await self._lookup.around(stored, before=each, after=each)
        answer = self._answer(asked.max_tokens)
        text = segment.text[asked.offset :]
        shown = answer.add_cut(self._heading(stored), text, [segment.message_id])
        if shown < len(text):
            answer.head(
                f"(characters {asked.offset} to {asked.offset + shown} of {len(segment.text)}; "
                f"read on with offset={asked.offset + shown})"
            )
        left = len(before) + len(after)
        for title, neighbours in (
            ("Said just before it:", before),
            ("Said just behind it:", after),
        ):
            if neighbours:
                answer.head(title)
            for neighbour in neighbours:  # each has its share of the room, and what others leave
                near = neighbour.segment
                share, heading = answer.room_tokens // left, self._heading(neighbour)
                shown = answer.add_cut(heading, near.text, [near.message_id], most=share)
                if 0 < shown < len(near.text):
                    answer.head(f" … ({len(near.text) - shown} more characters)")
                left -= 1
        return self._told(answer)

    async def _meant(self, given: str) -> Fact | StoredSegment:
        """The fact or message whose id this is, or the only one whose id begins so; RecollectError
        names those that it may be."""
        wanted = given.strip().strip("[]").lower()
        stored = await self.find_message(wanted)
        facts: list[Fact] = []
        if len(wanted) >= _LEAST_ID_CHARS and not _SHORT_ID.fullmatch(wanted):
            known = await (await self._lookup.facts()).list(FactFilter(superseded=True))
            facts = [fact for fact in known if fact.id.lower().startswith(wanted)]
        exact = [fact for fact in facts if fact.id.lower() == wanted]
        found: list[Fact | StoredSegment] = [*(exact or facts)]
        if stored is not None and not exact:
            found.append(stored)
        if len(found) == 1:
            return found[0]
        if found:
            ids = [one.id if isinstance(one, Fact) else short_id(one) for one in found]
            raise _ambiguous(given, ids)
        raise RecollectError(
            f"there is no such message or fact in this memory as {plain(given)!r}; memory_search "
            "shows the ids of messages, as 214.8f0c, memory_recall those of facts. The beginning "
            f"of an id is enough from {_LEAST_ID_CHARS} characters on, where only one begins so."
        )

    async def _fact_with_sources(self, fact: Fact, asked: GetArguments) -> MemoryAnswer:
        """A fact, and the messages that it rests on."""
        answer = self._answer(asked.max_tokens)
        answer.add([fact_line(fact)], [])
        sources = await self._lookup.messages(fact.sources)
        answer.head("It rests on:" if sources else "No message is kept that it rests on.")
        for one in sources:
            answer.add_cut(self._heading(one), one.segment.text, [one.segment.message_id])
        return self._told(answer)

    async def _lines(self, asked: GetArguments) -> MemoryAnswer:
        """Lines of a memory file, as they are kept: nothing is read from the disk."""
        sections = await self._lookup.file(asked.path)
        placed = sorted(
            ((_first_line(one.segment), one) for one in sections), key=lambda pair: pair[0]
        )
        if not placed:
            names = [plain(name) for name in (await self._lookup.files())[:20]]
            there = f"there are {', '.join(names)}" if names else "there are none"
            raise RecollectError(f"there is no such memory file; {there}.")
        last = asked.line + asked.lines - 1
        wanted = [
            (line, one)
            for line, one in placed
            if line <= last and line + one.segment.text.count("\n") >= asked.line
        ]
        if not wanted:
            raise RecollectError(f"the last section of it begins at line {placed[-1][0]}.")
        answer = self._answer(asked.max_tokens)
        for line, one in wanted:
            text, quotes, heading = one.segment.text, [one.segment.message_id], self._heading(one)
            if not answer.add([heading, indented(text)], quotes):
                shown = answer.add_cut(heading, text, quotes)
                more = "; this one is cut off: memory_get with its id reads it" * bool(shown)
                answer.head(f"(there is more from line {line} on{more})")
                break
        return self._told(answer)

    async def _message(self, id: str) -> StoredSegment:  # noqa: A002
        found = await self._meant(id)
        if isinstance(found, Fact):
            raise RecollectError(f"{plain(id)!r} is a fact; give the id of a message, as 214.8f0c.")
        return found

    async def find_message(self, id: str) -> StoredSegment | None:  # noqa: A002
        """The message of a short or a whole id, or the only one whose id begins so."""
        wanted = id.strip().strip("[]").lower()
        if short := _SHORT_ID.fullmatch(wanted):
            stored = await self._lookup.message_at(int(short[1]))
            return stored if stored and stored.segment.id.startswith(short[2]) else None
        if _SEGMENT_ID.fullmatch(wanted):
            return next(iter(await self._lookup.messages([SegmentId(wanted)])), None)
        if not _ID_BEGINNING.fullmatch(wanted):
            return None
        found = await self._lookup.messages_beginning(wanted, _MOST_NAMED)
        if len(found) > 1:
            raise _ambiguous(id, [one.segment.id for one in found])
        return next(iter(found), None)

    # memory_store

    async def _store(self, asked: StoreArguments) -> MemoryAnswer:
        answer = self._answer(0)
        if asked.kind == "note":
            done = await self._lookup.note(asked.text)
            if done.segment is None or done.outcome in ("forgotten", "nothing"):
                raise RecollectError(
                    "nothing was kept: the user had this forgotten for good."
                    if done.outcome == "forgotten"
                    else "nothing was kept: it only repeats what memory told."
                )
            how = {"known": "Known already"}.get(done.outcome, "Kept as a note")
            unfound = (
                "" if done.segment.noise is None else f"; not searchable: {done.segment.noise}"
            )
            answer.head(f"{how}{unfound}: [{done.segment.id}]")
            return self._told(answer)
        source = None
        if asked.source:
            source = (await self._message(asked.source)).segment.id
        book = await self._lookup.facts()
        written = await book.add(
            asked.text,
            type=asked.type,
            subject=asked.subject,
            made_by="model",
            trust="medium",
            source=source,
        )
        if written.fact is None or written.outcome == "refused":
            raise RecollectError(f"nothing was stored: {written.reason}.")
        titles = {"added": "Stored:", "replaced": "Stored in place of what held before:"}
        answer.head(titles.get(written.outcome, "Known already:"))
        answer.add([fact_line(written.fact)], [])
        for fact in written.replaced:
            answer.add([f"before: {fact_line(fact)}"], [])
        return self._told(answer)

    # memory_recall

    async def _recall(self, asked: RecallArguments) -> MemoryAnswer:
        after, before = _span(asked.since, asked.until)
        book = await self._lookup.facts()
        facts = await book.list(FactFilter(types=tuple(asked.types), superseded=asked.replaced))
        facts = tuple(
            fact
            for fact in facts
            if (after is None or fact.at >= after) and (before is None or fact.at < before)
        )
        found, loosely = _about(facts, asked.about)
        answer = self._answer(asked.max_tokens)
        if not found:
            kinds = f" of type {' or '.join(asked.types)}" if asked.types else ""
            answer.head(f"No fact{kinds} is known about that; memory_search looks into messages.")
            return self._told(answer)
        answer.head(
            "No fact holds all of these words; these hold some:"
            if loosely
            else "Facts, newest first:"
        )
        for fact in found:
            answer.add([fact_line(fact)], [])
        if answer.left_out:
            answer.head(f"({answer.left_out} more did not fit; narrow it by type, about or time.)")
        return self._told(answer)

    # memory_forget

    async def _forget(self, asked: ForgetArguments) -> MemoryAnswer:
        book = await self._lookup.facts()
        order, segments = ForgetOrder(at=self._lookup.now()), dict[SegmentId, Segment]()
        facts: list[Fact] = []
        for id_ in dict.fromkeys(asked.ids):
            found = await self._to_forget(id_)
            if isinstance(found, Segment):
                segments[found.id] = found
            else:
                facts.append(found)
        if facts:
            order = await book.order_to_forget(
                [fact.id for fact in facts], sources=asked.with_sources
            )
            for one in await self._lookup.messages(order.segments):
                segments.setdefault(one.segment.id, one.segment)
        wanted = ForgetRequest(facts=tuple(facts), messages=tuple(segments.values()))
        if self._confirm is None:
            raise RecollectError(
                "nothing was forgotten: only a person can allow that, and nobody can be asked "
                "here. Tell the user to run\n"
                + "\n".join(f"  {line}" for line in self._commands(wanted))
            )
        if not await _confirmed(self._confirm, wanted):
            raise RecollectError("nothing was forgotten: the user did not confirm it.")
        if not await self._lookup.settled():
            raise RecollectError(
                "nothing was forgotten: messages still wait for the store; try later."
            )
        done = await book.forget(replace(order, segments=tuple(segments)))
        counts = [f"{count} {what}" for what, count in sorted(done.counts.items()) if count]
        answer = self._answer(0)
        answer.head(f"Forgotten for good: {', '.join(counts) or 'nothing was left of it'}.")
        if segments:
            answer.head("Not reached: the client's own history, transcripts and files.")
        return self._told(answer)

    async def _to_forget(self, given: str) -> Fact | Segment:
        found = await attempted(self._meant(given))
        if isinstance(found, Failure):
            said = found.said if issubclass(found.error, RecollectError) else found.error.__name__
            raise RecollectError(f"nothing was forgotten: {said}")
        if isinstance(found, Fact):
            return found
        if found.segment.session.startswith(FILE_SESSIONS):
            raise RecollectError(
                "nothing was forgotten: that stands in a memory file; change the file."
            )
        return found.segment

    def _commands(self, wanted: ForgetRequest) -> list[str]:
        space = f"--space {shlex.quote(self._lookup.space)}"
        facts = [f"recollect facts forget {fact.id} {space}" for fact in wanted.facts]
        return [
            *facts,
            *(f"recollect memory forget --segment {one.id} {space}" for one in wanted.messages),
        ]

    # answers

    def _heading(self, stored: StoredSegment) -> str:
        """The line above a message: what it is to who asks."""
        return message_line(stored, self._lookup.own_session)

    def _answer(self, wanted_tokens: int) -> AnswerLines:
        """An answer of the size that is wanted, as far as it is allowed."""
        most = self._most_tokens
        size = max(LEAST_TOKENS, min(wanted_tokens, most)) if wanted_tokens > 0 else most
        return AnswerLines(size, self._lookup.count_tokens)

    def _told(self, answer: AnswerLines, *, is_error: bool = False) -> MemoryAnswer:
        text = self._lookup.tell(framed(answer.lines), answer.quotes)
        return MemoryAnswer(text=text, is_error=is_error)

    def _refusal(self, text: str) -> MemoryAnswer:
        answer = self._answer(0)
        answer.head(indented(text).lstrip())
        return self._told(answer, is_error=True)


class BlockingMemoryTools:
    """`MemoryTools` for code without an event loop; made by `memory_tools`."""

    def __init__(self, tools: MemoryTools, memory: BlockingEngine) -> None:
        self._tools = tools
        self._memory = memory

    @property
    def names(self) -> tuple[ToolName, ...]:
        """As `MemoryTools.names`."""
        return self._tools.names

    def definitions(self, format: DefinitionFormat) -> list[dict[str, Any]]:  # noqa: A002
        """As `MemoryTools.definitions`."""
        return self._tools.definitions(format)

    def call(
        self, name: str, arguments: Mapping[str, Any] | str | bytes | None = None
    ) -> MemoryAnswer:
        """As `MemoryTools.call`, waited for."""
        return self._memory._wait(self._tools.call(name, arguments))


@overload
def memory_tools(
    memory: Engine,
    *,
    session: SessionId | None = None,
    confirm: Confirm | None = None,
    answer_tokens: int = ANSWER_TOKENS,
) -> MemoryTools: ...


@overload
def memory_tools(
    memory: BlockingEngine,
    *,
    session: SessionId | None = None,
    confirm: Confirm | None = None,
    answer_tokens: int = ANSWER_TOKENS,
) -> BlockingMemoryTools: ...


def memory_tools(
    memory: Engine | BlockingEngine,
    *,
    session: SessionId | None = None,
    confirm: Confirm | None = None,
    answer_tokens: int = ANSWER_TOKENS,
) -> MemoryTools | BlockingMemoryTools:
    """The memory tools of an open memory.

    With a `session` they see what it may see (its messages, memory files, and facts of it or of no
    session) unless `recall.scope = "space"`; without one the whole space. `confirm` asks the person
    before anything is forgotten; without it nothing is, and the answer says how to do it by hand.
    `answer_tokens` is how long an answer may be, whatever a call asks for.
    """
    engine = memory.engine if isinstance(memory, BlockingEngine) else memory
    tools = MemoryTools(engine, session=session, confirm=confirm, answer_tokens=answer_tokens)
    return BlockingMemoryTools(tools, memory) if isinstance(memory, BlockingEngine) else tools


def _one_line(passages: Sequence[RecalledPassage]) -> str:
    return " ".join(" ".join(passage.text for passage in passages).split())


def _is_output(stored: StoredSegment) -> bool:
    return stored.segment.tool is not None and stored.segment.role != "assistant"


def _ambiguous(given: str, ids: Sequence[str]) -> RecollectError:
    named = ", ".join(plain(one) for one in ids[:_MOST_NAMED])
    return RecollectError(f"several ids begin with {plain(given)!r}; give more of it: {named}.")


def _there_are() -> str:
    return f"there are {', '.join(KINDS)}"


def _span(since: str, until: str) -> tuple[float | None, float | None]:
    after, before = moment(since), moment(until, end=True)
    if isinstance(after, BadArguments):
        raise RecollectError(f"since: {after.problem}")
    if isinstance(before, BadArguments):
        raise RecollectError(f"until: {before.problem}")
    return after, before


def _by_message(
    passages: Sequence[RecalledPassage], stored: Mapping[SegmentId, StoredSegment]
) -> list[tuple[StoredSegment, list[RecalledPassage]]]:
    """Passages under their messages: the best message first, within it as it was said."""
    found: dict[SegmentId, list[RecalledPassage]] = {}
    for passage in passages:
        if passage.segment is not None and passage.segment in stored:
            found.setdefault(passage.segment, []).append(passage)
    return [
        (stored[id_], sorted(some, key=lambda passage: passage.order))
        for id_, some in found.items()
    ]


def _hit_lines(
    heading: str, stored: StoredSegment, passages: Sequence[RecalledPassage]
) -> list[str]:
    whole = sum(len(passage.text) for passage in passages) >= len(stored.segment.text.strip())
    part = "" if whole else ", in part"
    return [heading + part, *(indented(passage.text) for passage in passages)]


def _first_line(section: Segment) -> int:
    line = (section.origin or "").rpartition(":")[2]
    return int(line) if line.isdigit() else 1


def _about(facts: Sequence[Fact], words: str) -> tuple[list[Fact], bool]:
    """The facts that hold all of these words, newest first; else those that hold some, those with
    most of them first."""
    wanted = frozenset(tokenize(words))
    held = {fact.id: wanted & {*tokenize(f"{fact.told} {fact.subject}")} for fact in facts}
    newest = sorted(facts, key=lambda fact: (-fact.at, fact.id))
    whole = [fact for fact in newest if held[fact.id] == wanted]
    if whole:
        return whole, False
    some = [fact for fact in newest if held[fact.id]]
    return sorted(some, key=lambda fact: -len(held[fact.id])), True


async def _confirmed(confirm: Confirm, wanted: ForgetRequest) -> bool:
    if inspect.iscoroutinefunction(confirm):
        answer = await confirm(wanted)
    else:
        answer = await asyncio.to_thread(confirm, wanted)
        if inspect.isawaitable(answer):
            answer = await answer
    return answer is True
