"""The daemon as agents meet it: real processes start it, ask it, kill it, and leave nothing."""

import asyncio
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.harness.waiting import wait_until
from tests.integration.daemon_lab import DECISION, KEPT_FILES, QUESTION, Lab, Talk, soon
from tests.integration.mcp_server.lab import INITIALIZE
from tests.sizes import at_size, only_in_full

import recollect
from recollect.adapters.wiring import open_store
from recollect.hosts.daemon.client import MOST_BYTES, WAIT_SECONDS, socket_path
from recollect.system.config import load_settings
from recollect.system.places import data_home


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    made.end()


def context_of(told: dict[str, Any]) -> str:
    return str(told.get("hookSpecificOutput", {}).get("additionalContext", ""))


@pytest.mark.parametrize("without", ["", "daemon"])
def test_what_one_session_decided_another_is_told(lab: Lab, without: str) -> None:
    """Through a daemon that the first hook starts, and the same without one."""
    environment = {"STUB_NO_UVICORN": "1"} if without else {}
    first, second = Talk(lab), Talk(lab)
    first.turn(DECISION)
    assert lab.hook(first.event(lab, "Stop"), **environment) == {}
    asks = second.event(lab, "UserPromptSubmit", prompt=QUESTION)
    assert "integers in cents" in context_of(lab.hook(asks, **environment))
    if without:
        assert soon(lambda: lab.processes() == [])
        assert "without the daemon" in lab.log()
    else:
        health = lab.health()
        assert health["hooks"] == 2
        assert health["spaces"] == [str(lab.project)]
        assert "without the daemon" not in lab.log()


def test_what_a_hook_stored_is_found_over_mcp_while_the_daemon_runs(lab: Lab) -> None:
    talk = Talk(lab)
    talk.turn(DECISION)
    assert lab.hook(talk.event(lab, "Stop")) == {}
    call = {"name": "memory_search", "arguments": {"query": QUESTION}}
    lines = [
        json.dumps(INITIALIZE),
        '{"jsonrpc":"2.0","method":"notifications/initialized"}',
        json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call}),
    ]
    for _ in range(2):  # each process opens the memory itself
        done = lab.command("mcp", stdin="\n".join(lines).encode() + b"\n")
        answers = {told.get("id"): told for told in map(json.loads, done.stdout.splitlines())}
        assert "integers in cents" in json.dumps(answers[7]["result"])
    assert len(lab.processes()) == 1, "the daemon alone"


def test_of_many_starters_one_starts_it(lab: Lab) -> None:
    lab.scripted()
    with ThreadPoolExecutor(20) as pool:
        told = list(pool.map(lambda number: lab.ask(f"starter {number}"), range(20)))
    assert {one["told"] for one in told} == {f"starter {number}" for number in range(20)}
    assert len({one["pid"] for one in told}) == 1
    assert [process.pid for process in lab.processes()] == [told[0]["pid"]]
    assert lab.log().count(" listening, ") == 1


def test_many_sessions_are_answered_at_once_by_memory_itself(lab: Lab) -> None:
    lab.started()
    many = at_size(ci=20, full=200)
    talks = [Talk(lab) for _ in range(many)]
    for number, talk in enumerate(talks):
        talk.turn(f"Decision {number}: the queue q{number} listens on port {7000 + number}.")

    def stopped(talk: Talk) -> int:
        return posted(lab, talk.event(lab, "Stop"))[0]

    with ThreadPoolExecutor(many) as pool:
        assert set(pool.map(stopped, talks)) == {200}
    lab.command("daemon", "stop")
    assert stored_texts(lab) == Counter(
        text
        for number, talk in enumerate(talks)
        for text in (
            f"Decision {number}: the queue q{number} listens on port {7000 + number}.",
            said_in(talk)[1],
        )
    )


def said_in(talk: Talk) -> list[str]:
    lines = [json.loads(line)["message"]["content"] for line in talk.path.read_text().splitlines()]
    return [line if isinstance(line, str) else line[0]["text"] for line in lines]


def stored_texts(lab: Lab) -> Counter[str]:
    """Everything that memory holds, how often."""

    async def read() -> list[str]:
        (path,) = (lab.home / "spaces").glob("*.db")
        store = await open_store(str(path), space=str(lab.project))
        try:
            page = await store.page(limit=100_000)
        finally:
            await store.close()
        return [one.segment.text for one in page]

    return Counter(asyncio.run(read()))


def test_one_that_was_killed_is_replaced(lab: Lab) -> None:
    lab.scripted()
    first = lab.ask("before")["pid"]
    os.kill(first, signal.SIGKILL)
    assert lab.socket().exists()
    told = lab.ask("after")
    assert told["told"] == "after"
    assert told["pid"] != first
    assert [process.pid for process in lab.processes()] == [told["pid"]]


