"""The hash and the static embedder, and the parts that local embedders share.

Embedders run in threads of this module. In asyncio's own pool, a model that hangs while loading
would hang the program, because a closing loop waits for its pool. Each embedder loads its model
once. After a failed load, Recollect waits `RETRY_SECONDS` before it loads the model again, so that
not every turn waits for a failure."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import hashlib
import importlib
import importlib.util
import json
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

from recollect.core.values.recall import EmbedderKind
from recollect.errors import EmbedderError, MissingExtra, RecollectError
from recollect.system.forks import OwnProcess

T = TypeVar("T")
Rows: TypeAlias = NDArray[np.float32]
"""One vector per row."""

END_SECONDS: Final = 3.0
"""The program's exit waits at most this long for embedders that still run."""
_STARTING_SECONDS: Final = 0.001  # not measured; lets the thread begin
RETRY_SECONDS: Final = 60.0
"""After a failed load, the same error is raised for this long without another attempt."""

_SHORTEST: Final = 1e-12
"""A vector shorter than this has no usable direction, only rounding errors."""
# JSON escapes can put lone surrogates into a string, but no encoder accepts them.
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SAMPLES: Final = 16
_SAMPLE_BYTES: Final = 16_384
_DIGEST_BYTES: Final = 6
"""Length of the hash in bytes: six are enough for the few models on a machine."""
_QUOTED_CHARS: Final = 200  # not measured; keeps the reason on one line
_WAKE_SECONDS: Final = 0.05  # not measured; lets Ctrl-C through
_ending = threading.Event()


def unit_vectors(
    rows: ArrayLike, *, count: int, dimensions: int, embedder: str
) -> tuple[bytes, ...]:
    """Scale the rows to length one, and return their bytes. Raise EmbedderError on failure."""
    try:
        wide = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise EmbedderError(
            f"{embedder} returned vectors of different sizes, or values that are not numbers"
        ) from None
    if wide.shape != (count, dimensions):
        raise EmbedderError(
            f"{embedder} returned an array of shape {wide.shape}, not {count} vectors of "
            f"{dimensions} dimensions"
        )
    lengths = np.linalg.norm(wide, axis=1)
    # A sum is finite only if all its terms are.
    if not np.isfinite(lengths).all():
        raise EmbedderError(f"{embedder} returned a vector with a value that is not a number")
    if count and float(lengths.min()) < _SHORTEST:
        raise EmbedderError(f"{embedder} returned a vector of length zero")
    return tuple(row.tobytes() for row in (wide / lengths[:, None]).astype("<f4"))


def nothing(dimensions: int) -> Rows:
    """Return the vector of an empty text: the first axis, similar to no other text's vector."""
    row = np.zeros(dimensions, np.float32)
    row[0] = 1.0
    return row


def readable(text: str, *, chars: int) -> str:
    """Cut the text to `chars`, and replace characters that no encoder accepts."""
    return _LONE_SURROGATE.sub("\ufffd", text[:chars])


def fingerprint(files: Iterable[Path], *, text: str) -> str:
    """Hash these files, in order, and `text`, such as a version that changes with the vectors.

    Weights have hundreds of megabytes, so the hash covers only each file's size and samples of its
    content: retrained or requantized weights differ everywhere. The hash ignores modification
    times, so a copied model has the same hash. Raise EmbedderError if a file cannot be read.
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
    """A thread that this module started, recognized by its class when the program exits."""


def start(work: Callable[[], T], *, name: str, inline: bool = False) -> Future[T]:
    """Start the work in a thread, or do it now (`inline`), and return a future of its result."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    if _ending.is_set():
        future.set_exception(EmbedderError("the program is exiting: no more texts are embedded"))
        return future

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - not kept here: handed to those who wait
            future.set_exception(error)
        else:
            future.set_result(result)

    if inline:
        run()
    else:
        _EmbedderThread(target=run, name=f"recollect-{name}", daemon=True).start()
    return future


