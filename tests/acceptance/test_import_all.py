"""`recollect import --all` on a machine with every agent's histories, as a user meets it."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.recollect_cli import PROGRAM, environment
from tests.harness.forked_cli import run_forked
from tests.sizes import at_size

from recollect.adapters.wiring import open_store
from recollect.core.values.segment import StoredSegment

SECRET = "ghp_" + "q7Rt2LmX9vB4kZ8wY1nD5cF3hJ6sP0aGeUoT"


def change(path: Path, *statements: tuple[str, tuple[object, ...]]) -> None:
    """Change a database, and leave it as its writer would: closed."""
    with closing(sqlite3.connect(path)) as database, database:
        for statement, given in statements:
            database.execute(statement, given)


class Machine:
    """A home folder with agents' histories in it, and projects beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "someone"
        self.home.mkdir()
        # test environments may name other folders
        named = {"CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR", "OPENCLAW_STATE_DIR"}
        named |= {"XDG_DATA_HOME"}
        kept = {k: v for k, v in environment(folder).items() if k not in named}
        self.environment = {**kept, "HOME": str(self.home)}

    def project(self, name: str) -> Path:
        path = self.folder / "src" / name
        (path / ".git").mkdir(parents=True, exist_ok=True)
        return path

    def write(self, name: str, text: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def run(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
        return run_forked(
            list(arguments), stdin=b"", env=self.environment, cwd=cwd or self.folder, timeout=120
        )

    def json(self, *arguments: str, code: int = 0, cwd: Path | None = None) -> dict[str, Any]:
        done = self.run("import", "--all", "--json", *arguments, cwd=cwd)
        assert done.returncode == code, done.stderr.decode()
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def kept(self, project: Path) -> str:
        """All that the memory of a project holds, as one text."""
        return "\n".join(one.segment.text for one in asyncio.run(_stored(str(project))))


async def _stored(space: str) -> tuple[StoredSegment, ...]:
    store = await open_store(None, space=space, create=False)
    try:
        return await store.page(limit=100_000)
    finally:
        await store.close()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("RECOLLECT_HOME", made.environment["RECOLLECT_HOME"])
    return made


def claude_line(number: int, role: str, text: str, cwd: Path, session: str) -> str:
    line: dict[str, Any] = {
        "type": role,
        "uuid": f"{session}-{number}",
        "parentUuid": f"{session}-{number - 1}" if number else None,
        "isSidechain": False,
        "sessionId": session,
        "cwd": str(cwd),
        "timestamp": f"2026-10-01T10:{number // 60 % 60:02}:{number % 60:02}Z",
        "message": {"role": role, "content": text},
    }
    return json.dumps(line) + "\n"


def claude_session(machine: Machine, session: str, project: Path, texts: list[str]) -> Path:
    folder = "-" + str(project).strip("/").replace("/", "-")
    opening = json.dumps({"type": "queue-operation", "sessionId": session, "content": "hi"}) + "\n"
    lines = [
        claude_line(number, ("user", "assistant")[number % 2], text, project, session)
        for number, text in enumerate(texts)
    ]
    return machine.write(f".claude/projects/{folder}/{session}.jsonl", opening + "".join(lines))


def codex_session(machine: Machine, project: Path, text: str) -> None:
    meta = {"id": "thread-1", "cwd": str(project), "cli_version": "0.166.0"}
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    lines = [("session_meta", meta), ("response_item", said)]
    machine.write(
        ".codex/sessions/2026/11/17/rollout-2026-11-17T04-57-31-thread-1.jsonl",
        "".join(
            json.dumps({"timestamp": "2026-11-17T04:57:32Z", "type": kind, "payload": payload})
            + "\n"
            for kind, payload in lines
        ),
    )
    machine.write(".codex/thread_history_1.sqlite", "")


def pi_lines(project: Path, text: str, session: str) -> list[str]:
    message = {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 1}
    return [
        json.dumps(
            {
                "type": "session",
                "version": 3,
                "id": session,
                "timestamp": "2026-11-17T04:57:34Z",
                "cwd": str(project),
            }
        ),
        json.dumps(
            {
                "type": "message",
                "id": "a1",
                "parentId": None,
                "timestamp": "2026-11-17T04:57:35Z",
                "message": message,
            }
        ),
    ]


def openclaw_database(machine: Machine, project: Path, text: str) -> None:
    path = machine.write(".openclaw/agents/main/agent/openclaw-agent.sqlite", "")
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE transcript_events (session_id TEXT, seq INTEGER, event_json TEXT,"
            " created_at INTEGER, event_zstd BLOB, event_utf8_bytes INTEGER)"
        )
        for seq, line in enumerate(pi_lines(project, text, "claw-1")):
            database.execute(
                "INSERT INTO transcript_events VALUES ('claw-1', ?, ?, 1794891682812, NULL, ?)",
                (seq, line, len(line)),
            )
    database.close()


def every_agent(machine: Machine) -> Mapping[str, Path]:
    projects = {name: machine.project(name) for name in ("app", "site", "tool", "claw")}
    claude_session(
        machine, "c-1", projects["app"], ["We deploy from the amber branch.", "Noted: amber."]
    )
    codex_session(machine, projects["site"], "The colour of links is teal.")
    lines = pi_lines(projects["tool"], "Timeouts are 47 seconds.", "pi-1")
    machine.write(".pi/agent/sessions/--src-tool--/1_pi-1.jsonl", "\n".join(lines) + "\n")
    openclaw_database(machine, projects["claw"], "The cat is called Miso.")
    return projects


def test_every_agents_history_is_found_and_goes_into_its_projects_memory(machine: Machine) -> None:
    projects = every_agent(machine)
    subagent = machine.write(".claude/projects/-src-app/c-1/subagents/agent-x.jsonl", "{}\n")
    shown = machine.json("--dry-run")
    assert {(one["agent"], one["space"]) for one in shown["projects"]} == {
        ("claude-code", str(projects["app"])),
        ("codex", str(projects["site"])),
        ("pi", str(projects["tool"])),
        ("openclaw", str(projects["claw"])),
    }
    assert all(one["sessions"] == 1 and one["bytes"] for one in shown["projects"])
    left_out = {(one["agent"], one["reason"]) for one in shown["left_out"]}
    assert left_out == {("claude-code", "subagent"), ("codex", "same_threads")}
    assert subagent.exists()
    assert not (machine.folder / "home" / "spaces").exists(), "a dry run makes no memory"
    told = machine.json("--yes")
    assert told["totals"]["not_imported"] == 0
    for name, words in {
        "app": "amber branch",
        "site": "teal",
        "tool": "47 seconds",
        "claw": "Miso",
    }.items():
        assert words in machine.kept(projects[name])
    again = machine.json("--yes")
    assert again["totals"]["stored"] == 0
    assert again["totals"]["read"] == told["totals"]["read"] == told["totals"]["stored"]


def test_what_is_broken_is_told_and_stops_nothing(machine: Machine) -> None:
    project = machine.project("app")
    claude_session(machine, "good", project, ["Use port 8123.", "Yes."])
    torn = claude_session(machine, "torn", project, ["Said before the tear.", "Yes."])
    torn.write_bytes(torn.read_bytes()[:-30])
    packed = ".codex/sessions/2026/11/17/rollout-1-a.jsonl.zst"
    machine.write(packed, "").write_bytes(b"\x28\xb5\x2f\xfd0000")
    machine.write(
        ".openclaw/agents/main/agent/openclaw-agent.sqlite", "no database, but long enough " * 40
    )
    machine.write(".claude/projects/-x/empty.jsonl", "")
    done = machine.run("import", "--all", "--yes")
    assert done.returncode == 1
    errors = done.stderr.decode()
    assert "rollout-1-a.jsonl.zst is a damaged Zstandard file" in errors
    assert "openclaw-agent.sqlite: file is not a database" in errors
    assert "8123" in machine.kept(project)
    assert "before the tear" in machine.kept(project)


def test_nothing_is_left_beside_an_agents_database(machine: Machine) -> None:
    project = machine.project("claw")
    openclaw_database(machine, project, "The cat is called Miso.")
    path = machine.home / ".openclaw/agents/main/agent/openclaw-agent.sqlite"
    change(path, ("PRAGMA journal_mode=WAL", ()))
    assert machine.json("--yes")["totals"]["stored"] == 1
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_nobody_is_asked_where_nobody_can_answer(machine: Machine) -> None:
    claude_session(machine, "c-1", machine.project("app"), ["Use port 8123.", "Yes."])
    done = machine.run("import", "--all")
    assert done.returncode == 2
    assert "--yes" in done.stderr.decode()
    assert "Claude Code" in done.stdout.decode(), "what is there is shown all the same"
    for wrong in (("--space", "x"), ("--session", "x"), ("somewhere",), ("--restore",)):
        assert machine.run("import", "--all", *wrong).returncode == 2
    assert machine.run("import", "--yes", ".").returncode == 2
    assert machine.run("import").returncode == 2


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_killed_in_the_midst_it_goes_on(machine: Machine) -> None:
    count, length = at_size(ci=(8, 60), full=(200, 100))
    for number in range(count):
        project = machine.project(f"p{number % 4}")
        texts = [f"Session {number} says thing {at} of the list." for at in range(length)]
        claude_session(machine, f"s-{number}", project, texts)
    spaces = machine.folder / "home"
    running = subprocess.Popen(
        [*PROGRAM, "import", "--all", "--yes"],
        env=machine.environment,
        cwd=machine.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith(b"Claude Code,"):  # the first project is done
            break
    time.sleep(0.05)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    running.stdout.close()
    assert spaces.exists()
    told = machine.json("--yes")["totals"]
    assert told["read"] == count * length
    assert 0 < told["known"] < told["read"], "the first run was cut short"
    assert told["stored"] + told["known"] == told["read"]
    assert machine.json("--yes")["totals"]["stored"] == 0
    for number in range(4):
        said = machine.kept(machine.project(f"p{number}")).split("\n")
        assert len(said) == len(set(said)) == count // 4 * length
