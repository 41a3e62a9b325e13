"""Facts for a question: by rare words, in scripts without spaces too, by meaning, one or many."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.search.candidates import NOW

from recollect.core.search.facts import find_asked_types, rank_facts
from recollect.core.search.tokenize import tokenize
from recollect.core.values.fact import Fact, FactId
from recollect.core.values.recall import AskedVector, FactCandidate, FactCandidates, Scale

VECTOR = AskedVector(embedder="toy", values=b"", scale=Scale(mean=0.1, spread=0.1))


def fact(name: str, content: str, at: float = NOW, **more: Any) -> Fact:
    words = tuple(tokenize(content))
    return Fact(id=FactId(name), type="config", content=content, at=at, words=words, **more)


def among(facts: Sequence[Fact], **similarities: float) -> FactCandidates:
    """These facts as a store hands them over, with how near some lie."""
    return FactCandidates(
        facts=tuple(
            FactCandidate(fact=one, similarities=(similarities.get(one.id),)) for one in facts
        ),
        documents=len(facts),
        document_frequencies=Counter(word for one in facts for word in set(one.words)),
    )


FACTS = (
    fact("port", "the gateway listens on port 8443"),
    fact("paint", "the gateway is painted green"),
    fact("db", "orders are kept in PostgreSQL"),
)
CHINESE = (
    fact("port", "网关监听 8443 端口"),
    fact("db", "订单保存在 PostgreSQL 数据库"),
    fact("tea", "我喜欢喝绿茶"),
)


def named(question: str, facts: Sequence[Fact] = FACTS, **similarities: float) -> list[str]:
    found = among(facts, **similarities)
    return [one.fact.id for one in rank_facts(tokenize(question), found, [VECTOR])]


def test_rare_words_count_most_and_words_that_nothing_is_known_of_find_nothing() -> None:
    assert named("which port has the gateway?")[0] == "port"
    assert named("is the gateway painted?")[0] == "paint"
    # a word that all of them hold says least
    many = [fact(f"{n}", f"the gateway number {n} hums") for n in range(30)]
    assert named("gateway with wheels", [*many, fact("w", "wheels squeak")]) == ["w"]
    assert named("which port has the orange submarine of my old aunt in Lisbon?") == []
    assert named("what colour has my bicycle?") == []
    assert named("") == []
    assert named("port", ()) == []
    assert named("which port?", FACTS[:1]) == ["port"]
    assert named("which port does the gateway use?", FACTS[:1]) == ["port"]
    assert named("what shall we cook tonight?", FACTS[:1]) == []


@pytest.mark.parametrize(
    ("question", "answer"),
    [("网关监听哪个端口？", "port"), ("订单存在哪个数据库里？", "db"), ("我喜欢喝什么？", "tea")],
)
def test_scripts_without_spaces(question: str, answer: str) -> None:
    assert named(question, CHINESE)[0] == answer
    alone = [one for one in CHINESE if one.id == answer]
    assert named(question, alone) == [answer]
    assert named("进口食品在哪里买比较便宜？", alone) == []


def test_meaning_finds_what_shares_no_word_and_lifts_what_does() -> None:
    question = "where do purchases live?"
    assert named(question) == []
    assert named(question, db=0.9) == ["db"]
    assert named(question, db=0.2) == [], "as near as anything is"
    by_words = rank_facts(tokenize("gateway orders"), among(FACTS), [VECTOR])
    lifted = rank_facts(tokenize("gateway orders"), among(FACTS, paint=0.9), [VECTOR])
    assert lifted[0].fact.id == "paint"
    assert lifted[0].score > max(one.score for one in by_words)


def test_pinned_facts_come_first_and_ties_go_to_the_newest_and_then_by_id() -> None:
    pinned = fact("pin", "answers are given in metric units", pinned=True)
    assert named("which port has the gateway?", [*FACTS, pinned])[:2] == ["pin", "port"]
    assert named("what shall we cook tonight?", [*FACTS, pinned]) == ["pin"]
    facts = (fact("b", "a crane"), fact("a", "a crane"), fact("new", "a crane", NOW + 1))
    assert named("crane", facts) == ["new", "a", "b"]
    assert named("crane", facts[::-1]) == ["new", "a", "b"]


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("list all decisions", ["decision", "architecture"]),
        ("what decisions did we make on billing?", ["decision", "architecture"]),
        ("everything we agreed so far, please", ["decision", "architecture"]),
        ("any open tasks?", ["task_state"]),
        ("what is left to do?", ["task_state"]),
        ("which bugs do we have?", ["issue"]),
        ("all good, no issues", []),
        ("any problems with this?", []),
        ("our settings are fine", []),
        ("do all the tasks now", []),
        ("fix all bugs", []),
        ("列出所有决定", ["decision", "architecture"]),
        ("why was that decision made?", []),
        ("run the tasks", []),
        ("we decided on green", []),
    ],
)
def test_whose_type_is_asked_for(text: str, types: list[str]) -> None:
    assert sorted(find_asked_types(text)) == sorted(types)
