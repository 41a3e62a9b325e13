"""What holds for forgetting by place: sessions and times go, the same words elsewhere stay."""

from dataclasses import replace

from tests.store_contract.examples import (
    LATER,
    START,
    conversation,
    fact,
    ids,
    message_id,
    piece,
    segment,
    segments,
    session_write,
    vectors,
)
from tests.store_contract.harness import Spaces

from recollect.core.formats.stored_records import read_state
from recollect.core.values.batch import Batch, NewJob, TurnRecord
from recollect.core.values.edit import Shorten
from recollect.core.values.message import MessageId
from recollect.core.values.reason import NOT_RUN
from recollect.core.values.segment import NewSegment
from recollect.core.values.upkeep import ForgetOrder

STOCK = "please continue"


def _marks(*new: NewSegment) -> set[MessageId]:
    """Their ids as `tombstoned` is asked for them."""
    return {MessageId(segment.segment.id) for segment in new}


def _quote(new: NewSegment) -> Shorten:
    return Shorten(
        anchor=new.segment.key, part=0, text="a quote of it", stage="prune", reason=NOT_RUN, turn=1
    )


async def words_said_elsewhere_stay(spaces: Spaces) -> None:
    """Forgetting a session or a time leaves the same words of other places, now and later."""
    for name, order in (
        ("session", ForgetOrder(at=LATER, sessions=("one",))),
        ("time", ForgetOrder(at=LATER, said_before=START + 50)),
    ):
        store = await spaces.open(name)
        new_segments = conversation(["a private matter", "noted", STOCK], session="one")
        two = conversation(["the weather", "mild", STOCK], session="two", said_at=START + 100)
        identity = message_id(STOCK)
        quote = piece("a row of it", about=(identity,))
        turn = TurnRecord(session="two", number=1, at=LATER, format="pi", rows=(quote.hash,))
        state = session_write(
            two, turn=1, session="two", edits=(_quote(two[2]),), about=(identity,)
        )
        await store.write(Batch(at=START, segments=new_segments))
        await store.write(
            Batch(
                at=START,
                segments=two,
                vectors=(vectors(two, embedder="e"),),
                jobs=(NewJob(kind="work", key="k", about=(identity,)),),
                session=state,
                pieces=(quote,),
                turns=(turn,),
            )
        )
        done = await store.forget(order)
        assert sorted(done.segments) == sorted(ids(new_segments))
        assert identity not in done.message_ids
        assert (done.pieces, done.jobs, done.session_states) == (0, 0, 0)
        assert [row.segment for row in await store.page()] == [new.segment for new in two]
        assert {vector.segment for vector in await store.vectors("e")} == set(ids(two))
        assert set(await store.pieces([quote.hash])) == {quote.hash}
        assert [record.key for record in await store.jobs()] == ["k"]
        stored = await store.session("two")
        assert stored is not None
        assert stored.state == state.state
        assert await store.tombstoned([identity]) == frozenset()
        assert await store.tombstoned(_marks(*new_segments, *two)) == _marks(*new_segments)
        later = segment(STOCK, session="three", said_at=START + 1)
        written = await store.write(Batch(at=LATER, segments=(*new_segments, later)))
        assert written.forgotten == ids(new_segments)
        assert written.stored == ids([later])


async def places_narrow_each_other(spaces: Spaces) -> None:
    """Sessions and a time together mean what those sessions said before it, and no more."""
    store = await spaces.open()
    new_segments, two = segments(6, session="one"), segments(6, first=50, session="two")
    state = session_write(new_segments, turn=1, session="one")
    await store.write(Batch(at=START, segments=(*new_segments, *two), session=state))
    order = ForgetOrder(at=LATER, sessions=("one", "unheard of"), said_before=START + 2.5)
    done = await store.forget(order)
    assert sorted(done.segments) == sorted(ids(new_segments[:3]))
    assert {row.segment.id for row in await store.page()} == set(ids((*new_segments[3:], *two)))
    stored = await store.session("one")
    assert stored is not None, "only a part of the session was forgotten"
    assert stored.path == state.path
    content = ForgetOrder(
        at=LATER,
        sessions=("two",),
        said_before=START + 0.5,
        message_ids=(new_segments[5].segment.message_id,),
    )
    done = await store.forget(content)
    assert sorted(done.segments) == sorted(ids((two[0], new_segments[5])))
    assert done.message_ids == (new_segments[5].segment.message_id,)


async def nothing_quotes_what_is_said_nowhere(spaces: Spaces) -> None:
    """With the last place that said it, all that quotes a message goes, in other sessions too."""
    store = await spaces.open()
    new_segments = conversation(["a private matter", "noted", STOCK], session="one")
    two = conversation(["the weather", "mild", STOCK], session="two")
    private, stock = new_segments[0].segment.message_id, message_id(STOCK)
    quotes = (piece("private", about=(private,)), piece("both", about=(stock, private)))
    stays = piece("stock", about=(stock,))
    rows = tuple(ledger_piece.hash for ledger_piece in (*quotes, stays))
    turn = TurnRecord(session="two", number=1, at=LATER, format="pi", rows=rows)
    state = session_write(
        (new_segments[0], *two),
        turn=1,
        session="two",
        edits=(_quote(new_segments[0]), replace(_quote(two[2]), text="of stock")),
        about=(private, stock),
    )
    jobs = (
        NewJob(kind="work", key="private", about=(private,)),
        NewJob(kind="work", key="stock", about=(stock,)),
    )
    await store.write(Batch(at=START, segments=new_segments))
    await store.write(
        Batch(at=START, segments=two, session=state, jobs=jobs, pieces=(*quotes, stays),
              turns=(turn,))
    )  # fmt: skip
    done = await store.forget(ForgetOrder(at=LATER, sessions=("one",)))
    assert (done.pieces, done.jobs, done.session_states) == (2, 1, 1)
    assert set(await store.pieces(rows)) == {stays.hash}
    assert [record.key for record in await store.jobs()] == ["stock"]
    stored = await store.session("two")
    assert stored is not None
    assert b"a quote of it" not in stored.state
    assert b"of stock" in stored.state
    assert await store.tombstoned([private, stock]) == frozenset()


