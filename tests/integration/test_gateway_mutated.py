"""Mutated requests through the gateway: never an error of its own, never a hang, nothing changed
that was not shaped, and no stage that stumbles. Hundreds of them; 10,000 with `just soak`."""

import json
import os
import random
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from tests.harness.gateway import ask, connect, gateway
from tests.harness.model_server import ModelServer
from tests.harness.waiting import wait_until
from tests.sizes import at_size
from tools.request_mutation import OWN_SHAPES, Mutated, Mutator, captured_shapes

from recollect.core.values.reason import Cause
from recollect.hosts.gateway.activity import MOST_RECORDS
from recollect.hosts.gateway.running import BackgroundGateway
from recollect.testing.scripted_model import Fails, Says

REQUESTS = 10_000 if os.environ.get("RECOLLECT_SOAK") else at_size(ci=200, full=1_000)
SEED = 16
_STUMBLED = Cause.RAISED.value.partition("}")[2]
"""How a stage ends whose own code was not ready for a request; what cannot be read says why."""
_SHAPED_FIELDS = ("messages", "input", "system", "instructions", "tools")


def test_no_mutated_request_meets_an_error_of_the_gateways(tmp_path: Path) -> None:
    shapes = [*OWN_SHAPES * 10, *captured_shapes(Path(os.environ["RECOLLECT_DATA"]))]
    draw, mutator = random.Random(SEED), Mutator(SEED)
    says = Fails(status=200, body={"id": "x", "content": [], "choices": [], "output": []})
    with ModelServer(lambda _: says) as server, gateway(server) as running:
        client, prefix = connect(running.url)
        recent: deque[Mutated] = deque(maxlen=MOST_RECORDS)
        for number in range(REQUESTS):
            request = mutator.mutated(draw.choice(shapes))
            client.request("POST", prefix + request.path, request.content, request.headers)
            reply = client.getresponse()
            answer = reply.read()
            assert (reply.status, answer) == (200, _answer(says)), _told(number, request)
            sent = server.asked.pop().content
            if sent != request.content:
                _check_shaped(request, sent, number)
            recent.append(request)
            if len(recent) == MOST_RECORDS // 2 or number == REQUESTS - 1:
                _check_records(running, number, recent)
                recent.clear()
        client.close()


def test_a_block_whose_type_is_no_text_is_removed_because_providers_refuse_it() -> None:
    odd = {"type": {"type": "text"}, "text": "the keel is oak"}
    rows = [{"role": "user", "content": [odd]}, {"role": "user", "content": "and the mast?"}]
    with ModelServer(lambda _: Says(text="Aye.")) as server:
        with gateway(server) as running:
            body = json.dumps({"model": "m", "max_tokens": 9, "messages": rows}).encode()
            assert ask(running.url, "/v1/messages", body).status == 200
            _check_records(running, 0, [Mutated(path="/v1/messages", content=body, headers={})])
        (message,) = server.asked[0].body["messages"]
        assert message["content"] == "and the mast?"


def _check_records(running: BackgroundGateway, number: int, recent: Sequence[Mutated]) -> None:
    """No stage stumbled over the requests of late."""
    numbers = set(range(number + 2 - len(recent), number + 2))
    newest = running.gateway.activity.newest_records
    wait_until(lambda: numbers <= {one.number for one in newest(MOST_RECORDS)})
    for one in newest(MOST_RECORDS):
        for line in one.failed:
            at = one.number - 1
            assert not line.endswith(_STUMBLED), (line, _told(at, recent[at - number - 1]))


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
