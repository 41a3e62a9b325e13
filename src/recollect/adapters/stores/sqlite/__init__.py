"""The SQLite store: one file per space, optionally encrypted."""

from recollect.adapters.stores.sqlite.connection import EncryptionKey, read_key
from recollect.adapters.stores.sqlite.store import SQLiteStore

__all__ = ["EncryptionKey", "SQLiteStore", "read_key"]
