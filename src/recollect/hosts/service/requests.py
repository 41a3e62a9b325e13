"""Requests as they come over HTTP: their line, headers, parameters and body, read and checked.

What is not as it must be is a Problem that says what is wrong. Nothing here knows whose request
it is or asks memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from recollect.hosts.gateway.asgi import Receive, unless_gone
from recollect.hosts.service import models as m
from recollect.hosts.service.logs import RequestRecord
from recollect.hosts.service.problems import Problem, ProblemKind

Scope: TypeAlias = MutableMapping[str, Any]
Header: TypeAlias = tuple[bytes, bytes]
Answer: TypeAlias = tuple[int, list[Header], bytes]
"""A status, headers and a body."""

_MOST_NAME: Final = 512


@dataclass(slots=True, kw_only=True)
class Incoming:
    """A request before it is known what it wants."""

    method: str
    parts: tuple[str, ...]
    query: str
    headers: dict[str, str]
    target: bytes
    began: float
    record: RequestRecord
    body: bytes = field(default=b"", repr=False)


def read_request(scope: Scope, record: RequestRecord) -> Incoming:
    """A request's line and headers; Problem where they cannot be read."""
    raw = bytes(scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape"))
    raw = raw.partition(b"?")[0]
    try:
        parts = tuple(unquote_to_bytes(part).decode() for part in raw.split(b"/")[1:])
        query = bytes(scope.get("query_string") or b"").decode("ascii")
    except UnicodeDecodeError:
        raise Problem(ProblemKind.BAD_REQUEST, "the path is not UTF-8") from None
    for part in parts:
        if part in {"", ".", ".."} or len(part) > _MOST_NAME or not part.strip():
            raise Problem(
                ProblemKind.NOT_FOUND,
                "a name in the path is empty or too long: see /openapi.json for what there is",
            )
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        if key in headers and key in {"authorization", "idempotency-key", "x-request-timeout"}:
            raise Problem(ProblemKind.BAD_REQUEST, f"{key} stands twice")
        headers[key] = value.decode("latin-1")
    return Incoming(
        method=scope["method"],
        parts=parts,
        query=query,
        headers=headers,
        target=raw + b"?" + query.encode(),
        began=time.monotonic(),
        record=record,
    )


def read_query(text: str, kind: type[m.ApiBody]) -> m.ApiBody:
    """The parameters of a request; Problem where they are not as they must be."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), errors="strict")
        if len({name for name, _ in pairs}) != len(pairs):
            raise Problem(ProblemKind.BAD_REQUEST, "a parameter stands twice")
        return msgspec.convert(dict(pairs), kind, strict=False)
    except msgspec.ValidationError as error:
        takes = ", ".join(kind.__struct_encode_fields__) or "no parameters"
        raise Problem(ProblemKind.INVALID, f"{error}; this takes {takes}") from None
    except ValueError:
        raise Problem(ProblemKind.BAD_REQUEST, "the query cannot be read") from None


def decoded(body: bytes, kind: type[m.ApiBody]) -> m.ApiBody:
    """The body of a request; Problem where it is not as it must be."""
    try:
        body.decode()  # what is passed on unread has to be text, too
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        takes = ", ".join(kind.__struct_encode_fields__)
        raise Problem(ProblemKind.INVALID, f"{error}; this body takes {takes}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Problem(ProblemKind.BAD_REQUEST, "the body is not JSON") from None


async def unless_gone_after(receive: Receive, work: Callable[[Receive], Awaitable[None]]) -> None:
    """Do it, and stop when the client is gone once its whole request has come."""
    whole = asyncio.Event()

    async def noting() -> MutableMapping[str, Any]:
        message = await receive()
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            whole.set()
        return message

    async def watching() -> MutableMapping[str, Any]:
        await whole.wait()
        return await receive()

    await unless_gone(watching, work(noting))


def replaying(body: bytes, receive: Receive) -> Receive:
    """A body that has been read, to be read again; behind it, what comes from the client."""
    left = [body]

    async def replayed() -> MutableMapping[str, Any]:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return replayed
