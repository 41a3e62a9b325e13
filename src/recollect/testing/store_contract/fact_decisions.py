"""What holds for decisions about facts when what they were read from changes meanwhile."""

from __future__ import annotations

from dataclasses import replace

from recollect.errors import StaleFacts
from recollect.ports import Store
from recollect.testing.store_contract.examples import (
    START,
    fact,
    ids,
    passages,
    segment,
    segments,
)
from recollect.testing.store_contract.harness import Spaces
from recollect.values.batch import Batch
from recollect.values.fact import Fact, FactId
from recollect.values.segment import NewSegment
from recollect.values.upkeep import ForgetOrder, RewriteOrder

AT = START + 1_000


def _replaced(old: Fact, new: Fact) -> Fact:
    return replace(old, superseded_by=new.id, valid_to=new.at)


def _saying(new: NewSegment, said: str) -> NewSegment:
    return NewSegment(segment=replace(new.segment, text=said), passages=passages(said))


async def _refused(store: Store, batch: Batch) -> bool:
    try:
        await store.write(batch)
    except StaleFacts:
        return True
    return False


async def changed_segments_make_decisions_stale(spaces: Spaces) -> None:
    """What was read from segments that were forgotten, withdrawn or rewritten since is refused;
    where none was there, nothing moved."""
    for way in ("forget", "forget a session", "forget by time", "withdraw", "rewrite"):
        store = await spaces.open(way.replace(" ", "-"))
        new = segments(2)
        await store.write(Batch(at=START, segments=new))
        revision = await store.facts_revision()

        async def change(store: Store = store, way: str = way, new: NewSegment = new[0]) -> None:
            one = new.segment
            if way == "withdraw":
                await store.withdraw([one.id], at=AT)
            elif way == "rewrite":
                await store.rewrite(RewriteOrder(at=AT, segments=(_saying(new, "withheld"),)))
            else:
                await store.forget(
                    ForgetOrder(
                        at=AT,
                        segments=(one.id,) if way == "forget" else (),
                        sessions=(one.session,) if way == "forget a session" else (),
                        said_before=one.said_at + 0.1 if way == "forget by time" else None,
                    )
                )

        await change()
        decided = fact("decided", sources=ids(new[:1]))
        late = Batch(at=AT, facts=(decided,), facts_revision=revision)
        assert await _refused(store, late), way
        assert await store.facts(superseded=True) == ()
        revision = await store.facts_revision()
        if way != "rewrite":
            await change()
        nobody = segment("nobody said it", session="elsewhere")
        await store.withdraw(ids((nobody,)), at=AT)
        await store.rewrite(RewriteOrder(at=AT, segments=(nobody,)))
        await store.forget(ForgetOrder(at=AT, segments=ids((nobody,)), sessions=("elsewhere",)))
        assert await store.facts_revision() == revision, way


async def nothing_is_closed_for_what_is_refused(spaces: Spaces) -> None:
    """A fact whose successor the batch may not write stays as it is, and a new one holds."""
    store = await spaces.open()
    said = segments(2)
    old, kept = fact("old", sources=ids(said[:1])), fact("kept", sources=ids(said[:1]))
    await store.write(Batch(at=START, segments=said, facts=(old, kept)))
    await store.forget(ForgetOrder(at=AT, segments=ids(said[1:]), facts=(FactId("named"),)))
    unsaid = fact("unsaid", at=AT, sources=ids(said[1:]), change="supersede")
    named = fact("named", at=AT, change="supersede")
    fresh = fact("fresh", at=START + 1)
    batch = Batch(
        at=AT,
        facts=(
            unsaid,
            named,
            _replaced(old, unsaid),
            _replaced(kept, named),
            _replaced(fresh, unsaid),
        ),
    )
    for _ in range(2):
        await store.write(batch)
        assert {one.id: one for one in await store.facts(superseded=True)} == {
            "old": old, "kept": kept, "fresh": fresh,
        }  # fmt: skip
    good = fact("good", at=AT, change="supersede")
    await store.write(Batch(at=AT, facts=(_replaced(old, good), good)))
    assert [one.id for one in await store.facts()] == ["kept", "fresh", "good"]


async def closing_outlives_its_successor(spaces: Spaces) -> None:
    """A fact that was closed stays so when its successor is forgotten, whatever comes again."""
    store = await spaces.open()
    old, new = fact("old"), fact("new", at=START + 1, change="supersede")
    batch = Batch(at=START, facts=(_replaced(old, new), new))
    await store.write(batch)
    await store.forget(ForgetOrder(at=AT, facts=(new.id,)))
    await store.write(batch)
    assert await store.facts() == ()
    assert await store.facts(superseded=True) == (_replaced(old, new),)
