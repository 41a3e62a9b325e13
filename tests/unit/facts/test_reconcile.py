"""How a statement follows what is known, by code alone: new, otherwise, known, refused."""

from dataclasses import replace
from typing import Any

import pytest

from recollect.core.facts.history import Reconciled, as_of, name_property, settle
from recollect.core.search.tokenize import tokenize
from recollect.core.values.fact import EvidenceSpan, Fact, FactDraft, fact_id
from recollect.core.values.segment import SegmentId, Trust

NOW = 1_000.0


def said(content: str, at: float = 1.0, **more: Any) -> FactDraft:
    segment = SegmentId(f"segment-{at}")
    given = {
        "type": "config",
        "trust": "high",
        "made_by": "model",
        "session": "talk",
        "evidence": (EvidenceSpan(segment=segment, start=0, end=len(content)),),
    }
    named = name_property(content)
    given |= {"subject": named.subject, "attribute": named.attribute}
    return FactDraft(content=content, at=at, **(given | more))


def held_against(draft: FactDraft, *known: Fact, history: tuple[Fact, ...] = ()) -> Reconciled:
    return settle(draft, (*history, *known), now=NOW)


def fact(content: str, at: float = 1.0, **more: Any) -> Fact:
    """A fact as reconcile makes it; `pinned` and the like on top."""
    fields = {key: more.pop(key) for key in list(more) if key in {"pinned", "sources", "joint"}}
    return replace(held_against(said(content, at, **more)).facts[0], **fields)


def test_what_is_new_is_added_whole() -> None:
    draft = said("the staging API listens on port 8443", context="asked about TLS")
    result = held_against(draft)
    assert (result.operation, len(result.facts)) == ("add", 1)
    (new,) = result.facts
    assert new.id == fact_id(draft.evidence, draft.content)
    assert (new.at, new.recorded_at, new.valid_to, new.change) == (1.0, NOW, None, None)
    assert (new.subject, new.attribute, new.context) == (
        "api port staging",
        "value",
        "asked about TLS",
    )
    assert new.sources == ("segment-1.0",)
    assert (new.evidence, new.words) == (draft.evidence, tuple(tokenize(draft.content)))
    assert (new.trust, new.session, new.made_by, new.joint) == ("high", "talk", "model", False)


def test_another_value_supersedes_and_closes() -> None:
    old = fact("the staging API listens on port 8443")
    result = held_against(said("staging API port is 9000 now", 5.0), old)
    new, closed = result.facts
    assert result.operation == "supersede"
    assert (new.change, new.superseded_by, new.valid_to) == ("supersede", None, None)
    assert closed == replace(old, superseded_by=new.id, valid_to=5.0)


def test_the_same_again_is_one_more_source() -> None:
    old = fact("the staging API listens on port 8443")
    result = held_against(said("staging API port is 8443", 5.0), old)
    (known,) = result.facts
    assert (result.operation, known.id) == ("none", old.id)
    assert known.sources == ("segment-1.0", "segment-5.0")
    assert [one.segment for one in known.evidence] == ["segment-1.0", "segment-5.0"]
    again = held_against(said("the port of the staging API is 8443", 5.0), known)
    assert (again.operation, again.facts) == ("none", ()), "the source is there already"


def test_words_alone_replace_nothing() -> None:
    old = fact("the API returns JSON")
    assert held_against(said("the API returns errors as JSON", 5.0), old).operation == "add"
    assert held_against(said("The API returns JSON.", 5.0), old).operation == "none"
    calls = fact("OrderService calls PaymentService", type="architecture")
    other = said("PaymentService calls OrderService", 5.0, type="architecture")
    assert held_against(other, calls).operation == "add"
    may = fact("the intern is invited")
    assert held_against(said("the intern is not invited", 5.0), may).operation == "add"


