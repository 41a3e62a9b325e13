"""The store as turns and tools see it: an object whose queries end at a deadline. A query that is
late continues in the background, so that the next caller knows whether the store hangs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from recollect.core.boundary import Failure
from recollect.core.ports import Archive, Ledger, Store, Upkeep
from recollect.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from recollect.core.engine.archive import DurableArchive

T = TypeVar("T")
P = ParamSpec("P")
NOTHING_KEPT: Final = "this memory is read-only: set ingest.enabled = true to store anything"


class NoAnswer(StoreUnavailable):
    """The store did not answer a query."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"memory could not be queried: {failure.said}")
        self.failure = failure


def _guard_query(
    query: Callable[Concatenate[Store, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[GuardedStore, P], Coroutine[Any, Any, T]]:
    """Return a method that runs the store's method of the same name as `GuardedStore.call` does."""

    @wraps(query)
    async def run(self: GuardedStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def answer(store: Store) -> T:
            result: T = await getattr(store, query.__name__)(*args, **kwargs)
            return result

        return await self.call(answer)

    return run


class GuardedStore:
    """The queries of a store that may be slow or down. Each raises NoAnswer at its deadline, or at
    once while the store is known to be down."""

    session: Final = _guard_query(Archive.session)
    sessions: Final = _guard_query(Archive.sessions)
    page: Final = _guard_query(Archive.page)
    segments: Final = _guard_query(Archive.segments)
    candidates: Final = _guard_query(Archive.candidates)
    known: Final = _guard_query(Archive.known)
    tombstoned: Final = _guard_query(Archive.tombstoned)
    withdraw: Final = _guard_query(Archive.withdraw)
    write: Final = _guard_query(Archive.write)
    pieces: Final = _guard_query(Ledger.pieces)
    records: Final = _guard_query(Ledger.records)
    compactions: Final = _guard_query(Ledger.compactions)
    stats: Final = _guard_query(Upkeep.stats)

    def __init__(
        self,
        archive: DurableArchive | None,
        *,
        seconds: float | None = None,
        check_open: Callable[[], None] = lambda: None,
    ) -> None:
        """`seconds` is the time limit of a query (default: `store.read_seconds`). `check_open` is
        called before each query. Without an archive, each query raises StoreError."""
        self._archive = archive
        self._seconds = seconds
        self._check_open = check_open

    def with_deadline(self, seconds: float) -> GuardedStore:
        """Return this store with another time limit of a query."""
        return GuardedStore(self._archive, seconds=seconds, check_open=self._check_open)

    async def call(
        self,
        query: Callable[Concatenate[Store, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call a function with the store, for several queries with one deadline."""

        async def answer(store: Store) -> T:
            return await query(store, *args, **kwargs)

        self._check_open()
        if self._archive is None:
            raise StoreError(NOTHING_KEPT)
        result = await self._archive.ask(answer, seconds=self._seconds)
        if isinstance(result, Failure):
            raise NoAnswer(result)
        return result
