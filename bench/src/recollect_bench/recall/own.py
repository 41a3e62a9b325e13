"""Measures recall on the user's own transcripts: does memory bring back what is named next?

Every message of a recording is replayed in its order but summaries, which are the client's own way
to remember. Before each that names something only memory holds, the stage is asked what a turn at
that place would ask; nothing is in the store that was said later. Must never keep or print what
was said; a file that cannot be read is counted, never named with its content.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Final

from recollect.cli.import_run import Recorded, find_sources
from recollect.core.formats.codec import CODECS
from recollect.core.formats.transcripts import read_transcripts
from recollect.core.ports import Store
from recollect.core.rules.identity import ROOT, chain, space_secret
from recollect.core.rules.tokens import Weigher
from recollect.core.search.bm25 import score_documents
from recollect.core.search.question import question_text
from recollect.core.search.tokenize import tokenize
from recollect.core.turn.align import LastRequest, enter, read
from recollect.core.turn.ingest import ingest
from recollect.core.turn.query import ask, query, uses_tools
from recollect.core.values.history import Entry
from recollect.core.values.message import EntryKey
from recollect.core.values.recall import RecalledPassage, RecallRequest
from recollect.core.values.segment import NewSegment
from recollect.core.values.transcript import RecordedSession
from recollect.errors import FormatError, RecollectError
from recollect.system.config.settings import Redaction
from recollect_bench.recall.ask import Asker
from recollect_bench.recall.judge import (
    BUDGET_TOKENS,
    VIEW_TOKENS,
    Reference,
    block_tokens,
    find_references,
    openclaw_tokens,
    pack_ranked,
)
from recollect_bench.recall.memory import embed_memory, write_segments
from recollect_bench.recall.result import SetResult
from recollect_bench.recall.run import Progress
from recollect_bench.store_target import Target

# Reads the user's transcripts for the recall bench


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSession:
    """A recorded session, as it would be stored."""

    name: str
    entries: tuple[Entry, ...] = field(repr=False)
    segments: tuple[NewSegment, ...] = field(repr=False)
    references: tuple[Reference, ...] = field(repr=False)

    def passages_at(self, place: int) -> list[RecalledPassage]:
        """The passages of a message as they would stand in a block."""
        new = self.segments[place]
        segment = new.segment
        said_at = datetime.fromtimestamp(segment.said_at, UTC)
        return [
            RecalledPassage(
                text=segment.text[passage.start : passage.end],
                role=segment.role,
                said_at=f"{said_at:%Y-%m-%d %H:%M}",
                score=0.0,
                speaker=segment.role,
                sitting=f"{segment.session}\n{said_at:%Y-%m-%d}",
                order=(segment.said_at, place, passage.start),
            )
            for passage in new.passages
        ]


def own_sessions(
    paths: Sequence[Path], *, most: int | None
) -> tuple[list[OwnSession], Counter[str]]:
    """The sessions of these files and folders, and why files were passed over."""
    for path in paths:
        if not path.exists():
            raise RecollectError(f"there is no {path}: give files or folders of transcripts")
    sessions: list[OwnSession] = []
    unread: Counter[str] = Counter()
    for source in find_sources(tuple(paths)):
        if not isinstance(source, Recorded):
            unread["not a transcript"] += 1
            continue
        try:
            recorded = read_transcripts(source.read(), name=source.name)
        except FormatError:
            unread["not of a known format"] += 1
            continue
        for number, transcript in enumerate(recorded):
            name = source.stem if len(recorded) == 1 else f"{source.stem}-{number}"
            sessions.append(as_session(transcript, name=name, said_at=source.modified_at))
            if most is not None and sum(bool(session.references) for session in sessions) >= most:
                return sessions, unread
    return sessions, unread


def as_session(transcript: RecordedSession, *, name: str, said_at: float) -> OwnSession:
    """A recording as the archive would keep it, with what it refers back to."""
    codec = CODECS[transcript.format]
    raws = [item.raw for item in transcript.items]
    readings = read(raws, codec, space_secret(name), Weigher(), LastRequest()).new_readings
    entries: list[Entry] = []
    times: dict[EntryKey, float] = {}
    key, last = ROOT, said_at
    for item, reading in zip(transcript.items, readings, strict=True):
        last = last if item.timestamp is None else item.timestamp
        if not reading.message.summary:
            key = chain(key, reading.id)
            times[key] = last
            entries.append(enter(reading, key))
    made = ingest(
        entries,
        session=name,
        source="import",
        said_at=times,
        redaction=Redaction(),
        now=last,
    )
    skipped = set(made.skipped)
    kept = tuple(entry for entry in entries if entry.key not in skipped)
    return OwnSession(
        name=name,
        entries=kept,
        segments=made.segments,
        references=tuple(find_references(kept, made.segments)),
    )


MOST_QUESTIONS: Final = 150
"""Of one session, evenly spread; a long one has thousands."""
QUICK_QUESTIONS: Final = 10
QUICK_SESSIONS: Final = 2
NO_MISSES: Final = "own: --misses lists none here: what was said is never printed"


@dataclass(slots=True, kw_only=True)
class _Tally:
    """What was found so far, by who finds: a share a reference."""

    found: dict[str, list[tuple[str, bool]]] = field(default_factory=dict)
    lost: list[tuple[str, bool]] = field(default_factory=list)

    def add(
        self, who: str, role: str, names: Sequence[str], block: Sequence[RecalledPassage]
    ) -> None:
        text = "\n".join(passage.text for passage in block)
        self.found.setdefault(who, []).extend((role, name in text) for name in names)

    def figures(self, who: str) -> dict[str, float]:
        return _shares("found", self.found.get(who, []))


def _shares(name: str, outcomes: Sequence[tuple[str, bool]]) -> dict[str, float]:
    """The share of all, and of what each role said."""
    shares = {name: _share([outcome for _, outcome in outcomes])}
    for role in sorted({role for role, _ in outcomes}):
        shares[f"{name}.{role}"] = _share([outcome for one, outcome in outcomes if one == role])
    return shares


def _share(outcomes: Sequence[bool]) -> float:
    return round(fmean(map(float, outcomes)), 4)


async def measure_own(
    paths: Sequence[Path],
    *,
    asker: Asker,
    embedder: str,
    target: Target,
    quick: bool,
    progress: Progress,
) -> SetResult:
    """The share of future references that recall finds, and what simpler ways find."""
    sessions, unread = own_sessions(paths, most=QUICK_SESSIONS if quick else None)
    asked = [session for session in sessions if session.references]
    if not asked:
        raise RecollectError(
            f"{len(sessions)} sessions read, and none names again what lies more than "
            f"{VIEW_TOKENS:,} tokens back: give longer ones"
        )
    tally = _Tally()
    most = QUICK_QUESTIONS if quick else MOST_QUESTIONS
    for number, session in enumerate(asked):
        store = await target.open(f"own-{number}")
        try:
            replay = _Replay(session=session, store=store, asker=asker, tally=tally)
            await replay.run(_spread(session.references, most), progress)
        finally:
            await store.close()
    figures = tally.figures("recall") | _shares("lost", tally.lost)
    figures |= {
        "sessions": len(asked),
        "questions": len(tally.lost),
        "references": len(tally.found["recall"]),
    }
    notes = [
        "own: found: identifiers (paths, names in code, hashes, addresses, codes) of a message",
        f"  that stand more than {VIEW_TOKENS:,} tokens back and nowhere later, and are in the",
        "  block that recall gives for the user messages before it (for a user message: with it)",
        "own: found is before the gate; lost are turns at which it stayed shut, most of which are",
        "  replies whose identifiers the user's words do not name",
        "own: nothing of it is kept: the store is temporary, and no vectors are cached",
    ]
    notes += [f"own: {why}: {count} files passed over" for why, count in unread.items()]
    return SetResult(
        name="own",
        embedder=embedder,
        figures=figures,
        baselines={who: tally.figures(who) for who in ("bm25", "recency", "random")},
        notes=(*notes, *sorted(asker.notes)),
    )


def _spread(references: Sequence[Reference], most: int) -> list[Reference]:
    step = max(1, -(-len(references) // most))
    return list(references[::step])


@dataclass(slots=True, kw_only=True)
class _Replay:
    """One session, written as it was said."""

    session: OwnSession
    store: Store
    asker: Asker
    tally: _Tally
    written: int = 0
    memory: GrowingMemory = field(default_factory=lambda: GrowingMemory())

    async def run(self, references: Sequence[Reference], progress: Progress) -> None:
        for done, reference in enumerate(references):
            progress(f"{self.session.name}: asking", done, len(references))
            await self._write_until(self._asked_at(reference))
            self.memory.grow(self.session, reference.view_from)
            await self._ask(reference)

    def _asked_at(self, reference: Reference) -> int:
        """What a turn there has before it: a user's message with itself, a reply without it."""
        asking = self.session.segments[reference.place].segment
        return reference.place + 1 if asking.role == "user" else reference.place

    async def _write_until(self, place: int) -> None:
        segments = self.session.segments[self.written : place]
        at = segments[-1].segment.said_at if segments else 0.0
        await write_segments(self.store, segments, at=at)
        passages = sum(len(new.passages) for new in segments)
        for embedder in self.asker.embedders:
            await embed_memory(self.store, embedder, at=at, passages=passages)
        self.written = place

    async def _ask(self, reference: Reference) -> None:
        asking = self.session.segments[reference.place].segment
        role = asking.role
        names = reference.identifiers
        open_request = self._request(reference, gated=False)
        words = question_text(open_request)
        vectors = await self.asker.vectors_of(open_request, self.store)
        recalled = await self.asker.stage(
            open_request, archive=self.store, vectors=vectors, settings=self.asker.settings
        )
        assert block_tokens(recalled.passages) <= BUDGET_TOKENS, "a block is over its budget"
        gated_request = self._request(reference, gated=True)
        behind = await self.asker.stage(
            gated_request,
            archive=self.store,
            vectors=await self.asker.vectors_of(gated_request, self.store),
            settings=self.asker.settings,
        )
        self.asker.notes.update(map(str, recalled.notes))
        self.tally.lost.append((role, behind.empty))
        self.tally.add("recall", role, names, recalled.passages)
        for who, ranked in self.memory.rankings(words, seed=f"{reference.place}").items():
            self.tally.add(who, role, names, pack_ranked(ranked))

    def _request(self, reference: Reference, *, gated: bool) -> RecallRequest:
        """What a turn at this place asks: of a user's message itself, of a reply what led to it."""
        before = self.session.entries[: self._asked_at(reference)]
        request = ask(
            before[reference.view_from :],
            query(before),
            self.asker.settings,
            among_tools=uses_tools(before),
            space=self.store.space,
            session=self.session.name,
            now=self.session.segments[reference.place].segment.said_at,
            budget_tokens=lambda _asks, **_: BUDGET_TOKENS,
            count_tokens=openclaw_tokens,
        )
        return replace(request, scope="space", gated=gated)


