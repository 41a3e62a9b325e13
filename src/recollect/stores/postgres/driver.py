"""The seam to psycopg: the one import of it, and the one place where its errors become ours.

Never lets an error of the driver out, nor its message where that may quote a parameter: what
was said must not reach a log. Importing this without psycopg raises MissingExtra.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from recollect.errors import MissingExtra, StoreCorrupt, StoreError, StoreUnavailable

try:
    import psycopg
    from psycopg import errors as sql_errors
    from psycopg.adapt import AdaptersMap, Buffer, Dumper
    from psycopg.pq import Format
except ImportError as error:  # pragma: no cover - held by a test in a process of its own
    raise MissingExtra(feature="PostgreSQL", extra="postgres") from error

__all__ = [
    "MIGRATE_COMMAND", "Raw", "adapters", "driver_errors", "psycopg", "sql_errors",
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
def driver_errors() -> Iterator[None]:
    """Raise our errors in place of the driver's."""
    try:
        yield
    except (sql_errors.UndefinedTable, sql_errors.InvalidSchemaName) as error:
        raise StoreError(f"the database has no schema of ours: run `{MIGRATE_COMMAND}`") from error
    except sql_errors.InsufficientPrivilege as error:
        raise StoreError(
            "the database refused: the URL's role lacks rights, "
            f"or a row was not of this space; `{MIGRATE_COMMAND}` grants them"
        ) from error
    except (sql_errors.DataCorrupted, sql_errors.IndexCorrupted) as error:
        raise StoreCorrupt("the database says that its files are damaged") from error
    except (psycopg.OperationalError, psycopg.InterfaceError, TimeoutError) as error:
        raise StoreUnavailable(f"PostgreSQL cannot be reached now ({_kind(error)})") from error
    except psycopg.Error as error:
        raise StoreError(f"PostgreSQL refused a statement ({_kind(error)})") from error


def _kind(error: Exception) -> str:
    if not isinstance(error, psycopg.Error):
        return type(error).__name__
    return f"{type(error).__name__} {error.sqlstate}" if error.sqlstate else type(error).__name__
