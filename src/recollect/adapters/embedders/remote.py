"""Embeddings over HTTP, in OpenAI's wire format, which most providers and servers support.

Callers redact texts before they pass them to these functions. Errors, logs and reprs never show a
text, a key or a provider's error text. A provider's key is never sent to another server."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import os
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recollect.errors import EmbedderError
from recollect.system import http

RemoteProvider: TypeAlias = Literal["openai", "gemini", "voyage"]

LOG: Final = logging.getLogger("recollect.embedders")
_FEATURE: Final = "a remote embedder"
_RETRIED: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_BLANK: Final = "-"
"""The text to send instead of a blank text, which providers refuse."""
_PROBE: Final = "word"
_BATCH_TEXTS: Final = 32
"""Number of texts per request: local servers accept this many by default."""
_BATCH_CHARS: Final = 100_000  # not measured; bounds a request


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A provider's address, and its differences from OpenAI."""

    base_url: str
    key_variable: str
    model: str
    known_dimensions: Mapping[str, int]
    text_chars: int = 8_000
    """Longer texts are cut to this many characters."""
    passage_fields: Mapping[str, str] = field(default_factory=dict)
    question_fields: Mapping[str, str] = field(default_factory=dict)
    """Fields to add if the provider computes different vectors for questions and for passages."""


PROVIDERS: Final[Mapping[RemoteProvider, Provider]] = {
    "openai": Provider(
        base_url="https://api.openai.com/v1",
        key_variable="OPENAI_API_KEY",
        model="text-embedding-3-small",
        known_dimensions={
            "text-embedding-3-small": 1536,
            "text-embedding-3-large": 3072,
            "text-embedding-ada-002": 1536,
        },
    ),
    "gemini": Provider(
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_variable="GEMINI_API_KEY",
        model="gemini-embedding-001",
        known_dimensions={"gemini-embedding-001": 3072},
    ),
    "voyage": Provider(
        base_url="https://api.voyageai.com/v1",
        key_variable="VOYAGE_API_KEY",
        model="voyage-3.5",
        known_dimensions={"voyage-3.5": 1024},
        text_chars=32_000,
        passage_fields={"input_type": "document"},
        question_fields={"input_type": "query"},
    ),
}


_AT_ONCE: Final = 4
"""Number of requests for passages that may run at the same time."""
_TIMEOUT_SECONDS: Final = 30.0
"""Time limit of one attempt, both to connect and between two chunks of the answer."""
_TRIES: Final = 5  # not measured; up to about 10 s of pauses
_PATIENCE_SECONDS: Final = 120.0
"""Time limit of all attempts and the pauses between them."""


