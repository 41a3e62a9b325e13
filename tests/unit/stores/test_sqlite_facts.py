"""Facts in a SQLite file: what is forgotten leaves no byte."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from pathlib import Path

from tests.store_contract.examples import (
    START,
    asked,
    fact,
    fact_vectors,
    ids,
    segments,
    vector,
)

from recollect.adapters.stores.scoring import word_number
from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.values.batch import DIGEST_JOB, EXTRACT_JOB, Batch, NewJob, extract_key
from recollect.core.values.fact import ExtractedTo, Fact, FactId
from recollect.core.values.recall import FactQuery
from recollect.core.values.upkeep import ForgetOrder

MARK = "xylophonequartz"
KEY = b"k" * 32
ODD = ("port", "\ud800", "世界")


def _raw(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


def test_forgotten_fact_is_in_no_byte(tmp_path: Path) -> None:
    """Nor are its words, its vector, its subject, or the name of its session."""

    async def run() -> None:
        path = tmp_path / "space.db"
        async with await SQLiteStore.open(path, space="mine") as store:
            new = segments(2, session=f"about {MARK}")
            given = fact(
                "f", content=f"{MARK} it is", context=MARK, sources=ids(new[:1]), subject=MARK,
                attribute=MARK, session=f"about {MARK}", foreign=MARK,
            )  # fmt: skip
            vectors = fact_vectors((given,), embedder="e", dimensions=64)
            extracted = (ExtractedTo(session=f"about {MARK}", sequence=1),)
            await store.write(
                Batch(
                    at=START, segments=new, facts=(given,), fact_vectors=(vectors,),
                    extracted=extracted,
                )
            )  # fmt: skip
            values = vectors.vectors[0].values
            number = word_number(MARK).to_bytes(8, "big", signed=True)
            assert values in _raw(path)
            assert number in _raw(path)
            done = await store.forget(ForgetOrder(at=START, sessions=(f"about {MARK}",)))
            assert done.facts == ("f",)
            for left in (MARK.encode(), values[:16], number):
                assert left not in _raw(path)
            assert await store.extracted_to(f"about {MARK}") == 1
            assert (await store.check()).problems == ()

    asyncio.run(run())


def test_forgotten_session_is_named_in_no_byte(tmp_path: Path) -> None:
    """Neither by its jobs, taken or not, nor by facts that outlive it, current or not."""
    name = f"about {MARK}"
    payload = json.dumps({"session": name, "left": True}).encode()
    jobs = (
        NewJob(kind=EXTRACT_JOB, key=extract_key(name, left=True), payload=payload),
        NewJob(kind=EXTRACT_JOB, key=extract_key(name, left=False), payload=payload),
        NewJob(kind=DIGEST_JOB, key="digest", payload=payload),
    )
    facts = (
        fact("hand", session=name, made_by="user"),
        fact("closed", session=name, superseded_by=FactId("hand")),
        fact("rests", session=name, sources=ids(segments(1, session=name))),
    )

    async def run() -> None:
        path = tmp_path / "space.db"
        async with await SQLiteStore.open(path, space="mine") as store:
            new = segments(2, session=name)
            vectors = (fact_vectors(facts, embedder="e", dimensions=8),)
            await store.write(
                Batch(at=START, segments=new, facts=facts, fact_vectors=vectors, jobs=jobs)
            )
            kinds = (EXTRACT_JOB, DIGEST_JOB)
            (lease,) = await store.claim(now=START, lease_seconds=9, kinds=kinds)
            assert MARK.encode() in _raw(path)
            done = await store.forget(ForgetOrder(at=START, sessions=(name,)))
            assert (done.facts, done.jobs) == (("rests",), 3)
            assert not await store.complete(lease, Batch(at=START, jobs=jobs))
            assert MARK.encode() not in _raw(path)
            left = await store.facts(superseded=True)
            assert [(one.id, one.session) for one in left] == [("closed", None), ("hand", None)]
            assert await store.unembedded_facts("e", limit=9) == (), "its vector is as good"
            assert (await store.check()).problems == ()

    asyncio.run(run())


def test_many_of_many_facts_are_in_no_byte(tmp_path: Path) -> None:
    """Pages that were split, joined and moved keep nothing either, nor what was replaced."""
    dice = random.Random(11)
    marks = {number: f"{dice.randrange(16**14):014x}zz" for number in range(0, 300, 5)}
    common = [f"w{number}" for number in range(200)]

    def made(number: int, mark: str) -> Fact:
        words = " ".join([*dice.choices(common, k=dice.choice((4, 15, 120))), mark])
        return fact(f"{dice.randrange(16**8):08x}-{number}", content=words)

    facts = {number: made(number, marks.get(number, "")) for number in range(300)}

    async def run() -> None:
        path = tmp_path / "space.db"
        async with await SQLiteStore.open(path, space="mine") as store:
            for first in range(0, 300, 6):
                some = tuple(facts[number] for number in range(first, first + 6))
                vectors = (fact_vectors(some, embedder="e", dimensions=64),)
                await store.write(Batch(at=START, facts=some, fact_vectors=vectors))
            going = list(marks)
            dice.shuffle(going)
            for number in going[:30]:
                other = replace(facts[number], content="told otherwise", words=("otherwise",))
                await store.write(Batch(at=START, facts=(other,)))
            for first in range(30, len(going), 10):
                named = tuple(facts[number].id for number in going[first : first + 10])
                await store.forget(ForgetOrder(at=START, facts=named))
            await store.forget(ForgetOrder(at=START, facts=(FactId("nobody"),)))
            raw = _raw(path)
            for number, mark in marks.items():
                assert mark.encode() not in raw, number
                made_of = vector("e" + facts[number].content, dimensions=64)
                assert made_of[:24] not in raw, number
            assert vector("e" + facts[1].content, dimensions=64) in raw
            assert (await store.check()).problems == ()

    asyncio.run(run())


def test_another_process_changes_what_is_near(tmp_path: Path) -> None:
    """Vectors in memory are those of the file, whoever wrote it."""

    async def run() -> None:
        path = tmp_path / "space.db"
        given = tuple(fact(f"f{number}") for number in range(6))
        query = FactQuery(vectors=(asked("x", embedder="e", dimensions=8),))
        async with (
            await SQLiteStore.open(path, space="mine") as one,
            await SQLiteStore.open(path, space="mine") as two,
        ):
            for first in range(0, 6, 2):
                some = given[first : first + 2]
                vectors = (fact_vectors(some, embedder="e", dimensions=8),)
                await one.write(Batch(at=START, facts=some, fact_vectors=vectors))
                found = await two.fact_candidates(query)
                assert found == await one.fact_candidates(query)
                assert len(found.facts) == first + 2
            await one.write(Batch(at=START, facts=(replace(given[0], content="otherwise"),)))
            await one.forget(ForgetOrder(at=START, facts=(given[3].id,)))
            found = await two.fact_candidates(query)
            assert [each.fact.id for each in found.facts] == ["f1", "f2", "f4", "f5"]
            assert found == await one.fact_candidates(query)

    asyncio.run(run())
