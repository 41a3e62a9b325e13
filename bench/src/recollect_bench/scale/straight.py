"""What the engine adds to its own SQL: the same statements again, sent straight with psycopg.

Three copies of a space are asked the same turns. One by the service's application in this process,
where every transaction is timed and what it sends is written down; one by a bare connection that
sends those statements again, with the same parameters in the same round trips, and makes Python
values of the rows; one by a real node over HTTP. All three begin in the same state and write the
same rows, so that each does the same work in the database.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import generators
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult
from psycopg.waiting import wait

from recollect.adapters.stores.postgres.link import SECONDS, Link, Shape, Statement
from recollect.adapters.stores.postgres.pool import Pool
from recollect.core.values.tenant import tenant_space
from recollect.errors import RecollectError
from recollect.hosts.service.app import Service, service_of
from recollect.system.config import load_settings
from recollect_bench.postgres_server import TestDatabase
from recollect_bench.scale.fleet import BenchTenant
from recollect_bench.scale.load import Connections, Traffic, http_post, turn_of

TURNS: Final = 4
"""That each copy is asked, one after the other in one conversation."""
WARM: Final = 2
"""Copies that are asked first and not counted: connections open, caches fill."""
MOST_FAILED: Final = 5
_OK: Final = 200
Trip: TypeAlias = list[Statement]


@dataclass(slots=True)
class _Sent:
    """One transaction: what it sent in each round trip, and what it sent without waiting. Empty if
    it was rolled back."""

    trips: list[tuple[Trip, bool]] = field(default_factory=list)
    seconds: float = 0.0


class _RecordedLink:
    """A link that writes down what goes through it."""

    def __init__(self, link: Link, sent: _Sent) -> None:
        self.connection = link.connection
        self._link, self._sent = link, sent

    async def run(self, statements: Sequence[Statement], *, seconds: float = SECONDS) -> None:
        """Send, wait and note."""
        self._sent.trips.append((list(statements), True))
        await self._link.run(statements, seconds=seconds)

    def leave(self, statements: Sequence[Statement]) -> None:
        """Send without waiting, and note."""
        self._sent.trips.append((list(statements), False))
        self._link.leave(statements)


class Recorder:
    """Stands between a pool and its transactions, and keeps what they sent."""

    def __init__(self, pool: Pool) -> None:
        self.sent: list[_Sent] = []
        self._open = 0
        self._all_ended = asyncio.Event()
        self._given = pool._borrow_link  # it is measured from within
        pool._borrow_link = self._link  # type: ignore[method-assign]

    @asynccontextmanager
    async def _link(self) -> AsyncIterator[Any]:
        giving: AbstractAsyncContextManager[Link] = self._given()
        begun = time.perf_counter()
        sent = _Sent()
        self.sent.append(sent)
        self._open += 1
        self._all_ended.clear()
        try:
            async with giving as link:
                yield _RecordedLink(link, sent)
        except BaseException:  # sent again without its end, it would never end
            sent.trips.clear()
            raise
        finally:
            sent.seconds = time.perf_counter() - begun
            self._open -= 1
            if not self._open:
                self._all_ended.set()

    async def take(self) -> list[_Sent]:
        """Wait for transactions that outlive their request, then return all and forget them."""
        if self._open:
            await asyncio.wait_for(self._all_ended.wait(), SECONDS)
        sent, self.sent = self.sent, []
        return [one for one in sent if one.trips]


class Straight:
    """One connection that sends what was written down, for another space. It prepares the same
    statements as the engine."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._pgconn = self._connection.pgconn
        self._pgconn.enter_pipeline_mode()
        self._loading = Transformer(self._connection)
        self._prepared: dict[Shape, bytes] = {}

    def seconds(self, sent: Sequence[_Sent], swap: Sequence[tuple[bytes, bytes]]) -> float:
        """How long all of it takes, without the time that preparing the bytes takes."""
        groups = [
            [_swapped(one, swap) for one in trip]
            for transaction in sent
            for trip in _waits(transaction)
        ]
        begun = time.perf_counter()
        for group in groups:
            for query, values, types, formats, is_prepared in group:
                if is_prepared:
                    self._pgconn.send_query_prepared(
                        self._name((query, tuple(types))),
                        values,
                        param_formats=formats,
                        result_format=Format.BINARY,
                    )
                else:
                    self._pgconn.send_query_params(
                        query,
                        values,
                        param_types=types,
                        param_formats=formats,
                        result_format=Format.BINARY,
                    )
            self._pgconn.pipeline_sync()
            for result in wait(self._answers(), self._pgconn.socket):
                if result.status == ExecStatus.TUPLES_OK:
                    self._loading.set_pgresult(result, format=Format.BINARY)
                    self._loading.load_rows(0, result.ntuples, tuple)
        return time.perf_counter() - begun

    def _name(self, shape: Shape) -> bytes:
        """Name the prepared statement, and prepare it first if the server does not know it."""
        if shape not in self._prepared:
            self._prepared[shape] = b"s%d" % len(self._prepared)
            self._pgconn.send_prepare(self._prepared[shape], *shape)
        return self._prepared[shape]

    def _answers(self) -> PQGen[list[PGresult]]:
        yield from generators.send(self._pgconn)
        answers: list[PGresult] = []
        while True:
            some = yield from generators.fetch_many(self._pgconn)
            if some and some[-1].status == ExecStatus.PIPELINE_SYNC:
                return answers
            if some and some[-1].status == ExecStatus.FATAL_ERROR:
                raise RecollectError(f"sent straight it failed: {some[-1].get_error_message()}")
            answers += some[-1:]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _waits(transaction: _Sent) -> list[Trip]:
    """Its round trips; what was sent without waiting goes along with the one before."""
    trips: list[Trip] = []
    for statements, waited in transaction.trips:
        if waited or not trips:
            trips.append(list(statements))
        else:
            trips[-1] += statements
    return trips


