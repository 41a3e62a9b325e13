"""The service's secret: a node with another one serves nothing, and a rotation loses nothing."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.harness.forked_cli import run_forked
from tests.harness.waiting import PATIENCE_SECONDS, wait_until
from tests.integration.service.nodes import Caller, Node, add_tenant, chat, served_at
from tools.service_faults.backup import database_on, forget_something, sent_again
from tools.service_faults.fleet import PGBOUNCER, SETTINGS, Fleet, Pooler
from tools.service_faults.load import DEADLINE_SECONDS
from tools.service_faults.scenarios import Held, Plan, tried

from recollect import open_memory
from recollect.adapters.wiring import secrets
from recollect.adapters.wiring.stores import open_fleet
from recollect.errors import WrongSecret
from recollect_bench.postgres_server import PostgresServer, TestDatabase

RIGHT, WRONG, NEXT = "0c4e22" * 6, "0c4e2z" * 6, "77ab10" * 6


@pytest.fixture
def fresh(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> TestDatabase:
    """A migrated database, and its secret in this process."""
    monkeypatch.setenv("RECOLLECT_SECRET", RIGHT)
    return asyncio.run(server.migrated_database())


@contextmanager
def node_process(store: str, secret: str, key: str) -> Iterator[tuple[Caller, list[str]]]:
    """`recollect serve` in a process of its own, whether or not it is ready; and what it logs."""
    told: list[str] = []
    environment = {
        **os.environ,
        "RECOLLECT_STORE__URL": store,
        "RECOLLECT_RECALL__EMBEDDER": "none",
        "RECOLLECT_SECRET": secret,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "recollect", "serve", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield Caller(served_at(process, told), key), told
    finally:
        process.kill()
        process.communicate()


def reason(caller: Caller) -> str | None:
    """Why a node is not ready; None if it is."""
    answer = caller("GET", "/readyz", expect=None)
    assert (answer.status_code == 200) == (answer.json()["status"] == "ok")
    found: str | None = answer.json().get("reason")
    return found


def test_a_node_with_another_secret_never_becomes_ready(
    server: PostgresServer, fresh: TestDatabase
) -> None:
    """Nor after a restart, nor through a pooler. A newline after the secret changes nothing."""
    _, key = add_tenant(fresh, "main")
    asyncio.run(_unlock(fresh.app_url, draws=True))
    said = ("The code of the vault is 7719.", "Noted.", "Thanks.")
    path = "/v1/spaces/one/sessions/talk/prepare"
    with ExitStack() as stack:
        right, _ = stack.enter_context(node_process(fresh.app_url, f"{RIGHT}\n", key))
        wait_until(lambda: reason(right) is None)
        right.post(path, {"request": chat(*said)})
        right.post("/v1/spaces/one/forget", {"matching": "vault"})
        pooled = fresh.app_url
        if PGBOUNCER is not None:
            pooler = Pooler(server, fresh)
            stack.callback(pooler.kill)
            pooler.start()
            pooled = pooler.url
        for secret in (WRONG, ""):
            with node_process(pooled, secret, key) as (wrong, told):
                for _ in range(3):
                    assert reason(wrong) == "secret-wrong"
                    sent = {"request": chat(*said)}
                    assert wrong("POST", path, json=sent, expect=503).headers["retry-after"]
                assert wrong("GET", "/healthz")
                assert "RECOLLECT_SECRET is not" in "".join(told)
                assert "set it as it was" in "".join(told)
        right.post(path, {"request": chat(*said, "Bye.")})
        texts = [one["text"] for one in right.get("/v1/spaces/one/export")["segments"]]
    assert sorted(texts) == ["Bye.", "Noted.", "Thanks."]


async def _unlock(url: str, **given: Any) -> bytes:
    async with await open_fleet(url) as fleet:
        return await secrets.unlock(fleet, url, **given)


async def _forget_secret(database: TestDatabase) -> None:
    """As a database is that an earlier version filled."""
    secrets.DATA_SECRETS.clear()
    with psycopg.connect(database.admin_url, autocommit=True) as owner:
        owner.execute("DELETE FROM recollect.secrets")


@pytest.mark.parametrize("ours", [RIGHT, f"{RIGHT}\n", ""])
async def test_the_first_process_after_an_upgrade_must_fit_the_messages(
    fresh: TestDatabase, monkeypatch: pytest.MonkeyPatch, ours: str
) -> None:
    """A node whose secret was wrong for a while has stored messages, too, but not the oldest ones
    of most spaces."""
    monkeypatch.setenv("RECOLLECT_SECRET", ours)
    _, key = await asyncio.to_thread(add_tenant, fresh, "main")

    def talk(*spaces: str) -> None:
        with Node(fresh) as node:
            for space in spaces:
                body = {"request": chat("What is on Thursday?", "The meeting.", "Good.")}
                Caller(node.url, key).post(f"/v1/spaces/{space}/sessions/talk/prepare", body)

    async with await open_fleet(fresh.app_url) as fleet:  # an earlier version draws no secret
        await secrets.unlock(fleet, fresh.app_url)
    await asyncio.to_thread(talk, "a", "b", "c")
    await _forget_secret(fresh)
    monkeypatch.setenv("RECOLLECT_SECRET", WRONG)
    await _forget_secret(fresh)
    async with await open_fleet(fresh.app_url) as fleet:  # a node of an earlier version
        await secrets.unlock(fleet, fresh.app_url, compares=False)
    await asyncio.to_thread(talk, "a", "d")
    for wrong in (WRONG, NEXT, *([] if ours == "" else [""])):
        monkeypatch.setenv("RECOLLECT_SECRET", wrong)
        await _forget_secret(fresh)
        with pytest.raises(WrongSecret, match=r"fits the oldest messages of only \d in 4 spaces"):
            await _unlock(fresh.app_url, draws=True)
    monkeypatch.setenv("RECOLLECT_SECRET", ours)
    assert await _unlock(fresh.app_url, draws=True) == ours.encode()
    monkeypatch.setenv("RECOLLECT_SECRET", WRONG)
    with pytest.raises(WrongSecret, match="set it as it was"):
        await _unlock(fresh.app_url)


async def test_the_first_of_two_processes_names_the_secret_of_a_new_database(
    fresh: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is drawn, so who learns RECOLLECT_SECRET later cannot compute ids without the database."""

    async def opens(secret: str) -> bytes | None:
        async with await open_fleet(fresh.app_url) as fleet:
            monkeypatch.setenv("RECOLLECT_SECRET", secret)
            try:
                return await secrets.unlock(fleet, fresh.app_url, draws=True)
            except WrongSecret:
                return None

    found = [await opens(RIGHT), await opens(WRONG), await opens(RIGHT), await opens("")]
    assert found[0] == found[2] is not None
    assert RIGHT.encode() != found[0]
    assert found[1] is found[3] is None
    with psycopg.connect(fresh.admin_url) as owner:
        ((record,),) = owner.execute("SELECT record FROM recollect.secrets").fetchall()
    assert found[0] not in record


