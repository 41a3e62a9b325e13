"""The memory of one machine: one SQLite file a space, optionally encrypted."""

from recollect.stores.sqlite.connection import EncryptionKey, read_key
from recollect.stores.sqlite.store import SQLiteStore

__all__ = ["EncryptionKey", "SQLiteStore", "read_key"]