def test_killed_while_it_keeps_what_was_said_nothing_is_lost_and_nothing_twice(lab: Lab) -> None:
    talk = Talk(lab)
    said: list[str] = []
    for number in range(at_size(ci=3, full=40)):
        talk.turn(f"Note {number}: the cache of region {number} is emptied at {number} o'clock.")
        said = said_in(talk)
        pid = lab.started()["pid"]
        killer = threading.Timer(0.05 + 0.03 * (number % 8), os.kill, (pid, signal.SIGKILL))
        killer.start()
        assert lab.hook(talk.event(lab, "Stop")) == {}
        killer.join()
        gone = soon(lambda pid=pid: not psutil.pid_exists(pid))  # type: ignore[misc]
        assert gone
    assert lab.hook(talk.event(lab, "Stop")) == {}
    lab.command("daemon", "stop")
    assert stored_texts(lab) == Counter(said)


def test_asked_to_end_it_finishes_first(lab: Lab) -> None:
    lab.scripted()
    first = lab.ask("before")["pid"]
    told: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: told.append(lab.ask("during", sleep=2.0)))
    asking.start()
    wait_until(lab.asked.exists)
    os.kill(first, signal.SIGTERM)
    asking.join()
    assert told == [{"told": "during", "pid": first}]
    assert soon(lambda: not lab.processes())
    assert lab.left() == KEPT_FILES


def test_after_an_upgrade_the_new_version_takes_over(lab: Lab) -> None:
    lab.scripted()
    old = lab.hook({"prompt": "old"}, STUB_VERSION="0.0.1")["pid"]
    slow: list[dict[str, Any]] = []
    asking = threading.Thread(
        target=lambda: slow.append(lab.hook({"prompt": "slow", "sleep": 2.0}, STUB_VERSION="0.0.1"))
    )
    asking.start()
    wait_until(lab.asked.exists)
    assert lab.ask("new")["pid"] == old  # the answer waits for nobody
    asking.join()
    assert slow == [{"told": "slow", "pid": old}]
    assert soon(lambda: lab.health().get("version") == recollect.__version__)
    assert lab.ask("newer")["pid"] != old
    assert soon(lambda: len(lab.processes()) == 1)


def test_a_newer_build_of_the_same_version_takes_over(lab: Lab) -> None:
    lab.scripted()
    ours, other = lab.folder / "installed.py", lab.folder / "other.py"
    for number, file in enumerate((other, ours)):
        file.touch()
        os.utime(file, (1_000 + number, 1_000 + number))
    old = lab.hook({"prompt": "old"}, STUB_INSTALLED=str(ours))["pid"]
    for file in (ours, other):
        lab.hook({"prompt": "the same, or an older one"}, STUB_INSTALLED=str(file))
        assert lab.health()["pid"] == old, file
    os.utime(ours, (2_000, 2_000))
    assert lab.hook({"prompt": "new"}, STUB_INSTALLED=str(ours))["pid"] == old
    assert soon(lambda: lab.health().get("pid", old) != old)
    new = lab.hook({"prompt": "newer"}, STUB_INSTALLED=str(ours))["pid"]
    assert lab.health()["pid"] == new != old


def test_a_newer_version_beside_ours_is_left_in_place(lab: Lab) -> None:
    lab.scripted()
    newer = lab.hook({"prompt": "newer"}, STUB_VERSION="99.10.0")["pid"]
    for version in (recollect.__version__, "99.9.1", "99.10.0.dev1", "99.10.0"):
        lab.hook({"prompt": "older"}, STUB_VERSION=version)
        assert lab.health()["pid"] == newer, version


def test_it_ends_when_idle(lab: Lab) -> None:
    lab.scripted()
    lab.environment["RECOLLECT_DAEMON__IDLE_SECONDS"] = "1.2"
    lab.ask("hello")
    assert soon(lambda: not lab.processes())
    assert lab.left() == KEPT_FILES
    assert "stopping: idle" in lab.log()


def posted(lab: Lab, body: Any, path: str = "/hooks/claude-code") -> tuple[int, bytes]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(lab.socket()))
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(raw)}\r\n\r\n"
        connection.sendall(head.encode() + raw)
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        return reply.status, reply.read()


def test_only_the_users_own_processes_reach_it(lab: Lab) -> None:
    lab.scripted().started()
    assert posted(lab, {"prompt": "here"}, path="/hooks/other")[0] == 404
    assert lab.socket().stat().st_mode & 0o777 == 0o600
    assert (lab.home / "daemon").stat().st_mode & 0o777 == 0o700
    (daemon,) = lab.processes()
    assert [one for one in daemon.net_connections() if one.family != socket.AF_UNIX] == []


