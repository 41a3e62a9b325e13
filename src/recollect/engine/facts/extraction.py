"""Reads sessions for facts, holds what it finds against what is known, and keeps digests.

Owns what a job reads, what it may spend, and the one write it ends with: facts, how far the session
was read, and the jobs that follow. Must never write anything else, nor read a session twice. What
always holds: a job that needs a model is charged to the day before it asks one; where other facts
came in between, nothing is written and it is done again; a model that fails for good leaves the
rules, and that is told; there is one current digest a subject, which goes with any message that it
rests on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from recollect.config import Settings
from recollect.engine.facts.jobs import (
    DIGEST_TOKENS,
    FactScope,
    digest_job,
    reach_of,
    session_of,
    subject_of,
)
from recollect.errors import ModelError, ModelRefused
from recollect.facts.digest import digest
from recollect.facts.extract import MOST_CALLS, Extracted, extract
from recollect.facts.history import Versions
from recollect.facts.questions import Opinion, ReconcileQuestion
from recollect.facts.reconcile import ask, open_question, settle
from recollect.facts.windows import LINE_TOKENS, call_tokens, fitting_tokens, line_count
from recollect.ports import Archive, Clock, Model
from recollect.rules.noise import is_noise
from recollect.search.tokenize import tokenize
from recollect.values.batch import EMBED_JOB, Batch, Lease, NewJob, extract_job
from recollect.values.fact import ExtractedTo, Fact, FactDraft, FactId, fact_identity
from recollect.values.recall import FactQuery
from recollect.values.segment import Segment, StoredSegment

LEAST_FACTS: Final = 4
"""So many facts of one subject make a digest worth reading; fewer are read themselves."""
MOST_FACTS: Final = 40
GROWTH: Final = 2
"""A digest is written anew when it would rest on so many times the messages: one more fact of a
subject is read beside its digest, and a call for each would cost more than it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Digesting:
    """The handler of digests for one space."""

    store: Archive
    settings: Settings
    clock: Clock
    model: Model | None
    embedders: tuple[str, ...] = ()

    async def digest(self, lease: Lease) -> Batch:
        """Write the digest that the job names, where there is enough to say."""
        subject, reach = subject_of(lease)
        now = self.clock.now()
        if self.model is None or not (self.settings.facts.enabled and self.settings.facts.digests):
            return Batch(at=now)
        revision = await self.store.facts_revision()
        about, before = await self._found(subject, reach)
        if any(fact.made_by == "user" or fact.pinned for fact in before):
            return Batch(at=now)  # a person's own stands
        if len(about) < LEAST_FACTS:
            return _ending(before, revision, now=now)
        sources = dict.fromkeys(source for fact in about for source in fact.sources)
        if any(len(sources) < GROWTH * len(other.sources) for other in before):
            return Batch(at=now)
        segments = [segment.segment for segment in await self.store.segments(list(sources))]
        if lease.cost_tokens < DIGEST_TOKENS:  # charged when it is handed out, so once more
            said_by = [segment.message_id for segment in segments]
            again = digest_job(subject, reach, run_at=now, about=said_by, cost_tokens=DIGEST_TOKENS)
            return Batch(at=now, jobs=(again,))
        made = (await digest(subject, about, segments, model=self.model, now=now)).fact
        if made is None:
            return _ending(before, revision, now=now)
        if any(fact.content == made.content and fact.sources == made.sources for fact in before):
            return Batch(at=now)
        made = replace(made, session=None if reach.everything else reach.session)
        closed = [replace(fact, superseded_by=made.id, valid_to=made.at) for fact in before]
        return Batch(
            at=now,
            facts=(made, *(fact for fact in closed if fact.id != made.id)),
            facts_revision=revision,
            jobs=tuple(NewJob(kind=EMBED_JOB, key=name, run_at=now) for name in self.embedders),
        )

    async def _found(self, subject: str, reach: FactScope) -> tuple[list[Fact], list[Fact]]:
        """The facts of the subject, oldest first, and its digests."""
        words = tuple(dict.fromkeys(tokenize(subject)))
        query = FactQuery(words=words, limit=MOST_FACTS, session=reach.asked)
        candidates = (await self.store.fact_candidates(query)).facts
        facts = [candidate.fact for candidate in candidates if reach.holds(candidate.fact)]
        about = [fact for fact in facts if fact.type != "digest" and _is_about(fact, words)]
        about.sort(key=lambda fact: (fact.at, fact.id))
        return about, [
            other for other in facts if other.type == "digest" and other.subject == subject
        ]


