"""A real server: heads of requests that do not end, by size and by time; and its start."""

import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx2
import pytest
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Route
from tests.harness.waiting import PATIENCE_SECONDS

from recollect.errors import RecollectError
from recollect.hosts.http import (
    BackgroundServer,
    HttpServer,
    JsonAnswer,
    OwnPagesOnly,
    application,
    read_body,
)
from recollect.system.loopback import listen_on


async def count(request: Request) -> JsonAnswer:
    """Says how large the body was."""
    return JsonAnswer(len(await read_body(request, max_bytes=10_000_000, seconds=30)))


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    app = application([Route("/", count, methods=["GET", "POST"])])
    with BackgroundServer(HttpServer(app), listen_on("127.0.0.1", 0, fix="")) as running:
        at = urlsplit(running.url)
        yield at.hostname or "", at.port or 0


def sent_until_cut_off(opened: socket.socket, piece: bytes, most: int) -> int:
    """How many bytes went out before the server had enough."""
    sent = 0
    opened.settimeout(PATIENCE_SECONDS)
    try:
        while sent < most:
            opened.sendall(piece)
            sent += len(piece)
            time.sleep(0.001)
    except OSError:
        pass
    return sent


@pytest.mark.parametrize(
    "piece", [b"x-a: " + b"a" * 8_000 + b"\r\n", b"a" * 8_000], ids=["many headers", "one"]
)
@pytest.mark.parametrize(
    "before",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\nx-b: ",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-b: ",
    ],
    ids=["head", "trailer"],
)
def test_head_without_end_is_cut_off(before: bytes, piece: bytes, address: tuple[str, int]) -> None:
    with socket.create_connection(address) as opened:
        opened.sendall(before)
        time.sleep(0.05)
        assert sent_until_cut_off(opened, piece, 20_000_000) < 10_000_000


def test_large_bodies_and_heads_of_usual_size_are_read(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as opened:
        for _ in range(2):  # on one connection
            opened.sendall(
                b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2000000\r\n"
                 b"x-a: " + b"a" * 30_000 + b"\r\n\r\n" + b"b" * 2_000_000
            )  # fmt: skip
            opened.settimeout(PATIENCE_SECONDS)
            answer = b""
            while not answer.endswith(b"2000000"):
                got = opened.recv(1_000)
                assert got
                answer += got
            assert b" 200 " in answer


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nhost: x\r\n"])
def test_a_head_that_does_not_come_is_not_waited_for(
    begun: bytes, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.hosts.http.HEAD_SECONDS", 0.2)
    with socket.create_connection(address) as opened:
        opened.sendall(begun)
        opened.settimeout(PATIENCE_SECONDS)
        assert opened.recv(100) == b""


def test_connections_that_rest_and_answers_that_take_long_are_left_alone(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.hosts.http.HEAD_SECONDS", 0.2)
    with socket.create_connection(address) as opened:
        opened.settimeout(PATIENCE_SECONDS)
        for _ in range(2):
            opened.sendall(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\na")
            time.sleep(0.4)  # its body comes later
            opened.sendall(b"b")
            answer = b""
            while not answer.endswith(b"\r\n\r\n2"):
                got = opened.recv(1_000)
                assert got
                answer += got
            time.sleep(0.4)  # and then nothing


@pytest.mark.parametrize("token", ["plain", "clé-señal"])
def test_a_token_of_any_letters_is_accepted(token: str) -> None:
    own = Middleware(OwnPagesOnly, local=True, token=token)
    app = application([Route("/", count, methods=["POST"])], middleware=[own])
    with BackgroundServer(HttpServer(app), listen_on("127.0.0.1", 0, fix="")) as running:
        for sent, status in ((token.encode(), 200), (token.encode() + b"\xe9", 401)):
            headers = {b"authorization": b"Bearer " + sent}
            assert httpx2.post(running.url, headers=headers).status_code == status


def test_a_server_that_does_not_start_says_why() -> None:
    @asynccontextmanager
    async def broken(app: object) -> AsyncIterator[None]:
        raise RecollectError("the database is missing")
        yield

    app = application([], lifespan=broken)
    with listen_on("127.0.0.1", 0, fix="") as opened:
        with (
            pytest.raises(RecollectError, match="did not start: the database is missing"),
            BackgroundServer(HttpServer(app), opened),
        ):
            pass
        with pytest.raises(RecollectError, match="the database is missing"):
            HttpServer(app).run(sockets=[opened])
