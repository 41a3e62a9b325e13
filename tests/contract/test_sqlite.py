"""The contract on SQLite on file, with the build of apsw that is installed."""

from pathlib import Path

import apsw
import pytest
from tests.store_contract import StoreContract

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.ports import Store
from recollect.core.values.fact import FactId
from recollect.core.values.segment import SegmentId


class TestSQLiteOnFile(StoreContract):
    @pytest.fixture(autouse=True)
    def in_folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    async def open_store(self, space: str) -> Store:
        return await SQLiteStore.open(self.folder / f"{space}.db", space=space)

    async def damage(self, space: str, segment: SegmentId) -> None:
        connection = apsw.Connection(str(self.folder / f"{space}.db"))
        torn = "UPDATE segment SET text = x'fffe80' WHERE id = ?"  # bytes that are no UTF-8
        connection.execute(torn, (segment,)).fetchall()
        assert connection.changes() == 1
        connection.close()

    async def damage_fact(self, space: str, fact: FactId) -> None:
        connection = apsw.Connection(str(self.folder / f"{space}.db"))
        torn = "UPDATE fact SET evidence = 'not json' || coalesce(evidence, '') WHERE id = ?"
        connection.execute(torn, (fact,)).fetchall()
        assert connection.changes() == 1
        connection.close()
