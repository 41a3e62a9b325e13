"""Answers the calls of memory tools: one handler for every wire format. Invalid input from a model,
or a store that is down, never raises an error. An answer stays within its budget and is marked as
recalled. Forgetting needs a person's confirmation. A fact that a model stores is trusted like the
model's words, and replaces no preference, decision or rule of the user."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, TypedDict, Unpack, cast, overload
from urllib.parse import quote

from recollect.core.blocking import BlockingEngine
from recollect.core.boundary import Failure, attempted
from recollect.core.engine.engine import Engine
from recollect.core.engine.lookup import MemoryLookup
from recollect.core.facts.history import FactFilter
from recollect.core.formats.codec import CODECS, DefinitionFormat, tool_definition
from recollect.core.search.bm25 import KeyLines
from recollect.core.search.tokenize import tokenize
from recollect.core.values.fact import Fact
from recollect.core.values.history import SessionId
from recollect.core.values.recall import FILE_SESSIONS, RecalledPassage
from recollect.core.values.segment import Segment, SegmentId, StoredSegment
from recollect.core.values.tenant import is_tenant_space
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
    ForgetArguments,
    GetArguments,
    RecallArguments,
    SearchArguments,
    StoreArguments,
    ToolName,
    describe_problem,
    moment,
    read_arguments,
)

ANSWER_TOKENS: Final = 2_500
"""Default token limit of an answer: one or two pages."""
LEAST_TOKENS: Final = 200
_SEARCH_SHARE: Final = 1.2
"""Token budget of the search, as a multiple of the answer's, because hits may share a heading."""
_HITS_WITH_LINES: Final = 24
_LINE_CHARS: Final = 160
_PROSE_CHARS: Final = 4_000
_LEAST_ID_CHARS: Final = 4
_MOST_NAMED: Final = 5
_SEGMENT_ID: Final = re.compile(r"[0-9a-f]{32}")
_SHORT_ID: Final = re.compile(rf"([0-9]{{1,15}})[-.]([0-9a-f]{{1,{ID_CHECK_CHARS}}})")
"""Pattern of a short id, in which the characters after the number reveal an invented number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAnswer:
    """The text of a memory tool's result."""

    text: str = field(repr=False)
    """Text to send to the model as the tool's result."""
    is_error: bool = False
    """True if the call failed. The text gives the reason and the fix."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRequest:
    """Facts and messages that a model wants to forget, for a person to confirm."""

    facts: tuple[Fact, ...]
    """Facts to forget."""
    messages: tuple[Segment, ...]
    """Messages to forget."""

    def __str__(self) -> str:
        """List each fact and message on one line."""
        messages = [f"{forget_line(one)}: {plain(one.text)}" for one in self.messages]
        return "\n".join([*map(fact_line, self.facts), *messages])

    def whole(self) -> str:
        """List the facts, and every message in full and indented."""
        messages = [f"{forget_line(one)}\n{indented(one.text)}" for one in self.messages]
        return "\n".join([*map(fact_line, self.facts), *messages])


Confirm: TypeAlias = Callable[[ForgetRequest], bool | Awaitable[bool]]
"""Asks a person to confirm forgetting. A plain function runs in a thread."""


class ToolOptions(TypedDict, total=False):
    """Options of `memory_tools`."""

    session: SessionId | None
    confirm: Confirm | None
    answer_tokens: int


class MemoryTools:
    """The memory tools of one memory, created by `memory_tools`."""

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
        self._answer_tokens = max(LEAST_TOKENS, answer_tokens)

    @property
    def names(self) -> tuple[ToolName, ...]:
        """The tool names that `call` accepts."""
        return cast(tuple[ToolName, ...], tuple(KINDS))

    def definitions(self, format: DefinitionFormat) -> list[dict[str, Any]]:  # noqa: A002
        """Return the tools' definitions for a request in this format, or for an MCP server."""
        if format not in (*CODECS, "mcp"):
            raise ValueError(f"format must be one of {', '.join(CODECS)} or mcp, not {format!r}")
        return [
            tool_definition(format, kind.name, kind.description, kind.parameters)
            for kind in KINDS.values()
        ]

    async def call(
        self, name: str, arguments: Mapping[str, Any] | str | bytes | None = None
    ) -> MemoryAnswer:
        """Call a tool. `arguments` is an object, or the JSON that the provider sent."""
        kind = KINDS.get(name)
        if kind is None:
            text = f"There is no memory tool {plain(name)!r}; there are {', '.join(KINDS)}."
            return MemoryAnswer(text=text, is_error=True)
        try:
            read = read_arguments(kind, arguments)
        except RecollectError as problem:
            return MemoryAnswer(text=describe_problem(kind, problem), is_error=True)
        done = await attempted(self._answer(read))
        answer = done if isinstance(done, AnswerLines) else self._new_answer()
        if isinstance(done, Failure):
            ours = issubclass(done.error, RecollectError)
            why = f": {done.said}" if ours else f" failed ({done.error.__name__}); go on without it"
            answer.head(indented(f"{name}{why}").lstrip())
        text = self._lookup.tell(framed(answer.lines), answer.quotes)
        await self._lookup.store_answer_marks()
        return MemoryAnswer(text=text, is_error=isinstance(done, Failure))

    async def lines(self, name: ToolName, **arguments: Any) -> list[str]:
        """Call a tool for a person: return the answer's lines without the block around them."""
        return (await self._answer(read_arguments(KINDS[name], arguments))).lines

    async def _answer(self, read: Any) -> AnswerLines:
        if isinstance(read, SearchArguments):
            return await self._search(read)
        if isinstance(read, GetArguments):
            return await self._get(read)
        if isinstance(read, StoreArguments):
            return await self._store(read)
        if isinstance(read, RecallArguments):
            return await self._recall(read)
        return await self._forget(cast(ForgetArguments, read))

    async def _search(self, asked: SearchArguments) -> AnswerLines:
        answer = self._new_answer()
        recalled = await self._lookup.search(
            asked.query,
            budget_tokens=int(_SEARCH_SHARE * answer.budget_tokens),
            said_after=moment(asked.since),
            said_before=moment(asked.until, end=True),
        )
        ids = [one.segment for one in recalled.passages if one.segment is not None]
        stored = {one.segment.id: one for one in await self._lookup.messages(ids)}
        known: list[Fact] = []
        if fact_ids := [fact.id for fact in recalled.facts if fact.id is not None]:
            book = await self._lookup.facts()
            by_id = {fact.id: fact for fact in await book.list(FactFilter(superseded=True))}
            known = [by_id[id_] for id_ in fact_ids if id_ in by_id]
        if known:
            answer.head("Facts:")
            for fact in known:
                answer.add([fact_line(fact)], [])
        found = _by_message(recalled.passages, stored)
        if found:
            where = " (of this session, unless a line names another place)"
            answer.head(
                f"Messages and memory files, best first{where * bool(self._lookup.own_session)}:"
            )
            printed = await self._printed_for([one for one, _ in found], asked.query)
            shown: dict[SegmentId, str] = {}
            for one, passages in found:
                lines = _hit_lines(self._heading(one), one, passages)
                if not answer.add(lines, [one.segment.message_id]):
                    continue
                texts = " ".join(passage.text for passage in passages)
                shown[one.segment.id] = " ".join(texts.split())
                result, line = printed.get(one.segment.id, (one, ""))
                if line and line not in shown.get(result.segment.id, ""):
                    heading = f"{self._heading(result)}, one line of it"
                    answer.add([heading, indented(line)], [result.segment.message_id])
        if not known and not found:
            answer.head("Nothing in memory answers to that; try other words, or ask the user.")
        elif answer.left_out:
            answer.head(f"({answer.left_out} more did not fit; search more narrowly.)")
        return answer

    async def _printed_for(
        self, hits: Sequence[StoredSegment], query: str
    ) -> dict[SegmentId, tuple[StoredSegment, str]]:
        """For each hit next to tool output, find the most relevant line of that output; quote each
        output once. A question repeats the words of the user's order or of the reply, but the line
        of output that answers it often contains none of these words."""
        exchanges = await self._lookup.exchanges(hits[:_HITS_WITH_LINES])
        outputs = {
            one.segment.id: one for near in exchanges.values() for one in near if _is_output(one)
        }
        lines = KeyLines(_LINE_CHARS)
        for one in outputs.values():
            lines.read(one.segment.text)
        shown: set[SegmentId] = set()
        found: dict[SegmentId, tuple[StoredSegment, str]] = {}
        for hit, near in exchanges.items():
            said = [one.segment.text[:_PROSE_CHARS] for one in near if not _is_output(one)]
            words = {*tokenize("\n".join([query, *said]))}
            for one in near:
                if hit in found or one.segment.id not in outputs or one.segment.id in shown:
                    continue
                if line := lines.of(one.segment.text, words):
                    shown.add(one.segment.id)
                    found[hit] = one, line
        return found

    async def _get(self, asked: GetArguments) -> AnswerLines:
        if bool(asked.id) == bool(asked.path):
            raise RecollectError(
                "give either the `id` of a message or the `path` of a memory file."
            )
        if asked.path:
            return await self._file_lines(asked)
        stored = await self._find(asked.id)
        if isinstance(stored, Fact):
            return await self._fact_with_sources(stored)
        segment = stored.segment
        if asked.offset and asked.offset >= len(segment.text):
            raise RecollectError(f"the message ends at character {len(segment.text)}.")
        each = min(asked.around, MOST_AROUND)
        before, after = await self._lookup.around(stored, before=each, after=each)
        answer = self._new_answer()
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
            ("Said just after it:", after),
        ):
            if neighbours:
                answer.head(title)
            # Each neighbor gets an equal share of the remaining budget.
            for neighbour in neighbours:
                near = neighbour.segment
                share, heading = answer.room_tokens // left, self._heading(neighbour)
                shown = answer.add_cut(heading, near.text, [near.message_id], most=share)
                if 0 < shown < len(near.text):
                    answer.head(f" … ({len(near.text) - shown} more characters)")
                left -= 1
        return answer

    async def _find(self, given: str) -> Fact | StoredSegment:
        wanted = given.strip().strip("[]").lower()
        stored = await self.find_message(wanted)
        if stored is not None:
            return stored
        facts: list[Fact] = []
        if len(wanted) >= _LEAST_ID_CHARS and not _SHORT_ID.fullmatch(wanted):
            known = await (await self._lookup.facts()).list(FactFilter(superseded=True))
            facts = [fact for fact in known if fact.id.lower().startswith(wanted)]
            facts = [fact for fact in facts if fact.id.lower() == wanted] or facts
        if len(facts) == 1:
            return facts[0]
        if facts:
            named = ", ".join(plain(fact.id) for fact in facts[:_MOST_NAMED])
            raise RecollectError(
                f"several ids begin with {plain(given)!r}; give more characters: {named}."
            )
        raise RecollectError(
            f"this memory has no message or fact with the id {plain(given)!r}; memory_search "
            "shows the ids of messages, as 214-8f0c, and those of facts."
        )

    async def _fact_with_sources(self, fact: Fact) -> AnswerLines:
        answer = self._new_answer()
        answer.add([fact_line(fact)], [])
        sources = await self._lookup.messages(fact.sources)
        answer.head("Source messages of this fact:" if sources else "No source message is stored.")
        for one in sources:
            answer.add_cut(self._heading(one), one.segment.text, [one.segment.message_id])
        return answer

    async def _file_lines(self, asked: GetArguments) -> AnswerLines:
        """Show the stored lines of a memory file, without reading the file itself."""
        placed: list[tuple[int, StoredSegment]] = []
        for one in await self._lookup.file(asked.path):
            number = (one.segment.origin or "").rpartition(":")[2]
            placed.append((int(number) if number.isdigit() else 1, one))
        placed.sort(key=lambda pair: pair[0])
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
            raise RecollectError(f"the last section of the file begins at line {placed[-1][0]}.")
        answer = self._new_answer()
        for line, one in wanted:
            text, quotes, heading = one.segment.text, [one.segment.message_id], self._heading(one)
            if not answer.add([heading, indented(text)], quotes):
                shown = answer.add_cut(heading, text, quotes)
                more = "; this one is cut off: memory_get with its id reads it" * bool(shown)
                answer.head(f"(there is more from line {line} on{more})")
                break
        return answer

    async def find_message(self, id: str) -> StoredSegment | None:  # noqa: A002
        """Find a message by its short or full id."""
        wanted = id.strip().strip("[]").lower()
        if short := _SHORT_ID.fullmatch(wanted):
            stored = await self._lookup.message_at(int(short[1]))
            return stored if stored and stored.segment.id.startswith(short[2]) else None
        if _SEGMENT_ID.fullmatch(wanted):
            return next(iter(await self._lookup.messages([SegmentId(wanted)])), None)
        return None

    async def _store(self, asked: StoreArguments) -> AnswerLines:
        answer = self._new_answer()
        if asked.kind == "note":
            done = await self._lookup.note(asked.text)
            if done.segment is None or done.outcome in ("forgotten", "nothing"):
                raise RecollectError(
                    "nothing was stored: the user had this forgotten permanently."
                    if done.outcome == "forgotten"
                    else "nothing was stored: it only repeats an answer of memory."
                )
            how = "Known already" if done.outcome == "known" else "Stored as a note"
            noise = done.segment.noise
            unfound = "" if noise is None else f"; not searchable: {noise}"
            answer.head(f"{how}{unfound}: [{done.segment.id}]")
            return answer
        source = None
        if asked.source:
            found = await self._find(asked.source)
            if isinstance(found, Fact):
                raise RecollectError("`source` must be the id of a message, as 214-8f0c.")
            source = found.segment.id
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
        titles = {"added": "Stored:", "replaced": "Stored. It replaces:"}
        answer.head(titles.get(written.outcome, "Known already:"))
        answer.add([fact_line(written.fact)], [])
        for fact in written.replaced:
            answer.add([f"before: {fact_line(fact)}"], [])
        return answer

    async def _recall(self, asked: RecallArguments) -> AnswerLines:
        book = await self._lookup.facts()
        facts = await book.list(FactFilter(types=tuple(asked.types), superseded=asked.replaced))
        found, loosely = _about(facts, asked.about)
        answer = self._new_answer()
        if not found:
            kinds = f" of type {' or '.join(asked.types)}" if asked.types else ""
            answer.head(f"No fact{kinds} is known about that; memory_search searches messages.")
            return answer
        answer.head(
            "No fact contains all of these words; these contain some:"
            if loosely
            else "Facts, newest first:"
        )
        for fact in found:
            answer.add([fact_line(fact)], [])
        if answer.left_out:
            answer.head(f"({answer.left_out} more did not fit; narrow it by type or about.)")
        return answer

    async def _forget(self, asked: ForgetArguments) -> AnswerLines:
        book = await self._lookup.facts()
        order, segments = ForgetOrder(at=self._lookup.now()), dict[SegmentId, Segment]()
        facts: list[Fact] = []
        for id_ in dict.fromkeys(asked.ids):
            found = await self._find(id_)
            if isinstance(found, Fact):
                facts.append(found)
            elif found.segment.session.startswith(FILE_SESSIONS):
                raise RecollectError(
                    f"nothing was forgotten: {short_id(found)} is in a memory file; edit the file."
                )
            else:
                segments[found.segment.id] = found.segment
        if facts:
            order = await book.order_to_forget(
                [fact.id for fact in facts], sources=asked.with_sources
            )
            for one in await self._lookup.messages(order.segments):
                segments.setdefault(one.segment.id, one.segment)
        wanted = ForgetRequest(facts=tuple(facts), messages=tuple(segments.values()))
        if self._confirm is None:
            raise RecollectError(
                "nothing was forgotten: only a person can allow that, and this client cannot ask "
                "one. The user can "
                + ("request\n" if is_tenant_space(self._lookup.space) else "run\n")
                + "\n".join(f"  {line}" for line in self._commands(wanted))
            )
        confirm: Any = self._confirm
        in_loop = inspect.iscoroutinefunction(confirm)
        answer = confirm(wanted) if in_loop else await asyncio.to_thread(confirm, wanted)
        if (await answer if inspect.isawaitable(answer) else answer) is not True:
            raise RecollectError("nothing was forgotten: the user did not confirm it.")
        done = await book.forget(replace(order, segments=tuple(segments)))
        counts = [f"{count} {what}" for what, count in sorted(done.counts.items()) if count]
        answer = self._new_answer()
        answer.head(f"Forgotten permanently: {', '.join(counts) or 'nothing was left of it'}.")
        if segments:
            answer.head("Not reached: the client's own history, transcripts and files.")
        return answer

    def _commands(self, wanted: ForgetRequest) -> list[str]:
        """Return the commands, or a tenant's API requests, that forget the requested content."""
        if is_tenant_space(self._lookup.space):
            path = f"/v1/spaces/{quote(self._lookup.space.partition('/')[2], safe='')}"
            ids = json.dumps({"segments": [one.id for one in wanted.messages]})
            return [
                *(f"DELETE {path}/facts/{quote(fact.id, safe='')}" for fact in wanted.facts),
                *((f"POST {path}/forget {ids}",) if wanted.messages else ()),
            ]
        space = f"--space {shlex.quote(self._lookup.space)}"
        return [
            *(f"recollect facts forget {fact.id} {space}" for fact in wanted.facts),
            *(f"recollect memory forget --segment {one.id} {space}" for one in wanted.messages),
        ]

    def _heading(self, stored: StoredSegment) -> str:
        return message_line(stored, self._lookup.own_session)

    def _new_answer(self) -> AnswerLines:
        return AnswerLines(self._answer_tokens, self._lookup.count_tokens)


