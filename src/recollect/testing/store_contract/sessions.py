"""What holds for sessions: the path grows, branches and is never set back by a late write."""

from __future__ import annotations

from dataclasses import replace

from recollect.formats.stored_records import join_state, split_state
from recollect.rules.identity import ROOT, chain
from recollect.testing.store_contract.examples import (
    SESSION,
    START,
    conversation,
    segments,
    session_write,
)
from recollect.testing.store_contract.harness import Spaces
from recollect.values.batch import Batch, SessionWrite, TurnRecord
from recollect.values.edit import Cut, Insert, LeaveOut, Shorten
from recollect.values.history import SessionState, TokenCalibration
from recollect.values.message import EntryKey, MessageId
from recollect.values.reason import NOT_RUN


async def path_grows(spaces: Spaces) -> None:
    """A write from the end of the path on appends to it."""
    store = await spaces.open()
    assert await store.session(SESSION) is None
    new = segments(9)
    await store.write(Batch(at=START, session=session_write(new[:4], turn=1)))
    await store.write(Batch(at=START, session=session_write(new[4:7], turn=2, path_from=4)))
    await store.write(Batch(at=START, session=session_write(new[7:], turn=3, path_from=7)))
    await store.write(Batch(at=START, session=session_write((), turn=4, path_from=9)))
    stored = await store.session(SESSION)
    assert stored is not None
    assert (stored.session, stored.turn) == (SESSION, 4)
    assert stored.path == tuple(one.segment.key for one in new)
    assert stored.ids == tuple(one.segment.message_id for one in new)


async def path_branches(spaces: Spaces) -> None:
    """A write from the middle of the path on replaces what stood there, shorter or longer."""
    store = await spaces.open()
    new = segments(6)
    await store.write(Batch(at=START, session=session_write(new, turn=1)))
    branch = conversation(["another way", "of going on"], parent=new[1].segment.key)
    await store.write(Batch(at=START, session=session_write(branch, turn=2, path_from=2)))
    stored = await store.session(SESSION)
    assert stored is not None
    assert stored.path == tuple(one.segment.key for one in (*new[:2], *branch))
    assert stored.ids == tuple(one.segment.message_id for one in (*new[:2], *branch))
    await store.write(Batch(at=START, session=session_write(new, turn=3, path_from=0)))
    await store.write(Batch(at=START, session=session_write((), turn=4, path_from=1)))
    stored = await store.session(SESSION)
    assert stored is not None
    assert stored.path == (new[0].segment.key,)
    assert stored.ids == (new[0].segment.message_id,)


async def late_session_write_is_left_out(spaces: Spaces) -> None:
    """A session write of no later turn than the stored one changes nothing and is told."""
    store = await spaces.open()
    new = segments(6)
    await store.write(Batch(at=START, session=session_write(new, turn=7)))
    before = await store.session(SESSION)
    late = await store.write(Batch(at=START + 1, session=session_write(new[:1], turn=6)))
    assert late.session_stale
    assert await store.session(SESSION) == before
    again = await store.write(Batch(at=START, session=session_write(new, turn=7)))
    assert not again.session_stale
    other = replace(session_write(new[:2], turn=7), state=split_state(SessionState(turn=700)))
    written = await store.write(Batch(at=START, session=other))
    assert written.session_stale, "another process took this turn first"
    assert await store.session(SESSION) == before
    newer = await store.write(Batch(at=START, session=session_write(new[:2], turn=8)))
    assert not newer.session_stale
    stored = await store.session(SESSION)
    assert stored is not None
    assert (stored.turn, len(stored.path)) == (8, 2)


async def stale_session_takes_its_turns_along(spaces: Spaces) -> None:
    """Turns of a session whose write is stale are not recorded; segments and other turns are."""
    store = await spaces.open()
    new = segments(6)

    def turn(number: int, session: str = SESSION) -> TurnRecord:
        return TurnRecord(session=session, number=number, at=START, format="pi")

    first = Batch(at=START, session=session_write(new[:3], turn=7), turns=(turn(7),))
    await store.write(first)
    for stale in (
        session_write(new[:1], turn=6),
        replace(session_write(new[:2], turn=7), state=split_state(SessionState(turn=700))),
        session_write(new[5:], turn=8, path_from=5),
    ):
        batch = Batch(
            at=START, segments=new, session=stale, turns=(turn(6), turn(8), turn(8, "other"))
        )
        assert (await store.write(batch)).session_stale
        assert await store.turns(SESSION) == (7,)
        assert await store.turns("other") == (8,)
        assert len(await store.page()) == 6
    assert not (await store.write(first)).session_stale
    grown = session_write(new[3:], turn=8, path_from=3)
    await store.write(Batch(at=START, session=grown, turns=(turn(8),)))
    assert await store.turns(SESSION) == (7, 8)


