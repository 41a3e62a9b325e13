"""The only module that imports psycopg: translates psycopg's errors, and encodes values in binary
form.

Errors never contain psycopg's message if that may quote a parameter, because content must not reach
a log. PostgreSQL's text holds neither U+0000 nor lone surrogates, so text is escaped:
`unescape(escape(x)) == x` for every string. Arrays are binary: writing vectors as text would cost
14 times as much. Importing this module without psycopg raises MissingExtra."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from typing import Any, Final, LiteralString
from urllib.parse import quote, urlsplit

import msgspec
import numpy as np
from numpy.typing import NDArray

from recollect.errors import BatchRefused, MissingExtra, StoreCorrupt, StoreError, StoreUnavailable

try:
    import psycopg as psycopg
    from psycopg.adapt import AdaptersMap, Buffer, Dumper
    from psycopg.conninfo import conninfo_to_dict as conninfo_to_dict
    from psycopg.conninfo import make_conninfo as make_conninfo
    from psycopg.pq import Conninfo, Format
    from psycopg.pq.abc import PGresult
    from psycopg.types.numeric import Int8BinaryDumper
except ImportError as _error:  # pragma: no cover - held by a test in a process of its own
    raise MissingExtra(feature="PostgreSQL", extra="postgres") from _error


sql_errors = psycopg.errors
MIGRATE_COMMAND: Final = "recollect db migrate URL"
_PORT: Final = "5432"


class Raw(bytes):
    """A parameter in PostgreSQL's binary form. A cast in the SQL gives the parameter's type."""

    __slots__ = ()


class _RawDumper(Dumper):
    format = Format.BINARY
    oid = 0

    def dump(self, obj: Raw) -> Buffer | None:
        return obj


class _TextDumper(Dumper):
    oid = 0

    def dump(self, obj: str) -> Buffer | None:
        return escape(obj).encode()


def adapters() -> AdaptersMap:
    """Build the connections' type map. Whole numbers share one type, so that each statement is
    prepared only once. `unescape_rows` decodes text."""
    type_map = AdaptersMap(psycopg.adapters)
    type_map.register_dumper(Raw, _RawDumper)
    type_map.register_dumper(str, _TextDumper)
    type_map.register_dumper(int, Int8BinaryDumper)
    return type_map


@contextmanager
def driver_errors(*, writing: bool = False) -> Iterator[None]:
    """Raise Recollect's errors instead of psycopg's. Only writing raises BatchRefused."""
    try:
        yield
    except (psycopg.Error, TimeoutError) as error:
        raise _translate(error, writing=writing) from error


_PASSING: Final = (
    (
        sql_errors.ReadOnlySqlTransaction,
        "PostgreSQL accepts no writes: it is a replica or read-only",
    ),
    (sql_errors.DiskFull, "the disk of PostgreSQL is full: free space, or add some"),
    (
        sql_errors.LockNotAvailable,
        "PostgreSQL is too busy: other transactions held a lock for too long",
    ),
    (
        (sql_errors.InvalidSqlStatementName, sql_errors.DuplicatePreparedStatement),
        "a pooler does not know a prepared statement: try again",
    ),
)


def _translate(error: Exception, *, writing: bool) -> StoreError:
    if isinstance(error, sql_errors.UndefinedTable | sql_errors.InvalidSchemaName):
        return StoreError(f"the database has no schema of Recollect: run `{MIGRATE_COMMAND}`")
    if isinstance(error, sql_errors.UndefinedColumn | sql_errors.UndefinedFunction):
        return StoreError(
            f"the schema does not match this version of Recollect: run `{MIGRATE_COMMAND}`"
        )
    if isinstance(error, sql_errors.InsufficientPrivilege):
        return StoreError(
            "the database refused a statement: the URL's role lacks rights, or a row belongs to "
            f"another space; `{MIGRATE_COMMAND}` grants the rights"
        )
    if isinstance(error, sql_errors.DataCorrupted | sql_errors.IndexCorrupted):
        return StoreCorrupt("the database reports that its files are damaged")
    for kind, message in _PASSING:
        if isinstance(error, kind):
            return StoreUnavailable(message)
    if isinstance(error, sql_errors.UniqueViolation | sql_errors.ExclusionViolation):
        return StoreUnavailable(f"two writes conflicted in PostgreSQL: try again ({_kind(error)})")
    unfit = psycopg.DataError | psycopg.IntegrityError | sql_errors.ProgramLimitExceeded
    if writing and isinstance(error, unfit):
        return BatchRefused(f"PostgreSQL cannot store a value of this batch ({_kind(error)})")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | TimeoutError):
        if getattr(error, "sqlstate", None):
            return StoreUnavailable(f"PostgreSQL could not run a statement now ({_kind(error)})")
        return StoreUnavailable(f"PostgreSQL cannot be reached now ({_kind(error)})")
    return StoreError(f"PostgreSQL refused a statement ({_kind(error)})")


def reason_of(error: Exception, url: str) -> str:
    """Explain why a connection failed, in one line from the server, without the password."""
    text = str(error).removeprefix("connection failed: ").strip()
    line = text.splitlines()[0].strip() if text else f"no reason given ({type(error).__name__})"
    try:
        password = conninfo_to_dict(url).get("password")
    except psycopg.Error:  # an error about the URL itself may quote any part of it
        return "the URL cannot be read"
    for secret in {str(password or ""), quote(str(password or ""))}:
        line = line.replace(secret, "***") if secret else line
    return line


def libpq_url(url: str) -> str:
    """Change the URL's scheme to one that libpq knows: `postgres://` or `postgresql://`."""
    scheme, separator, address = url.partition("://")
    return f"postgresql://{address}" if separator and scheme.startswith("postgres") else url