def command(
    *arguments: str, database: TestDatabase, secret: str, home: Path, given: bytes = b""
) -> tuple[int, str]:
    """The exit code of a command, and what it prints."""
    environment = {
        **os.environ,
        "RECOLLECT_HOME": str(home),
        "RECOLLECT_STORE__URL": database.app_url,
        "RECOLLECT_RECALL__EMBEDDER": "none",
        "RECOLLECT_SECRET": secret,
    }
    done = run_forked(arguments, stdin=given, env=environment, cwd=home, timeout=PATIENCE_SECONDS)
    return done.returncode, (done.stdout + done.stderr).decode()


REFUSED: Sequence[tuple[str, ...]] = (
    ("memory", "add", "A note.", "--space", "notes"),
    ("worker", "--once"),
    ("doctor",),
    ("db", "check", "OWNER"),
    ("db", "secret", "OWNER"),
    ("db", "secret", "OWNER", "--retire"),
)
ALLOWED: Sequence[tuple[str, ...]] = (
    ("tenant", "list"),
    ("key", "list", "main"),
    ("space", "list"),
    ("memory", "search", "note", "--space", "spare"),
    ("export", "copy", "--space", "spare"),
    ("memory", "check", "--space", "spare"),
    ("memory", "forget", "--matching", "note", "--yes", "--space", "spare"),
    ("space", "delete", "spare", "--yes"),
)


