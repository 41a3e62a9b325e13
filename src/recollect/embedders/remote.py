"""Vectors from a provider over the network: OpenAI and all that speak its wire, Gemini, Voyage.

Owns batches, cutting, and holding what comes back to account. Texts leave this machine here, so
they must be redacted already: passages are, because the store holds nothing else; whoever asks a
question redacts it first. Never shows a text or a key, in an error, a log or a repr; never sends
a provider's key to another server. Always holds: a vector that is handed out has the known number
of dimensions, all finite, length one.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import email.utils
import json
import os
import random
import threading
import time
import urllib.parse
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recollect.errors import EmbedderError, MissingExtra

if TYPE_CHECKING:
    import httpx


# How each provider of embeddings is asked, and how its answers are read.
#
# Owns addresses, bodies, limits and usual models. Pure: it opens nothing and keeps nothing. Never
# puts a key into an address. The wire formats are those of
# platform.openai.com/docs/api-reference/embeddings, ai.google.dev/api/embeddings and
# docs.voyageai.com/reference/embeddings-api.


RemoteProvider: TypeAlias = Literal["openai", "gemini", "voyage"]
Purpose: TypeAlias = Literal["passage", "question"]
"""What a text is: some providers give a question another vector than a passage."""
Vectors: TypeAlias = npt.NDArray[np.float32]


class WrongAnswer(Exception):  # noqa: N818 - reads as what it says; never leaves this package
    """An answer is not what the wire promises; the message never quotes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """What one request and one minute may hold."""

    texts: int
    """Of one request."""
    request_chars: int
    """Of one request; a character is counted as a token, which no tokenizer much exceeds."""
    text_chars: int
    """Of one text; longer ones are cut."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request's worth of texts."""

    model: str
    texts: Sequence[str] = field(repr=False)
    purpose: Purpose
    dimensions: int | None
    usual_server: bool
    """Whether it goes to the provider itself, which is known to take everything it documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingWire:
    """One provider."""

    base_url: str
    key_variable: str
    model: str
    """The usual one."""
    known_dimensions: Mapping[str, int]
    limits: RequestLimits
    questions_differ: bool
    path: Callable[[str], str]
    """Behind the base URL, for a model."""
    headers: Callable[[str], dict[str, str]]
    """That carry the key."""
    body: Callable[[Ask], dict[str, Any]]
    read: Callable[[Any, int], Vectors]
    """The vectors of an answer to so many texts, in their order, as the provider scaled them."""


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _openai_body(ask: Ask) -> dict[str, Any]:
    # Base64 is a quarter of the bytes; not every server that speaks this wire knows it.
    body: dict[str, Any] = {
        "model": ask.model,
        "input": list(ask.texts),
        "encoding_format": "base64" if ask.usual_server else "float",
    }
    if ask.dimensions is not None:
        body["dimensions"] = ask.dimensions
    return body


def _voyage_body(ask: Ask) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": ask.model,
        "input": list(ask.texts),
        "input_type": "query" if ask.purpose == "question" else "document",
        "truncation": True,
        "encoding_format": "base64",
    }
    if ask.dimensions is not None:
        body["output_dimension"] = ask.dimensions
    return body


def _gemini_body(ask: Ask) -> dict[str, Any]:
    return {"requests": [_gemini_request(ask, text) for text in ask.texts]}


def _gemini_request(ask: Ask, text: str) -> dict[str, Any]:
    request: dict[str, Any] = {"model": f"models/{ask.model}"}
    asked = ask.purpose == "question"
    if ask.model.startswith("gemini-embedding-2"):
        # This family has no task types: what a text is for stands before it.
        text = ("task: search result | query: " if asked else "title: none | text: ") + text
    else:
        request["taskType"] = "RETRIEVAL_QUERY" if asked else "RETRIEVAL_DOCUMENT"
    request["content"] = {"parts": [{"text": text}]}
    if ask.dimensions is not None:
        request["outputDimensionality"] = ask.dimensions
    return request


def _read_data(answer: Any, wanted: int) -> Vectors:
    """OpenAI's and Voyage's answers: items that say the index of their text."""
    items = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(items, list) or len(items) != wanted:
        raise WrongAnswer("it gave another number of vectors than it got texts")
    placed: list[Any] = [None] * wanted
    for at, item in enumerate(items):
        if not isinstance(item, dict):
            raise WrongAnswer("its answer is not of the form it should have")
        index = item.get("index", at)
        if not isinstance(index, int) or not 0 <= index < wanted or placed[index] is not None:
            raise WrongAnswer("it did not say which vector belongs to which text")
        placed[index] = item.get("embedding")
    return _matrix(placed)


def _read_gemini(answer: Any, wanted: int) -> Vectors:
    items = answer.get("embeddings") if isinstance(answer, dict) else None
    if not isinstance(items, list) or len(items) != wanted:
        raise WrongAnswer("it gave another number of vectors than it got texts")
    return _matrix([item.get("values") if isinstance(item, dict) else None for item in items])


def _matrix(rows: Sequence[Any]) -> Vectors:
    read = [_row(row) for row in rows]
    if len({len(row) for row in read}) > 1:
        raise WrongAnswer("its vectors are of different lengths")
    return np.stack(read)


def _row(row: Any) -> Vectors:
    try:
        if isinstance(row, str):
            return np.frombuffer(base64.b64decode(row, validate=True), dtype="<f4")
        if isinstance(row, list) and all(type(value) in (int, float) for value in row):
            return np.asarray(row, dtype=np.float32)
    except (binascii.Error, ValueError, OverflowError):
        pass
    raise WrongAnswer("a vector of its answer cannot be read as numbers")


_VOYAGE_1024: Final = (
    "voyage-4",
    "voyage-4-lite",
    "voyage-4-large",
    "voyage-3.5",
    "voyage-3.5-lite",
    "voyage-3-large",
    "voyage-code-3",
)

WIRES: Final[Mapping[RemoteProvider, EmbeddingWire]] = {
    "openai": EmbeddingWire(
        base_url="https://api.openai.com/v1",
        key_variable="OPENAI_API_KEY",
        model="text-embedding-3-small",
        known_dimensions={
            "text-embedding-3-small": 1536,
            "text-embedding-3-large": 3072,
            "text-embedding-ada-002": 1536,
        },
        # It takes 2,048 texts, 300,000 tokens and 8,192 tokens a text; servers that only speak
        # its wire take far fewer texts.
        limits=RequestLimits(
            texts=128,
            request_chars=200_000,
            text_chars=8_000,
            requests_per_minute=3_000,
            tokens_per_minute=1_000_000,
        ),
        questions_differ=False,
        path=lambda _: "/embeddings",
        headers=_bearer,
        body=_openai_body,
        read=_read_data,
    ),
    "gemini": EmbeddingWire(
        base_url="https://generativelanguage.googleapis.com/v1beta",
        key_variable="GEMINI_API_KEY",
        model="gemini-embedding-001",
        known_dimensions={"gemini-embedding-001": 3072, "gemini-embedding-2": 3072},
        # 100 texts a batch; 2,048 tokens a text, beyond which it cuts by itself.
        limits=RequestLimits(
            texts=100,
            request_chars=100_000,
            text_chars=8_000,
            requests_per_minute=3_000,
            tokens_per_minute=1_000_000,
        ),
        questions_differ=True,
        path=lambda model: f"/models/{model}:batchEmbedContents",
        headers=lambda key: {"x-goog-api-key": key},
        body=_gemini_body,
        read=_read_gemini,
    ),
    "voyage": EmbeddingWire(
        base_url="https://api.voyageai.com/v1",
        key_variable="VOYAGE_API_KEY",
        model="voyage-3.5",
        known_dimensions=dict.fromkeys(_VOYAGE_1024, 1024),
        # 1,000 texts; 120,000 tokens for its large models; 32,000 tokens a text.
        limits=RequestLimits(
            texts=128,
            request_chars=100_000,
            text_chars=32_000,
            requests_per_minute=2_000,
            tokens_per_minute=3_000_000,
        ),
        questions_differ=True,
        path=lambda _: "/embeddings",
        headers=_bearer,
        body=_voyage_body,
        read=_read_data,
    ),
}


# Calls over HTTP to a provider of embeddings: paced, bounded, tried again, and told plainly.
#
# Owns the client, the pace and what an answer that is none means. One client an event loop, closed
# with it. Never lets a key, a text or a provider's own words into an error: providers quote both.
# Always holds: a call ends within its patience, with an answer or an `EmbedderError`.


_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_FIRST_WAIT_SECONDS: Final = 0.5
_LONGEST_WAIT_SECONDS: Final = 30.0
_NO_MORE_MONEY: Final = "insufficient_quota"
"""OpenAI's word for a spent account: status 429, but no waiting helps."""


