"""What a store says of a session's write that quotes what was forgotten meanwhile."""

from __future__ import annotations

from dataclasses import replace

from recollect.formats.stored_records import join_state, split_state
from recollect.ports import Store
from recollect.testing.store_contract.examples import (
    SESSION,
    START,
    compaction,
    conversation,
    ids,
    message_id,
    segments,
    session_write,
)
from recollect.testing.store_contract.harness import Spaces, contents
from recollect.values.batch import Batch, WriteResult
from recollect.values.edit import Cut, Edit, LeaveOut
from recollect.values.history import SessionState
from recollect.values.message import MessageId
from recollect.values.reason import NOT_RUN
from recollect.values.segment import NewSegment
from recollect.values.upkeep import ForgetOrder

AT = START + 5_000


def _said(new: tuple[NewSegment, ...]) -> tuple[MessageId, ...]:
    return tuple(one.segment.message_id for one in new)


def _cut(new: tuple[NewSegment, ...], covered: int, *, number: int = 1) -> Cut:
    return Cut(anchor=new[covered].segment.key, summary=f"marker {number}", stage="compact",
               reason=NOT_RUN, turn=number, number=number, before=number - 1,
               covers=_said(new[:covered]))  # fmt: skip


def _told(written: WriteResult) -> tuple[bool, bool]:
    return written.session_stale, written.session_cleaned


async def write_that_quotes_the_forgotten_is_told(spaces: Spaces) -> None:
    """A state held since before its covered message was forgotten is stored bare, and told so."""
    store = await spaces.open()
    new = segments(600, words=3)
    out = LeaveOut(anchor=new[599].segment.key, part=None, stage="trim", reason=NOT_RUN, turn=1)
    edits: tuple[Edit, ...] = (_cut(new, 2), _cut(new, 590, number=2), out)
    resting = (_cut(new, 300, number=3), 1)
    held = SessionState(turn=1, edits=edits, dormant=(resting,))
    write = replace(session_write(new, turn=1, about=_said(new[:590])), state=split_state(held))
    assert _told(await store.write(Batch(at=START, segments=new, session=write))) == (False, False)
    for turn, gone in ((2, 400), (3, 1)):  # covered by the newest alone, and by all
        await store.forget(ForgetOrder(at=AT, segments=ids(new[gone : gone + 1])))
        late = Batch(at=AT, session=replace(write, turn=turn, path_from=600, path=(), ids=()))
        for _ in range(2):  # as after an answer that was lost
            assert _told(await store.write(late)) == (False, True)
            stored = await store.session(SESSION)
            assert stored is not None
            assert (stored.turn, stored.path) == (turn, write.path)
            bare = join_state(stored.state, (), ())
            assert (bare.edits, bare.dormant) == ((out,), ())
            assert b"marker" not in stored.state
    bare_state = split_state(SessionState(turn=4, edits=(out,)))
    loaded = replace(write, turn=4, state=bare_state, about=())
    assert _told(await store.write(Batch(at=AT, session=loaded))) == (False, False)


async def spooled_write_of_the_forgotten_is_told(spaces: Spaces) -> None:
    """A write that comes again after what it quotes was forgotten changes nothing, and is told."""
    store = await spaces.open()
    new = segments(4)
    write = session_write(new, turn=1, edits=(_cut(new, 2),), about=_said(new[:2]))
    batch = Batch(at=START, segments=new, session=write)
    await store.write(batch)
    await store.forget(ForgetOrder(at=AT, message_ids=_said(new[:1])))
    before = await contents(store, SESSION)
    assert _told(await store.write(batch)) == (False, True)
    assert await contents(store, SESSION) == before
    another = session_write(new, turn=1, about=_said(new[:1]), edits=(
        LeaveOut(anchor=new[3].segment.key, part=None, stage="trim", reason=NOT_RUN, turn=1),
    ))  # fmt: skip
    assert _told(await store.write(Batch(at=AT, session=another))) == (True, False)
    assert await contents(store, SESSION) == before


async def ordinary_session_write_is_not_cleaned(spaces: Spaces) -> None:
    """A state that is stored as it was given is never said to be cleaned; nor is a stale one."""
    store = await spaces.open()
    new = segments(4)
    quoting = session_write(new, turn=2, edits=(_cut(new, 2),), about=_said(new[:2]))
    await store.forget(ForgetOrder(at=AT, message_ids=(message_id("a stranger"),)))
    for write in (
        session_write(new, turn=1),
        quoting,
        quoting,
        replace(quoting, turn=3, about=_said(new[:3])),
        session_write(new, turn=4, about=(message_id("a stranger"),)),  # and it quotes nobody
    ):
        written = await store.write(Batch(at=AT, segments=new, session=write))
        assert _told(written) == (False, False)
        stored = await store.session(SESSION)
        assert stored is not None
        assert stored.state == write.state
    late = replace(quoting, turn=3, about=(message_id("a stranger"),))
    assert _told(await store.write(Batch(at=AT, session=late))) == (True, False)
    beyond = replace(quoting, turn=5, path_from=9)
    assert _told(await store.write(Batch(at=AT, session=beyond))) == (True, False)
    assert _told(await store.write(Batch(at=AT, segments=new))) == (False, False)


async def state_that_nobody_can_clean_is_told(spaces: Spaces) -> None:
    """A state that quotes the forgotten and cannot be read is not stored, and told so."""
    store = await spaces.open()
    new = segments(3)
    unreadable = replace(session_write(new, turn=1, about=_said(new[:1])), state=b"another's")
    assert _told(await store.write(Batch(at=START, session=unreadable))) == (False, False)
    await store.forget(ForgetOrder(at=AT, message_ids=_said(new[:1])))
    late = replace(unreadable, turn=2)
    assert _told(await store.write(Batch(at=AT, session=late))) == (True, True)
    assert await store.session(SESSION) is None


def _compacting(new: tuple[NewSegment, ...], *, turn: int) -> Batch:
    """What is written when the first two messages become a summary."""
    write = session_write(new, turn=turn, edits=(_cut(new, 2),), about=_said(new[:2]))
    return Batch(at=AT, session=write, compactions=(compaction(1, _said(new[:2])),))


async def _refuses_both(store: Store, batch: Batch) -> None:
    for _ in range(2):
        assert _told(await store.write(batch)) == (False, True)
        assert await store.compactions(SESSION) == ()
        stored = await store.session(SESSION)
        assert stored is not None
        assert join_state(stored.state, (), ()).edits == ()


async def refused_compaction_goes_with_a_cleaned_session(spaces: Spaces) -> None:
    """Where the record of a compaction is refused, its cut does not stand, and that is told."""
    store = await spaces.open()
    new = segments(4)
    await store.write(Batch(at=START, segments=new, session=session_write(new, turn=1)))
    await store.forget(ForgetOrder(at=AT, message_ids=_said(new[:1])))
    await _refuses_both(store, _compacting(new, turn=2))


async def refused_compaction_of_a_place_cleans_the_session(spaces: Spaces) -> None:
    """So it is where a place was forgotten, and the words then withdrawn where else they stood."""
    store = await spaces.open()
    new = conversation(["said by all", "one", "two", "three"])
    twin = conversation(["said by all"], session="file")
    await store.write(Batch(at=START, segments=(*new, *twin)))
    done = await store.forget(ForgetOrder(at=AT, sessions=(SESSION,), said_before=START + 0.5))
    assert len(done.segments) == 1
    stands = replace(_compacting(new, turn=1), compactions=())
    assert _told(await store.write(stands)) == (False, False)
    await store.withdraw(ids(twin), at=AT)
    await _refuses_both(store, _compacting(new, turn=2))
