"""A client of a service (`recollect serve`).

    with MemoryClient("http://127.0.0.1:8789", key) as client:
        prepared = client.prepare("user-17", "chat-3", request)
        reply = ...  # send prepared.request, which is JSON as bytes, to the model
        client.observe("user-17", "chat-3", reply, turn=prepared.turn)

Each request that changes data has its own idempotency key. The client can repeat a request that
failed on the network or on a node, and nothing is done twice. Calls block: from an event loop, make
them in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec

from recollect.core.values.model import FormatName
from recollect.errors import ServiceError
from recollect.hosts.service import models as m
from recollect.system.http import import_driver, is_sendable_key, retry_after_seconds

if TYPE_CHECKING:
    import httpx2

AnswerT = TypeVar("AnswerT", bound=m.ApiAnswer)
AGAIN: Final = frozenset({409, 503, 504})
"""Statuses after which the client sends the same request again, unless a budget is spent."""
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0


class MemoryClient:
    """Calls a service with one key. Use a client in one thread at a time."""

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
        self._http: httpx2.Client = driver.Client(
            base_url=url,
            headers={"authorization": f"Bearer {key}", "x-request-timeout": f"{seconds:g}"},
            timeout=seconds + 5.0,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(
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
        return self._post(m.PreparedAnswer, body, space, "sessions", session, "prepare")

    def observe(
        self, space: str, session: str, reply: bytes | Any, *, turn: int | None = None
    ) -> m.ObservedAnswer:
        """Store the model's reply to a turn."""
        body = m.ObserveBody(reply=_raw(reply), turn=turn)
        return self._post(m.ObservedAnswer, body, space, "sessions", session, "observe")

    def ingest(
        self,
        space: str,
        session: str,
        messages: Sequence[bytes | Mapping[str, Any]],
        *,
        batch: str | None = None,
        said_at: float | None = None,
    ) -> m.IngestedAnswer:
        """Store messages outside of `prepare`: a whole session, or with `batch` one part of it."""
        body = m.IngestBody(messages=[_raw(one) for one in messages], batch=batch, said_at=said_at)
        return self._post(m.IngestedAnswer, body, space, "sessions", session, "ingest")

    def compact(
        self,
        space: str,
        session: str,
        request: bytes | Mapping[str, Any],
        *,
        instructions: str = "",
    ) -> m.CompactedAnswer:
        """Replace a session's older messages by a summary now."""
        body = m.CompactBody(request=_raw(request), instructions=instructions)
        return self._post(m.CompactedAnswer, body, space, "sessions", session, "compact")

    def undo(self, space: str, session: str) -> m.UndoneAnswer:
        """Undo the session's last compaction, so that requests contain its messages again."""
        return self._post(m.UndoneAnswer, None, space, "sessions", session, "undo")

    def search(
        self, space: str, query: str, *, session: str | None = None, budget_tokens: int = 2_000
    ) -> m.FoundAnswer:
        """Return the passages and facts that fit a query."""
        body = m.SearchBody(query=query, session=session, budget_tokens=budget_tokens)
        return self._post(m.FoundAnswer, body, space, "search")

    def sessions(self, space: str) -> Iterator[m.SessionItem]:
        """List the sessions of a space."""
        pages = self._pages(m.SessionsAnswer, "spaces", space, "sessions")
        return (one for page in pages for one in page.sessions)

    def receipts(self, space: str, session: str) -> Iterator[m.ReceiptItem]:
        """List the compactions of a session."""
        pages = self._pages(m.ReceiptsAnswer, "spaces", space, "sessions", session, "receipts")
        return (one for page in pages for one in page.receipts)

    def receipt(self, space: str, session: str, number: int) -> m.ReceiptAnswer:
        """Return which details a compaction's summary has, and which are lost."""
        where = ("spaces", space, "sessions", session, "receipts", str(number))
        return self._ask(m.ReceiptAnswer, "GET", where)

    def turns(self, space: str, session: str) -> Iterator[int]:
        """List the turns whose requests can be rebuilt."""
        pages = self._pages(m.TurnsAnswer, "spaces", space, "sessions", session, "turns")
        return (one for page in pages for one in page.turns)

    def replay(self, space: str, session: str, turn: int) -> m.ReplayAnswer:
        """Rebuild the request of a past turn."""
        where = ("spaces", space, "sessions", session, "turns", str(turn))
        return self._ask(m.ReplayAnswer, "GET", where)

    def export(self, space: str) -> Iterator[m.SegmentItem | m.FactItem]:
        """Export a space: messages in order of arrival, then facts."""
        for page in self._pages(m.ExportAnswer, "spaces", space, "export"):
            yield from page.segments
            yield from page.facts

    def facts(self, space: str, *, session: str | None = None) -> Iterator[m.FactItem]:
        """List facts."""
        given = {} if session is None else {"session": session}
        pages = self._pages(m.FactsAnswer, "spaces", space, "facts", given=given)
        return (one for page in pages for one in page.facts)

    def add_fact(
        self, space: str, content: str, *, subject: str = "", session: str | None = None
    ) -> m.FactWrittenAnswer:
        """Add a fact."""
        body = m.FactBody(content=content, subject=subject, session=session)
        return self._post(m.FactWrittenAnswer, body, space, "facts")

    def forget_fact(self, space: str, fact: str) -> m.CertificateAnswer:
        """Forget a fact permanently."""
        return self._ask(m.CertificateAnswer, "DELETE", ("spaces", space, "facts", fact))

    def forget(
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
        return self._post(m.CertificateAnswer, body, space, "forget")

    def preview_forget(
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
        preview = self._post(m.ForgottenAnswer, body, space, "forget").preview
        assert preview is not None
        return preview

    def spaces(self) -> Iterator[m.SpaceItem]:
        """List the spaces of the key's tenant."""
        return (one for page in self._pages(m.SpacesAnswer, "spaces") for one in page.spaces)

    def delete_space(self, space: str) -> m.CertificateAnswer:
        """Delete a space with everything in it."""
        return self._ask(m.CertificateAnswer, "DELETE", ("spaces", space))

    def tenant(self) -> m.TenantAnswer:
        """Return the key's tenant and how much of its budgets is used."""
        return self._ask(m.TenantAnswer, "GET", ("tenant",))

    def audit(self) -> Iterator[m.AuditItem]:
        """List administrative actions, newest first."""
        return (one for page in self._pages(m.AuditAnswer, "audit") for one in page.acts)

    def _post(
        self, kind: type[AnswerT], body: m.ApiBody | None, space: str, *where: str
    ) -> AnswerT:
        return self._ask(kind, "POST", ("spaces", space, *where), body=body)

    def _pages(
        self, kind: type[AnswerT], *where: str, given: Mapping[str, str] | None = None
    ) -> Iterator[AnswerT]:
        cursor: str | None = None
        while True:
            asked = dict(given or {}) | ({} if cursor is None else {"cursor": cursor})
            page = self._ask(kind, "GET", where, query=asked)
            yield page
            cursor = getattr(page, "next", None)
            if cursor is None:
                return

    def _ask(
        self,
        kind: type[AnswerT],
        method: str,
        where: Sequence[str],
        *,
        body: m.ApiBody | None = None,
        query: Mapping[str, str] | None = None,
    ) -> AnswerT:
        path = "/v1/" + "/".join(quote(part, safe="") for part in where)
        headers = {} if method == "GET" else {"idempotency-key": uuid4().hex}
        content = b""
        if body is not None:
            content, headers["content-type"] = msgspec.json.encode(body), "application/json"

        def send() -> httpx2.Response:
            return self._http.request(
                method, path, content=content, headers=headers, params=dict(query or {})
            )

        answer = self._retry(send)
        if answer.status_code != 200:
            raise _refusal(answer)
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.DecodeError:
            raise ServiceError(
                "the server that answered is not a Recollect service: check the address", status=200
            ) from None

    def _retry(self, send: Callable[[], httpx2.Response]) -> httpx2.Response:
        until, pause = time.monotonic() + self._patience, FIRST_PAUSE_SECONDS
        while True:
            answer: httpx2.Response | None = None
            wait, error_name = pause, ""
            try:
                answer = send()
            except self._network_error as error:
                # the error's text may contain the request with the key
                error_name = type(error).__name__
            else:
                if answer.status_code not in AGAIN:
                    return answer
                wait = max(
                    pause, min(retry_after_seconds(answer.headers) or 0.0, LONGEST_PAUSE_SECONDS)
                )
            if time.monotonic() + wait > until:
                if answer is not None:
                    return answer
                raise ServiceError(
                    f"the service cannot be reached ({error_name}): check its address"
                )
            time.sleep(wait)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def _raw(given: bytes | Any) -> msgspec.Raw:
    return msgspec.Raw(given if isinstance(given, bytes) else msgspec.json.encode(given))


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
