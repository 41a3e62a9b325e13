"""What holds for records of compactions, and for states that stand for a past that was cut."""

from __future__ import annotations

import json
from dataclasses import replace

from recollect.formats.stored_records import join_state
from recollect.testing.store_contract.examples import (
    SESSION,
    START,
    compaction,
    conversation,
    full_batch,
    ids,
    message_id,
    segments,
    session_write,
    text,
)
from recollect.testing.store_contract.harness import Spaces, contents
from recollect.values.batch import Batch
from recollect.values.edit import Cut, Edit, Insert, LeaveOut
from recollect.values.message import MessageId
from recollect.values.reason import NOT_RUN
from recollect.values.segment import NewSegment
from recollect.values.upkeep import ForgetOrder

AT = START + 5_000
MARK = "Großer Bärenklau"


def _said(new: tuple[NewSegment, ...]) -> tuple[MessageId, ...]:
    return tuple(one.segment.message_id for one in new)


async def compactions_come_back_by_number(spaces: Spaces) -> None:
    """Records come back field by field, by number, each of its own session."""
    store = await spaces.open()
    new = segments(3)
    odd = "a session \ud800 with\x00odd signs"
    records = (
        compaction(2, _said(new), at=START + 0.125),
        replace(compaction(1), body=bytes(range(256)) * 400),
        compaction(3, (MessageId("named otherwise"), *_said(new[:1]), MessageId("A" * 32))),
        compaction(1, _said(new), session="another"),
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


async def compaction_that_is_kept_stays_as_it_is(spaces: Spaces) -> None:
    """Writing a session's number again changes nothing, with the same record or another."""
    store = await spaces.open()
    first = compaction(1, (message_id("one"),))
    await store.write(Batch(at=START, compactions=(first,)))
    before = await contents(store, SESSION)
    otherwise = compaction(1, (message_id("two"),), body="otherwise", at=AT)
    for again in (first, otherwise):
        await store.write(Batch(at=AT, compactions=(again,)))
        assert await contents(store, SESSION) == before


async def compaction_goes_with_its_batch(spaces: Spaces) -> None:
    """A record whose session has moved on is left out with it, and no other of the batch is."""
    store = await spaces.open()
    new = segments(4)
    await store.write(Batch(at=START, session=session_write(new, turn=2)))
    late = Batch(
        at=AT,
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


async def compactions_outlive_the_ledger(spaces: Spaces) -> None:
    """Expiring turns, evicting and withdrawing segments leaves records of compactions."""
    store = await spaces.open()
    batch = full_batch(0)
    await store.write(batch)
    assert await store.expire(before=AT) == 1
    await store.evict(max_segments=0, said_before=None)
    await store.withdraw(ids(batch.segments), at=AT)
    assert await store.compactions(SESSION) == batch.compactions


async def compaction_of_a_forgotten_message_goes(spaces: Spaces) -> None:
    """A record goes with any message it stands for, and neither it nor its like comes back."""
    store = await spaces.open()
    new = segments(4)
    records = (
        compaction(1, _said(new[:1])),
        compaction(2, _said(new[:2])),
        compaction(3, _said(new[1:])),
        compaction(1, _said(new[3:]), session="another"),
        compaction(2, _said(new[:1]), session="another"),
    )
    stays = [records[2], records[3]]
    batch = Batch(at=START, segments=new, compactions=records)
    await store.write(batch)
    done = await store.forget(ForgetOrder(at=AT, segments=ids(new[:1])))
    assert done.compactions == 3
    for late in (None, batch, Batch(at=AT, compactions=records)):
        if late is not None:
            await store.write(late)
        left = [*await store.compactions(SESSION), *await store.compactions("another")]
        assert left == stays
    like = compaction(1, _said(new[:1]), body="of the same message")
    await store.write(Batch(at=AT, compactions=(like, compaction(2, _said(new[1:2])))))
    assert [one.number for one in await store.compactions(SESSION)] == [2, 3]
    never = message_id("never stored")
    assert (await store.forget(ForgetOrder(at=AT, message_ids=(never,)))).compactions == 0
    await store.write(Batch(at=AT, compactions=(compaction(4, (never,)),)))
    assert (await store.stats()).compactions == 3


async def compactions_of_a_forgotten_session_go(spaces: Spaces) -> None:
    """A forgotten session takes its records, whatever they stand for; a new one may begin."""
    store = await spaces.open()
    one, two = segments(3, session="one"), segments(3, first=50, session="two")
    records = (
        compaction(1, _said(one), session="one"),
        compaction(2, (), session="one"),
        compaction(1, _said(two), session="two"),
        compaction(1, (), session="only compactions"),
    )
    batch = Batch(at=START, segments=(*one, *two), compactions=records)
    await store.write(batch)
    order = ForgetOrder(at=AT, sessions=("one", "only compactions"))
    assert (await store.forget(order)).compactions == 3
    for late in (None, batch, Batch(at=AT, compactions=records)):
        if late is not None:
            await store.write(late)
        assert await store.compactions("one") == ()
        assert await store.compactions("only compactions") == ()
        assert await store.compactions("two") == records[2:3]
    anew = compaction(1, (message_id("said anew"),), session="one")
    await store.write(Batch(at=AT, compactions=(anew,)))
    assert await store.compactions("one") == (anew,)


async def compactions_of_forgotten_places_go(spaces: Spaces) -> None:
    """A record goes with a place of its session that it stands for, though the words stay said."""
    store = await spaces.open()
    stock = "what everybody says"
    one = conversation(["early", stock, "late"], session="one")
    two = conversation([stock, "other"], session="two", said_at=START + 100)
    kept = (
        compaction(2, _said(one[2:]), session="one"),
        compaction(1, _said(two), session="two"),
    )
    gone = (
        compaction(1, _said(one[1:2]), session="one"),
        compaction(3, _said(one[:1]), session="one"),
        compaction(2, _said(one[:1]), session="two"),
    )
    await store.write(Batch(at=START, segments=(*one, *two), compactions=(*kept, *gone)))
    order = ForgetOrder(at=AT, sessions=("one",), said_before=START + 1.5)
    done = await store.forget(order)
    assert (len(done.segments), done.message_ids, done.compactions) == (2, (), 3)
    unheard = compaction(9, _said(one[:1]), session="two")
    for late in ((), gone, (unheard,)):
        await store.write(Batch(at=AT, compactions=late))
        assert await store.compactions("one") == kept[:1]
        assert await store.compactions("two") == kept[1:]
    said_again = conversation(["early"], session="three")
    await store.write(Batch(at=AT, segments=said_again, compactions=(unheard,)))
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
    done = await store.forget(ForgetOrder(at=AT, matching=MARK.lower()))
    assert (done.compactions, done.message_ids) == (2, ())
    for _ in range(2):
        assert await store.compactions(SESSION) == records[2:]
        await store.write(Batch(at=AT, compactions=records))
    another = compaction(1, body="nothing of it")
    await store.write(Batch(at=AT, compactions=(another,)))
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
    write = session_write(new, turn=1, edits=edits, about=(*covered, *_said(new[:2])))
    await store.write(Batch(at=START, segments=new, session=write))
    for turn in (2, 3):  # the same list, then a longer one
        more = write.about if turn == 2 else (*write.about, message_id("more"))
        write = replace(write, turn=turn, about=more)
        assert not (await store.write(Batch(at=START, session=write))).session_stale
    stored = await store.session(SESSION)
    assert stored is not None
    assert join_state(stored.state, (), ()).edits == edits
    stranger = ForgetOrder(at=AT, message_ids=(message_id("a stranger"),))
    assert (await store.forget(stranger)).session_states == 0
    for turn, gone in enumerate((covered[700], new[1].segment.message_id), start=4):
        order = ForgetOrder(at=AT, message_ids=(gone,))
        assert (await store.forget(order)).session_states == 1
        late = replace(write, turn=turn)  # of a process that does not know of it
        for batch in (None, Batch(at=AT, session=late)):
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
    write = session_write(new, turn=1, edits=(cut,), about=_said(new[:299]))
    await store.write(Batch(at=START, segments=new, session=write))
    done = await store.forget(ForgetOrder(at=AT, sessions=(SESSION,), said_before=START + 0.5))
    assert (len(done.segments), done.session_states) == (1, 1)
    for late in (None, replace(write, turn=2)):
        if late is not None:
            await store.write(Batch(at=AT, session=late))
        stored = await store.session(SESSION)
        assert stored is not None
        assert join_state(stored.state, (), ()).edits == ()
    again = conversation([new[0].segment.text], session="elsewhere")
    stands = replace(write, turn=3)
    await store.write(Batch(at=AT, segments=again, session=stands))
    stored = await store.session(SESSION)
    assert stored is not None
    assert stored.state == stands.state, "it is said again"