async def facts_rest_on_words_said_elsewhere(spaces: Spaces) -> None:
    """A fact of a forgotten place stays while its words are said elsewhere, and rests on those."""
    store = await spaces.open()
    new_segments = conversation(["a private matter", "noted", STOCK], session="one")
    two = conversation(["the weather"], session="two", said_at=START + 9)
    facts = (
        fact("private", sources=[new_segments[0].segment.id]),
        fact("stock", sources=[new_segments[2].segment.id]),
        fact("both", sources=[new_segments[0].segment.id, two[0].segment.id]),
    )
    twin = segment(STOCK, session="two", parent=two[0].segment.key, said_at=START + 9)
    await store.write(Batch(at=START, segments=(*new_segments, two[0], twin), facts=facts))
    done = await store.forget(ForgetOrder(at=LATER, sessions=("one",)))
    assert done.facts == ("private",)
    left = {fact.id: fact.sources for fact in await store.facts()}
    assert left == {"stock": (twin.segment.id,), "both": (two[0].segment.id,)}
    again = await store.write(Batch(at=LATER, segments=new_segments, facts=facts))
    assert sorted(again.forgotten) == sorted(ids(new_segments))
    assert {fact.id: fact.sources for fact in await store.facts()} == left
    done = await store.forget(ForgetOrder(at=LATER, segments=ids([twin])))
    assert done.facts == ("stock",)


async def forgotten_session_is_remembered_no_more(spaces: Spaces) -> None:
    """A forgotten session's state, path and turns go, with the pieces no other turn names."""
    store = await spaces.open()
    new_segments, two = segments(4, session="one"), segments(2, first=50, session="two")
    shared, own = piece("system of both", kind="system"), piece("system of one", kind="system")
    row = piece("row of one", about=(new_segments[0].segment.message_id,))
    turns = (
        TurnRecord(session="one", number=1, at=START, format="pi", system=shared.hash,
                   rows=(row.hash,)),
        TurnRecord(session="one", number=2, at=START, format="pi", system=own.hash, kept_rows=1),
        TurnRecord(session="two", number=1, at=START, format="pi", system=shared.hash),
    )  # fmt: skip
    await store.write(
        Batch(at=START, segments=new_segments,
              session=session_write(new_segments, turn=1, session="one"),
              pieces=(shared, own, row), turns=turns)
    )  # fmt: skip
    kept = session_write(two, turn=1, session="two")
    await store.write(Batch(at=START, segments=two, session=kept))
    await store.write(Batch(at=START, session=session_write((), turn=1, session="only a state")))
    done = await store.forget(ForgetOrder(at=LATER, sessions=("one", "only a state")))
    assert done.session_states == 2
    assert done.pieces == 2
    for session in ("one", "only a state"):
        assert await store.session(session) is None
        assert await store.turns(session) == ()
    assert await store.turn("one", 2) is None
    assert set(await store.pieces([shared.hash, own.hash, row.hash])) == {shared.hash}
    assert await store.turns("two") == (1,)
    stored = await store.session("two")
    assert stored is not None
    assert stored.path == kept.path
    stats = await store.stats()
    assert (stats.sessions, stats.turns, stats.pieces, stats.segments) == (1, 1, 1, 2)
    late = session_write(new_segments[3:], turn=2, session="one", path_from=3)
    assert (await store.write(Batch(at=LATER, session=late))).session_stale
    anew = conversation(["another beginning"], session="one")
    fresh = session_write(anew, turn=3, session="one")
    written = await store.write(Batch(at=LATER, segments=anew, session=fresh))
    assert written.stored == ids(anew)
    assert not written.session_stale


async def batch_of_a_forgotten_place_is_kept_out(spaces: Spaces) -> None:
    """A batch that comes again from a forgotten place brings back nothing that rests on it."""
    store = await spaces.open()
    new = segments(3, session="one")
    await store.write(Batch(at=START, segments=new[:1]))
    await store.forget(ForgetOrder(at=LATER, sessions=("one",)))
    gone, stays = new[0].segment, new[1].segment
    quote, other = piece("quote", about=(gone.message_id,)), piece("other")
    edits = (_quote(new[0]), replace(_quote(new[1]), text="of the second"))
    about = (gone.message_id, stays.message_id)
    batch = Batch(
        at=LATER,
        segments=new,
        vectors=(vectors(new, embedder="e"),),
        facts=(fact("alone", sources=[gone.id]), fact("shared", sources=[gone.id, stays.id])),
        jobs=(NewJob(kind="work", key="k", about=(gone.message_id,)), NewJob(kind="work", key="o")),
        session=session_write(new, turn=1, session="one", edits=edits, about=about),
        pieces=(quote, other),
    )
    for _ in range(2):
        written = await store.write(batch)
        assert written.forgotten == (gone.id,)
        assert {vector.segment for vector in await store.vectors("e")} == set(ids(new[1:]))
        assert {fact.id: fact.sources for fact in await store.facts()} == {"shared": (stays.id,)}
        assert [record.key for record in await store.jobs()] == ["o"]
        assert set(await store.pieces([quote.hash, other.hash])) == {other.hash}
        stored = await store.session("one")
        assert stored is not None
        assert b"a quote of it" not in stored.state
        assert edits[1] in read_state(stored.state).edits
