"""A batch says its version, and comes back as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.store_contract.examples import START, fact, fact_vectors, full_batch, segment

from recollect.core.formats.stored_records import read_batch, write_batch
from recollect.core.values.batch import Batch
from recollect.core.values.fact import EvidenceSpan, ExtractedTo
from recollect.core.values.segment import SegmentId
from recollect.errors import FormatError

PLAIN = fact("plain", trust="low", sources=[SegmentId("a" * 32)], foreign="{}")
SPAN = EvidenceSpan(segment=SegmentId("a" * 32), start=1, end=4)


FACTS = (
    replace(PLAIN, valid_to=START),
    replace(PLAIN, recorded_at=START),
    replace(PLAIN, subject="port"),
    replace(PLAIN, attribute="port"),
    replace(PLAIN, evidence=(SPAN,)),
    replace(PLAIN, made_by="rules"),
    replace(PLAIN, change="update"),
    replace(PLAIN, session="talk"),
    replace(PLAIN, pinned=True),
    replace(PLAIN, joint=True),
    replace(PLAIN, type="preference"),
    replace(PLAIN, type="digest"),
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