def _swapped(statement: Statement, swap: Sequence[tuple[bytes, bytes]]) -> tuple[Any, ...]:
    """A statement as it goes over the wire, of another space."""
    query, values = statement._query, statement._values
    for old, new in swap:
        query = query.replace(old, new)
        values = [bytes(value).replace(old, new) if value is not None else None for value in values]
    return query, values, statement._types, statement._formats, statement.shape is not None


@dataclass(slots=True)
class Compared:
    """Seconds of each prepare in the three ways, in the same order."""

    whole: list[float] = field(default_factory=list)
    """The service's application, without HTTP."""
    store: list[float] = field(default_factory=list)
    """Of that, within transactions."""
    straight: list[float] = field(default_factory=list)
    http: list[float] = field(default_factory=list)
    failed: int = 0
    """Requests over HTTP that were not answered with 200; they count nowhere else."""
    transactions: int = 0
    trips: int = 0
    statements: int = 0

    def figures(self) -> dict[str, float]:
        """Medians, and the ratios of medians."""
        straight = median(self.straight)
        count = len(self.straight)
        return {
            "engine_ratio": median(self.store) / straight,
            "engine_ratio_application": median(self.whole) / straight,
            "engine_ratio_http": median(self.http) / straight,
            "straight_p50_ms": straight * 1_000,
            "store_part_p50_ms": median(self.store) * 1_000,
            "application_p50_ms": median(self.whole) * 1_000,
            "http_p50_ms": median(self.http) * 1_000,
            "transactions_per_prepare": self.transactions / count,
            "round_trips_per_prepare": self.trips / count,
            "statements_per_prepare": self.statements / count,
            "ratio_failed": float(self.failed),
        }


def ratio_spaces(copies: int) -> list[str]:
    """The names of the copies that are needed, three of each."""
    return [f"ratio-{way}-{number:04d}" for number in range(copies) for way in "esh"]


async def compare(
    database: TestDatabase, port: int, tenant: BenchTenant, *, copies: int, passages: int
) -> Compared:
    """Ask the same turns in the three ways, one after the other."""
    settings = load_settings(
        arguments={"store.url": database.app_url, "jobs.in_process": False}
    ).settings
    service = service_of(settings)
    fleet = await service.memories.fleet()
    recorder = Recorder(fleet.pool)
    straight, node = Straight(database.app_url), Connections(port)
    compared = Compared()
    try:
        for number in range(copies):
            names = {way: f"ratio-{way}-{number:04d}" for way in "esh"}
            swap = [
                (
                    str(tenant.space_id(names["e"])).encode(),
                    str(tenant.space_id(names["s"])).encode(),
                ),
                (tenant.space_id(names["e"]).bytes, tenant.space_id(names["s"]).bytes),
                (
                    tenant_space(tenant.id, names["e"]).encode(),
                    tenant_space(tenant.id, names["s"]).encode(),
                ),
                (names["e"].encode(), names["s"].encode()),
            ]
            traffic = Traffic([tenant], [names["e"]], seed=number, passages=passages)
            for _ in range(TURNS):
                talk, request = traffic.prepare()
                await recorder.take()
                began = time.perf_counter()
                turn = turn_of(await _by_application(service, request))
                whole = time.perf_counter() - began
                sent = await recorder.take()
                alone = await asyncio.to_thread(straight.seconds, sent, swap)
                path = f"/v1/spaces/{names['h']}/sessions/{talk.session}/prepare"
                body = request.partition(b"\r\n\r\n")[2]
                began = time.perf_counter()
                status, answer = await node.ask(http_post(path, tenant.key, body))
                by_http = time.perf_counter() - began
                traffic.answered(talk, turn, observed=False)
                if status != _OK:
                    compared.failed += 1
                    if compared.failed > MOST_FAILED:
                        raise RecollectError(
                            f"{compared.failed} prepares failed: the last, in {names['h']}, was "
                            f"answered {status} after {by_http:.1f} s: {answer[:300]!r}"
                        )
                elif number >= min(WARM, copies - 1):
                    compared.whole.append(whole)
                    compared.store.append(sum(one.seconds for one in sent))
                    compared.straight.append(alone)
                    compared.http.append(by_http)
                    compared.transactions += len(sent)
                    compared.trips += sum(len(_waits(one)) for one in sent)
                    compared.statements += sum(len(trip) for one in sent for trip, _ in one.trips)
    finally:
        straight.close()
        await node.close()
        await service.memories.close()
    return compared


async def _by_application(service: Service, request: bytes) -> bytes:
    """The answer of the application in this process, without a socket."""
    head, _, body = request.partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")
    path = line.split(b" ")[1]
    told: dict[str, Any] = {"body": b""}
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        if left:
            return left.pop()
        await asyncio.Event().wait()
        raise AssertionError("nobody hangs up")

    async def send(message: MutableMapping[str, Any]) -> None:
        told.update({name: message[name] for name in ("status", "body") if name in message})

    scope = {
        "type": "http",
        "method": "POST",
        "path": path.decode(),
        "raw_path": path,
        "query_string": b"",
        "headers": [
            (name.strip().lower(), value.strip())
            for name, _, value in (header.partition(b":") for header in headers)
        ],
    }
    await service(scope, receive, send)
    if told["status"] != _OK:
        raise RecollectError(f"the service answered {told['status']}: {told['body'][:300]!r}")
    return bytes(told["body"])
