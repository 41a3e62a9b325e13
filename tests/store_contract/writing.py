"""What holds for writes: all or nothing, once however often, there after a restart."""

import asyncio
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from tests.store_contract.examples import (
    EMBEDDER,
    SESSION,
    START,
    asked,
    conversation,
    fact,
    full_batch,
    ids,
    passages,
    piece,
    rising,
    segment,
    segments,
    vector,
    vectors,
    worded,
)
from tests.store_contract.harness import Spaces, contents
from tests.store_contract.model import ReferenceModel

from recollect.core.values.batch import Batch, NewJob, TurnRecord
from recollect.core.values.fact import EvidenceSpan, ExtractedTo
from recollect.core.values.message import Role
from recollect.core.values.recall import CandidateQuery
from recollect.core.values.segment import SegmentId, Vector, VectorSet
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import BatchRefused

_UNWRITABLE: Any = cast(Any, object())
_SURROGATE = "lone \ud800 surrogate"


def _broken(batch: Batch) -> Iterator[tuple[str, Batch]]:
    """The batch with one value that cannot be stored, once in each of its parts."""
    last = batch.segments[-1]
    yield (
        "segment",
        replace(
            batch,
            segments=(
                *batch.segments[:-1],
                replace(last, segment=replace(last.segment, text=_UNWRITABLE)),
            ),
        ),
    )
    given = batch.vectors[0]
    short = replace(given.vectors[-1], values=_UNWRITABLE)
    yield "vector", replace(batch, vectors=(replace(given, vectors=(*given.vectors[:-1], short)),))
    yield "fact", replace(batch, facts=(*batch.facts, fact("bad", content=_SURROGATE)))
    yield "job", replace(batch, jobs=(*batch.jobs, NewJob(kind="embed", key=_SURROGATE)))
    assert batch.session is not None
    yield "session", replace(batch, session=replace(batch.session, state=_UNWRITABLE))
    yield "piece", replace(batch, pieces=(*batch.pieces, replace(piece("x"), body=_UNWRITABLE)))
    bad = TurnRecord(session=SESSION, number=99, at=START, format=_SURROGATE)
    yield "turn", replace(batch, turns=(*batch.turns, bad))


async def batch_is_all_or_nothing(spaces: Spaces) -> None:
    """A batch of which one value cannot be stored leaves nothing, and the store goes on."""
    refused = 0
    for part, bad in _broken(full_batch(1)):
        store = await spaces.open(part)
        await store.write(full_batch(0))
        before = await contents(store, SESSION)
        (outcome,) = await asyncio.gather(store.write(bad), return_exceptions=True)
        if isinstance(outcome, BaseException):
            refused += 1
            assert await contents(store, SESSION) == before, part
        else:
            assert set(outcome.stored) == set(ids(bad.segments)), part
        written = await store.write(full_batch(2))
        assert written.stored == ids(full_batch(2).segments), part
    assert refused, "an object() was taken for a text"


async def cancelled_write_is_all_or_nothing(spaces: Spaces) -> None:
    """A write that is cancelled at any moment is there whole or not at all."""
    store = await spaces.open()
    for number in range(12):
        batch = full_batch(number, session=f"s{number}", count=8)
        task = asyncio.create_task(store.write(batch))
        await asyncio.sleep(number * 0.0007)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        # It may land between two reads still, so each read stands for itself.
        assert len(await store.known(ids(batch.segments))) in (0, 8), number
        written = await store.write(batch)
        assert len(written.stored) in (0, 8), number
        assert len(written.stored) + len(written.known) == 8, number
        assert await store.session(f"s{number}") is not None, number
        assert await store.turns(f"s{number}") == (number + 1,), number
        assert await store.facts([batch.facts[0].id]) == batch.facts, number
    assert (await store.stats()).segments == 12 * 8


async def same_batch_twice_is_once(spaces: Spaces) -> None:
    """Writing a batch again changes nothing, and says that it was known."""
    store = await spaces.open()
    batch = full_batch(0)
    first = await store.write(batch)
    assert first.stored == ids(batch.segments)
    assert (first.known, first.forgotten, first.session_stale) == ((), (), False)
    before = await contents(store, SESSION)
    for _ in range(2):
        again = await store.write(batch)
        assert again.stored == ()
        assert again.known == ids(batch.segments)
        assert await contents(store, SESSION) == before
    assert len(await store.vectors(batch.vectors[0].embedder)) == len(batch.vectors[0].vectors)


