"""Mutated requests through the gateway: never an error of its own, never a hang, nothing changed
that was not shaped. 1,000 of them; 10,000 with `just soak`."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.harness.model_server import ModelServer
from tests.harness.request_mutation import OWN_SHAPES, Mutated, Mutator, captured_shapes

from recollect.config import load_settings
from recollect.gateway.running import BackgroundGateway
from recollect.testing.scripted_model import Fails

REQUESTS = 10_000 if os.environ.get("RECOLLECT_SOAK") else 1_000
SECONDS = 30
SEED = 16
_REACH = socket.socket.connect
_SHAPED_FIELDS = ("messages", "input", "system", "instructions", "tools")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def local_only(self: socket.socket, address: Any) -> None:
        assert isinstance(address, str | bytes) or address[0] in {"127.0.0.1", "::1"}, address
        _REACH(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)


def test_no_mutated_request_meets_an_error_of_the_gateways(tmp_path: Path) -> None:
    shapes = [*OWN_SHAPES * 10, *captured_shapes(Path(os.environ["RECOLLECT_DATA"]))]
    draw, mutator = random.Random(SEED), Mutator(SEED)
    says = Fails(status=200, body={"id": "x", "content": [], "choices": [], "output": []})
    with ModelServer(lambda _: says) as server:
        settings = load_settings(
            arguments={
                "gateway.port": 0,
                "gateway.upstream.anthropic": server.url,
                "gateway.upstream.openai": f"{server.url}/v1",
                "recall.embedder": "none",
            }
        ).settings
        with BackgroundGateway(settings) as running:
            parts = urlsplit(running.url)
            client = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=SECONDS)
            for number in range(REQUESTS):
                request = mutator.mutated(draw.choice(shapes))
                client.request("POST", request.path, request.content, request.headers)
                reply = client.getresponse()
                answer = reply.read()
                assert (reply.status, answer) == (200, _answer(says)), _told(number, request)
                sent = server.asked.pop().content
                if sent != request.content:
                    _check_shaped(request, sent, number)
            client.close()


def _check_shaped(request: Mutated, sent: bytes, number: int) -> None:
    """What was shaped is a request, and says the same beside its messages."""
    came, went = (
        json.loads(content.decode("utf-8", "surrogateescape"))
        for content in (request.content, sent)
    )
    assert isinstance(went, dict), _told(number, request)
    for name, value in came.items():
        if name not in _SHAPED_FIELDS:
            assert went[name] == value, (name, _told(number, request))


def _answer(says: Fails) -> bytes:
    return json.dumps(says.body).encode()


def _told(number: int, request: Mutated) -> str:
    return f"request {number} to {request.path} {request.headers}: {request.content[:2_000]!r}"
