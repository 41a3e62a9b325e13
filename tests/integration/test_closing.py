"""Closing right after a write: everything that was given is stored or spooled, or it is counted."""

import asyncio
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.harness.waiting import PATIENCE_SECONDS, eventually, wait_until
from tests.integration.daemon_lab import Lab, Talk
from tests.sizes import at_size

from recollect import open_blocking_memory, open_memory
from recollect.adapters.wiring import open_store
from recollect.core.engine import closing
from recollect.core.ports import read_pages
from recollect.core.rules import redaction
from recollect.core.values.model import Answer, Prompt
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import StoreUnavailable
from recollect.hosts.daemon.client import ALONE_SECONDS

pytestmark = pytest.mark.usefixtures("usual_deadlines")
QUIET = {
    "jobs.in_process": False,
    "recall.enabled": False,
    "window_tokens": 50_000_000,
    "store.close_seconds": 600.0,
}
SLOW = "a page that takes long to mask " * 500
RANDOM = random.Random(20)
WORDS = ["".join(RANDOM.choices("abcdefghijklmnop", k=RANDOM.randint(2, 9))) for _ in range(3_000)]


def ordinary(size: int) -> str:
    return " ".join(RANDOM.choices(WORDS, k=size // 6))[:size]


def minified(size: int) -> str:
    line = "function {0}({1},t){{var n={1}.{0}||t;return n?{1}[n]=t:(e=>e.{0}({1}))(t)}};"
    names = RANDOM.choices(WORDS, k=2 * size // len(line) + 2)
    made = (line.format(*names[at : at + 2]) for at in range(0, len(names) - 1, 2))
    return "".join(made)[:size]


def hostile(size: int) -> str:
    """Text on which masking spends much time per byte."""
    return (";pwd=. ?hmac== ;hmac=/ " * (size // 20 + 1))[:size]


KINDS = {"ordinary": ordinary, "minified": minified, "hostile": hostile}


def turn(page: str, words: str = "what does this page say?") -> dict[str, Any]:
    call = {"type": "tool_use", "id": "t1", "name": "fetch", "input": {"url": "page"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": page}
    return {
        "model": "claude-x",
        "max_tokens": 10,
        "messages": [
            {"role": "user", "content": words},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ],
    }


def reply(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


async def stored(file: Path) -> list[str]:
    async with open_memory(store=file, settings=QUIET, embedders=[]) as memory:
        assert await memory.settle(PATIENCE_SECONDS) == 0
    store = await open_store(str(file), space="default")
    texts = [one.segment.text for one in await store.page(limit=10_000)]
    assert (await store.check()).problems == ()
    await store.close()
    return texts


class Masking:
    """Texts that contain SLOW take so many seconds to mask, at most until `go_on`."""

    def __init__(self) -> None:
        self.seconds = 40.0
        self.go_on = threading.Event()
        self._matches = redaction._matches

    def matches(self, text: str, *, pii: bool) -> Any:
        if SLOW in text:
            self.go_on.wait(self.seconds)
        return self._matches(text, pii=pii)


@pytest.fixture
def slow_masking(monkeypatch: pytest.MonkeyPatch) -> Iterator[Masking]:
    masking = Masking()
    monkeypatch.setattr(redaction, "_matches", masking.matches)
    monkeypatch.setattr(closing, "STALL_SECONDS", 0.5)
    yield masking
    masking.go_on.set()


SIZES = at_size(
    ci=[1_000, 30_000, 200_000], full=[1_000, 10_000, 100_000, 1_000_000, 5_000_000, 20_000_000]
)
PASSES = at_size(ci=1, full=6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", ["async", "blocking"])
def test_closing_right_after_a_write_loses_nothing(
    tmp_path: Path, kind: str, size: int, way: str
) -> None:
    """Every kind of text has every size. 20 MB of hostile text take 24 s of processor time, which
    on a busy machine is more than the default of `store.close_seconds`, so it is raised here."""
    for number in range(PASSES if size < 5_000_000 else 1):
        page, file = KINDS[kind](size), tmp_path / f"{number}.db"
        if way == "blocking":
            with open_blocking_memory(store=file, settings=QUIET, embedders=[]) as blocking:
                blocking.prepare("s", turn(page))
                blocking.observe("s", reply("it says little"), wait=False)
        else:
            asyncio.run(_one_turn(file, page))
        texts = asyncio.run(stored(file))
        assert len(texts) == 4
        assert {"what does this page say?", "it says little"} <= set(texts)
        assert max(map(len, texts)) > 0.9 * size


async def _one_turn(file: Path, page: str) -> None:
    async with open_memory(store=file, settings=QUIET, embedders=[]) as memory:
        await memory.prepare("s", turn(page))
        await memory.observe("s", reply("it says little"), wait=False)


async def test_closing_waits_for_masking_and_says_nothing(
    tmp_path: Path, slow_masking: Masking, caplog: pytest.LogCaptureFixture
) -> None:
    slow_masking.seconds = 1.5
    memory = open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[])
    await memory.prepare("s", turn(SLOW))
    await memory.observe("s", reply("it says little"), wait=False)
    assert await memory.close() == 0
    assert len(await stored(tmp_path / "m.db")) == 4
    assert not caplog.records


@pytest.mark.parametrize("long", [SLOW, SLOW * 10])
async def test_short_messages_are_stored_before_long_ones_and_the_rest_is_counted(
    tmp_path: Path, slow_masking: Masking, caplog: pytest.LogCaptureFixture, long: str
) -> None:
    memory = open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[])
    await memory.prepare("s", turn(long))
    await memory.observe("s", reply("it says little"), wait=False)
    began = time.monotonic()
    assert await memory.close(4.0) == 1
    slow_masking.go_on.set()
    assert time.monotonic() - began < 12.0
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "without storing 1 message: " in warning
    texts = await stored(tmp_path / "m.db")
    assert len(texts) == 3
    assert {"what does this page say?", "it says little"} <= set(texts)


async def test_forgetting_waits_for_masking_and_refuses_if_it_takes_too_long(
    tmp_path: Path, slow_masking: Masking
) -> None:
    settings = {**QUIET, "turn.deadline_seconds": 0.5}
    page = f"ZEBRA-77 {SLOW}"
    memory = open_memory(store=tmp_path / "m.db", settings=settings, embedders=[])
    await memory.prepare("s", turn(page))
    assert await memory.settle(0.1) > 0
    with pytest.raises(StoreUnavailable, match="nothing was forgotten"):
        await memory.forget(matching="ZEBRA-77")
    order = ForgetOrder(at=time.time(), sessions=("s",))
    with pytest.raises(StoreUnavailable, match="nothing was forgotten"):
        await (await memory.facts()).forget(order)
    slow_masking.go_on.set()
    assert await memory.settle(PATIENCE_SECONDS) == 0
    certificate = await memory.forget(matching="ZEBRA-77")
    assert certificate.counts["segments"] == 1
    assert await memory.close() == 0
    assert not [text for text in await stored(tmp_path / "m.db") if "ZEBRA-77" in text]


async def test_settling_a_busy_memory_waits_only_for_earlier_messages(
    tmp_path: Path, slow_masking: Masking
) -> None:
    memory = open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[])
    await memory.prepare("s", turn("ZEBRA-77"))
    settling = asyncio.create_task(memory.settle(PATIENCE_SECONDS))
    await asyncio.sleep(0)
    await memory.prepare("busy", turn(SLOW))
    assert await settling == 0
    slow_masking.go_on.set()
    assert await memory.close() == 0


async def test_many_sessions_with_one_long_message_each(
    tmp_path: Path, slow_masking: Masking
) -> None:
    memory = open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[])
    for number in range(8):
        await memory.prepare(f"s{number}", turn(SLOW, f"question {number}"))
        await memory.observe(f"s{number}", reply(f"answer {number}"), wait=False)
    assert await memory.close(4.0) == 8
    slow_masking.go_on.set()
    slow_masking.go_on.set()
    assert len(await stored(tmp_path / "m.db")) == 3 * 8


async def test_a_short_message_never_shows_a_secret_that_only_the_long_one_labels(
    tmp_path: Path, slow_masking: Masking
) -> None:
    secret = "-".join(("tR9", "mQ4x", "Zw8Lp", "Vk2"))
    told = ["{0} is wrong", "use '{0}'.", "`{0}`", "(key {0})", "KEY={0};x", "is it {0}?", "[{0}]"]
    memory = open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[])
    for number, words in enumerate(told):
        await memory.prepare(f"s{number}", turn(f"{SLOW}\nDB_PASSWORD={secret}\n"))
        await memory.observe(f"s{number}", reply(words.format(secret)), wait=False)
    assert await memory.close(4.0) == 2 * len(told)
    slow_masking.go_on.set()
    assert len(await stored(tmp_path / "m.db")) == 2 * len(told)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if secret.encode() in path.read_bytes()]


@contextmanager
def locked(file: Path) -> Iterator[None]:
    other = apsw.Connection(str(file))
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


async def test_a_locked_store_leaves_everything_in_the_spool(tmp_path: Path) -> None:
    await _one_turn(tmp_path / "m.db", "first")
    with locked(tmp_path / "m.db"):
        memory = open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[])
        for number in range(3):
            await memory.prepare(f"s{number}", turn(ordinary(200_000)))
        assert await memory.close() == 0
    assert len(await stored(tmp_path / "m.db")) == 4 + 3 * 3


async def test_without_store_and_spool_closing_ends_soon_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "spool").write_text("not a folder")
    monkeypatch.setenv("RECOLLECT_HOME", str(home))
    (tmp_path / "m.db").mkdir()
    memory = open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[])
    await memory.prepare("s", turn(ordinary(1_000)))
    await memory.observe("s", reply("it says little"))
    began = time.monotonic()
    assert await memory.close() == 4
    assert time.monotonic() - began < 15.0
    assert "without storing 4 messages: neither the store nor the spool" in caplog.text


