"""A batch that waits is masked as what is stored is, and forgets what joint facts rest on."""

from collections import Counter

from tests.store_contract import examples

from recollect.core.formats.stored_records import join_state
from recollect.core.upkeep.masks import Masks
from recollect.core.upkeep.matching import without_forgotten
from recollect.core.upkeep.redact import mask_batch
from recollect.core.values.batch import Batch
from recollect.core.values.edit import Cut
from recollect.core.values.fact import EvidenceSpan, FactId, FactVector, FactVectorSet
from recollect.core.values.reason import NOT_RUN

TOKEN = "ghp_" + "Zq7LmT2xVb9KsR4wYd1NcF6hJp3QaE8uGi5o"
SAID = f"Use the token {TOKEN} for the crane."


def batch() -> Batch:
    new = examples.conversation([SAID, "The tide is low."])
    ids = examples.ids(new)
    cut = Cut(
        anchor=new[1].segment.key,
        summary=SAID,
        stage="compact",
        reason=NOT_RUN,
        turn=1,
        covers=(new[0].segment.message_id,),
    )
    spans = (EvidenceSpan(segment=ids[0], start=SAID.index("for"), end=len(SAID)),)
    vectors = tuple(FactVector(fact=FactId(name), values=b"1234") for name in "ab")
    return Batch(
        at=1.0,
        segments=new,
        vectors=(examples.vectors(new),),
        facts=(
            examples.fact("a", content=SAID, sources=ids[:1], evidence=spans),
            examples.fact("b", content="the tide is low", sources=ids[1:]),
            examples.fact("c", content="both", sources=ids, joint=True),
        ),
        fact_vectors=(FactVectorSet(embedder="e", dimensions=1, vectors=vectors),),
        session=examples.session_write(new, turn=1, edits=(cut,)),
        pieces=(examples.piece(f'{{"role":"user","content":"{SAID}"}}'),),
    )


def test_secrets_go_from_every_part_and_the_rest_stays() -> None:
    before = batch()
    kinds: Counter[str] = Counter()
    left = mask_batch(before, Masks(), kinds)
    assert kinds == {"github-token": 4}
    first, second = left.segments
    assert TOKEN not in first.segment.text
    assert first.segment.text.endswith(" for the crane.")
    assert [one.id for one in (first.segment, second.segment)] == list(
        examples.ids(before.segments)
    )
    assert second is before.segments[1]
    assert not any(TOKEN.lower() in word for one in first.passages for word in one.words)
    assert {one.segment for one in left.vectors[0].vectors} == {second.segment.id}
    fact = left.facts[0]
    assert TOKEN not in fact.content
    (span,) = fact.evidence
    assert first.segment.text[span.start : span.end] == "for the crane."
    assert [one.fact for one in left.fact_vectors[0].vectors] == ["b"]
    assert left.pieces[0].hash == before.pieces[0].hash
    assert not left.pieces[0].exact
    assert left.session is not None
    (cut,) = join_state(left.session.state, left.session.path, left.session.ids).edits
    assert isinstance(cut, Cut)
    assert TOKEN not in cut.summary
    assert cut.covers == (before.segments[0].segment.message_id,)
    assert mask_batch(left, Masks(), Counter()) is left


def test_a_joint_fact_goes_with_any_of_its_sources() -> None:
    before = batch()
    gone = frozenset({before.segments[0].segment.id})
    left = without_forgotten(before, frozenset(), gone)
    assert [fact.id for fact in left.facts] == ["b"]
    assert [one.fact for one in left.fact_vectors[0].vectors] == ["b"]
