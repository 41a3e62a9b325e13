"""Starts and ends the daemon: one per user, found by its socket, and started again if it has ended.
The daemon holds a lock, which the system releases however the process ends. The socket listens
before slow imports, so early clients wait in the system's queue."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

import recollect
from recollect.errors import MissingExtra
from recollect.hosts import require_extra
from recollect.hosts.daemon.client import (
    MOST_LOG_BYTES,
    PAUSE_SECONDS,
    daemon_folder,
    listens,
    lock_path,
    log_path,
    socket_path,
)
from recollect.system.durable import replace_file, try_lock
from recollect.system.loopback import BACKLOG

TAKE_SECONDS: Final = 60.0
"""Time that a new daemon waits for the old one to finish its work."""
LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DaemonPlace:
    """The lock of a user's daemon, and the socket on which it listens."""

    lock: int
    path: Path
    listening: socket.socket
    inode: int

    @property
    def is_ours(self) -> bool:
        """Return True if clients that look for the daemon reach this process."""
        try:
            return self.path.stat().st_ino == self.inode
        except OSError:
            return False

    def leave(self) -> None:
        """Remove the socket, so that no client finds this daemon. The process keeps its lock."""
        if self.is_ours:
            self.path.unlink(missing_ok=True)


def claim_place() -> DaemonPlace | None:
    """Take the lock and listen on the socket; return None if a running daemon has the lock. If the
    old daemon has stopped listening, wait until it has finished its work."""
    os.umask(0o077)
    lock = os.open(lock_path(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + TAKE_SECONDS
    while not try_lock(lock):
        if listens() or time.monotonic() > until:
            os.close(lock)
            return None
        time.sleep(PAUSE_SECONDS)
    _write_own_id(lock)
    path = Path(socket_path())
    path.unlink(missing_ok=True)  # a killed daemon left this socket: no running one has the lock
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    path.chmod(0o600)
    listening.listen(BACKLOG)
    # OpenClaw's plugin cannot compute the socket's path, so write it to a file.
    replace_file(Path(daemon_folder()) / "socket.path", os.fsencode(path))
    return DaemonPlace(lock, path, listening, path.stat().st_ino)


def run_detached() -> int:
    """Listen, then serve in a child process. Return the exit code of the process that ends."""
    try:
        require_extra("hooks")
    except MissingExtra as missing:
        sys.stderr.write(f"{missing}\n")
        return 2
    place = claim_place()
    if place is None or os.fork():
        return 0
    _write_own_id(place.lock)
    return serve(place)


def _write_own_id(lock: int) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)


def serve(place: DaemonPlace) -> int:
    """Serve until the daemon is stopped or idle. Return the exit code."""
    from recollect.core.boundary import Failure, guarded

    handler = RotatingFileHandler(log_path(), maxBytes=MOST_LOG_BYTES, backupCount=1)
    line = "%(asctime)s %(process)d %(message)s"
    handler.setFormatter(logging.Formatter(line, datefmt="%Y-%m-%d %H:%M:%S"))
    logger = logging.getLogger("recollect")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        result = guarded(lambda: _serve(place))
    finally:
        place.leave()
    if isinstance(result, Failure):
        LOG.error("the daemon stopped: %s", result.said)
        return 2
    LOG.info("ended")
    return 0


def _serve(place: DaemonPlace) -> None:
    from recollect.hosts.daemon.server import Daemon
    from recollect.hosts.memories import enter_data_folder
    from recollect.system.config import load_settings

    enter_data_folder()
    settings = load_settings(folder=None).settings
    daemon = Daemon(settings, leave=place.leave, in_place=lambda: place.is_ours)
    for number in (signal.SIGTERM, signal.SIGINT):
        # On these signals the server shuts down in order, and then raises them again.
        signal.signal(number, lambda *_: None)
    LOG.info("listening, version %s", recollect.__version__)
    daemon.server.run(sockets=[place.listening])
