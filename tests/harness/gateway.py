"""A gateway in a thread, in front of a scripted provider, and requests to it."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from tests.harness.model_server import ModelServer
from tests.harness.waiting import PATIENCE_SECONDS, wait_until

from recollect.hosts.gateway.running import BackgroundGateway
from recollect.system.config import Settings, load_settings

PATHS = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
}


def settings_for(server: ModelServer, **more: Any) -> Settings:
    return load_settings(
        arguments={
            "gateway.port": 0,
            "gateway.upstream.anthropic": server.url,
            "gateway.upstream.openai": f"{server.url}/v1",
            "recall.embedder": "none",
            **more,
        }
    ).settings


@contextmanager
def gateway(server: ModelServer, **more: Any) -> Iterator[BackgroundGateway]:
    with BackgroundGateway(settings_for(server, **more)) as running:
        yield running


class Reply:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def connect(url: str) -> tuple[http.client.HTTPConnection, str]:
    """A connection to this address, and what its paths begin with."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return http.client.HTTPConnection(host, parts.port, timeout=PATIENCE_SECONDS), parts.path


def ask(
    url: str,
    path: str,
    body: bytes | dict[str, Any] | None = None,
    *,
    method: str = "POST",
    **headers: str,
) -> Reply:
    connection, prefix = connect(url)
    content = json.dumps(body).encode() if isinstance(body, dict) else body
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {"content-type": "application/json", **sent}
    try:
        connection.request(method, prefix + path, content, sent)
        return Reply(connection.getresponse())
    finally:
        connection.close()


def records(running: BackgroundGateway, count: int) -> list[dict[str, Any]]:
    """The newest records, once there are so many."""
    newest = running.gateway.activity.newest_records
    wait_until(lambda: len(newest(100)) >= count)
    found = [asdict(record) for record in newest(100)]
    return sorted(found, key=lambda record: record["number"])


def body_of(wire: str, texts: list[str], *, stream: bool = False) -> bytes:
    """A request in spelling of its own: white space, order and escapes that nobody else writes."""
    roles = ["user", "assistant"]
    rows = [
        f'{{ "role":"{roles[at % 2]}" ,"content": {json.dumps(text)} }}'
        for at, text in enumerate(texts)
    ]
    field = "input" if wire == "openai-responses" else "messages"
    limit = '"max_tokens":1024, ' if wire == "anthropic" else ""
    return (
        f'{{"model" : "m\\u006fdel-x", {limit}"stream":{str(stream).lower()},'
        f' "x_unknown": [1.0, 2e3],\n "{field}": [{" , ".join(rows)}] }}'
    ).encode()


def turn(texts: list[str], **fields: Any) -> dict[str, Any]:
    roles = ["user", "assistant"]
    rows = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    return {"model": "claude-x", "max_tokens": 512, "messages": rows, **fields}


def history(turns: int, *, words: int = 120) -> list[str]:
    """A long conversation, user and assistant by turns, the user last."""
    texts = []
    for at in range(turns):
        texts.append(f"Please look at module {at}. " + f"detail {at} " * words)
        texts.append(f"Module {at} is done. " + f"finding {at} " * words)
    return [*texts, "What is next?"]


def leave_in_mid_stream(
    running: BackgroundGateway, wire: str, text: str = "count", **headers: str
) -> None:
    """A client that goes away after the first bytes of its reply."""
    connection, prefix = connect(running.url)
    body = body_of(wire, [text], stream=True)
    connection.request("POST", prefix + PATHS[wire], body, headers)
    assert connection.getresponse().read1()
    connection.close()