def stale_digests(closed: Iterable[Fact], known: Iterable[Fact], *, now: float) -> tuple[Fact, ...]:
    """The digests that tell what no longer holds, ended: whoever closes a fact writes them too.

    A person's own and pinned ones stand.
    """
    ended = [fact for fact in closed if not fact.current and fact.type != "digest"]
    sources = {source for fact in ended for source in fact.sources}
    subjects = {fact.subject for fact in ended if fact.subject}
    return tuple(
        replace(fact, valid_to=now)
        for fact in known
        if fact.type == "digest"
        and fact.current
        and fact.made_by == "model"
        and not fact.pinned
        and (fact.subject in subjects or sources.intersection(fact.sources))
    )


def _ending(before: Sequence[Fact], revision: int, *, now: float) -> Batch:
    """There is not enough to say any more: what was said of it no longer stands."""
    if not before:
        return Batch(at=now)
    ended = tuple(replace(fact, valid_to=now) for fact in before)
    return Batch(at=now, facts=ended, facts_revision=revision)


def _is_about(fact: Fact, words: Sequence[str]) -> bool:
    """Whether it speaks of the subject: every word of it stands in the fact or in its subject."""
    return set(words) <= {*fact.words, *tokenize(fact.subject)}


RECONCILE_TOKENS: Final = 6_000
"""What the one question of a job may cost: `MOST_QUESTION_TOKENS`, the task and the answer, with a
margin between our count and a model's."""
CANDIDATES: Final = 12
"""Facts that a new one is held against."""


class Decisions:
    """What is known while one job's drafts are held against it, its own included."""

    def __init__(self, store: Archive, reach: FactScope, *, now: float) -> None:
        self._store = store
        self.reach = reach
        self._now = now
        self.written: dict[FactId, Fact] = {}
        self.operations: list[str] = []
        self.unmatched = 0
        """Corrections of which nobody could say what they correct: what they mean still stands."""
        self._read: dict[FactId, Fact] = {}
        self._known: Versions | None = None

    async def take(self, drafts: Sequence[FactDraft], model: Model | None) -> None:
        """Decide about drafts in their order, and keep what they change.

        A model is asked once, about all of which the rules are not certain by what was known
        before; how drafts of one job follow each other is left to the rules.
        """
        if not self.reach.everything:
            drafts = [replace(draft, session=self.reach.session) for draft in drafts]
        opinions = {} if model is None else await self._opinions(drafts, model)
        versions = await self._versions()
        for at, draft in enumerate(drafts):
            done = settle(
                draft,
                await self._candidates(draft),
                now=self._now,
                history=versions.of(draft),
                opinion=opinions.get(at),
            )
            self.operations.append(done.operation)
            self.unmatched += done.operation == "add" and (draft.corrects or bool(draft.replaces))
            self.written.update((fact.id, fact) for fact in done.written)
            versions.add(done.written)

    async def _opinions(self, drafts: Sequence[FactDraft], model: Model) -> dict[int, Opinion]:
        versions = await self._versions()
        questions: dict[int, ReconcileQuestion] = {}
        for at, draft in enumerate(drafts):
            question = open_question(draft, await self._candidates(draft), versions.of(draft))
            if question is not None:
                questions[at] = question
        if not questions:
            return {}
        asked = await ask(list(questions.values()), model)
        return dict(zip(questions, asked.given, strict=True))

    async def _candidates(self, draft: FactDraft) -> tuple[Fact, ...]:
        """Current facts that share words with it, as they stand after what this job decided."""
        words = tuple(dict.fromkeys(tokenize(f"{draft.content} {draft.subject}")))
        query = FactQuery(words=words, limit=CANDIDATES, session=self.reach.asked)
        candidates = await self._store.fact_candidates(query)
        known = {
            candidate.fact.id: candidate.fact
            for candidate in candidates.facts
            if self.reach.holds(candidate.fact)
        }
        held = set(words)
        known.update(
            (id_, fact)
            for id_, fact in self.written.items()
            if id_ in known or held.intersection(fact.words)
        )
        return tuple(fact for fact in known.values() if fact.current and fact.type != "digest")

    async def _versions(self) -> Versions:
        """Every version of every fact in reach: words alone do not find the same thing said in
        another language, nor where in the past a late statement belongs. Read once a job."""
        if self._known is None:
            facts = await self._store.facts(superseded=True)
            self._read = {fact.id: fact for fact in facts if self.reach.holds(fact)}
            self._known = await asyncio.to_thread(Versions, tuple(self._read.values()))
        return self._known

    def end_digests(self) -> None:
        """Digests that tell what was closed just now end with it."""
        known = {**self._read, **self.written}
        stale = stale_digests(self.written.values(), known.values(), now=self._now)
        self.written.update((fact.id, fact) for fact in stale)

    def done(self) -> str:
        """What was done, in numbers."""
        counts = {name: self.operations.count(name) for name in dict.fromkeys(self.operations)}
        if not counts:
            return "no facts"
        done = ", ".join(f"{count} {_DONE[name]}" for name, count in counts.items())
        if not self.unmatched:
            return done
        what = "correction stands" if self.unmatched == 1 else "corrections stand"
        return f"{done} ({self.unmatched} {what} beside what may be meant by it)"


