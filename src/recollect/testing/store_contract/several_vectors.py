"""What holds for candidates of several embedders at once, and for what a query leaves out."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from recollect.errors import StoreError
from recollect.ports import Store
from recollect.testing.store_contract.examples import (
    START,
    asked,
    ids,
    segments,
    vector,
    vectors,
    worded,
)
from recollect.testing.store_contract.harness import Spaces
from recollect.testing.store_contract.model import Model
from recollect.values.batch import Batch
from recollect.values.recall import CandidateQuery, Candidates
from recollect.values.segment import NewSegment, SegmentId


async def _partly_embedded(store: Store) -> tuple[Model, tuple[NewSegment, ...]]:
    """Eighty segments: the first sixty have small vectors, the last forty large ones."""
    new = segments(80, words=10)
    small = vectors(new[:60], embedder="small")
    large = vectors(new[40:], embedder="large", dimensions=384)
    batch = Batch(at=START, segments=new, vectors=(small, large))
    model = Model()
    model.write(batch)
    await store.write(batch)
    return model, new


async def _ask(store: Store, model: Model, query: CandidateQuery) -> Candidates:
    found = await store.candidates(query)
    model.expect(query, found)
    return found


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
        found = await _ask(store, model, query)
        turned = await _ask(store, model, replace(query, vectors=(large, small)))
        by_place = {(one.segment, one.ordinal): one.similarities for one in turned.passages}
        assert {
            (one.segment, one.ordinal): one.similarities[::-1] for one in found.passages
        } == by_place
    found = await _ask(store, model, CandidateQuery(vectors=(small, large), vector_limit=1))
    assert {one.segment for one in found.passages} == set(ids((new[3], new[77])))
    assert [one.similarities[1] for one in found.passages if one.segment == ids(new)[3]] == [None]


async def unknown_embedder_beside_a_known_one(spaces: Spaces) -> None:
    """An embedder that wrote nothing here has None everywhere, and hinders no other."""
    store = await spaces.open()
    model, new = await _partly_embedded(store)
    small = asked("q", embedder="small")
    stranger = asked("q", embedder="unheard of", dimensions=64)
    words = new[50].passages[0].words[:1]
    for vectors_ in ((stranger, small), (small, stranger), (stranger,)):
        query = CandidateQuery(words=words, vectors=vectors_, vector_limit=5)
        found = await _ask(store, model, query)
        at = vectors_.index(stranger)
        assert found.passages
        assert all(one.similarities[at] is None for one in found.passages)


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
    model = Model()
    model.write(batch)
    await store.write(batch)
    near = asked("q", embedder="e", like=vector("e" + loud[5].segment.text))
    unknown = SegmentId("0" * 32)
    for base in (
        CandidateQuery(words=("target",), lexical_limit=5),
        CandidateQuery(vectors=(near,), vector_limit=5),
        CandidateQuery(words=("target",), vectors=(near,), lexical_limit=9, vector_limit=9),
        CandidateQuery(words=("target",), vectors=(near,), session="talk", lexical_limit=9),
        CandidateQuery(words=("target",), vectors=(near,), said_after=START - 1, cold=True),
    ):
        for gone in ((), ids(loud), ids(new[::2]), ids(new), (unknown,), (unknown, ids(loud)[5])):
            await _ask(store, model, replace(base, leave_out=frozenset(gone)))
    crowded = CandidateQuery(words=("target",), lexical_limit=5, leave_out=frozenset(ids(loud)))
    assert len((await store.candidates(crowded)).passages) == 5


async def leaving_out_changes_no_statistics(spaces: Spaces) -> None:
    """Documents, lengths and frequencies are those of the space, whatever is left out."""
    store = await spaces.open()
    model, new = await _partly_embedded(store)
    await store.evict(max_segments=60, said_before=None)
    model.evict_to(60)
    words = tuple(dict.fromkeys(new[70].passages[0].words))
    query = CandidateQuery(words=words, vectors=(asked("q", embedder="small"),))
    for cold in (False, True):
        whole = await _ask(store, model, replace(query, cold=cold))
        left = frozenset(ids(new[10:75]))
        rest = await _ask(store, model, replace(query, cold=cold, leave_out=left))
        assert rest.documents == whole.documents
        assert rest.average_length == whole.average_length
        assert dict(rest.document_frequencies) == dict(whole.document_frequencies)
