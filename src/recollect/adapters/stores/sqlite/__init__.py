"""The memory of one machine: one SQLite file a space, optionally encrypted."""

from recollect.adapters.stores.sqlite.connection import EncryptionKey, read_key
from recollect.adapters.stores.sqlite.store import SQLiteStore

__all__ = ["EncryptionKey", "SQLiteStore", "read_key"]
