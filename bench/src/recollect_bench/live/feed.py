"""Feeds a conversation through a strategy, turn by turn, and asks its questions on branches.

Owns what is measured: what stands in the request when it is asked for, blocks that nobody asked
for, what the conversation is billed under prompt caching, how long shaping takes, and for each
miss the stage that lost it. Must never look anything up behind the strategy's back: only what goes
out in a request counts. Always holds: questions are asked on branches; the conversation goes on
as if nobody had asked, and is billed without them.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from recollect.core.engine import Engine
from recollect.core.engine.session import Context
from recollect.core.search.question import needs_context
from recollect.core.search.tokenize import split_passages
from recollect.core.values.edit import Insert
from recollect.core.values.reason import Cause
from recollect.core.values.recall import BLOCK_OPENING, TOOL_OPENING
from recollect.hosts.tools.handler import memory_tools
from recollect_bench.live.sessions import LiveQuestion, LiveSession, Need, WireMessage, spoken, user

READ_PRICE: Final = 0.1
WRITE_PRICE: Final = 1.25
OUTPUT_PRICE: Final = 5.0
"""Of a token of input without a cache, as Anthropic bills them."""
CACHE_SECONDS: Final = 300.0
"""How long a provider keeps what it read: after a longer pause all is written again."""
REQUEST_SECONDS: Final = 4.0
"""Between two requests of one exchange."""
LOOKED_AT_FROM: Final = 40
"""From which exchange on ordinary turns are counted: before it little has left the view."""
CHARS_A_TOKEN: Final = 4


def count(text: str) -> int:
    """Tokens of a text, the same for every strategy."""
    return (len(text.encode()) + CHARS_A_TOKEN - 1) // CHARS_A_TOKEN


class LiveClock:
    """The time of the conversation."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        """When the request is made."""
        return self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request as it goes out."""

    messages: Sequence[WireMessage] = field(repr=False)
    lost_by: str = ""
    """The stage that kept memory out of it, for what is not there."""
    new_blocks: tuple[str, ...] = field(default=(), repr=False)
    """What memory put into this request, and into none before."""
    seconds: float = 0.0

    @property
    def new_block(self) -> bool:
        """Whether memory put anything into it."""
        return bool(self.new_blocks)


class Summarizing(Protocol):
    """A model that counts what it is asked and writes."""

    asked_chars: int
    written_chars: int


class Strategy(Protocol):
    """Whatever decides what of a conversation is sent."""

    clock: LiveClock

    @property
    def summary_cost(self) -> float:
        """What summaries were billed so far."""
        ...

    async def shape(self, history: Sequence[WireMessage]) -> Sent:
        """The request of this history."""
        ...

    async def ask(self, history: list[WireMessage]) -> Sent:
        """The request that answers this history's question; what a model does before it answers,
        as looking something up, is added to the history."""
        ...

    async def observe(self, reply: WireMessage) -> None:
        """What the model replied."""
        ...

    async def between(self) -> None:
        """The time that a model takes to answer."""
        ...

    async def back(self) -> None:
        """The branch just asked on is left."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question, and what of its needs stood in the request."""

    question: LiveQuestion
    found: tuple[bool, ...]
    strict: tuple[bool, ...]
    """The same in the strict reading, where a need has two."""
    lost_by: str
    block_tokens: int
    """Of all blocks in the request, those of earlier turns too."""
    request_tokens: int
    recalled_tokens: int = 0
    """Of the block that it got."""
    evidence_tokens: int = 0
    """Of those, the ones of messages that hold something it needs."""

    @property
    def answered(self) -> bool:
        """Whether all of it is there."""
        return all(self.found)

    @property
    def new_block(self) -> bool:
        """Whether it got a block."""
        return self.recalled_tokens > 0


@dataclass(slots=True)
class Tally:
    """What feeding one conversation gave."""

    asked: list[Asked] = field(default_factory=list, repr=False)
    ordinary: int = 0
    false_blocks: int = 0
    """Ordinary turns that got a new block."""
    requests: int = 0
    request_tokens: int = 0
    block_tokens: int = 0
    cost: float = 0.0
    """As if the provider's cache never expired."""
    expiring_cost: float = 0.0
    """With a cache that expires."""
    grown: int = 0
    """Requests whose predecessor is their beginning."""
    overflows: int | None = None
    """Requests that a provider refused for their size; None where there was no provider."""
    seconds: list[float] = field(default_factory=list, repr=False)


