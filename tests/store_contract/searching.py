"""What holds for candidates: exact statistics, the best of both ways, filters before limits."""

import asyncio
from dataclasses import replace

import numpy as np
from tests.store_contract.examples import START, asked, ids, segments, vector, vectors, worded
from tests.store_contract.harness import Spaces
from tests.store_contract.model import ReferenceModel, ask

from recollect.core.ports import Store
from recollect.core.values.batch import Batch
from recollect.core.values.recall import CandidateQuery
from recollect.core.values.segment import NewSegment, SegmentId
from recollect.errors import StoreError

ODD_WORDS = (
    "src/payment/webhook.ts", "v1.2.3", "std::vector", "a", "NEAR", "AND", "NOT", "OR", "near",
    "*", "pre*", ":", "col:word", '"', "'", '""', "it's", "\\", "^", "-minus", "+plus", "(", ")",
    "{", "}", "%", "_", "?", "$1", ",", ";", "--", "数", "数据", "データ", "🙂", "été", "e\u0301",
    "שלום", "naïve", "İ", "ß", "ſ", "x" * 64, "0", "00", "1e5", "null", "true", "rank", "rowid",
)  # fmt: skip


async def _filled(store: Store, *new: NewSegment, **sets: int) -> ReferenceModel:
    """The store and the model with these segments, and vectors by embedder and dimensions."""
    model = ReferenceModel()
    batch = Batch(
        at=START,
        segments=new,
        vectors=tuple(
            vectors(new, embedder=embedder.replace("_", "-"), dimensions=dimensions)
            for embedder, dimensions in sets.items()
        ),
    )
    model.write(batch)
    await store.write(batch)
    return model


async def odd_words_are_words(spaces: Spaces) -> None:
    """A word is found whatever characters it has: no word is an operator, none is split."""
    store = await spaces.open()
    new = [worded([word, "common"], number=number) for number, word in enumerate(ODD_WORDS)]
    new += [
        worded([f"{word}{word}", f"x{word}"], number=1_000 + number)
        for number, word in enumerate(ODD_WORDS)
    ]
    model = await _filled(store, *new)
    for word in ODD_WORDS:
        query = CandidateQuery(words=(word,))
        candidates = await store.candidates(query)
        assert any(candidate.counts.get(word) for candidate in candidates.passages), word
        model.expect(query, candidates)
    await ask(store, model, CandidateQuery(words=ODD_WORDS, lexical_limit=200))


async def _vectors_of(spaces: Spaces, dimensions: int) -> None:
    store = await spaces.open()
    new = segments(150, words=8)
    model = await _filled(store, *new, e=dimensions)
    for place in (3, 70, 149):
        like = vector("e" + new[place].segment.text, dimensions=dimensions)
        for limit in (1, 10, 60):
            near = asked(f"q{place}", embedder="e", dimensions=dimensions, like=like)
            query = CandidateQuery(vectors=(near,), vector_limit=limit)
            candidates = await store.candidates(query)
            model.expect(query, candidates)
            best = max(candidates.passages, key=lambda candidate: candidate.similarities[0] or -1.0)
            assert best.segment == new[place].segment.id


async def best_by_vector_are_found_at_384_dimensions(spaces: Spaces) -> None:
    """With 384 dimensions the nearest passages are found, with their cosine."""
    await _vectors_of(spaces, 384)


async def best_by_vector_are_found_at_3072_dimensions(spaces: Spaces) -> None:
    """With 3,072 dimensions the nearest passages are found, with their cosine."""
    await _vectors_of(spaces, 3_072)


async def filters_come_before_limits(spaces: Spaces) -> None:
    """Session and times are filtered first: the best of the rest fill the limit.

    After and before a time is what it says: what was said at that time is neither.
    """
    store = await spaces.open()
    loud = [
        worded(["target"] * 2 + ["loud"] * (number % 5), number=number, session="loud",
               said_at=START + number)
        for number in range(60)
    ]  # fmt: skip
    quiet = [
        worded(["target"] + ["more"] * (number + 6), number=number, session="quiet",
               said_at=START + 1_000 + number)
        for number in range(20)
    ]  # fmt: skip
    model = await _filled(store, *loud, *quiet, e=256)
    near = asked("q", embedder="e", like=vector("e" + loud[5].segment.text))
    base = CandidateQuery(words=("target",), vectors=(near,), lexical_limit=5, vector_limit=5)
    for query in (
        replace(base, session="quiet"),
        replace(base, session="loud"),
        replace(base, session="unheard of"),
        replace(base, said_after=START + 999.5),
        replace(base, said_before=START + 9.5),
        replace(base, said_after=START + 57.5, said_before=START + 1_001.5),
        replace(base, session="quiet", said_before=START + 1_004.5),
        replace(base, said_after=START + 5_000),
        replace(base, said_after=START + 10, said_before=START + 12),
    ):
        await ask(store, model, query)
        await ask(store, model, replace(query, vectors=()))
        await ask(store, model, replace(query, words=()))


async def similarity_is_a_cosine(spaces: Spaces) -> None:
    """Vectors of any length are compared by their direction."""
    store = await spaces.open()
    new = segments(30)
    given = vectors(new, embedder="e")
    scaled = tuple(
        replace(vector, values=_times(vector.values, 0.25 + number % 7))
        for number, vector in enumerate(given.vectors)
    )
    batch = Batch(at=START, segments=new, vectors=(replace(given, vectors=scaled),))
    model = ReferenceModel()
    model.write(batch)
    await store.write(batch)
    near = asked("q", embedder="e", like=scaled[7].values)
    for factor in (1.0, 9.5):
        longer = replace(near, values=_times(near.values, factor))
        for limit in (3, 30):
            await ask(store, model, CandidateQuery(vectors=(longer,), vector_limit=limit))


