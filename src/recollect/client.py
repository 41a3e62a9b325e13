"""A client of a service (`recollect serve`).

    with MemoryClient("http://127.0.0.1:8789", key) as client:
        prepared = client.prepare("user-17", "chat-3", request)
        reply = ...  # send prepared.request, which is JSON as bytes, to the model
        client.observe("user-17", "chat-3", reply, turn=prepared.turn)

Each request that changes data has its own idempotency key. The client can repeat a request that
failed on the network or on a node, and nothing is done twice. `AsyncMemoryClient` has the same
methods for code with an event loop; those that list are read with `async for`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec

from recollect.core.values.model import FormatName
from recollect.errors import ServiceError
from recollect.hosts.service import models as m
from recollect.system.forks import OwnProcess, leave_to_parent
from recollect.system.http import import_driver, is_sendable_key, retry_after_seconds

if TYPE_CHECKING:
    import httpx2

AnswerT = TypeVar("AnswerT", bound=m.ApiAnswer)
T = TypeVar("T")
P = ParamSpec("P")
RETRY_STATUSES: Final = frozenset({409, 503, 504})
"""Statuses after which the client sends the same request again, unless a budget is spent."""
# Not measured: a busy node recovers within seconds, and the pauses double.
FIRST_PAUSE_SECONDS: Final = 0.1
MAX_PAUSE_SECONDS: Final = 5.0


class AsyncMemoryClient:
    """Calls a service with one key, from an event loop."""

    def __init__(
        self, url: str, key: str, *, seconds: float = 30.0, patience_seconds: float = 60.0
    ) -> None:
        """`seconds` limits one attempt, `patience_seconds` all attempts of a call."""
        driver = import_driver("the client of a service")
        if not url.startswith(("http://", "https://")):
            raise ServiceError("the address of a service must begin with http:// or https://")
        key = key.strip()  # a key from a file may end with a newline
        if not (key and is_sendable_key(key)):
            raise ServiceError(
                "the key is not valid: pass a key that `recollect key create` printed"
            )
        self._patience = patience_seconds
        self._network_error: type[Exception] = driver.HTTPError
        self._client_options: dict[str, Any] = {
            "base_url": url,
            "headers": {"authorization": f"Bearer {key}", "x-request-timeout": f"{seconds:g}"},
            "timeout": seconds + 5.0,
        }
        self._driver = driver
        self._process = OwnProcess()
        self._open(driver)

    def _open(self, driver: Any) -> None:
        self._http: httpx2.AsyncClient = driver.AsyncClient(**self._client_options)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def prepare(
        self,
        space: str,
        session: str,
        request: bytes | Mapping[str, Any],
        *,
        format: FormatName | None = None,  # noqa: A002
        betas: Sequence[str] = (),
        window_tokens: int | None = None,
    ) -> m.PreparedAnswer:
        """Fit a request into the model's window, and add memories. Send the answer's `request`
        (JSON as bytes) instead of yours. `betas` are the beta features in your request's
        headers."""
        body = m.PrepareBody(
            request=_raw(request), format=format, betas=list(betas), window_tokens=window_tokens
        )
        return await self._post(m.PreparedAnswer, body, space, "sessions", session, "prepare")

    async def observe(
        self, space: str, session: str, reply: bytes | Any, *, turn: int | None = None
    ) -> m.ObservedAnswer:
        """Store the model's reply to a turn."""
        body = m.ObserveBody(reply=_raw(reply), turn=turn)
        return await self._post(m.ObservedAnswer, body, space, "sessions", session, "observe")

    async def ingest(
        self,
        space: str,
        session: str,
        messages: Sequence[bytes | Mapping[str, Any]],
        *,
        batch: str | None = None,
        said_at: float | None = None,
    ) -> m.IngestedAnswer:
        """Store messages outside of `prepare`: a whole session, or with `batch` one part of it."""
        body = m.IngestBody(
            messages=[_raw(message) for message in messages], batch=batch, said_at=said_at
        )
        return await self._post(m.IngestedAnswer, body, space, "sessions", session, "ingest")

    async def compact(
        self,
        space: str,
        session: str,
        request: bytes | Mapping[str, Any],
        *,
        instructions: str = "",
    ) -> m.CompactedAnswer:
        """Replace a session's older messages by a summary now."""
        body = m.CompactBody(request=_raw(request), instructions=instructions)
        return await self._post(m.CompactedAnswer, body, space, "sessions", session, "compact")

    async def undo(self, space: str, session: str) -> m.UndoneAnswer:
        """Undo the session's last compaction, so that requests contain its messages again."""
        return await self._post(m.UndoneAnswer, None, space, "sessions", session, "undo")

    async def search(
        self, space: str, query: str, *, session: str | None = None, budget_tokens: int = 2_000
    ) -> m.FoundAnswer:
        """Return the passages and facts that fit a query."""
        body = m.SearchBody(query=query, session=session, budget_tokens=budget_tokens)
        return await self._post(m.FoundAnswer, body, space, "search")

    def sessions(self, space: str) -> AsyncIterator[m.SessionItem]:
        """List the sessions of a space."""
        pages = self._pages(m.SessionsAnswer, "spaces", space, "sessions")
        return (session async for page in pages for session in page.sessions)

    def receipts(self, space: str, session: str) -> AsyncIterator[m.ReceiptItem]:
        """List the compactions of a session."""
        pages = self._pages(m.ReceiptsAnswer, "spaces", space, "sessions", session, "receipts")
        return (receipt async for page in pages for receipt in page.receipts)

    async def receipt(self, space: str, session: str, number: int) -> m.ReceiptAnswer:
        """Return which details a compaction's summary has, and which are lost."""
        path_parts = ("spaces", space, "sessions", session, "receipts", str(number))
        return await self._ask(m.ReceiptAnswer, "GET", path_parts)

    def turns(self, space: str, session: str) -> AsyncIterator[int]:
        """List the turns whose requests can be rebuilt."""
        pages = self._pages(m.TurnsAnswer, "spaces", space, "sessions", session, "turns")
        return (turn async for page in pages for turn in page.turns)

    async def replay(self, space: str, session: str, turn: int) -> m.ReplayAnswer:
        """Rebuild the request of a past turn."""
        path_parts = ("spaces", space, "sessions", session, "turns", str(turn))
        return await self._ask(m.ReplayAnswer, "GET", path_parts)

    async def export(self, space: str) -> AsyncIterator[m.SegmentItem | m.FactItem]:
        """Export a space: messages in order of arrival, then facts."""
        async for page in self._pages(m.ExportAnswer, "spaces", space, "export"):
            for segment in page.segments:
                yield segment
            for fact in page.facts:
                yield fact

    def facts(self, space: str, *, session: str | None = None) -> AsyncIterator[m.FactItem]:
        """List facts."""
        query = {} if session is None else {"session": session}
        pages = self._pages(m.FactsAnswer, "spaces", space, "facts", query=query)
        return (fact async for page in pages for fact in page.facts)

    async def add_fact(
        self, space: str, content: str, *, subject: str = "", session: str | None = None
    ) -> m.FactWrittenAnswer:
        """Add a fact."""
        body = m.FactBody(content=content, subject=subject, session=session)
        return await self._post(m.FactWrittenAnswer, body, space, "facts")

    async def forget_fact(self, space: str, fact: str) -> m.CertificateAnswer:
        """Forget a fact permanently."""
        return await self._ask(m.CertificateAnswer, "DELETE", ("spaces", space, "facts", fact))

    async def forget(
        self,
        space: str,
        *,
        segments: Sequence[str] = (),
        sessions: Sequence[str] = (),
        said_before: float | None = None,
        said_after: float | None = None,
        matching: str | None = None,
    ) -> m.CertificateAnswer:
        """Forget messages and everything that quotes them, permanently."""
        body = m.ForgetBody(
            segments=list(segments),
            sessions=list(sessions),
            said_before=said_before,
            said_after=said_after,
            matching=matching,
        )
        return await self._post(m.CertificateAnswer, body, space, "forget")

    async def preview_forget(
        self,
        space: str,
        *,
        segments: Sequence[str] = (),
        sessions: Sequence[str] = (),
        said_before: float | None = None,
        said_after: float | None = None,
        matching: str | None = None,
    ) -> m.ForgetPreview:
        """List what `forget` would remove, and change nothing."""
        body = m.ForgetBody(
            segments=list(segments),
            sessions=list(sessions),
            said_before=said_before,
            said_after=said_after,
            matching=matching,
            dry_run=True,
        )
        preview = (await self._post(m.ForgottenAnswer, body, space, "forget")).preview
        assert preview is not None
        return preview

    def spaces(self) -> AsyncIterator[m.SpaceItem]:
        """List the spaces of the key's tenant."""
        return (
            space async for page in self._pages(m.SpacesAnswer, "spaces") for space in page.spaces
        )

    async def delete_space(self, space: str) -> m.CertificateAnswer:
        """Delete a space with everything in it."""
        return await self._ask(m.CertificateAnswer, "DELETE", ("spaces", space))

    async def tenant(self) -> m.TenantAnswer:
        """Return the key's tenant and how much of its budgets is used."""
        return await self._ask(m.TenantAnswer, "GET", ("tenant",))

    def audit(self) -> AsyncIterator[m.AuditItem]:
        """List administrative actions, newest first."""
        return (act async for page in self._pages(m.AuditAnswer, "audit") for act in page.acts)

    async def _post(
        self, kind: type[AnswerT], body: m.ApiBody | None, space: str, *path_parts: str
    ) -> AnswerT:
        return await self._ask(kind, "POST", ("spaces", space, *path_parts), body=body)

    async def _pages(
        self, kind: type[AnswerT], *path_parts: str, query: Mapping[str, str] | None = None
    ) -> AsyncIterator[AnswerT]:
        cursor: str | None = None
        while True:
            page_query = dict(query or {}) | ({} if cursor is None else {"cursor": cursor})
            page = await self._ask(kind, "GET", path_parts, query=page_query)
            yield page
            cursor = getattr(page, "next", None)
            if cursor is None:
                return

    async def _ask(
        self,
        kind: type[AnswerT],
        method: str,
        path_parts: Sequence[str],
        *,
        body: m.ApiBody | None = None,
        query: Mapping[str, str] | None = None,
    ) -> AnswerT:
        path = "/v1/" + "/".join(quote(part, safe="") for part in path_parts)
        headers = {} if method == "GET" else {"idempotency-key": uuid4().hex}
        content = b""
        if body is not None:
            content, headers["content-type"] = msgspec.json.encode(body), "application/json"

        arguments = {"content": content, "headers": headers, "params": dict(query or {})}
        answer = await self._retry(method, path, arguments)
        if answer.status_code != 200:
            raise _refusal(answer)
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.DecodeError:
            raise ServiceError(
                "the server that answered is not a Recollect service: check the address", status=200
            ) from None

    async def _send(self, method: str, path: str, arguments: Mapping[str, Any]) -> httpx2.Response:
        return await self._http.request(method, path, **arguments)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _retry(self, method: str, path: str, arguments: Mapping[str, Any]) -> httpx2.Response:
        if self._process.is_other:  # the parent's connections carry the parent's answers
            leave_to_parent(vars(self).copy())
            self._process = OwnProcess()
            self._open(self._driver)
        until, pause = time.monotonic() + self._patience, FIRST_PAUSE_SECONDS
        while True:
            answer: httpx2.Response | None = None
            wait, error_name = pause, ""
            try:
                answer = await self._send(method, path, arguments)
            except self._network_error as error:
                # the error's text may contain the request with the key
                error_name = type(error).__name__
            else:
                if answer.status_code not in RETRY_STATUSES:
                    return answer
                wait = max(
                    pause, min(retry_after_seconds(answer.headers) or 0.0, MAX_PAUSE_SECONDS)
                )
            if time.monotonic() + wait > until:
                if answer is not None:
                    return answer
                raise ServiceError(
                    f"the service cannot be reached ({error_name}): check its address"
                )
            await self._pause(wait)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)