def holds(request: str, need: Need, *, strict: bool = False) -> bool:
    """Whether a request, folded, holds what is needed."""
    if need.any_of and not strict:
        return any(folded(text) in request for text in need.any_of)
    return all(folded(text) in request for text in need.texts)


def folded(text: str) -> str:
    """For comparing: without case, and with single spaces."""
    return " ".join(text.casefold().split())


async def feed(session: LiveSession, strategy: Strategy) -> Tally:
    """Feed all exchanges, and ask all questions on branches."""
    tally = Tally()
    meter = _Meter(session, tally)
    evidence = EvidenceMessages(session)
    history: list[WireMessage] = []
    waiting = list(session.questions)
    for turn, exchange in enumerate(session.exchanges):
        strategy.clock.at = exchange.at
        new_block = False
        for message in exchange.messages:
            if message["role"] == "assistant":
                sent = await strategy.shape(history)
                meter.sent(sent, strategy.clock.at)
                new_block |= sent.new_block
                await strategy.observe(message)
                strategy.clock.at += REQUEST_SECONDS
            history.append(message)
        await strategy.between()
        if exchange.ordinary and turn >= LOOKED_AT_FROM:
            tally.ordinary += 1
            tally.false_blocks += new_block
        while waiting and waiting[0][0] <= turn + 1:
            tally.asked.append(await _ask(strategy, history, waiting.pop(0)[1], evidence))
    for _, question in waiting:
        tally.asked.append(await _ask(strategy, history, question, evidence))
    tally.cost += strategy.summary_cost
    tally.expiring_cost += strategy.summary_cost
    return tally


async def _ask(
    strategy: Strategy,
    history: Sequence[WireMessage],
    question: LiveQuestion,
    evidence: EvidenceMessages,
) -> Asked:
    clock = strategy.clock
    now = clock.at
    clock.at = question.at if question.at is not None else now + REQUEST_SECONDS
    branch = list(history)
    for message in question.lead:
        if message["role"] == "assistant":
            await strategy.ask(branch)
            await strategy.observe(message)
            await strategy.between()
        branch.append(message)
    clock.at += question.waits
    branch.append(user(question.ask))
    sent = await strategy.ask(branch)
    text = folded(spoken(sent.messages))
    blocks = _blocks(sent.messages)
    asked = Asked(
        question=question,
        found=tuple(holds(text, need) for need in question.needs),
        strict=tuple(holds(text, need, strict=True) for need in question.needs),
        lost_by=sent.lost_by,
        block_tokens=sum(map(count, blocks)),
        request_tokens=count(text),
        recalled_tokens=sum(map(count, sent.new_blocks)),
        evidence_tokens=evidence.tokens_in(sent.new_blocks, question),
    )
    clock.at = now
    await strategy.back()
    return asked


class EvidenceMessages:
    """Knows how much of a block comes from messages that hold what a question needs."""

    def __init__(self, session: LiveSession) -> None:
        texts = [
            spoken([message]) for exchange in session.exchanges for message in exchange.messages
        ]
        self._texts = [(folded(text), text) for text in dict.fromkeys(texts)]

    def tokens_in(self, blocks: Sequence[str], question: LiveQuestion) -> int:
        """Tokens of these messages' passages that stand in the blocks."""
        needed = {folded(text) for need in question.needs for text in (need.any_of or need.texts)}
        if not blocks or not needed:
            return 0
        passages = {
            folded(passage.text): count(passage.text)
            for held, text in self._texts
            if any(need in held for need in needed)
            for passage in split_passages(text)
        }
        quoted = folded("\n".join(blocks))
        tokens = sum(size for passage, size in passages.items() if passage in quoted)
        return min(tokens, sum(map(count, blocks)))


def _blocks(messages: Sequence[WireMessage]) -> list[str]:
    texts = [spoken([message]) for message in messages if message["role"] in ("user", "tool")]
    return [text for text in texts if BLOCK_OPENING in text or TOOL_OPENING in text]