class RemoteEmbedder:
    """Computes vectors through a provider's HTTP API. Close the embedder in the event loop that
    used it, or let that loop end. `embed` is for passages. `embed_questions` is for questions,
    which do not wait for passages."""

    kind: Final = "remote"

    def __init__(
        self,
        provider: RemoteProvider,
        *,
        model: str | None = None,
        base_url: str | None = None,
        key_variable: str | None = None,
    ) -> None:
        if provider not in PROVIDERS:
            raise EmbedderError(
                f"the embedding provider is unknown: choose one of {', '.join(PROVIDERS)}"
            )
        provider_info = PROVIDERS[provider]
        self._provider = provider
        self._provider_info = provider_info
        self._model = (model or provider_info.model).removeprefix("models/")
        self._dimensions = provider_info.known_dimensions.get(self._model, 0)
        self._base_url = (base_url or provider_info.base_url).rstrip("/")
        self._own_server = self._base_url == provider_info.base_url
        # Send a provider's key only to that provider. Another server needs its own key.
        self._key_variable = key_variable or (
            provider_info.key_variable if self._own_server else None
        )
        self._places: http.PerLoop[asyncio.Semaphore] = http.PerLoop()
        self._connections = http.Connections(
            feature=_FEATURE,
            connect_seconds=_TIMEOUT_SECONDS,
            read_seconds=_TIMEOUT_SECONDS,
            idle=_AT_ONCE,
        )
        self._loaded = False
        self._was_cut = False

    @property
    def name(self) -> str:
        """Return provider and model, plus a hash of the server's address if it is not usual."""
        server = "" if self._own_server else f"@{_hash_server(self._base_url)}"
        return f"remote:{self._provider}:{self._model}{server}"

    @property
    def dimensions(self) -> int:
        """Return the length of each vector; 0 until it is known."""
        return self._dimensions

    @property
    def ready(self) -> bool:
        """Return True if the API key is set and the length of a vector is known."""
        return self._loaded

    def __repr__(self) -> str:
        return f"RemoteEmbedder({self.name!r})"

    async def load(self) -> None:
        """Check the key and the HTTP driver. Embed one word if a vector's length is unknown."""
        if self._loaded:
            return
        self._headers()
        await asyncio.to_thread(http.import_driver, _FEATURE)
        if not self._dimensions:
            await self._embed_batch([_PROBE], self._provider_info.passage_fields)
        self._loaded = True

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        if not texts:
            return ()
        await self.load()
        places = self._places.get() or self._places.put(asyncio.Semaphore(_AT_ONCE))

        async def embed_in_turn(batch: Sequence[str]) -> list[bytes]:
            async with places:
                return await self._embed_batch(batch, self._provider_info.passage_fields)

        waiting = [asyncio.ensure_future(embed_in_turn(batch)) for batch in self._batches(texts)]
        try:
            return tuple(chain.from_iterable([await future for future in waiting]))
        finally:
            # after one failure, the other requests must not continue to cost money
            for future in waiting:
                future.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def embed_questions(self, texts: Sequence[str]) -> Sequence[bytes]:
        """Return the vectors of questions, in order. The caller has redacted the texts."""
        if not texts:
            return ()
        await self.load()
        batches = self._batches(texts)
        vectors = [
            await self._embed_batch(batch, self._provider_info.question_fields) for batch in batches
        ]
        return tuple(chain.from_iterable(vectors))

    async def close(self) -> None:
        await self._connections.close()

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        chars = 0
        for text in map(self._shorten, texts):
            if batch and (len(batch) >= _BATCH_TEXTS or chars + len(text) > _BATCH_CHARS):
                yield batch
                batch, chars = [], 0
            batch.append(text)
            chars += len(text)
        yield batch

    def _shorten(self, text: str) -> str:
        limit = self._provider_info.text_chars
        if len(text) > limit and not self._was_cut:
            self._was_cut = True
            LOG.warning(
                "%s accepts %d characters per text: Recollect cuts longer texts", self.name, limit
            )
        return text[:limit] if text.strip() else _BLANK

    async def _embed_batch(self, texts: Sequence[str], fields: Mapping[str, str]) -> list[bytes]:
        body: dict[str, Any] = {"model": self._model, "input": list(texts), **fields}
        if self._own_server and self._provider == "openai":
            body["encoding_format"] = "base64"  # base64 has a quarter of the bytes of JSON numbers
        return await asyncio.to_thread(self._read, await self._post(body), len(texts))

    async def _post(self, body: Mapping[str, Any]) -> bytes:
        headers = self._headers()
        # A lone surrogate cannot be sent. It becomes a question mark instead of an error.
        content_bytes = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")

        async def send() -> tuple[int, Mapping[str, str], bytes]:
            async with asyncio.timeout(_TIMEOUT_SECONDS * 2):
                url = self._base_url + "/embeddings"
                answer = await self._connections.send(
                    "POST", url, headers=headers, content=content_bytes
                )
                try:
                    return answer.status_code, answer.headers, await answer.aread()
                finally:
                    await answer.aclose()

        async def send_once() -> bytes | http.FailedTry:
            answer = await http.attempt(send())
            if isinstance(answer, http.NetworkTrouble):
                return http.FailedTry(error=self._explain_silence(answer), may_retry=True)
            status, answer_headers, content = answer
            if status == 200:
                return content
            wait = http.retry_after_seconds(answer_headers)
            error = self._explain_refusal(status, wait)
            return http.FailedTry(error=error, may_retry=status in _RETRIED, asked_seconds=wait)

        return await http.try_again(
            send_once,
            retries=http.Retries(times=_TRIES - 1, first_seconds=0.25, longest_seconds=30.0),
            until=time.monotonic() + _PATIENCE_SECONDS,
        )

    def _headers(self) -> dict[str, str]:
        key = os.environ.get(self._key_variable or "", "").strip()
        if not key and self._own_server:
            raise EmbedderError(
                f"{self._provider} needs a key: set {self._key_variable} in the environment"
            )
        # The driver's error would quote the header, which contains the key.
        if not http.is_sendable_key(key):
            raise EmbedderError(
                f"{self._key_variable} contains characters that no API key has: set it again"
            )
        bearer = {"Authorization": f"Bearer {key}"} if key else {}
        return {"Content-Type": "application/json", **bearer}

    def _read(self, content: bytes, wanted: int) -> list[bytes]:
        matrix = _read_vectors(content, wanted)
        if isinstance(matrix, str):  # a parser's error would quote the answer
            raise self._wrong(matrix)
        dimensions = matrix.shape[1]
        if self._dimensions and dimensions != self._dimensions:
            raise self._wrong(
                f"it returned vectors of {dimensions} dimensions instead of {self._dimensions}"
            )
        lengths = np.linalg.norm(matrix.astype(np.float64), axis=1, keepdims=True)
        if not dimensions or not np.isfinite(lengths).all() or not lengths.all():
            raise self._wrong("a vector of its answer is zero or not finite")
        self._dimensions = dimensions
        return [row.tobytes() for row in (matrix / lengths).astype("<f4")]

    def _wrong(self, problem: str) -> EmbedderError:
        return EmbedderError(
            f"{self._provider} answered 200, but {problem}: check the base URL, and that "
            f"{self._model} is an embedding model"
        )

    def _explain_silence(self, trouble: http.NetworkTrouble) -> EmbedderError:
        problem = {
            http.TroubleCause.LATE: f"did not answer within {_TIMEOUT_SECONDS:g} s",
            http.TroubleCause.UNREACHABLE: "cannot be reached",
        }.get(trouble.kind, f"broke off ({trouble.name})")
        return EmbedderError(
            f"{self._provider} {problem}: check the network and recall.remote, then try again"
        )

    def _explain_refusal(self, status: int, wait: float | None) -> EmbedderError:
        if status in (413, 422):
            advice = "it does not accept texts of this size, or so many at once"
        elif status in (401, 403):
            advice_to_name = (
                "name the variable with this server's key in recall.remote.key_variable"
            )
            check = f"check the key in {self._key_variable}, and that it may use this model"
            advice = check if self._key_variable else advice_to_name
        elif status == 404 or 300 <= status < 400:
            advice = "check the model's name and the base URL"
        elif status == 429:
            retry_time = f"in {wait:.0f} s" if wait else "later"
            advice = f"too many requests, or the account's quota is spent; try again {retry_time}"
        elif status >= 500:
            advice = "the provider has an internal problem; try again later"
        else:
            advice = "it refuses the request; check the model's name and its dimensions"
        return EmbedderError(f"{self._provider} answered {status}: {advice}")


