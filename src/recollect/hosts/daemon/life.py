"""The life of the daemon: one for each user, found by its socket, replaced when it is gone.

A lock that the process holds says that there is one; the system lets go of it however the process
ends, so whoever has it may remove the socket of one that was killed. The socket listens before
anything heavy is imported: who comes meanwhile waits in the system's queue, and nobody is refused.

For HTTP hooks, whose URL stands in the settings of agents, the port and the token are chosen once
and kept in a file that only the user can read.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import signal
import socket
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Final

from recollect.errors import MissingExtra
from recollect.hosts.daemon.client import (
    MOST_LOG_BYTES,
    PAUSE_SECONDS,
    listens,
    lock_path,
    log_path,
    socket_path,
)
from recollect.system.data_folder import data_folder
from recollect.system.durable import create_file, locked_within, replace_file
from recollect.system.loopback import BACKLOG

if TYPE_CHECKING:
    from recollect.system.config import Settings

TAKE_SECONDS: Final = 60.0
"""So long a new daemon waits for one that finishes its work."""
HOST: Final = "127.0.0.1"
_FREE_PORTS: Final = (20_000, 32_000)
"""Where a port is looked for: systems give higher ones to outgoing connections."""
LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DaemonPlace:
    """The one place of a user's daemon: its lock, and the socket that listens."""

    lock: int
    path: Path
    listening: socket.socket
    inode: int

    @property
    def is_ours(self) -> bool:
        """Whether whoever looks for a daemon finds this one."""
        try:
            return self.path.stat().st_ino == self.inode
        except OSError:
            return False

    def leave(self) -> None:
        """Be found no more; the lock is held until the process ends."""
        if self.is_ours:
            self.path.unlink(missing_ok=True)


def take_place(seconds: float = TAKE_SECONDS) -> DaemonPlace | None:
    """Take the place of the daemon and listen there; None where another one has it.

    One that does not listen any more is finishing: it is waited for.
    """
    os.umask(0o077)
    lock = os.open(lock_path(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + seconds
    while True:
        if locked_within(lock):
            break
        if listens() or time.monotonic() > until:
            os.close(lock)
            return None
        time.sleep(PAUSE_SECONDS)
    _write_own_id(lock)
    path = Path(socket_path())
    path.unlink(missing_ok=True)  # of one that was killed: nobody alive has the lock
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    path.chmod(0o600)
    listening.listen(BACKLOG)
    return DaemonPlace(lock, path, listening, path.stat().st_ino)


def run_detached() -> int:
    """Listen, then serve in a process that nobody waits for; the exit code of the one that ends."""
    missing = [name for name in ("uvicorn", "httptools") if find_spec(name) is None]
    if missing:
        sys.stderr.write(f"{MissingExtra(feature='the daemon', extra='hooks')}\n")
        return 2
    place = take_place()
    if place is None or os.fork():
        return 0
    _write_own_id(place.lock)
    return serve(place)


def _write_own_id(lock: int) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)


def serve(place: DaemonPlace) -> int:
    """Serve until told to stop, or idle; the exit code."""
    from recollect.core.boundary import Failure, guarded

    _log_to_file()
    try:
        ended = guarded(lambda: _served(place))
    finally:
        place.leave()
    if isinstance(ended, Failure):
        LOG.error("the daemon ends: %s", ended.said)
        return 2
    LOG.info("ended")
    return 0


def _log_to_file() -> None:
    logger = logging.getLogger("recollect")
    handler = RotatingFileHandler(log_path(), maxBytes=MOST_LOG_BYTES, backupCount=1)
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(process)d %(message)s", datefmt="%Y-%m-%d %H:%M:%S")
    )
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _served(place: DaemonPlace) -> None:
    from recollect.hosts.daemon.alone import stand_in_data_folder
    from recollect.hosts.daemon.server import Daemon
    from recollect.hosts.gateway.asgi import http_server
    from recollect.system.config import load_settings

    stand_in_data_folder()
    settings = load_settings(folder=None).settings
    access = http_access(settings)
    over_http = _listening(access.port)
    if over_http is None:
        LOG.warning("port %d is taken: HTTP hooks are not answered", access.port)

    def stop() -> None:
        server.should_exit = True

    daemon = Daemon(
        settings,
        token=access.token,
        url=None if over_http is None else access.url,
        leave=place.leave,
        stop=stop,
        in_place=lambda: place.is_ours,
        stopping=lambda: server.should_exit,
    )
    server = http_server(daemon, feature="the daemon", extra="hooks", loop="asyncio")
    for number in (signal.SIGTERM, signal.SIGINT):
        # The server ends in order on these, then raises them again for whoever ran it.
        signal.signal(number, lambda *_: None)
    sockets = [place.listening] if over_http is None else [place.listening, over_http]
    LOG.info("listens, version %s", _version())
    server.run(sockets=sockets)


def _version() -> str:
    import recollect

    return recollect.__version__


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """How HTTP hooks reach the daemon."""

    port: int
    token: str

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://{HOST}:{self.port}"

    def __repr__(self) -> str:
        return f"HttpAccess(port={self.port})"


def http_access(settings: Settings, *, keep: bool = True) -> HttpAccess:
    """Port and token, chosen once: agents' settings hold them.

    The port is `daemon.port`, where that is free when it is chosen; it is chosen anew only when the
    setting changes. With `keep` off, what is chosen is not written down.
    """
    path = _access_file()
    wanted = settings.daemon.port
    try:
        known = _chosen(path)
    except ValueError:
        known = None
        if keep:
            LOG.warning("%s is damaged: a new token is made, install the hooks again", path)
            path.unlink(missing_ok=True)
    if known is not None and known[0] == wanted:
        return known[1]
    token = secrets.token_urlsafe(32) if known is None else known[1].token
    access = HttpAccess(_free_port(wanted), token)
    if not keep:
        return access
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = json.dumps({"wanted": wanted, "port": access.port, "token": token}).encode()
    if known is not None:
        replace_file(path, text)
    elif not create_file(path, text):  # another process was first: its choice counts
        kept = _chosen(path)
        return access if kept is None else kept[1]
    return access


def kept_access() -> HttpAccess | None:
    """What was chosen before; None where nothing was, or nobody can know it any more."""
    try:
        chosen = _chosen(_access_file())
    except ValueError:
        return None
    return None if chosen is None else chosen[1]


def _access_file() -> Path:
    return Path(data_folder()) / "daemon" / "http.json"


def _chosen(path: Path) -> tuple[int, HttpAccess] | None:
    """What was chosen before, and the setting it was chosen for; ValueError where it is damaged."""
    try:
        kept = json.loads(path.read_bytes())
        return int(kept["wanted"]), HttpAccess(int(kept["port"]), str(kept["token"]))
    except FileNotFoundError:
        return None
    except (KeyError, TypeError) as error:
        raise ValueError("the file is damaged") from error


def _free_port(wanted: int) -> int:
    tried = [wanted] if wanted else []
    first, last = _FREE_PORTS
    tried += [first + secrets.randbelow(last - first) for _ in range(50)]
    for port in tried:
        opened = _listening(port)
        if opened is not None:
            opened.close()
            return port
    return tried[0]


def _listening(port: int) -> socket.socket | None:
    """A socket that listens on this machine only; None where the port is taken."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((HOST, port))
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        return None
    return opened
