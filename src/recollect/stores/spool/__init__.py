"""The spool: where a batch waits, durable, while the store cannot take it.

`FileSpool` keeps records in the clear, for spaces that are not encrypted; `encrypted` has the
one for those that are.
"""

from recollect.stores.spool.file_spool import FileSpool

__all__ = ["FileSpool"]