def test_a_hook_that_cannot_be_answered_stops_no_turn(lab: Lab) -> None:
    lab.scripted().started()
    for wrong in (b"", b"{not json", b"[]", b"\xff\xfe", b"{}" * MOST_BYTES):
        assert posted(lab, wrong) == (200, b"")
    assert posted(lab, {"prompt": "x", "fail": True}) == (200, b"")
    assert lab.ask("x", fail=True) == {}
    for wrong in (b"", b"{not json", b"[]", b"\xff\xfe", b"{}" * MOST_BYTES):
        assert lab.hook(wrong) == {}
    assert "a secret of the user" not in lab.log()
    assert " failed: " in lab.log()
    assert lab.ask("still there")["told"] == "still there"


def test_without_daemon_too_a_hook_prints_nothing_but_its_answer(lab: Lab) -> None:
    lab.scripted().environment["STUB_NO_UVICORN"] = "1"
    assert lab.ask("alone")["told"] == "alone"
    assert lab.ask("x", fail=True) == {}
    for wrong in (b"", b"{not json", b"[]"):
        assert lab.hook(wrong) == {}
    lab.environment["RECOLLECT_RECALL__EMBEDDER"] = "nonsense"
    del lab.environment["STUB_ANSWERS"]
    assert lab.hook(Talk(lab).event(lab, "Stop")) == {}
    assert "was not answered" in lab.log()
    assert "recollect[hooks]" in lab.log()
    assert lab.processes() == []


def test_a_slow_memory_lets_the_turn_go_on_and_is_finished(lab: Lab) -> None:
    lab.scripted().started()
    began = time.monotonic()
    assert lab.ask("slow", sleep=9.0) == {}
    assert time.monotonic() - began < 9.0
    assert soon(lambda: lab.answered.exists() and lab.answered.read_text() == "slow\n")


def test_without_daemon_a_long_answer_that_comes_too_late_leaves_no_process(lab: Lab) -> None:
    """A pipe takes 64 KB, and nobody reads more of it after the hook has given up."""
    lab.scripted().environment["STUB_NO_UVICORN"] = "1"
    assert lab.ask("x" * 200_000, sleep=7.0) == {}
    assert soon(lambda: not lab.processes(), seconds=15.0)
    assert lab.answered.exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes there")
def test_a_pipe_as_transcript_holds_up_nothing(lab: Lab) -> None:
    """No process ever writes to it: a process that opens it and waits, waits for ever."""
    talk = Talk(lab)
    pipes = [lab.folder / name for name in ("a.jsonl", "b.jsonl.gz", "another_session.jsonl")]
    for pipe in pipes:
        os.mkfifo(pipe)
    events: list[tuple[Path, str, dict[str, str]]] = [
        (pipes[0], "UserPromptSubmit", {"prompt": QUESTION}),
        (pipes[0], "SessionStart", {"source": "compact"}),
        (pipes[0], "Stop", {}),
        (pipes[1], "UserPromptSubmit", {"prompt": QUESTION, "session_id": str(uuid.uuid4())}),
    ]
    for pipe, name, fields in events:
        assert lab.hook(talk.event(lab, name, transcript_path=str(pipe), **fields)) == {}
    assert "still running" not in lab.log()
    assert lab.health()["hooks"] == len(events)
    ended = lab.command("daemon", "stop")
    assert ended.returncode == 0, ended.stderr
    assert lab.processes() == []


@only_in_full
def test_one_that_hangs_is_given_up_and_ended(lab: Lab) -> None:
    lab.scripted()
    pid = lab.ask("before")["pid"]
    os.utime(lab.socket(), (0, 0))  # it began long ago
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    told = lab.ask("during")
    assert told["told"] == "during"
    assert told["pid"] != pid
    assert time.monotonic() - began < WAIT_SECONDS + 10.0
    assert soon(lambda: not psutil.pid_exists(pid))
    assert lab.ask("after")["told"] == "after"


def test_a_project_does_not_say_where_hooks_keep_what_is_said(lab: Lab) -> None:
    (lab.project / "recollect.toml").write_text('[store]\nurl = "stolen.db"\n')
    talk = Talk(lab)
    talk.turn(DECISION)
    lab.hook(talk.event(lab, "Stop"))
    lab.command("daemon", "stop")
    lab.hook(talk.event(lab, "SessionEnd"), STUB_NO_UVICORN="1")
    assert not list(lab.folder.rglob("stolen.db"))
    assert stored_texts(lab) == Counter(said_in(talk))


