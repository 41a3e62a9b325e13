"""What holds for forgetting: all that quotes a segment goes, and nothing brings it back."""

import json
from dataclasses import replace

from tests.store_contract.examples import (
    LATER,
    SESSION,
    START,
    asked,
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
from tests.store_contract.harness import Spaces, claim_all
from tests.store_contract.model import ReferenceModel

from recollect.core.formats.stored_records import read_state
from recollect.core.ports import Store
from recollect.core.values.batch import Batch, NewJob, TurnRecord
from recollect.core.values.edit import Cut, Edit, Insert, LeaveOut, Shorten
from recollect.core.values.message import MessageId
from recollect.core.values.reason import NOT_RUN
from recollect.core.values.recall import CandidateQuery
from recollect.core.values.segment import NewSegment
from recollect.core.values.upkeep import ForgetOrder


async def _filled(store: Store, new: tuple[NewSegment, ...]) -> ReferenceModel:
    batch = Batch(at=START, segments=new, vectors=(vectors(new, embedder="e"),))
    model = ReferenceModel()
    model.write(batch)
    await store.write(batch)
    return model


async def _hold(
    store: Store, model: ReferenceModel, gone: tuple[NewSegment, ...], *, by_place: bool = False
) -> None:
    """The store has what the model has, and nothing of those that are gone."""
    words = tuple(
        dict.fromkeys(word for segment in gone for part in segment.passages for word in part.words)
    )
    near = (asked("q", embedder="e"),)
    query = CandidateQuery(words=words, vectors=near, lexical_limit=99, vector_limit=99)
    model.expect(query, await store.candidates(query))
    assert await store.segments(ids(gone)) == ()
    assert await store.known(ids(gone)) == frozenset()
    assert {row.segment.id for row in await store.page()} == set(model.segments)
    held = {(vector.segment, vector.ordinal) for vector in await store.vectors("e")}
    assert held == set(model.vectors["e"])
    identities = {segment.segment.message_id for segment in gone}
    places = {MessageId(segment.segment.id) for segment in gone}
    if by_place:
        assert await store.tombstoned(iter(identities | places)) == places
    else:
        assert identities <= await store.tombstoned(iter(identities | places))
        assert await store.tombstoned(iter(identities | places)) <= await store.tombstoned()
    for new_segment in gone:
        assert await store.passages(new_segment.segment.id) == ()
    again = await store.write(
        Batch(at=LATER + 1, segments=gone, vectors=(vectors(gone, embedder="e"),))
    )
    assert (again.stored, again.known) == ((), ())
    assert sorted(again.forgotten) == sorted(ids(gone))
    assert {row.segment.id for row in await store.page()} == set(model.segments)
    assert {(vector.segment, vector.ordinal) for vector in await store.vectors("e")} == held


async def identity_is_forgotten_wherever_it_was_said(spaces: Spaces) -> None:
    """Forgetting a message id takes its segments of every session and place."""
    store = await spaces.open()
    text = "the secret is bazarka"
    new_segments = conversation(["before", "between", text, "answer", text], session="one")
    two = conversation([text, "other"], session="two")
    model = await _filled(store, (*new_segments, *two))
    gone = (new_segments[2], new_segments[4], two[0])
    model.forget(ids(gone))
    done = await store.forget(ForgetOrder(at=LATER, message_ids=(message_id(text),)))
    assert sorted(done.segments) == sorted(ids(gone))
    await _hold(store, model, gone)
    elsewhere = segment(text, session="three")
    written = await store.write(Batch(at=LATER, segments=(elsewhere,)))
    assert written.forgotten == ids([elsewhere])
    assert await store.page(session="three") == ()


async def identity_that_is_not_stored_gets_a_tombstone(spaces: Spaces) -> None:
    """A message that is forgotten before it arrives is not stored when it does."""
    store = await spaces.open()
    new = segments(3)
    identity = new[1].segment.message_id
    done = await store.forget(ForgetOrder(at=LATER, message_ids=(identity,)))
    assert done.segments == ()
    assert await store.tombstoned([identity, new[0].segment.message_id]) == {identity}
    written = await store.write(
        Batch(at=LATER, segments=new, vectors=(vectors(new, embedder="e"),))
    )
    assert written.forgotten == ids(new[1:2])
    assert written.stored == ids((new[0], new[2]))
    assert {vector.segment for vector in await store.vectors("e")} == set(written.stored)


# What holds for all that quotes a forgotten message: facts, jobs, pieces, session states.


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
    done = await store.forget(ForgetOrder(at=LATER, segments=(first, second)))
    assert sorted(done.facts) == ["alone", "both forgotten"]
    left = {fact.id: fact.sources for fact in await store.facts(superseded=True)}
    assert left == {"shared": (third,), "others": (third,), "no source": ()}


async def jobs_about_it_are_dropped(spaces: Spaces) -> None:
    """Jobs that quote a forgotten message go, waiting, leased or dead; others stay."""
    store = await spaces.open()
    new = segments(3)
    one, two = new[0].segment.message_id, new[1].segment.message_id
    for key, about in (("leased", (one,)), ("dead", (two, one))):
        await store.write(Batch(at=START, jobs=(NewJob(kind="work", key=key, about=about),)))
    leases = await claim_all(store, now=LATER, kinds=("work",))
    stored_leases = {lease.key: lease for lease in leases}
    await store.fail(stored_leases["dead"], reason="no", retry_at=None)
    jobs = (
        NewJob(kind="work", key="waiting", about=(one,)),
        NewJob(kind="work", key="both", about=(two, one)),
        NewJob(kind="work", key="other", about=(two,)),
        NewJob(kind="work", key="about nobody"),
    )
    await store.write(Batch(at=START, segments=new, jobs=jobs))
    done = await store.forget(ForgetOrder(at=LATER, message_ids=(one,)))
    assert done.jobs == 4
    assert {record.key for record in await store.jobs()} == {"other", "about nobody"}
    assert not await store.complete(stored_leases["leased"], Batch(at=LATER, facts=(fact("late"),)))
    assert await store.facts() == ()
    again = NewJob(kind="work", key="resent", about=(one,))
    await store.write(Batch(at=LATER, segments=new[:1], jobs=(again,)))
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
    done = await store.forget(ForgetOrder(at=LATER, segments=ids(new[:1])))
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
    done = await store.forget(ForgetOrder(at=LATER, segments=ids(new[:1])))
    assert done.session_states == 1
    for late in (None, replace(quoting, turn=2)):
        if late is not None:
            await store.write(Batch(at=LATER, session=late))
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
        done = await store.forget(ForgetOrder(at=LATER, message_ids=(quoted.message_id,)))
        assert done.session_states == 1
        for late in (None, replace(grown, turn=3, path_from=6, path=(), ids=())):
            if late is not None:
                await store.write(Batch(at=LATER, session=late))
            stored = await store.session("other")
            assert stored is not None
            assert len(stored.path) == 6
            assert b"marker" not in stored.state


async def later_batch_rests_on_no_refused_segment(spaces: Spaces) -> None:
    """A fact that rests on a segment which an earlier batch was refused is dropped."""
    store = await spaces.open()
    new = segments(2)
    gone, stays = new[0].segment, new[1].segment
    await store.forget(ForgetOrder(at=LATER, message_ids=(gone.message_id,)))
    written = await store.write(Batch(at=LATER, segments=new))
    assert written.forgotten == (gone.id,)
    facts = (fact("alone", sources=[gone.id]), fact("shared", sources=[gone.id, stays.id]))
    await store.write(Batch(at=LATER, facts=facts))
    assert {fact.id: fact.sources for fact in await store.facts()} == {"shared": (stays.id,)}


async def nothing_rests_on_a_forgotten_segment(spaces: Spaces) -> None:
    """A batch of a forgotten message stores nothing of it: vectors, facts, jobs, pieces."""
    store = await spaces.open()
    new = segments(2)
    gone, stays = new[0].segment, new[1].segment
    await store.forget(ForgetOrder(at=LATER, message_ids=(gone.message_id,)))
    quotes, other = piece("quote", about=(gone.message_id,)), piece("other")
    batch = Batch(
        at=LATER,
        segments=new,
        vectors=(vectors(new, embedder="e"),),
        facts=(fact("alone", sources=[gone.id]), fact("shared", sources=[gone.id, stays.id])),
        jobs=(NewJob(kind="work", key="k", about=(gone.message_id,)), NewJob(kind="work", key="o")),
        pieces=(quotes, other),
    )
    for _ in range(2):
        written = await store.write(batch)
        assert written.forgotten == (gone.id,)
        assert [vector.segment for vector in await store.vectors("e")] == [stays.id]
        assert {fact.id: fact.sources for fact in await store.facts()} == {"shared": (stays.id,)}
        assert [record.key for record in await store.jobs()] == ["o"]
        assert set(await store.pieces([quotes.hash, other.hash])) == {other.hash}


# What holds for forgetting by text, and facts by name: what is about no message goes too.

MARK = "Großer Bärenklau"
SPELLINGS = ("großer bärenklau", "GROSSER BÄRENKLAU", "Großer Bärenklau")


async def pieces_that_hold_a_text_go(spaces: Spaces) -> None:
    """Ledger pieces that hold the text go, however JSON spells it and whatever they are about."""
    store = await spaces.open()
    new = segments(2)
    bodies = (
        *SPELLINGS,
        json.dumps({"system": f"of {MARK}"}),
        json.dumps({"call": json.dumps({"name": MARK.upper()})}),
    )
    gone = tuple(piece(f"{number} {body}", kind="system") for number, body in enumerate(bodies))
    about = piece(f"row of {MARK}", about=(new[0].segment.message_id,))
    stays = (piece("Großer Bär", kind="tools"), piece("other", kind="system"))
    pieces = (*gone, about, *stays)
    await store.write(Batch(at=START, segments=new, pieces=pieces))
    done = await store.forget(ForgetOrder(at=LATER, matching=MARK.lower()))
    assert done.pieces == len(gone) + 1
    assert set(await store.pieces([piece.hash for piece in pieces])) == {
        piece.hash for piece in stays
    }
    assert (done.segments, done.message_ids, len(await store.page())) == ((), (), 2)
    await store.write(Batch(at=LATER, pieces=pieces))  # a system prompt comes with each request
    assert set(await store.pieces([ledger_piece.hash for ledger_piece in pieces])) == {
        ledger_piece.hash for ledger_piece in stays
    }
    quoted = piece(json.dumps('say "hi" to C:\\temp'), kind="rest")
    await store.write(Batch(at=START, pieces=(quoted,)))
    assert (await store.forget(ForgetOrder(at=LATER, matching='"HI" to c:\\'))).pieces == 1


async def jobs_that_hold_a_text_go(spaces: Spaces) -> None:
    """Jobs whose payload or last reason holds the text go; others stay."""
    store = await spaces.open()
    jobs = (
        NewJob(kind="work", key="payload", payload=json.dumps({"note": MARK}).encode()),
        NewJob(kind="work", key="other", payload=b'{"note": "other"}'),
        NewJob(kind="fail", key="reason"),
        NewJob(kind="fail", key="dead", payload=f'"{MARK}"'.encode()),
    )
    await store.write(Batch(at=START, jobs=jobs))
    leases = await claim_all(store, now=LATER, kinds=("fail",))
    for lease in leases:
        text = f"it said {MARK}" if lease.key == "reason" else "no"
        await store.fail(lease, reason=text, retry_at=None if lease.key == "dead" else LATER)
    done = await store.forget(ForgetOrder(at=LATER, matching=MARK.upper()))
    assert done.jobs == 3
    assert [record.key for record in await store.jobs()] == ["other"]


async def states_that_hold_a_text_lose_their_quotes(spaces: Spaces) -> None:
    """A session state that holds the text quotes nothing any more; others are as they were."""
    store = await spaces.open()
    new = segments(3)
    key, other = new[0].segment.key, new[1].segment.key
    plain = LeaveOut(anchor=key, part=None, stage="trim", reason=NOT_RUN, turn=1)
    quoting: tuple[Edit, ...] = (
        Shorten(anchor=key, part=0, text=f"… {MARK}", stage="prune", reason=NOT_RUN, turn=1),
        Insert(anchor=other, placement="before", text=MARK, stage="inject", reason=NOT_RUN, turn=1),
        Cut(anchor=other, summary=f"of {MARK}", stage="compact", reason=NOT_RUN, turn=1),
    )
    long = tuple(replace(plain, part=number) for number in range(200))
    for name, edit in zip(("shorten", "insert", "cut"), quoting, strict=True):
        for packed in (False, True):
            edits: tuple[Edit, ...] = (plain, edit, *(long if packed else ()))
            write = session_write(new, turn=1, session=f"{name}{packed}", edits=edits)
            await store.write(Batch(at=START, session=write))
    calm = session_write(new, turn=1, session="calm", edits=(plain,))
    await store.write(Batch(at=START, session=calm))
    done = await store.forget(ForgetOrder(at=LATER, matching=MARK.lower()))
    assert done.session_states == 6
    again = await store.forget(ForgetOrder(at=LATER, matching=MARK.lower()))
    assert again.session_states == 0
    stored = await store.session("calm")
    assert stored is not None
    assert stored.state == calm.state