async def known_segment_is_not_changed(spaces: Spaces) -> None:
    """A segment that arrives again with another text or time stays as it was first stored."""
    store = await spaces.open()
    (new,) = segments(1)
    await store.write(Batch(at=START, segments=(new,)))
    other = replace(new, segment=replace(new.segment, text="another", said_at=START + 9, tokens=1))
    await store.write(Batch(at=START + 9, segments=(other,)))
    (stored,) = await store.segments([new.segment.id])
    assert stored.segment == new.segment


async def concurrent_writers_store_once(spaces: Spaces) -> None:
    """Of several stores that write the same segments at once, each segment is stored by one."""
    stores = [await spaces.open() for _ in range(3)]
    new = segments(24)
    batches = [
        Batch(at=START, segments=new[first : first + 12], vectors=(vectors(new[first:][:12]),))
        for first in (0, 4, 8, 12)
    ]
    written = await asyncio.gather(*(store.write(batch) for store in stores for batch in batches))
    stored = [segment_id for outcome in written for segment_id in outcome.stored]
    assert sorted(stored) == sorted(ids(new))
    page = await stores[0].page()
    assert sorted(row.segment.id for row in page) == sorted(ids(new))
    assert rising([row.sequence for row in page])


async def what_was_written_is_there_after_reopening(spaces: Spaces) -> None:
    """After closing and opening everything is as it was."""
    store = await spaces.open()
    for number in range(3):
        await store.write(full_batch(number))
    before = await contents(store, SESSION)
    vectors_before = await store.vectors("example-256")
    store = await spaces.reopen(store)
    assert await contents(store, SESSION) == before
    assert await store.vectors("example-256") == vectors_before
    later = await store.write(full_batch(3))
    assert later.stored == ids(full_batch(3).segments)


async def empty_batch_is_nothing(spaces: Spaces) -> None:
    """A batch without anything is written without effect."""
    store = await spaces.open()
    written = await store.write(Batch(at=START))
    assert (written.stored, written.known, written.forgotten) == ((), (), ())
    assert await store.page() == ()


async def every_field_comes_back(spaces: Spaces) -> None:
    """A segment comes back with every field as it was written, times to the last bit."""
    store = await spaces.open()
    full = conversation(
        ["all fields are set"],
        said_at=1_760_000_000.123456789,
        tokens=7,
        source="import",
        trust="low",
        tool="bash",
        origin="notes.jsonl:12",
        foreign='{"id": 1, "text": "…"}',
    )
    plain = conversation(["no field is set"], session="other")
    kinds: tuple[Role, ...] = ("system", "user", "assistant", "tool")
    roles = [
        replace(new, segment=replace(new.segment, role=role, tool="read"))
        for new, role in zip(segments(4, session="roles"), kinds, strict=True)
    ]
    given = (*full, *plain, *roles)
    await store.write(Batch(at=START, segments=given))
    stored = await store.segments(ids(given))
    assert [row.segment for row in stored] == [new.segment for new in given]


# What holds for batches that a store can never take: refused before anything is written.

_TOO_LARGE = 2**53 + 1
_NO_TIMES = (math.nan, math.inf, -math.inf)


def _without_time(batch: Batch) -> Iterator[tuple[str, Batch]]:
    last = batch.segments[-1]
    for bad in _NO_TIMES:
        new_segment = replace(last, segment=replace(last.segment, said_at=bad))
        yield f"said at {bad}", replace(batch, segments=(*batch.segments[:-1], new_segment))
        yield f"batch at {bad}", replace(batch, at=bad)
        yield f"fact at {bad}", replace(batch, facts=(*batch.facts, fact("bad", at=bad)))
        first = batch.facts[0]
        yield f"valid to {bad}", replace(batch, facts=(replace(first, valid_to=bad),))
        yield f"recorded at {bad}", replace(batch, facts=(replace(first, recorded_at=bad),))
        yield f"job at {bad}", replace(batch, jobs=(replace(batch.jobs[0], run_at=bad),))
        yield f"turn at {bad}", replace(batch, turns=(replace(batch.turns[0], at=bad),))


