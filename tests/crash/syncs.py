"""Counts how often SQLite asks the system to put a file on the disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

NAME = "counts-syncs"


class Syncs:
    """How many there were."""

    def __init__(self) -> None:
        self.count = 0


class _File(apsw.VFSFile):
    def __init__(self, syncs: Syncs, base: str, name: Any, flags: Any) -> None:
        self._syncs = syncs
        super().__init__(base, name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._syncs.count += 1
        super().xSync(flags)


class _Layer(apsw.VFS):
    def __init__(self, syncs: Syncs) -> None:
        self._syncs = syncs
        self._base = apsw.vfs_names()[0]
        super().__init__(NAME, self._base, makedefault=True)

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:  # noqa: N802
        return _File(self._syncs, self._base, name, flags)


@contextmanager
def counted_syncs() -> Iterator[Syncs]:
    """Files that are opened in this block are watched; close them before it ends."""
    syncs = Syncs()
    layer = _Layer(syncs)
    try:
        yield syncs
    finally:
        layer.unregister()
