"""Short ids as `recollect facts list` shows them: whoever types one means one fact."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recollect.cli.facts.listing import LEAST_ID_CHARS, short_ids
from recollect.core.values.fact import Fact, FactId

IDS = st.lists(st.text(alphabet="01a", min_size=1, max_size=12), unique=True, max_size=12)


@given(IDS)
def test_a_short_id_means_one_fact(ids: list[str]) -> None:
    facts = [Fact(id=FactId(one), type="config", content="", at=0.0) for one in ids]
    for id_, short in short_ids(facts).items():
        meant = [one for one in ids if one.startswith(short)]
        assert meant == [id_] or short == id_  # a whole id always means its own fact


@given(st.integers(2, 6))
def test_short_ids_are_no_longer_than_they_must_be(shared: int) -> None:
    ids = ["f" * (LEAST_ID_CHARS + shared) + last for last in "ab"]
    facts = [Fact(id=FactId(one + "0" * 9), type="config", content="", at=0.0) for one in ids]
    assert sorted(short_ids(facts).values()) == ids
