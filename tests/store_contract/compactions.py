"""What holds for records of compactions, and for states that stand for a past that was cut."""

import json
from collections.abc import Sequence
from dataclasses import replace

from tests.store_contract.examples import (
    EMBEDDER,
    LATER,
    SESSION,
    START,
    asked,
    compaction,
    conversation,
    full_batch,
    ids,
    message_id,
    piece,
    segment,
    segments,
    session_write,
    text,
    vectors,
)
from tests.store_contract.harness import Spaces, contents
from tests.store_contract.model import ReferenceModel

from recollect.core.formats.stored_records import join_state
from recollect.core.ports import Store
from recollect.core.values.batch import Batch, LedgerPiece, PieceHash, TurnRecord
from recollect.core.values.edit import Cut, Edit, Insert, LeaveOut
from recollect.core.values.message import MessageId
from recollect.core.values.reason import NOT_RUN
from recollect.core.values.recall import CandidateQuery
from recollect.core.values.segment import NewSegment, SegmentId
from recollect.core.values.upkeep import ForgetOrder

MARK = "Großer Bärenklau"


def _message_ids(new: tuple[NewSegment, ...]) -> tuple[MessageId, ...]:
    return tuple(segment.segment.message_id for segment in new)


async def compactions_come_back_by_number(spaces: Spaces) -> None:
    """Records come back field by field, by number, each of its own session."""
    store = await spaces.open()
    new = segments(3)
    odd = "a session \ud800 with\x00odd signs"
    records = (
        compaction(2, _message_ids(new), at=START + 0.125),
        replace(compaction(1), body=bytes(range(256)) * 400),
        compaction(3, (MessageId("named otherwise"), *_message_ids(new[:1]), MessageId("A" * 32))),
        compaction(1, _message_ids(new), session="another"),
        compaction(7, session=odd),
    )
    await store.write(Batch(at=START, compactions=records))
    store = await spaces.reopen(store)
    assert await store.compactions(SESSION) == (records[1], records[0], records[2])
    assert await store.compactions("another") == (records[3],)
    assert await store.compactions(odd) == (records[4],)
    assert await store.compactions("unheard of") == ()
    assert (await store.stats()).compactions == 5
    assert await store.page() == ()


async def compaction_goes_with_its_batch(spaces: Spaces) -> None:
    """A record whose session has moved on is left out with it, and no other of the batch is."""
    store = await spaces.open()
    new = segments(4)
    await store.write(Batch(at=START, session=session_write(new, turn=2)))
    late = Batch(
        at=LATER,
        session=session_write(new[:2], turn=1),
        compactions=(compaction(1), compaction(1, session="another")),
    )
    assert (await store.write(late)).session_stale
    assert await store.compactions(SESSION) == ()
    assert len(await store.compactions("another")) == 1
    follows = replace(late, session=session_write(new[:2], turn=3))
    for _ in range(2):
        assert not (await store.write(follows)).session_stale
        assert await store.compactions(SESSION) == late.compactions[:1]


async def compactions_of_a_forgotten_session_go(spaces: Spaces) -> None:
    """A forgotten session takes its records, whatever they stand for; a new one may begin."""
    store = await spaces.open()
    new_segments, two = segments(3, session="one"), segments(3, first=50, session="two")
    records = (
        compaction(1, _message_ids(new_segments), session="one"),
        compaction(2, (), session="one"),
        compaction(1, _message_ids(two), session="two"),
        compaction(1, (), session="only compactions"),
    )
    batch = Batch(at=START, segments=(*new_segments, *two), compactions=records)
    await store.write(batch)
    order = ForgetOrder(at=LATER, sessions=("one", "only compactions"))
    assert (await store.forget(order)).compactions == 3
    for late in (None, batch, Batch(at=LATER, compactions=records)):
        if late is not None:
            await store.write(late)
        assert await store.compactions("one") == ()
        assert await store.compactions("only compactions") == ()
        assert await store.compactions("two") == records[2:3]
    anew = compaction(1, (message_id("said anew"),), session="one")
    await store.write(Batch(at=LATER, compactions=(anew,)))
    assert await store.compactions("one") == (anew,)


