"""The spool: where a batch waits, durable, while the store cannot take it."""

from recollect.adapters.stores.spool.file_spool import FileSpool

__all__ = ["FileSpool"]
