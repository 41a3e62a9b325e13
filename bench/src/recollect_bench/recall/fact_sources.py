"""Reads a stored memory for facts as the background of the engine does, to the end.

Owns the jobs that are enqueued and the clock they run by; the engine's handlers extract and
digest. A job that failed is tried as often as a worker tries it; what stays undone is counted.

A slow model reads only the part that hard questions rest on and what is near; the memory stays
whole, so that passages compete as ever, and all gold of a question that is asked was read. Its
answers are kept in a file, found by a hash of the prompt, so that a run that was interrupted goes
on and none is paid for twice; a prompt is never kept. No model is asked that was not named.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

from recollect.config import Settings, build
from recollect.engine.background import runner_of
from recollect.errors import RecollectError
from recollect.ports import Embedder, Model, Store
from recollect.upkeep.jobs import RunResult
from recollect.values.batch import Batch, extract_job
from recollect.values.fact import Fact, FactId
from recollect.values.model import Answer, Prompt, Usage
from recollect.values.segment import SegmentId, StoredSegment
from recollect_bench.facts.models import TimedModel, opened_model
from recollect_bench.recall.memory import StoredMemory
from recollect_bench.recall.sets import Memory, QuestionSet

# The part of a memory that a slow model reads


ASKED_FOR: Final = frozenset(
    {"multi-hop", "event-ordering", "summarization", "multi-session-reasoning"}
)
"""What facts and digests should help with: what many messages say together."""
NOTE: Final = (
    "only a part was read for facts, by rules and by the model: the messages that questions on",
    "  several messages rest on, and the users' messages next to those; the memory is whole, but",
    "  facts of its other messages do not compete, which flatters facts",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A set of which only so much is read for facts."""

    whole: QuestionSet
    read: Mapping[str, frozenset[int]] = field(default_factory=dict, repr=False)
    """The places that are read, by the memory's name."""


def part_to_read(whole: QuestionSet, *, most_messages: int, most_memories: int | None) -> Part:
    """Of the memories that need no more messages than this, the first so many."""
    read: dict[str, frozenset[int]] = {}
    memories: list[Memory] = []
    for memory in whole.memories:
        places = _asked_places(memory)
        if places and len(places) <= most_messages and len(memories) != most_memories:
            asked = tuple(
                question for question in memory.questions if places.issuperset(question.gold)
            )
            memories.append(replace(memory, questions=asked))
            read[memory.name] = places
    if not memories:
        least = min((len(held) for held in map(_asked_places, whole.memories) if held), default=0)
        raise RecollectError(
            f"no memory of {whole.name} needs so few messages: --most-messages {least} reads one"
        )
    shortened = replace(whole, memories=tuple(memories), notes=(*whole.notes, *NOTE))
    return Part(whole=shortened, read=read)


def _asked_places(memory: Memory) -> frozenset[int]:
    gold = {
        place
        for question in memory.questions
        if question.category in ASKED_FOR
        for place in question.gold
    }
    return frozenset(gold | {near for place in gold for near in _neighbours(memory, place)})


def _neighbours(memory: Memory, place: int) -> list[int]:
    """The nearest messages of users before and behind it."""
    before = range(place - 1, -1, -1)
    behind = range(place + 1, len(memory.messages))
    found = [
        next((at for at in side if memory.messages[at].role == "user"), None)
        for side in (before, behind)
    ]
    return [at for at in found if at is not None]


# Answers of a model, kept in a file


