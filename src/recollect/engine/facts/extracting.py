"""Reads sessions for facts, a bounded window a job, and holds what it finds against what is known.

Owns what a job reads, what it may spend, and the one write it ends with: facts, how far the session
was read, and the jobs that follow. Must never write anything else, nor read a session twice. What
always holds: a job that needs a model is charged to the day before it asks one; where other facts
came in between, nothing is written and it is done again; a model that fails for good leaves the
rules, and that is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from recollect.config import Settings
from recollect.engine.facts.digesting import stale_digests
from recollect.engine.facts.jobs import digest_job, extract_job, session_of
from recollect.engine.facts.reach import Reach, reach_of
from recollect.errors import ModelError, ModelRefused
from recollect.memory.extract import Extracted, extract
from recollect.memory.history import history_of
from recollect.memory.reading.prompt import fitting_tokens
from recollect.memory.reconcile import MODEL_AWAY, reconcile
from recollect.ports import Archive, Clock, Model
from recollect.rules.noise import is_noise
from recollect.search.tokenize import tokenize
from recollect.values.batch import Batch
from recollect.values.fact import ExtractedTo, Fact, FactDraft, FactId, fact_identity
from recollect.values.job import EMBED_JOB, Lease, NewJob
from recollect.values.lookup import FactQuery
from recollect.values.segment import Segment, StoredSegment

PAGE_SEGMENTS: Final = 200
"""How many segments one job reads at the most."""
OVERLAP_SEGMENTS: Final = 40
"""How many that were read before are at hand again: a model is shown the last of them, and whose
words a statement repeats is looked up in all of them."""
ANSWER_TOKENS: Final = 1_500
PROMPT_TOKENS: Final = 900
RECONCILE_TOKENS: Final = 4_000
"""What a call may cost beside what it reads: its answer, its instructions, and deciding what to do
with what it found. Charged before, so a day's budget is never exceeded."""
CANDIDATES: Final = 12
"""Facts that a new one is held against."""
LEAST_SPOKEN_CHARS: Final = 40
"""Fewer characters of speech in a window are not worth a call."""
_TOOL_CHARS_READ: Final = 1_200
"""Of a tool's output a model reads head and tail, so no more than this is charged."""

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The handlers of extraction for one space."""

    store: Archive
    settings: Settings
    clock: Clock
    model: Model | None = None
    embedders: tuple[str, ...] = ()
    max_attempts: int = 5
    told: Told = field(default=lambda _: None, repr=False)

    async def extract(self, lease: Lease) -> Batch:
        """Read the next window of the session that the job names."""
        session, left = session_of(lease)
        now = self.clock.now()
        if not self.settings.facts.enabled:
            return Batch(at=now)
        if not left and (due := await self._idle_at(session, now)) > now:
            return Batch(at=now, jobs=(extract_job(session, run_at=due, left=False),))
        # before anything is read: what is forgotten or masked from now on makes the answer stale
        revision = await self.store.facts_revision()
        after = await self.store.extracted_to(session)
        page = await self.store.page(after=after, limit=PAGE_SEGMENTS, session=session)
        if not page:
            return Batch(at=now)
        new = self._window(page)
        model, note = self._reader(new)
        needed = 0 if model is None else self._cost(new)
        if needed > lease.cost_tokens:  # charged when it is handed out, so it is handed out again
            again = extract_job(session, run_at=now, left=left, cost_tokens=needed)
            return Batch(at=now, jobs=(again,))
        before = await self._before(session, after)
        found, failed = await self._found(lease, new, before, model, now)
        reach = reach_of(session, (one.segment for one in new), self.settings.recall.scope)
        book = _Book(self, reach, now=now)
        for draft in found.drafts:
            await book.take(draft, model if book.may_ask else None)
        book.end_digests()
        more = len(new) < len(page) or len(page) == PAGE_SEGMENTS
        self._tell(new, book, found, note or failed)
        jobs = [extract_job(session, run_at=now, left=True)] if more else []
        if book.written:
            jobs += [NewJob(kind=EMBED_JOB, key=name, run_at=now) for name in self.embedders]
            jobs += self._digest_jobs(book, new, now)
        return Batch(
            at=now,
            facts=tuple(book.written.values()),
            extracted=(ExtractedTo(session=session, sequence=new[-1].sequence),),
            jobs=tuple(jobs),
            facts_revision=revision if book.written else None,
        )

    async def _idle_at(self, session: str, now: float) -> float:
        """When it counts as idle; at once where its times are of a clock that runs ahead."""
        newest = await self.store.page(limit=1, session=session, descending=True)
        if not newest or newest[0].segment.said_at > now:
            return 0.0
        return newest[0].segment.said_at + self.settings.facts.idle_seconds

    def _window(self, page: Sequence[StoredSegment]) -> Sequence[StoredSegment]:
        """As many as a call may read, at least one; all of the page where no model is asked."""
        if self.model is None:
            return page
        room = self._window_tokens()
        for at, one in enumerate(page):
            room -= _read_tokens(one.segment)
            if room < 0:
                return page[: max(at, 1)]
        return page

    def _reader(self, new: Sequence[StoredSegment]) -> tuple[Model | None, str]:
        """Who reads it beside the rules, and why nobody does: else it would wait for ever."""
        if self.model is None or not _worth_asking(new):
            return None, ""
        day_tokens = self.settings.jobs.day_tokens
        if day_tokens is not None and self._cost(new) > day_tokens:
            return None, "one call costs more than jobs.day_tokens allows"
        return self.model, ""

    def _window_tokens(self) -> int:
        window = None if self.model is None else self.model.window_tokens
        return fitting_tokens(self.settings.facts.window_tokens, window, ANSWER_TOKENS)

    def _cost(self, new: Sequence[StoredSegment]) -> int:
        read = sum(_read_tokens(one.segment) for one in new)
        calls = 1 + read // max(self._window_tokens(), 1)
        return read + calls * (PROMPT_TOKENS + ANSWER_TOKENS) + RECONCILE_TOKENS

    async def _before(self, session: str, after: int) -> tuple[Segment, ...]:
        """What was read last, to be understood by; nothing before the first."""
        if not after:
            return ()
        last = await self.store.page(
            after=after + 1, limit=OVERLAP_SEGMENTS, session=session, descending=True
        )
        return tuple(one.segment for one in reversed(last))

    async def _found(
        self,
        lease: Lease,
        new: Sequence[StoredSegment],
        before: Sequence[Segment],
        model: Model | None,
        now: float,
    ) -> tuple[Extracted, str]:
        """What the window holds; without the model where it never answers, and why."""
        segments = [one.segment for one in new]

        async def by(asked: Model | None) -> Extracted:
            return await extract(
                segments,
                before,
                model=asked,
                max_output_tokens=ANSWER_TOKENS,
                now=now,
                window_tokens=self.settings.facts.window_tokens,
            )

        try:
            return await by(model), ""
        except ModelError as error:
            final = isinstance(error, ModelRefused) or lease.attempt >= self.max_attempts
            if not final:
                raise
            note = f"the model did not answer ({type(error).__name__}), so by rules alone"
        return await by(None), note

    def _digest_jobs(self, book: _Book, new: Sequence[StoredSegment], now: float) -> list[NewJob]:
        if self.model is None or not self.settings.facts.digests:
            return []
        facts = book.written.values()
        subjects = {one.subject for one in facts if one.subject and one.type != "digest"}
        about = [one.segment.message_id for one in new]
        about += [fact_identity(id_) for id_ in book.written]
        return [
            digest_job(subject, book.reach, run_at=now, about=about) for subject in sorted(subjects)
        ]

    def _tell(self, new: Sequence[StoredSegment], book: _Book, found: Extracted, note: str) -> None:
        said = f"{book.told()} from {len(new)} messages"
        how = "by rules and a model" if found.asked else "by rules alone"
        trouble = found.reason.partition("; ")[2]  # what went wrong stands behind the counts
        self.told("; ".join(part for part in (f"{said}, {how}", note, trouble) if part))


class _Book:
    """What is known while one job's drafts are held against it, its own included."""

    def __init__(self, extraction: Extraction, reach: Reach, *, now: float) -> None:
        self._store = extraction.store
        self.reach = reach
        self._now = now
        self.written: dict[FactId, Fact] = {}
        self.operations: list[str] = []
        self._spent_tokens = 0
        self._away = False
        self._read: dict[FactId, Fact] | None = None

    @property
    def may_ask(self) -> bool:
        """Whether a model may still decide: within what was charged, and while it answers."""
        return not self._away and self._spent_tokens < RECONCILE_TOKENS

    async def take(self, draft: FactDraft, model: Model | None) -> None:
        """Decide about a draft and keep what it changes."""
        if not self.reach.everything:
            draft = replace(draft, session=self.reach.session)
        every = await self._versions()
        done = await reconcile(
            draft,
            await self._candidates(draft),
            model=model,
            now=self._now,
            history=history_of(draft, every),
        )
        self.operations.append(done.operation)
        self._spent_tokens += done.spent_tokens
        self._away = self._away or done.reason.startswith(MODEL_AWAY)
        self.written.update((fact.id, fact) for fact in done.written)

    async def _candidates(self, draft: FactDraft) -> tuple[Fact, ...]:
        """Current facts that share words with it, as they stand after what this job decided."""
        words = tuple(dict.fromkeys(tokenize(f"{draft.content} {draft.subject}")))
        query = FactQuery(words=words, limit=CANDIDATES, session=self.reach.asked)
        found = await self._store.fact_candidates(query)
        known = {one.fact.id: one.fact for one in found.facts if self.reach.holds(one.fact)}
        held = set(words)
        known.update(
            (id_, fact)
            for id_, fact in self.written.items()
            if id_ in known or held.intersection(fact.words)
        )
        return tuple(fact for fact in known.values() if fact.current and fact.type != "digest")

    async def _versions(self) -> tuple[Fact, ...]:
        """Every version of every fact in reach: words alone do not find the same thing said in
        another language, nor where in the past a late statement belongs. Read once a job."""
        if self._read is None:
            facts = await self._store.facts(superseded=True)
            self._read = {one.id: one for one in facts if self.reach.holds(one)}
        return tuple({**self._read, **self.written}.values())

    def end_digests(self) -> None:
        """Digests that tell what was closed just now end with it."""
        known = {**(self._read or {}), **self.written}
        stale = stale_digests(self.written.values(), known.values(), now=self._now)
        self.written.update((one.id, one) for one in stale)

    def told(self) -> str:
        """What was done, in numbers."""
        counts = {name: self.operations.count(name) for name in dict.fromkeys(self.operations)}
        if not counts:
            return "no facts"
        return ", ".join(f"{count} {_DONE[name]}" for name, count in counts.items())


_DONE: Final = {
    "add": "facts added",
    "update": "facts told in more detail",
    "supersede": "facts replaced",
    "none": "known already",
    "refused": "refused",
}


def _worth_asking(new: Sequence[StoredSegment]) -> bool:
    """Whether anybody says anything in it that a model should read."""
    spoken = (
        one.segment.text
        for one in new
        if one.segment.noise is None and one.segment.role in ("user", "assistant")
    )
    return sum(len(text) for text in spoken if is_noise(text).reason is None) >= LEAST_SPOKEN_CHARS


def _read_tokens(segment: Segment) -> int:
    if segment.noise is not None:
        return 0
    if segment.role == "tool" or segment.tool is not None:
        return min(segment.tokens, _TOOL_CHARS_READ // 2)
    return segment.tokens
