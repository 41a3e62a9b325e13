"""Callers whose conversations begin alike never share a session, and go on with their own.

Their keys are in 26 places, and other headers change. `just callers` sends 2,000 pairs and
prints the figures."""

from tests.sizes import at_size
from tools.gateway_callers import run_pairs


def test_callers_that_begin_alike_do_not_cross_and_their_conversations_go_on() -> None:
    result = run_pairs(at_size(ci=30, full=2_000))
    assert result.crossings == []
    assert result.share("turn", "retry", "restart") >= at_size(ci=0.98, full=0.99), result.to_dict()
    assert result.share("restart") >= 0.98, result.to_dict()
    assert result.continued["restart"] > at_size(ci=30, full=2_000)
