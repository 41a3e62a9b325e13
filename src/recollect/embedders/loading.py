"""Loading a model: once, in a thread, shared by all who ask.

Owns when a model is loaded and when loading is tried again. Never blocks anyone who does not
wait for it. Always holds: at most one load runs; a load that failed is not tried again before
`RETRY_SECONDS`, so a turn that asks every time costs nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from recollect.embedders.aside import outcome, start
from recollect.errors import MissingExtra

T = TypeVar("T")

RETRY_SECONDS: Final = 60.0
"""How long a failed load is remembered."""


class Loading(Generic[T]):
    """A value that takes long to make, made at most once."""

    def __init__(
        self,
        make: Callable[[], T],
        *,
        name: str,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._name = name
        self._now = now
        self._lock = threading.Lock()
        self._future: Future[T] | None = None
        self._failed_at = 0.0

    @property
    def ready(self) -> bool:
        """Whether the value is there."""
        future = self._future
        return future is not None and future.done() and future.exception() is None

    async def value(self) -> T:
        """The value, made if need be; EmbedderError or MissingExtra where it cannot be."""
        failing = f"{self._name} could not be loaded: install it again, or choose another"
        return await outcome(self._begun(), failing=failing, quoted=True)

    def _begun(self) -> Future[T]:
        with self._lock:
            if self._future is None or self._may_retry(self._future):
                self._future = start(self._made, name=f"load-{self._name}")
            return self._future

    def _may_retry(self, future: Future[T]) -> bool:
        failed = future.done() and future.exception() is not None
        return failed and self._now() - self._failed_at >= RETRY_SECONDS

    def _made(self) -> T:
        made = False
        try:
            value = self._make()
            made = True
        finally:
            if not made:
                self._failed_at = self._now()
        return value


def package_folder(name: str) -> Path | None:
    """Where a package is installed, found without importing it; None when it is not."""
    spec = importlib.util.find_spec(name)
    # A folder that merely has this name is found too, without an origin.
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def imported(package: str, *, feature: str, extra: str) -> Any:
    """The package; MissingExtra when it is not installed, its own error when it is broken."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise MissingExtra(feature=feature, extra=extra) from None
