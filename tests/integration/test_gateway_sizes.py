"""Small bodies that unpack to large ones, and replies that do not end, cost little time and RAM."""

import gzip
import json
import socket
import sys
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import repeat

import brotli  # type: ignore[import-untyped]
import pytest
from tests.harness.gateway import PATHS, ask, connect, gateway, records
from tests.harness.model_server import ModelServer
from tests.sizes import at_size

from recollect.errors import FormatError
from recollect.hosts.gateway.caller import RequestKind
from recollect.hosts.gateway.upstream import MOST_BYTES, KeptReply, Upstreams, decompress
from recollect.system.config import load_settings
from recollect.testing.scripted_model import Fails

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

UNREADABLE = RequestKind.UNREADABLE.value
MAX_TAKEN_BYTES = 30_000_000
"""What the sockets' buffers hold, and what the gateway reads ahead."""
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda body: brotli.compress(body, quality=5),
    "zstd": zstd.compress,
    "identity": bytes,
}
TEXT = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello there"}]}).encode()
LARGE = at_size(ci=20_000_000, full=400_000_000)
SECONDS = 1.5
"""Of processor time, for any body below."""
RAM_BYTES = at_size(ci=30_000_000, full=200_000_000)


def pack(body: bytes, *codings: str) -> tuple[bytes, str]:
    for coding in codings:
        body = PACK[coding](body)
    return body, ", ".join(codings)


def bombs() -> Iterator[tuple[str, bytes, str]]:
    spaces = b" " * LARGE
    for coding in ("gzip", "deflate", "br", "zstd"):
        once = PACK[coding](spaces)
        yield coding, once, coding
        for outer in ("gzip", "deflate", "br", "zstd"):
            yield f"{coding} in {outer}", PACK[outer](once), f"{coding}, {outer}"
    nested = b'{"messages":[' + b"[" * LARGE
    yield "nested", gzip.compress(nested), "gzip"
    text = b'{"model":"m","messages":[{"role":"user","content":"' + b"a" * LARGE + b'"}]}'
    yield "one message", *pack(text, "gzip", "gzip")
    yield "40,000 members", gzip.compress(b"") * 40_000, "gzip"
    stacked = TEXT
    for _ in range(200):
        stacked = gzip.compress(stacked, 1)
    yield "200 stacked", stacked, ", ".join(repeat("gzip", 200))
    yield "5,000 stacked", TEXT, ",".join(repeat("identity", 5_000))
    window = zstd.CompressionParameter.window_log
    large_window = zstd.ZstdCompressor(options={window: 30})
    yield "a window of 1 GB", large_window.compress(spaces) + large_window.flush(), "zstd"


BOMBS = list(bombs())


@pytest.mark.parametrize(
    ("body", "coding"), [case[1:] for case in BOMBS], ids=[b[0] for b in BOMBS]
)
def test_a_small_body_costs_little_whatever_it_unpacks_to(body: bytes, coding: str) -> None:
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(FormatError):
            decompress(body, coding)
        assert tracemalloc.get_traced_memory()[1] < RAM_BYTES
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize("coding", [*PACK, "gzip, br", "deflate,gzip", "zstd ,  X-GZIP"])
def test_ordinary_bodies_are_unpacked_as_before(coding: str) -> None:
    history = [
        {"role": "user", "content": f"Please look at module {at}. " * 40} for at in range(900)
    ]
    for text in (TEXT, json.dumps({"messages": history}).encode(), b"", b"x" * 900_000):
        body, _ = pack(text, *(part.strip().lower() for part in coding.split(",")))
        assert decompress(body, coding) == text


def test_a_body_whose_second_part_only_the_provider_would_read_is_not_read() -> None:
    for coding in ("gzip", "zstd", "deflate"):
        with pytest.raises(FormatError):
            decompress(PACK[coding](TEXT) + PACK[coding](TEXT), coding)