class TooMuch(EmbedderError):  # noqa: N818 - an EmbedderError for whom it reaches
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


class Pace:
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
class _Line:
    """What belongs to one event loop."""

    client: httpx.AsyncClient
    places: asyncio.Semaphore
    keeper: AsyncGenerator[httpx.AsyncClient, None]


class Caller:
    """Posts JSON to one provider."""

    def __init__(
        self, *, provider: str, key_variable: str | None, pace: Pace, bounds: Bounds
    ) -> None:
        self._provider = provider
        self._key_variable = key_variable
        self._pace = pace
        self._bounds = bounds
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}

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
        line = await self._line()
        content = await asyncio.to_thread(_encoded, body)
        if urgent:
            self._pace.take(tokens)
            return await self._tried(line.client, url, headers, content)
        async with line.places:
            await asyncio.sleep(self._pace.take(tokens))
            return await self._tried(line.client, url, headers, content)

    async def close(self) -> None:
        """Close the connections of this event loop; the next call opens new ones."""
        line = self._lines.pop(asyncio.get_running_loop(), None)
        if line is not None:
            await line.keeper.aclose()

    async def _tried(
        self, client: httpx.AsyncClient, url: str, headers: Mapping[str, str], content: bytes
    ) -> bytes:
        started = time.monotonic()
        wait = _FIRST_WAIT_SECONDS
        for left in range(self._bounds.tries - 1, -1, -1):
            answer, silence = await self._once(client, url, headers, content)
            if answer is not None and answer.status_code == 200:
                return answer.content
            asked = None if answer is None else _asked_to_wait(answer)
            if answer is not None and answer.status_code == 429 and asked:
                self._pace.hold(min(asked, _LONGEST_WAIT_SECONDS))
            # Our own pause even where none is asked for: "at once" from a server in trouble,
            # taken at its word by all who wait, would keep it there.
            pause = max(asked or 0.0, random.uniform(wait / 2, wait))  # noqa: S311
            spent = time.monotonic() - started + pause
            hopeless = answer is not None and not _worth_again(answer)
            if hopeless or not left or spent > self._bounds.patience_seconds:
                raise self._error(answer, silence, asked)
            await asyncio.sleep(pause)
            wait = min(wait * 2, _LONGEST_WAIT_SECONDS)
        raise AssertionError("tries is at least one")

    async def _once(
        self, client: httpx.AsyncClient, url: str, headers: Mapping[str, str], content: bytes
    ) -> tuple[httpx.Response | None, str]:
        """An answer, or what kept it away. The driver's errors end here: they hold the request."""
        import httpx

        try:
            async with asyncio.timeout(self._bounds.timeout_seconds * 2):
                return await client.post(url, headers=dict(headers), content=content), ""
        except (httpx.TimeoutException, TimeoutError):
            return None, f"did not answer within {self._bounds.timeout_seconds:g} s"
        except httpx.ConnectError:
            return None, "cannot be reached"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return None, f"broke off ({type(error).__name__})"

    async def _line(self) -> _Line:
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            for gone in [held for held in self._lines if held.is_closed()]:
                del self._lines[gone]
            keeper = _kept(self._bounds)
            client = await anext(keeper)
            places = asyncio.Semaphore(self._bounds.at_once)
            # Another task may have been quicker while the driver was imported.
            line = self._lines.setdefault(loop, _Line(client, places, keeper))
            if line.client is not client:
                await keeper.aclose()
        return line

    def _error(
        self, answer: httpx.Response | None, silence: str, asked: float | None
    ) -> EmbedderError:
        if answer is None:
            return EmbedderError(
                f"{self._provider} {silence}: check the network and recall.remote, then try again"
            )
        status = answer.status_code
        said = f"{self._provider} answered {status}"
        if status in (413, 422):
            return TooMuch(f"{said}: it does not take texts of this size or number")
        return EmbedderError(f"{said}: {self._advice(answer, status, asked)}")

    def _advice(self, answer: httpx.Response, status: int, asked: float | None) -> str:
        if status in (401, 403) and self._key_variable is None:
            return "name the variable that holds this server's key as recall.remote.key_variable"
        if status in (401, 403):
            return f"check the key in {self._key_variable}, and that it may use this model"
        if status == 404 or 300 <= status < 400:
            return "check the model's name and the base URL"
        if status == 429 and _code(answer) == _NO_MORE_MONEY:
            return "the account's quota is spent; look at its plan and billing"
        if status == 429:
            later = f" in {asked:.0f} s" if asked else " later"
            return f"too many requests; try again{later}, or lower the rate"
        if status >= 500:
            return "the provider has trouble of its own; try again later"
        return "it refuses the request; check the model's name and its dimensions"