def _times(values: bytes, factor: float) -> bytes:
    return (np.frombuffer(values, "<f4") * factor).astype("<f4").tobytes()


async def empty_query_finds_nothing(spaces: Spaces) -> None:
    """A query without words and vector, or of an empty memory, has statistics and no passage."""
    store = await spaces.open()
    model = ReferenceModel()
    for query in (CandidateQuery(), CandidateQuery(words=("any",), vectors=(asked("q"),))):
        await ask(store, model, query)
    model = await _filled(store, *segments(5))
    candidates = await store.candidates(CandidateQuery())
    assert candidates.passages == ()
    assert candidates.documents == 5
    model.expect(CandidateQuery(), candidates)
    await ask(store, model, CandidateQuery(words=("unheard",)))


# What holds for candidates of several embedders at once, and for what a query leaves out.


async def _partly_embedded(store: Store) -> tuple[ReferenceModel, tuple[NewSegment, ...]]:
    """Eighty segments: the first sixty have small vectors, the last forty large ones."""
    new = segments(80, words=10)
    small = vectors(new[:60], embedder="small")
    large = vectors(new[40:], embedder="large", dimensions=384)
    batch = Batch(at=START, segments=new, vectors=(small, large))
    model = ReferenceModel()
    model.write(batch)
    await store.write(batch)
    return model, new


async def several_embedders_are_asked_at_once(spaces: Spaces) -> None:
    """Each vector finds its best; all that is found has the similarities of all, in order."""
    store = await spaces.open()
    model, new = await _partly_embedded(store)
    small = asked("q", embedder="small", like=vector("small" + new[3].segment.text))
    far = vector("large" + new[77].segment.text, dimensions=384)
    large = asked("q", embedder="large", dimensions=384, like=far)
    words = tuple(dict.fromkeys(new[20].passages[0].words[:3]))
    for limits in ((0, 1), (6, 6), (50, 50), (5, 0)):
        query = CandidateQuery(
            words=words, vectors=(small, large), lexical_limit=limits[0], vector_limit=limits[1]
        )
        candidates = await ask(store, model, query)
        turned = await ask(store, model, replace(query, vectors=(large, small)))
        by_place = {
            (candidate.segment, candidate.ordinal): candidate.similarities
            for candidate in turned.passages
        }
        assert {
            (candidate.segment, candidate.ordinal): candidate.similarities[::-1]
            for candidate in candidates.passages
        } == by_place
    candidates = await ask(store, model, CandidateQuery(vectors=(small, large), vector_limit=1))
    assert {candidate.segment for candidate in candidates.passages} == set(ids((new[3], new[77])))
    assert [
        candidate.similarities[1]
        for candidate in candidates.passages
        if candidate.segment == ids(new)[3]
    ] == [None]


async def unknown_embedder_beside_a_known_one(spaces: Spaces) -> None:
    """An embedder that wrote nothing here has None everywhere, and hinders no other."""
    store = await spaces.open()
    model, new = await _partly_embedded(store)
    small = asked("q", embedder="small")
    stranger = asked("q", embedder="unheard of", dimensions=64)
    words = new[50].passages[0].words[:1]
    for vectors_ in ((stranger, small), (small, stranger), (stranger,)):
        query = CandidateQuery(words=words, vectors=vectors_, vector_limit=5)
        candidates = await ask(store, model, query)
        at = vectors_.index(stranger)
        assert candidates.passages
        assert all(candidate.similarities[at] is None for candidate in candidates.passages)


async def wrong_length_names_its_embedder(spaces: Spaces) -> None:
    """Of several vectors the one of a wrong length is an error that names its embedder."""
    store = await spaces.open()
    await _partly_embedded(store)
    query = CandidateQuery(
        vectors=(asked("q", embedder="small"), asked("q", embedder="large", dimensions=128))
    )
    (outcome,) = await asyncio.gather(store.candidates(query), return_exceptions=True)
    assert isinstance(outcome, StoreError), repr(outcome)
    assert "large" in str(outcome)


async def what_is_left_out_crowds_nobody_out(spaces: Spaces) -> None:
    """Segments that a query leaves out are not found, and others fill the limits."""
    store = await spaces.open()
    loud = [worded(["target"] * 3, number=number) for number in range(40)]
    quiet = [worded(["target", "more", "words"], number=100 + number) for number in range(20)]
    new = (*loud, *quiet)
    batch = Batch(at=START, segments=new, vectors=(vectors(new, embedder="e"),))
    model = ReferenceModel()
    model.write(batch)
    await store.write(batch)
    near = asked("q", embedder="e", like=vector("e" + loud[5].segment.text))
    unknown = SegmentId("0" * 32)
    for base in (
        CandidateQuery(words=("target",), lexical_limit=5),
        CandidateQuery(vectors=(near,), vector_limit=5),
        CandidateQuery(words=("target",), vectors=(near,), lexical_limit=9, vector_limit=9),
        CandidateQuery(words=("target",), vectors=(near,), session="talk", lexical_limit=9),
        CandidateQuery(words=("target",), vectors=(near,), said_after=START - 1),
    ):
        for gone in ((), ids(loud), ids(new[::2]), ids(new), (unknown,), (unknown, ids(loud)[5])):
            await ask(store, model, replace(base, leave_out=frozenset(gone)))
    crowded = CandidateQuery(words=("target",), lexical_limit=5, leave_out=frozenset(ids(loud)))
    assert len((await store.candidates(crowded)).passages) == 5
