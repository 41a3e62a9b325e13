"""Opens the file of a space: key, permissions, cipher, pragmas, schema, and SQLite's errors.

A committed transaction survives a power failure. Recollect never logs, shows or writes a key.
Errors name the file, never a value."""

from __future__ import annotations

import os
import random
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from hashlib import scrypt
from pathlib import Path
from typing import Any, TypeAlias

import apsw

from recollect.adapters.stores.sqlite.schema import MIGRATIONS, TABLES, VERSION
from recollect.errors import (
    BatchRefused,
    MissingExtra,
    RecollectError,
    SettingsError,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    WrongKey,
)
from recollect.system.durable import make_folder, sync_folder, try_lock
from recollect.system.forks import FORK_GATE

_KEY_BYTES = 32
"""Length of a raw key of the cipher: 256 bits."""
_HEX_KEY = re.compile(rb"[0-9a-fA-F]{64}")
# RFC 7914 recommends this cost for interactive use: 16 MiB and about 50 ms, once.
_SCRYPT = {"n": 1 << 14, "r": 8, "p": 1, "maxmem": 64 << 20, "dklen": _KEY_BYTES}

# A turn writes about ten pages of any size. With pages of 8 KiB, vectors load a tenth faster, but
# every turn syncs twice as many bytes (both measured).
_PAGE_BYTES = 4096
_CACHE_KIB = 32_768
_LOG_PAGES = 128
"""When the log has this many pages, it is moved into the file, and then cut to this size."""
_CIPHER = "aegis"
"""SQLite's cipher. On processors with AES this cipher costs no time; chacha20 is three times
slower."""
_MAX_STATEMENTS = 200
"""Not measured; bounds the prepared statements that a connection keeps."""
FileNumber: TypeAlias = tuple[int, int]
"""Device and inode, which identify a file."""
_VERSION = "schema"
_SPACE = "space"

BUSY = (apsw.BusyError, apsw.LockedError)
_REFUSED = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, apsw.RangeError)
_UNAVAILABLE = (
    apsw.IOError,
    apsw.AuthError,
    apsw.NoMemError,
    apsw.ProtocolError,
    apsw.InterruptError,
)
UNSTORABLE = (TypeError, OverflowError, UnicodeEncodeError)
"""Errors that apsw raises for a value that no column can hold."""
_PLAIN_HEADER = b"SQLite format 3\0"
_GLANCE_MILLISECONDS = 1_000
"""Not measured; bounds the wait for a busy file if only its name and counts are read."""
_RESTORE = "restore it from a copy, or delete it with `recollect space delete`"


class EncryptionKey:
    """An encryption key: 64 hexadecimal digits are the key itself, any other text is a passphrase.
    Each space has its own key, derived from the passphrase. The salt is the space's name, which
    every caller knows. So two spaces with the same name and passphrase have the same key."""

    __slots__ = ("_secret", "is_raw")

    def __init__(self, secret: bytes) -> None:
        self.is_raw: bool = _HEX_KEY.fullmatch(secret) is not None
        """True if the key is the same for every space."""
        self._secret = bytes.fromhex(secret.decode()) if self.is_raw else secret

    def __repr__(self) -> str:
        return "EncryptionKey(...)"

    def raw(self, space: str) -> bytes:
        if self.is_raw:
            return self._secret
        salt = b"recollect-sqlite\0" + space.encode("utf-8", "surrogatepass")
        return scrypt(self._secret, salt=salt, **_SCRYPT)


def read_key(source: str) -> EncryptionKey:
    """Read the key from `source`: `env:NAME`, `file:PATH` or `keyring:SERVICE/NAME`."""
    kind, _, name = source.partition(":")
    readers: dict[str, Callable[[str], str | None]] = {
        "env": os.environ.get,
        "file": _key_file,
        "keyring": _keyring_entry,
    }
    if kind not in readers or not name:
        raise SettingsError(
            "store.key must state where the key is, not the key itself: give env:NAME, file:PATH "
            "or keyring:SERVICE/NAME"
        )
    text = (readers[kind](name) or "").strip()
    if not text:
        raise SettingsError(f"store.key: there is no encryption key in {source}: put one there")
    return EncryptionKey(text.encode())


