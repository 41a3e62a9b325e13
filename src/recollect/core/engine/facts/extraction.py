"""Reads sessions for facts with a model, and holds what it finds against what is known.

Owns what a job reads, what it may spend, whose facts it may touch, and the one write it ends with:
facts, how far the session was read, and the jobs that follow. Must never write anything else, nor
read a session twice. What always holds: a job is charged to the day before it asks the model; if
other facts were written in between, nothing is written and it is done again; what one session says
neither replaces, nor lends its words to, a fact that another one recalls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from recollect.core.facts.extract import Extracted, extract
from recollect.core.facts.history import settle
from recollect.core.facts.reading import LINE_TOKENS, call_tokens, fitting_tokens, line_count
from recollect.core.ports import Archive, Clock, Model
from recollect.core.rules.noise import is_noise
from recollect.core.search.tokenize import tokenize
from recollect.core.upkeep.jobs import GiveUp
from recollect.core.values.batch import EMBED_JOB, Batch, Lease, NewJob, extract_job
from recollect.core.values.fact import ExtractedTo, Fact, FactDraft, FactId
from recollect.core.values.recall import FactQuery
from recollect.core.values.segment import Segment, StoredSegment
from recollect.errors import ModelError, ModelRefused
from recollect.system.config import Settings
from recollect.system.config.settings import Scope

CANDIDATES: Final = 12
"""Facts that a new one is held against."""
PAGE_SEGMENTS: Final = 200
"""How many segments one job reads at the most."""
OVERLAP_SEGMENTS: Final = 12
"""How many that were read before are at hand again, to be understood by."""
LINEAGE_SEGMENTS: Final = 400
"""How far back it is looked up whose words a statement repeats."""
ANSWER_TOKENS: Final = 3_000
"""Of a call, a quarter of the window if that is less; charged before, as deciding about what it
found is, so a day's budget holds."""
LEAST_ANSWER_TOKENS: Final = 1_000
LEAST_WINDOW_SHARE: Final = 0.5
"""Less than this share of a window is no call of its own while a session continues: it waits for
more to leave the view, or until the session is idle."""
LEAST_SPOKEN_CHARS: Final = 40
"""Fewer characters of speech in a window are not worth a call."""
_TOOL_CHARS_READ: Final = 1_200
"""Of a tool's output a model reads head and tail, so no more than this is charged."""
_OF_THE_SPACE: Final = frozenset({"import", "hook", "note", "file"})
NO_SESSION: Final = ""
"""Asked of a store as a session, which none is named: only facts of no session are found."""
_DONE: Final = {
    "add": "facts added",
    "update": "facts told in more detail",
    "supersede": "facts replaced",
    "none": "known already",
    "refused": "refused",
}
_FOUND: Final = frozenset({"add", "update", "supersede"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FactScope:
    """Which facts are in reach, and whose a new one is."""

    session: str | None
    """Whose new facts are; None: the whole space's."""
    everything: bool = False
    """All sessions are one memory."""

    @property
    def asked(self) -> str | None:
        """What a store is asked for; it finds those of no session, too."""
        if self.everything:
            return None
        return NO_SESSION if self.session is None else self.session

    def holds(self, fact: Fact) -> bool:
        """Whether a fact may be replaced or joined from here."""
        return self.everything or fact.session == self.session


def reach_of(session: str, segments: Iterable[Segment], scope: Scope) -> FactScope:
    """The reach of what a session said in these messages."""
    if scope == "space":
        return FactScope(session=session, everything=True)
    if all(segment.source in _OF_THE_SPACE for segment in segments):
        return FactScope(session=None)
    return FactScope(session=session)


class Decisions:
    """What is known while one job's drafts are held against it, its own included."""

    def __init__(self, store: Archive, reach: FactScope, *, now: float) -> None:
        self._store = store
        self._reach = reach
        self._now = now
        self.written: dict[FactId, Fact] = {}
        self.operations: list[str] = []

    async def take(self, drafts: Sequence[FactDraft]) -> None:
        """Decide about drafts in their order, and keep what they change."""
        for draft in drafts:
            if not self._reach.everything:
                draft = replace(draft, session=self._reach.session)
            done = settle(draft, await self._known(draft), now=self._now)
            self.operations.append(done.operation)
            self.written.update((fact.id, fact) for fact in done.written)

    async def _known(self, draft: FactDraft) -> tuple[Fact, ...]:
        """Current facts that share words with it, and every version of what it is about, as they
        stand after what this job decided."""
        words = tuple(dict.fromkeys(tokenize(f"{draft.content} {draft.subject}")))
        query = FactQuery(words=words, limit=CANDIDATES, session=self._reach.asked)
        found = [candidate.fact for candidate in (await self._store.fact_candidates(query)).facts]
        if draft.subject:
            found += await self._store.facts(superseded=True, subjects={draft.subject})
        known = {fact.id: fact for fact in found if self._reach.holds(fact)}
        held = set(words)
        known.update(
            (id_, fact)
            for id_, fact in self.written.items()
            if id_ in known or held.intersection(fact.words)
        )
        return tuple(known.values())

    def done(self) -> str:
        """What was done, in numbers."""
        counts = {name: self.operations.count(name) for name in dict.fromkeys(self.operations)}
        if not counts:
            return "no facts"
        return ", ".join(f"{count} {_DONE[name]}" for name, count in counts.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingNote:
    """What one reading of messages for facts came to."""

    facts: int
    """Facts that were added, replaced or told in more detail."""
    messages: int
    trouble: str
    """Why the model was not asked, or did not answer."""
    done: str
    """What was done, in numbers."""

    def __str__(self) -> str:
        """One line for people."""
        return "; ".join(filter(None, [self.done, self.trouble]))


Notify = Callable[[ReadingNote], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The handler of extraction for one space."""

    store: Archive
    settings: Settings
    clock: Clock
    model: Model
    embedders: tuple[str, ...] = ()
    max_attempts: int = 5
    """Read whatever is unread, however little: a user asked for it."""
    told: Notify = field(default=lambda _: None, repr=False)

    async def extract(self, lease: Lease) -> Batch:
        """Read the next window of the session that the job names."""
        session, left = _session_of(lease)
        now = self.clock.now()
        if not left and (due := await self._idle_at(session, now)) > now:
            return Batch(at=now, jobs=(extract_job(session, run_at=due, left=False),))
        # before anything is read: what is forgotten or masked from now on makes the answer stale
        revision = await self.store.facts_revision()
        after = await self.store.extracted_to(session)
        page = await self.store.page(after=after, limit=PAGE_SEGMENTS, session=session)
        if not page:
            return Batch(at=now)
        if left and self._too_little(page):
            due = await self._idle_at(session, now)
            return Batch(at=now, jobs=(extract_job(session, run_at=max(due, now), left=False),))
        if not _worth_asking(page):
            read_to = ExtractedTo(session=session, sequence=page[-1].sequence)
            more = len(page) == PAGE_SEGMENTS
            jobs = [extract_job(session, run_at=now, left=True)] if more else []
            return Batch(at=now, extracted=(read_to,), jobs=tuple(jobs))
        needed, day_tokens = self._cost(page), self.settings.jobs.day_tokens
        if day_tokens is not None and needed > day_tokens:  # it would wait for ever
            self._notify_trouble("one call costs more than jobs.day_tokens allows")
            return Batch(at=now)
        if needed > lease.cost_tokens:  # charged when it is handed out, so it is handed out again
            again = extract_job(session, run_at=now, left=left, cost_tokens=needed)
            return Batch(at=now, jobs=(again,))
        earlier, unseen = await self._earlier(session, after)
        extraction = await self._found(lease, page, earlier, now, unseen_low=unseen)
        new = page[: extraction.read]
        reach = reach_of(session, (segment.segment for segment in new), self.settings.recall.scope)
        book = Decisions(self.store, reach, now=now)
        await book.take(extraction.drafts)
        self.told(
            ReadingNote(
                facts=sum(name in _FOUND for name in book.operations),
                messages=len(new),
                trouble=extraction.trouble,
                done=f"{book.done()} from {len(new)} messages",
            )
        )
        more = len(new) < len(page) or len(page) == PAGE_SEGMENTS
        jobs = [extract_job(session, run_at=now, left=True)] if more else []
        if book.written:
            jobs += [NewJob(kind=EMBED_JOB, key=name, run_at=now) for name in self.embedders]
        return Batch(
            at=now,
            facts=tuple(book.written.values()),
            extracted=(ExtractedTo(session=session, sequence=new[-1].sequence),),
            jobs=tuple(jobs),
            facts_revision=revision if book.written else None,
        )

    async def _idle_at(self, session: str, now: float) -> float:
        """When it counts as idle; at once if its times are of a clock that runs ahead."""
        newest = await self.store.page(limit=1, session=session, descending=True)
        if not newest or newest[0].segment.said_at > now:
            return 0.0
        return newest[0].segment.said_at + self.settings.facts.idle_seconds

    def _too_little(self, page: Sequence[StoredSegment]) -> bool:
        unread = sum(_read_tokens(segment.segment) for segment in page)
        return len(page) < PAGE_SEGMENTS and unread < LEAST_WINDOW_SHARE * self._window_tokens()

    def _answer_tokens(self) -> int:
        window = self.model.window_tokens
        if window is None:
            return ANSWER_TOKENS
        return min(ANSWER_TOKENS, max(LEAST_ANSWER_TOKENS, window // 4))

    def _window_tokens(self) -> int:
        wanted = self.settings.facts.window_tokens
        return fitting_tokens(wanted, self.model.window_tokens, self._answer_tokens())

    def _cost(self, page: Sequence[StoredSegment]) -> int:
        read = sum(_read_tokens(segment.segment) for segment in page)
        return call_tokens(min(read, self._window_tokens()), self._answer_tokens())

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
        now: float,
        *,
        unseen_low: bool,
    ) -> Extracted:
        """What the window holds; without a usable answer nothing counts as read."""
        try:
            return await extract(
                [segment.segment for segment in new],
                earlier[-OVERLAP_SEGMENTS:],
                model=self.model,
                max_output_tokens=self._answer_tokens(),
                now=now,
                window_tokens=self.settings.facts.window_tokens,
                earlier_low=earlier[:-OVERLAP_SEGMENTS],
                unseen_low=unseen_low,
            )
        except ModelError as error:
            why = f"the model gave no usable answer ({str(error) or type(error).__name__})"
            if isinstance(error, ModelRefused):
                self._notify_trouble(why)
                raise GiveUp(why) from error
            if lease.attempt >= self.max_attempts:
                self._notify_trouble(why)
            raise

    def _notify_trouble(self, why: str) -> None:
        self.told(ReadingNote(facts=0, messages=0, trouble=why, done="no facts"))


def _session_of(lease: Lease) -> tuple[str, bool]:
    try:
        read = json.loads(lease.payload)
        return str(read["session"]), bool(read["left"])
    except (ValueError, KeyError, TypeError) as error:
        raise GiveUp("its payload names no session") from error


def _worth_asking(new: Sequence[StoredSegment]) -> bool:
    spoken = (
        segment.segment.text
        for segment in new
        if segment.segment.noise is None and segment.segment.role in ("user", "assistant")
    )
    return sum(len(text) for text in spoken if is_noise(text) is None) >= LEAST_SPOKEN_CHARS


def _read_tokens(segment: Segment) -> int:
    """What it takes of a window, so that what is charged as one call is not cut into two."""
    if segment.noise is not None:
        return 0
    if segment.role == "tool" or segment.tool is not None:
        return min(segment.tokens, _TOOL_CHARS_READ // 2)
    return segment.tokens + LINE_TOKENS * line_count(segment)