async def compactions_of_forgotten_places_go(spaces: Spaces) -> None:
    """A record goes with a place of its session that it stands for, though the words stay said."""
    store = await spaces.open()
    stock = "what everybody says"
    new_segments = conversation(["early", stock, "late"], session="one")
    two = conversation([stock, "other"], session="two", said_at=START + 100)
    kept = (
        compaction(2, _message_ids(new_segments[2:]), session="one"),
        compaction(1, _message_ids(two), session="two"),
    )
    gone = (
        compaction(1, _message_ids(new_segments[1:2]), session="one"),
        compaction(3, _message_ids(new_segments[:1]), session="one"),
        compaction(2, _message_ids(new_segments[:1]), session="two"),
    )
    await store.write(Batch(at=START, segments=(*new_segments, *two), compactions=(*kept, *gone)))
    order = ForgetOrder(at=LATER, sessions=("one",), said_before=START + 1.5)
    done = await store.forget(order)
    assert (len(done.segments), done.message_ids, done.compactions) == (2, (), 3)
    unheard = compaction(9, _message_ids(new_segments[:1]), session="two")
    for late in ((), gone, (unheard,)):
        await store.write(Batch(at=LATER, compactions=late))
        assert await store.compactions("one") == kept[:1]
        assert await store.compactions("two") == kept[1:]
    said_again = conversation(["early"], session="three")
    await store.write(Batch(at=LATER, segments=said_again, compactions=(unheard,)))
    assert await store.compactions("two") == (kept[1], unheard)


async def compactions_that_hold_a_text_go(spaces: Spaces) -> None:
    """A record whose body holds the text goes and stays away; others of its number may come."""
    store = await spaces.open()
    records = (
        compaction(1, body=json.dumps({"summary": f"of {MARK}"})),
        compaction(2, (message_id("one"),), body=f"{MARK.upper()} in plain text"),
        compaction(3, body="Großer Bär"),
    )
    await store.write(Batch(at=START, compactions=records))
    done = await store.forget(ForgetOrder(at=LATER, matching=MARK.lower()))
    assert (done.compactions, done.message_ids) == (2, ())
    for _ in range(2):
        assert await store.compactions(SESSION) == records[2:]
        await store.write(Batch(at=LATER, compactions=records))
    another = compaction(1, body="nothing of it")
    await store.write(Batch(at=LATER, compactions=(another,)))
    assert await store.compactions(SESSION) == (another, records[2])


async def cut_goes_with_a_message_it_covers(spaces: Spaces) -> None:
    """A state whose cut covers thousands loses it when one is forgotten; late writes too."""
    store = await spaces.open()
    new = segments(3)
    covered = tuple(message_id(text(number)) for number in range(1_000, 2_200))
    ended = Insert(anchor=None, placement="head", text="marker of a block", stage="inject",
                   reason=NOT_RUN, turn=1)  # fmt: skip
    cut = Cut(anchor=new[2].segment.key, summary="marker of a summary", stage="compact",
              reason=NOT_RUN, turn=1, number=1, ended=(ended,))  # fmt: skip
    out = LeaveOut(anchor=new[1].segment.key, part=None, stage="trim", reason=NOT_RUN, turn=1)
    edits: tuple[Edit, ...] = (cut, out)
    write = session_write(new, turn=1, edits=edits, about=(*covered, *_message_ids(new[:2])))
    await store.write(Batch(at=START, segments=new, session=write))
    for turn in (2, 3):  # the same list, then a longer one
        more = write.about if turn == 2 else (*write.about, message_id("more"))
        write = replace(write, turn=turn, about=more)
        assert not (await store.write(Batch(at=START, session=write))).session_stale
    stored = await store.session(SESSION)
    assert stored is not None
    assert join_state(stored.state, (), ()).edits == edits
    stranger = ForgetOrder(at=LATER, message_ids=(message_id("a stranger"),))
    assert (await store.forget(stranger)).session_states == 0
    for turn, gone in enumerate((covered[700], new[1].segment.message_id), start=4):
        order = ForgetOrder(at=LATER, message_ids=(gone,))
        assert (await store.forget(order)).session_states == 1
        late = replace(write, turn=turn)  # of a process that does not know of it
        for batch in (None, Batch(at=LATER, session=late)):
            if batch is not None:
                await store.write(batch)
            stored = await store.session(SESSION)
            assert stored is not None
            assert join_state(stored.state, (), ()).edits == (out,)
            assert b"marker" not in stored.state


