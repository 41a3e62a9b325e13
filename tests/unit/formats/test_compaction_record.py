"""A compaction as bytes: read as written, and nothing else is read."""

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.core.formats.stored_records import read_record, write_record
from recollect.core.values.compaction import (
    CompactionResult,
    Convergence,
    Probe,
    ProbeFinding,
    ProbeKind,
    Receipt,
    Spent,
    Standing,
    Trigger,
)
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.reason import NOT_RUN, Cause, Reason
from recollect.errors import FormatError

COUNT = st.integers(0, 2**40)
FINDINGS = st.builds(
    ProbeFinding,
    probe=st.builds(
        Probe,
        kind=st.sampled_from(get_args(ProbeKind)),
        text=st.text(),
        sentence=st.text(),
        source=st.text().map(MessageId),
        key=st.text().map(EntryKey),
    ),
    standing=st.sampled_from(get_args(Standing)),
    pinned=st.booleans(),
)
RESULTS = st.builds(
    CompactionResult,
    convergence=st.sampled_from(get_args(Convergence)),
    reason=st.text().map(lambda said: Reason(Cause.ERROR, error=said)),
    trigger=st.sampled_from(get_args(Trigger)),
    number=COUNT,
    summary=st.text(),
    first_kept=st.none() | st.text().map(EntryKey),
    compacted_messages=COUNT,
    tokens_before=COUNT,
    tokens_after=COUNT,
    splits_a_turn=st.booleans(),
    details=st.dictionaries(st.text(), st.lists(st.text(), max_size=3), max_size=3),
    receipt=st.none()
    | st.builds(
        Receipt,
        findings=st.lists(FINDINGS, max_size=4).map(tuple),
        pinned_tokens=COUNT,
        notes=st.lists(st.text(), max_size=2).map(tuple),
    ),
    spent=st.builds(Spent, calls=COUNT, input_tokens=COUNT, output_tokens=COUNT, max_calls=COUNT),
    notes=st.lists(st.text(), max_size=2).map(tuple),
    seconds=st.floats(0, 1e6),
)


@given(RESULTS, COUNT, st.floats(0, 4e9))
def test_what_is_read_is_what_was_written(result: CompactionResult, turn: int, at: float) -> None:
    found = read_record(write_record(result, turn=turn, written_at=at))
    assert (found.result, found.turn, found.at) == (result, turn, at)


def held() -> dict[str, Any]:
    probe = Probe(
        kind="path",
        text="src/app.py",
        sentence="in src/app.py",
        source=MessageId("m"),
        key=EntryKey("k"),
    )
    result = CompactionResult(
        convergence="reduced",
        reason=NOT_RUN,
        trigger="manual",
        receipt=Receipt(findings=(ProbeFinding(probe=probe, standing="lost"),)),
    )
    told = json.loads(write_record(result, turn=3, written_at=1.0))
    assert isinstance(told, dict)
    return told


NAMES = sorted(held())


@pytest.mark.parametrize("name", NAMES)
def test_a_field_that_is_missing_or_of_another_kind_is_refused(name: str) -> None:
    without = {key: value for key, value in held().items() if key != name}
    other: Any = "soon" if name in ("at", "seconds") else 7.5
    for changed in (without, {**held(), name: other}):
        raw = json.dumps(changed).encode()
        with pytest.raises(FormatError):
            read_record(raw)


def test_a_word_of_a_newer_version_is_refused_without_being_quoted() -> None:
    told = held()
    told["receipt"]["findings"][0]["standing"] = "somewhere secret"
    with pytest.raises(FormatError) as refused:
        read_record(json.dumps(told).encode())
    assert "secret" not in str(refused.value)