def test_what_was_said_earlier_becomes_history() -> None:
    first, last = fact("the API port is 1111", 1.0), fact("the API port is 3333", 9.0)
    new, closed = held_against(said("the API port is 2222", 5.0), last, history=(first,)).facts
    assert (new.valid_to, new.superseded_by) == (9.0, last.id)
    assert (closed.id, closed.valid_to, closed.superseded_by) == (first.id, 5.0, new.id)
    versions = (closed, new, last)
    assert [as_of(versions, at)[0].id for at in (1.0, 4.9, 5.0, 8.9, 9.0)] == [
        first.id, first.id, new.id, new.id, last.id,
    ]  # fmt: skip
    oldest = held_against(said("the API port is 4444", 0.5), *versions[2:], history=versions)
    assert (oldest.operation, oldest.facts[0].valid_to) == ("add", 1.0)


def test_history_ends_where_a_forgotten_version_began() -> None:
    first, second = fact("the API port is 8000", 1.0), said("the API port is 9000", 10.0)
    forgotten, first = held_against(second, first).facts
    new, closed = held_against(said("the API port is 8500", 5.0), history=(first,)).facts
    assert (new.valid_to, new.superseded_by) == (10.0, forgotten.id)
    assert (closed.valid_to, closed.superseded_by) == (5.0, new.id)


def test_the_same_words_read_late_are_no_second_fact() -> None:
    later = fact("short answers, with no preamble", 10.0, type="preference")
    earlier = said("short answers, with no preamble", 5.0, type="preference")
    result = held_against(earlier, later)
    assert (result.operation, result.reason) == ("none", "said again later")
    assert [(one.id, one.sources) for one in result.facts] == [
        (later.id, ("segment-10.0", "segment-5.0"))
    ]


@pytest.mark.parametrize(
    ("type", "old", "new", "by", "expected"),
    [
        ("config", "high", "API port is 2", "medium", "supersede"),
        ("config", "high", "API port is 2", "low", "add"),
        ("config", "medium", "API port is 2", "low", "add"),
        ("config", "low", "API port is 2", "low", "supersede"),
        ("config", "low", "API port is 2", "outside", "add"),
        ("config", "outside", "API port is 2", "outside", "supersede"),
        ("config", "low", "API port is 2", "high", "supersede"),
        ("decision", "high", "API port is 2", "medium", "add"),
        ("decision", "high", "API port is 2", "low", "refused"),
        ("preference", "high", "API port is 2", "outside", "refused"),
        ("decision", "medium", "API port is 2", "low", "add"),
        ("decision", "high", "API port is 2", "high", "supersede"),
    ],
)
def test_trust_decides_what_may_replace(
    type: Any,  # noqa: A002
    old: Trust,
    new: str,
    by: Trust,
    expected: str,
) -> None:
    known = fact("API port is 1", type=type, trust=old)
    result = held_against(said(new, 5.0, type=type, trust=by), known)
    assert result.operation == expected
    assert len(result.facts) == {"supersede": 2, "add": 1, "refused": 0}[expected]
    if expected == "add":
        assert (result.facts[0].trust, result.facts[0].superseded_by) == (by, None)


def test_the_user_confirms_what_a_tool_said() -> None:
    """A fact's trust never rises: the user's words are a fact of their own."""
    known = fact("API port is 1", trust="low")
    new, closed = held_against(said("the port of the API is 1", 5.0), known).facts
    assert (new.trust, new.sources, new.change) == ("high", ("segment-5.0",), "update")
    assert (closed.trust, closed.superseded_by) == ("low", new.id)


def test_pinned_facts_stay() -> None:
    pinned = fact("API port is 1", pinned=True)
    result = held_against(said("API port is 2", 5.0), pinned)
    assert (result.operation, len(result.facts)) == ("add", 1)
    assert "pinned or more trusted" in result.reason


def test_names_by_a_model_need_words_in_common() -> None:
    """The same sloppy name for two things makes them one only where the words agree."""
    name: dict[str, Any] = {"subject": "project", "attribute": "decision", "type": "decision"}
    old = fact("we hire two engineers in spring", **name)
    other = said("the office moves to a 3rd floor", 5.0, **name)
    assert held_against(other, old).operation == "add"
    later = said("we hire 5 engineers in spring", 5.0, **name)
    assert held_against(later, old).operation == "supersede"
