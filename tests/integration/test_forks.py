"""A memory that was opened before a fork, as Gunicorn's `--preload`, Celery and multiprocessing do
it: the child opens it again or gets an error at once, and the parent notices nothing."""

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.harness.waiting import PATIENCE_SECONDS
from tests.sizes import at_size

from recollect.adapters.wiring import open_store
from recollect_bench.postgres_server import PostgresServer

BEGIN = """
import asyncio, faulthandler, multiprocessing, os, signal, sys, threading, time, traceback
import recollect, recollect.client, recollect.errors

faulthandler.register(signal.SIGALRM, chain=True)
signal.alarm(50)
memory = recollect.open_blocking_memory(store=STORE, embedders=EMBEDDERS)

def body(words):
    return {"model": "x", "max_tokens": 9, "messages": [{"role": "user", "content": words}]}

def turn(name, memory=memory):
    memory.prepare(name, body(f"a question of {name}"))
    memory.observe(name, {"role": "assistant", "content": f"an answer of {name}"})

def in_child(work, *args):
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        try:
            work(*args)
        except BaseException:
            traceback.print_exc()
            os._exit(3)
        os._exit(0)
    return pid

def ended(*pids):
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * len(pids)
"""


def run(file: object, code: str, *, embedders: str = "()") -> None:
    begin = BEGIN.replace("STORE", repr(str(file))).replace("EMBEDDERS", embedders)
    done = subprocess.run(
        [sys.executable, "-c", begin + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def stored(file: object) -> list[str]:
    async def read() -> list[str]:
        store = await open_store(str(file), space="default")
        texts = [one.segment.text for one in await store.page(limit=1_000_000)]
        assert (await store.check()).problems == ()
        await store.close()
        return texts

    return asyncio.run(read())


@pytest.mark.parametrize("used", [False, True])
def test_children_and_parent_use_a_memory_that_the_parent_opened(
    tmp_path: Path, used: bool
) -> None:
    run(
        tmp_path / "m.db",
        f"""
        if {used}:
            turn("before")
        children = [in_child(lambda: (turn("child"), turn("again"), memory.close()))]
        turn("parent")
        ended(*children)
        ended(in_child(turn, "not closed"))
        def parent_of_grandchild():
            turn("c")
            ended(in_child(lambda: (turn("grandchild"), memory.close())))
            memory.close()
        ended(in_child(parent_of_grandchild))
        memory.close()
        """,
    )
    texts = stored(tmp_path / "m.db")
    names = ["before"] * used + ["child", "again", "parent", "not closed", "grandchild", "c"]
    said = [f"{what} of {name}" for name in names for what in ("a question", "an answer")]
    assert sorted(set(said) - set(texts) - {t for t in said if "not closed" in t}) == []
    assert len(texts) == len(set(texts))


def test_multiprocessing_forks_with_handles_of_the_parent(tmp_path: Path) -> None:
    """Sessions of the parent are opened again by name; its facts raise at once."""
    run(
        tmp_path / "m.db",
        """
        turn("shared")
        session, facts = memory.session("shared"), memory.facts()

        def work(number):
            memory.prepare(session, body(f"question {number}"))
            try:
                facts.list()
            except recollect.errors.StoreError as error:
                assert "was forked" in str(error), error
            else:
                raise AssertionError
            turn(f"s{number}")
            memory.close()
            return number

        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(work, [1], chunksize=1) == [1]
        assert facts.list() == ()
        turn("after")
        memory.close()
        """,
    )
    assert {"an answer of s1", "an answer of after"} <= set(stored(tmp_path / "m.db"))


def test_a_child_that_exits_as_usual_does_not_hang(tmp_path: Path) -> None:
    run(
        tmp_path / "m.db",
        """
        turn("parent")
        for use in (False, True):
            pid = os.fork()
            if pid == 0:
                if use:
                    turn("child")
                sys.exit(0)
            ended(pid)
        memory.close()
        """,
    )
    assert "an answer of child" in stored(tmp_path / "m.db")


def test_forks_while_other_threads_of_the_parent_write(tmp_path: Path) -> None:
    """Whatever lock is held at that moment, no child waits for it."""
    forks = at_size(ci=12, full=100)
    run(
        tmp_path / "m.db",
        f"""
        stop = []
        def write():
            for number in range(100_000):
                if stop:
                    return
                turn(f"p{{threading.get_ident() % 97}}-{{number}}")
                time.sleep(0.005)
        threads = [threading.Thread(target=write) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range({forks}):
            ended(in_child(lambda: (turn(f"child {{number}}"), memory.close())))
        stop.append(1)
        for thread in threads:
            thread.join()
        memory.close()
        """,
    )
    texts = stored(tmp_path / "m.db")
    assert {f"an answer of child {number}" for number in range(forks)} <= set(texts)
    parents = [text for text in texts if " of p" in text]
    assert len(parents) == len(set(parents))
    assert len(parents) % 2 == 0


def test_an_embedder_that_the_parent_loaded_is_loaded_again(tmp_path: Path) -> None:
    run(
        tmp_path / "m.db",
        """
        turn("parent")
        assert memory.search("the question of the parent").hits
        ended(in_child(lambda: (turn("child"), memory.search("the child").hits[0], memory.close())))
        memory.close()
        """,
        embedders="None",
    )


def test_an_asynchronous_memory_is_used_by_one_process(tmp_path: Path) -> None:
    run(
        tmp_path / "m.db",
        """
        def use(memory, name):
            async def turns():
                await memory.prepare(name, body(f"a question of {name}"))
                await memory.close()
            asyncio.run(turns())

        fresh = recollect.open_memory(store=STORE_, embedders=())
        ended(in_child(use, fresh, "child"), in_child(use, fresh, "other child"))
        used = recollect.open_memory(store=STORE_, embedders=())
        async def in_parent():
            async with used:
                await used.prepare("parent", body("a question of parent"))
                def refused():
                    for call in (lambda: used.prepare("s", body("x")), lambda: used.settle()):
                        try:
                            asyncio.new_event_loop().run_until_complete(call())
                        except RuntimeError as error:
                            assert "post_fork" in str(error), error
                        else:
                            raise AssertionError
                    assert asyncio.new_event_loop().run_until_complete(used.close()) == 0
                ended(in_child(refused))
                await used.prepare("parent", body("a question of parent"))
        asyncio.run(in_parent())
        memory.close()
        """.replace("STORE_", repr(str(tmp_path / "m.db"))),
    )
    texts = stored(tmp_path / "m.db")
    assert set(texts) == {f"a question of {who}" for who in ("child", "other child", "parent")}


def test_on_postgresql_children_have_connections_of_their_own(server: PostgresServer) -> None:
    database = asyncio.run(server.migrated_database())
    url = database.app_url
    run(
        url,
        """
        turn("parent")
        children = [in_child(lambda n=n: (turn(f"c{n}"), memory.close())) for n in range(3)]
        for number in range(5):
            turn(f"p{number}")
        ended(*children)
        turn("after")
        memory.close()
        """,
    )
    names = {"parent", "after", *(f"c{n}" for n in range(3)), *(f"p{n}" for n in range(5))}
    assert {f"an answer of {name}" for name in names} <= set(stored(url))


class _Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = f'{{"id": "{id(self.connection)}"}}'.encode()
        self.send_response(404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.server.connections.append(id(self.connection))  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def service() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Service)
    server.connections = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_client_of_a_service_opens_connections_of_its_own(
    tmp_path: Path, service: ThreadingHTTPServer
) -> None:
    run(
        tmp_path / "m.db",
        f"""
        connect = recollect.client.MemoryClient
        client = connect("http://127.0.0.1:{service.server_address[1]}", "k" * 40)

        def ask():
            try:
                client.tenant()
            except recollect.errors.ServiceError:
                pass

        ask()
        ended(in_child(lambda: (ask(), ask())))
        ask()
        memory.close()
        """,
    )
    connections = service.connections  # type: ignore[attr-defined]
    first, child, again, last = connections
    assert first == last
    assert child == again != first
