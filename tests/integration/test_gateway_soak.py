"""Mixed traffic through a real gateway process, for seconds; `just soak-gateway` takes minutes."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from tests.harness.gateway_soak import soak

_REACH = socket.socket.connect
SECONDS = 20
GROWTH_RATIO = 0.4
"""So soon caches still fill: that memory stays flat is what minutes show."""


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def local_only(self: socket.socket, address: Any) -> None:
        assert isinstance(address, str | bytes) or address[0] in {"127.0.0.1", "::1"}, address
        _REACH(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)


def test_nothing_leaks_and_nothing_is_lost() -> None:
    soaked = asyncio.run(soak(SECONDS, growth_ratio=GROWTH_RATIO))
    assert soaked.problems == []
    assert len(soaked.acknowledged) > 10
