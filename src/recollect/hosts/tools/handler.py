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
    frame_lines,
    indent_text,
    message_line,
    plain_name,
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
LEAST_TOKENS: Final = 200  # a smaller answer holds no message
_SEARCH_SHARE: Final = 1.2
"""Token budget of the search, as a multiple of the answer's, because hits may share a heading."""
_HITS_WITH_LINES: Final = 24  # not measured; bounds the reads of one search
_LINE_CHARS: Final = 160  # not measured; one line of a terminal
_PROSE_CHARS: Final = 4_000  # not measured; bounds the words compared
_LEAST_ID_CHARS: Final = 4  # shorter prefixes match by chance
_MOST_NAMED: Final = 5  # not measured; keeps the error short
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
        messages = [
            f"{forget_line(message)}: {plain_name(message.text)}" for message in self.messages
        ]
        return "\n".join([*map(fact_line, self.facts), *messages])

    def whole(self) -> str:
        """List the facts, and every message in full and indented."""
        messages = [
            f"{forget_line(message)}\n{indent_text(message.text)}" for message in self.messages
        ]
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
            text = f"There is no memory tool {plain_name(name)!r}; there are {', '.join(KINDS)}."
            return MemoryAnswer(text=text, is_error=True)
        try:
            read = read_arguments(kind, arguments)
        except RecollectError as problem:
            return MemoryAnswer(text=describe_problem(kind, problem), is_error=True)
        result = await attempted(self._answer(read))
        answer = result if isinstance(result, AnswerLines) else self._new_answer()
        if isinstance(result, Failure):
            explanation = f" failed ({result.error.__name__}); go on without it"
            if issubclass(result.error, RecollectError):
                explanation = f": {result.said}"
            answer.head(indent_text(f"{name}{explanation}").lstrip())
        text = self._lookup.tell(frame_lines(answer.lines), answer.quotes)
        await self._lookup.store_answer_marks()
        return MemoryAnswer(text=text, is_error=isinstance(result, Failure))

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

    async def _search(self, arguments: SearchArguments) -> AnswerLines:
        answer = self._new_answer()
        result = await self._lookup.search(
            arguments.query,
            budget_tokens=int(_SEARCH_SHARE * answer.budget_tokens),
            said_after=moment(arguments.since),
            said_before=moment(arguments.until, end=True),
        )
        ids = [hit.segment for hit in result.passages if hit.segment is not None]
        segments_by_id = {hit.segment.id: hit for hit in await self._lookup.messages(ids)}
        known_facts: list[Fact] = []
        if fact_ids := [fact.id for fact in result.facts if fact.id is not None]:
            book = await self._lookup.facts()
            by_id = {fact.id: fact for fact in await book.list(FactFilter(superseded=True))}
            known_facts = [by_id[id_] for id_ in fact_ids if id_ in by_id]
        if known_facts:
            answer.head("Facts:")
            for fact in known_facts:
                answer.add([fact_line(fact)], [])
        hits = _by_message(result.passages, segments_by_id)
        if hits:
            place_note = " (of this session, unless a line names another place)"
            answer.head(
                "Messages and memory files, best first"
                f"{place_note * bool(self._lookup.own_session)}:"
            )
            output_lines = await self._find_output_lines([hit for hit, _ in hits], arguments.query)
            text_by_id: dict[SegmentId, str] = {}
            for hit, passages in hits:
                lines = _hit_lines(self._heading(hit), hit, passages)
                if not answer.add(lines, [hit.segment.message_id]):
                    continue
                texts = " ".join(passage.text for passage in passages)
                text_by_id[hit.segment.id] = " ".join(texts.split())
                output, line = output_lines.get(hit.segment.id, (hit, ""))
                if line and line not in text_by_id.get(output.segment.id, ""):
                    heading = f"{self._heading(output)}, one line of it"
                    answer.add([heading, indent_text(line)], [output.segment.message_id])
        if not known_facts and not hits:
            answer.head("Nothing in memory answers to that; try other words, or ask the user.")
        elif answer.left_out:
            answer.head(f"({answer.left_out} more did not fit; search more narrowly.)")
        return answer

    async def _find_output_lines(
        self, hits: Sequence[StoredSegment], query: str
    ) -> dict[SegmentId, tuple[StoredSegment, str]]:
        """For each hit next to tool output, find the most relevant line of that output; quote each
        output once. A question repeats the words of the user's order or of the reply, but the line
        of output that answers it often contains none of these words."""
        exchanges = await self._lookup.exchanges(hits[:_HITS_WITH_LINES])
        outputs = {
            message.segment.id: message
            for exchange in exchanges.values()
            for message in exchange
            if _is_output(message)
        }
        lines = KeyLines(_LINE_CHARS)
        for message in outputs.values():
            lines.read(message.segment.text)
        shown_ids: set[SegmentId] = set()
        line_by_hit: dict[SegmentId, tuple[StoredSegment, str]] = {}
        for hit, exchange in exchanges.items():
            prose = [
                message.segment.text[:_PROSE_CHARS]
                for message in exchange
                if not _is_output(message)
            ]
            words = {*tokenize("\n".join([query, *prose]))}
            for message in exchange:
                if hit in line_by_hit or message.segment.id not in outputs.keys() - shown_ids:
                    continue
                if line := lines.of(message.segment.text, words):
                    shown_ids.add(message.segment.id)
                    line_by_hit[hit] = message, line
        return line_by_hit

    async def _get(self, arguments: GetArguments) -> AnswerLines:
        if bool(arguments.id) == bool(arguments.path):
            raise RecollectError(
                "give either the `id` of a message or the `path` of a memory file."
            )
        if arguments.path:
            return await self._file_lines(arguments)
        item = await self._find(arguments.id)
        if isinstance(item, Fact):
            return await self._fact_with_sources(item)
        segment = item.segment
        if arguments.offset and arguments.offset >= len(segment.text):
            raise RecollectError(f"the message ends at character {len(segment.text)}.")
        count = min(arguments.around, MOST_AROUND)
        before, after = await self._lookup.find_neighbors(item, before=count, after=count)
        answer = self._new_answer()
        text = segment.text[arguments.offset :]
        shown = answer.add_cut(self._heading(item), text, [segment.message_id])
        if shown < len(text):
            answer.head(
                f"(characters {arguments.offset} to {arguments.offset + shown} of "
                f"{len(segment.text)}; read on with offset={arguments.offset + shown})"
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
                quoted = neighbour.segment
                share, heading = answer.room_tokens // left, self._heading(neighbour)
                shown = answer.add_cut(
                    heading,
                    quoted.text,
                    [quoted.message_id],
                    max_tokens=share,
                )
                if 0 < shown < len(quoted.text):
                    answer.head(f" … ({len(quoted.text) - shown} more characters)")
                left -= 1
        return answer

    async def _find(self, id_text: str) -> Fact | StoredSegment:
        wanted_id = id_text.strip().strip("[]").lower()
        message = await self.find_message(wanted_id)
        if message is not None:
            return message
        facts: list[Fact] = []
        if len(wanted_id) >= _LEAST_ID_CHARS and not _SHORT_ID.fullmatch(wanted_id):
            known_facts = await (await self._lookup.facts()).list(FactFilter(superseded=True))
            facts = [fact for fact in known_facts if fact.id.lower().startswith(wanted_id)]
            facts = [fact for fact in facts if fact.id.lower() == wanted_id] or facts
        if len(facts) == 1:
            return facts[0]
        if facts:
            id_list = ", ".join(plain_name(fact.id) for fact in facts[:_MOST_NAMED])
            raise RecollectError(
                f"several ids begin with {plain_name(id_text)!r}; give more characters: {id_list}."
            )
        raise RecollectError(
            f"this memory has no message or fact with the id {plain_name(id_text)!r}; "
            "memory_search shows the ids of messages, as 214-8f0c, and those of facts."
        )

    async def _fact_with_sources(self, fact: Fact) -> AnswerLines:
        answer = self._new_answer()
        answer.add([fact_line(fact)], [])
        sources = await self._lookup.messages(fact.sources)
        answer.head("Source messages of this fact:" if sources else "No source message is stored.")
        for source in sources:
            answer.add_cut(self._heading(source), source.segment.text, [source.segment.message_id])
        return answer

    async def _file_lines(self, arguments: GetArguments) -> AnswerLines:
        """Show the stored lines of a memory file, without reading the file itself."""
        sections: list[tuple[int, StoredSegment]] = []
        for section in await self._lookup.file(arguments.path):
            number = (section.segment.origin or "").rpartition(":")[2]
            sections.append((int(number) if number.isdigit() else 1, section))
        sections.sort(key=lambda pair: pair[0])
        if not sections:
            names = [plain_name(name) for name in (await self._lookup.files())[:20]]
            listing = f"there are {', '.join(names)}" if names else "there are none"
            raise RecollectError(f"there is no such memory file; {listing}.")
        last = arguments.line + arguments.lines - 1
        wanted_sections = [
            (line, section)
            for line, section in sections
            if line <= last and line + section.segment.text.count("\n") >= arguments.line
        ]
        if not wanted_sections:
            raise RecollectError(f"the last section of the file begins at line {sections[-1][0]}.")
        answer = self._new_answer()
        for line, section in wanted_sections:
            text, quotes = section.segment.text, [section.segment.message_id]
            heading = self._heading(section)
            if not answer.add([heading, indent_text(text)], quotes):
                shown = answer.add_cut(heading, text, quotes)
                more_note = "; this one is cut off: memory_get with its id reads it" * bool(shown)
                answer.head(f"(there is more from line {line} on{more_note})")
                break
        return answer

    async def find_message(self, id: str) -> StoredSegment | None:  # noqa: A002
        """Find a message by its short or full id."""
        wanted_id = id.strip().strip("[]").lower()
        if short := _SHORT_ID.fullmatch(wanted_id):
            message = await self._lookup.message_at(int(short[1]))
            return message if message and message.segment.id.startswith(short[2]) else None
        if _SEGMENT_ID.fullmatch(wanted_id):
            return next(iter(await self._lookup.messages([SegmentId(wanted_id)])), None)
        return None

    async def _store(self, arguments: StoreArguments) -> AnswerLines:
        answer = self._new_answer()
        if arguments.kind == "note":
            note_result = await self._lookup.note(arguments.text)
            if note_result.segment is None or note_result.outcome in ("forgotten", "nothing"):
                raise RecollectError(
                    "nothing was stored: the user had this forgotten permanently."
                    if note_result.outcome == "forgotten"
                    else "nothing was stored: it only repeats an answer of memory."
                )
            how = "Known already" if note_result.outcome == "known" else "Stored as a note"
            noise = note_result.segment.noise
            unfound = "" if noise is None else f"; not searchable: {noise}"
            answer.head(f"{how}{unfound}: [{note_result.segment.id}]")
            return answer
        source = None
        if arguments.source:
            source_item = await self._find(arguments.source)
            if isinstance(source_item, Fact):
                raise RecollectError("`source` must be the id of a message, as 214-8f0c.")
            source = source_item.segment.id
        book = await self._lookup.facts()
        fact_result = await book.add(
            arguments.text,
            type=arguments.type,
            subject=arguments.subject,
            made_by="model",
            trust="medium",
            source=source,
        )
        if fact_result.fact is None or fact_result.outcome == "refused":
            raise RecollectError(f"nothing was stored: {fact_result.reason}.")
        titles = {"added": "Stored:", "replaced": "Stored. It replaces:"}
        answer.head(titles.get(fact_result.outcome, "Known already:"))
        answer.add([fact_line(fact_result.fact)], [])
        for fact in fact_result.replaced:
            answer.add([f"before: {fact_line(fact)}"], [])
        return answer

    async def _recall(self, arguments: RecallArguments) -> AnswerLines:
        book = await self._lookup.facts()
        facts = await book.list(
            FactFilter(types=tuple(arguments.types), superseded=arguments.replaced)
        )
        matching_facts, loosely = _facts_about(facts, arguments.about)
        answer = self._new_answer()
        if not matching_facts:
            kinds = f" of type {' or '.join(arguments.types)}" if arguments.types else ""
            answer.head(f"No fact{kinds} is known about that; memory_search searches messages.")
            return answer
        loose_title = "No fact contains all of these words; these contain some:"
        answer.head(loose_title if loosely else "Facts, newest first:")
        for fact in matching_facts:
            answer.add([fact_line(fact)], [])
        if answer.left_out:
            answer.head(f"({answer.left_out} more did not fit; narrow it by type or about.)")
        return answer

    async def _forget(self, arguments: ForgetArguments) -> AnswerLines:
        book = await self._lookup.facts()
        order, segments = ForgetOrder(at=self._lookup.now()), dict[SegmentId, Segment]()
        facts: list[Fact] = []
        for id_ in dict.fromkeys(arguments.ids):
            item = await self._find(id_)
            if isinstance(item, Fact):
                facts.append(item)
            elif item.segment.session.startswith(FILE_SESSIONS):
                raise RecollectError(
                    f"nothing was forgotten: {short_id(item)} is in a memory file; edit the file."
                )
            else:
                segments[item.segment.id] = item.segment
        if facts:
            order = await book.order_to_forget(
                [fact.id for fact in facts], sources=arguments.with_sources
            )
            for message in await self._lookup.messages(order.segments):
                segments.setdefault(message.segment.id, message.segment)
        request = ForgetRequest(facts=tuple(facts), messages=tuple(segments.values()))
        if self._confirm is None:
            raise RecollectError(
                "nothing was forgotten: only a person can allow that, and this client cannot ask "
                "one. The user can "
                + ("request\n" if is_tenant_space(self._lookup.space) else "run\n")
                + "\n".join(f"  {line}" for line in self._commands(request))
            )
        confirm: Any = self._confirm
        in_loop = inspect.iscoroutinefunction(confirm)
        answer = confirm(request) if in_loop else await asyncio.to_thread(confirm, request)
        if (await answer if inspect.isawaitable(answer) else answer) is not True:
            raise RecollectError("nothing was forgotten: the user did not confirm it.")
        result = await book.forget(replace(order, segments=tuple(segments)))
        counts = [f"{count} {kind}" for kind, count in sorted(result.counts.items()) if count]
        answer = self._new_answer()
        answer.head(f"Forgotten permanently: {', '.join(counts) or 'nothing was left of it'}.")
        if segments:
            answer.head("Not reached: the client's own history, transcripts and files.")
        return answer

    def _commands(self, request: ForgetRequest) -> list[str]:
        """Return the commands, or a tenant's API requests, that forget the requested content."""
        if is_tenant_space(self._lookup.space):
            path = f"/v1/spaces/{quote(self._lookup.space.partition('/')[2], safe='')}"
            ids = json.dumps({"segments": [message.id for message in request.messages]})
            return [
                *(f"DELETE {path}/facts/{quote(fact.id, safe='')}" for fact in request.facts),
                *((f"POST {path}/forget {ids}",) if request.messages else ()),
            ]
        space = f"--space {shlex.quote(self._lookup.space)}"
        return [
            *(f"recollect facts forget {fact.id} {space}" for fact in request.facts),
            *(
                f"recollect memory forget --segment {message.id} {space}"
                for message in request.messages
            ),
        ]

    def _heading(self, message: StoredSegment) -> str:
        return message_line(message, self._lookup.own_session)

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
        return self._memory.wait_for(self._tools.call(name, arguments))


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


def _is_output(message: StoredSegment) -> bool:
    return message.segment.tool is not None and message.segment.role != "assistant"


def _by_message(
    passages: Sequence[RecalledPassage], segments_by_id: Mapping[SegmentId, StoredSegment]
) -> list[tuple[StoredSegment, list[RecalledPassage]]]:
    passages_by_id: dict[SegmentId, list[RecalledPassage]] = {}
    for passage in passages:
        if passage.segment is not None and passage.segment in segments_by_id:
            passages_by_id.setdefault(passage.segment, []).append(passage)
    return [
        (segments_by_id[id_], sorted(segment_passages, key=lambda passage: passage.order))
        for id_, segment_passages in passages_by_id.items()
    ]


def _hit_lines(
    heading: str, message: StoredSegment, passages: Sequence[RecalledPassage]
) -> list[str]:
    is_whole = sum(len(passage.text) for passage in passages) >= len(message.segment.text.strip())
    part = "" if is_whole else ", in part"
    return [heading + part, *(indent_text(passage.text) for passage in passages)]


def _facts_about(facts: Sequence[Fact], words: str) -> tuple[list[Fact], bool]:
    wanted_words = frozenset(tokenize(words))
    words_by_fact = {
        fact.id: wanted_words & {*tokenize(f"{fact.told} {fact.subject}")} for fact in facts
    }
    newest = sorted(facts, key=lambda fact: (-fact.at, fact.id))
    full_matches = [fact for fact in newest if words_by_fact[fact.id] == wanted_words]
    if full_matches:
        return full_matches, False
    partial_matches = [fact for fact in newest if words_by_fact[fact.id]]
    return sorted(partial_matches, key=lambda fact: -len(words_by_fact[fact.id])), True
