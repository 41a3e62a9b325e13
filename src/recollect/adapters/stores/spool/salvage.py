"""A damaged spool: its records that can be read move to a new file, and it is set aside.

Always holds: one process at a time replaces the file, and only while it is damaged; no process
writes to it meanwhile; a record keeps its number and its owner, so that the order stays.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Any, Final

import apsw

from recollect.adapters.stores.sqlite.connection import (
    BusyWait,
    SpaceFile,
    connect,
    file_apart,
    folder_locked,
    put_in_place,
    store_errors,
)
from recollect.errors import StoreCorrupt

LOG = logging.getLogger("recollect.spool")
_UNREADABLE: Final = (apsw.CorruptError, apsw.IOError, apsw.NotADBError, UnicodeDecodeError)
_LAST: Final = (
    "SELECT seq FROM sqlite_sequence WHERE name = 'spooled'",
    "SELECT max(number) FROM spooled",
)
"""Where the highest number is; the page of one of them may be the damaged one."""
_NEXT: Final = """
SELECT number, owner, refused, record FROM spooled WHERE number >= ? ORDER BY number LIMIT 1
"""
_COPY: Final = "INSERT INTO spooled (number, owner, refused, record) VALUES (?, ?, ?, ?)"


def replace_damaged(file: SpaceFile, table: str, aside: Path) -> None:
    """Do nothing if there is no file or all of it can be read; else log how much cannot."""
    path = file.path
    with store_errors(path):
        if _is_sound(file):
            return
        with folder_locked(file), contextlib.ExitStack() as ends:
            if _is_sound(file):
                return  # another process replaced it meanwhile
            damaged = _open_damaged(file, ends)
            apart = ends.enter_context(file_apart(file))
            lost = _copy(damaged, apart, table)
            path.rename(aside)
            log = Path(f"{path}-wal")
            if log.exists() and log.stat().st_size:
                log.rename(aside.with_name(f"{aside.stem}-wal{aside.suffix}"))
            put_in_place(apart.path, path)
    LOG.warning("spool: %s records could not be read; the damaged file is %s", lost, aside.name)


def _is_sound(file: SpaceFile) -> bool:
    if not file.path.exists():
        return True
    try:
        with store_errors(file.path), contextlib.closing(_connect(file)) as connection:
            return bool(connection.pragma("quick_check", 1) == "ok")
    except StoreCorrupt:
        return False


def _connect(file: SpaceFile, *, damaged: bool = False) -> apsw.Connection:
    return connect(file, BusyWait(file.busy_seconds), damaged=damaged)


def _open_damaged(file: SpaceFile, ends: contextlib.ExitStack) -> apsw.Connection | None:
    """A connection to read, while another keeps processes from writing; None if none can be had."""
    try:
        holder, reader = (_connect(file, damaged=True) for _ in range(2))
    except StoreCorrupt:
        return None
    for connection in (holder, reader):
        ends.callback(connection.close, True)
        # its log would be removed by name, and that name is the new file's then
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    with contextlib.suppress(*_UNREADABLE):
        holder.execute("BEGIN IMMEDIATE")
    # not the holder: within its transaction the cipher fails every page after a damaged one
    return reader


def _copy(damaged: apsw.Connection | None, apart: SpaceFile, table: str) -> int | str:
    """Copy each record that can be read; returns how many cannot, which counts gaps as records."""
    last = max((_last(damaged, query) for query in _LAST), default=0) if damaged else 0
    if damaged is None or not last:
        return "all"
    lost, number = 0, 1
    with contextlib.closing(_connect(apart)) as new, new:
        new.execute(table)
        while number <= last:
            try:
                row: Any = damaged.execute(_NEXT, (number,)).fetchone()
            except _UNREADABLE:
                row = ()
            if row is None:
                break
            if row and number <= row[0] <= last and isinstance(row[3], bytes):
                new.execute(_COPY, row)
                number = row[0] + 1
            else:
                lost, number = lost + 1, number + 1
    return lost


def _last(damaged: apsw.Connection, query: str) -> int:
    try:
        return int(damaged.execute(query).get or 0)
    except (*_UNREADABLE, apsw.SQLError):
        return 0