def _key_file(name: str) -> str:
    path = Path(name).expanduser()
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise SettingsError(f"store.key: other users can read {path}: run `chmod 600` on it")
        return path.read_text()
    except OSError as error:
        raise SettingsError(
            f"store.key: {path} cannot be read: {error.strerror}; put the key there, or name "
            "another file"
        ) from error


def _keyring_entry(name: str) -> str | None:
    service, _, user = name.rpartition("/")
    if not service or not user:
        raise SettingsError("store.key: write a key of the keyring as keyring:SERVICE/NAME")
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError as error:
        raise MissingExtra(feature="a key from the keyring", extra="encrypted") from error
    try:
        row: Any = keyring.get_password(service, user)
    except KeyringError as error:
        raise SettingsError(f"the keyring cannot be read: {type(error).__name__}") from error
    return row or ""


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Raise SQLite's errors as those of a store. Inside the block, this process does not fork."""
    try:
        with FORK_GATE.delay_forks():
            yield
    except apsw.Error as error:
        raise _store_error(error, path) from error
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be reached: {error.strerror}") from error


def _store_error(error: apsw.Error, path: Path) -> RecollectError:
    name = type(error).__name__
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(f"another process is still using {path}: try again later")
        case apsw.NotADBError():
            return StoreCorrupt(f"{path} is not a SQLite database: {_RESTORE}")
        case apsw.CorruptError() | apsw.FormatError():
            return StoreCorrupt(f"{path} is damaged ({name}): {_RESTORE}")
        case apsw.FullError():
            return StoreUnavailable(f"the disk of {path} is full: free some space and try again")
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError():
            return StoreUnavailable(
                f"{path} cannot be opened for writing: check its permissions, and that its folder "
                "is not read-only"
            )
    if isinstance(error, _REFUSED):
        return BatchRefused(f"{path} cannot store a value of this batch ({name})")
    if isinstance(error, _UNAVAILABLE):
        return StoreUnavailable(f"{path} cannot be read or written now ({name}): try again")
    return StoreError(f"SQLite refused a statement on {path} ({name})")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceFile:
    """The path of a space's file, and what is needed to open it."""

    path: Path
    space: str
    key: bytes | None = field(default=None, repr=False)
    busy_seconds: float = 5.0
    number: FileNumber | None = None
    """The file's number (device and inode) when the space was opened; None before that."""


