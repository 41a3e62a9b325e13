"""Mixed traffic through a real gateway process, for seconds; `just soak-gateway` takes minutes."""

import asyncio

from tests.sizes import at_size
from tools.gateway_soak import soak

SECONDS = at_size(ci=5, full=20)
GROWTH_RATIO = at_size(ci=0.6, full=0.4)
"""So soon caches still fill, by 16% in five seconds: minutes show that memory stays flat."""


def test_nothing_leaks_and_nothing_is_lost() -> None:
    soaked = asyncio.run(soak(SECONDS, growth_ratio=GROWTH_RATIO, least=12))
    assert soaked.problems == []
    assert len(soaked.acknowledged) >= 12
