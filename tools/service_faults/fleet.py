"""The processes of a service on this machine: PostgreSQL, a standby, PgBouncer, nodes, a worker.

Each is a real process with a home of its own, and can be killed with SIGKILL and started again as
a supervisor would start it: on the same port, with the same settings. Owns starting and killing;
knows nothing of what is sent.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote
from uuid import UUID

import psutil
from tests.integration.service.nodes import add_tenant

from recollect_bench.postgres_server import APP_PASSWORD, APP_ROLE, PostgresServer, TestDatabase
from tools.service_faults.load import DEADLINE_SECONDS

PGBOUNCER: Final = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
START_SECONDS: Final = 120.0
SETTINGS: Final = {
    "RECOLLECT_RECALL__EMBEDDER": "hash",
    "RECOLLECT_JOBS__IN_PROCESS": "false",
    "RECOLLECT_SERVE__DEADLINE_SECONDS": f"{DEADLINE_SECONDS:g}",
    "RECOLLECT_SECRET": "one long text for all nodes of this trial",
}


class Service:
    """A process of ours that is started again as it was."""

    def __init__(self, name: str, command: Sequence[str], home: Path) -> None:
        self.name, self._command, self.home = name, list(command), home
        self.secret = SETTINGS["RECOLLECT_SECRET"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it may not be ready yet."""
        self.home.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            **SETTINGS,
            "RECOLLECT_HOME": str(self.home),
            "RECOLLECT_SECRET": self.secret,
        }
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "recollect", *self._command],
                env=environment,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """End it as if its machine were gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """End it as a supervisor does for an update."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    @property
    def resident_mb(self) -> float:
        """Its resident memory."""
        assert self._process is not None
        return float(psutil.Process(self._process.pid).memory_info().rss) / 1e6

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What it wrote to standard error."""
        path = self.home / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def spooled_files(self) -> list[str]:
        """Files in which batches of this machine wait."""
        folder = self.home / "spool"
        return [path.name for path in folder.rglob("*") if path.is_file() and path.stat().st_size]


class Node(Service):
    """`recollect serve` on a port of its own."""

    def __init__(self, name: str, store: str, home: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as opened:
            self.port = int(opened.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__(name, ["serve", "--store", store, "--port", str(self.port)], home)

    def ready(self) -> bool:
        """Whether it says at /readyz that it may be sent requests."""
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=6.0) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.HTTPError):
            return False


class Pooler:
    """PgBouncer in transaction mode before a server."""

    def __init__(self, server: PostgresServer, database: TestDatabase) -> None:
        assert PGBOUNCER is not None
        self._server = server
        self.folder = server.folder / "pgbouncer"
        self.folder.mkdir(exist_ok=True)
        users = self.folder / "users.txt"
        users.write_text(f'"{APP_ROLE}" "{APP_PASSWORD}"\n')
        self._settings = self.folder / "pgbouncer.ini"
        self._settings.write_text(
            f"""
