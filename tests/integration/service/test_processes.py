"""`recollect serve --processes`: several processes behind one port."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from tests.harness.waiting import PATIENCE_SECONDS, wait_until
from tests.integration.service.nodes import served_at

from recollect_bench.postgres_server import TestDatabase

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
COMMAND = [sys.executable, "-m", "recollect", "serve", "--port", "0", "--processes", "2"]


def started(database: TestDatabase, **more: str) -> subprocess.Popen[str]:
    own = {"STORE__URL": database.app_url, "RECALL__EMBEDDER": "none", "SERVE__DRAIN_SECONDS": "3"}
    env = os.environ | {f"RECOLLECT_{name}": value for name, value in (own | more).items()}
    return subprocess.Popen(COMMAND, stderr=subprocess.PIPE, text=True, env=env)


def children(pid: int) -> set[int]:
    return {*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())}


def runs(pid: int) -> bool:
    path = Path(f"/proc/{pid}/stat")
    return path.exists() and path.read_text().rpartition(")")[2].split()[0] != "Z"


def is_closed(connection: socket.socket) -> bool:
    with suppress(ConnectionError):
        try:
            while connection.recv(4_000, socket.MSG_DONTWAIT):
                pass
        except BlockingIOError:
            return False
    return True


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_processes_share_a_port_until_their_parent_ends(
    database: TestDatabase, ending: signal.Signals
) -> None:
    parent, lines = started(database), list[socket.socket]()
    try:
        url = served_at(parent)
        first, other = children(parent.pid)
        for _ in range(6):
            line = socket.create_connection(("127.0.0.1", int(url[17:])))
            lines.append(line)
            line.sendall(b"GET /readyz HTTP/1.1\r\nhost: h\r\n\r\n")
            assert line.recv(4_000).startswith(b"HTTP/1.1 200")
        os.kill(first, signal.SIGKILL)
        replaced = wait_until(lambda: children(parent.pid) - {first, other})
        assert sum(map(is_closed, lines)) == 3  # each had as many
        assert httpx2.get(f"{url}/readyz", trust_env=False).status_code == 200
        os.kill(other, signal.SIGTERM)  # a group gets it: the parent alone decides
        parent.send_signal(ending)
        if ending == signal.SIGTERM:
            wait_until(lambda: httpx2.get(f"{url}/readyz", trust_env=False).status_code == 503)
        assert parent.wait(PATIENCE_SECONDS) == (0 if ending == signal.SIGTERM else -ending)
        wait_until(lambda: not any(map(runs, replaced | {other})))
        assert all(map(is_closed, lines))
    finally:
        for line in lines:
            line.close()
        parent.kill()
        parent.communicate()


def test_processes_that_cannot_start_end_with_an_error(database: TestDatabase) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with started(database, TELEMETRY__METRICS_PORT=port) as parent:
            assert parent.wait(PATIENCE_SECONDS) == 2
            assert parent.stderr is not None
            assert "telemetry.metrics_port" in parent.stderr.read()


def test_connections_wait_until_a_process_serves(database: TestDatabase) -> None:
    with started(database) as parent:
        try:
            url = served_at(parent)
            killed = children(parent.pid)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not killed & children(parent.pid))
            answer = httpx2.get(f"{url}/readyz", trust_env=False, timeout=PATIENCE_SECONDS)
            assert answer.status_code == 200
        finally:
            parent.kill()


@pytest.mark.parametrize("signals", [1, 2])
def test_the_port_is_closed_while_a_process_finishes(database: TestDatabase, signals: int) -> None:
    with started(database, SERVE__DRAIN_SECONDS="1" if signals == 1 else "60") as parent:
        try:
            port = int(served_at(parent)[17:])
            stuck, _ = children(parent.pid)
            os.kill(stuck, signal.SIGSTOP)
            for _ in range(signals):
                parent.send_signal(signal.SIGTERM)
                time.sleep(0.3)  # the same signal twice at once would arrive once

            def refused() -> bool:
                with socket.socket() as line:
                    return line.connect_ex(("127.0.0.1", port)) != 0

            wait_until(refused)
            assert parent.poll() is None
        finally:
            parent.kill()
            os.kill(stuck, signal.SIGKILL)


def test_processes_do_not_pick_metrics_ports(database: TestDatabase) -> None:
    with started(database, TELEMETRY__METRICS_PORT="0") as parent:
        assert parent.wait(PATIENCE_SECONDS) == 2
        assert parent.stderr is not None
        assert "telemetry.metrics_port" in parent.stderr.read()
