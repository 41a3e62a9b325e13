"""Rules that both stores follow: which batches to refuse, which facts and jobs are valid, how facts
are scored.

Errors never contain message content. If the replacement of a fact is refused, the fact stays valid.
The words of facts are stored as numbers, so that no index contains them in clear text. Scores are
added in the order of the query's words; equal scores are ordered by id."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from recollect.core.search.bm25 import inverse_document_frequency
from recollect.core.values.batch import Batch, NewJob, WriteResult
from recollect.core.values.compaction import CompactionRecord
from recollect.core.values.fact import EvidenceSpan, Fact, FactId, fact_identity, still_supported
from recollect.core.values.message import MessageId
from recollect.core.values.segment import NewSegment, SegmentId
from recollect.errors import BatchRefused

NUMBER_MAX: Final = 2**53
"""A larger whole number is not exact as a float, so a store could return another number."""


def require_storable(batch: Batch) -> None:
    """Raise BatchRefused if the batch contains values that no store can hold."""
    for kind, requirement, values_by_name in (
        (int | float, "a time", _collect_times(batch)),
        (int, "a whole number within 2**53", _collect_numbers(batch)),
    ):
        for name, values in values_by_name.items():  # a NaN is not within any limits
            if not all(
                isinstance(value, kind) and -NUMBER_MAX <= value <= NUMBER_MAX for value in values
            ):
                raise BatchRefused(f"the batch cannot be stored: {name} is not {requirement}")


def _collect_times(batch: Batch) -> dict[str, Iterable[object]]:
    of_facts = ((fact.at, fact.valid_to, fact.recorded_at) for fact in batch.facts)
    return {
        "the time": (batch.at,),
        "the time of a segment": (new_segment.segment.said_at for new_segment in batch.segments),
        "the time of a fact": (time for times in of_facts for time in times if time is not None),
        "the time of a job": (job.run_at for job in batch.jobs),
        "the time of a turn": (turn.at for turn in batch.turns),
        "the time of a compaction": (record.at for record in batch.compactions),
    }


def _collect_numbers(batch: Batch) -> dict[str, Iterable[object]]:
    passages = [passage for new_segment in batch.segments for passage in new_segment.passages]
    spans = [span for fact in batch.facts for span in fact.evidence]
    sessions = () if batch.session is None else (batch.session,)
    return {
        "the token count of a segment": (
            new_segment.segment.tokens for new_segment in batch.segments
        ),
        "the start of a passage": (passage.start for passage in passages),
        "the end of a passage": (passage.end for passage in passages),
        "the dimensions of a set of vectors": (
            *(vectors.dimensions for vectors in batch.vectors),
            *(vectors.dimensions for vectors in batch.fact_vectors),
        ),
        "the start of a span": (span.start for span in spans),
        "the end of a span": (span.end for span in spans),
        "how far a session was read": (position.sequence for position in batch.extracted),
        "the revision of facts": () if batch.facts_revision is None else (batch.facts_revision,),
        "the cost of a job": (job.cost_tokens for job in batch.jobs),
        "the number of a turn": (turn.number for turn in batch.turns),
        "the kept rows of a turn": (turn.kept_rows for turn in batch.turns),
        "the number of a compaction": (record.number for record in batch.compactions),
        "the turn of a session": (session.turn for session in sessions),
        "the path of a session": (session.path_from for session in sessions),
    }


def identities_of(batch: Batch) -> set[str]:
    """Return all keys of a batch that a tombstone may block: of segments, messages, facts, pieces
    of the ledger, and compactions."""
    ids: set[str] = {new_segment.segment.message_id for new_segment in batch.segments}
    ids.update(new_segment.segment.id for new_segment in batch.segments)
    ids.update(fact_identity(fact.id) for fact in batch.facts)
    ids.update(message_id for job in batch.jobs for message_id in job.about)
    ids.update(text for piece in batch.pieces for text in (piece.hash, *piece.about))
    ids.update(map(compaction_mark, batch.compactions))
    return ids


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedSegments:
    """The segments of a batch, sorted by how a write treats them."""

    new_segments: tuple[NewSegment, ...]
    known_ids: tuple[SegmentId, ...]
    forgotten_messages: Mapping[SegmentId, MessageId]
    """Segments with a tombstone, each with its message."""

    @classmethod
    def of(
        cls, batch: Batch, *, known_ids: AbstractSet[str], tombstones: AbstractSet[str]
    ) -> SortedSegments:
        new_segments: dict[SegmentId, NewSegment] = {}
        met_ids: dict[SegmentId, None] = {}
        forgotten_messages: dict[SegmentId, MessageId] = {}
        for new_segment in batch.segments:
            id_, message_id = new_segment.segment.id, new_segment.segment.message_id
            if not tombstones.isdisjoint((id_, message_id)):
                forgotten_messages[id_] = message_id
            elif id_ in known_ids:
                met_ids[id_] = None
            else:
                new_segments.setdefault(id_, new_segment)
        return cls(
            new_segments=tuple(new_segments.values()),
            known_ids=tuple(met_ids),
            forgotten_messages=forgotten_messages,
        )

    @property
    def message_ids(self) -> frozenset[MessageId]:
        """Return the messages of the new segments."""
        return frozenset(new_segment.segment.message_id for new_segment in self.new_segments)

    def jobs_of(self, batch: Batch) -> tuple[NewJob, ...]:
        """Return the jobs to enqueue. If the batch was written before, return none, because its
        jobs were enqueued then and may be done."""
        return batch.jobs if self.new_segments or not batch.segments else ()

    def to_result(self, session: SessionOutcome, jobs: Sequence[NewJob]) -> WriteResult:
        return WriteResult(
            stored=tuple(new_segment.segment.id for new_segment in self.new_segments),
            known=self.known_ids,
            forgotten=tuple(self.forgotten_messages),
            session_stale=session.stale,
            session_cleaned=session.cleaned,
            due_at=min((job.run_at for job in jobs), default=None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOutcome:
    """The result of storing a session's state."""

    stale: bool = False
    """True if the state was not stored: a newer one exists, or the stored one is incomplete."""
    cleaned: bool = False
    """True if the session quoted forgotten messages: its state is changed, or removed."""


