"""Records of the gateway's requests: of each open request, and of the newest ones for clients that
watch. Records are in RAM, without message content or keys: sizes, times, names and reasons."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Iterator, MutableMapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import count
from typing import Any, Final

from recollect.core.boundary import Failure
from recollect.core.engine import Observation
from recollect.core.values.report import Report
from recollect.hosts.gateway.access import TOKEN_HEADER, without_token
from recollect.hosts.gateway.credentials import Headers

MOST_RECORDS: Final = 1_000  # not measured; bounds memory
MOST_REPORTS: Final = 64  # not measured; a report holds the texts of edits
MAX_UNREAD: Final = 1_000
"""If a watcher has more unread records than this, the oldest of them are dropped."""
_LAST_EVENTS: Final = (b"data: [DONE]", b"event: message_stop", b"event: response.completed")
_LONG_CHARS: Final = 20  # longer words with digits are ids, which are left out
_SEPARATORS: Final = frozenset("-._")


class Handling(Enum):
    """What the gateway did with a request, in words for people."""

    SHAPED = "shaped"
    AS_IT_CAME = "as it came"
    PASSED = "passed through"
    WITHOUT_MEMORY = "without memory"
    """Memory failed, so the gateway sent the best view that it could build without memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRecord:
    """The record of one request, from its arrival to the end of its reply."""

    number: int
    at: float
    method: str
    path: str
    client: str
    kind: str
    space: str | None = None
    session: str | None = None
    turn: int | None = None
    handling: str = Handling.PASSED.value
    why: str = ""
    model: str | None = None
    tokens_came: int | None = None
    tokens_sent: int | None = None
    usage: dict[str, int] | None = None
    dollars: float | None = None
    """Cost, including summaries since the last turn; None if price or usage is unknown."""
    done: tuple[str, ...] = ()
    not_recalled: str = ""
    """Why recall found nothing for this request."""
    failed: tuple[str, ...] = ()
    overflows: int = 0
    status: int | None = None
    added_ms: float = 0.0
    first_byte_ms: float | None = None
    seconds: float = 0.0
    outcome: str = ""


@dataclass(slots=True)
class Exchange:
    """One request while the gateway handles it."""

    method: str
    path: str
    target: str
    query: str = field(repr=False)
    headers: Headers = field(repr=False)
    token: str = field(repr=False)
    """The access token of the request; empty if the client sent none."""
    record: ExchangeRecord
    body: bytes = field(default=b"", repr=False)
    began: float = field(default_factory=time.perf_counter)
    has_started: bool = False
    """True once the client has received the start of a reply."""
    report: Report | None = field(default=None, repr=False)
    in_memory: bool = False
    ending: bytes = field(default=b"", repr=False)
    """The last bytes that were relayed to the client."""
    reading: asyncio.Future[Observation | Failure] | None = field(default=None, repr=False)
    """Done when the reply was read and the record is complete."""

    @classmethod
    def of(cls, scope: MutableMapping[str, Any], number: int) -> Exchange:
        """Create an exchange for a new request, without its access token in the path or headers."""
        raw_path = bytes(scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        raw_path, _ = without_token(raw_path)
        path, token = without_token(scope["path"])
        query = bytes(scope.get("query_string") or b"").decode("latin-1")
        headers = [(_text(name), _text(value)) for name, value in scope["headers"]]
        header_token = next((value for name, value in headers if name == TOKEN_HEADER), "")
        record = ExchangeRecord(
            number=number,
            at=time.time(),
            method=scope["method"],
            path=mask_path(path),
            client="other",
            kind="",
        )
        return cls(
            method=scope["method"],
            path=path,
            target=raw_path + (f"?{query}" if query else ""),
            query=query,
            headers=headers,
            token=token or header_token,
            record=record,
        )

    def header(self, name: str) -> str:
        """Return the first value of a header, by its lower-case name; empty if it is missing."""
        return next((value for key, value in self.headers if key == name), "")

    @property
    def has_ended(self) -> bool:
        """True if the last event of a stream was received, after which some clients disconnect."""
        return any(mark in self.ending for mark in _LAST_EVENTS)

    def note(self, **changes: Any) -> None:
        self.record = replace(self.record, **changes)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def mask_path(path: str) -> str:
    """Return a path for records and logs, with parts masked that may be a key."""
    return "/".join("…" if _may_be_key(part) else part for part in path.split("/"))


def _may_be_key(part: str) -> bool:
    if len(part) <= _LONG_CHARS or not any(map(str.isdigit, part)):
        return False
    return any(map(str.isupper, part)) or _SEPARATORS.isdisjoint(part)


def describe_report(report: Report) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a report's fields for the record, and the whole report, both without content."""
    lines = {
        "session": report.session,
        "turn": report.turn,
        "model": report.model,
        "tokens_came": report.tokens_before,
        "tokens_sent": report.tokens_after,
        "done": tuple(report.done()),
        "not_recalled": report.not_recalled(),
        "failed": tuple(f"{line.stage}: {line.said}" for line in report.failures),
    }
    return lines, {**report.to_dict(), "summary": report.summary()}


_MODEL_PATHS: Final = ("/messages", "/chat/completions", "/responses")


class Activity:
    """The newest records, and the clients that watch them."""

    def __init__(self) -> None:
        self._records: deque[ExchangeRecord] = deque(maxlen=MOST_RECORDS)
        self._watchers: set[asyncio.Queue[ExchangeRecord | None]] = set()
        self._reports: OrderedDict[tuple[str, str], dict[str, Any]] = OrderedDict()
        self.numbers: Iterator[int] = count(1)
        self.has_model_requests: bool = False

    def add(self, record: ExchangeRecord) -> None:
        self._records.append(record)
        self.has_model_requests |= record.path.endswith(_MODEL_PATHS)
        self._announce(record)

    def end(self) -> None:
        """End all watchers, because the gateway stops."""
        self._announce(None)

    def _announce(self, record: ExchangeRecord | None) -> None:
        for queue in self._watchers:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(record)

    def keep_report(self, space: str, report: dict[str, Any]) -> None:
        key = (space, report["session"])
        self._reports[key] = report
        self._reports.move_to_end(key)
        while len(self._reports) > MOST_REPORTS:
            self._reports.popitem(last=False)

    def report(self, name: str) -> dict[str, Any] | None:
        """Return the newest report of the session whose name ends with `name`, if any."""
        ending = (key for key in reversed(self._reports) if key[1].endswith(name))
        return self._reports.get(next(ending, ("", "")))

    def newest_records(self, max_records: int) -> tuple[ExchangeRecord, ...]:
        return tuple(self._records)[-max_records:] if max_records else ()

    async def follow(self, max_records: int = 0) -> AsyncGenerator[ExchangeRecord]:
        """Yield the newest `most` records, then each new record when its request ends."""
        queue: asyncio.Queue[ExchangeRecord | None] = asyncio.Queue(MAX_UNREAD)
        self._watchers.add(queue)
        try:
            for record in self.newest_records(max_records):
                yield record
            while (next_record := await queue.get()) is not None:
                yield next_record
        finally:
            self._watchers.discard(queue)