def test_the_users_own_settings_may_name_a_server_and_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '[recall.remote]\nbase_url = "http://127.0.0.1:1"\nkey_variable = "{}"\n'
    project = tmp_path / "project"
    project.mkdir()
    (project / "recollect.toml").write_text(text.format("OF_THE_PROJECT"))
    monkeypatch.chdir(project)
    assert load_settings(folder=None).settings.recall.remote.key_variable != "OF_THE_PROJECT"
    data_home().mkdir(exist_ok=True)
    (data_home() / "recollect.toml").write_text(text.format("MY_KEY"))
    assert load_settings(folder=None).settings.recall.remote.key_variable == "MY_KEY"
    (tmp_path / "named.toml").write_text(text.format("NAMED"))
    monkeypatch.setenv("RECOLLECT_CONFIG", str(tmp_path / "named.toml"))
    assert load_settings(folder=None).settings.recall.remote.key_variable == "NAMED"


def test_where_its_folder_is_removed_it_ends(lab: Lab) -> None:
    lab.scripted()
    lab.environment["RECOLLECT_DAEMON__IDLE_SECONDS"] = "6"
    lab.started()
    shutil.rmtree(lab.home)
    assert soon(lambda: not lab.processes(), 10.0)


def test_sessions_leave_nothing_behind(lab: Lab) -> None:
    events: Sequence[tuple[str, dict[str, Any]]] = (
        ("SessionStart", {"source": "startup"}),
        ("UserPromptSubmit", {"prompt": QUESTION}),
        ("Stop", {}),
        ("PreCompact", {"trigger": "auto"}),
        ("SessionStart", {"source": "compact"}),
        ("SessionEnd", {"reason": "other"}),
    )
    for number in range(at_size(ci=3, full=200)):
        talk = Talk(lab)
        talk.turn(f"{DECISION} It is note {number}.")
        for agent in ("claude-code", "codex"):
            for name, fields in events:
                lab.hook(talk.event(lab, name, **fields), agent=agent)
    assert len(lab.processes()) == 1
    before = {path.name for path in lab.home.iterdir()}
    assert lab.command("daemon", "stop").returncode == 0
    assert lab.processes() == []
    assert lab.left() == KEPT_FILES
    assert {path.name for path in lab.home.iterdir()} == before
    assert lab.command("daemon", "stop").returncode == 1
    assert lab.command("daemon", "status").returncode == 1


def test_a_data_folder_with_a_long_name_has_its_socket_elsewhere(lab: Lab) -> None:
    lab.scripted()
    lab.home = lab.folder / ("long" * 30)
    runtime = Path(tempfile.mkdtemp(prefix="run-"))
    lab.environment |= {"RECOLLECT_HOME": str(lab.home), "XDG_RUNTIME_DIR": str(runtime)}
    assert lab.ask("far away")["told"] == "far away"
    (found,) = runtime.rglob("*.sock")
    assert found.stat().st_mode & 0o777 == 0o600
    assert found.parent.stat().st_mode & 0o777 == 0o700
    lab.command("daemon", "stop")
    assert not list(runtime.rglob("*.sock"))
    shutil.rmtree(runtime)


def test_a_folder_that_others_can_write_to_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / ("long" * 30)))
    with tempfile.TemporaryDirectory() as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        folder = Path(runtime) / f"recollect-{os.getuid()}"
        folder.mkdir(mode=0o700)
        assert Path(socket_path()).parent == folder
        folder.chmod(0o777)
        with pytest.raises(OSError, match="not a folder of this user alone"):
            socket_path()


@pytest.mark.parametrize("variable", ["RECOLLECT_HOME", "RECOLLECT_CONFIG"])
def test_a_hook_with_a_relative_folder_stops_no_agent(lab: Lab, variable: str) -> None:
    """It reads no file of the project, and says on standard error what to do."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "recollect", "hook", "codex"],
        env={**lab.environment, variable: "mine"},
        cwd=lab.project,
        input=b"{}",
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"")
    said = done.stderr.decode()
    if variable == "RECOLLECT_CONFIG":
        said += (lab.home / "daemon" / "daemon.log").read_text()
    assert f"{variable} must be an absolute path" in said
    assert list(lab.project.iterdir()) == []


def test_a_hook_that_the_daemon_answers_imports_next_to_nothing(lab: Lab) -> None:
    lab.scripted().started()
    code = (
        "import sys; before = set(sys.modules)\n"
        "from recollect.hosts.daemon.client import AGENTS, run_hook\n"
        "run_hook(AGENTS['codex'])\n"
        "print(*(set(sys.modules) - before), file=sys.stderr)"
    )
    environment = {name: value for name, value in lab.environment.items() if "STUB" not in name}
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=b'{"prompt": "light"}',
        env=environment,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout)["told"] == "light"
    loaded = set(done.stderr.decode().split())
    assert "recollect.hosts.daemon.client" in loaded
    heavy = {"json", "http", "http.client", "asyncio", "logging", "typing", "pathlib", "subprocess"}
    assert not loaded & {*heavy, "click", "msgspec", "recollect.errors", "recollect.system.config"}