async def outcome(future: Future[T], *, failing: str, quoted: bool = False) -> T:
    """Wait for the result of the work. If a library fails, raise an error that begins with
    `failing`. `quoted` adds the library's text, which must not contain embedded text."""
    waiter = asyncio.wrap_future(future)
    try:
        await asyncio.wait([waiter])
    finally:
        waiter.cancel()  # the caller was cancelled, so no code reads the result of its work
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, RecollectError):
        # Every caller gets the same error object, so the error's traceback would grow each time.
        raise error.with_traceback(None)
    reason = type(error).__name__
    if quoted and str(error):
        reason += f": {str(error).splitlines()[0][:_QUOTED_CHARS]}"
    raise EmbedderError(f"{failing} ({reason})") from error


async def embed_in_chunks(
    vectors: Callable[[Sequence[str]], Sequence[bytes]],
    texts: Sequence[str],
    *,
    size: int,
    name: str,
    inline_chars: int = 0,
) -> tuple[bytes, ...]:
    """Return the vectors of all texts, computed in threads. Cancelling skips remaining chunks.
    Texts of at most `inline_chars` are embedded at once, because a thread would take longer."""
    inline = sum(map(len, texts)) <= inline_chars
    made: list[bytes] = []
    for first in range(0, len(texts), size):
        work = partial(vectors, texts[first : first + size])
        running = start(work, name=name.partition(":")[0], inline=inline)
        chunk_vectors = await outcome(running, failing=f"{name} failed")
        made += chunk_vectors
    return tuple(made)


def _await_end() -> None:
    """Wait for running work before the interpreter ends. Python kills a daemon thread that returns
    to a finalizing interpreter. Killing a thread inside onnxruntime's C++ code aborts the process.
    `atexit` handlers such as this function run before that."""
    _ending.set()
    until = time.monotonic() + END_SECONDS
    # The user pressed Ctrl-C: do not wait any longer.
    with contextlib.suppress(KeyboardInterrupt):
        while (left_seconds := until - time.monotonic()) > 0:
            running = [
                thread for thread in threading.enumerate() if isinstance(thread, _EmbedderThread)
            ]
            if not running:
                return
            try:
                running[0].join(min(left_seconds, _WAKE_SECONDS))
            except RuntimeError:  # this thread has not started yet, so it cannot be joined
                time.sleep(_STARTING_SECONDS)


atexit.register(_await_end)


