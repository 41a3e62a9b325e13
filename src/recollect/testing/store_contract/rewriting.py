"""What holds for replacing stored texts: who they are stays, what they said is gone."""

from __future__ import annotations

from dataclasses import replace

from recollect.ports import Store
from recollect.testing.store_contract.examples import (
    EMBEDDER,
    SESSION,
    START,
    asked,
    compaction,
    full_batch,
    ids,
    passages,
    piece,
    segment,
    segments,
    vectors,
)
from recollect.testing.store_contract.harness import Spaces, contents
from recollect.testing.store_contract.model import Model
from recollect.values.batch import Batch, NewJob
from recollect.values.recall import CandidateQuery
from recollect.values.segment import NewSegment
from recollect.values.upkeep import ROOMS, ForgetOrder, NewBody, RewriteOrder, Room, StoredBody

AT = START + 5_000
TOLD = "xyzzyplover"


def _saying(new: NewSegment, said: str) -> NewSegment:
    """The same segment with another text."""
    kept = replace(new.segment, text=said, topics=("changed",), foreign=None)
    return NewSegment(segment=kept, passages=passages(said))


async def _held(store: Store, room: Room, *, limit: int = 3) -> list[StoredBody]:
    found: list[StoredBody] = []
    after: str | None = None
    while page := await store.held(room, after=after, limit=limit):
        assert len(page) <= limit
        assert all(one.room == room for one in page)
        found += page
        after = page[-1].id
    return found


async def rewritten_segments_are_found_by_their_new_words_alone(spaces: Spaces) -> None:
    """A segment keeps its id and place; its old words and vectors are gone, warm and cold."""
    store, model = await spaces.open(), Model()
    old = segments(6, words=40)
    telling = tuple(
        _saying(one, f"{one.segment.text} the word is {TOLD}") if number % 2 else one
        for number, one in enumerate(old)
    )
    noise = segment("hm", session="noise", noise="filler", said_at=START + 100)
    batch = Batch(at=START, segments=(*telling, noise), vectors=(vectors(telling),))
    await store.write(batch)
    await store.evict(max_segments=4, said_before=None)
    before = {row.segment.id: row.sequence for row in await store.page(limit=100)}
    cold = {row.segment.id for row in await store.page(limit=100) if row.cold}
    assert cold, "some went cold"
    quiet = tuple(_saying(one, one.segment.text.replace(TOLD, "withheld")) for one in telling[1::2])
    unknown = segment("nobody knows this one", session="elsewhere")
    done = await store.rewrite(RewriteOrder(at=AT, segments=(*quiet, unknown)))
    assert done.segments == ids(quiet)
    assert done.vectors == sum(len(one.passages) for one in quiet)
    now = {one.segment.id: one for one in quiet}
    told = tuple(now.get(one.segment.id, one) for one in telling)
    model.write(Batch(at=START, segments=(*told, noise), vectors=(vectors(telling[::2]),)))
    model.cold |= cold
    for query in (
        CandidateQuery(words=(TOLD, "withheld"), vectors=(asked("q"),), cold=True),
        CandidateQuery(words=tuple(dict.fromkeys(told[1].passages[0].words)), lexical_limit=99),
    ):
        model.expect(query, await store.candidates(query))
    page = await store.page(limit=100)
    assert {row.segment.id: row.sequence for row in page} == before
    assert [row.segment for row in page] == [one.segment for one in (*told, noise)]
    kept = {(one.segment, one.ordinal): one.values for one in await store.vectors(EMBEDDER)}
    assert kept == model.vectors.get(EMBEDDER, {})
    stats = await store.stats()
    assert stats.passages == sum(len(one.passages) for one in told)
    unembedded = await store.unembedded(EMBEDDER, limit=99)
    assert {one.segment for one in unembedded} == set(ids(quiet)) - cold, "to be embedded anew"


async def rewritten_segments_stay_known(spaces: Spaces) -> None:
    """What is sent again does not bring the old text back."""
    store = await spaces.open()
    new = segments(3)
    await store.write(Batch(at=START, segments=new))
    quiet = _saying(new[1], "withheld")
    await store.rewrite(RewriteOrder(at=AT, segments=(quiet,)))
    again = await store.write(Batch(at=AT, segments=new))
    assert again.known == ids(new)
    (held,) = await store.segments(ids(new[1:2]))
    assert held.segment == quiet.segment


