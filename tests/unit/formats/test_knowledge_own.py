"""What our own facts say beyond OpenClaw's keys: written where it says something, and read back."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.core.formats.openclaw_files import (
    OWN_KEYS,
    foreign_of,
    read_knowledge_lines,
    with_own_keys,
    write_knowledge_line,
)
from recollect.core.values.fact import EvidenceSpan, Fact, FactId
from recollect.core.values.segment import SegmentId

BARE = Fact(id=FactId("f1"), type="decision", content="Use it", at=1771000000.0)
FULL = replace(
    BARE,
    trust="high",
    made_by="user",
    valid_to=1771000001.5,
    recorded_at=1771000002.25,
    subject="the service 世界",
    attribute="port",
    sources=(SegmentId("a" * 32), SegmentId("b" * 32)),
    evidence=(EvidenceSpan(segment=SegmentId("a" * 32), start=0, end=7),),
    change="supersede",
    session="talk",
    pinned=True,
    joint=True,
)


def _back(line: str, fact: Fact = BARE) -> Fact:
    (read,) = read_knowledge_lines([line.encode()], [])
    return with_own_keys(fact, read.value, restored=True)


def test_a_fact_as_openclaw_knows_it_has_no_key_more() -> None:
    assert set(json.loads(write_knowledge_line(BARE))) == {
        "id", "type", "content", "context", "timestamp",
    }  # fmt: skip


def test_all_of_our_own_comes_back() -> None:
    line = write_knowledge_line(FULL)
    assert set(json.loads(line)) >= OWN_KEYS
    assert _back(line) == FULL
    assert _back(line, replace(FULL, subject="another")) == FULL


@pytest.mark.parametrize(
    ("said", "trust"),
    [
        ({}, "medium"),
        ({"trust": "high"}, "medium"),
        ({"trust": "high", "madeBy": "model"}, "medium"),
        ({"trust": "high", "madeBy": "user"}, "medium"),
        ({"trust": "low", "madeBy": "user"}, "low"),
        ({"trust": "outside"}, "outside"),
        ({"trust": "root"}, "medium"),
        ({"trust": ["high"], "madeBy": "user"}, "medium"),
    ],
)
def test_a_file_by_itself_raises_no_trust(said: dict[str, Any], trust: str) -> None:
    read = with_own_keys(BARE, {**said, "pinned": True}, restored=False)
    assert (read.trust, read.made_by, read.pinned) == (trust, "import", False)
    claimed = said.get("trust")
    restored = with_own_keys(BARE, said, restored=True)
    assert restored.trust == (claimed if claimed in ("high", "low", "outside") else "medium")


@given(
    st.dictionaries(
        st.sampled_from(sorted(OWN_KEYS)),
        st.one_of(
            st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=4),
            st.lists(st.one_of(st.text(max_size=3), st.dictionaries(
                st.sampled_from(["segment", "start", "end"]),
                st.one_of(st.text(max_size=3), st.integers(), st.none()),
            )), max_size=3),
        ),
    )
)  # fmt: skip
def test_odd_values_are_taken_as_not_said(said: dict[str, Any]) -> None:
    fact = with_own_keys(BARE, said, restored=True)
    for span in fact.evidence:
        assert 0 <= span.start <= span.end <= 2**53
    assert all(isinstance(one, str) for one in fact.sources)
    assert fact.valid_to is None or abs(fact.valid_to) <= 2**53


def test_a_line_that_came_in_goes_out_unless_its_fact_changed() -> None:
    plain = '{"id":"f1","type":"decision","content":"Use it","timestamp":1771000000000,"odd":[1]}\n'
    for line in (plain, write_knowledge_line(FULL).replace('"id"', ' "id"')):
        fact = replace(_back(line), foreign=foreign_of(1, line))
        assert write_knowledge_line(fact) == line
        closed = replace(fact, superseded_by=FactId("f2"), valid_to=1771000009.0)
        value = json.loads(write_knowledge_line(closed))
        assert (value["supersededBy"], value["validTo"]) == ("f2", 1771000009000)
        assert value.get("odd") == json.loads(line).get("odd")
        pinned = json.loads(write_knowledge_line(replace(fact, pinned=not fact.pinned)))
        assert pinned.get("pinned", False) is not fact.pinned