class BlockingMemoryTools:
    """`MemoryTools` for code without an event loop, created by `memory_tools`."""

    def __init__(self, tools: MemoryTools, memory: BlockingEngine) -> None:
        self._tools = tools
        self._memory = memory
        self.names: tuple[ToolName, ...] = tools.names
        self.definitions: Callable[[DefinitionFormat], list[dict[str, Any]]] = tools.definitions

    def call(
        self, name: str, arguments: Mapping[str, Any] | str | bytes | None = None
    ) -> MemoryAnswer:
        """Call a tool as `MemoryTools.call` does, but block until it is done."""
        return self._memory._wait(self._tools.call(name, arguments))


@overload
def memory_tools(memory: Engine, **options: Unpack[ToolOptions]) -> MemoryTools: ...


@overload
def memory_tools(memory: BlockingEngine, **options: Unpack[ToolOptions]) -> BlockingMemoryTools: ...


def memory_tools(
    memory: Engine | BlockingEngine, **options: Unpack[ToolOptions]
) -> MemoryTools | BlockingMemoryTools:
    """Create the memory tools of an open memory.

    Without a `session` the tools see the whole space. With a `session`, they see its messages,
    memory files, and facts that belong to it or to no session, unless `recall.scope = "space"`.
    `confirm` asks a person before anything is forgotten. Without `confirm`, nothing is forgotten,
    and the answer names the command to run. `answer_tokens` limits the length of an answer."""
    if isinstance(memory, BlockingEngine):
        return BlockingMemoryTools(MemoryTools(memory.engine, **options), memory)
    return MemoryTools(memory, **options)


def _is_output(stored: StoredSegment) -> bool:
    return stored.segment.tool is not None and stored.segment.role != "assistant"


def _by_message(
    passages: Sequence[RecalledPassage], stored: Mapping[SegmentId, StoredSegment]
) -> list[tuple[StoredSegment, list[RecalledPassage]]]:
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


def _about(facts: Sequence[Fact], words: str) -> tuple[list[Fact], bool]:
    wanted = frozenset(tokenize(words))
    held = {fact.id: wanted & {*tokenize(f"{fact.told} {fact.subject}")} for fact in facts}
    newest = sorted(facts, key=lambda fact: (-fact.at, fact.id))
    whole = [fact for fact in newest if held[fact.id] == wanted]
    if whole:
        return whole, False
    some = [fact for fact in newest if held[fact.id]]
    return sorted(some, key=lambda fact: -len(held[fact.id])), True