def _too_large(batch: Batch) -> Iterator[tuple[str, Batch]]:
    last, turn, job = batch.segments[-1], batch.turns[0], batch.jobs[0]
    assert batch.session is not None
    for bad in (_TOO_LARGE, -_TOO_LARGE, 2**64):
        much = replace(last, segment=replace(last.segment, tokens=bad))
        yield f"tokens {bad}", replace(batch, segments=(*batch.segments[:-1], much))
        wide = replace(last, passages=(replace(last.passages[0], end=bad),))
        yield f"span {bad}", replace(batch, segments=(*batch.segments[:-1], wide))
        span = EvidenceSpan(segment=last.segment.id, start=0, end=bad)
        resting = replace(batch.facts[0], evidence=(span,))
        yield f"evidence {bad}", replace(batch, facts=(resting,))
        read = ExtractedTo(session=SESSION, sequence=bad)
        yield f"read to {bad}", replace(batch, extracted=(read,))
        yield f"turn {bad}", replace(batch, turns=(replace(turn, number=bad),))
        yield f"kept rows {bad}", replace(batch, turns=(replace(turn, kept_rows=bad),))
        yield f"cost {bad}", replace(batch, jobs=(replace(job, cost_tokens=bad),))
        yield f"session {bad}", replace(batch, session=replace(batch.session, turn=bad))


async def numbers_out_of_range_are_refused(spaces: Spaces) -> None:
    """No time that is none, no number beyond 2**53: such a batch is refused whole, and by name."""
    store = await spaces.open()
    await store.write(full_batch(0))
    before = await contents(store, SESSION)
    batch = full_batch(1)
    for part, bad in (*_without_time(batch), *_too_large(batch)):
        (outcome,) = await asyncio.gather(store.write(bad), return_exceptions=True)
        assert isinstance(outcome, BatchRefused), (part, outcome)
        assert batch.segments[-1].segment.text not in str(outcome)
        assert await contents(store, SESSION) == before, part
    largest = replace(batch.segments[-1].segment, tokens=2**53)
    kept = replace(batch.segments[-1], segment=largest)
    written = await store.write(replace(batch, segments=(*batch.segments[:-1], kept)))
    assert written.stored == ids(batch.segments)


# What holds for reading segments: order of arrival, pages, any text.

ODD_TEXTS = (
    "emoji 🙂👩‍👩‍👧‍👦🏳️‍🌈 and 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 beyond the first plane",
    "你好，世界。数据库连接失败：请重试。日本語のテキスト、한국어 문장",
    "שלום עולם مرحبا بالعالم \u202eright to left\u202c",
    "combining e\u0301 a\u0308\u0323 क्षि and \u200bzero\u200d width\ufeff",
    "quotes ' \" ` '' \"\" $$ %s %(x)s ? :name @x \\ \\\\ \\' \\n -- /* */ ; DROP TABLE x;",
    "line\nfeeds\r\nand\ttabs\x0b\x0c\x1b[31m\x7f\x85\u2028\u2029 controls \x01\x02\x1f",
    '{"json": [1, 2, {"a": null}]} <b>html &amp;</b> \\u0000 \\x00 \ufffd \ufffe \U0010ffff',
    "   white space at both ends \u3000 ",
    " ",
    "1",
)


async def arrival_gives_the_order(spaces: Spaces) -> None:
    """Sequences rise in the order in which segments were written, whenever they were said."""
    store = await spaces.open()
    late, early = segments(3, session="late", said_at=START + 1e6), segments(3, session="early")
    await store.write(Batch(at=START, segments=late))
    await store.write(Batch(at=START, segments=early))
    await store.write(Batch(at=START, segments=(late[0], *segments(1, session="third"))))
    page = await store.page()
    assert tuple(row.segment.id for row in page) == (
        *ids(late),
        *ids(early),
        *ids(segments(1, session="third")),
    )
    assert rising([row.sequence for row in page])
    assert page[0].sequence > 0
    assert await store.segments([page[4].segment.id]) == (page[4],)


async def pages_join_into_all(spaces: Spaces) -> None:
    """Pages follow each other without gap or repeat, in both directions."""
    store = await spaces.open()
    new = segments(23)
    await store.write(Batch(at=START, segments=new))
    for descending in (False, True):
        after, seen = 0, []
        while page := await store.page(after=after, limit=5, descending=descending):
            assert len(page) <= 5
            seen += [row.segment.id for row in page]
            assert len(seen) <= len(new), "a page repeats what was shown"
            after = page[-1].sequence
        assert tuple(seen) == (ids(new)[::-1] if descending else ids(new))
    assert await store.page(limit=1, descending=True) == (await store.page())[-1:]


async def many_ids_can_be_asked_at_once(spaces: Spaces) -> None:
    """Asking for more ids than an engine takes as parameters works too."""
    store = await spaces.open()
    new = segments(4)
    await store.write(Batch(at=START, segments=new))
    many = [SegmentId(f"{number:032x}") for number in range(40_000)]
    assert await store.known([*many, *ids(new)]) == frozenset(ids(new))
    stored = await store.segments([*many, *ids(new)])
    assert tuple(row.segment.id for row in stored) == ids(new)