async def path_has_no_gap(spaces: Spaces) -> None:
    """A write that begins beyond the stored path is left out and told: a path is never wrong."""
    store = await spaces.open()
    new = segments(9)
    for stored in (0, 3):
        if stored:
            await store.write(Batch(at=START, session=session_write(new[:stored], turn=1)))
        before = await store.session(SESSION)
        beyond = session_write(new[5:], turn=2, path_from=5)
        written = await store.write(Batch(at=START, session=beyond))
        assert written.session_stale
        assert await store.session(SESSION) == before
    whole = await store.write(Batch(at=START, session=session_write(new, turn=2)))
    assert not whole.session_stale


async def long_path_comes_back(spaces: Spaces) -> None:
    """A path of 20,000 messages is kept, grows and branches like a short one."""
    store = await spaces.open()
    keys: list[EntryKey] = []
    for number in range(20_000):
        keys.append(chain(keys[-1] if keys else ROOT, MessageId(f"{number:032x}")))
    identities = tuple(MessageId(f"{number:032x}") for number in range(20_000))
    whole = SessionWrite(
        session=SESSION,
        turn=1,
        state=split_state(SessionState(turn=1)),
        path=tuple(keys[:19_999]),
        ids=identities[:19_999],
    )
    await store.write(Batch(at=START, session=whole))
    await store.write(
        Batch(
            at=START,
            session=replace(
                whole, turn=2, path_from=19_999, path=tuple(keys[-1:]), ids=identities[-1:]
            ),
        )
    )
    stored = await store.session(SESSION)
    assert stored is not None
    assert stored.path == tuple(keys)
    assert stored.ids == identities
    await store.write(
        Batch(at=START, session=replace(whole, turn=3, path_from=10, path=(), ids=()))
    )
    stored = await store.session(SESSION)
    assert stored is not None
    assert stored.path == tuple(keys[:10])


def _cut(anchor: EntryKey, covers: tuple[MessageId, ...]) -> Cut:
    return Cut(anchor=anchor, summary="s", stage="compact", reason=NOT_RUN, turn=1, covers=covers)


async def session_state_comes_back(spaces: Spaces) -> None:
    """A state that was taken apart for the store is the same state when put together again."""
    store = await spaces.open()
    new = segments(5)
    keys = tuple(one.segment.key for one in new)
    identities = tuple(one.segment.message_id for one in new)
    state = SessionState(
        turn=3,
        path=keys,
        ids=identities,
        aliases={keys[0]: keys[1]},
        edits=(
            LeaveOut(anchor=keys[0], part=None, stage="trim", reason=NOT_RUN, turn=1),
            Shorten(anchor=keys[1], part=0, text="… 🙂", stage="prune", reason=NOT_RUN, turn=2),
            Insert(
                anchor=None, placement="head", text="重", stage="inject", reason=NOT_RUN, turn=2
            ),
        ),
        dormant=(
            (_cut(keys[2], identities[:2]), 2),
            (_cut(keys[4], identities), 1),
            (_cut(keys[4], (*identities[:2], MessageId("of another branch"))), 1),
        ),
        calibration=TokenCalibration(),
        sent_at=START + 0.125,
        sent_estimate_tokens=12,
        sent_model="m",
    )
    write = replace(session_write(new, turn=3), state=split_state(state))
    await store.write(Batch(at=START, session=write))
    store = await spaces.reopen(store)
    stored = await store.session(SESSION)
    assert stored is not None
    assert stored.state == write.state
    assert join_state(stored.state, stored.path, stored.ids) == state


async def sessions_do_not_touch_each_other(spaces: Spaces) -> None:
    """Writing one session leaves another as it was."""
    store = await spaces.open()
    one, two = segments(4, session="one"), segments(6, session="two")
    await store.write(Batch(at=START, session=session_write(one, turn=9, session="one")))
    await store.write(Batch(at=START, session=session_write(two, turn=1, session="two")))
    await store.write(
        Batch(at=START, session=session_write(two[:1], turn=2, session="two", path_from=3))
    )
    stored_one, stored_two = await store.session("one"), await store.session("two")
    assert stored_one is not None
    assert stored_two is not None
    assert (stored_one.turn, len(stored_one.path)) == (9, 4)
    assert (stored_two.turn, len(stored_two.path)) == (2, 4)
    assert stored_two.path[3] == two[0].segment.key


async def sessions_are_listed(spaces: Spaces) -> None:
    """Sessions that have segments are listed, oldest first, with their counts and times."""
    store = await spaces.open()
    assert await store.sessions() == ()
    for place, name in enumerate(("b", "a", "c")):
        new = segments(place + 1, session=name, said_at=START + place * 1_000)
        await store.write(Batch(at=START, segments=new))
    await store.write(Batch(at=START, session=session_write((), turn=1, session="only a state")))
    listed = await store.sessions()
    assert [(one.session, one.segments) for one in listed] == [("b", 1), ("a", 2), ("c", 3)]
    assert [(one.first_said_at, one.last_said_at) for one in listed] == [
        (START, START),
        (START + 1_000, START + 1_001),
        (START + 2_000, START + 2_002),
    ]