def server_name(url: str) -> str:
    """Return one name for every URL of the same database: its servers in order, and its name."""
    try:
        options = [*Conninfo.get_defaults(), *Conninfo.parse(libpq_url(url).encode())]
    except psycopg.Error:
        # Opening the store reports a wrong URL. Until then, batches wait in the spool under the
        # name that the corrected URL will have. The name contains no user, password or option.
        parts = urlsplit(url)
        place = parts.netloc.rpartition("@")[2].lower() or "unknown"
        return f"{place}{'' if ':' in place else f':{_PORT}'}{parts.path}"
    values = {option.keyword.decode(): option.val.decode() for option in options if option.val}
    hosts = [
        os.path.realpath(host) if host.startswith("/") else host.lower()
        for host in values.get("host", "").split(",")
    ]
    ports = values["port"].split(",")
    ports = ports if len(ports) > 1 else ports * len(hosts)  # one port applies to all hosts
    servers = [f"{host}:{port or _PORT}" for host, port in zip(hosts, ports, strict=False)]
    server_parts = [",".join(servers), *values.get("hostaddr", "").split(",")]
    if "service" in values:  # the service file may define any of these values
        server_parts.append(f"service={values['service']}")
    return (
        f"{'|'.join(filter(None, server_parts))}/{values.get('dbname') or values.get('user', '')}"
    )


def _kind(error: Exception) -> str:
    if not isinstance(error, psycopg.Error):
        return type(error).__name__
    return f"{type(error).__name__} {error.sqlstate}" if error.sqlstate else type(error).__name__


# OIDs of PostgreSQL's built-in types, which are the same in every database.
_TEXTS: Final = 1009
_INT4, _INT8, _TEXT, _BYTEA, _FLOAT8, _BOOL, _UUID = 23, 20, 25, 17, 701, 16, 2950
_ID_BYTES: Final = 16
"""Length of a `uuid`, the type of packed ids."""
_INT4_MAX: Final = 2**31 - 1
"""Largest value of PostgreSQL's `integer`."""
_NULL: Final = b"\xff\xff\xff\xff"
_LENGTH: Final = struct.Struct(">i")

_ESCAPE: Final = "\x1a"
_ODD: Final = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED: Final = re.compile("\x1a([0-9a-f]{4})")


