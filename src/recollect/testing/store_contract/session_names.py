"""What holds for the name of a session: any name can be kept, and a forgotten one is nowhere."""

from __future__ import annotations

import json
from dataclasses import replace

from recollect.testing.store_contract.examples import START, fact, fact_vectors, ids, segment
from recollect.testing.store_contract.harness import Spaces
from recollect.values.batch import DIGEST_JOB, EXTRACT_JOB, Batch, NewJob, extract_key
from recollect.values.recall import FactQuery
from recollect.values.upkeep import ForgetOrder

AT = START + 1_000
ODD_NAMES = ("a\ud800b", "a\x00b", "", "talk 世界 '\\", "x" * 3_000)


def _reading(session: str, *, left: bool = False) -> NewJob:
    payload = json.dumps({"session": session, "left": left}).encode()
    return NewJob(
        kind=EXTRACT_JOB, key=extract_key(session, left=left), payload=payload, run_at=START
    )


def _digesting(session: str | None) -> NewJob:
    named = json.dumps({"subject": "ports", "session": session}, ensure_ascii=False)
    payload = named.encode("utf-8", "surrogatepass")
    return NewJob(kind=DIGEST_JOB, key=f"of {session}", payload=payload, run_at=START)


async def any_name_can_be_a_job(spaces: Spaces) -> None:
    """Whatever a session is called, its turn is stored with its jobs, which come back as such."""
    store = await spaces.open()
    for number, name in enumerate(ODD_NAMES):
        new = segment(f"said {number}", session=name)
        job = NewJob(kind="work", key=name, payload=name.encode("utf-8", "surrogatepass"))
        jobs = (_reading(name), job, job)
        assert (await store.write(Batch(at=START, segments=(new,), jobs=jobs))).stored
        await store.write(Batch(at=START, jobs=(job,)))
    assert {one.key for one in await store.jobs() if one.kind == "work"} == set(ODD_NAMES)
    assert (await store.queue()).waiting == 2 * len(ODD_NAMES)
    leases = await store.claim(now=AT, lease_seconds=9, kinds=("work",), limit=99)
    assert {one.key: one.payload for one in leases} == {
        name: name.encode("utf-8", "surrogatepass") for name in ODD_NAMES
    }
    assert await store.fail(leases[0], reason="odd", retry_at=AT)
    for lease in leases[1:]:
        assert await store.complete(lease, Batch(at=AT))
    (again,) = await store.claim(now=AT, lease_seconds=9, kinds=("work",), limit=99)
    assert again.key == leases[0].key


async def jobs_of_a_forgotten_session_go(spaces: Spaces) -> None:
    """Waiting, leased and dead jobs that name it go with a session, or with its last message by
    time; one that was taken has no effect any more. Those of others stay."""
    for place, name in enumerate(("private", *ODD_NAMES[:2])):
        for by_time in (False, True):
            store = await spaces.open(f"{place}-{by_time}")
            said = tuple(segment(f"hello {one}", session=one) for one in (name, "other"))
            later = segment("later", session="other", said_at=AT)
            mine = (_reading(name), _reading(name, left=True), _digesting(name))
            rest = (_reading("other"), _digesting("other"), _digesting(None))
            await store.write(Batch(at=START, segments=(*said, later), jobs=mine))
            taken = await store.claim(
                now=START, lease_seconds=60, kinds=(EXTRACT_JOB, DIGEST_JOB), limit=9
            )
            assert await store.fail(taken[0], reason="no", retry_at=None)
            await store.write(Batch(at=START, jobs=(*mine, *rest)))
            order = ForgetOrder(at=AT, sessions=(name,))
            if by_time:
                order = ForgetOrder(at=AT, said_before=START + 1)
            done = await store.forget(order)
            assert done.jobs == 6
            left = await store.jobs()
            assert sorted(one.key for one in left) == sorted(one.key for one in rest)
            effect = Batch(at=AT, jobs=(_reading(name),), facts=(fact("late"),))
            for lease in taken:
                assert not await store.complete(lease, effect)
                assert not await store.fail(lease, reason="no", retry_at=AT)
            assert await store.jobs() == left
            await spaces.finish(store)


async def no_fact_names_a_forgotten_session(spaces: Spaces) -> None:
    """Facts that outlive a session belong to the whole space, and are found as before; those of
    others, and of a session that lost some messages, do not change."""
    store = await spaces.open()
    here = segment("the port is 8080", session="gone")
    there = segment("the port is 8080", session="stays")
    more = segment("and the host is ours", session="stays", said_at=AT)
    facts = (
        fact("twin", sources=ids((here,)), session="gone"),
        fact("by hand", at=START + 1, session="gone", made_by="user"),
        fact("closed", at=START + 2, session="gone", valid_to=AT),
        fact("other", at=START + 3, session="stays"),
        fact("of all", at=START + 4),
    )
    vectors = (fact_vectors(facts),)
    batch = Batch(at=START, segments=(here, there, more), facts=facts, fact_vectors=vectors)
    await store.write(batch)
    revision = await store.facts_revision()
    await store.forget(ForgetOrder(at=AT, sessions=("gone",)))
    expected = [
        replace(facts[0], sources=ids((there,)), session=None),
        *(replace(one, session=None) for one in facts[1:3]),
        *facts[3:],
    ]
    assert list(await store.facts(superseded=True)) == expected
    assert await store.facts_revision() > revision
    found = await store.fact_candidates(FactQuery(words=("fact",), session="elsewhere"))
    assert {one.fact.id for one in found.facts} == {"twin", "by hand", "of all"}
    await store.forget(ForgetOrder(at=AT, said_before=AT))
    assert [one.session for one in await store.facts([facts[3].id])] == ["stays"]
    await store.forget(ForgetOrder(at=AT, said_after=AT))
    assert [one.session for one in await store.facts([facts[3].id])] == [None]
