"""What waits in the spool can be forgotten: nothing of it is left in a record."""

import json
from dataclasses import replace

from tests.store_contract import examples
from tests.unit.upkeep.quoting import MARKER, quoting_batch

from recollect.core.formats.stored_records import (
    join_state,
    read_batch,
    read_state,
    split_state,
    write_batch,
)
from recollect.core.upkeep.matching import ForgetSet, without_forgotten
from recollect.core.values.batch import Batch, NewJob
from recollect.core.values.edit import LeaveOut, Shorten
from recollect.core.values.history import SessionState
from recollect.core.values.reason import NOT_RUN
from recollect.core.values.upkeep import ForgetOrder


def test_nothing_that_quotes_a_forgotten_message_is_left() -> None:
    batch = quoting_batch()
    said, other = (new.segment for new in batch.segments)
    record = write_batch(batch)
    assert MARKER.encode() in record
    left = ForgetSet(order=ForgetOrder(at=1.0), message_ids={said.message_id}).remove(record)
    assert left is not None
    assert MARKER.encode() not in left
    kept = read_batch(left)
    assert [new.segment.id for new in kept.segments] == [other.id]
    assert {one.segment for one in kept.vectors[0].vectors} == {other.id}
    assert [(fact.id, fact.sources) for fact in kept.facts] == [
        ("both", (other.id,)),
        ("by hand", ()),
    ]
    assert [job.key for job in kept.jobs] == ["b"]
    assert len(kept.pieces) == 1
    assert [one.number for one in kept.compactions] == [2]
    assert kept.session is not None
    assert kept.session.about == ()
    assert [type(edit) for edit in read_state(kept.session.state).edits] == [LeaveOut]
    assert kept.session.path == (said.key, other.key), "where it stood is no content"


def test_a_spooled_message_is_found_by_every_way_of_asking() -> None:
    batch = quoting_batch()
    said = batch.segments[0].segment
    later = replace(batch.segments[1], segment=replace(batch.segments[1].segment, said_at=9e9))
    record = write_batch(Batch(at=1.0, segments=(batch.segments[0], later)))
    for order in (
        ForgetOrder(at=1.0, message_ids=(said.message_id,)),
        ForgetOrder(at=1.0, segments=(said.id,)),
        ForgetOrder(at=1.0, said_before=said.said_at + 0.5),
    ):
        gone = ForgetSet(
            order=order, message_ids=set(order.message_ids), segments=set(order.segments)
        )
        assert gone.look_at(record) == record
        by_place = order.said_before is not None
        assert gone.message_ids == {said.id if by_place else said.message_id}, order
        left = gone.remove(record)
        assert left is not None
        assert MARKER.encode() not in left
    whole = ForgetSet(order=ForgetOrder(at=1.0, sessions=("talk",)))
    assert whole.remove(record) is None, "nothing is left of it"


def test_by_place_the_same_words_elsewhere_stay_and_what_quotes_them_goes() -> None:
    batch = quoting_batch()
    said = batch.segments[0].segment
    (twin,) = examples.conversation([said.text], session="elsewhere")
    assert twin.segment.message_id == said.message_id
    order = ForgetOrder(at=1.0, sessions=("talk",))
    left = ForgetSet(order=order).remove(
        write_batch(replace(batch, segments=(*batch.segments, twin)))
    )
    assert left is not None
    kept = read_batch(left)
    assert [new.segment.id for new in kept.segments] == [twin.segment.id]
    assert kept.session is None
    assert all(said.message_id not in piece.about for piece in kept.pieces)
    assert kept.compactions == ()
    both = ForgetOrder(at=1.0, sessions=("talk",), said_before=said.said_at)
    assert ForgetSet(order=both).remove(write_batch(batch)) == write_batch(batch), "both must hold"


def test_what_holds_a_text_and_is_about_nobody_goes_too() -> None:
    told = json.dumps({"role": "system", "text": json.dumps({"is": f'"{MARKER}"'})})
    batch = Batch(
        at=1.0,
        pieces=(examples.piece(told, about=()), examples.piece("other", about=())),
        jobs=(NewJob(kind="a", key="b", payload=told.encode()),),
        compactions=(examples.compaction(1, body=told), examples.compaction(2)),
    )
    left = ForgetSet(order=ForgetOrder(at=1.0, matching=f'"{MARKER.upper()}"')).remove(
        write_batch(batch)
    )
    assert left is not None
    kept = read_batch(left)
    assert (len(kept.pieces), kept.jobs) == (1, ())
    assert [one.number for one in kept.compactions] == [2]


def test_a_record_of_another_version_is_left_and_told() -> None:
    gone = ForgetSet(order=ForgetOrder(at=1.0, sessions=("talk",)))
    assert gone.remove(b"B9 unknown") == b"B9 unknown"
    assert gone.unread == 1


def test_a_long_state_that_was_packed_is_kept_without_its_quotes() -> None:
    batch = quoting_batch()
    assert batch.session is not None
    said, other = (new.segment for new in batch.segments)
    edits = tuple(
        Shorten(
            anchor=said.key,
            part=n,
            text=f"{MARKER} {n}" * 50,
            stage="prune",
            reason=NOT_RUN,
            turn=1,
        )
        for n in range(20)
    )
    left_out = LeaveOut(anchor=other.key, part=0, stage="prune", reason=NOT_RUN, turn=1)
    state = split_state(SessionState(turn=1, edits=(*edits, left_out)))
    assert MARKER.encode() not in state, "it is packed"
    long = replace(batch, session=replace(batch.session, state=state))
    kept = without_forgotten(long, frozenset({said.message_id}), frozenset()).session
    assert kept is not None
    assert join_state(kept.state, (), ()).edits == (left_out,)
