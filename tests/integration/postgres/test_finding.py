"""The index of words and the signs of vectors find what a slow, exact search finds."""

import asyncio
import random
import time
from dataclasses import replace
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.waiting import wait_until
from tests.store_contract import examples

from recollect.adapters.stores.postgres import vectors
from recollect.adapters.stores.postgres.driver import escape, unescape
from recollect.adapters.stores.postgres.sessions import chunks_from, join_chunks
from recollect.adapters.stores.postgres.store import PostgresFleet
from recollect.adapters.stores.postgres.vectors import Layout
from recollect.core.ports import Store
from recollect.core.search.bm25 import Bm25Index
from recollect.core.turn.ingest import index
from recollect.core.values.batch import Batch
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.recall import AskedVector, CandidateQuery, Candidates
from recollect.core.values.segment import NewSegment, Vector, VectorSet
from recollect.core.values.upkeep import ForgetOrder
from recollect_bench.postgres_server import TestDatabase

VOCABULARY = [f"w{number}" for number in range(3_000)]


def documents(count: int, seed: int = 1) -> list[list[str]]:
    """Texts whose words are as unequally frequent as those of a language."""
    chance = random.Random(seed)
    weights = [1 / (rank + 5) for rank in range(len(VOCABULARY))]
    return [chance.choices(VOCABULARY, weights, k=chance.randint(5, 90)) for _ in range(count)]


async def test_candidates_are_those_of_exact_bm25_packed_merged_and_withdrawn(
    database: TestDatabase,
) -> None:
    said = documents(5_000)
    new = [
        examples.worded(words, number=number, session=f"s{number // 500}", said_at=float(number))
        for number, words in enumerate(said)
    ]
    fleet = await PostgresFleet.open(database.app_url)
    store = await fleet.space("one")
    for start in range(0, 4_800, 400):
        await store.write(Batch(at=1.0, segments=tuple(new[start : start + 400])))
        if start % 800 == 0:
            assert await store.pack(least=1)
    jobs = await store.jobs()
    assert [job.kind for job in jobs] == ["pack"]
    await _compare(store, said[:4_800], new)
    await store.pack(least=1)
    await store.write(Batch(at=1.0, segments=tuple(new[4_800:])))
    await _compare(store, said, new)
    assert (await store.check()).problems == ()
    left = [one.segment.id for one in new[:1_500]]
    assert await store.withdraw(left) == 1_500
    await _compare(store, said[1_500:], new[1_500:])
    gone = tuple(one.segment.id for one in new[1_500:1_700])
    await store.forget(ForgetOrder(at=1.0, segments=gone))
    await _compare(store, said[1_700:], new[1_700:])
    assert (await store.check()).problems == ()
    while await store.pack(least=1):
        pass
    await _compare(store, said[1_700:], new[1_700:])
    await fleet.close()


async def _compare(store: Store, said: list[list[str]], new: list[NewSegment]) -> None:
    index = Bm25Index.build(said)
    chance = random.Random(len(said))
    for _ in range(6):
        asked = tuple(dict.fromkeys([*chance.choices(VOCABULARY[:900], k=6), "w0"]))
        answer = await store.candidates(CandidateQuery(words=asked, lexical_limit=40))
        assert answer.documents == index.documents
        assert answer.document_frequencies == {
            word: index.document_frequencies.get(word, 0) for word in asked
        }
        best = index.top(asked, 41)
        edge = best[39][1]
        sure = {new[place].segment.id for place, score in best if score > edge + 1e-9}
        found = {one.segment for one in answer.passages}
        assert sure <= found
        assert len(found) == 40


