"""What the files of a folder say, for tests that look for a text which must not be there.

A store packs pieces of the ledger and long session states: their bytes alone would hide a text.
"""

import re
import zlib
from pathlib import Path

import apsw

from recollect.adapters.stores.sqlite.columns import unpack_body

_SQLITE = b"SQLite format 3\0"
_ZLIB = re.compile(rb"\x78[\x01\x9c]")


def bytes_of(path: Path) -> bytes:
    """The bytes of a file; of a plain SQLite file also every value as it reads unpacked."""
    raw = path.read_bytes()
    return b"\0".join([raw, *_values_of(path)]) if raw.startswith(_SQLITE) else raw


def _values_of(path: Path) -> list[bytes]:
    database = apsw.Connection(str(path))
    try:
        named = "select name from sqlite_schema where type='table'"
        tables = [table for (table,) in database.execute(named)]
        return [
            unpacked(value)
            for table in tables
            for row in database.execute(f'select * from "{table}"')
            for value in row
        ]
    except apsw.BusyError:  # somebody has locked it
        return []
    finally:
        database.close()


def unpacked(value: object) -> bytes:
    """A value of a store as bytes, decompressed where it is packed."""
    data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
    found = _ZLIB.search(data, 0, 16)
    try:
        if data.startswith(b"\x01Z"):
            return unpack_body(data)
        if data.startswith(b"Z2"):  # a session's state in stretches
            return zlib.decompress(data[2:], wbits=-zlib.MAX_WBITS)
        return data if found is None else zlib.decompress(data[found.start() :])
    except (zlib.error, ValueError):  # a hash that begins like it
        return data
