"""Vectors from a provider over the network: OpenAI and all that speak its wire, Gemini, Voyage.

Owns batches, cutting, and holding what comes back to account. Texts leave this machine here, so
they must be redacted already: passages are, because the store holds nothing else; whoever asks a
question redacts it first. Never shows a text or a key, in an error, a log or a repr; never sends
a provider's key to another server. Always holds: a vector that is handed out has the known number
of dimensions, all finite, length one.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.parse
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Final, Literal

import numpy as np

from recollect.embedders.remote_calls import Bounds, Caller, Pace, TooMuch, import_httpx
from recollect.embedders.remote_wires import (
    WIRES,
    Ask,
    Purpose,
    RemoteProvider,
    Vectors,
    WrongAnswer,
)
from recollect.errors import EmbedderError

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