def _hash_server(base_url: str) -> str:
    parts = urllib.parse.urlsplit(base_url)
    public_url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return blake2b(public_url.encode("utf-8", "replace"), digest_size=4).hexdigest()


def _read_vectors(content: bytes, wanted: int) -> npt.NDArray[np.float32] | str:
    try:
        answer = json.loads(content)
    except ValueError:
        return "its answer is not JSON"
    items = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(items, list) or len(items) != wanted:
        return "the number of vectors differs from the number of texts"
    placed: dict[int, npt.NDArray[np.float32]] = {}
    for position, item in enumerate(items):
        if not isinstance(item, dict):
            return "its answer does not have the expected form"
        index = item.get("index", position)
        if not isinstance(index, int) or not 0 <= index < wanted or index in placed:
            return "its answer does not show which vector belongs to which text"
        vector = _read_vector(item.get("embedding"))
        if vector is None:
            return "a vector of its answer cannot be read as numbers"
        placed[index] = vector
    if len({len(vector) for vector in placed.values()}) > 1:
        return "its vectors have different lengths"
    return np.stack([placed[index] for index in range(wanted)])


def _read_vector(value: Any) -> npt.NDArray[np.float32] | None:
    try:
        if isinstance(value, str):
            return np.frombuffer(base64.b64decode(value, validate=True), dtype="<f4")
        if isinstance(value, list) and all(type(number) in (int, float) for number in value):
            return np.asarray(value, dtype=np.float32)
    except (binascii.Error, ValueError, OverflowError):
        pass
    return None