def test_commands_with_another_secret_store_nothing(fresh: TestDatabase, tmp_path: Path) -> None:
    add_tenant(fresh, "main")

    def run(arguments: Sequence[str], secret: str, given: bytes = b"") -> tuple[int, str]:
        named = [fresh.admin_url if one == "OWNER" else one for one in arguments]
        return command(*named, database=fresh, secret=secret, home=tmp_path, given=given)

    for note in (REFUSED[0], (*REFUSED[0][:-1], "spare")):
        code, told = run(note, RIGHT)
        assert code == 0, told
    code, told = run(("db", "check", "OWNER"), RIGHT)
    assert "checked  RECOLLECT_SECRET" in told
    for arguments in REFUSED:
        code, told = run(arguments, WRONG)
        assert code != 0, told
        assert "RECOLLECT_SECRET is not the one" in told, arguments
    for arguments in ALLOWED:
        code, told = run(arguments, WRONG)
        assert code == 0, (arguments, told)
    assert "spare" not in run(("space", "list"), WRONG)[1]
    accept = ("db", "secret", "OWNER", "--accept", "-")
    for refused in (b"", b"\n", b"short"):
        code, told = run(accept, RIGHT, refused)
        assert code != 0
        assert "at least 16 characters" in told
    code, told = run(accept, RIGHT, f"{NEXT}\n".encode())
    assert "and 1 other secret." in told
    assert run(accept, RIGHT, NEXT.encode()) == (code, told), "the same secret is accepted once"
    assert run(("db", "secret", "OWNER", "--retire"), NEXT)[0] == 0
    code, told = run(("memory", "add", "A note.", "--space", "notes"), NEXT)
    assert told.startswith("known: "), "ids are as before the rotation"
    assert run(("memory", "add", "A note.", "--space", "notes"), RIGHT)[0] != 0


def test_a_restored_backup_is_refused_with_another_secret(
    server: PostgresServer, fresh: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, key = add_tenant(fresh, "restored")
    with Node(fresh) as node:
        forget_something(node.url, key)
    copied, path = server.new_database(), server.folder / f"dump-{uuid4().hex}"
    server.dump(fresh.name, path)
    server.restore(path, copied.name)
    restored = database_on(server, copied.name)
    monkeypatch.setenv("RECOLLECT_SECRET", WRONG)
    with Node(restored) as node:
        assert reason(Caller(node.url, key)) == "secret-wrong"
        Caller(node.url, key)("GET", "/v1/tenant", expect=503)
        monkeypatch.setenv("RECOLLECT_SECRET", RIGHT)
        assert sent_again(node.url, key) == [], "a node is ready once its secret fits"


def test_a_rotation_under_load_loses_nothing_and_brings_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes and a worker, restarted one after the other with the new secret."""
    plan = Plan(before_seconds=1.0, after_seconds=1.0)
    with Fleet.start(tmp_path, tenants=2) as fleet:
        held = Held(pace=5.0, limit_seconds=DEADLINE_SECONDS)
        outcome = asyncio.run(tried(fleet, "rotation", held=held, times=1.0, plan=plan))
        assert (outcome.lost, outcome.duplicated, outcome.problems) == (0, 0, [])
        assert outcome.acknowledged > 0
        monkeypatch.setenv("RECOLLECT_SECRET", SETTINGS["RECOLLECT_SECRET"])
        with pytest.raises(WrongSecret):
            asyncio.run(_unlock(fleet.database.app_url))


@pytest.mark.parametrize("is_rotated", [False, True])
async def test_a_program_that_starts_in_an_outage_stores_nothing_with_other_ids(
    monkeypatch: pytest.MonkeyPatch, is_rotated: bool
) -> None:
    """Until the database answers, it knows only RECOLLECT_SECRET, which a rotation changes."""
    said = chat("What is on Thursday?", "The meeting.", "Good.", "Bye.")

    async def tell(database: TestDatabase, messages: int, *, outage: bool = False) -> int:
        """As a process of its own: how many batches it leaves in the spool."""
        secrets.DATA_SECRETS.clear()
        if outage:
            server.stop("immediate")
        settings = {"recall.embedder": "none"}
        async with open_memory(store=database.app_url, settings=settings) as memory:
            await memory.prepare("s", {**said, "messages": said["messages"][:messages]})
            if outage:
                assert await memory.settle(0.1)
                await asyncio.to_thread(server.start)
            return await memory.settle(PATIENCE_SECONDS if not (outage and is_rotated) else 2.0)

    async def stored(database: TestDatabase) -> list[str]:
        async with await open_fleet(database.app_url) as fleet:
            store = await fleet.space("default")
            return [one.segment.text for one in await store.page(limit=100)]

    with PostgresServer(18) as server:
        database = await server.migrated_database()
        monkeypatch.setenv("RECOLLECT_SECRET", RIGHT)
        assert await tell(database, 2) == 0
        if is_rotated:
            async with await open_fleet(database.app_url) as fleet:
                url = database.app_url
                await secrets.change_secrets(fleet, url, accept=NEXT.encode(), retire=False)
            monkeypatch.setenv("RECOLLECT_SECRET", NEXT)
        assert (await tell(database, 3, outage=True) > 0) == is_rotated
        assert await tell(database, 4) == 0
        texts = [message["content"] for message in said["messages"]]
        assert sorted(await stored(database)) == sorted(texts)