[databases]
{database.name} = host={server.folder} dbname={database.name}
[pgbouncer]
listen_addr =
unix_socket_dir = {self.folder}
listen_port = 6432
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = 20
server_reset_query =
logfile = {self.folder / "log"}
"""
        )
        self.url = f"postgresql://{APP_ROLE}@/{database.name}?host={self.folder}&port=6432"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; returns when it takes connections."""
        assert PGBOUNCER is not None
        given: dict[str, Any] = {}
        if os.geteuid() == 0:  # PgBouncer refuses to run as root, like PostgreSQL
            owner = self._server.data.stat()
            for path in (self.folder, *self.folder.iterdir()):
                shutil.chown(path, owner.st_uid, owner.st_gid)
            given = {"user": owner.st_uid, "group": owner.st_gid}
        socket_file = self.folder / ".s.PGSQL.6432"
        socket_file.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [PGBOUNCER, str(self._settings)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **given,
        )
        until = time.monotonic() + START_SECONDS
        while not socket_file.exists():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("pgbouncer did not start")
            time.sleep(0.02)

    def kill(self) -> None:
        """End it as if its machine were gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def kill_server(server: PostgresServer) -> None:
    """End every process of a PostgreSQL with SIGKILL."""
    postmaster = psutil.Process(server.pid)
    for process in (postmaster, *postmaster.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    server.stop("immediate")


@dataclass(slots=True, kw_only=True)
class Fleet:
    """Two nodes and a worker on one database."""

    server: PostgresServer
    database: TestDatabase
    nodes: list[Node]
    worker: Service
    tenants: list[tuple[UUID, str]]
    """Ids and keys."""
    standby: PostgresServer | None = None
    pooler: Pooler | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def start(
        cls,
        folder: Path,
        *,
        tenants: int = 8,
        with_standby: bool = False,
        with_pooler: bool = False,
        server: PostgresServer | None = None,
        database: TestDatabase | None = None,
        keys: Sequence[tuple[UUID, str]] = (),
    ) -> Fleet:
        """Start everything; on a `server` and `database` that are there, with their `keys`, where
        they are given."""
        stack = ExitStack()
        try:
            if server is None:
                server = stack.enter_context(PostgresServer(18))
            if database is None:
                database = asyncio.run(server.migrated_database())
                keys = [add_tenant(database, f"tenant-{number}") for number in range(tenants)]
            standby, pooler, store = None, None, database.app_url
            if with_standby:
                standby = stack.enter_context(PostgresServer(18, copy_of=server, as_standby=True))
                store = either_url(database, server, standby)
                make_synchronous(server)
            if with_pooler:
                pooler = Pooler(server, database)
                stack.callback(pooler.kill)
                pooler.start()
                store = pooler.url
            nodes = [Node(f"node-{at}", store, folder / f"node-{at}") for at in range(2)]
            worker = Service("worker", ["worker", "--store", store], folder / "worker")
            made = cls(
                server=server, database=database, nodes=nodes, worker=worker, tenants=list(keys),
                standby=standby, pooler=pooler, _stack=stack,
            )  # fmt: skip
            for process in (*nodes, worker):
                stack.callback(process.kill)
                process.start()
            made.wait_until_ready()
        except BaseException:
            stack.close()
            raise
        return made

    def wait_until_ready(self, seconds: float = START_SECONDS) -> None:
        """Until every node says that it is."""
        until = time.monotonic() + seconds
        while not all(node.ready() for node in self.nodes):
            if time.monotonic() > until:
                raise RuntimeError(f"no node is ready:\n{self.nodes[0].log()[-2000:]}")
            time.sleep(0.1)

    def rotate_secret(self) -> None:
        """Give every process another secret, one after the other, as the docs say."""
        new = secrets.token_hex(32)
        self._change_secrets(SETTINGS["RECOLLECT_SECRET"], "--accept", "-", given=new)
        for process in (*self.nodes, self.worker):
            process.secret = new
            process.stop()
            process.start()
            self.wait_until_ready()
        self._change_secrets(new, "--retire")

    def _change_secrets(self, secret: str, *options: str, given: str = "") -> None:
        subprocess.run(
            [sys.executable, "-m", "recollect", "db", "secret", self.database.admin_url, *options],
            env={**os.environ, "RECOLLECT_SECRET": secret},
            input=given.encode(),
            check=True,
            stdout=subprocess.DEVNULL,
        )

    @property
    def urls(self) -> list[str]:
        """Where the nodes are."""
        return [node.url for node in self.nodes]

    @property
    def keys(self) -> list[str]:
        """A key of each tenant."""
        return [key for _, key in self.tenants]

    def close(self) -> None:
        """Kill everything."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def either_url(database: TestDatabase, *servers: PostgresServer) -> str:
    """A URL that names several servers, of which the one that takes writes is used."""
    hosts = quote(",".join(str(server.folder) for server in servers), safe="/,")
    who = f"{APP_ROLE}:{APP_PASSWORD}"
    return f"postgresql://{who}@/{database.name}?host={hosts}&target_session_attrs=read-write"


def make_synchronous(server: PostgresServer) -> None:
    """From now on a commit is acknowledged when the standby has it on its disk."""
    import psycopg

    until = time.monotonic() + START_SECONDS
    with psycopg.connect(server.admin_url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        connection.execute("SELECT pg_reload_conf()")
        while True:
            found = connection.execute("SELECT sync_state FROM pg_stat_replication").fetchall()
            if ("sync",) in found:
                return
            if time.monotonic() > until:
                raise RuntimeError(f"the standby does not follow: {found}")
            time.sleep(0.05)
