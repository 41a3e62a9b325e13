"""Processes of the gateway bench: started on a free port, measured from outside, ended again."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from recollect.errors import RecollectError
from recollect.hosts.gateway.access import TOKEN_HEADER
from recollect.system.durable import own_secret

START_SECONDS: Final = 120.0
"""LiteLLM alone takes half a minute to begin on a busy machine."""
STOP_SECONDS: Final = 20.0
_TICKS: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4_096


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as opened:
        return int(opened.getsockname()[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a process holds at a moment, as the system counts it."""

    resident_mb: float
    descriptors: int


class ServerProcess:
    """A server in a process of its own, for as long as the block runs."""

    def __init__(
        self,
        command: Sequence[str],
        port: int,
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._command = list(command)
        self._log = log
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - commands of ours
                self._command, stdout=log, stderr=log, env=self._environment
            )
        try:
            self._wait_until_it_listens()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _wait_until_it_listens(self) -> None:
        until = time.monotonic() + START_SECONDS
        while True:
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > until:
                end = self._log.read_text(encoding="utf-8", errors="replace").strip()[-500:]
                raise RecollectError(f"{Path(self._command[0]).name} did not start: {end}")
            time.sleep(0.05)

    def _stop(self) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def processor_seconds(self) -> float:
        """Processor time it and its children have used; 0 where the system does not tell."""
        return family_seconds(self.pid)

    def held(self) -> Held:
        """The memory, open files and sockets of it and its children; zeros where the system does
        not tell."""
        pages = descriptors = 0
        with suppress(OSError):
            for pid in _family(self.pid):
                proc = Path(f"/proc/{pid}")
                pages += int((proc / "statm").read_text(encoding="ascii").split()[1])
                descriptors += len(list((proc / "fd").iterdir()))
        return Held(resident_mb=pages * _PAGE_BYTES / 1e6, descriptors=descriptors)


def _family(parent: int) -> dict[int, list[str]]:
    """The fields after the names in /proc/PID/stat of a process and its children that live."""
    found: dict[int, list[str]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            fields = stat.rpartition(")")[2].split()
            if parent in (int(entry.name), int(fields[1])):
                found[int(entry.name)] = fields
    return found


def family_seconds(parent: int) -> float:
    """Of a process, its children that live, and those that it has seen end."""
    family = _family(parent)
    ticks = sum(int(field) for fields in family.values() for field in fields[11:13])
    return (ticks + sum(map(int, family.get(parent, [])[13:15]))) / _TICKS


def bench_server(which: str, *, folder: Path, upstream: str | None = None) -> ServerProcess:
    """One of the servers of `servers.py`."""
    port = free_port()
    command = [sys.executable, "-m", "recollect_bench.gateway.servers", which, str(port)]
    return ServerProcess(
        [*command, *([upstream] if upstream else [])], port, log=folder / f"{which}.log"
    )


def gateway_server(
    home: Path, *, upstream: str, window_tokens: int, folder: Path, name: str
) -> ServerProcess:
    """`recollect gateway` itself, with a memory of its own."""
    port = free_port()
    command = [sys.executable, "-m", "recollect", "gateway", "--port", str(port)]
    environment = {
        "RECOLLECT_HOME": str(home),
        "RECOLLECT_WINDOW_TOKENS": str(window_tokens),
        "RECOLLECT_GATEWAY__UPSTREAM__ANTHROPIC": upstream,
        "RECOLLECT_GATEWAY__UPSTREAM__OPENAI": f"{upstream}/v1",
    }
    return ServerProcess(command, port, log=folder / f"{name}.log", environment=environment)


def token_headers(home: Path) -> dict[str, str]:
    """The headers that let a client into the gateway of this home."""
    return {TOKEN_HEADER: own_secret(home / "gateway" / "token")}
