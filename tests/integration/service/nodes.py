"""A node in this process, tenants with keys, and requests to it, for the tests of the service."""

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import httpx2
import psycopg
from tests.harness.waiting import PATIENCE_SECONDS, wait_until

from recollect.adapters.stores.postgres.store import PostgresFleet
from recollect.core.values.tenant import KEY_SCOPES, KeyScope
from recollect.hosts.http import BackgroundServer
from recollect.hosts.service.app import MountMcp, NodeServer, Service, service_of
from recollect.hosts.service.keys import make_key, new_tenant
from recollect.system.config import Settings, load_settings
from recollect.system.loopback import listen_on
from recollect_bench.postgres_server import TestDatabase


def node_settings(
    database: TestDatabase, *, given: Mapping[str, Any] | None = None, **changes: Any
) -> Settings:
    """Settings of a node: `changes` are those of `serve`, `given` any others."""
    return load_settings(
        arguments={
            "store.url": database.app_url,
            "recall.embedder": "none",
            "jobs.in_process": False,
            "serve.port": 0,
            **{f"serve.{name}": value for name, value in changes.items()},
            **(given or {}),
        }
    ).settings


class Node(BackgroundServer):
    """A node in a thread of its own."""

    def __init__(
        self,
        database: TestDatabase,
        *,
        mcp: MountMcp | None = None,
        given: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> None:
        self.settings = node_settings(database, given=given, **changes)
        self.service: Service = service_of(self.settings, mcp=mcp)
        opened = listen_on(self.settings.serve.host, self.settings.serve.port, fix="")
        super().__init__(NodeServer(self.service, self.settings), opened)


class Caller:
    """Somebody with a key."""

    def __init__(self, url: str, key: str) -> None:
        self.key = key
        self.http = httpx2.Client(
            base_url=url,
            headers={"authorization": f"Bearer {key}"},
            timeout=PATIENCE_SECONDS,
            trust_env=False,
            limits=httpx2.Limits(max_keepalive_connections=0),  # nothing is left open
        )

    def __call__(self, method: str, path: str, *, expect: int | None = 200, **given: Any) -> Any:
        answer = self.http.request(method, path, **given)
        if expect is not None:
            assert answer.status_code == expect, answer.text
        return answer

    def get(self, path: str, **given: Any) -> Any:
        return self("GET", path, **given).json()

    def post(self, path: str, body: Any, **given: Any) -> Any:
        return self("POST", path, json=body, **given).json()


def served_at(process: subprocess.Popen[str], told: list[str] | None = None) -> str:
    """The address that `recollect serve` tells on its standard error once it serves; `told` takes
    what it says before that."""
    assert process.stderr is not None
    told = [] if told is None else told
    for line in process.stderr:
        if line.startswith("Recollect serves on "):
            return line.split()[3].rstrip(":")
        if '"event":"serving"' in line:
            return str(json.loads(line)["address"])
        told.append(line)
    raise RuntimeError("".join(told))


def late_body(text: str) -> Iterator[bytes]:
    """The body of a prepare that ends after a short deadline."""
    yield b'{"request": '
    time.sleep(0.5)
    yield json.dumps(chat(text)).encode() + b"}"


def add_tenant(
    database: TestDatabase,
    name: str,
    *,
    scopes: Sequence[KeyScope] = KEY_SCOPES,
    requests: int | None = None,
    tokens: int | None = None,
    expires_at: float | None = None,
) -> tuple[UUID, str]:
    """A tenant and a key of it."""

    async def add() -> tuple[UUID, str]:
        fleet = await PostgresFleet.open(database.app_url)
        new = new_tenant(name, now=time.time())
        tenant = replace(new, requests_per_minute=requests, tokens_per_day=tokens)
        assert await fleet.tenants().add_tenant(tenant, actor="test")
        key = make_key(tenant.id, name="", scopes=scopes, now=time.time(), expires_at=expires_at)
        await fleet.tenants().add_key(key.record, actor="test")
        await fleet.close()
        return tenant.id, key.text

    return asyncio.run(add())


def add_key(database: TestDatabase, tenant: UUID, **given: Any) -> str:
    """A further key of a tenant."""

    async def add() -> str:
        fleet = await PostgresFleet.open(database.app_url)
        made = make_key(tenant, name="", now=time.time(), **given)
        await fleet.tenants().add_key(made.record, actor="test")
        await fleet.close()
        return made.text

    return asyncio.run(add())


def wait_for_lock(database: TestDatabase, waiting: int = 1) -> None:
    """Wait until so many statements wait for a lock."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with psycopg.connect(database.admin_url, autocommit=True) as owner:
        wait_until(lambda: (owner.execute(asked).fetchone() or (0,))[0] >= waiting)


def chat(*texts: str) -> dict[str, Any]:
    """A request whose messages are these, in turn the user's and the model's."""
    roles = ("user", "assistant")
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "messages": [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)],
    }


def reply(text: str) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 50, "output_tokens": 9},
    }
