"""What local embedders share: unit vectors, fingerprints of model files, threads, loading.

Work runs in threads of its own: the event loop's pool joins its threads when the loop closes, so a
model that hangs while it loads would hang the program. A model is loaded once; a failed load is not
repeated before `RETRY_SECONDS`, so a turn that asks every time costs nothing.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import hashlib
import importlib
import importlib.util
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recollect.errors import EmbedderError, MissingExtra, RecollectError

T = TypeVar("T")
Rows: TypeAlias = NDArray[np.float32]
"""One vector a row."""

END_SECONDS: Final = 3.0
"""How long the end of the program waits for work under way, in all."""
_STARTING_SECONDS: Final = 0.001
RETRY_SECONDS: Final = 60.0
"""How long a failed load is remembered."""

_SHORTEST: Final = 1e-12
"""Below this length a direction is rounding noise."""
# What a JSON escape can leave in a string although no encoder takes it.
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SAMPLES: Final = 16
_SAMPLE_BYTES: Final = 16_384
_DIGEST_BYTES: Final = 6
"""Twelve hexadecimal digits: told apart are the few models one person ever has."""
_QUOTED_CHARS: Final = 200
_WAKE_SECONDS: Final = 0.05
_ending = threading.Event()


def unit_vectors(
    rows: ArrayLike, *, count: int, dimensions: int, embedder: str
) -> tuple[bytes, ...]:
    """The rows at length one, as bytes; EmbedderError where they are not `count` such vectors."""
    try:
        wide = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise EmbedderError(f"{embedder} gave vectors of different sizes, or no numbers") from None
    if wide.shape != (count, dimensions):
        raise EmbedderError(
            f"{embedder} gave an array of {wide.shape} where {count} vectors of {dimensions} "
            "dimensions were due"
        )
    lengths = np.linalg.norm(wide, axis=1)
    # A sum is finite only if every one of its terms is.
    if not np.isfinite(lengths).all():
        raise EmbedderError(f"{embedder} gave a vector that holds no number")
    if count and float(lengths.min()) < _SHORTEST:
        raise EmbedderError(f"{embedder} gave a vector of length zero")
    units = (wide / lengths[:, None]).astype("<f4")
    return tuple(row.tobytes() for row in units)


def nothing(dimensions: int) -> Rows:
    """The vector of a text in which there is nothing to embed: the first axis.

    It has length one, as all have, and is near to no text that says something.
    """
    row = np.zeros(dimensions, np.float32)
    row[0] = 1.0
    return row


def readable(text: str, *, chars: int) -> str:
    """The text up to `chars`, with what no encoder takes replaced."""
    return _LONE_SURROGATE.sub("\ufffd", text[:chars])


def fingerprint(files: Iterable[Path], *, text: str) -> str:
    """A short hash of these files, in order, and of `text`: what else changes the vectors.

    Weights are hundreds of megabytes, so only samples of a file are read, and its size. Weights
    that were trained or quantised anew differ everywhere. The time of change is left out: a copy of
    a model is the same model. EmbedderError where a file cannot be read.
    """
    digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES)
    for path in files:
        try:
            _read_into(digest, path)
        except OSError as error:
            raise EmbedderError(f"{path} cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def _read_into(digest: hashlib.blake2b, path: Path) -> None:
    size = path.stat().st_size
    digest.update(size.to_bytes(8, "little"))
    last = max(0, size - _SAMPLE_BYTES)
    with path.open("rb", buffering=0) as file:
        for number in range(_SAMPLES):
            file.seek(last * number // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))


class _EmbedderThread(threading.Thread):
    """A thread of ours, known by its class."""


def start(work: Callable[[], T], *, name: str) -> Future[T]:
    """Begin the work; the future is done when it is."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    if _ending.is_set():
        future.set_exception(EmbedderError("the program ends: nothing more is begun"))
        return future

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - not kept here: handed to those who wait
            future.set_exception(error)
        else:
            future.set_result(result)

    _EmbedderThread(target=run, name=f"recollect-{name}", daemon=True).start()
    return future


async def outcome(future: Future[T], *, failing: str, quoted: bool = False) -> T:
    """What the work returned; `failing` begins the sentence when it raised something foreign.

    The foreign error's own words are `quoted` only where they cannot hold what was embedded.
    """
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def tell(_: Future[T]) -> None:
        # The loop of one who no longer waits may be closed by now.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, done)

    future.add_done_callback(tell)
    await done
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, RecollectError):
        # The same error is raised for everyone who asks: its trace would grow each time.
        raise error.with_traceback(None)
    reason = type(error).__name__
    if quoted and str(error):
        reason += f": {str(error).splitlines()[0][:_QUOTED_CHARS]}"
    raise EmbedderError(f"{failing} ({reason})") from error


async def aside(work: Callable[[], T], *, name: str, failing: str) -> T:
    """Do the work in a thread and wait for it."""
    return await outcome(start(work, name=name), failing=failing)


async def in_stretches(
    vectors: Callable[[Sequence[str]], Sequence[bytes]],
    texts: Sequence[str],
    *,
    size: int,
    name: str,
) -> tuple[bytes, ...]:
    """The vectors of all texts, a thread for so many; who no longer waits ends the rest."""
    made: list[bytes] = []
    for first in range(0, len(texts), size):
        work = partial(vectors, texts[first : first + size])
        made += await aside(work, name=name.partition(":")[0], failing=f"{name} failed")
    return tuple(made)


def _settle(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _await_end() -> None:
    """Let work under way come to its end, so that it does not come back from C++ to nobody.

    A daemon thread that returns to an interpreter that is being taken down is ended on the spot;
    inside the code of onnxruntime that aborts the process. Runs before that, as `atexit` does.
    """
    _ending.set()
    until = time.monotonic() + END_SECONDS
    # Whoever presses Ctrl-C now wants no more waiting.
    with contextlib.suppress(KeyboardInterrupt):
        while (left := until - time.monotonic()) > 0:
            running = [
                thread for thread in threading.enumerate() if isinstance(thread, _EmbedderThread)
            ]
            if not running:
                return
            try:
                running[0].join(min(left, _WAKE_SECONDS))
            except RuntimeError:  # it is about to start, and cannot be waited for yet
                time.sleep(_STARTING_SECONDS)


atexit.register(_await_end)


class Loading(Generic[T]):
    """A value that takes long to make, made at most once."""

    def __init__(
        self, make: Callable[[], T], *, name: str, now: Callable[[], float] = time.monotonic
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
        try:
            return self._make()
        except BaseException:
            self._failed_at = self._now()
            raise


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
