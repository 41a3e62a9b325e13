"""Vectors from a provider over the network: OpenAI and all that speak its wire, Gemini, Voyage.

Owns batches, cutting, the pace, and holding what comes back to account. Texts leave this machine
here, so they must be redacted already: passages are, because the store holds nothing else; whoever
asks a question redacts it first. Never shows a text, a key or a provider's own words, in an error,
a log or a repr; never sends a provider's key to another server. Always holds: a call ends within
its patience; a vector that is handed out has the known number of dimensions, all finite, length
one.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from typing import Any, Final, Literal

import numpy as np

from recollect.embedders.wires import WIRES, Ask, Purpose, RemoteProvider, Vectors, WrongAnswer
from recollect.errors import EmbedderError
from recollect.http import (
    Connections,
    FailedTry,
    NetworkTrouble,
    PerLoop,
    Retries,
    TroubleCause,
    asked_to_wait,
    attempt,
    import_driver,
    is_sendable_key,
    read_seconds,
    try_again,
)

_FEATURE: Final = "a remote embedder"
_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_FIRST_WAIT_SECONDS: Final = 0.25
_LONGEST_WAIT_SECONDS: Final = 30.0
_NO_MORE_MONEY: Final = "insufficient_quota"
"""OpenAI's word for a spent account: status 429, but no waiting helps."""
_BLANK: Final = "-"
"""Sent for a text of nothing but blanks, which providers refuse."""
_BYTES_A_TOKEN: Final = 4
_PROBE: Final = "word"


class RequestTooLarge(EmbedderError):  # noqa: N818 - an EmbedderError for whom it reaches
    """A request was refused for its size; a smaller one may pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long and how often a call is tried, and how many run at once."""

    at_once: int = 4
    timeout_seconds: float = 30.0
    """Of one try: to connect, and between two pieces of the answer."""
    tries: int = 5
    patience_seconds: float = 120.0
    """Of all tries and the waiting between them."""


