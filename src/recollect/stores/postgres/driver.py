"""The seam to psycopg: the one import of it, and the one place where its errors become ours.

Never lets an error of the driver out, nor its message where that may quote a parameter: what
was said must not reach a log. Importing this without psycopg raises MissingExtra.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote

from recollect.errors import (
    BatchRefused,
    MissingExtra,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
)

try:
    import psycopg
    from psycopg import errors as sql_errors
    from psycopg.adapt import AdaptersMap, Buffer, Dumper
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.pq import Format
except ImportError as error:  # pragma: no cover - held by a test in a process of its own
    raise MissingExtra(feature="PostgreSQL", extra="postgres") from error

__all__ = [
    "MIGRATE_COMMAND", "Raw", "adapters", "conninfo_to_dict", "driver_errors",
    "make_conninfo", "psycopg", "reason_of", "sql_errors",
]  # fmt: skip

MIGRATE_COMMAND: Final = "recollect memory migrate URL"


class Raw(bytes):
    """A parameter that is in PostgreSQL's binary form already; its type follows from the cast."""

    __slots__ = ()


class _RawDumper(Dumper):
    format = Format.BINARY
    oid = 0

    def dump(self, obj: Raw) -> Buffer | None:
        return obj


def adapters() -> AdaptersMap:
    """The driver's type map with `Raw` in it; of our connections only."""
    made = AdaptersMap(psycopg.adapters)
    made.register_dumper(Raw, _RawDumper)
    return made


@contextmanager
def driver_errors(*, writing: bool = False) -> Iterator[None]:
    """Raise our errors in place of the driver's; data is refused only where data is written."""
    try:
        yield
    except (psycopg.Error, TimeoutError) as error:
        raise _ours(error, writing=writing) from error


def _ours(error: Exception, *, writing: bool) -> StoreError:
    if isinstance(error, sql_errors.UndefinedTable | sql_errors.InvalidSchemaName):
        return StoreError(f"the database has no schema of ours: run `{MIGRATE_COMMAND}`")
    if isinstance(error, sql_errors.UndefinedColumn | sql_errors.UndefinedFunction):
        return StoreError(f"the schema is not of this version: run `{MIGRATE_COMMAND}`")
    if isinstance(error, sql_errors.InsufficientPrivilege):
        return StoreError(
            "the database refused: the URL's role lacks rights, "
            f"or a row was not of this space; `{MIGRATE_COMMAND}` grants them"
        )
    if isinstance(error, sql_errors.DataCorrupted | sql_errors.IndexCorrupted):
        return StoreCorrupt("the database says that its files are damaged")
    if isinstance(error, sql_errors.ReadOnlySqlTransaction):
        return StoreUnavailable("PostgreSQL takes no writes now: it is a replica or read-only")
    if isinstance(error, sql_errors.LockNotAvailable):
        return StoreUnavailable("PostgreSQL is too busy: others held a lock for too long")
    if isinstance(error, sql_errors.UniqueViolation | sql_errors.ExclusionViolation):
        return StoreUnavailable(f"two writes met in PostgreSQL: try again ({_kind(error)})")
    unfit = psycopg.DataError | psycopg.IntegrityError | sql_errors.ProgramLimitExceeded
    if writing and isinstance(error, unfit):
        return BatchRefused(f"PostgreSQL cannot hold what this batch has ({_kind(error)})")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | TimeoutError):
        if getattr(error, "sqlstate", None):
            return StoreUnavailable(f"PostgreSQL could not do this now ({_kind(error)})")
        return StoreUnavailable(f"PostgreSQL cannot be reached now ({_kind(error)})")
    return StoreError(f"PostgreSQL refused a statement ({_kind(error)})")


def reason_of(error: Exception, url: str) -> str:
    """Why a connection failed, in one line of the server's or libpq's own, without a password."""
    told = str(error).removeprefix("connection failed: ").strip()
    line = told.splitlines()[0].strip() if told else type(error).__name__
    try:
        password = conninfo_to_dict(url).get("password")
    except psycopg.Error:  # an error about the URL itself may quote any part of it
        return "the URL cannot be read"
    for secret in {str(password or ""), quote(str(password or ""))}:
        line = line.replace(secret, "***") if secret else line
    return line


def _kind(error: Exception) -> str:
    if not isinstance(error, psycopg.Error):
        return type(error).__name__
    return f"{type(error).__name__} {error.sqlstate}" if error.sqlstate else type(error).__name__
