"""A node says that PostgreSQL's disk is full, also if nobody writes, and when it is no more."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest
from tests.harness.waiting import wait_until
from tests.integration.service.nodes import Caller, Node, add_tenant

from recollect.adapters.stores.postgres import pool
from recollect.adapters.stores.postgres.store import PostgresFleet
from recollect.errors import StoreUnavailable
from recollect.hosts.service import memories
from recollect.hosts.service.app import watch
from recollect.hosts.service.metrics import Metrics
from recollect_bench.postgres_server import PostgresServer


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of its own, of 600 MB."""
    folder = Path(tempfile.mkdtemp(prefix="rc-", dir="/tmp"))
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600m,mode=755", "recollect-test", str(folder)],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        folder.rmdir()
        pytest.skip("a test may mount nothing here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def test_readyz_and_the_metric_report_a_full_disk_until_there_is_space(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "FULL_SECONDS", 2.0)
    monkeypatch.setattr(memories, "DISK_SECONDS", 0.2)
    monkeypatch.setattr(memories, "PROBE_SECONDS", 0.1)
    with PostgresServer(18, folder=small_disk) as server:
        database = asyncio.run(server.migrated_database())
        _, key = add_tenant(database, "full")
        metrics = Metrics()
        with Node(database) as node:
            watch(node.service, metrics)
            caller = Caller(node.url, key)
            message = {"messages": [{"role": "user", "content": os.urandom(400_000).hex()}]}
            path = "/v1/spaces/s/sessions/s/ingest"

            def ready() -> tuple[int, str | None, float | None]:
                answer = httpx2.get(f"{node.url}/readyz", trust_env=False)
                available = metrics.registry.get_sample_value("recollect_store_available")
                return answer.status_code, answer.json()["reason"], available

            caller.post(path, {**message, "batch": "1"})
            assert ready() == (200, None, 1.0)
            with (small_disk / "ballast").open("wb") as ballast:
                left = shutil.disk_usage(small_disk).free
                ballast.write(bytes(left - left % 4_096))
            wait_until(lambda: ready() == (200, "disk-full", 0.0))
            assert caller.get("/v1/spaces/s/export")["segments"]
            refused = caller("POST", path, json={**message, "batch": "2"}, expect=None,
                             headers={"x-request-timeout": "5"})  # fmt: skip
            assert refused.status_code in (503, 504)
            (small_disk / "ballast").unlink()
            wait_until(lambda: ready() == (200, None, 1.0))
            caller.post(path, {**message, "batch": "2"})
            caller.http.close()


async def test_a_read_that_lacks_temporary_space_leaves_the_disk_usable(
    server: PostgresServer,
) -> None:
    database = await server.migrated_database()
    fleet = await PostgresFleet.open(database.app_url)
    fail = "DO $$ BEGIN RAISE EXCEPTION 'none left' USING ERRCODE = 'disk_full'; END $$"
    for read in (True, False):
        with pytest.raises(StoreUnavailable, match="disk"):
            async with fleet.pool.transaction(uuid4(), read=read) as work:
                await work.rows(fail)
        assert fleet.pool.disk_is_full == (not read)
    await fleet.close()
