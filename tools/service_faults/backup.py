"""Backups of a service that were taken while it was written to, restored into other servers.

Both ways of `docs/operations/database.md`: a base backup with its WAL, and a logical dump by a role
above row-level security. Judged are what a backup must have, and what it must not; that nothing of
it is half written; that the store's contract holds on it; and that what was forgotten before it
stays away when a client sends its history again.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from unittest import SkipTest

import psycopg
from tests.store_contract import CONTRACT, run_check

from recollect.adapters.stores.postgres.admin import check_database
from recollect.adapters.stores.postgres.schema import migrate
from recollect.adapters.stores.postgres.store import PostgresFleet
from recollect.client import MemoryClient
from recollect.core.ports import Store
from recollect_bench.postgres_server import APP_PASSWORD, APP_ROLE, PostgresServer, TestDatabase
from tools.service_faults.fleet import Fleet
from tools.service_faults.load import Load, stored_tokens

Way: TypeAlias = Literal["base backup", "dump"]
WAYS: Final[tuple[Way, ...]] = ("base backup", "dump")
FORGETFUL: Final = "forgetful"
"""A space that forgets before the backup."""
SAID: Final = ("The code of the vault is 7719.", "Noted.", "The meeting is on Thursday.")


@dataclass(slots=True, kw_only=True)
class BackupOutcome:
    """One backup, restored."""

    way: Way
    pace: float
    taken_seconds: float = 0.0
    spaces: int = 0
    messages: int = 0
    """In the restored service."""
    acknowledged_before: int = 0
    """Before the backup was begun."""
    missing: int = 0
    """Of these."""
    duplicated: int = 0
    checks: int = 0
    """Checks of the store's contract that hold on it."""
    problems: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Everything is there, once, and nothing is amiss."""
        return not (self.missing or self.duplicated or self.problems)

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {**asdict(self), "clean": self.clean}


def forget_something(url: str, key: str) -> None:
    """A history of which one message is forgotten."""
    with MemoryClient(url, key) as client:
        client.ingest(FORGETFUL, "talk", _history())
        client.forget(FORGETFUL, matching="vault")


def sent_again(url: str, key: str) -> list[str]:
    """What is wrong after the client of a restored service sent that history again."""
    with MemoryClient(url, key) as client:
        again = client.ingest(FORGETFUL, "talk", _history())
        texts = [getattr(one, "text", "") for one in client.export(FORGETFUL)]
    problems = []
    if again.forgotten != 1 or again.stored:
        problems.append(f"the history sent again: {again}")
    if any("vault" in text for text in texts):
        problems.append("what was forgotten came back")
    if sum("Thursday" in text for text in texts) != 1:
        problems.append("what was not forgotten is not there once")
    return problems


def _history() -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": text} for at, text in enumerate(SAID)]


def restored(way: Way, source: Fleet) -> tuple[PostgresServer, TestDatabase]:
    """A backup of a fleet's database in another server, which is running."""
    if way == "base backup":
        server = PostgresServer(18, copy_of=source.server)
        server.__enter__()
        return server, database_on(server, source.database.name)
    server = PostgresServer(18)
    server.__enter__()
    database = server.new_database()
    with psycopg.connect(server.admin_url, autocommit=True) as owner:  # roles are in no dump
        owner.execute(f"CREATE ROLE {APP_ROLE} LOGIN PASSWORD '{APP_PASSWORD}'".encode())
    path = source.server.folder / "dump"
    source.server.dump(source.database.name, path)
    server.restore(path, database.name)
    made = migrate(database.admin_url, app_role=APP_ROLE, app_password=APP_PASSWORD)
    asyncio.run(made)  # what is set on the role is in no dump, either
    return server, database


def database_on(server: PostgresServer, name: str) -> TestDatabase:
    """A database that a server has."""
    return TestDatabase(
        name=name,
        admin_url=server.url(name),
        app_url=server.url(name, user=APP_ROLE, password=APP_PASSWORD),
    )


def try_backup(way: Way, folder: Path, *, pace: float, seconds: float) -> BackupOutcome:
    """Take a backup under load, restore it, and compare."""
    outcome = BackupOutcome(way=way, pace=pace)
    with Fleet.start(folder / "source") as source:
        forget_something(source.urls[0], source.keys[0])
        load, begun, server, database = asyncio.run(_under_load(way, source, outcome, seconds))
        tenants = source.tenants
        amiss = asyncio.run(_looked_at(source.database))  # a trial has no settings on its role
    try:
        found_there = asyncio.run(_looked_at(database))
        outcome.problems += [problem for problem in found_there if problem not in amiss]
        with Fleet.start(
            folder / "restored", server=server, database=database, keys=tenants
        ) as again:
            spaces = sorted(load.record.spaces)
            found = asyncio.run(stored_tokens(again.urls, again.keys, spaces))
            _compare(outcome, load, begun, found)
            outcome.problems += sent_again(again.urls[1], again.keys[0])
        outcome.checks = asyncio.run(_contract(database, outcome.problems))
    finally:
        server.close()
    return outcome


async def _under_load(
    way: Way, source: Fleet, outcome: BackupOutcome, seconds: float
) -> tuple[Load, float, PostgresServer, TestDatabase]:
    load, stop = Load(source.urls, source.keys), asyncio.Event()
    load.pace = outcome.pace
    running = asyncio.create_task(load.run(stop))
    await asyncio.sleep(seconds)
    begun = time.monotonic()
    server, database = await asyncio.to_thread(restored, way, source)
    outcome.taken_seconds = round(time.monotonic() - begun, 1)
    await asyncio.sleep(seconds / 4)
    stop.set()
    await running
    return load, begun, server, database


def _compare(outcome: BackupOutcome, load: Load, begun: float, found: Counter[str]) -> None:
    record = load.record
    before = [token for token, at in record.acknowledged.items() if at < begun]
    outcome.spaces, outcome.messages = len(record.spaces), found.total()
    outcome.acknowledged_before = len(before)
    outcome.missing = sum(1 for token in before if not found[token])
    outcome.duplicated = sum(1 for count in found.values() if count > 1)
    if strangers := sum(1 for token in found if token not in record.sent):
        outcome.problems.append(f"{strangers} messages that nobody sent")


async def _looked_at(database: TestDatabase) -> list[str]:
    """What `recollect db check` and, of every space, `recollect memory check` find."""
    problems = [
        one.what for one in (await check_database(database.admin_url)).findings if one.problem
    ]
    fleet = await PostgresFleet.open(database.app_url)
    try:
        for name in await fleet.spaces():
            checked = await (await fleet.space(name)).check()
            problems += [f"{name}: {problem}" for problem in checked.problems]
    finally:
        await fleet.close()
    return problems


async def _contract(database: TestDatabase, problems: list[str]) -> int:
    """How many checks of the store's contract hold there."""
    fleet = await PostgresFleet.open(database.app_url)

    async def opened(space: str) -> Store:
        return await fleet.space(space)

    held = 0
    try:
        for check in CONTRACT:
            (outcome,) = await asyncio.gather(run_check(check, opened), return_exceptions=True)
            if isinstance(outcome, Exception) and not isinstance(outcome, SkipTest):
                problems.append(f"the contract: {outcome}")
            else:
                held += 1
    finally:
        await fleet.close()
    return held
