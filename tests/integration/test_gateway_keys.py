"""Keys cross the gateway and stay nowhere: not in files, logs, or what it shows of itself.

Traffic of every kind, with a key in every header and in the query; afterwards no twelve characters
of it in a row may be found anywhere."""

import http.client
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.harness.gateway import PATHS, body_of, connect, history
from tests.harness.model_server import Asked, ModelServer, Step
from tests.harness.waiting import wait_until
from tests.sizes import at_size
from tools.clients.lab import GatewayProcess
from tools.request_mutation import OWN_SHAPES, Shape, captured_shapes

from recollect.core.values.model import Usage
from recollect.testing.scripted_model import Fails, Says

KEY = "Qz7-vK3wXp9Rt5Ym2Hs8Lc4Nb6Jd1Fg0Wa-Ue7Io3Tr9Px5"
PART_CHARS = 12
PARTS = [KEY[at : at + PART_CHARS].encode() for at in range(len(KEY) - PART_CHARS + 1)]
IN_HEADERS = {
    "authorization": f"Bearer {KEY}",
    "x-api-key": KEY,
    "api-key": KEY,
    "x-goog-api-key": KEY,
    "proxy-authorization": f"Basic {KEY}",
    "cookie": f"session={KEY}",
    "chatgpt-account-id": KEY,
    "openai-organization": KEY,
    "openai-project": KEY,
    "x-auth-token": KEY,
    "x-stainless-anything": KEY,
}
QUERY = f"?key={KEY}&api_key={KEY}"
SUMMARY = "## Goal\nThe modules are looked at, one after the other."
WINDOW = 12_000


def answer(asked: Asked) -> Step:
    """Errors that quote the key, as providers' do; summaries; replies, some of which break off."""
    last = asked.content[-300:]
    if b"FAIL" in last:
        status = int(last.partition(b"FAIL")[2][:3])
        said = f"Incorrect API key provided: {KEY}"
        return Fails(status=status, body={"error": {"message": said, "type": "x", "code": "y"}})
    if b"DROP" in last:
        return Says(text="It breaks off here.", cut_after_events=3)
    if b"summar" in asked.content[:4_000].lower():
        return Says(text=SUMMARY, usage=Usage(input_tokens=90, output_tokens=9))
    return Says(text="Aye.", usage=Usage(input_tokens=len(asked.content) // 4, output_tokens=2))


def send(url: str, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> int:
    client, prefix = connect(url)
    try:
        client.request(method, prefix + target, body, {**headers, **IN_HEADERS})
        reply = client.getresponse()
        reply.read()
    except http.client.IncompleteRead:
        return 0
    else:
        return reply.status
    finally:
        client.close()


def traffic(url: str, *, every: int) -> Iterator[int]:
    """The statuses of requests of every kind; of what agents sent, one in so many."""
    data = Path(os.environ.get("RECOLLECT_DATA", "none"))
    shapes: list[Shape] = [*OWN_SHAPES, *captured_shapes(data)[::every]]
    for shape in shapes:
        body = json.dumps(shape.body).encode()
        yield send(url, "POST", shape.path + QUERY, body, dict(shape.headers))
    for path in PATHS.values():
        for wrong in (b"{not json", b"", b"\xff\xfe", b'{"messages": 7}'):
            yield send(url, "POST", path + QUERY, wrong, {})
    for wire, path in PATHS.items():
        for words in ("FAIL401", "FAIL429", "FAIL500", "FAIL529", "DROP"):
            yield send(url, "POST", path + QUERY, body_of(wire, [words], stream=True), {})
        # overflows at the provider, and summaries by the model of the request
        long = body_of(wire, history(40))
        yield send(url, "POST", path + QUERY, long, {"x-recollect-session": f"long-{wire}"})
    counted = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    yield send(url, "POST", f"/v1/messages/count_tokens{QUERY}", counted, {})
    for method in ("GET", "DELETE", "PUT"):
        yield send(url, method, f"/v1/models{QUERY}", None, {})
    yield send(url, "GET", f"/v1/responses{QUERY}", None, {"upgrade": "websocket"})
    yield send(url.partition("/~")[0], "GET", f"/v1/models/{KEY}{QUERY}", None, {})
    yield send(url, "GET", f"/v1/models/{KEY}{QUERY}", None, {})
    yield send(url, "GET", f"/recollect/nothing{QUERY}", None, {})


def shown(url: str) -> bytes:
    """All that a gateway tells of itself."""
    client, prefix = connect(url)

    def page(path: str) -> bytes:
        client.request("GET", prefix + path)
        return client.getresponse().read()

    def named() -> set[str]:
        lines = page("/recollect/activity?follow=0").splitlines()
        return {json.loads(line).get("session") for line in lines} - {None}

    wait_until(named)  # the gateway records a request after its answer
    sessions, lines = named(), page("/recollect/activity?follow=0")
    reports = [page(f"/recollect/reports/{name.rpartition(':')[2]}") for name in sorted(sessions)]
    client.close()
    return lines + b"".join(reports)


def held(content: bytes) -> bool:
    return any(part in content for part in PARTS)


def test_no_part_of_a_key_stays_anywhere(tmp_path: Path) -> None:
    assert held(b"x" + KEY[20:32].encode())
    settings: dict[str, Any] = {
        "gateway.summaries": "client",
        "gateway.upstream.any_key": True,
        "recall.embedder": "none",
    }
    with ModelServer(answer, window_tokens=WINDOW, pages={"/v1/models": {"data": []}}) as server:
        for every in at_size(ci=(4, 12), full=(1, 1)):  # the second finds what the first one left
            gateway = GatewayProcess(tmp_path / "gateway", server.url, **settings)
            try:
                statuses = list(traffic(gateway.url, every=every))
                assert {200, 401, 404, 426, 429, 500, 529} <= set(statuses)
                assert not held(shown(gateway.url))
            finally:
                gateway.stop()
            log = gateway.log.read_bytes()
            assert log and not held(log)
        assert server.overflows
        summaries = [one for one in server.asked if one.headers.get("x-api-key") == KEY]
        assert any(b"summar" in one.content[:4_000].lower() for one in summaries)
        assert any(KEY in one.path for one in server.asked)
    # and while no provider can be reached
    gateway = GatewayProcess(tmp_path / "gateway", server.url, **settings)
    try:
        body = body_of("anthropic", ["hello"])
        assert send(gateway.url, "POST", PATHS["anthropic"] + QUERY, body, {}) == 502
        assert not held(shown(gateway.url))
    finally:
        assert gateway.stop(signal.SIGTERM) == 0
    assert not list((gateway.home / "gateway" / "running").iterdir())
    files = [path for path in (tmp_path / "gateway").rglob("*") if path.is_file()]
    assert len(files) >= 3
    assert [path for path in files if held(path.read_bytes())] == []