class _Meter:
    """Bills requests: the longest common run of messages with the one before is read."""

    def __init__(self, session: LiveSession, tally: Tally) -> None:
        self._tally = tally
        self._fixed = count(session.system) + count(json.dumps(session.tools))
        self._last: list[str] = []
        self._at = -math.inf

    def sent(self, sent: Sent, at: float) -> None:
        rows = [
            json.dumps(message, ensure_ascii=False, sort_keys=True) for message in sent.messages
        ]
        same = 0
        for before, now in zip(self._last, rows, strict=False):
            if before != now:
                break
            same += 1
        tally = self._tally
        read = self._fixed + sum(map(count, rows[:same])) if tally.requests else 0
        total = self._fixed + sum(map(count, rows))
        tally.cost += READ_PRICE * read + WRITE_PRICE * (total - read)
        if at - self._at > CACHE_SECONDS:
            read = 0
        tally.expiring_cost += READ_PRICE * read + WRITE_PRICE * (total - read)
        tally.grown += same == len(self._last)
        tally.requests += 1
        tally.request_tokens += total
        tally.block_tokens += sum(map(count, _blocks(sent.messages)))
        tally.seconds.append(sent.seconds)
        self._last, self._at = rows, at


class ThroughEngine:
    """The real engine with its store, as a client uses it."""

    def __init__(
        self, memory: Engine, session: LiveSession, clock: LiveClock, *, pause: bool
    ) -> None:
        self.clock = clock
        self._model: Summarizing | None = None
        self._memory = memory
        self._session = session
        self._pause = pause

    async def shape(self, history: Sequence[WireMessage]) -> Sent:
        """Through `prepare`."""
        request: dict[str, Any] = {"model": "bench", "messages": [*self._system(), *history]}
        if tools := self.tools():
            request["tools"] = tools
        begun = time.perf_counter()
        context = await self._memory.prepare(self._session.name, request, format="openai-chat")
        seconds = time.perf_counter() - begun
        return Sent(
            messages=[one for one in context.request["messages"] if one["role"] != "system"],
            lost_by=lost_by(context),
            new_blocks=tuple(
                edit.text
                for edit in context.report.new_edits
                if isinstance(edit, Insert) and edit.stage == "inject"
            ),
            seconds=seconds,
        )

    def tools(self) -> list[Mapping[str, Any]]:
        """The tools of the conversation."""
        return list(self._session.tools)

    async def ask(self, history: list[WireMessage]) -> Sent:
        """What is asked is answered at once."""
        return await self.shape(history)

    async def observe(self, reply: WireMessage) -> None:
        """Through `observe`, as the wire's reply."""
        await self._memory.observe(self._session.name, {"choices": [{"message": dict(reply)}]})

    async def between(self) -> None:
        """What runs beside the turns goes on while a model answers."""
        if self._pause:
            await self._memory.settle(60.0, jobs=True)

    async def back(self) -> None:
        """The engine finds out by itself: the next history is without the question."""

    def watch(self, model: Summarizing) -> None:
        """Bill what this model is asked and writes."""
        self._model = model

    @property
    def summary_cost(self) -> float:
        """What summaries were billed so far."""
        model = self._model
        if model is None:
            return 0.0
        return (model.asked_chars + OUTPUT_PRICE * model.written_chars) / CHARS_A_TOKEN

    def _system(self) -> list[WireMessage]:
        return [{"role": "system", "content": self._session.system}] if self._session.system else []


class ThroughTools(ThroughEngine):
    """The engine with memory tools, and a scripted model that searches before it answers.

    The model calls `memory_search` once for what it is asked on a branch, in the user's own words;
    where these cannot be understood alone (`needs_context`, instead of a model)
    the message before goes with them. It looks at no need, and takes what it is told.
    """

    def __init__(
        self, memory: Engine, session: LiveSession, clock: LiveClock, *, pause: bool
    ) -> None:
        super().__init__(memory, session, clock, pause=pause)
        self._tools = memory_tools(memory, session=session.name)
        self._calls = 0

    def tools(self) -> list[Mapping[str, Any]]:
        """The conversation's own, and the memory tools."""
        return [*super().tools(), *self._tools.definitions("openai-chat")]

    async def ask(self, history: list[WireMessage]) -> Sent:
        """The request in which the search's answer stands."""
        first = await self.shape(history)
        self._calls += 1
        id_ = f"call_memory_{self._calls}"
        arguments = json.dumps({"query": _search_query(history)}, ensure_ascii=False)
        function = {"name": "memory_search", "arguments": arguments}
        call: WireMessage = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": id_, "type": "function", "function": function}],
        }
        await self.observe(call)
        answer = await self._tools.call("memory_search", arguments)
        history += [call, {"role": "tool", "tool_call_id": id_, "content": answer.text}]
        sent = await self.shape(history)
        return replace(sent, new_blocks=first.new_blocks + sent.new_blocks, lost_by="search")