class LoadedEmbedder(Generic[T]):
    """An embedder whose model takes long to load, and is loaded at most once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process = OwnProcess()
        self._lock = threading.Lock()
        self._future: Future[T] | None = None
        self._failed_at = 0.0

    def _load(self) -> T:
        """Load the model, in a thread of this module."""
        raise NotImplementedError

    @property
    def ready(self) -> bool:
        future = self._future
        return future is not None and future.done() and future.exception() is None

    async def load(self) -> None:
        await self.model()

    async def model(self) -> T:
        """Return the model, loaded if necessary. Raise MissingExtra or EmbedderError on failure."""
        failing = (
            f"{self.name} could not be loaded: install it again, or set recall.embedder to another"
        )
        return await outcome(self._begin(), failing=failing, quoted=True)

    def _begin(self) -> Future[T]:
        if self._process.is_other:  # the threads of a loaded model ended with the fork
            self._process, self._lock, self._future = OwnProcess(), threading.Lock(), None
        with self._lock:
            if self._future is None or self._may_retry(self._future):
                self._future = start(self._load_and_note_failure, name=f"load-{self.name}")
            return self._future

    def _may_retry(self, future: Future[T]) -> bool:
        failed = future.done() and future.exception() is not None
        return failed and time.monotonic() - self._failed_at >= RETRY_SECONDS

    def _load_and_note_failure(self) -> T:
        try:
            return self._load()
        except BaseException:
            self._failed_at = time.monotonic()
            raise


def package_folder(name: str) -> Path | None:
    """Find a package's folder without importing the package; None if it is not installed."""
    spec = importlib.util.find_spec(name)
    # `find_spec` also finds an unrelated folder of the same name, but without an origin.
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def import_package(package: str, *, feature: str, extra: str) -> Any:
    """Import a package. Raise MissingExtra without the package, or a broken package's own error."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise MissingExtra(feature=feature, extra=extra) from None


DIMENSIONS: Final = 384  # not measured; as many as MiniLM has
HASH_MAX_CHARS: Final = 2_000
"""The hash embedder reads this many characters of a text, three times those of a passage."""
_NGRAM: Final = 3  # trigrams
_TRIGRAMS_CACHED: Final = 32_768
"""Maximum number of cached trigrams (about 4 MiB). English chat has about 15,000 trigrams."""
INLINE_CHARS: Final = 2_000
"""Vectors of the hash and static embedders take less than a millisecond for so much text."""
_TEXTS_PER_CHUNK: Final = 128
"""Number of texts embedded between two checks for cancellation."""
_WHITE_SPACE: Final = re.compile(r"\s+")
_NOT_SPELLED: Final = re.compile(r"[^\w\s@.+-]|_")
_ASTRAL: Final = re.compile("[\U00010000-\U0010ffff]")


class _Places(dict[str, int]):
    """Maps each trigram to its place in the vector, plus `DIMENSIONS` if its sign is minus."""

    __slots__ = ()

    def __missing__(self, trigram: str) -> int:
        digest = hashlib.sha256(trigram.encode()).digest()
        place = int.from_bytes(digest[:4], "little") % DIMENSIONS
        if digest[4] & 1:
            place += DIMENSIONS
        if len(self) >= _TRIGRAMS_CACHED:
            self.clear()
        self[trigram] = place
        return place


class HashEmbedder:
    """Embeds as OpenClaw does: adds up a text's character trigrams in 384 numbers.

    The definition must never change under this embedder's name, because stored vectors are compared
    with new ones. A text is prepared in these steps: keep its first 2,000 characters, in lower
    case. Replace every run of white space by one space, and every character but letters, numbers,
    white space and `@.+-` by a space. Strip spaces at the ends, then add one before and after. The
    SHA-256 of each trigram in UTF-8 gives its place (the first four bytes, little-endian, modulo
    384) and its sign (the lowest bit of the fifth byte, set for minus). The vector is the sum of
    the signs per place, scaled to length one. A text of up to three characters counts as one
    trigram. Characters are counted in UTF-16, as JavaScript does. A text that is empty after these
    steps gets the vector `nothing` (OpenClaw: zeros, which no store could compare).
    """

    name: Final = f"hash:openclaw-{DIMENSIONS}"
    kind: Final[EmbedderKind] = "hash"
    dimensions: Final = DIMENSIONS
    ready: Final = True

    def __init__(self) -> None:
        self._places = _Places()

    async def load(self) -> None:
        """Do nothing: there is no model to load."""

    async def embed(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        return await embed_in_chunks(
            self._vectors, texts, size=_TEXTS_PER_CHUNK, name=self.name, inline_chars=INLINE_CHARS
        )

    def _vectors(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        rows = [self._row(text) for text in texts]
        return unit_vectors(rows, count=len(texts), dimensions=DIMENSIONS, embedder=self.name)

    def _row(self, text: str) -> Rows:
        places = self._places
        indexes = [places[gram] for gram in _grams(_fold(text))]
        if not indexes:
            return nothing(DIMENSIONS)
        counts = np.bincount(indexes, minlength=2 * DIMENSIONS)
        row = (counts[:DIMENSIONS] - counts[DIMENSIONS:]).astype(np.float32)
        return row if row.any() else nothing(DIMENSIONS)


def _fold(text: str) -> str:
    text = readable(text, chars=HASH_MAX_CHARS)
    if _ASTRAL.search(text):
        text = _without_lone_surrogates(_units(text)[:HASH_MAX_CHARS])
    return _NOT_SPELLED.sub(" ", _WHITE_SPACE.sub(" ", text.lower())).strip()


def _grams(folded_text: str) -> list[str]:
    if not folded_text:
        return []
    astral = _ASTRAL.search(folded_text) is not None
    units = _units(folded_text) if astral else folded_text
    if len(units) <= _NGRAM:
        return [folded_text]
    padded_text = f" {units} "
    grams = [padded_text[index : index + _NGRAM] for index in range(len(padded_text) - _NGRAM + 1)]
    return [_without_lone_surrogates(gram) for gram in grams] if astral else grams


def _units(text: str) -> str:
    return _ASTRAL.sub(
        lambda match: "".join(
            map(chr, np.frombuffer(match[0].encode("utf-16-le"), "<u2").tolist())
        ),
        text,
    )


def _without_lone_surrogates(units: str) -> str:
    text = units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _LONE_SURROGATE.sub("\ufffd", text)


EXTRA: Final = "static"
FEATURE: Final = "the static embedder"
STATIC_DIMENSIONS: Final = 256  # of the model's file
MAX_CHARS: Final = 8_192
"""The static embedder reads this many characters of a text: 2,000 tokens of English, after which
the average hardly changes."""
_MODEL: Final = f"l2_supercat_{STATIC_DIMENSIONS}"
_WEIGHTS: Final = f"weights/{_MODEL}.safetensors"
_TOKENIZER: Final = "tokenizers/l2_supercat_tokenizer_config.json"
_TENSOR: Final = "embedding.weight"
_RECIPE: Final = "1"
"""Increase this number if this module makes different vectors from the same files."""


class StaticEmbedder(LoadedEmbedder["_Table"]):
    """Averages the token vectors that the package wordllama contains.

    This class reads wordllama's files but never imports wordllama, because the import adds a
    handler to the host's root logger, and loads pydantic and requests.
    """

    kind: Final[EmbedderKind] = "static"
    dimensions: Final = STATIC_DIMENSIONS

    def __init__(self) -> None:
        """Check that the weights are installed, and name the model. Raise MissingExtra or
        EmbedderError if a weight is missing."""
        package = static_package()
        self._weights, self._tokenizer = package / _WEIGHTS, package / _TOKENIZER
        mark = fingerprint((self._weights, self._tokenizer), text=f"{_RECIPE}\0{MAX_CHARS}")
        super().__init__(f"static:{_MODEL}:{mark}")

    async def embed(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        vectors = partial(self._vectors, await self.model())
        return await embed_in_chunks(
            vectors, texts, size=_TEXTS_PER_CHUNK, name=self.name, inline_chars=INLINE_CHARS
        )

    def _vectors(self, table: _Table, texts: Sequence[str]) -> tuple[bytes, ...]:
        rows = [table.row(text) for text in texts]
        return unit_vectors(
            rows, count=len(texts), dimensions=STATIC_DIMENSIONS, embedder=self.name
        )

    def _load(self) -> _Table:
        tokenizers = import_package("tokenizers", feature=FEATURE, extra=EXTRA)
        tokenizer = tokenizers.Tokenizer.from_file(str(self._tokenizer))
        return _Table(_read_weights(self._weights), tokenizer)


class _Table:
    def __init__(self, vectors: Rows, tokenizer: Any) -> None:
        self._vectors = vectors
        self._tokenizer = tokenizer

    def row(self, text: str) -> Rows:
        # Tokenize texts one by one: a batch would start the tokenizer's own threads, which cause a
        # warning in hosts that fork. An average needs no padding either.
        readable_text = readable(text, chars=MAX_CHARS)
        tokens: list[int] = self._tokenizer.encode(readable_text, add_special_tokens=False).ids
        if not tokens:
            return nothing(STATIC_DIMENSIONS)
        average: Rows = self._vectors[tokens].mean(axis=0)
        return average


def static_package() -> Path:
    """Return the folder of wordllama's weights. Raise MissingExtra or EmbedderError without any."""
    package = package_folder("wordllama")
    if package is None or package_folder("tokenizers") is None:
        raise MissingExtra(feature=FEATURE, extra=EXTRA)
    if not (package / _WEIGHTS).is_file() or not (package / _TOKENIZER).is_file():
        raise EmbedderError(
            "this version of wordllama lacks its weights: run pip install --force-reinstall "
            f"'recollect[{EXTRA}]'"
        )
    return package


def _read_weights(path: Path) -> Rows:
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    tensor_info = json.loads(raw[8:end])[_TENSOR]
    first, last = tensor_info["data_offsets"]
    if tensor_info["dtype"] != "F16" or tensor_info["shape"][1] != STATIC_DIMENSIONS:
        raise EmbedderError(
            f"wordllama's {path.name} has an unexpected format ({tensor_info['dtype']} of "
            f"{tensor_info['shape']}): run pip install --force-reinstall 'recollect[{EXTRA}]'"
        )
    numbers = np.frombuffer(raw[end + first : end + last], dtype="<f2")
    return numbers.astype(np.float32).reshape(tensor_info["shape"])