class RemoteEmbedder:
    """An `Embedder` behind HTTP; close it in the event loop that used it, or let that end.

    `embed` is for passages, `embed_questions` for what is asked of them: Gemini and Voyage give
    the two different vectors. Questions go ahead of passages that wait for their turn.
    """

    def __init__(
        self,
        provider: RemoteProvider,
        *,
        model: str | None = None,
        dimensions: int | None = None,
        base_url: str | None = None,
        key_variable: str | None = None,
        batch_texts: int | None = None,
        text_chars: int | None = None,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        if provider not in WIRES:
            raise EmbedderError(f"there is no such provider: choose one of {', '.join(WIRES)}")
        wire = WIRES[provider]
        limits = wire.limits
        self._wire = wire
        self._provider = provider
        self._model = (model or wire.model).removeprefix("models/")
        self._asked_dimensions = dimensions
        self._dimensions = dimensions or wire.known_dimensions.get(self._model, 0)
        self._base_url = (base_url or wire.base_url).rstrip("/")
        self._usual_server = self._base_url == wire.base_url
        # The provider's key is no other server's business: theirs is named outright.
        usual_key = wire.key_variable if self._usual_server else None
        self._key_variable = key_variable or usual_key
        self._batch_texts = batch_texts or limits.texts
        self._text_chars = text_chars or limits.text_chars
        # What the provider allows says nothing of another server that speaks its wire.
        requests = limits.requests_per_minute if self._usual_server else None
        tokens = limits.tokens_per_minute if self._usual_server else None
        self._calls = _Caller(
            provider=provider,
            key_variable=self._key_variable,
            pace=RateLimit(
                requests_per_minute=requests_per_minute or requests,
                tokens_per_minute=tokens_per_minute or tokens,
            ),
            bounds=bounds or Bounds(),
        )
        self._loaded = False
        self._was_cut = False
        self._trouble = ""

    @property
    def name(self) -> str:
        """Provider, model, dimensions where they were asked for, and which server of one's own.

        A model of the same name may be another one there.
        """
        asked = f":{self._asked_dimensions}" if self._asked_dimensions else ""
        server = "" if self._usual_server else f"@{_server_mark(self._base_url)}"
        return f"remote:{self._provider}:{self._model}{asked}{server}"

    @property
    def kind(self) -> Literal["remote"]:
        """Weighed as a remote model's similarities."""
        return "remote"

    @property
    def dimensions(self) -> int:
        """Numbers of a vector; 0 until they are known."""
        return self._dimensions

    @property
    def ready(self) -> bool:
        """Whether it has its key and knows its dimensions."""
        return self._loaded

    @property
    def questions_differ(self) -> bool:
        """Whether a question's vector is another than a passage's of the same words."""
        return self._wire.questions_differ

    def __repr__(self) -> str:
        return f"RemoteEmbedder({self.name!r})"

    def trouble(self) -> str:
        """What somebody should know, told once; empty when there is nothing."""
        text, self._trouble = self._trouble, ""
        return text

    async def load(self) -> None:
        """Look for key and driver; embeds one word where the dimensions are not known."""
        if self._loaded:
            return
        self._headers()
        await asyncio.to_thread(import_driver, _FEATURE)
        if not self._dimensions:
            await self._embed([_PROBE], "passage")
        self._loaded = True

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        """Vectors of passages, in order."""
        return await self._of(texts, "passage")

    async def embed_questions(self, texts: Sequence[str]) -> Sequence[bytes]:
        """Vectors of questions, in order; the caller has redacted them."""
        return await self._of(texts, "question")

    async def close(self) -> None:
        """Close this event loop's connections."""
        await self._calls.close()

    async def _of(self, texts: Sequence[str], purpose: Purpose) -> Sequence[bytes]:
        if not texts:
            return ()
        await self.load()
        batches = list(self._batches([self._sendable(text) for text in texts]))
        waiting = [asyncio.ensure_future(self._embed(batch, purpose)) for batch in batches]
        try:
            return tuple(chain.from_iterable([await future for future in waiting]))
        finally:
            # One that failed has failed all: the others must not go on spending.
            for future in waiting:
                future.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    def _sendable(self, text: str) -> str:
        if len(text) > self._text_chars:
            text = text[: self._text_chars]
            if not self._was_cut:
                self._was_cut = True
                self._trouble = (
                    f"{self.name} takes {self._text_chars} characters of a text: "
                    "longer ones were cut"
                )
        return text if text.strip() else _BLANK

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        chars = 0
        for text in texts:
            full = len(batch) >= self._batch_texts
            if batch and (full or chars + len(text) > self._wire.limits.request_chars):
                yield batch
                batch, chars = [], 0
            batch.append(text)
            chars += len(text)
        yield batch

    async def _embed(self, texts: Sequence[str], purpose: Purpose) -> list[bytes]:
        ask = Ask(
            model=self._model,
            texts=texts,
            purpose=purpose,
            dimensions=self._asked_dimensions,
            usual_server=self._usual_server,
        )
        try:
            content = await self._calls.post(
                self._base_url + self._wire.path(self._model),
                headers=self._headers(),
                body=self._wire.body(ask),
                tokens=sum(len(text.encode("utf-8", "replace")) for text in texts)
                // _BYTES_A_TOKEN,
                urgent=purpose == "question",
            )
        except RequestTooLarge:
            if len(texts) == 1:
                raise
        else:
            return await asyncio.to_thread(self._read, content, len(texts))
        # Servers that only speak the wire have limits of their own, which they tell like this.
        half = len(texts) // 2
        first = await self._embed(texts[:half], purpose)
        return first + await self._embed(texts[half:], purpose)

    def _headers(self) -> dict[str, str]:
        key = os.environ.get(self._key_variable or "", "").strip()
        sent = {"Content-Type": "application/json"}
        if not key and self._usual_server:
            raise EmbedderError(
                f"{self._provider} needs a key: set {self._key_variable} in the environment"
            )
        # The driver quotes a header that it cannot send, and the header is the key.
        if not is_sendable_key(key):
            raise EmbedderError(
                f"{self._key_variable} holds characters that no key has: set it anew"
            )
        return {**sent, **self._wire.headers(key)} if key else sent

    def _read(self, content: bytes, wanted: int) -> list[bytes]:
        """Vectors of an answer, checked and scaled."""
        matrix, wrong = self._numbers(content, wanted)
        if matrix is None:
            raise self._wrong(wrong)
        given = matrix.shape[1]
        if self._dimensions and given != self._dimensions:
            raise self._wrong(f"it gave {given} dimensions where {self._dimensions} are known")
        lengths = np.linalg.norm(matrix.astype(np.float64), axis=1, keepdims=True)
        if not given or not np.isfinite(lengths).all() or not lengths.all():
            raise self._wrong("it gave a vector that has no direction")
        self._dimensions = given
        scaled = (matrix / lengths).astype("<f4")
        return [row.tobytes() for row in scaled]

    def _numbers(self, content: bytes, wanted: int) -> tuple[Vectors | None, str]:
        """What an answer holds, or why it cannot be read; a parser's error would quote it."""
        try:
            return self._wire.read(json.loads(content), wanted), ""
        except WrongAnswer as error:
            return None, str(error)
        except ValueError:
            return None, "its answer is not JSON"

    def _wrong(self, why: str) -> EmbedderError:
        return EmbedderError(
            f"{self._provider} answered 200, but {why}: check that the base URL and "
            f"{self._model} are an embedding service"
        )


def _server_mark(base_url: str) -> str:
    """Tells servers apart in a name, without what may be secret in an address."""
    parts = urllib.parse.urlsplit(base_url)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return blake2b(shown.encode("utf-8", "replace"), digest_size=4).hexdigest()


class RateLimit:
    """Spreads requests and tokens over the minute; safe from several threads."""

    def __init__(
        self, *, requests_per_minute: int | None = None, tokens_per_minute: int | None = None
    ) -> None:
        self._request_seconds = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._token_seconds = 60.0 / tokens_per_minute if tokens_per_minute else 0.0
        self._free_at = 0.0
        self._lock = threading.Lock()

    def take(self, tokens: int) -> float:
        """Take a place for so many tokens; how long to wait until it is there."""
        with self._lock:
            now = time.monotonic()
            start = max(now, self._free_at)
            self._free_at = start + max(self._request_seconds, tokens * self._token_seconds)
            return start - now

    def hold(self, seconds: float) -> None:
        """Nobody starts before then: the provider said so."""
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic() + seconds)