async def cut_goes_with_a_place_it_covers(spaces: Spaces) -> None:
    """A state may not stand for what was forgotten by place and is said nowhere else."""
    store = await spaces.open()
    new = segments(300, words=3)
    cut = Cut(
        anchor=new[299].segment.key, summary="marker", stage="compact", reason=NOT_RUN, turn=1
    )
    write = session_write(new, turn=1, edits=(cut,), about=_message_ids(new[:299]))
    await store.write(Batch(at=START, segments=new, session=write))
    done = await store.forget(ForgetOrder(at=LATER, sessions=(SESSION,), said_before=START + 0.5))
    assert (len(done.segments), done.session_states) == (1, 1)
    for late in (None, replace(write, turn=2)):
        if late is not None:
            await store.write(Batch(at=LATER, session=late))
        stored = await store.session(SESSION)
        assert stored is not None
        assert join_state(stored.state, (), ()).edits == ()
    again = conversation([new[0].segment.text], session="elsewhere")
    stands = replace(write, turn=3)
    await store.write(Batch(at=LATER, segments=again, session=stands))
    stored = await store.session(SESSION)
    assert stored is not None
    assert stored.state == stands.state, "it is said again"


# What holds for withdrawing: a segment goes with its index and vectors, and may come back.


async def _hold(store: Store, model: ReferenceModel, *asked_about: NewSegment) -> None:
    """The store answers as the model does, of what was withdrawn too."""
    words = tuple(
        dict.fromkeys(
            word for segment in asked_about for part in segment.passages for word in part.words
        )
    )
    query = CandidateQuery(words=words, vectors=(asked("q"),), lexical_limit=99, vector_limit=99)
    model.expect(query, await store.candidates(query))
    named = tuple(model.segments)
    model.expect_around(named, query, await store.around(named, query))
    page = await store.page(limit=1_000)
    assert [row.segment for row in page] == [new.segment for new in model.segments.values()]
    stored = {
        (vector.segment, vector.ordinal): vector.values for vector in await store.vectors(EMBEDDER)
    }
    assert stored == model.vectors.get(EMBEDDER, {})
    stats = await store.stats()
    kept = model.segments.values()
    assert stats.segments == len(kept)
    assert stats.noise == sum(new.segment.noise is not None for new in kept)
    assert stats.tokens == sum(new.segment.tokens for new in kept)
    assert stats.passages == sum(len(new.passages) for new in kept)


async def withdrawn_segments_are_gone(spaces: Spaces) -> None:
    """What is withdrawn is in no page, index, export or count; the rest is as it was."""
    store = await spaces.open()
    new = segments(12)
    noise = segment("hm", session="noise", noise="filler", said_at=START + 100)
    other = segments(4, first=500, session="other", said_at=START + 200)
    batch = Batch(at=START, segments=(*new, noise, *other), vectors=(vectors((*new, *other)),))
    model = ReferenceModel()
    model.write(batch)
    await store.write(batch)
    gone = (new[1], new[5], new[6], noise)
    named = [*ids(gone), SegmentId("0" * 32), new[5].segment.id]
    assert await store.withdraw(named) == model.withdraw(named) == 4
    await _hold(store, model, *new)
    assert await store.segments(ids(gone)) == ()
    assert await store.known(ids(gone)) == frozenset()
    for new_segment in gone:
        assert await store.passages(new_segment.segment.id) == ()
    assert [session.session for session in await store.sessions()] == [SESSION, "other"]
    assert await store.withdraw(named) == 0
    assert await store.withdraw(()) == 0
    store = await spaces.reopen(store)
    await _hold(store, model, *new)


