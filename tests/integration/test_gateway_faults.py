"""What may fail behind and before the gateway: nobody waits beyond the deadlines, no status of the
gateway's own stands where the provider would have answered, and what was acknowledged is kept."""

import asyncio
import http.client
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import pytest
from tests.harness.gateway import PATHS, ask, body_of, gateway, leave_in_mid_stream, records, turn
from tests.harness.model_server import Asked, ModelServer, Step
from tests.harness.waiting import PATIENCE_SECONDS, assert_not_delayed, seconds_of, wait_until

from recollect.adapters.wiring import open_store
from recollect.core.values.model import Usage
from recollect.hosts.gateway.running import BackgroundGateway
from recollect.testing.scripted_model import Fails, Says
from recollect_bench.postgres_server import PostgresServer

SAYS = Says(text="Aye, and it is done.", usage=Usage(input_tokens=9, output_tokens=5))


def stored(url: str, space: str = "default") -> list[str]:
    """All that a memory keeps, in order."""

    async def page() -> list[str]:
        store = await open_store(url, space=space)
        try:
            return [one.segment.text for one in await store.page(limit=10_000)]
        finally:
            await store.close()

    return asyncio.run(page())


class Talk:
    """A client with one conversation, which it sends whole every time."""

    def __init__(self, running: BackgroundGateway) -> None:
        self._running = running
        self._texts: list[str] = []
        self.acknowledged: list[str] = []
        """What was said in turns that were answered."""

    def say(self, count: int = 1) -> None:
        """So many turns; each must be answered by the provider before the client gives up."""
        for _ in range(count):
            words = f"Berth {len(self._texts)} is for the ferry, and the crane stands beside it."
            reply = ask(
                self._running.url,
                PATHS["anthropic"],
                turn([*self._texts, words]),
                x_recollect_session="s",
            )
            assert (reply.status, reply.json["content"][0]["text"]) == (200, SAYS.text)
            self._texts += [words, SAYS.text]
            self.acknowledged.append(words)

    def check(self, kept: Sequence[str]) -> None:
        """All of it is kept, in order and once, with a reply for each turn."""
        assert [text for text in kept if text != SAYS.text] == self.acknowledged
        assert kept.count(SAYS.text) == len(self.acknowledged)


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Somebody else writes to the file all the time."""
    other = apsw.Connection(str(file))
    other.set_busy_timeout(10_000)
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def test_a_store_that_is_locked_for_a_while_loses_nothing(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    settings = {"store.url": str(file), "store.write_seconds": 0.3, "store.read_seconds": 0.3}
    with ModelServer(lambda _: SAYS) as server, gateway(server, **settings) as running:
        talk = Talk(running)
        talk.say(2)
        with locked(file):
            talk.say(3)
        talk.say(1)
    with gateway(server, **settings):  # whatever waits in the spool is written when it is opened
        wait_until(lambda: len(stored(str(file))) >= 12)
    talk.check(stored(str(file)))


def test_a_store_whose_file_is_removed_stops_nobody(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "memory.db"
    file.parent.mkdir()
    with (
        ModelServer(lambda _: SAYS) as server,
        gateway(server, **{"store.url": str(file)}) as running,
    ):
        talk = Talk(running)
        talk.say(2)
        for one in file.parent.iterdir():
            if one.is_file():
                one.unlink()
        talk.say(3)


def test_a_server_that_stops_and_comes_back_loses_nothing() -> None:
    with PostgresServer(18) as postgres, ModelServer(lambda _: SAYS) as server:
        database = asyncio.run(postgres.migrated_database())
        settings = {"store.url": database.app_url}
        with gateway(server, **settings) as running:
            talk = Talk(running)
            talk.say(2)
            postgres.stop("immediate")
            talk.say(3)
            postgres.start()
            talk.say(1)
            wait_until(lambda: len(stored(database.app_url)) >= 12)
        talk.check(stored(database.app_url))


@pytest.mark.parametrize("wire", list(PATHS))
def test_a_reply_that_breaks_off_is_kept_as_far_as_it_came(wire: str, tmp_path: Path) -> None:
    """The client sees that it broke off, as it would have without the gateway, and goes on."""
    words = "The crane stands at quay seven. "
    steps: list[Step] = [Says(text=words * 20, stretch_chars=32, cut_after_events=9), SAYS]
    file = tmp_path / "memory.db"
    named = {"x_recollect_session": "s"}
    with ModelServer(steps) as server, gateway(server, **{"store.url": str(file)}) as running:
        with pytest.raises(http.client.IncompleteRead):
            ask(running.url, PATHS[wire], body_of(wire, ["Where?"], stream=True), **named)
        records(running, 1)
        again = ask(running.url, PATHS[wire], body_of(wire, ["Where?"]), **named)
        assert again.status == 200
    kept = stored(str(file))
    assert kept[0] == "Where?"
    broken = [text for text in kept if text.startswith(words)]
    assert all(text.endswith("[broken off]") for text in broken)
    assert SAYS.text in kept


def test_a_slow_reader_gets_all_and_slows_nobody_else() -> None:
    long = Says(text="word " * 100_000, stretch_chars=4_000)

    def answer(asked: Asked) -> Step:
        return long if b"at length" in asked.content else SAYS

    body = body_of("openai-chat", ["tell it at length"], stream=True)
    with ModelServer(answer) as server, gateway(server) as running:

        def greet() -> None:
            assert ask(running.url, PATHS["anthropic"], turn(["hello"])).status == 200

        greet()
        usual = seconds_of(greet)
        expected = ask(server.url, PATHS["openai-chat"], body).body
        parts = urlsplit(running.url)
        slow = socket.socket()
        slow.settimeout(PATIENCE_SECONDS)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        # segments that fit its buffer: of larger ones, one comes through every few seconds only
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1_024)
        slow.connect((parts.hostname or "", parts.port or 0))
        path = parts.path + PATHS["openai-chat"]
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
        slow.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        got = bytearray(slow.recv(4_096))
        for _ in range(5):
            got += slow.recv(4_096)
            assert_not_delayed(greet, usual_seconds=usual)
        assert len(got) < len(expected) / 2, "the provider's reply waits for its reader"
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_000_000)  # it hurries now
        while chunk := slow.recv(65_536):
            got += chunk
        slow.close()
    _, _, chunked = bytes(got).partition(b"\r\n\r\n")
    assert _dechunked(chunked) == expected


def _dechunked(stream: bytes) -> bytes:
    parts: list[bytes] = []
    while stream:
        size, _, rest = stream.partition(b"\r\n")
        length = int(size, 16)
        parts.append(rest[:length])
        stream = rest[length + 2 :]
    return b"".join(parts)


def test_bodies_that_no_client_sends_are_answered_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Larger than allowed without saying so, never complete, too deep, or not what it says."""
    monkeypatch.setattr("recollect.hosts.gateway.server.SILENCE_SECONDS", 1.0)
    monkeypatch.setattr("recollect.hosts.gateway.server.MOST_BODY_BYTES", 50_000)
    says = Fails(status=200, body={})
    with ModelServer(lambda _: says) as server, gateway(server) as running:
        assert _raw(running, b"transfer-encoding: chunked", _chunks(b"x" * 90_000)) == 413
        assert _raw(running, b"content-length: 5000", b'{"model": "m"') == 408
        deep = b'{"model": "m", "messages": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"
        assert ask(running.url, PATHS["anthropic"], deep).status == 200
        assert server.asked[-1].content == deep
        body = body_of("anthropic", ["hello"])
        reply = ask(running.url, PATHS["anthropic"], body, content_encoding="gzip")
        assert (reply.status, server.asked[-1].content) == (200, body)