async def test_a_spool_that_works_again_before_closing_gets_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, file = tmp_path / "home", tmp_path / "m.db"
    home.mkdir()
    (home / "spool").write_text("not a folder")
    monkeypatch.setenv("RECOLLECT_HOME", str(home))
    await _one_turn(file, "first")
    with locked(file):
        memory = open_memory(store=file, settings=QUIET, embedders=[])
        await memory.prepare("s2", turn(ordinary(1_000)))
        await memory.observe("s2", reply("it says little"))
        (home / "spool").unlink()
        assert await memory.close() == 0
    assert len(await stored(file)) == 8


async def test_two_closes_at_once_and_a_second_one_that_is_shorter(
    tmp_path: Path, slow_masking: Masking
) -> None:
    memory = open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[])
    await memory.prepare("s", turn(SLOW))
    first = asyncio.create_task(memory.close())
    await asyncio.sleep(0.1)
    began = time.monotonic()
    assert [*await asyncio.gather(first, memory.close(3.0))] == [1, 1]
    slow_masking.go_on.set()
    assert time.monotonic() - began < 12.0
    assert await memory.close() == 1


@pytest.mark.parametrize("failing", [1, 3])
async def test_a_message_that_cannot_be_masked_costs_no_other_message(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failing: int,
) -> None:
    matches = redaction._matches

    def fail(text: str, *, pii: bool) -> Any:
        if "fatal" in text:
            raise RuntimeError("a defect of a rule")
        return matches(text, pii=pii)

    monkeypatch.setattr(redaction, "_matches", fail)
    pages = ["fatal " * (2 + 1_000 * number) for number in range(failing)]
    memory = open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[])
    for number, page in enumerate(pages):
        await memory.prepare(f"s{number}", turn(page))
        await memory.observe(f"s{number}", reply("it says little"), wait=False)
    began = time.monotonic()
    assert await memory.close() == failing
    assert time.monotonic() - began < 10.0
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "close_seconds" not in warning
    assert "unexpected error (RuntimeError)" in warning
    assert len(await stored(tmp_path / "m.db")) == 3 * failing


