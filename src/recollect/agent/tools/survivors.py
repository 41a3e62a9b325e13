"""Finds what a command left running, by a mark that its processes inherit.

A process that began a session of its own (`setsid`, a daemon) is in no group that could be killed,
and belongs to nobody once its parent has ended. Its environment still tells whose it is. Linux
only; a process that threw its environment away, or runs as another user, is not found.
"""

from __future__ import annotations

import os
import secrets
import signal
from pathlib import Path

NAME = "RECOLLECT_CALL"
_ROUNDS = 5
"""What is killed may have begun another process just before."""
_PROCESSES = Path("/proc")
_SEPARATOR = ":"


def new_mark() -> str:
    """A mark that no other call has."""
    return secrets.token_hex(8)


def environment(mark: str) -> dict[str, str]:
    """Ours with the mark; an agent that a command started keeps the marks of that command."""
    marks = [one for one in (os.environ.get(NAME), mark) if one]
    return {**os.environ, NAME: _SEPARATOR.join(marks)}


def kill_survivors(mark: str) -> int:
    """End every process that carries the mark; how many there were."""
    killed = 0
    for _ in range(_ROUNDS):
        found = _marked(mark.encode())
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
                killed += 1
            except (ProcessLookupError, PermissionError):
                continue
        if not found:
            break
    return killed


def _marked(mark: bytes) -> list[int]:
    try:
        numbers = [int(name) for name in os.listdir(_PROCESSES) if name.isdigit()]  # noqa: PTH208
    except OSError:  # no such folder: not Linux
        return []
    return [pid for pid in numbers if pid != os.getpid() and mark in _marks(pid)]


def _marks(pid: int) -> list[bytes]:
    """None for a process that has ended, and for one of another user."""
    try:
        held = (_PROCESSES / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
    ours = f"{NAME}=".encode()
    values = [one.removeprefix(ours) for one in held if one.startswith(ours)]
    return [mark for value in values for mark in value.split(_SEPARATOR.encode())]