def escape(text: str) -> str:
    return _ODD.sub(lambda odd: f"{_ESCAPE}{ord(odd.group()):04x}", text)


def unescape(text: str) -> str:
    if _ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda match: chr(int(match.group(1), 16)), text)


def unescape_rows(result: PGresult, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Decode the rows' text, unless no value of its column is escaped, which is usual."""
    types = [result.ftype(index) for index in range(result.nfields)]
    if not rows or not {_TEXT, _TEXTS}.intersection(types):
        return rows
    columns = list(zip(*rows, strict=True))
    odd_indexes = [
        index
        for index, oid in enumerate(types)
        if oid == _TEXTS or (oid == _TEXT and _ESCAPE in "".join(filter(None, columns[index])))
    ]
    for index in odd_indexes:
        columns[index] = tuple(map(_unescape_value, columns[index]))
    return list(zip(*columns, strict=True)) if odd_indexes else rows


def _unescape_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_unescape_value(item) for item in value]
    return unescape(value) if isinstance(value, str) else value


def _header(count: int, oid: int) -> bytes:
    if not count:
        return struct.pack(">iii", 0, 0, oid)
    return struct.pack(">iiiii", 1, 1, oid, count, 1)


def _encode_numbers(values: Any, oid: int, kind: str) -> Raw:
    numbers = np.asarray(values)
    if (
        kind[1:] == "i4"
        and len(numbers)
        and (numbers.max() > _INT4_MAX or numbers.min() < -_INT4_MAX)
    ):
        raise BatchRefused("the batch cannot be stored: a number does not fit 32 bits")
    array = np.empty(len(numbers), np.dtype([("length", ">i4"), ("value", kind)]))
    array["length"] = array.dtype["value"].itemsize
    array["value"] = numbers
    return Raw(_header(len(numbers), oid) + array.tobytes())


int8s: Final = partial(_encode_numbers, oid=_INT8, kind=">i8")
int4s: Final = partial(_encode_numbers, oid=_INT4, kind=">i4")
float8s: Final = partial(_encode_numbers, oid=_FLOAT8, kind=">f8")
bools: Final = partial(_encode_numbers, oid=_BOOL, kind="u1")


def texts(values: Iterable[str | None]) -> Raw:
    return _encode_values(
        [None if value is None else escape(value).encode() for value in values], _TEXT
    )


def byteas(values: Iterable[bytes]) -> Raw:
    return _encode_values(list(values), _BYTEA)


def text_lists(values: Iterable[Sequence[str]]) -> Raw:
    """Encode `text[][]` with inner arrays of different lengths, each as a JSON array."""
    lists = ([escape(text) for text in value] for value in values)
    return _encode_values([msgspec.json.encode(text_list) for text_list in lists], _TEXT)


_ENCODERS: Final[Mapping[str, Callable[[Any], Raw]]] = {
    "bigint": int8s, "integer": int4s, "float8": float8s, "boolean": bools, "text": texts,
    "bytea": byteas, "text[]": text_lists,
}  # fmt: skip


class RowInsert:
    """A statement that inserts rows of a space. `columns` lists names and types, as in SQL. The
    statement's parameters are the space's key and one array per column. Joining `counters` makes
    all rows belong to the space, which a distributed database requires."""

    __slots__ = ("_types", "sql")

    def __init__(self, table: str, columns: str, conflict: str = "DO NOTHING") -> None:
        types = dict(column.split() for column in columns.split(","))
        names = ", ".join(types)
        values = ", ".join(
            f"ARRAY(SELECT json_array_elements_text(u.{name}::json))"
            if kind == "text[]"
            else f"u.{name}"
            for name, kind in types.items()
        )
        placeholders = ", ".join(f"%s::{kind.removesuffix('[]')}[]" for kind in types.values())
        self._types = tuple(types.values())
        self.sql: str = f"""
            INSERT INTO recollect.{table} (space_id, {names}) SELECT c.space_id, {values}
            FROM (SELECT space_id FROM recollect.counters WHERE space_id = %s) AS c
            CROSS JOIN unnest({placeholders}) AS u ({names})
            {conflict and f"ON CONFLICT {conflict}"}
        """  # noqa: S608

    def arrays(self, rows: Iterable[Sequence[Any]]) -> tuple[Raw, ...]:
        """Encode at least one row as one array per column."""
        pairs = zip(self._types, zip(*rows, strict=True), strict=True)
        return tuple(_ENCODERS[kind](values) for kind, values in pairs)