def _chunks(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)


def _raw(running: BackgroundGateway, header: bytes, content: bytes) -> int:
    """The status of a request that is written as it is."""
    parts = urlsplit(running.url)
    with socket.create_connection(
        (parts.hostname or "", parts.port or 0), timeout=PATIENCE_SECONDS
    ) as client:
        client.sendall(
            f"POST {parts.path}/v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\n".encode()
            + header
            + b"\r\n\r\n"
            + content
        )
        return int(client.recv(4_096).split(b" ", 2)[1])


def test_clients_that_vanish_leave_what_they_said_and_nothing_open(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    hanging = Says(text="One two three four.", hang_after_events=3)

    def answer(asked: Asked) -> Step:
        return hanging if b"leave" in asked.content[-200:] else SAYS

    with ModelServer(answer) as server, gateway(server, **{"store.url": str(file)}) as running:
        with ThreadPoolExecutor(8) as clients:
            for at in range(8):
                named = {"x-recollect-session": f"leaving-{at}"}
                text = f"leave number {at}"
                clients.submit(leave_in_mid_stream, running, "anthropic", text, **named)
        talk = Talk(running)
        talk.say(2)
        wait_until(lambda: not ask(running.url, "/recollect/health", method="GET").json["running"])
        gone = [one for one in records(running, 10) if one["outcome"] == "the client disconnected"]
        assert len(gone) == 8
    kept = stored(str(file))
    assert {text for text in kept if text.startswith("leave")} == {
        f"leave number {at}" for at in range(8)
    }
    assert [text for text in kept if text.startswith("Berth")] == talk.acknowledged