class _BlockingCalls(AsyncMemoryClient):
    """The same calls, whose coroutines block instead of waiting for an event loop."""

    def _open(self, driver: Any) -> None:
        self._blocking: httpx2.Client = driver.Client(**self._client_options)

    async def close(self) -> None:
        self._blocking.close()

    async def _send(self, method: str, path: str, arguments: Mapping[str, Any]) -> httpx2.Response:
        return self._blocking.request(method, path, **arguments)

    async def _pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - the caller wants to block


def _finish(work: Coroutine[Any, Any, T]) -> T:
    try:
        work.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    raise RuntimeError("a blocking call waited for an event loop")


def _blocking(
    call: Callable[Concatenate[AsyncMemoryClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[MemoryClient, P], T]:
    @wraps(call)
    def wait(self: MemoryClient, /, *args: P.args, **options: P.kwargs) -> T:
        return _finish(call(self._calls, *args, **options))

    return wait


def _listing(
    call: Callable[Concatenate[AsyncMemoryClient, P], AsyncIterator[T]],
) -> Callable[Concatenate[MemoryClient, P], Iterator[T]]:
    @wraps(call)
    def iterate(self: MemoryClient, /, *args: P.args, **options: P.kwargs) -> Iterator[T]:
        items = call(self._calls, *args, **options)

        async def following() -> T:
            return await anext(items)

        while True:
            try:
                yield _finish(following())
            except StopAsyncIteration:
                return

    return iterate


class MemoryClient:
    """Has the methods of `AsyncMemoryClient`, which block. Use a client in one thread at a time."""

    def __init__(
        self, url: str, key: str, *, seconds: float = 30.0, patience_seconds: float = 60.0
    ) -> None:
        """`seconds` limits one attempt, `patience_seconds` all attempts of a call."""
        self._calls = _BlockingCalls(url, key, seconds=seconds, patience_seconds=patience_seconds)

    def close(self) -> None:
        """Close the connections."""
        _finish(self._calls.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    prepare: Final = _blocking(AsyncMemoryClient.prepare)
    observe: Final = _blocking(AsyncMemoryClient.observe)
    ingest: Final = _blocking(AsyncMemoryClient.ingest)
    compact: Final = _blocking(AsyncMemoryClient.compact)
    undo: Final = _blocking(AsyncMemoryClient.undo)
    search: Final = _blocking(AsyncMemoryClient.search)
    sessions: Final = _listing(AsyncMemoryClient.sessions)
    receipts: Final = _listing(AsyncMemoryClient.receipts)
    receipt: Final = _blocking(AsyncMemoryClient.receipt)
    turns: Final = _listing(AsyncMemoryClient.turns)
    replay: Final = _blocking(AsyncMemoryClient.replay)
    export: Final = _listing(AsyncMemoryClient.export)
    facts: Final = _listing(AsyncMemoryClient.facts)
    add_fact: Final = _blocking(AsyncMemoryClient.add_fact)
    forget_fact: Final = _blocking(AsyncMemoryClient.forget_fact)
    forget: Final = _blocking(AsyncMemoryClient.forget)
    preview_forget: Final = _blocking(AsyncMemoryClient.preview_forget)
    spaces: Final = _listing(AsyncMemoryClient.spaces)
    delete_space: Final = _blocking(AsyncMemoryClient.delete_space)
    tenant: Final = _blocking(AsyncMemoryClient.tenant)
    audit: Final = _listing(AsyncMemoryClient.audit)


def _raw(value: bytes | Any) -> msgspec.Raw:
    return msgspec.Raw(value if isinstance(value, bytes) else msgspec.json.encode(value))


def _refusal(answer: httpx2.Response) -> ServiceError:
    status = answer.status_code
    try:
        problem = msgspec.json.decode(answer.content, type=m.ProblemAnswer)
    except msgspec.DecodeError:
        return ServiceError(
            f"the server answered {status}, but not as a Recollect service does: check the address",
            status=status,
        )
    return ServiceError(
        f"{problem.title}: {problem.detail}",
        status=status,
        problem=problem.type.rsplit(":", 1)[-1],
        retry_after=retry_after_seconds(answer.headers),
        budget=problem.budget,
    )