class BusyWait:
    """The remaining time for which one operation may wait for other processes."""

    __slots__ = ("_deadline", "_ended", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ended = False
        self.renew()

    def renew(self, seconds: float | None = None) -> None:
        self._deadline = time.monotonic() + (self._seconds if seconds is None else seconds)

    def end(self) -> None:
        """Stop all waiting, because the store is being closed."""
        self._ended = True

    def wait(self, _tries: int = 0) -> bool:
        """Wait a moment. Return False after the time limit. Pauses are short and random: with
        SQLite's own, of up to 100 ms, a process gets no turn next to eight busy writers."""
        if self._ended or time.monotonic() >= self._deadline:
            return False
        time.sleep(random.uniform(0.0005, 0.006))  # noqa: S311 - not for secrets
        return True


def space_file(
    path: Path, *, space: str, key: EncryptionKey | None, create: bool, busy_seconds: float
) -> SpaceFile:
    raw_key = None if key is None else key.raw(space)
    file = SpaceFile(path=path, space=space, key=raw_key, busy_seconds=busy_seconds)
    require_file(file, create=create)
    return replace(file, number=file_number(path))


def require_file(file: SpaceFile, *, create: bool) -> None:
    """Create the file if it is missing. Raise an error if the file cannot be a memory."""
    path = file.path
    with store_errors(path):
        if not path.exists():
            if not create:
                raise StoreError(
                    f"there is no memory at {path}: check the path or --space; `recollect space "
                    "list` lists the memories"
                )
            _create_file(file)
        elif not path.is_file():
            raise StoreError(f"{path} must be a regular file: name another path")
        elif path.stat().st_size == 0:
            raise StoreCorrupt(
                f"{path} is empty, so its content is lost: {_RESTORE} to begin a new memory"
            )


def _create_file(file: SpaceFile) -> None:
    """Create the file with its tables under a temporary name, then rename it. Interrupted creation
    leaves no empty file, so an empty file must be damaged, and is not treated as a new memory."""
    path = file.path
    make_folder(path.parent)
    with temporary_file(file) as temporary, lock_folder(file):
        if not path.exists():  # if another process was first, use its file
            empty_log(temporary)
            put_in_place(temporary.path, path)


@contextmanager
def temporary_file(file: SpaceFile) -> Iterator[SpaceFile]:
    """Create a temporary file with the tables of the space, and remove it when the block ends."""
    descriptor, name = tempfile.mkstemp(dir=file.path.parent, prefix=f".{file.path.name}.")
    os.close(descriptor)
    try:
        temporary = replace(file, path=Path(name), number=None)
        connect(temporary, BusyWait(file.busy_seconds)).close()
        yield temporary
    finally:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{name}{suffix}").unlink(missing_ok=True)


def empty_log(file: SpaceFile) -> None:
    """Move the log into the file. Raise an error if moving fails: closing a connection would ignore
    the error, and leave a file that is damaged without its log."""
    with store_errors(file.path), closing(connect(file, BusyWait(file.busy_seconds))) as connection:
        ((is_busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if is_busy:
            raise StoreUnavailable(f"another process uses {file.path}: try again when it has ended")


def put_in_place(new_file: Path, path: Path) -> None:
    """Rename a new file whose log is empty. The caller must have locked the folder."""
    for suffix in ("-wal", "-shm"):  # these logs belong to a deleted file, not to the new one
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    new_file.rename(path)
    sync_folder(path.parent)


@contextmanager
def lock_folder(file: SpaceFile) -> Iterator[None]:
    """Lock the folder, so that no other process creates or replaces a store there."""
    descriptor = os.open(file.path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not try_lock(descriptor, file.busy_seconds):
            raise StoreUnavailable(
                f"another process is still using {file.path.parent}: try again later"
            )
        yield
    finally:
        os.close(descriptor)


def file_number(path: Path) -> FileNumber | None:
    """Return device and inode of the file; None if the file is missing or empty."""
    try:
        found_stat = path.stat()
    except FileNotFoundError:
        return None
    return (found_stat.st_dev, found_stat.st_ino) if found_stat.st_size else None


def check_encryption() -> None:
    """Raise MissingExtra if the installed driver cannot encrypt."""
    if hasattr(apsw, "mc_version"):
        return
    missing = MissingExtra(feature="an encrypted space", extra="encrypted")
    hint = "pip install --force-reinstall --no-deps apsw-sqlite3mc"
    missing.args = (f"{missing}; if apsw is already installed, run: {hint}",)
    raise missing


def connect(file: SpaceFile, patience: BusyWait, *, damaged: bool = False) -> apsw.Connection:
    """Open a connection to the space. With `damaged`, read no tables, which may fail."""
    if file.key is not None:
        check_encryption()
    patience.renew()
    while True:
        connection: apsw.Connection | None = None
        try:
            with store_errors(file.path):
                connection = apsw.Connection(
                    str(file.path),
                    flags=apsw.SQLITE_OPEN_READWRITE,
                    statementcachesize=_MAX_STATEMENTS,
                )
                _configure(connection, file, patience)
                if not damaged:
                    _migrate(connection, file)
        except BaseException as error:
            if connection is not None:
                connection.close(True)
            # Another process may be closing the file, recovering it or creating its tables.
            if isinstance(error.__cause__, BUSY) and patience.wait():
                continue
            raise
        return connection


def read_only(path: Path, key: EncryptionKey | None) -> apsw.Connection:
    """Open a read-only connection to a file whose space is unknown."""
    with path.open("rb") as stream:
        is_plain = stream.read(len(_PLAIN_HEADER)) == _PLAIN_HEADER
    if not is_plain and (key is None or not key.is_raw):
        raise WrongKey(
            f"{path} is encrypted, or is not a memory: open it with its space and its key"
        )
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(_GLANCE_MILLISECONDS)
    if key is not None and not is_plain:
        check_encryption()
        connection.pragma("cipher", _CIPHER)
        connection.pragma("key", f"raw:{key.raw('').hex()}")
        try:
            connection.pragma("schema_version")
        except apsw.NotADBError as error:
            connection.close()
            raise WrongKey(f"{path} is encrypted with another key, or is not a database") from error
    return connection


def _configure(connection: apsw.Connection, file: SpaceFile, patience: BusyWait) -> None:
    connection.set_busy_handler(patience.wait)
    if file.key is not None:
        connection.pragma("cipher", _CIPHER)
        connection.pragma("key", f"raw:{file.key.hex()}")
    try:
        mode = connection.pragma("journal_mode")
    except apsw.NotADBError as error:
        raise _key_error(file) or error from error
    if file.key is not None and (key_error := _key_error(file, readable=True)):
        raise key_error
    # Keep temporary tables in RAM, because content must not reach other files.
    connection.pragma("temp_store", 2)
    connection.pragma("cache_size", -_CACHE_KIB)
    if mode != "wal":
        connection.pragma("page_size", _PAGE_BYTES)
        connection.pragma("journal_mode", "wal")
    connection.pragma("wal_autocheckpoint", _LOG_PAGES)
    connection.pragma("journal_size_limit", _LOG_PAGES * _PAGE_BYTES)
    connection.pragma("synchronous", "FULL")
    connection.pragma("secure_delete", "ON")
    connection.pragma("foreign_keys", "ON")


def _key_error(file: SpaceFile, *, readable: bool = False) -> WrongKey | None:
    path = file.path
    with path.open("rb") as stream:
        header = stream.read(len(_PLAIN_HEADER))
    if not header:
        return None
    if header == _PLAIN_HEADER:
        if file.key is None:
            return None
        return WrongKey(f"{path} is not encrypted, but a key was given: open it without one")
    if readable:
        return None
    if file.key is not None:
        return WrongKey(f"{path} is encrypted with another key, or is not a database")
    return WrongKey(
        f"{path} is encrypted, or is not a database: set store.key to the source of its key"
    )


def _migrate(connection: apsw.Connection, file: SpaceFile) -> None:
    if _read_version(connection, file) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _read_version(connection, file)
        steps = [MIGRATIONS[number] for number in range(version, VERSION)] if version else [TABLES]
        for statements in steps:
            connection.execute(statements).fetchall()
        meta = {_SPACE: file.space, _VERSION: VERSION}
        connection.executemany("REPLACE INTO meta (key, value) VALUES (?, ?)", meta.items())
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _read_version(connection: apsw.Connection, file: SpaceFile) -> int:
    # Use one statement, because another process may create the tables between two.
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    if "meta" not in tables:
        if tables:
            raise StoreCorrupt(f"{file.path} is not a memory of Recollect: name another file")
        return 0
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    version = meta.get(_VERSION)
    if not isinstance(version, int):
        raise StoreCorrupt(f"{file.path} has no version: {_RESTORE}")
    if version > VERSION:
        raise StoreCorrupt(
            f"{file.path} has version {version}, but this Recollect supports only up to "
            f"{VERSION}: upgrade Recollect"
        )
    if version < min(MIGRATIONS):
        raise StoreCorrupt(
            f"{file.path} was made by an earlier development version: export its content with "
            "that version (`recollect export`), and import the content (`recollect import`)"
        )
    if meta.get(_SPACE) != file.space:
        raise StoreError(
            f"{file.path} belongs to another space: open it with the name of that space"
        )
    return version
