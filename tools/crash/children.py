"""The harness's end of its child processes: start, read, kill.

Most children are forked from the zygote; some are started as `python -m` so that a whole
process start is among what is killed. Owns pipes and pids; knows nothing of what is written.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

KILLED = -signal.SIGKILL


class Child:
    """A running child and the lines it has printed so far."""

    def __init__(self, owner: Nursery, pid: int, output: int, started: float) -> None:
        self.pid = pid
        self.started = started
        self.status: int | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.ended = False
        """Its end of the pipe is closed."""
        self._owner = owner
        self._output = output
        self._rest = b""

    def read(self, seconds: float) -> list[str]:
        """The whole lines that arrive within `seconds`; returns at the first ones."""
        if self.ended:
            return []
        ready, _, _ = select.select([self._output], [], [], max(0.0, seconds))
        if not ready:
            return []
        data = os.read(self._output, 1 << 20)
        if not data:
            self.ended = True
            os.close(self._output)
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line.decode() for line in lines]

    def rest(self, *, within_seconds: float = 120.0) -> list[str]:
        """All lines up to the child's end; one that does not end in time is killed."""
        lines = []
        until = time.monotonic() + within_seconds
        while not self.ended:
            lines += self.read(until - time.monotonic())
            if time.monotonic() > until:
                self.kill()
        return lines

    def kill(self) -> None:
        """SIGKILL, at once."""
        if self.status is None:
            self.status = self._owner.finish(self, kill=True)

    def wait(self) -> int:
        """The exit status of a child that has come to its end."""
        if self.status is None:
            self.status = self._owner.finish(self, kill=False)
        return self.status


class Nursery:
    """Starts children, and ends all of them when it closes."""

    def __init__(self, modules: Sequence[str]) -> None:
        """`modules` are imported once, before any child is forked."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = ["-m", "tools.crash.zygote", str(theirs.fileno()), *modules]
        self._environment = _environment()
        self._process = subprocess.Popen(
            [sys.executable, *command], pass_fds=[theirs.fileno()], env=self._environment
        )
        theirs.close()
        self._socket = ours
        self._fresh: list[subprocess.Popen[bytes]] = []
        if not ours.recv(1024):
            raise RuntimeError("the process that forks children did not start; see its traceback")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._fresh:
            process.kill()
            process.wait()
        self._socket.close()
        self._process.wait(timeout=30)

    def fork(self, module: str, arguments: Sequence[str]) -> Child:
        """A child of the zygote that runs `module.main(arguments)`."""
        read_end, write_end = os.pipe()
        order = {"do": "fork", "module": module, "arguments": list(arguments)}
        started = time.monotonic()
        socket.send_fds(self._socket, [json.dumps(order).encode()], [write_end])
        os.close(write_end)
        return Child(self, int(json.loads(self._socket.recv(1024))["pid"]), read_end, started)

    def start(self, module: str, arguments: Sequence[str]) -> Child:
        """A child of its own: `python -m module`."""
        read_end, write_end = os.pipe()
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], stdout=write_end, env=self._environment
        )
        os.close(write_end)
        self._fresh.append(process)
        child = Child(self, process.pid, read_end, started)
        child.process = process
        return child

    def finish(self, child: Child, *, kill: bool) -> int:
        """End or await a child; its exit status, negative for a signal."""
        if child.process is not None:
            if kill:
                child.process.kill()
            self._fresh.remove(child.process)
            return child.process.wait()
        order = {"do": "kill" if kill else "wait", "pid": child.pid}
        self._socket.send(json.dumps(order).encode())
        return int(json.loads(self._socket.recv(1024))["status"])


def _environment() -> dict[str, str]:
    """Children import what we can import, and numeric libraries start no threads before a fork."""
    path = os.pathsep.join(entry or "." for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
