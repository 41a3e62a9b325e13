"""What holds for all that quotes a forgotten message: facts, jobs, pieces, session states."""

from __future__ import annotations

from dataclasses import replace

from recollect.formats.stored_records import read_state
from recollect.testing.store_contract.examples import (
    SESSION,
    START,
    fact,
    ids,
    piece,
    segments,
    session_write,
    vectors,
)
from recollect.testing.store_contract.harness import Spaces
from recollect.values.batch import Batch, NewJob, TurnRecord
from recollect.values.edit import Insert, LeaveOut, Shorten
from recollect.values.reason import NOT_RUN
from recollect.values.upkeep import ForgetOrder

AT = START + 5_000


async def facts_go_with_their_last_source(spaces: Spaces) -> None:
    """A fact that rests on forgotten segments alone goes; another keeps its other sources."""
    store = await spaces.open()
    new = segments(4)
    first, second, third = ids(new[:3])
    facts = (
        fact("alone", sources=[first]),
        fact("both forgotten", sources=[first, second], at=START + 1),
        fact("shared", sources=[first, third], at=START + 2),
        fact("others", sources=[third], at=START + 3),
        fact("no source", at=START + 4),
    )
    await store.write(Batch(at=START, segments=new, facts=facts))
    done = await store.forget(ForgetOrder(at=AT, segments=(first, second)))
    assert sorted(done.facts) == ["alone", "both forgotten"]
    left = {one.id: one.sources for one in await store.facts(superseded=True)}
    assert left == {"shared": (third,), "others": (third,), "no source": ()}


async def jobs_about_it_are_dropped(spaces: Spaces) -> None:
    """Jobs that quote a forgotten message go, waiting, leased or dead; others stay."""
    store = await spaces.open()
    new = segments(3)
    one, two = new[0].segment.message_id, new[1].segment.message_id
    for key, about in (("leased", (one,)), ("dead", (two, one))):
        await store.write(Batch(at=START, jobs=(NewJob(kind="work", key=key, about=about),)))
    leases = await store.claim(now=AT, lease_seconds=60, kinds=("work",), limit=9)
    held = {lease.key: lease for lease in leases}
    await store.fail(held["dead"], reason="no", retry_at=None)
    jobs = (
        NewJob(kind="work", key="waiting", about=(one,)),
        NewJob(kind="work", key="both", about=(two, one)),
        NewJob(kind="work", key="other", about=(two,)),
        NewJob(kind="work", key="about nobody"),
    )
    await store.write(Batch(at=START, segments=new, jobs=jobs))
    done = await store.forget(ForgetOrder(at=AT, message_ids=(one,)))
    assert done.jobs == 4
    assert {record.key for record in await store.jobs()} == {"other", "about nobody"}
    assert not await store.complete(held["leased"], Batch(at=AT, facts=(fact("late"),)))
    assert await store.facts() == ()
    again = NewJob(kind="work", key="resent", about=(one,))
    await store.write(Batch(at=AT, segments=new[:1], jobs=(again,)))
    assert {record.key for record in await store.jobs()} == {"other", "about nobody"}


async def pieces_about_it_go(spaces: Spaces) -> None:
    """Ledger pieces that quote a forgotten message go and stay away; turns keep their rows."""
    store = await spaces.open()
    new = segments(3)
    one, two = new[0].segment.message_id, new[1].segment.message_id
    pieces = (
        piece("quotes one", about=(one,)),
        piece("quotes both", about=(two, one)),
        piece("quotes two", about=(two,)),
        piece("quotes nobody"),
    )
    turn = TurnRecord(
        session=SESSION, number=1, at=START, format="pi", rows=tuple(p.hash for p in pieces)
    )
    batch = Batch(at=START, segments=new, pieces=pieces, turns=(turn,))
    await store.write(batch)
    done = await store.forget(ForgetOrder(at=AT, segments=ids(new[:1])))
    assert done.pieces == 2
    wanted = {pieces[2].hash, pieces[3].hash}
    assert set(await store.pieces(turn.rows)) == wanted
    rebuilt = await store.turn(SESSION, 1)
    assert rebuilt is not None
    assert rebuilt.rows == turn.rows
    await store.write(batch)
    assert set(await store.pieces(turn.rows)) == wanted
    later = replace(turn, number=2, kept_rows=4, rows=())
    await store.write(replace(batch, turns=(later,), segments=()))
    assert set(await store.pieces(turn.rows)) == wanted