async def every_room_is_read_in_pages(spaces: Spaces) -> None:
    """Each body of a room comes once, whatever the pages are; sessions are named."""
    store = await spaces.open()
    bodies = [f'{{"said": {number}}}' for number in range(8)]
    await store.write(full_batch(1))
    before = {room: len(await _held(store, room)) for room in ROOMS}
    jobs = tuple(NewJob(kind="k", key=one, payload=one.encode(), run_at=START) for one in bodies)
    await store.write(
        Batch(
            at=START,
            jobs=jobs,
            pieces=tuple(piece(one) for one in bodies),
            compactions=tuple(
                compaction(at % 4 + 10, session=f"s{at // 4}", body=one)
                for at, one in enumerate(bodies)
            ),
        )
    )
    for room in ("pieces", "jobs", "compactions"):
        found = await _held(store, room)
        assert len(found) == before[room] + len(bodies)
        assert len({one.id for one in found}) == len(found)
        assert {one.encode() for one in bodies} <= {one.body for one in found}
        assert found == await _held(store, room, limit=100)
    named = {one.session for one in await _held(store, "compactions")}
    assert {"s0", "s1"} <= named
    (state,) = await _held(store, "states")
    stored = await store.session(SESSION)
    assert stored is not None
    assert (state.session, state.body) == (SESSION, stored.state)


async def rewritten_bodies_are_read_back(spaces: Spaces) -> None:
    """Pieces, jobs, their reasons, compactions and states read otherwise; pieces are not exact."""
    store = await spaces.open()
    batch = full_batch(2)
    await store.write(batch)
    await store.write(
        Batch(at=START, jobs=(NewJob(kind="k", key="k", payload=b'{"a": 1}', run_at=START),))
    )
    (lease,) = await store.claim(now=START, lease_seconds=9, kinds=("k",))
    assert await store.fail(lease, reason=f"because of {TOLD}", retry_at=None)
    for room in ROOMS:
        held = await _held(store, room)
        assert held, room
        changed = [
            NewBody(room=room, id=one.id, was=one.body, body=one.body + b" ") for one in held
        ]
        done = await store.rewrite(RewriteOrder(at=AT, bodies=tuple(changed)))
        assert done.bodies == len(held)
        assert [one.body for one in await _held(store, room)] == [one.body for one in changed]
    pieces = await store.pieces([one.hash for one in batch.pieces])
    assert [pieces[one.hash].body for one in batch.pieces] == [
        one.body + b" " for one in batch.pieces
    ]
    assert not any(one.exact for one in pieces.values())
    assert [one.reason for one in await store.jobs() if one.state == "dead"] == [
        f"because of {TOLD} "
    ]


async def what_changed_meanwhile_is_left(spaces: Spaces) -> None:
    """A body is replaced only while it is what was read."""
    store = await spaces.open()
    await store.write(full_batch(3))
    before = await contents(store, SESSION)
    stale = [
        NewBody(room=room, id=one.id, was=one.body + b"?", body=b"{}")
        for room in ROOMS
        for one in await _held(store, room)
    ]
    unknown = NewBody(room="pieces", id="0" * 32, was=b"{}", body=b"{}")
    done = await store.rewrite(RewriteOrder(at=AT, bodies=(*stale, unknown)))
    assert (done.bodies, done.segments, done.vectors) == (0, (), 0)
    assert await contents(store, SESSION) == before


async def forgotten_from_a_moment_on(spaces: Spaces) -> None:
    """By time: what was said then and later goes, alone, within sessions and up to a moment."""
    for order, left in (
        (ForgetOrder(at=AT, said_after=START + 2), "abABC"),
        (ForgetOrder(at=AT, said_after=START + 2, sessions=("one",)), "abABCD"),
        (ForgetOrder(at=AT, said_after=START + 1, said_before=START + 2), "acABCD"),
    ):
        store = await spaces.open(left + str(len(order.sessions)))
        await store.write(
            Batch(
                at=START,
                segments=tuple(
                    segment(f"said {name}", session=session, said_at=START + at)
                    for name, session, at in (
                        ("a", "one", 0), ("b", "one", 1), ("c", "one", 2),
                        ("A", "two", 0.5), ("B", "two", 0.6), ("C", "two", 0.7), ("D", "two", 2.5),
                    )
                ),
            )
        )  # fmt: skip
        await store.forget(order)
        said = [row.segment.text[-1] for row in await store.page(limit=100)]
        assert "".join(said) == left
        assert {one.session for one in await store.sessions()} == {"one", "two"}