def compaction_mark(record: CompactionRecord) -> str:
    """Return the tombstone's key of a compaction's record."""
    digest = blake2b(digest_size=16, person=b"recollect-cut")
    for part in (
        record.session.encode("utf-8", "surrogatepass"),
        f"{record.number} {float(record.at).hex()}".encode(),
        "\0".join(record.about).encode("utf-8", "surrogatepass"),
        record.body,
    ):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def marks_of(
    records: Iterable[CompactionRecord | None], *, but_about: AbstractSet[str]
) -> list[str]:
    """List tombstone keys for the removed compactions that cover none of `but_about`."""
    return [
        compaction_mark(record)
        for record in records
        if record is not None and but_about.isdisjoint(record.about)
    ]


def session_mark(session: str) -> str:
    """Return the tombstone's key of a session's read position, with the name hashed."""
    name_bytes = session.encode("utf-8", "surrogatepass")
    return blake2b(name_bytes, digest_size=16, person=b"recollect-read").hexdigest()


def choose_writable(
    new_facts: Iterable[Fact],
    facts: Mapping[FactId, Fact],
    *,
    tombstones: AbstractSet[str],
    gone_ids: AbstractSet[str],
) -> list[Fact]:
    """Choose the facts of a batch to write next to the stored `facts`. If the replacement of a fact
    is refused, the fact keeps its current state, because otherwise neither fact would be valid. If
    a new fact would be replaced by a refused one, the new fact is valid."""
    new_by_id = {fact.id: fact for fact in new_facts}
    fact_by_id: dict[FactId, Fact] = {}
    for fact in new_by_id.values():
        kept_fact = (
            None if fact_identity(fact.id) in tombstones else still_supported(fact, gone_ids)
        )
        if kept_fact is not None:
            fact_by_id[kept_fact.id] = kept_fact
    refused_ids = new_by_id.keys() - fact_by_id.keys() - facts.keys()
    for fact in [
        candidate for candidate in fact_by_id.values() if candidate.superseded_by in refused_ids
    ]:
        fact_by_id[fact.id] = facts.get(fact.id) or replace(fact, superseded_by=None, valid_to=None)
    return [fact for fact in fact_by_id.values() if facts.get(fact.id) != fact]


def select_facts(
    facts: Iterable[Fact],
    ids: Iterable[FactId],
    *,
    superseded: bool,
    subjects: Collection[str] | None,
) -> tuple[Fact, ...]:
    """Return the facts with these ids, in this order."""
    by_id = {fact.id: fact for fact in facts}
    ordered_facts = (by_id[id_] for id_ in ids if id_ in by_id)
    return tuple(
        fact
        for fact in ordered_facts
        if (superseded or fact.current) and (subjects is None or fact.subject in subjects)
    )


def pack_evidence(evidence: Sequence[EvidenceSpan]) -> str | None:
    """Encode a fact's evidence for a column; None if there is none."""
    if not evidence:
        return None
    return json.dumps([[span.segment, span.start, span.end] for span in evidence])


def unpack_evidence(packed_evidence: str | bytes | None) -> tuple[EvidenceSpan, ...]:
    """Decode evidence that `pack_evidence` encoded. Raise ValueError if decoding fails."""
    if packed_evidence is None:
        return ()
    match json.loads(packed_evidence):
        case [*spans]:
            return tuple(map(_span_from_item, spans))
    raise ValueError("not a list of spans")


