"""What holds for facts: written, replaced by id, superseded, in order."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tests.store_contract.examples import (
    EMBEDDER,
    START,
    asked,
    fact,
    fact_vectors,
    ids,
    segments,
    vector,
)
from tests.store_contract.harness import Spaces, for_every

from recollect.core.search.bm25 import inverse_document_frequency
from recollect.core.values.batch import Batch
from recollect.core.values.fact import EvidenceSpan, Fact, FactId, FactVector, FactVectorSet
from recollect.core.values.recall import AskedVector, FactCandidates, FactQuery
from recollect.core.values.segment import SegmentId


def _plain(facts: tuple[Fact, ...]) -> list[Fact]:
    """Words are a bag: their order means nothing."""
    return [replace(fact, words=tuple(sorted(fact.words))) for fact in facts]


async def facts_come_back(spaces: Spaces) -> None:
    """A fact comes back with every field as it was written."""
    store = await spaces.open()
    new = segments(2)
    given = (
        fact("full", sources=ids(new), at=START + 0.123456789, type="config", context="Größe 世界",
             content="port 'is' \"8080\" \\ 🙂", trust="high", superseded_by=FactId("other"),
             foreign='{"id": 7}', valid_to=START + 7.5, recorded_at=START + 8.25,
             subject="der Dienst 世界", attribute="port\x00", made_by="model", change="supersede",
             evidence=(EvidenceSpan(segment=new[0].segment.id, start=0, end=5),
                       EvidenceSpan(segment=new[1].segment.id, start=3, end=2**31)),
             session="talk 'one' 🙂", pinned=True, joint=True),
        fact("plain", at=START + 1),
        fact("unknown source", at=START + 2, sources=[SegmentId("f" * 32)]),
    )  # fmt: skip
    await store.write(Batch(at=START, segments=new, facts=given))
    store = await spaces.reopen(store)
    assert _plain(await store.facts(superseded=True)) == _plain(given)
    assert (await store.stats()).facts == 3


async def superseded_facts_come_on_request(spaces: Spaces) -> None:
    """Facts that are not current, replaced or ended, are left out unless they are asked for."""
    store = await spaces.open()
    old = fact("old", superseded_by=FactId("new"))
    ended = fact("ended", at=START + 0.5, valid_to=START + 9)
    new = fact("new", at=START + 1)
    await store.write(Batch(at=START, facts=(old, ended, new)))
    assert _plain(await store.facts()) == _plain((new,))
    assert _plain(await store.facts(superseded=True)) == _plain((old, ended, new))
    every = await store.facts([new.id, ended.id, old.id], superseded=True)
    assert _plain(every) == _plain((new, ended, old))
    assert _plain(await store.facts([new.id, ended.id, old.id])) == _plain((new,))
    await store.write(Batch(at=START, facts=(replace(old, superseded_by=None),)))
    assert [fact.id for fact in await store.facts()] == ["old", "new"]


async def facts_are_ordered(spaces: Spaces) -> None:
    """All facts come by time and id; facts by id in the order of the ids, unknown left out."""
    store = await spaces.open()
    given = [
        fact(name, at=START + at) for name, at in (("d", 3), ("b", 1), ("c", 1), ("a", 2), ("e", 0))
    ]
    await store.write(Batch(at=START, facts=tuple(given)))
    assert [fact.id for fact in await store.facts()] == ["e", "b", "c", "a", "d"]
    wanted = [FactId(name) for name in ("d", "a", "unheard of", "b")]
    assert [fact.id for fact in await store.facts(wanted)] == ["d", "a", "b"]
    assert await store.facts([]) == ()


async def facts_of_subjects_are_read_alone(spaces: Spaces) -> None:
    """With subjects only facts about one of these come, in the order of all the others."""
    store = await spaces.open()
    about = ("host", "port", "a\ud800b", "", "世界\x00", "port")
    given = tuple(
        fact(f"f{place}", at=START - place, subject=subject, valid_to=None if place else START)
        for place, subject in enumerate(about)
    )
    await store.write(Batch(at=START, facts=given))
    for keys in (("port",), ("port", "host"), ("a\ud800b", "世界\x00"), ("",), ("nobody",), ()):
        for superseded in (False, True):
            every = await store.facts(superseded=superseded)
            facts = await store.facts(superseded=superseded, subjects=keys)
            assert facts == tuple(fact for fact in every if fact.subject in keys), keys
    ids_ = [given[5].id, given[1].id, given[2].id]
    assert [fact.id for fact in await store.facts(ids_, subjects={"port"})] == ["f5", "f1"]
    many = ("port", *(f"subject {number}" for number in range(1_200)))
    assert [fact.id for fact in await store.facts(subjects=many)] == ["f5", "f1"]


# What holds for finding facts: by rare words, by vector, pinned; only what is current.

_SMALL = 8
_WORDS = ("port", "host", "the", "数据库", "ß", "Upper", "a b", "'", "\x00odd")


async def facts_are_found_by_type(spaces: Spaces) -> None:
    """The newest of the types asked for, of the session and of none, whatever their words."""
    store = await spaces.open()
    given = [
        fact(f"{type_}{number}", content="port", type=type_, at=START + number, session=session)
        for type_ in ("decision", "issue", "task_state")
        for number, session in enumerate(("a", "b", None))
    ]
    given.append(fact("gone", content="port", type="decision", valid_to=START + 9))
    await store.write(Batch(at=START, facts=tuple(given)))

    async def found(**query: Any) -> list[str]:
        return _found_ids(await store.fact_candidates(FactQuery(**query)))

    assert await found(types=("decision",)) == ["decision0", "decision1", "decision2"]
    both = ("issue", "task_state")
    assert await found(types=both, session="a") == [
        *("issue0", "issue2", "task_state0", "task_state2")
    ]
    assert await found(types=both, limit=2) == ["issue2", "task_state2"]
    assert await found(types=("decision",), limit=0) == []
    assert await found(types=("architecture",), words=("absent",)) == []


async def facts_without_vectors_are_told(spaces: Spaces) -> None:
    """Current facts that have no vector of an embedder are told, until they have one."""
    store = await spaces.open()
    given = tuple(fact(f"f{number}") for number in range(5))
    closed = fact("closed", valid_to=START + 1)
    await store.write(Batch(at=START, facts=(*given, closed)))
    assert [text.fact for text in await store.unembedded_facts("e", limit=3)] == ["f0", "f1", "f2"]
    texts = {text.fact: text.text for text in await store.unembedded_facts("e", limit=50)}
    assert texts == {other.id: other.content for other in given}
    vectors = fact_vectors((*given[:3], closed, fact("unheard of")), embedder="e", dimensions=4)
    await store.write(Batch(at=START, fact_vectors=(vectors,)))
    assert await _waiting(store, "e") == ["f3", "f4"]
    assert await _waiting(store, "another") == [fact.id for fact in given]
    changed = replace(given[0], content="told otherwise")
    await store.write(Batch(at=START, facts=(changed, given[1])))
    assert await _waiting(store, "e") == ["f0", "f3", "f4"], "its vector was made of other words"
    assert await store.unembedded_facts("e", limit=0) == ()
    stats = await store.stats()
    assert stats.vectors == {}, "those are counts of passages"
    again = FactVectorSet(
        embedder="e",
        dimensions=4,
        vectors=(FactVector(fact=given[1].id, values=vector("other", dimensions=4)),),
    )
    await store.write(Batch(at=START, fact_vectors=(again,)))
    question = AskedVector(embedder="e", values=vectors.vectors[1].values)
    candidates = await store.fact_candidates(FactQuery(vectors=(question,), limit=1))
    assert [(candidate.fact.id, candidate.similarities) for candidate in candidates.facts] == [
        ("f1", (1.0,))
    ]


async def fact_and_vector_come_in_one_batch(spaces: Spaces) -> None:
    """Vectors of facts that the same batch writes are kept; those of what it closes are not."""
    store = await spaces.open()
    old, new = fact("old", content="port 1"), fact("new", content="port 2", at=START + 1)
    await store.write(Batch(at=START, facts=(old,), fact_vectors=(fact_vectors((old,)),)))
    closed = replace(old, superseded_by=new.id, valid_to=new.at, content="port 1")
    vectors = (fact_vectors((new, closed)),)
    await store.write(Batch(at=START, facts=(closed, new), fact_vectors=vectors))
    assert await _waiting(store, EMBEDDER) == []
    candidates = await store.fact_candidates(FactQuery(vectors=(asked("x"),)))
    assert _found_ids(candidates) == ["new"]


async def candidates_are_the_right_ones(spaces: Spaces) -> None:
    """For all facts and questions: who is found, and the statistics, are what they should be."""
    from hypothesis import strategies as st

    made = st.fixed_dictionaries(
        {
            "words": st.lists(st.sampled_from(_WORDS), max_size=4),
            "session": st.sampled_from([None, "a", "b"]),
            "pinned": st.sampled_from([False, False, False, True]),
            "valid_to": st.sampled_from([None, None, START]),
            "vector": st.sampled_from([None, "v1", "v2", "v3"]),
        }
    )
    cases = st.tuples(
        st.lists(st.tuples(st.integers(0, 9), made), max_size=25),
        st.lists(st.sampled_from(_WORDS), max_size=4, unique=True),
        st.sampled_from([None, "a", "c"]),
        st.integers(0, 4),
    )
    spaces_made = 0

    async def hold(case: tuple[Any, ...]) -> None:
        nonlocal spaces_made
        spaces_made += 1
        given, words, session, limit = case
        store = await spaces.open(f"case {spaces_made}")
        kept: dict[str, Fact] = {}
        held: dict[tuple[str, FactId], bytes] = {}
        for name, drawn in given:
            new = replace(
                fact(str(name), content=" ".join(drawn["words"])),
                words=tuple(drawn["words"]),
                session=drawn["session"],
                pinned=drawn["pinned"],
                valid_to=drawn["valid_to"],
            )
            same = kept.get(new.id) == new
            sets = _one_vector(new, drawn["vector"])
            await store.write(Batch(at=START, facts=(new,), fact_vectors=sets))
            kept[new.id] = new
            if not same:
                held.pop((EMBEDDER, new.id), None)
            if sets and new.valid_to is None:
                held.setdefault((EMBEDDER, new.id), sets[0].vectors[0].values)
        question = asked("q", dimensions=_SMALL)
        query = FactQuery(words=tuple(words), vectors=(question,), session=session, limit=limit)
        candidates = await store.fact_candidates(query)
        current = [fact for fact in kept.values() if fact.valid_to is None]
        assert {candidate.fact for candidate in candidates.facts} <= set(current)
        assert set(_found_ids(candidates)) == _expected(current, query, held)
        assert candidates.documents == len(current)
        assert candidates.document_frequencies == {
            word: sum(word in fact.words for fact in current) for word in words
        }
        await spaces.finish(store)

    await for_every(lambda: cases, hold)


def _one_vector(given: Fact, seed: str | None) -> tuple[FactVectorSet, ...]:
    if seed is None:
        return ()
    values = vector(seed, dimensions=_SMALL)
    fact_vector = FactVector(fact=given.id, values=values)
    return (FactVectorSet(embedder=EMBEDDER, dimensions=_SMALL, vectors=(fact_vector,)),)


async def _waiting(store: Any, embedder: str) -> list[str]:
    return [fact.fact for fact in await store.unembedded_facts(embedder, limit=100)]


def _found_ids(candidates: FactCandidates) -> list[str]:
    return sorted(candidate.fact.id for candidate in candidates.facts)


def _cosine(one: bytes, other: bytes) -> float:
    left, right = (np.frombuffer(raw, "<f4").astype(np.float64) for raw in (one, other))
    lengths = np.linalg.norm(left) * np.linalg.norm(right)
    return round(float(left @ right / lengths), 9) if lengths else 0.0


def _expected(
    current: Sequence[Fact], query: FactQuery, held: dict[tuple[str, FactId], bytes]
) -> set[FactId]:
    """Whom a store has to find among these facts, said in the plainest way."""
    allowed = [
        fact for fact in current if query.session is None or fact.session in (None, query.session)
    ]
    worths = {
        word: inverse_document_frequency(
            document_frequency=sum(word in fact.words for fact in current), documents=len(current)
        )
        for word in query.words
    }
    scored = []
    for one in allowed:
        shared = [word for word in query.words if word in one.words]
        if shared:
            score = 0.0
            for word in shared:
                score += worths[word]
            scored.append((-score, one.id))
    wanted = {fact.id for fact in allowed if fact.pinned} | _first(scored, query.limit)
    for question in query.vectors:
        near = [
            (-_cosine(question.values, held[question.embedder, fact.id]), fact.id)
            for fact in allowed
            if (question.embedder, fact.id) in held
        ]
        wanted |= _first(near, query.limit)
    return wanted


def _first(scored: Iterable[tuple[float, FactId]], limit: int) -> set[FactId]:
    return {id_ for _, id_ in sorted(scored)[:limit]}
