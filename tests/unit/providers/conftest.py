"""The model server runs on this machine: these suites may reach it, and nothing else."""

from __future__ import annotations

import socket
from typing import Any

import pytest

_REACH = socket.socket.connect


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def local_only(self: socket.socket, address: Any) -> None:
        assert isinstance(address, str | bytes) or address[0] in {"127.0.0.1", "::1"}, address
        _REACH(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
