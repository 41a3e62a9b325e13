"""What SQLite complains of, as Recollect's own errors: the one place that knows both.

Messages name the file and what to do next; they never carry SQL values.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from recollect.errors import (
    BatchRefused,
    RecollectError,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    WrongKey,
)

BUSY = (apsw.BusyError, apsw.LockedError)
"""Somebody else holds what is needed: try again."""
_DAMAGED = (apsw.CorruptError, apsw.FormatError)
_AWAY = (
    *BUSY,
    apsw.IOError,
    apsw.FullError,
    apsw.CantOpenError,
    apsw.ReadOnlyError,
    apsw.PermissionsError,
    apsw.AuthError,
    apsw.NoMemError,
    apsw.ProtocolError,
    apsw.InterruptError,
)
_REFUSED = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, apsw.RangeError)
UNSTORABLE = (TypeError, OverflowError, UnicodeEncodeError)
"""What apsw raises for a value that no column can hold."""
_PLAIN_HEADER = b"SQLite format 3\0"


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn errors of the driver into errors of a store."""
    try:
        yield
    except apsw.Error as error:
        raise store_error(error, path) from error
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be reached: {error.strerror}") from error


def store_error(error: apsw.Error, path: Path) -> RecollectError:
    """What an error of the driver means for whom asked."""
    name = type(error).__name__
    if isinstance(error, BUSY):
        return StoreUnavailable(f"{path} is in use by another process for too long: try again")
    if isinstance(error, apsw.NotADBError):
        return StoreCorrupt(f"{path} is not a SQLite database: restore it from a copy")
    if isinstance(error, _DAMAGED):
        return StoreCorrupt(f"{path} is damaged ({name}): restore it from a copy")
    if isinstance(error, apsw.FullError):
        return StoreUnavailable(f"the disk of {path} is full: make room and try again")
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError | apsw.CantOpenError):
        return StoreUnavailable(
            f"{path} cannot be opened for writing: check its permissions, and that its folder is "
            "not read-only"
        )
    if isinstance(error, _REFUSED):
        return BatchRefused(f"{path} cannot take a value of what was to be written ({name})")
    if isinstance(error, _AWAY):
        return StoreUnavailable(f"{path} cannot be read or written now ({name}): try again")
    return StoreError(f"SQLite refused what was asked of {path} ({name})")


def encrypted(path: Path) -> bool | None:
    """Whether a file is encrypted, as far as its first bytes tell; None when it is empty."""
    with path.open("rb") as file:
        header = file.read(len(_PLAIN_HEADER))
    if not header:
        return None
    return header != _PLAIN_HEADER


def key_error(path: Path, *, given: bool) -> WrongKey | None:
    """Why a file that cannot be read as a database needs another key; None when it does not."""
    hidden = encrypted(path)
    if hidden and given:
        return WrongKey(f"{path} is encrypted with another key, or is not a database")
    if hidden:
        return WrongKey(f"{path} is encrypted, or is not a database: give its key")
    if hidden is False and given:
        return WrongKey(f"{path} is not encrypted, but a key was given: open it without one")
    return None