_DONE: Final = {
    "add": "facts added",
    "update": "facts told in more detail",
    "supersede": "facts replaced",
    "none": "known already",
    "refused": "refused",
}
_FOUND: Final = frozenset({"add", "update", "supersede"})
PAGE_SEGMENTS: Final = 200
"""How many segments one job reads at the most."""
OVERLAP_SEGMENTS: Final = 12
"""How many that were read before are at hand again, to be understood by."""
LINEAGE_SEGMENTS: Final = 400
"""How far back it is looked up whose words a statement repeats."""
ANSWER_TOKENS: Final = 3_000
"""Of a call, a quarter of the window where that is less; charged before, as deciding about what it
found is, so a day's budget holds."""
LEAST_ANSWER_TOKENS: Final = 1_000
LEAST_WINDOW_SHARE: Final = 0.5
"""Less than this share of a window is no call of its own while a session goes on: it waits for more
to leave the view, or until the session is idle."""
LEAST_SPOKEN_CHARS: Final = 40
"""Fewer characters of speech in a window are not worth a call."""
_TOOL_CHARS_READ: Final = 1_200
"""Of a tool's output a model reads head and tail, so no more than this is charged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingNote:
    """What one reading of messages for facts came to."""

    facts: int
    """Facts that were added, replaced or told in more detail."""
    messages: int
    trouble: str
    """Why a model was not asked, or did not answer."""
    done: str
    """What was done, in numbers."""

    def __str__(self) -> str:
        """One line for people."""
        return "; ".join(filter(None, [self.done, self.trouble]))


Notify = Callable[[ReadingNote], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The handlers of extraction for one space."""

    store: Archive
    settings: Settings
    clock: Clock
    model: Model | None = None
    embedders: tuple[str, ...] = ()
    max_attempts: int = 5
    at_once: bool = False
    """Read whatever is unread, however little: somebody asked for it."""
    told: Notify = field(default=lambda _: None, repr=False)

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
        if left and not self.at_once and self._too_little(page):
            due = await self._idle_at(session, now)
            return Batch(at=now, jobs=(extract_job(session, run_at=max(due, now), left=False),))
        model, note = self._reader(new)
        needed = 0 if model is None else self._cost(new)
        if needed > lease.cost_tokens:  # charged when it is handed out, so it is handed out again
            again = extract_job(session, run_at=now, left=left, cost_tokens=needed)
            return Batch(at=now, jobs=(again,))
        earlier, unseen = await self._earlier(session, after)
        extraction, failed = await self._found(lease, new, earlier, model, now, unseen_low=unseen)
        reach = reach_of(session, (segment.segment for segment in new), self.settings.recall.scope)
        book = Decisions(self.store, reach, now=now)
        await book.take(extraction.drafts, None if failed else model)
        book.end_digests()
        more = len(new) < len(page) or len(page) == PAGE_SEGMENTS
        self._notify(new, book, extraction, note or failed)
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
        for at, segment in enumerate(page):
            room -= _read_tokens(segment.segment)
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

    def _too_little(self, page: Sequence[StoredSegment]) -> bool:
        """Whether a model would be asked about less than is worth a call."""
        if self.model is None or len(page) == PAGE_SEGMENTS:
            return False
        unread = sum(_read_tokens(segment.segment) for segment in page)
        return unread < LEAST_WINDOW_SHARE * self._window_tokens()

    def _answer_tokens(self) -> int:
        window = None if self.model is None else self.model.window_tokens
        if window is None:
            return ANSWER_TOKENS
        return min(ANSWER_TOKENS, max(LEAST_ANSWER_TOKENS, window // 4))

    def _window_tokens(self) -> int:
        window = None if self.model is None else self.model.window_tokens
        return fitting_tokens(self.settings.facts.window_tokens, window, self._answer_tokens())

    def _cost(self, new: Sequence[StoredSegment]) -> int:
        read, window = sum(_read_tokens(segment.segment) for segment in new), self._window_tokens()
        calls = min(MOST_CALLS, 1 + read // window)
        return calls * call_tokens(min(read, window), self._answer_tokens()) + RECONCILE_TOKENS

    async def _earlier(self, session: str, after: int) -> tuple[tuple[Segment, ...], bool]:
        """What was read before, oldest first, and whether tools may have spoken before that."""
        if not after:
            return (), False
        last = await self.store.page(
            after=after + 1, limit=LINEAGE_SEGMENTS, session=session, descending=True
        )
        return tuple(segment.segment for segment in reversed(last)), len(last) == LINEAGE_SEGMENTS

    async def _found(
        self,
        lease: Lease,
        new: Sequence[StoredSegment],
        earlier: Sequence[Segment],
        model: Model | None,
        now: float,
        *,
        unseen_low: bool,
    ) -> tuple[Extracted, str]:
        """What the window holds; without the model where it never answers, and why."""
        segments = [segment.segment for segment in new]

        async def by(asked: Model | None) -> Extracted:
            return await extract(
                segments,
                earlier[-OVERLAP_SEGMENTS:],
                model=asked,
                max_output_tokens=self._answer_tokens(),
                now=now,
                window_tokens=self.settings.facts.window_tokens,
                earlier_low=earlier[:-OVERLAP_SEGMENTS],
                unseen_low=unseen_low,
            )

        try:
            return await by(model), ""
        except ModelError as error:
            final = isinstance(error, ModelRefused) or lease.attempt >= self.max_attempts
            if not final:
                raise
            why = str(error) or type(error).__name__
            note = f"the model did not answer ({why}), so by rules alone"
        return await by(None), note

    def _digest_jobs(
        self, book: Decisions, new: Sequence[StoredSegment], now: float
    ) -> list[NewJob]:
        if self.model is None or not self.settings.facts.digests:
            return []
        facts = book.written.values()
        subjects = {fact.subject for fact in facts if fact.subject and fact.type != "digest"}
        about = [segment.segment.message_id for segment in new]
        about += [fact_identity(id_) for id_ in book.written]
        return [
            digest_job(subject, book.reach, run_at=now, about=about) for subject in sorted(subjects)
        ]

    def _notify(
        self, new: Sequence[StoredSegment], book: Decisions, extraction: Extracted, note: str
    ) -> None:
        how = "by rules and a model" if extraction.asked else "by rules alone"
        self.told(
            ReadingNote(
                facts=sum(name in _FOUND for name in book.operations),
                messages=len(new),
                trouble="; ".join(filter(None, [note, extraction.trouble])),
                done=f"{book.done()} from {len(new)} messages, {how}",
            )
        )


def _worth_asking(new: Sequence[StoredSegment]) -> bool:
    """Whether anybody says anything in it that a model should read."""
    spoken = (
        segment.segment.text
        for segment in new
        if segment.segment.noise is None and segment.segment.role in ("user", "assistant")
    )
    return sum(len(text) for text in spoken if is_noise(text).reason is None) >= LEAST_SPOKEN_CHARS


def _read_tokens(segment: Segment) -> int:
    """What it takes of a window, so that what is charged as one call is not cut into two."""
    if segment.noise is not None:
        return 0
    if segment.role == "tool" or segment.tool is not None:
        return min(segment.tokens, _TOOL_CHARS_READ // 2)
    return segment.tokens + LINE_TOKENS * line_count(segment, segment.text)