async def _kept(bounds: Bounds) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A client that an event loop closes when it ends, as it does with every generator."""
    httpx = await asyncio.to_thread(import_httpx)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=bounds.at_once)
    timeout = httpx.Timeout(bounds.timeout_seconds)
    async with httpx.AsyncClient(timeout=timeout, limits=limits) as client:
        yield client


def import_httpx() -> Any:
    """The driver; MissingExtra where it is not installed."""
    try:
        import httpx
    except ImportError as error:
        raise MissingExtra(feature="a remote embedder", extra="remote") from error
    return httpx


def _encoded(body: Mapping[str, Any]) -> bytes:
    # A lone surrogate cannot be sent; it becomes a question mark rather than an error.
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def _worth_again(answer: httpx.Response) -> bool:
    return answer.status_code in _AGAIN and _code(answer) != _NO_MORE_MONEY


def _code(answer: httpx.Response) -> str:
    error = _error_object(answer)
    return str(error.get("code", ""))


def _asked_to_wait(answer: httpx.Response) -> float | None:
    """How long the provider asks to wait: by header, or as Google says it in the body."""
    headers = answer.headers
    if "retry-after-ms" in headers:
        return _seconds(headers["retry-after-ms"], per=1000.0)
    if "retry-after" in headers:
        after = headers["retry-after"]
        seconds = _seconds(after)
        if seconds is not None:
            return seconds
        try:
            return max(0.0, email.utils.parsedate_to_datetime(after).timestamp() - time.time())
        except ValueError:
            return None
    details = _error_object(answer).get("details")
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str):
            return _seconds(delay.removesuffix("s"))
    return None


def _seconds(text: str, *, per: float = 1.0) -> float | None:
    try:
        seconds = float(text) / per
    except ValueError:
        return None
    return seconds if 0 <= seconds < 86_400 else None


def _error_object(answer: httpx.Response) -> dict[str, Any]:
    try:
        body = json.loads(answer.content)
    except ValueError:
        return {}
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}


_BLANK: Final = "-"
"""Sent for a text of nothing but blanks, which providers refuse."""
_BYTES_A_TOKEN: Final = 4
_PROBE: Final = "word"


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
        self._calls = Caller(
            provider=provider,
            key_variable=self._key_variable,
            pace=Pace(
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
        told, self._trouble = self._trouble, ""
        return told

    async def load(self) -> None:
        """Look for key and driver; embeds one word where the dimensions are not known."""
        if self._loaded:
            return
        self._headers()
        await asyncio.to_thread(import_httpx)
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
        except TooMuch:
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
        if not (key.isascii() and key.isprintable()) or " " in key:
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