class KeptAnswers:
    """A model whose answers are kept in a file."""

    def __init__(self, model: Model, file: Path) -> None:
        self._model = model
        self._file = file
        self._known: dict[str, dict[str, Any]] = {}
        self.from_file = 0
        if file.is_file():
            for line in file.read_text(encoding="utf-8").splitlines():
                kept = _read_answer(line)
                if kept is not None:
                    self._known[kept["asked"]] = kept

    @property
    def name(self) -> str:
        """The model's own."""
        return self._model.name

    @property
    def window_tokens(self) -> int | None:
        """The model's own."""
        return self._model.window_tokens

    async def ask(self, prompt: Prompt) -> Answer:
        """The kept answer, or a new one that is kept from now on."""
        asked = self._asked(prompt)
        kept = self._known.get(asked)
        if kept is not None:
            self.from_file += 1
            usage = Usage(input_tokens=kept["input"], output_tokens=kept["output"])
            return Answer(text=kept["text"], stop=kept["stop"], usage=usage)
        answer = await self._model.ask(prompt)
        usage = answer.usage or Usage(input_tokens=0, output_tokens=0)
        kept = {
            "asked": asked,
            "text": answer.text,
            "stop": answer.stop,
            "input": usage.input_tokens,
            "output": usage.output_tokens,
        }
        self._known[asked] = kept
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as opened:
            opened.write(json.dumps(kept, ensure_ascii=False) + "\n")
        return answer

    async def close(self) -> None:
        """Give back the model's connections."""
        await self._model.close()

    def _asked(self, prompt: Prompt) -> str:
        schema = None if prompt.schema is None else dict(prompt.schema)
        parts = [self.name, prompt.system, prompt.text, prompt.max_output_tokens, schema]
        named = json.dumps(parts, ensure_ascii=False, sort_keys=True, default=dict)
        return blake2b(named.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _read_answer(line: str) -> dict[str, Any] | None:
    """A kept answer; None for a line that was cut off when a run ended."""
    try:
        kept = json.loads(line)
    except ValueError:
        return None
    fields = {"asked", "text", "stop", "input", "output"}
    return kept if isinstance(kept, dict) and fields <= kept.keys() else None


# The model that reads memories


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingModel:
    """A model and what is counted of it."""

    model: Model
    timed: TimedModel

    def figures(self) -> dict[str, float]:
        """What it was asked in this run."""
        return {
            "model_calls": self.timed.calls,
            "model_seconds": round(self.timed.seconds, 1),
            "input_tokens": self.timed.input_tokens,
            "output_tokens": self.timed.output_tokens,
        }


@asynccontextmanager
async def reading_model(
    named: str | None, gguf: Path | None, *, keep: Path | None
) -> AsyncIterator[ReadingModel | None]:
    """The model at a URL or of a file of weights; None where neither was named."""
    if named is None and gguf is None:
        yield None
        return
    async with opened_model(named, gguf) as timed:
        kept = timed if keep is None else KeptAnswers(timed, keep / "answers.jsonl")
        yield ReadingModel(model=kept, timed=timed)


FactsBy: TypeAlias = Literal["none", "rules", "model"]
"""Who reads a memory for facts: nobody, rules alone, or rules and a model."""
_SETTINGS: Final = {"jobs.day_tokens": None, "recall.scope": "space"}
"""A bench has no day, and every set is one memory of many sessions."""
_PAGE: Final = 500

Told: TypeAlias = Callable[[int], None]
"""So many jobs are done."""


@dataclass(slots=True)
class _MovingClock:
    """Stands, until a job waits for a later time."""

    at: float

    def now(self) -> float:
        """The time it was set to."""
        return self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFacts:
    """What a memory holds after it was read."""

    facts: dict[FactId, Fact] = field(default_factory=dict, repr=False)
    """The current ones, digests among them."""
    superseded: int = 0
    messages_read: int = 0
    """Of those that were to be read, the ones that extraction came past."""
    dead_jobs: int = 0
    """Given up: what they would have read is missing."""
    seconds: float = 0.0

    @property
    def digests(self) -> int:
        """How many of the facts are digests."""
        return sum(fact.type == "digest" for fact in self.facts.values())


class _PartOfStore:
    """A store in which extraction finds only some messages of a session; the rest is as it is."""

    def __init__(self, store: Store, only: frozenset[SegmentId]) -> None:
        self._store = store
        self._only = only

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def page(
        self, *, after: int = 0, limit: int = _PAGE, **how: Any
    ) -> tuple[StoredSegment, ...]:
        """So many of those that are to be read, however far apart; fewer at the end only."""
        wanted: list[StoredSegment] = []
        while len(wanted) < limit:
            segments = await self._store.page(after=after, limit=_PAGE, **how)
            if not segments:
                break
            wanted += [segment for segment in segments if segment.segment.id in self._only]
            after = segments[-1].sequence
        return tuple(wanted[:limit])


async def read_for_facts(
    stored: StoredMemory,
    *,
    places: Collection[int] | None = None,
    embedders: Sequence[Embedder] = (),
    model: Model | None = None,
    settings: Settings | None = None,
    told: Told = lambda _: None,
) -> ReadFacts:
    """Read every session of a memory, or these messages, and give its facts their vectors."""
    store = stored.store
    clock = _MovingClock(stored.memory.ends_at)
    messages = stored.messages if places is None else [stored.messages[at] for at in sorted(places)]
    sessions = dict.fromkeys(message.session for message in messages)
    jobs = tuple(extract_job(session, run_at=clock.at, left=True) for session in sessions)
    started = time.perf_counter()
    await store.write(Batch(at=clock.at, jobs=jobs))
    if places is not None:
        store = cast(Store, _PartOfStore(store, frozenset(message.segment for message in messages)))
    runner = runner_of(store, settings or build(_SETTINGS), clock, embedders, model=model)
    done = 0

    def count(result: RunResult) -> None:
        nonlocal done
        done += result.done
        told(done)

    while True:
        taken = (await runner.run_due(told=count)).taken
        due_at = (await store.queue()).due_at
        if due_at is None or (not taken and due_at <= clock.at):
            break
        clock.at = max(clock.at, due_at)
    read_to = {session: await store.extracted_to(session) for session in sessions}
    every = await store.facts(superseded=True)
    current = {fact.id: fact for fact in await store.facts()}
    return ReadFacts(
        facts=current,
        superseded=len(every) - len(current),
        messages_read=sum(message.sequence <= read_to[message.session] for message in messages),
        dead_jobs=(await store.queue()).dead,
        seconds=time.perf_counter() - started,
    )