def _span_from_item(item: object) -> EvidenceSpan:
    match item:
        case [str(segment), int(start), int(end)]:
            return EvidenceSpan(segment=SegmentId(segment), start=start, end=end)
    raise ValueError("not a span")


def rows_of_turn(turn_rows: Iterable[tuple[int, Sequence[str]]]) -> list[str] | None:
    """Join the rows (messages) of a turn's request; None if some are not stored. `turn_rows` lists
    the turn and earlier turns: for each, how many rows it repeats, and its own rows."""
    row_count: int | None = None
    stretches: list[Sequence[str]] = []
    for reused_count, own_rows in turn_rows:
        if row_count is None:
            stretches.append(own_rows)
        elif row_count - reused_count > len(own_rows):
            return None
        elif row_count > reused_count:
            stretches.append(own_rows[: row_count - reused_count])
        row_count = reused_count if row_count is None else min(row_count, reused_count)
        if not row_count:
            return [row for stretch in reversed(stretches) for row in stretch]
    return None


Numbers: TypeAlias = npt.NDArray[np.int64]
Scores: TypeAlias = npt.NDArray[np.float64]

NO_NUMBERS: Final[Numbers] = np.empty(0, dtype=np.int64)


def word_number(word: str) -> int:
    """Hash a word to 64 bits, enough that in practice no two words have the same number."""
    word_bytes = word.encode("utf-8", "surrogatepass")
    digest = blake2b(word_bytes, digest_size=8, person=b"recollect-word").digest()
    return int.from_bytes(digest, "little", signed=True)


def word_numbers(words: Sequence[str]) -> list[int]:
    """Return the numbers of a fact's words, each once, in ascending order."""
    return sorted({word_number(word) for word in words})


def score_by_words(postings: Sequence[Numbers], documents: int) -> tuple[Numbers, Scores]:
    """Score the facts that contain any of the query's words, in ascending order of their numbers.
    `postings` lists, for each word of the query in its order, the facts that contain it."""
    filled_postings = [facts for facts in postings if len(facts)]
    if not filled_postings:
        return NO_NUMBERS, np.empty(0)
    weights = np.repeat(
        [
            inverse_document_frequency(document_frequency=len(facts), documents=documents)
            for facts in filled_postings
        ],
        [len(facts) for facts in filled_postings],
    )
    facts, indexes = np.unique(np.concatenate(filled_postings), return_inverse=True)
    scores: Scores = np.bincount(indexes, weights=weights).astype(np.float64, copy=False)
    return facts, scores


def best_of(numbers: Numbers, scores: Scores, limit: int) -> tuple[Numbers, Numbers, int]:
    """Choose the `limit` facts with the highest scores, except ties at the last place. Return the
    chosen numbers, the tied numbers, and how many of the tied are still needed, which the caller
    chooses by id. If all tied facts are needed, they are among the chosen."""
    if limit <= 0:
        return NO_NUMBERS, NO_NUMBERS, 0
    if len(numbers) <= limit:
        return numbers, NO_NUMBERS, 0
    last = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    chosen_numbers, tied_numbers = numbers[scores > last], numbers[scores == last]
    missing_count = limit - len(chosen_numbers)
    if len(tied_numbers) <= missing_count:
        return np.concatenate([chosen_numbers, tied_numbers]), NO_NUMBERS, 0
    return chosen_numbers, tied_numbers, missing_count


def keep_allowed(
    facts: Numbers, scores: Scores, allowed_numbers: Numbers | None
) -> tuple[Numbers, Scores]:
    """Keep only the facts in `allowed_numbers`, and their scores; None allows all facts."""
    if allowed_numbers is None:
        return facts, scores
    is_allowed = np.isin(facts, allowed_numbers)
    return facts[is_allowed], scores[is_allowed]


_DECIMALS: Final = 9
"""Cosines are rounded to this many decimals before they are compared."""


def direction_of(values: bytes) -> Scores | None:
    """Return a query's vector, scaled to length one; None if it has no direction. A failed embedder
    may return zeros or NaN."""
    if len(values) % 4:
        return None
    numbers = np.frombuffer(values, "<f4").astype(np.float64)
    length = float(np.linalg.norm(numbers))
    return numbers / length if np.isfinite(length) and length > 0 else None


def cosines(vectors: npt.NDArray[np.float32], direction: Scores) -> Scores:
    """Compare vectors in double precision. A vector of length zero is similar to nothing."""
    values = vectors.astype(np.float64)
    lengths = np.sqrt(np.vecdot(values, values))
    similarities: Scores = np.zeros(len(values))
    comparable = np.isfinite(lengths) & (lengths > 0)
    np.divide(np.vecdot(values, direction), lengths, out=similarities, where=comparable)
    return similarities.round(_DECIMALS)