async def withdrawing_leaves_all_else(spaces: Spaces) -> None:
    """Jobs, facts, states, turns and pieces stay, and other sessions as they were."""
    store = await spaces.open()
    mine, other = full_batch(0, session="mine"), full_batch(1, session="other")
    await store.write(mine)
    await store.write(other)
    before = await contents(store, "mine", "other")
    gone = ids(mine.segments)
    assert await store.withdraw(gone) == 4
    after = await contents(store, "mine", "other")
    for kept in ("facts", "jobs", "queue", "stored", "turns"):
        assert after[kept] == before[kept], kept
    hashes = [piece.hash for piece in mine.pieces]
    assert set(await store.pieces(hashes)) == set(hashes)
    assert [session.session for session in await store.sessions()] == ["other"]
    assert [row.segment for row in await store.page()] == [new.segment for new in other.segments]
    assert await store.page(session="mine") == ()
    query = CandidateQuery(words=other.segments[1].passages[0].words[:1], session="other")
    assert (await store.candidates(query)).passages


async def withdrawn_can_be_forgotten_after(spaces: Spaces) -> None:
    """Forgetting what was withdrawn before keeps it out from then on, and so does the reverse."""
    store = await spaces.open()
    new = segments(6)
    await store.write(Batch(at=START, segments=new, vectors=(vectors(new),)))
    await store.withdraw(ids(new[:2]))
    identities = (new[0].segment.message_id, new[3].segment.message_id)
    await store.forget(ForgetOrder(at=LATER, message_ids=identities))
    assert await store.withdraw(ids(new[3:4])) == 0
    written = await store.write(Batch(at=LATER, segments=new, vectors=(vectors(new),)))
    assert written.stored == ids(new[1:2])
    assert sorted(written.forgotten) == sorted((ids(new)[0], ids(new)[3]))
    result = await store.scrub()
    assert result.done or result.cannot
    assert {row.segment.id for row in await store.page()} == set(ids(new)) - set(written.forgotten)


# What holds for the ledger: pieces once, turns rebuilt, retention that tears nothing.

_ROWS: Sequence[LedgerPiece] = tuple(piece(f"row {number}") for number in range(40))
_SYSTEM = piece("you are helpful", kind="system")
_TOOLS = piece("[]", kind="tools")


def _hashes(pieces: Sequence[LedgerPiece]) -> tuple[PieceHash, ...]:
    return tuple(piece.hash for piece in pieces)


def _turn(
    number: int, *, kept: int, rows: Sequence[LedgerPiece], session: str = SESSION, at: float = 0.0
) -> Batch:
    """A turn as the engine writes it, with the pieces it names."""
    report = piece(f"report {session} {number}", kind="report")
    record = TurnRecord(
        session=session,
        number=number,
        at=at or START + number,
        format="anthropic",
        model="m",
        system=_SYSTEM.hash,
        tools=_TOOLS.hash,
        report=report.hash,
        kept_rows=kept,
        rows=_hashes(rows),
    )
    return Batch(at=record.at, pieces=(_SYSTEM, _TOOLS, report, *rows), turns=(record,))


async def _rows(store: Store, number: int, session: str = SESSION) -> tuple[PieceHash, ...]:
    turn = await store.turn(session, number)
    assert turn is not None
    return turn.rows


async def outcomes_outlive_the_turn_that_recorded_them(spaces: Spaces) -> None:
    """Records that a later turn rests on stay when the turn that made them expires; so does their
    order. The last turn that names one takes it along."""
    store = await spaces.open()
    outcomes = [piece(f"outcomes {number}", kind="outcomes") for number in range(3)]
    for number in range(1, 4):
        batch = _turn(number, kept=0, rows=_ROWS[:1])
        record = replace(batch.turns[0], outcomes=_hashes(outcomes[:number]))
        added = (*batch.pieces, outcomes[number - 1])
        await store.write(replace(batch, pieces=added, turns=(record,)))
    assert await store.expire(before=START + 3) == 2
    turn = await store.turn(SESSION, 3)
    assert turn is not None
    assert turn.record.outcomes == _hashes(outcomes)
    assert len(await store.pieces(_hashes(outcomes))) == 3
    await store.expire(before=START + 4)
    assert not await store.pieces(_hashes(outcomes))