def _search_query(history: Sequence[WireMessage]) -> str:
    said = [spoken([message]) for message in history if message["role"] == "user"]
    if len(said) > 1 and needs_context(said[-1]):
        return f"{said[-2]}\n{said[-1]}"
    return said[-1]


_LOST_BY: Final[Mapping[Cause, str]] = {
    Cause.TOO_LITTLE_SAID: "gate: too little said",
    Cause.UNHEARD: "gate: unheard name",
    Cause.UNCERTAIN: "gate: uncertain",
    Cause.WORDS_APART: "gate: words apart",
    Cause.NOTHING_HELD: "search: nothing held",
    Cause.NO_WORDS: "search: no words",
    Cause.NOTHING_FITS: "room: nothing fits",
    Cause.HAS_BLOCK: "recall: has its block",
    Cause.ASKED_BEFORE: "recall: asked before",
    Cause.QUERY_TOO_SHORT: "recall: too short",
}


def lost_by(context: Context) -> str:
    """The stage that decides, where what is needed is not in the request."""
    lines = [line for line in context.report.lines if line.stage in ("recall", "inject")]
    causes = [reason.cause for line in lines for reason in line.reasons]
    if context.recalled is not None and context.recalled.gate is not None:
        causes.insert(0, context.recalled.gate.reason.cause)
        causes += [note.cause for note in context.recalled.notes]
    told = [_LOST_BY[cause] for cause in causes if cause in _LOST_BY]
    if told:
        return told[-1]
    failed = [line.stage for line in lines if line.outcome in ("failed", "late")]
    if failed:
        return f"{failed[0]}: failed"
    if context.recalled is None:
        return "recall: not asked"
    words = context.recalled.gate is not None and context.recalled.gate.lost_words
    return "rank: other lost terms" if words else "rank: not among what fits"


class SlidingWindow:
    """The newest messages that fit, and nothing else."""

    def __init__(self, limit_tokens: int) -> None:
        self.clock = LiveClock()
        self.billed = 0.0
        self._limit = limit_tokens
        self._first = 0

    @property
    def summary_cost(self) -> float:
        """What summaries were billed so far."""
        return self.billed

    async def shape(self, history: Sequence[WireMessage]) -> Sent:
        """Over the limit the older half goes, from a user message on."""
        first = min(self._first, max(0, len(history) - 1))
        if _size(history[first:]) > self._limit:
            while first < len(history) - 1 and (
                _size(history[first:]) > self._limit // 2 or history[first]["role"] != "user"
            ):
                first += 1
            self._first = first
        return Sent(messages=list(history[first:]), lost_by="left the window")

    async def ask(self, history: list[WireMessage]) -> Sent:
        """What is asked is answered at once."""
        return await self.shape(history)

    async def observe(self, reply: WireMessage) -> None:
        """Nothing is learned."""

    async def between(self) -> None:
        """Nothing runs beside."""

    async def back(self) -> None:
        """Nothing was changed that matters."""


class PlainCompaction(SlidingWindow):
    """Over the limit all but the newest part becomes a summary, as most agents do it."""

    def __init__(self, limit_tokens: int, summarize: Any) -> None:
        super().__init__(limit_tokens)
        self._summarize = summarize
        self._summary = ""

    async def shape(self, history: Sequence[WireMessage]) -> Sent:
        """The summary, then what is kept."""
        before = min(self._first, max(0, len(history) - 1))
        held = [user(self._summary)] if self._summary else []
        if _size([*held, *history[before:]]) > self._limit:
            sent = await super().shape(history)
            if self._first > before:
                gone = spoken(history[before : self._first])
                written = self._summarize(f"{self._summary}\n{gone}")
                self.billed += count(gone) + OUTPUT_PRICE * count(written)
                self._summary = written
        else:
            sent = Sent(messages=list(history[before:]))
        held = [user(self._summary)] if self._summary else []
        return Sent(messages=[*held, *sent.messages], lost_by="left the window")


def _size(messages: Sequence[WireMessage]) -> int:
    return sum(count(json.dumps(message, ensure_ascii=False)) for message in messages)
