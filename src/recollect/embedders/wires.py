"""How each provider of embeddings is asked, and how its answers are read.

Owns addresses, bodies, limits and usual models. Pure: it opens nothing and keeps nothing. Never
puts a key into an address. The wire formats are those of
platform.openai.com/docs/api-reference/embeddings, ai.google.dev/api/embeddings and
docs.voyageai.com/reference/embeddings-api.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

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