def delete(table: LiteralString, key: LiteralString, kind: LiteralString) -> LiteralString:
    """Write SQL that deletes rows by key. The SQL's parameters are a space and an array of keys."""
    return f"DELETE FROM recollect.{table} WHERE space_id = %s AND {key} = ANY(%s::{kind}[])"  # noqa: S608


def id_bytes(identity: str) -> bytes:
    """Pack an id into 16 bytes: decode 32 hexadecimal digits, and hash any other id."""
    if len(identity) == 2 * _ID_BYTES:
        try:
            raw_id = bytes.fromhex(identity)
        except ValueError:
            raw_id = b""
        if raw_id.hex() == identity:
            return raw_id
    identity_bytes = identity.encode("utf-8", "surrogatepass")
    return blake2b(identity_bytes, digest_size=_ID_BYTES, person=b"recollect-id").digest()


def uuids(identities: Iterable[str]) -> Raw:
    """Encode ids as `uuid[]`; `ids_of` decodes them."""
    packed_ids = np.frombuffer(b"".join(map(id_bytes, identities)), f"V{_ID_BYTES}")
    return _encode_numbers(packed_ids, _UUID, f"V{_ID_BYTES}")


def ids_of(packed_ids: bytes | None) -> list[str]:
    """Decode ids of 32 hexadecimal digits from `string_agg(uuid_send(…))`."""
    digits = (packed_ids or b"").hex()
    return [
        digits[offset : offset + 2 * _ID_BYTES] for offset in range(0, len(digits), 2 * _ID_BYTES)
    ]


def _encode_values(values: list[bytes | None] | list[bytes], oid: int) -> Raw:
    parts = [_header(len(values), oid)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts.append(_LENGTH.pack(len(value)))
            parts.append(value)
    return Raw(b"".join(parts))


def vectors(values: NDArray[np.float32], oid: int) -> Raw:
    count, dimensions = values.shape
    array = np.empty(
        count,
        np.dtype(
            [("length", ">i4"), ("dimensions", ">i2"), ("unused", ">i2"),
             ("values", ">f4", (dimensions,))]
        ),
    )  # fmt: skip
    array["length"] = 4 + 4 * dimensions
    array["dimensions"] = dimensions
    array["unused"] = 0
    array["values"] = values
    return Raw(_header(count, oid) + array.tobytes())


def vector(values: bytes) -> Raw:
    numbers = np.frombuffer(values, "<f4")
    return Raw(struct.pack(">hh", len(numbers), 0) + numbers.astype(">f4").tobytes())


def floats_of(raw: bytes) -> bytes:
    return np.frombuffer(raw, ">f4", offset=4).astype("<f4").tobytes()


def big_endian(raw: bytes | None, kind: str) -> NDArray[Any]:
    """Decode numbers from `string_agg(int8send(…))` and similar. NULL becomes an empty array."""
    return np.frombuffer(raw or b"", f">{kind}").astype(kind)


def look_up(
    table: LiteralString, columns: LiteralString, key: LiteralString, value: LiteralString
) -> LiteralString:
    """Write SQL for the row of a space with this value as its unique key. Without statistics, the
    planner expects one row per space and uses any index that begins with the space, so each look-up
    would read the whole space. With the ORDER BY, only the key's own index needs no sort."""
    return f"""
        SELECT {columns} FROM (
            SELECT {key} AS found, {columns} FROM recollect.{table}
            WHERE space_id = %(space)s AND {key} >= {value} ORDER BY {key} LIMIT 1
        ) AS nearest WHERE found = {value}
    """  # noqa: S608
