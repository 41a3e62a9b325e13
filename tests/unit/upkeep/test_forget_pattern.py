"""A pattern takes what it matches and nothing that only holds the same letters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from tests.store_contract import examples

from recollect.adapters.wiring import open_store
from recollect.core.formats.stored_records import read_batch, write_batch
from recollect.core.ports import Store
from recollect.core.upkeep.forget import find_meant, forget
from recollect.core.upkeep.matching import ForgetSet
from recollect.core.values.batch import EXTRACT_JOB, Batch, NewJob, extract_key
from recollect.core.values.edit import Insert
from recollect.core.values.fact import EvidenceSpan, ExtractedTo
from recollect.core.values.reason import NOT_RUN
from recollect.core.values.segment import SegmentId
from recollect.core.values.upkeep import BODY_KINDS, ForgetOrder

AT = 1_760_011_200.0


def run(folder: Path, scenario: Callable[[Store], Awaitable[None]]) -> None:
    async def whole() -> None:
        store = await open_store(str(folder / "space.db"), space="alice")
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(whole())


async def held(store: Store) -> str:
    pages = [await store.held(kind) for kind in BODY_KINDS]
    return "\n".join([one.body.decode() for page in pages for one in page])


def prompt(text: str) -> str:
    return json.dumps({"role": "system", "content": text})


def test_a_record_that_the_pattern_does_not_match_stays(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        quoting = Insert(
            anchor=None, placement="head", text="the channel of Anna", stage="inject",
            reason=NOT_RUN, turn=1,
        )  # fmt: skip
        said = examples.conversation(["The tide is low."])
        pieces = ("planning the channel", "Ann", "Ann leads the crew")
        batch = Batch(
            at=AT,
            segments=said,
            pieces=tuple(examples.piece(prompt(text), kind="system") for text in pieces),
            jobs=(
                NewJob(kind="later", key="a", payload=b'{"text": "annual plan"}', run_at=2e9),
                NewJob(kind="later", key="b", payload=b'{"text": "ask Ann"}', run_at=2e9),
            ),
            session=examples.session_write(said, turn=1, edits=(quoting,)),
        )
        await store.write(batch)
        order = ForgetOrder(at=AT, pattern=r"\bAnn\b")
        meant = await find_meant(store, [], order)
        assert (meant.messages, meant.records, meant.nothing) == (0, 3, False)
        certificate = await forget(store, [], order, now=AT)
        left = await held(store)
        for stays in ("planning the channel", "annual plan", "the channel of Anna"):
            assert stays in left
        assert "Ann " not in left
        assert 'Ann"' not in left
        assert "Ann leads" not in left
        assert certificate.counts["ledger pieces"] == 2
        assert certificate.counts["jobs"] == 1
        assert certificate.counts["session states changed"] == 0
        assert (await find_meant(store, [], order)).nothing
        await store.write(replace(batch, session=None))
        assert "Ann leads" not in await held(store), "it does not come back"

    run(tmp_path, scenario)


def test_facts_and_digests_that_rest_on_what_goes_are_counted_before(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        new = examples.conversation(["Nightfall begins.", "The tide is low."])
        first, second = examples.ids(new)
        twice = examples.conversation(["Hello.", "The tide is low."], session="other")
        facts = (
            examples.fact("rests", sources=[first]),
            examples.fact("both", sources=[first, second]),
            examples.fact("digest", sources=[first, second], type="digest", joint=True),
            examples.fact("tide", sources=[second]),
        )
        await store.write(Batch(at=AT, segments=(*new, *twice), facts=facts))
        for order, expected in (
            (ForgetOrder(at=AT, matching="Nightfall"), {"rests", "digest"}),
            (ForgetOrder(at=AT, segments=(second,)), {"digest", "tide"}),
            (ForgetOrder(at=AT, sessions=(new[0].segment.session,)), {"rests", "digest"}),
        ):
            meant = await find_meant(store, [], order)
            assert {str(fact.id) for fact in meant.facts} == expected, order
        order = ForgetOrder(at=AT, sessions=(new[0].segment.session,))
        assert (await find_meant(store, [], order)).messages == 2
        assert (await forget(store, [], order, now=AT)).counts["facts"] == 2
        assert {str(fact.id) for fact in await store.facts()} == {"both", "tide"}, "said elsewhere"

    run(tmp_path, scenario)


def test_a_forgotten_session_leaves_no_reading_and_no_name_in_the_spool() -> None:
    jobs = [
        NewJob(
            kind=EXTRACT_JOB,
            key=extract_key(name, left=left),
            payload=json.dumps({"session": name}).encode(),
        )
        for name in ("monday", "tuesday")
        for left in (False, True)
    ]
    fact = replace(examples.fact("f"), session="monday")
    batch = Batch(
        at=AT,
        jobs=tuple(jobs),
        facts=(fact,),
        extracted=(ExtractedTo(session="monday", sequence=3),),
    )
    record = ForgetSet(order=ForgetOrder(at=AT, sessions=("monday",))).remove(write_batch(batch))
    assert record is not None
    assert b"monday" not in record
    left = read_batch(record)
    assert [job.key for job in left.jobs] == [job.key for job in jobs[2:]]
    assert [one.session for one in left.facts] == [None]
    by_time = ForgetSet(order=ForgetOrder(at=AT, sessions=("monday",), said_before=1.0))
    assert by_time.remove(write_batch(batch)) == write_batch(batch)


def test_spooled_facts_lose_what_they_rest_on_by_the_stores_own_rule() -> None:
    new = examples.conversation(["The crane is new.", "The tide is low."])
    gone, stays = examples.ids(new)
    spans = tuple(EvidenceSpan(segment=SegmentId(one), start=0, end=3) for one in (gone, stays))
    only_span = examples.fact("span", evidence=spans[:1])
    both = examples.fact("both", sources=[stays], evidence=spans)
    batch = Batch(at=AT, segments=new, facts=(only_span, both))
    order = ForgetOrder(at=AT, segments=(gone,))
    record = ForgetSet(order=order, segments={gone}).remove(write_batch(batch))
    assert record is not None
    assert [(one.id, one.evidence) for one in read_batch(record).facts] == [("both", spans[1:])]
