"""Facts in a SQLite file: what is forgotten leaves no byte."""

import json
from pathlib import Path

from tests.store_contract.examples import START, fact, fact_vectors, ids, segments
from tests.store_contract.harness import claim_all

from recollect.adapters.stores.invariants import word_number
from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.values.batch import EXTRACT_JOB, Batch, NewJob, extract_key
from recollect.core.values.fact import ExtractedTo, FactId
from recollect.core.values.upkeep import ForgetOrder

MARK = "xylophonequartz"


def _raw(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


async def test_forgotten_fact_is_in_no_byte(tmp_path: Path) -> None:
    """Nor are its words, its vector, its subject, or the name of its session."""
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


async def test_forgotten_session_is_named_in_no_byte(tmp_path: Path) -> None:
    """Neither by its jobs, taken or not, nor by facts that outlive it, current or not."""
    name = f"about {MARK}"
    payload = json.dumps({"session": name, "left": True}).encode()
    jobs = (
        NewJob(kind=EXTRACT_JOB, key=extract_key(name, left=True), payload=payload),
        NewJob(kind=EXTRACT_JOB, key=extract_key(name, left=False), payload=payload),
    )
    facts = (
        fact("hand", session=name, made_by="user"),
        fact("closed", session=name, superseded_by=FactId("hand")),
        fact("rests", session=name, sources=ids(segments(1, session=name))),
    )
    path = tmp_path / "space.db"
    async with await SQLiteStore.open(path, space="mine") as store:
        new = segments(2, session=name)
        vectors = (fact_vectors(facts, embedder="e", dimensions=8),)
        await store.write(
            Batch(at=START, segments=new, facts=facts, fact_vectors=vectors, jobs=jobs)
        )
        (lease,) = await claim_all(store, now=START, kinds=(EXTRACT_JOB,), limit=1)
        assert MARK.encode() in _raw(path)
        done = await store.forget(ForgetOrder(at=START, sessions=(name,)))
        assert (done.facts, done.jobs) == (("rests",), 2)
        assert not await store.complete(lease, Batch(at=START, jobs=jobs))
        assert MARK.encode() not in _raw(path)
        left = await store.facts(superseded=True)
        assert [(one.id, one.session) for one in left] == [("closed", None), ("hand", None)]
        assert await store.unembedded_facts("e", limit=9) == (), "its vector is as good"
        assert (await store.check()).problems == ()
