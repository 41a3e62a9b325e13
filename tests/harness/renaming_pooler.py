"""A stand-in for PgBouncer with `max_prepared_statements`: each transaction gets another connection
to the server, which learns the prepared statements that it lacks under names of their content."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

_SYNC = "sync"


@dataclass(eq=False)
class _Server:
    """A connection to the server, and the statements that it knows."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    known: set[bytes] = field(default_factory=set)
    parsing: deque[str] = field(default_factory=deque)
    """For each Parse under way: whether the client waits for its answer. And each Sync."""


@dataclass
class RenamingPooler:
    """The pooler, and what it has done."""

    upstream: Path
    free: list[_Server] = field(default_factory=list)
    changes: int = 0
    """How often a transaction got another connection than the one before it."""
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._client(reader, writer)
        writer.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = await reader.readexactly(4)
        startup = size + await reader.readexactly(int.from_bytes(size) - 4)
        server = _Server(*await asyncio.open_unix_connection(self.upstream))
        self._writers.append(server.writer)
        server.writer.write(startup)
        kind = b""
        while kind != b"Z":
            kind, body = await _message(server.reader)
            writer.write(_packed(kind, b"\0\0\0\1" + body[4:] if kind == b"K" else body))
        self.free.append(server)
        texts: dict[bytes, bytes] = {}
        asking = asyncio.create_task(_message(reader))
        while (await asking)[0] != b"X":
            last, server = server, self.free.pop(random.randrange(len(self.free)))
            self.changes += last is not server
            answering = asyncio.create_task(self._answer(server, writer))
            while not answering.done():
                _forward(server, *await asking, texts)
                asking = asyncio.create_task(_message(reader))
                await asyncio.wait({answering, asking}, return_when=asyncio.FIRST_COMPLETED)
            self.free.append(server)

    async def _answer(self, server: _Server, writer: asyncio.StreamWriter) -> None:
        """Pass on answers until no transaction is open and nothing is under way."""
        while True:
            kind, body = await _message(server.reader)
            if kind == b"Z":
                while server.parsing.popleft() != _SYNC:
                    pass
            if kind != b"1" or server.parsing.popleft() == "client":
                writer.write(_packed(kind, body))
            if kind == b"Z" and body == b"I" and not server.parsing:
                return


def _forward(server: _Server, kind: bytes, body: bytes, texts: dict[bytes, bytes]) -> None:
    """Send a client's message, under the names of the server."""
    if kind in (b"S", b"Q"):
        server.parsing.append(_SYNC)
    elif kind == b"P":
        name, _, text = body.partition(b"\0")
        if name:
            texts[name] = text
            name = b"" if _name(text) in server.known else _name(text)
            server.known.add(_name(text))
        server.parsing.append("client")
        body = name + b"\0" + text
    elif kind == b"B":
        portal, _, rest = body.partition(b"\0")
        name, _, rest = rest.partition(b"\0")
        body = b"\0".join((portal, _known(server, texts, name), rest))
    elif kind in (b"D", b"C") and body[:1] == b"S" and body[1:-1]:
        body = b"S" + _known(server, texts, body[1:-1]) + b"\0"
    server.writer.write(_packed(kind, body))


def _known(server: _Server, texts: dict[bytes, bytes], name: bytes) -> bytes:
    if not name:
        return name
    text = texts[name]
    if _name(text) not in server.known:
        server.known.add(_name(text))
        server.parsing.append("pooler")
        server.writer.write(_packed(b"P", _name(text) + b"\0" + text))
    return _name(text)


def _name(text: bytes) -> bytes:
    return b"PGBOUNCER_" + sha256(text).hexdigest()[:20].encode()


def _packed(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4) + body


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], await reader.readexactly(int.from_bytes(head[1:]) - 4)


@asynccontextmanager
async def renaming_pooler(upstream: Path, folder: Path) -> AsyncIterator[RenamingPooler]:
    """Run the pooler, whose clients connect to port 6432 in the folder."""
    pooler = RenamingPooler(upstream)
    server = await asyncio.start_unix_server(pooler.serve, folder / ".s.PGSQL.6432")
    try:
        yield pooler
    finally:
        server.close()
        for writer in pooler._writers:
            writer.close()
