"""A batch says its version, and comes back as it was."""

from dataclasses import replace

import pytest
from tests.store_contract.examples import START, fact, fact_vectors, full_batch, segment

from recollect.core.formats.stored_records import (
    join_state,
    read_batch,
    split_state,
    with_texts,
    write_batch,
)
from recollect.core.values.batch import Batch
from recollect.core.values.edit import Carried, Cut, Insert, LeaveOut, ToolFailure
from recollect.core.values.fact import EvidenceSpan, ExtractedTo
from recollect.core.values.history import SessionState
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.reason import NOT_RUN
from recollect.core.values.segment import SegmentId
from recollect.errors import FormatError

PLAIN = fact("plain", trust="low", sources=[SegmentId("a" * 32)], foreign="{}")
SPAN = EvidenceSpan(segment=SegmentId("a" * 32), start=1, end=4)


FACTS = (
    *(replace(PLAIN, valid_to=START), replace(PLAIN, recorded_at=START)),
    *(replace(PLAIN, subject="port"), replace(PLAIN, attribute="port")),
    *(replace(PLAIN, evidence=(SPAN,)), replace(PLAIN, made_by="rules")),
    *(replace(PLAIN, change="update"), replace(PLAIN, session="talk")),
    *(replace(PLAIN, pinned=True), replace(PLAIN, joint=True), replace(PLAIN, type="preference")),
    replace(PLAIN, trust="outside"),
)


@pytest.mark.parametrize(
    "batch",
    [Batch(at=START, facts=(PLAIN, one)) for one in FACTS]
    + [
        Batch(at=START, fact_vectors=(fact_vectors((PLAIN,)),)),
        Batch(at=START, extracted=(ExtractedTo(session="talk", sequence=3),)),
        Batch(at=START, facts=(PLAIN,), facts_revision=0),
        Batch(at=START, segments=(segment("fetched", trust="outside"),)),
        replace(full_batch(1), facts_revision=4),
    ],
)
def test_a_batch_comes_back_as_it_was(batch: Batch) -> None:
    record = write_batch(batch)
    assert record[:2] == b"B1"
    assert read_batch(record) == batch


def test_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(FormatError, match="newer"):
        read_batch(b"B4" + write_batch(Batch(at=START))[2:])


IDS = tuple(MessageId(f"{number:032x}") for number in range(300))
PATH = tuple(EntryKey(f"k{number}") for number in range(300))


def state(said: str) -> SessionState:
    block = Insert(
        anchor=PATH[3], placement="before", text=said, stage="inject", reason=NOT_RUN, turn=2
    )
    carried = Carried(
        read_files=(said,), failures=(ToolFailure(tool="bash", said=said),), identifiers=("a", said)
    )
    cut = Cut(
        anchor=PATH[200],
        summary=f"{said} and the tide",
        stage="compact",
        reason=NOT_RUN,
        turn=2,
        covers=IDS[:200],
        ended=(block,),
        carried=carried,
    )
    left = LeaveOut(anchor=PATH[201], part=None, stage="trim", reason=NOT_RUN, turn=2)
    return SessionState(turn=2, path=PATH, ids=IDS, edits=(cut, block, left), dormant=((cut, 1),))


@pytest.mark.parametrize("times", [1, 500])
def test_every_text_changes_and_nothing_else(times: int) -> None:
    raw = split_state(state("secret " * times))
    assert raw.startswith(b"Z1") == (times > 1), "a long one is packed"
    changed = with_texts(raw, lambda text: text.replace("secret ", "mask "))
    assert join_state(changed, PATH, IDS) == state("mask " * times)
    assert with_texts(changed, lambda text: text.replace("secret ", "mask ")) is changed


def test_what_is_no_state_is_refused() -> None:
    for raw in (b"[]", b'{"version": 99}', b"Z1torn"):
        with pytest.raises(FormatError):
            with_texts(raw, str.upper)
