"""One connection, driven in pipeline mode: many statements go out at once, one wait for all.

Sits on psycopg's low-level interface: its cursors wait at the event loop for every statement of
a pipeline, which took longer than the statements themselves. What always holds: after `run` every
result has been read and the first error raised; a link whose last use was cut off, or took
longer than it may, is closed, never handed out again.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import select
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult

from recollect.stores.postgres.driver import psycopg, sql_errors

Connection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"
Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]
_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s|%s")
SECONDS: Final = 60.0
"""How long the server may take over what it was sent; a generous limit for one that hangs."""
_CANCEL_SECONDS: Final = 2.0
_GOOD: Final = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY)


@lru_cache(maxsize=512)
def _numbered(query: str) -> tuple[bytes, tuple[str, ...]]:
    """The query with $1, $2, …, and the names of its parameters where it names them."""
    names: dict[str, int] = {}
    count = 0

    def number(found: re.Match[str]) -> str:
        nonlocal count
        named = found.group(1)
        if named is None:
            count += 1
            return f"${count}"
        return f"${names.setdefault(named, len(names) + 1)}"

    return _PLACEHOLDER.sub(number, query).encode(), tuple(names)


class Statement:
    """A statement that was queued, and its rows once it has run."""

    __slots__ = ("_connection", "_result", "formats", "query", "types", "values")

    def __init__(self, connection: Connection, query: str, parameters: Parameters) -> None:
        self.query, names = _numbered(query)
        given = (
            [parameters[name] for name in names]
            if isinstance(parameters, Mapping)
            else list(parameters)
        )
        adapting = Transformer(connection)
        self.values = adapting.dump_sequence(given, [PyFormat.AUTO] * len(given)) if given else []
        self.types = adapting.types or ()
        self.formats = adapting.formats or ()
        self._connection = connection
        self._result: PGresult | None = None

    def take(self, result: PGresult) -> None:
        """Keep the result, or raise the error that it is."""
        if result.status not in _GOOD:
            raise _error(result)
        self._result = result

    @property
    def done(self) -> bool:
        """Whether it has run."""
        return self._result is not None

    def rows(self) -> list[tuple[Any, ...]]:
        """Its rows."""
        assert self._result is not None
        loading = Transformer(self._connection)
        loading.set_pgresult(self._result, format=Format.BINARY)
        return loading.load_rows(0, self._result.ntuples, tuple)


class Link:
    """A connection in pipeline mode."""

    __slots__ = ("_broken", "_owing", "_pgconn", "connection")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._pgconn = connection.pgconn
        self._pgconn.enter_pipeline_mode()
        self._owing = False
        self._broken = False

    async def run(self, statements: Sequence[Statement], *, seconds: float = SECONDS) -> None:
        """Send statements and read all their results; raises the first error."""
        self._send(statements)
        try:
            async with asyncio.timeout(seconds):
                await self._receive(statements)
        except TimeoutError:
            # The server may be gone without a word, or busy with it for ever: ask it to stop.
            self._broken = True
            with contextlib.suppress(psycopg.Error):
                await self.connection.cancel_safe(timeout=_CANCEL_SECONDS)
            raise

    def leave(self, statements: Sequence[Statement]) -> None:
        """Send statements and do not wait: the results are read before the next use."""
        self._send(statements)
        self._pgconn.flush()
        self._owing = True

    async def usable(self) -> bool:
        """Whether it can be used again; costs no round trip."""
        if self._pgconn.status != ConnStatus.OK:
            return False
        if self._owing:
            self._owing = False
            try:
                async with asyncio.timeout(SECONDS):
                    await self._receive(())
            except (psycopg.Error, TimeoutError):
                return False
        watched = select.poll()
        watched.register(self._pgconn.socket, select.POLLIN)
        # An idle connection with something to read was closed, or is about to be.
        idle = self._pgconn.transaction_status == TransactionStatus.IDLE
        return idle and not watched.poll(0)

    async def undo(self) -> bool:
        """Roll back what is open; whether the link can be used again."""
        if self._broken:
            return False
        try:
            if self._pgconn.status == ConnStatus.OK:
                await self.run((Statement(self.connection, "ROLLBACK", ()),))
        except (psycopg.Error, TimeoutError):
            return False
        return self._pgconn.status == ConnStatus.OK and self.idle

    @property
    def idle(self) -> bool:
        """Whether no transaction is open, and no result is missing."""
        return self._owing or self._pgconn.transaction_status == TransactionStatus.IDLE

    async def close(self) -> None:
        """Close the connection; a transaction that was open is undone."""
        await self.connection.close()

    def _send(self, statements: Sequence[Statement]) -> None:
        for one in statements:
            self._pgconn.send_query_params(
                one.query,
                one.values,
                param_types=one.types,
                param_formats=one.formats,
                result_format=Format.BINARY,
            )
        self._pgconn.pipeline_sync()

    async def _receive(self, statements: Sequence[Statement]) -> None:
        """Read results up to the sync behind the statements."""
        loop = asyncio.get_running_loop()
        moved = asyncio.Event()
        socket = self._pgconn.socket
        loop.add_reader(socket, moved.set)
        try:
            await self._send_out(moved)
            await self._read_in(statements, moved)
        finally:
            loop.remove_reader(socket)

    async def _send_out(self, moved: asyncio.Event) -> None:
        """Hand everything to the socket; what the server answers meanwhile is taken in."""
        if not self._pgconn.flush():
            return
        loop = asyncio.get_running_loop()
        loop.add_writer(self._pgconn.socket, moved.set)
        try:
            while True:
                await moved.wait()
                moved.clear()
                self._pgconn.consume_input()
                if not self._pgconn.flush():
                    return
        finally:
            loop.remove_writer(self._pgconn.socket)

    async def _read_in(self, statements: Sequence[Statement], moved: asyncio.Event) -> None:
        waiting = iter(statements)
        failed: psycopg.Error | None = None
        while True:
            if self._pgconn.is_busy():
                await moved.wait()
                moved.clear()
                self._pgconn.consume_input()
                continue
            result = self._pgconn.get_result()
            if result is None:
                if self._pgconn.status != ConnStatus.OK:
                    raise psycopg.OperationalError("the connection was lost")
                continue
            if result.status == ExecStatus.PIPELINE_SYNC:
                break
            try:
                if (taker := next(waiting, None)) is not None:
                    taker.take(result)
            except psycopg.Error as error:
                failed = failed or error
        if failed is not None:
            raise failed


def _error(result: PGresult) -> psycopg.Error:
    """The driver's error for a result, by its SQLSTATE."""
    if result.status == ExecStatus.PIPELINE_ABORTED:
        return sql_errors.PipelineAborted("not run: a statement before it failed")
    state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
    message = (result.error_field(DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")
    try:
        kind: type[psycopg.Error] = sql_errors.lookup(state)
    except KeyError:
        kind = psycopg.DatabaseError
    return kind(message)