async def any_text_comes_back(spaces: Spaces) -> None:
    """Texts of any script and any length come back character by character."""
    store = await spaces.open()
    long = ("Grüße, 世界 🙂 'quoted' \\ " * 9_000)[:200_000]
    new = conversation((*ODD_TEXTS, long))
    new = (*new, segment(ODD_TEXTS[0], session=ODD_TEXTS[4], tool=ODD_TEXTS[1]))
    written = await store.write(Batch(at=START, segments=new))
    assert written.stored == ids(new)
    stored = await store.segments(ids(new))
    assert [row.segment for row in stored] == [segment.segment for segment in new]
    assert [row.segment for row in await store.page(session=ODD_TEXTS[4])] == [new[-1].segment]


async def passages_are_spans_of_characters(spaces: Spaces) -> None:
    """Passages come back as written, and their texts are cut by characters, not bytes."""
    store = await spaces.open()
    text = "👩‍👩‍👧‍👦 " + "数据库连接失败。请重试🙂 e\u0301 " * 120
    new = segment(text)
    marked = tuple(
        replace(passage, embedded=ordinal != 1) for ordinal, passage in enumerate(passages(text))
    )
    assert len(marked) > 3
    await store.write(Batch(at=START, segments=(replace(new, passages=marked),)))
    stored = await store.passages(new.segment.id)
    assert [(passage.start, passage.end, passage.embedded) for passage in stored] == [
        (passage.start, passage.end, passage.embedded) for passage in marked
    ]
    waiting = await store.unembedded("example-256", limit=100)
    assert {passage.ordinal: passage.text for passage in waiting} == {
        ordinal: text[passage.start : passage.end]
        for ordinal, passage in enumerate(marked)
        if passage.embedded
    }
    assert await store.passages(SegmentId("0" * 32)) == ()


# What holds for much at once: batches of an import, answers over thousands of passages.

_MANY = 2_000


async def large_batch_is_taken(spaces: Spaces) -> None:
    """A batch of two thousand segments is written, found in and forgotten at once."""
    store = await spaces.open()
    new = segments(_MANY, words=6)
    batch = Batch(
        at=START,
        segments=new,
        vectors=(vectors(new),),
        jobs=tuple(NewJob(kind="work", key=f"k{number}") for number in range(_MANY)),
    )
    model = ReferenceModel()
    assert model.write(batch) == (await store.write(batch)).stored
    records = await store.jobs(limit=_MANY * 2)  # the store may have jobs of its own too
    assert sum(record.kind == "work" for record in records) == _MANY
    near = asked("q", like=vector(EMBEDDER + new[77].segment.text))
    words = tuple(dict.fromkeys((*new[5].passages[0].words, *new[1_500].passages[0].words)))
    query = CandidateQuery(words=words, vectors=(near,))
    model.expect(query, await store.candidates(query))
    assert len(await store.unembedded("other", limit=_MANY * 2)) == _MANY
    assert len(await store.vectors(EMBEDDER)) == _MANY
    gone = ids(new[:1_900])
    model.forget(gone)
    done = await store.forget(ForgetOrder(at=START, segments=gone))
    assert len(done.segments) == done.passages == done.vectors == 1_900
    model.expect(query, await store.candidates(query))
    again = await store.write(batch)
    assert (len(again.known), len(again.forgotten)) == (100, 1_900)


async def ties_are_broken_by_id(spaces: Spaces) -> None:
    """Of more equals than are asked for, those with the lowest segment ids are handed over."""
    store = await spaces.open()
    new = tuple(worded(["same"], number=number) for number in range(120))
    equal = VectorSet(
        embedder="e",
        dimensions=256,
        vectors=tuple(
            Vector(segment=segment.segment.id, ordinal=0, values=vector("same")) for segment in new
        ),
    )
    await store.write(Batch(at=START, segments=new, vectors=(equal,)))
    first = sorted(ids(new))[:10]
    near = asked("q", embedder="e")
    by_vector = await store.candidates(CandidateQuery(vectors=(near,), vector_limit=10))
    assert sorted(candidate.segment for candidate in by_vector.passages) == first
    by_words = await store.candidates(CandidateQuery(words=("same",), lexical_limit=10))
    assert sorted(candidate.segment for candidate in by_words.passages) == first
