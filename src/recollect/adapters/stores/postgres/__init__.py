"""The PostgreSQL store: many small spaces in one database.

`PostgresFleet` owns the connections, `PostgresStore` is one space. Without the extra, using a name
raises MissingExtra.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres.schema import migrate
    from recollect.adapters.stores.postgres.store import PostgresFleet, PostgresStore

__all__ = ["PostgresFleet", "PostgresStore", "migrate"]

_HOMES: Final = {"PostgresFleet": "store", "PostgresStore": "store", "migrate": "schema"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
