"""Short ids as `recollect facts list` shows them: whoever types one means one fact."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recollect.cli.facts import id_chars
from recollect.core.values.fact import Fact, FactId

IDS = st.lists(st.text(alphabet="01a", min_size=1, max_size=12), unique=True, max_size=12)


@given(IDS)
def test_a_short_id_means_one_fact(ids: list[str]) -> None:
    facts = [Fact(id=FactId(one), type="config", content="", at=0.0) for one in ids]
    shown = {one[: id_chars(facts)] for one in ids}
    assert len(shown) == len(ids)
