"""How the facts bench reads its cases and counts what was found."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recollect.facts.statements import find_statements
from recollect.values.fact import FactDraft
from recollect_bench.facts.cases import CaseError, read_cases, segments_of
from recollect_bench.facts.score import score


def case(**changes: Any) -> str:
    fact = {"type": "config", "by": 0, "explicit": True, "current": True, "required": True}
    value = {
        "id": "en-001",
        "kind": "plain",
        "languages": ["en"],
        "messages": [
            {"role": "user", "text": "The staging API listens on 8443.\nProd listens  on\n9443."},
            {"role": "tool", "text": "we decided to use Redis", "tool": "bash"},
        ],
        "facts": [
            {**fact, "keys": ["staging", "8443"]},
            {**fact, "keys": ["prod", "listens on"], "required": False},
            {**fact, "keys": ["redis"], "explicit": False},
        ],
    }
    return json.dumps({**value, **changes})


def drafts_of(text: str) -> dict[str, list[FactDraft]]:
    return {
        one.id: [draft for segment in segments_of(one) for draft in find_statements(segment).drafts]
        for one in read_cases(text)
    }


def test_what_is_listed_is_found_and_is_no_junk() -> None:
    text = case()
    scored = score(read_cases(text), drafts_of(text))
    assert (scored.total.found, scored.total.wanted) == (1, 1)
    assert scored.total.precision == 1.0
    assert scored.by_language.keys() == {"en"}
    assert not scored.missed
    assert not scored.false


def test_what_is_not_listed_is_junk_and_what_is_not_found_is_missed() -> None:
    fact = {"type": "decision", "by": 0, "explicit": True, "current": True, "required": True}
    text = case(facts=[{**fact, "keys": ["kafka"]}])
    scored = score(read_cases(text), drafts_of(text))
    assert scored.total.found_share == 0.0
    assert scored.total.precision == 0.0
    assert [one.case for one in scored.missed] == ["en-001"]
    assert scored.false
    assert "8443" not in repr(scored)


@pytest.mark.parametrize(
    "text",
    ["{}", "[", case(facts=[{"type": "guess"}]), f"{case()}\n{case()}"],
)
def test_what_is_no_case_is_told_by_its_line(text: str) -> None:
    with pytest.raises(CaseError):
        read_cases(text)


def test_a_fact_of_no_message_is_no_case() -> None:
    fact = {"type": "config", "by": 7, "explicit": True, "current": True, "required": True}
    with pytest.raises(CaseError, match="line 1"):
        read_cases(case(facts=[{**fact, "keys": ["x"]}]))