async def session_states_quote_it_no_more(spaces: Spaces) -> None:
    """Edits that quote a forgotten message leave the stored states, and late writes too."""
    store = await spaces.open()
    new = segments(4)
    key, other = new[0].segment.key, new[1].segment.key
    edits = (
        Shorten(anchor=key, part=0, text="marker one", stage="prune", reason=NOT_RUN, turn=1),
        Shorten(anchor=other, part=0, text="marker two", stage="prune", reason=NOT_RUN, turn=1),
        Insert(anchor=other, placement="before", text="marker three", stage="inject",
               reason=NOT_RUN, turn=1),
        LeaveOut(anchor=key, part=None, stage="trim", reason=NOT_RUN, turn=1),
    )  # fmt: skip
    about = (new[0].segment.message_id, new[1].segment.message_id)
    quoting = session_write(new, turn=1, edits=edits, about=about)
    await store.write(Batch(at=START, segments=new, session=quoting))
    calm = session_write(new, turn=1, edits=edits[1:2], about=about[1:], session="calm")
    await store.write(Batch(at=START, session=calm))
    done = await store.forget(ForgetOrder(at=AT, segments=ids(new[:1])))
    assert done.session_states == 1
    for late in (None, replace(quoting, turn=2)):
        if late is not None:
            await store.write(Batch(at=AT, session=late))
        stored = await store.session(SESSION)
        assert stored is not None
        assert stored.path == quoting.path
        assert b"marker one" not in stored.state
        assert b"marker three" not in stored.state
        assert edits[1] in read_state(stored.state).edits
        assert edits[3] in read_state(stored.state).edits
    stored = await store.session("calm")
    assert stored is not None
    assert stored.state == calm.state


async def quotes_of_other_sessions_go(spaces: Spaces) -> None:
    """A quote goes from another session's state that grew in parts, of a message not stored too."""
    for stored_too in (True, False):
        store = await spaces.open(f"stored{stored_too}")
        new = segments(6)
        quoted = new[1].segment
        edits = (
            Shorten(anchor=quoted.key, part=0, text="marker one", stage="prune", reason=NOT_RUN,
                    turn=1),
            Insert(anchor=new[4].segment.key, placement="before", text="marker two",
                   stage="inject", reason=NOT_RUN, turn=2),
        )  # fmt: skip
        if stored_too:
            await store.write(Batch(at=START, segments=new[1:2]))
        first = session_write(new[:3], turn=1, session="other", edits=edits[:1])
        await store.write(Batch(at=START, session=first))
        grown = session_write(
            new[3:], turn=2, session="other", path_from=3, edits=edits, about=(quoted.message_id,)
        )
        await store.write(Batch(at=START, session=grown))
        done = await store.forget(ForgetOrder(at=AT, message_ids=(quoted.message_id,)))
        assert done.session_states == 1
        for late in (None, replace(grown, turn=3, path_from=6, path=(), ids=())):
            if late is not None:
                await store.write(Batch(at=AT, session=late))
            stored = await store.session("other")
            assert stored is not None
            assert len(stored.path) == 6
            assert b"marker" not in stored.state


async def later_batch_rests_on_no_refused_segment(spaces: Spaces) -> None:
    """A fact that rests on a segment which an earlier batch was refused is dropped."""
    store = await spaces.open()
    new = segments(2)
    gone, stays = new[0].segment, new[1].segment
    await store.forget(ForgetOrder(at=AT, message_ids=(gone.message_id,)))
    written = await store.write(Batch(at=AT, segments=new))
    assert written.forgotten == (gone.id,)
    facts = (fact("alone", sources=[gone.id]), fact("shared", sources=[gone.id, stays.id]))
    await store.write(Batch(at=AT, facts=facts))
    assert {one.id: one.sources for one in await store.facts()} == {"shared": (stays.id,)}


async def nothing_rests_on_a_forgotten_segment(spaces: Spaces) -> None:
    """A batch of a forgotten message stores nothing of it: vectors, facts, jobs, pieces."""
    store = await spaces.open()
    new = segments(2)
    gone, stays = new[0].segment, new[1].segment
    await store.forget(ForgetOrder(at=AT, message_ids=(gone.message_id,)))
    quotes, other = piece("quote", about=(gone.message_id,)), piece("other")
    batch = Batch(
        at=AT,
        segments=new,
        vectors=(vectors(new, embedder="e"),),
        facts=(fact("alone", sources=[gone.id]), fact("shared", sources=[gone.id, stays.id])),
        jobs=(NewJob(kind="work", key="k", about=(gone.message_id,)), NewJob(kind="work", key="o")),
        pieces=(quotes, other),
    )
    for _ in range(2):
        written = await store.write(batch)
        assert written.forgotten == (gone.id,)
        assert [one.segment for one in await store.vectors("e")] == [stays.id]
        assert {one.id: one.sources for one in await store.facts()} == {"shared": (stays.id,)}
        assert [record.key for record in await store.jobs()] == ["o"]
        assert set(await store.pieces([quotes.hash, other.hash])) == {other.hash}
