"""A node that says it is ready answers its first request as it answers the next ones."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.integration.service.nodes import Caller, add_tenant, served_at

from recollect_bench.postgres_server import TestDatabase

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="reads processor time from /proc"
)
WORDS = "We moved the crane to berth 7, and the deploy key lies in the vault."


@pytest.fixture
def node(database: TestDatabase) -> Iterator[tuple[int, str]]:
    """A node of a process of its own: its id and address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "recollect", "serve", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "RECOLLECT_STORE__URL": database.app_url,
            "RECOLLECT_RECALL__EMBEDDER": "static",
            "RECOLLECT_SERVE__DRAIN_SECONDS": "0.1",
        },
    )
    try:
        yield process.pid, served_at(process)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def processor_seconds(pid: int) -> float:
    """What the process has used so far, in all of its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_first_request_waits_for_no_model(
    database: TestDatabase, node: tuple[int, str]
) -> None:
    pid, url = node
    assert httpx2.get(f"{url}/readyz", trust_env=False, timeout=30).status_code == 200
    _, key = add_tenant(database, "acme")
    caller = Caller(url, key)
    used: list[float] = []
    for number in range(4):
        body = {"messages": [{"role": "user", "content": f"{WORDS} What is in dock {number}?"}]}
        before = processor_seconds(pid)
        caller.post(f"/v1/spaces/dock-{number}/sessions/s/prepare", {"request": body})
        used.append(processor_seconds(pid) - before)
    assert used[0] < 3 * max(used[1:]) + 0.1, used
