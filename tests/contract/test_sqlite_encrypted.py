"""The contract on SQLite with a key."""

from pathlib import Path

import pytest
from tests.store_contract import StoreContract

from recollect.adapters.stores.sqlite import EncryptionKey, SQLiteStore
from recollect.adapters.stores.sqlite.connection import BusyWait, connect, space_file
from recollect.core.ports import Store
from recollect.core.values.fact import FactId
from recollect.core.values.segment import SegmentId

KEY = EncryptionKey((b"k" * 32).hex().encode())


class TestSQLiteEncrypted(StoreContract):
    @pytest.fixture(autouse=True)
    def in_folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    async def open_store(self, space: str) -> Store:
        return await SQLiteStore.open(self.folder / f"{space}.db", space=space, key=KEY)

    async def damage(self, space: str, segment: SegmentId) -> None:
        # Bytes that are no UTF-8.
        self._tear(space, "UPDATE segment SET text = x'fffe80' WHERE id = ?", segment)

    async def damage_fact(self, space: str, fact: FactId) -> None:
        torn = "UPDATE fact SET evidence = 'not json' || coalesce(evidence, '') WHERE id = ?"
        self._tear(space, torn, fact)

    def _tear(self, space: str, statement: str, id_: str) -> None:
        path = self.folder / f"{space}.db"
        file = space_file(path, space=space, key=KEY, create=False, busy_seconds=5.0)
        connection = connect(file, BusyWait(5.0))
        connection.execute(statement, (id_,)).fetchall()
        assert connection.changes() == 1
        connection.close()