def test_a_reply_that_does_not_end_is_kept_up_to_a_limit() -> None:
    kept = KeptReply("application/json", "")
    for _ in range(MOST_BYTES // 1_000_000 + 2):
        kept.add(bytes(1_000_000))
    assert sum(map(len, kept._chunks)) <= MOST_BYTES
    with pytest.raises(FormatError, match="larger than"):
        kept.read()


def test_bombs_pass_through_to_the_provider_and_hold_nobody_up() -> None:
    with ModelServer(lambda _: Fails(status=400)) as server, gateway(server) as running:
        for _, body, coding in BOMBS:
            began = time.process_time()
            reply = ask(running.url, PATHS["openai-chat"], body, content_encoding=coding)
            assert time.process_time() - began < SECONDS
            assert reply.status == 400
            assert server.asked[-1].content == body
        assert {record["kind"] for record in records(running, len(BOMBS))} == {UNREADABLE}


@contextmanager
def endless(head: str, piece: bytes) -> Iterator[tuple[str, list[int]]]:
    """A provider whose reply does not end, and the number of bytes that were taken from it."""
    taken = [0]
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with closing(client):
                client.recv(65_536)
                client.sendall(head.encode())
                try:
                    while True:
                        client.sendall(piece)
                        taken[0] += len(piece)
                except OSError:
                    pass

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", taken
    finally:
        listening.close()


CHUNK = b"%x\r\n%s\r\n" % (50_000, b"x" * 50_000)
EVENT = b'data: {"type":"ping","more":"%s"}\n\n' % (b"x" * 2_000)
REPLIES = {
    "chunked": ("Transfer-Encoding: chunked", CHUNK),
    "without a length": ("Connection: close", b"x" * 50_000),
    "with a length that is not true": (f"Content-Length: {10**15}", b"x" * 50_000),
    "compressed": ("Content-Encoding: gzip\r\nConnection: close", gzip.compress(b"x" * 10**6)),
    "of events": ("Content-Type: text/event-stream\r\nConnection: close", EVENT * 20),
}


@pytest.mark.parametrize("kind", list(REPLIES))
@pytest.mark.parametrize("status", [200, 400, 529])
def test_a_reply_that_does_not_end_is_relayed_as_far_as_the_client_reads(
    status: int, kind: str
) -> None:
    head, piece = REPLIES[kind]
    with endless(f"HTTP/1.1 {status} X\r\n{head}\r\n\r\n", piece) as (url, taken):
        upstreams = {"gateway.upstream.anthropic": url, "gateway.upstream.openai": f"{url}/v1"}
        with ModelServer([]) as server, gateway(server, **upstreams) as running:
            client, prefix = connect(running.url)
            client.request("POST", prefix + PATHS["anthropic"], TEXT, {"x-api-key": "ours"})
            reply = client.getresponse()
            assert reply.status == status
            assert len(reply.read(300_000)) == 300_000
            waited = -1
            while taken[0] != waited:  # until the gateway takes no more
                waited = taken[0]
                time.sleep(0.2)
                assert taken[0] < MAX_TAKEN_BYTES
            client.close()


async def test_a_summary_that_does_not_end_is_given_up() -> None:
    with endless("HTTP/1.1 200 X\r\nConnection: close\r\n\r\n", b"x" * 1_000_000) as (url, _):
        upstream = {"gateway.upstream.openai": url}
        upstreams = Upstreams(load_settings(arguments=upstream).settings.gateway)
        await upstreams.open()
        reply = await upstreams.send("openai", "POST", "/v1/chat/completions", [], b"{}")
        with pytest.raises(FormatError, match="larger than"):
            await reply.read_whole()
        reply.close()
        await upstreams.close()


@pytest.mark.parametrize("announced", [str(10**15), "9" * 400])
def test_a_request_that_announces_too_much_is_refused_at_once(announced: str) -> None:
    with ModelServer([]) as server, gateway(server) as running:
        client, prefix = connect(running.url)
        client.putrequest("POST", prefix + PATHS["anthropic"])
        client.putheader("content-length", announced)
        client.endheaders(b"{")
        reply = client.getresponse()
        reply.read()
        client.close()
        assert reply.status in (400, 413)
        assert not server.asked