@dataclass(frozen=True, slots=True)
class _Answer:
    """A provider's answer, whole."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    content: bytes = field(repr=False)

    @property
    def error(self) -> Mapping[str, Any]:
        """The error object that it holds; empty where there is none."""
        try:
            body = json.loads(self.content)
        except ValueError:
            return {}
        error = body.get("error") if isinstance(body, dict) else None
        return error if isinstance(error, dict) else {}

    @property
    def is_spent(self) -> bool:
        return self.error.get("code") == _NO_MORE_MONEY

    @property
    def asked_seconds(self) -> float | None:
        """How long the provider asks to wait: by header, or as Google says it in the body."""
        if "retry-after-ms" in self.headers or "retry-after" in self.headers:
            return asked_to_wait(self.headers)
        details = self.error.get("details")
        for detail in details if isinstance(details, list) else ():
            delay = detail.get("retryDelay") if isinstance(detail, dict) else None
            if isinstance(delay, str):
                return read_seconds(delay.removesuffix("s"))
        return None


class _Caller:
    """Posts JSON to one provider: paced, bounded, tried again."""

    def __init__(
        self, *, provider: str, key_variable: str | None, pace: RateLimit, bounds: Bounds
    ) -> None:
        self._provider = provider
        self._key_variable = key_variable
        self._pace = pace
        self._bounds = bounds
        self._places: PerLoop[asyncio.Semaphore] = PerLoop()
        self._connections = Connections(
            feature=_FEATURE,
            connect_seconds=bounds.timeout_seconds,
            read_seconds=bounds.timeout_seconds,
            kept=bounds.at_once,
        )

    async def post(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        body: Mapping[str, Any],
        tokens: int,
        urgent: bool = False,
    ) -> bytes:
        """The answer's bytes. What is urgent waits neither for its place nor for the pace."""
        content = await asyncio.to_thread(_encoded, body)
        if urgent:
            self._pace.take(tokens)
            return await self._tried(url, headers, content)
        places = self._places.get() or self._places.put(asyncio.Semaphore(self._bounds.at_once))
        async with places:
            await asyncio.sleep(self._pace.take(tokens))
            return await self._tried(url, headers, content)

    async def close(self) -> None:
        """Close the connections of this event loop; the next call opens new ones."""
        await self._connections.close()

    async def _tried(self, url: str, headers: Mapping[str, str], content: bytes) -> bytes:
        retries = Retries(
            times=self._bounds.tries - 1,
            first_seconds=_FIRST_WAIT_SECONDS,
            longest_seconds=_LONGEST_WAIT_SECONDS,
        )
        return await try_again(
            lambda: self._once(url, headers, content),
            retries=retries,
            until=time.monotonic() + self._bounds.patience_seconds,
        )

    async def _once(
        self, url: str, headers: Mapping[str, str], content: bytes
    ) -> bytes | FailedTry:
        answer = await attempt(self._answer(url, headers, content))
        if isinstance(answer, NetworkTrouble):
            return FailedTry(error=self._silent(answer), again=True)
        if answer.status == 200:
            return answer.content
        asked = answer.asked_seconds
        if answer.status == 429 and asked:
            self._pace.hold(min(asked, _LONGEST_WAIT_SECONDS))
        return FailedTry(
            error=self._refused(answer, asked),
            again=answer.status in _AGAIN and not answer.is_spent,
            asked_seconds=asked,
        )

    async def _answer(self, url: str, headers: Mapping[str, str], content: bytes) -> _Answer:
        async with asyncio.timeout(self._bounds.timeout_seconds * 2):
            answer = await self._connections.send("POST", url, headers=headers, content=content)
            try:
                return _Answer(answer.status_code, answer.headers, await answer.aread())
            finally:
                await answer.aclose()

    def _silent(self, trouble: NetworkTrouble) -> EmbedderError:
        if trouble.kind is TroubleCause.LATE:
            why = f"did not answer within {self._bounds.timeout_seconds:g} s"
        elif trouble.kind is TroubleCause.UNREACHABLE:
            why = "cannot be reached"
        else:
            why = f"broke off ({trouble.name})"
        return EmbedderError(
            f"{self._provider} {why}: check the network and recall.remote, then try again"
        )

    def _refused(self, answer: _Answer, asked: float | None) -> EmbedderError:
        outcome = f"{self._provider} answered {answer.status}"
        if answer.status in (413, 422):
            return RequestTooLarge(f"{outcome}: it does not take texts of this size or number")
        return EmbedderError(f"{outcome}: {self._advice(answer, asked)}")

    def _advice(self, answer: _Answer, asked: float | None) -> str:
        status = answer.status
        if status in (401, 403) and self._key_variable is None:
            return "name the variable that holds this server's key as recall.remote.key_variable"
        if status in (401, 403):
            return f"check the key in {self._key_variable}, and that it may use this model"
        if status == 404 or 300 <= status < 400:
            return "check the model's name and the base URL"
        if status == 429 and answer.is_spent:
            return "the account's quota is spent; look at its plan and billing"
        if status == 429:
            later = f" in {asked:.0f} s" if asked else " later"
            return f"too many requests; try again{later}, or lower the rate"
        if status >= 500:
            return "the provider has trouble of its own; try again later"
        return "it refuses the request; check the model's name and its dimensions"


def _encoded(body: Mapping[str, Any]) -> bytes:
    # A lone surrogate cannot be sent; it becomes a question mark rather than an error.
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