async def test_messages_that_failed_once_are_stored_before_anything_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matches = redaction._matches
    defects = [RuntimeError("a defect of a rule")]

    def fail_once(text: str, *, pii: bool) -> Any:
        if "ZEBRA-77" in text and defects:
            raise defects.pop()
        return matches(text, pii=pii)

    monkeypatch.setattr(redaction, "_matches", fail_once)
    memory = open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[])
    await memory.prepare("s", turn("ZEBRA-77"))
    certificate = await memory.forget(matching="ZEBRA-77")
    assert certificate.counts["segments"] == 1
    assert await memory.close() == 0
    assert len(await stored(tmp_path / "m.db")) == 2


async def test_a_cancelled_close_goes_on(tmp_path: Path, slow_masking: Masking) -> None:
    slow_masking.seconds = 1.5
    memory = open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[])
    await memory.prepare("s", turn(SLOW))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(memory.close(), 0.1)
    assert await memory.close() == 0
    assert len(await stored(tmp_path / "m.db")) == 3


async def test_a_block_that_ends_with_an_error_stores_everything(
    tmp_path: Path, slow_masking: Masking
) -> None:
    slow_masking.seconds = 1.5
    with pytest.raises(KeyError):
        async with open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[]) as memory:
            await memory.prepare("s", turn(SLOW))
            raise KeyError
    assert len(await stored(tmp_path / "m.db")) == 3


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.01, 0.05])
async def test_turns_that_run_while_the_memory_closes(
    tmp_path: Path, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """What `prepare` was given is stored, or the call fails, or the log says so."""
    memory = open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[])
    calls = [
        asyncio.create_task(memory.prepare(f"s{number}", turn(ordinary(100_000))))
        for number in range(6)
    ]
    await asyncio.sleep(seconds)
    unstored = await memory.close()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    accepted = [call for call in ended if not isinstance(call, BaseException)]
    texts = await stored(tmp_path / "m.db")
    assert unstored == 0
    assert len(texts) == 3 * len(accepted) or "after its memory was closed" in caplog.text