async def test_passages_without_a_vector_are_found(database: TestDatabase) -> None:
    new = examples.segments(2_600, words=3)
    made = examples.vectors(new, embedder="e")
    left_out = new[2_400].segment.id
    some = replace(made, vectors=tuple(one for one in made.vectors if one.segment != left_out))
    fleet = await PostgresFleet.open(database.app_url)
    store = await fleet.space("one")
    await store.write(Batch(at=1.0, segments=new, vectors=(some,)))
    for _ in range(3):
        missing = await store.unembedded("e", limit=10)
        assert [one.segment for one in missing] == [left_out]
    await store.withdraw([left_out])
    assert await store.unembedded("e", limit=10) == ()
    await store.write(Batch(at=1.0, segments=examples.segments(1, first=9_000)))
    assert len(await store.unembedded("e", limit=10)) == 1
    assert (await store.check()).problems == ()
    await fleet.close()


async def test_the_passages_of_a_long_message_are_read_with_its_text_once(
    database: TestDatabase,
) -> None:
    text = "\n".join(f"Line {number} of a log of two megabytes." * 10 for number in range(5_000))
    segment = replace(examples.segments(1)[0].segment, text=text)
    said = NewSegment(segment=segment, passages=index(segment))
    fleet = await PostgresFleet.open(database.app_url)
    store = await fleet.space("one")
    await store.write(Batch(at=1.0, segments=(said,)))
    await store.unembedded("e", limit=1)
    began = time.perf_counter()
    missing = await store.unembedded("e", limit=400)
    assert time.perf_counter() - began < 1.0  # 3 s with the text beside every passage
    assert [one.text for one in missing] == [
        text[one.start : one.end] for one in said.passages[:400]
    ]
    await fleet.close()


@pytest.mark.parametrize("dimensions", [256, 384])
async def test_signs_find_what_comparing_all_vectors_finds(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch, dimensions: int
) -> None:
    new = examples.segments(3_000, words=3)
    directions = clustered(len(new) + 20, dimensions)
    made = VectorSet(
        embedder="e",
        dimensions=dimensions,
        vectors=tuple(
            Vector(segment=one.segment.id, ordinal=0, values=directions[place].tobytes())
            for place, one in enumerate(new)
        ),
    )
    fleet = await PostgresFleet.open(database.app_url)
    store = await fleet.space("one")
    await store.write(Batch(at=1.0, segments=new, vectors=(made,)))
    shares = []
    for asked in directions[len(new) :]:
        near = AskedVector(embedder="e", values=asked.tobytes())
        query = CandidateQuery(vectors=(near,), vector_limit=50)
        monkeypatch.setattr(vectors, "EXACT_NUMBERS", 4_000 * 384)
        exact = await store.candidates(query)
        monkeypatch.setattr(vectors, "EXACT_NUMBERS", 0)
        by_signs = await store.candidates(query)
        best = {one.segment for one in exact.passages}
        shares.append(len(best & {one.segment for one in by_signs.passages}) / len(best))
        early = new[1_500].segment.said_at
        some = await store.candidates(replace(query, said_before=early))
        assert {one.said_at < early for one in some.passages} == {True}
        assert len(some.passages) == 50
    await fleet.close()
    assert np.mean(shares) > 0.97, shares


def sessions(*named: str, each: int = 1) -> tuple[NewSegment, ...]:
    return tuple(
        examples.worded(["target", f"w{at}"], number=100 * place + at, session=session)
        for place, session in enumerate(named)
        for at in range(each)
    )


def found_in(answer: Candidates) -> set[str]:
    return {one.session for one in answer.passages}


