"""What a statement may follow is found quickly however much is known, and sources have an end."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from recollect.facts import history
from recollect.facts.history import (
    FIRST_SOURCES,
    LAST_SOURCES,
    MOST_CORRECTABLE,
    Versions,
    gain_source,
    history_of,
)
from recollect.facts.subjects import name_subject
from recollect.values.fact import EvidenceSpan, Fact, FactDraft, FactId
from recollect.values.segment import SegmentId

PORT = "The staging API listens on port 8443."


def fact(name: str, content: str = PORT, at: float = 1.0, **told: Any) -> Fact:
    given: dict[str, Any] = {"trust": "high", "session": "s", "words": (), **told}
    return Fact(id=FactId(name), type="config", content=content, at=at, **given)


def draft(content: str, at: float = 9.0, place: int = 0, **told: Any) -> FactDraft:
    evidence = (EvidenceSpan(segment=SegmentId(f"{place:032x}"), start=0, end=3),)
    return FactDraft(
        type="config",
        content=content,
        at=at,
        evidence=evidence,
        trust="high",
        made_by="rules",
        session="s",
        **told,
    )


def test_a_fact_that_changed_stands_for_its_older_self() -> None:
    other = fact("b", "The deploy region is eu-west-1.", 2.0)
    known = Versions([fact("a"), other])
    statement = draft("The staging API listens on port 9000.")
    assert [one.id for one in known.of(statement)] == ["a"]
    closed = replace(fact("a"), superseded_by=FactId("c"), valid_to=9.0)
    newer = fact("c", statement.content, 9.0)
    known.add([closed, newer])
    assert known.of(statement) == (closed, newer)
    known.add([replace(newer, content="The deploy region is eu-west-2.", session=None)])
    assert known.of(statement) == (closed,)
    assert known.of(statement) == history_of(statement, [closed, other])


def test_a_correction_reaches_what_was_said_of_late_in_its_session_with_its_versions() -> None:
    many = [fact(f"n{at}", f"Worker {at} runs in zone {at}.", 10.0 + at) for at in range(150)]
    named = {"subject": "staging api", "attribute": "port"}
    old = fact("old", at=1.0, superseded_by=FactId("new"), valid_to=500.0, **named)
    new = fact("new", "The staging API listens on port 9000.", 500.0, **named)
    elsewhere = fact("elsewhere", at=600.0, session="t")
    found = Versions([old, *many, new, elsewhere]).of(draft("no, 9100", 700.0, corrects=True))
    ids = {one.id for one in found}
    assert {"old", "new", "n149"} <= ids
    assert not ids & {"elsewhere", "n0"}
    assert len(ids) <= MOST_CORRECTABLE + 1
    assert Versions([new]).of(draft("hello there, all of you")) == ()


def test_facts_are_named_once_and_not_for_every_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []

    def counted(content: str, type_name: Any) -> Any:
        named.append(content)
        return name_subject(content, type_name)

    monkeypatch.setattr(history, "name_subject", counted)
    Versions(fact(f"f{at}", f"so it goes, {at} times", at, made_by="rules") for at in range(500))
    assert not named  # they were when they were made
    known = Versions(fact(f"f{at}", f"so it goes, {at} times over", at) for at in range(500))
    assert len(named) == 500
    started = time.thread_time()
    for at in range(100):
        known.of(draft(f"The staging API listens on port {at}."))
        known.of(draft("sorry, it is 9000", 900.0, corrects=True))
    assert len(named) == 700
    assert time.thread_time() - started < 2.0


def test_what_is_said_a_thousand_times_names_the_first_and_the_last() -> None:
    said = [draft(PORT, float(at), at) for at in range(300)]
    known = fact(
        "a", sources=tuple(one.segment for one in said[0].evidence), evidence=said[0].evidence
    )
    for one in said[1:]:
        (known,) = gain_source(known, one)
    assert len(known.sources) == FIRST_SOURCES + LAST_SOURCES
    kept = [one.evidence[0] for one in (*said[:FIRST_SOURCES], *said[-LAST_SOURCES:])]
    assert known.evidence == tuple(kept)
    assert known.sources == tuple(one.segment for one in kept)