ENDS = {
    "async": """
import asyncio, logging, recollect
logging.basicConfig()
async def main():
    async with recollect.open_memory(store={file!r}) as memory:
        await memory.prepare("s", {body})
        print("given", flush=True)
asyncio.run(main())
""",
    "blocking": """
import logging, recollect
logging.basicConfig()
with recollect.open_blocking_memory(store={file!r}) as memory:
    memory.prepare("s", {body})
    print("given", flush=True)
""",
}


@pytest.mark.parametrize("way", ENDS)
def test_ctrl_c_while_closing_stores_everything_or_says_what_not(tmp_path: Path, way: str) -> None:
    file = tmp_path / "m.db"
    body = turn(ordinary(at_size(ci=3_000_000, full=8_000_000)))
    (tmp_path / "end.py").write_text(ENDS[way].format(file=str(file), body=body))
    command = [sys.executable, str(tmp_path / "end.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"given\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=3 * PATIENCE_SECONDS)[1].decode()
    texts = asyncio.run(stored(file))
    if way == "async":
        assert len(texts) == 3
    elif len(texts) < 3:
        assert f"closed without storing {3 - len(texts)} message" in said


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    made.end()


async def in_store(lab: Lab) -> Counter[int]:
    """The lengths of the stored messages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECOLLECT_HOME", str(lab.home))
        store = await open_store(None, space=str(lab.project))
        texts = [one.segment.text async for page in read_pages(store) for one in page]
        await store.close()
    return Counter(map(len, texts))


@pytest.mark.parametrize("end", ["SIGTERM", "stop", "idle", "alone"])
def test_a_daemon_that_ends_right_after_a_hook_loses_nothing(lab: Lab, end: str) -> None:
    """What the daemon had not stored when it ended, the next one reads from the transcript."""
    talk = Talk(lab)
    sizes = at_size(ci=[200_000], full=[1_000, 100_000, 1_000_000, 10_000_000])
    pages = [make(size) for size in sizes for make in KINDS.values()]
    environment = {"STUB_NO_UVICORN": "1"} if end == "alone" else {}
    if end == "idle":
        lab.environment["RECOLLECT_DAEMON__IDLE_SECONDS"] = "0.5"
    for page in pages:
        talk.line("user", page)
        talk.line("assistant", [{"type": "text", "text": f"It has {len(page)} characters."}])
        assert lab.hook(talk.event(lab, "Stop"), **environment) == {}
        if end == "SIGTERM":
            for process in lab.processes():
                process.terminate()
        elif end == "stop":
            lab.command("daemon", "stop")
        wait_until(lambda: not lab.processes())

    def brief() -> str:
        start = Talk(lab).event(lab, "SessionStart", source="startup")  # a session gets one brief
        answer = lab.hook(start, **environment)
        context = answer.get("hookSpecificOutput", {}).get("additionalContext", "")
        assert answer == {} or "The newest session" in context
        return str(context)

    def all_are_stored() -> bool:
        brief()
        return asyncio.run(in_store(lab)).total() == 2 * len(pages)

    wait_until(all_are_stored)
    wait_until(lambda: f"It has {sizes[-1]} characters." in brief())


def test_without_a_daemon_messages_are_stored_that_take_longer_than_an_agent_waits(
    lab: Lab,
) -> None:
    """Masking takes longer than a hook waits, and than a query of the store may take."""
    environment = {"STUB_NO_UVICORN": "1", "STUB_SLOW_MASKING": "20"}
    talk = Talk(lab)
    talk.line("user", SLOW)
    talk.line("assistant", [{"type": "text", "text": "It says little."}])
    began = time.monotonic()
    assert lab.hook(talk.event(lab, "Stop"), **environment) == {}
    assert time.monotonic() - began < 12.0
    assert "a process in the background stores the messages" in lab.log()
    wait_until(lambda: not lab.processes())
    assert asyncio.run(in_store(lab)) == {len(SLOW): 1, len("It says little."): 1}


def test_without_a_daemon_few_processes_store_and_few_hooks_wait_for_them(lab: Lab) -> None:
    """While one process masks for long, one more waits, and stores what later hooks report."""
    environment = {"STUB_NO_UVICORN": "1", "STUB_SLOW_MASKING": "20"}
    talk, others = Talk(lab), [Talk(lab), Talk(lab)]
    talk.line("user", SLOW)
    assert lab.hook(talk.event(lab, "Stop"), **environment) == {}
    for number in range(4):
        talk.line("user", f"The code of door {number} is on the list.")
        began = time.monotonic()
        assert lab.hook(talk.event(lab, "Stop"), **environment) == {}
        if number:  # the first of them waits for the process that masks
            assert time.monotonic() - began < ALONE_SECONDS
        assert len(lab.processes()) <= 2
    for other in others:  # another session has its own waiting process
        other.line("user", "The meeting is on Thursday.")
        assert lab.hook(other.event(lab, "Stop"), **environment) == {}
    wait_until(lambda: not lab.processes())
    assert asyncio.run(in_store(lab)).total() == 1 + 4 + len(others)


async def test_closing_while_a_summary_is_written(tmp_path: Path) -> None:
    asked = asyncio.Event()

    class Slow:
        name, window_tokens = "slow", 100_000

        async def ask(self, prompt: Prompt) -> Answer:
            asked.set()
            await asyncio.sleep(3_600)
            raise AssertionError

        async def close(self) -> None: ...

    settings = {**QUIET, "window_tokens": 8_000}
    texts = [f"{number} {ordinary(3_000)}" for number in range(21)]
    roles = ("user", "assistant")
    told = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    file = tmp_path / "m.db"
    memory = open_memory(store=file, settings=settings, embedders=[], model=Slow())
    call = asyncio.create_task(
        memory.prepare("s", {"model": "x", "max_tokens": 10, "messages": told})
    )
    await eventually(asked.is_set)
    assert await memory.close() == 0
    await asyncio.wait({call})
    found = await stored(file)
    assert sorted(found) == sorted(texts)