async def turns_are_rebuilt(spaces: Spaces) -> None:
    """A turn that only names what it added is rebuilt with all its rows, however far back."""
    store = await spaces.open()
    shown: list[Sequence[LedgerPiece]] = []
    plan = ((0, 0, 4), (4, 4, 7), (7, 7, 7), (5, 20, 24), (0, 30, 32), (2, 32, 40), (1, 8, 9))
    for number, (kept, first, last) in enumerate(plan, start=1):
        await store.write(_turn(number, kept=kept, rows=_ROWS[first:last]))
        shown.append((*(shown[-1][:kept] if shown else ()), *_ROWS[first:last]))
    await store.write(_turn(1, kept=0, rows=_ROWS[:1], session="another"))
    assert await store.turns(SESSION) == (1, 2, 3, 4, 5, 6, 7)
    for number, rows in enumerate(shown, start=1):
        assert await _rows(store, number) == _hashes(rows), number
    rebuilt = await store.turn(SESSION, 4)
    assert rebuilt is not None
    record = rebuilt.record
    assert (record.session, record.number, record.at) == (SESSION, 4, START + 4)
    assert (record.format, record.model, record.rest) == ("anthropic", "m", None)
    assert (record.system, record.tools) == (_SYSTEM.hash, _TOOLS.hash)
    records = await store.records(SESSION)
    assert [one.number for one in records] == [1, 2, 3, 4, 5, 6, 7]
    assert records[3] == replace(record, rows=())
    assert await store.records("unheard of") == ()
    quoting = piece("a row that quotes", about=(MessageId("a" * 32),))
    await store.write(replace(_turn(8, kept=0, rows=[quoting]), turns=()))
    assert await store.quoting([MessageId("a" * 32)]) == (quoting.hash,)
    assert await store.quoting([MessageId("b" * 32)]) == ()
    assert await store.turn(SESSION, 8) is None
    assert await store.turn("unheard of", 1) is None
    assert await store.turns("unheard of") == ()


async def expired_turns_hand_their_rows_on(spaces: Spaces) -> None:
    """Turns before a time go; a later one that rests on them keeps all its rows."""
    store = await spaces.open()
    for number in range(1, 11):
        rows = _ROWS[number * 2 - 2 : number * 2]
        await store.write(_turn(number, kept=(number - 1) * 2, rows=rows))
    assert await store.expire(before=START) == 0
    assert await store.expire(before=START + 4.5) == 4
    assert await store.turns(SESSION) == (5, 6, 7, 8, 9, 10)
    for number in range(5, 11):
        assert await _rows(store, number) == _hashes(_ROWS[: number * 2])
    assert await store.turn(SESSION, 4) is None
    assert await store.expire(before=START + 9.5) == 5
    assert await _rows(store, 10) == _hashes(_ROWS[:20])
    assert len(await store.pieces(_hashes(_ROWS[:20]))) == 20
    await store.write(_turn(11, kept=20, rows=_ROWS[20:21]))
    assert await _rows(store, 11) == _hashes(_ROWS[:21])


async def pieces_go_with_their_last_turn(spaces: Spaces) -> None:
    """Pieces that only expired turns named are gone; those another session names stay."""
    store = await spaces.open()
    await store.write(_turn(1, kept=0, rows=_ROWS[:6]))
    await store.write(_turn(2, kept=2, rows=_ROWS[6:8]))
    await store.write(_turn(1, kept=0, rows=_ROWS[4:5], session="other", at=START + 500))
    assert await store.expire(before=START + 1.5) == 1
    left = await store.pieces(_hashes(_ROWS[:8]))
    assert set(left) == set(_hashes((*_ROWS[:2], _ROWS[4], *_ROWS[6:8])))
    assert await store.expire(before=START + 400) == 1
    left = await store.pieces(_hashes((*_ROWS[:8], _SYSTEM, _TOOLS)))
    assert set(left) == {_ROWS[4].hash, _SYSTEM.hash, _TOOLS.hash}
    assert await store.expire(before=START + 900) == 1
    stats = await store.stats()
    assert (stats.turns, stats.pieces) == (0, 0)
    assert await store.expire(before=START + 900) == 0