@pytest.mark.parametrize("way", ["exactly", "by signs"])
async def test_files_are_found_beside_a_session_whatever_their_names_hold(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "by signs":
        monkeypatch.setattr(vectors, "EXACT_NUMBERS", 0)
    files = {"file:", "file:\ud800", "file:\x00", "file:\x1a", "file:\udfff数"}
    others = {"file", "files", "file\x00:", "file\ud800:", "\ud800file:", "file\x1a:", "other"}
    new = sessions("talk", *sorted(files | others), each=40)
    fleet = await PostgresFleet.open(database.app_url)
    store = await fleet.space("one")
    made = (examples.vectors(new, embedder="e", dimensions=64),)
    await store.write(Batch(at=1.0, segments=new, vectors=made))
    near = examples.asked("q", embedder="e", dimensions=64)
    query = CandidateQuery(words=("target",), lexical_limit=900, session="talk")
    query = replace(query, with_files=True)
    by_vector = replace(query, words=(), vectors=(near,), vector_limit=900)
    for one in (query, by_vector, replace(query, said_before=examples.START + 1)):
        assert found_in(await store.candidates(one)) == files | {"talk"}
        odd = replace(one, session="file\x00:")
        assert found_in(await store.candidates(odd)) == files | {"file\x00:"}
    # All of them are looked through where the best are few.
    few = await store.candidates(replace(by_vector, vector_limit=7))
    assert len(few.passages) == 7
    assert found_in(few) <= files | {"talk"}
    await fleet.close()


def clustered(count: int, dimensions: int) -> Any:
    """Vectors as embedders make them: in groups, not spread evenly over all directions."""
    chance = np.random.default_rng(dimensions)
    centres = chance.standard_normal((60, dimensions))
    given = centres[chance.integers(60, size=count)]
    spread = given + chance.standard_normal((count, dimensions)) * 0.9
    return (spread / np.linalg.norm(spread, axis=1, keepdims=True)).astype("<f4")


@given(st.text(st.characters(codec=None)))
def test_any_text_can_be_written(text: str) -> None:
    stored = escape(text)
    assert "\x00" not in stored
    assert stored.encode().decode() == stored
    assert unescape(stored) == text


@pytest.mark.parametrize("dimensions", [1, 8, 100, 256, 384, 3_072, 16_000])
def test_a_block_of_signs_fits_a_page(dimensions: int) -> None:
    layout = Layout(dimensions)
    assert len(layout.empty().tobytes()) <= 8_000
    assert layout.slots >= 1


@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=40)), max_size=600))
def test_a_path_comes_back_from_its_chunks(entries: list[tuple[str, str]]) -> None:
    keys, ids = [key for key, _ in entries], [id_ for _, id_ in entries]
    chunks = chunks_from(0, keys, ids)
    assert join_chunks(raw for _, raw in chunks) == (
        tuple(map(EntryKey, keys)),
        tuple(map(MessageId, ids)),
    )


async def test_a_small_space_does_not_read_the_vectors_of_a_large_one(
    database: TestDatabase,
) -> None:
    """A plan that the server made for searches of the large space would read all vectors."""
    fleet = await PostgresFleet.open(database.app_url, pool_size=1)
    directions = clustered(3_001, 64)
    query = CandidateQuery(
        vectors=(AskedVector(embedder="e", values=directions[-1].tobytes()),), vector_limit=10
    )

    async def search(space: str, times: int) -> None:
        store = await fleet.space(space)
        for _ in range(times):
            assert len((await store.candidates(query)).passages) == 10

    for space, count in (("large", 3_000), ("small", 20)):
        new = examples.segments(count, words=3)
        found = tuple(
            Vector(segment=one.segment.id, ordinal=0, values=directions[place].tobytes())
            for place, one in enumerate(new)
        )
        given = VectorSet(embedder="e", dimensions=64, vectors=found)
        store = await fleet.space(space)
        await store.write(Batch(at=1.0, segments=new, vectors=(given,)))
    with psycopg.connect(database.admin_url, autocommit=True) as admin:

        def scans() -> int:
            (count,) = admin.execute(
                "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'vectors'"
            ).fetchone() or (0,)
            return int(count)

        admin.execute("VACUUM ANALYZE")
        await search("large", 8)
        await asyncio.sleep(1.1)  # a connection counts its scans once per second, and at its end
        await search("large", 1)
        before = scans()
        await search("small", 3)
        await fleet.close()
        connected = "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
        wait_until(lambda: not admin.execute(connected, [database.name]).fetchall())
        assert scans() == before