class GrowingMemory:
    """Passages that have left the view, and three simple ways to choose among them."""

    def __init__(self) -> None:
        self._messages = 0
        self._passages: list[RecalledPassage] = []
        self._counts: list[Counter[str]] = []
        self._lengths: list[int] = []
        self._postings: dict[str, list[int]] = {}

    def grow(self, session: OwnSession, until: int) -> None:
        """Take in the messages up to this place."""
        for place in range(self._messages, until):
            for passage in session.passages_at(place):
                words = tokenize(passage.text)
                counts = Counter(words)
                for word in counts:
                    self._postings.setdefault(word, []).append(len(self._passages))
                self._passages.append(passage)
                self._counts.append(counts)
                self._lengths.append(len(words))
        self._messages = max(self._messages, until)

    def rankings(self, question: str, *, seed: str) -> dict[str, list[RecalledPassage]]:
        """By BM25 alone, the newest first, and by chance."""
        places = list(range(len(self._passages)))
        shuffled = random.Random(f"own:{seed}").sample(places, len(places))
        orders = {"bm25": self._by_words(question), "recency": places[::-1], "random": shuffled}
        return {who: [self._passages[place] for place in order] for who, order in orders.items()}

    def _by_words(self, question: str) -> list[int]:
        words = tuple(dict.fromkeys(tokenize(question)))
        places = {place for word in words for place in self._postings.get(word, ())}
        documents = len(self._passages)
        average = sum(self._lengths) / documents if documents else 0.0
        frequencies = {word: len(self._postings.get(word, ())) for word in words}
        found = sorted(places)
        scores = score_documents(
            [self._counts[place] for place in found],
            [self._lengths[place] for place in found],
            average_length=average,
            document_frequencies=frequencies,
            documents=documents,
            query=words,
        )
        ranked = sorted(zip(scores, found, strict=True), key=lambda one: (-one[0], one[1]))
        return [place for _, place in ranked]
