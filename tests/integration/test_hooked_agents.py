"""Claude Code and Codex with our hooks, as `recollect install` puts them in, and the daemon that
they start.

A decision is said, the agent compacts by itself, and the decision stands in the next request;
sessions go on and fork; the daemon is killed in the midst of it. Nothing is left behind when the
daemon has ended. Codex is asked where it is installed, which in CI it is not: it is 436 MB."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from tools.clients.agents import AgentHome, ClaudeCode, Codex
from tools.clients.hop import RecordingHop
from tools.clients.lab import Lab
from tools.clients.provider import ScriptedProvider, scripted_server

from recollect.core.formats.recalled_block import EARLIER_ORDER
from recollect.hosts.hooks.left_out import OPEN_NOTE

DECISION = "We decided that the staging database listens on port 5433, never on 5432."
RULE = "Never push to the release branch without asking me."
COMMAND = "make -n smoke || true"
ASKED = "Which port does the staging database use?"
FILLER = "The loaf rises slowly while the oven warms. " * 2_000
"""Codex keeps the user's newest 20,000 tokens over its compaction: this is more."""
ROOT = Path(__file__).parents[2]
LAB = Lab(folder=Path(os.environ.get("CLIENTS_FOLDER", ROOT / ".ci" / "agents")))
PROGRAM = Path(sys.executable).with_name("recollect")
with_claude = pytest.mark.skipif(not LAB.has("claude"), reason="Claude Code is not installed here")
with_codex = pytest.mark.skipif(not LAB.has("codex"), reason="Codex is not installed here")


@pytest.fixture
def recollect_home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "recollect"
    yield home
    run_recollect(home, tmp_path, "daemon", "stop")


def ours(home: Path) -> dict[str, str]:
    """What our processes are told, and those that agents start for us."""
    told = {"RECOLLECT_HOME": str(home), "RECOLLECT_RECALL__EMBEDDER": "none"}
    return told | {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}


def run_recollect(home: Path, folder: Path, *words: str) -> str:
    done = subprocess.run(
        [str(PROGRAM), *words],
        env={**os.environ, **ours(home)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout


def installed(agent: AgentHome, home: Path, name: str) -> None:
    """Put our hooks into the agent's project."""
    agent.environment |= ours(home)
    run_recollect(home, agent.project, "install", name, "--project")


def requests(hop: RecordingHop) -> list[str]:
    """What the conversation's requests said, in their order."""
    bodies = [one.body.decode() for one in hop.exchanges() if one.path.endswith(_PATHS)]
    return [body for body in bodies if json.loads(body).get("tools")]


_PATHS = ("/messages", "/responses")


def daemon_of(home: Path) -> psutil.Process:
    return psutil.Process(int((home / "daemon" / "lock").read_text()))


def assert_nothing_left(home: Path, folder: Path) -> None:
    """Once the daemon is told to stop: no process, no socket, no temporary file."""
    run_recollect(home, folder, "daemon", "stop")
    left = [one for one in psutil.process_iter(["environ"]) if _belongs(one, home)]
    assert left == []
    assert not list(home.rglob("*.sock"))
    names = {path.name for path in (home / "daemon").iterdir()}
    assert names <= {"daemon.log", "daemon.log.1", "lock", "socket.path", "start.lock"}


@with_claude
def test_decision_outlasts_compaction_of_claude_code(tmp_path: Path, recollect_home: Path) -> None:
    with scripted_server(ScriptedProvider()) as server, RecordingHop(server.url) as hop:
        agent = ClaudeCode(lab=LAB, folder=tmp_path / "agent", url=hop.url)
        installed(agent, recollect_home, "claude-code")
        with agent.talk("--autocompact", "100k") as talk:
            for words in (DECISION, "Look around TOOL:ls", "USED:97000 and on", "Bake some bread."):
                assert not talk.say(words).get("is_error"), words
            compacted = requests(hop)[-1]
            assert not talk.say(ASKED).get("is_error")
            asked = requests(hop)[-1]
        assert any(event.get("subtype") == "compact_boundary" for event in talk.events)
    for request in (compacted, asked):
        assert "recalled-context" in request
        assert "port 5433" in request
    status = json.loads(run_recollect(recollect_home, agent.project, "daemon", "status", "--json"))
    assert status["running"] is True
    run_recollect(recollect_home, agent.project, "uninstall", "claude-code", "--project")
    assert not (agent.project / ".claude").exists()
    assert_nothing_left(recollect_home, agent.project)


@with_claude
def test_a_compaction_of_claude_code_in_the_midst_of_a_request(
    tmp_path: Path, recollect_home: Path
) -> None:
    """The request is given back as such, and the receipt has the sizes that Claude Code wrote."""
    asked = f"Raise the retry limit to 9 in deploy/eu.yaml. USED:97000 TOOL:{COMMAND}"
    with scripted_server(ScriptedProvider()) as server, RecordingHop(server.url) as hop:
        agent = ClaudeCode(lab=LAB, folder=tmp_path / "agent", url=hop.url)
        installed(agent, recollect_home, "claude-code")
        with agent.talk("--autocompact", "100k") as talk:
            for words in (DECISION, RULE, asked):
                assert not talk.say(words).get("is_error"), words
            given = _recalled(requests(hop)[-1])
            assert not talk.say("Bake some bread.").get("is_error")
        (transcript,) = agent.home.rglob(f"{talk.session}.jsonl")
    records = [json.loads(line) for line in transcript.read_text(encoding="utf-8").splitlines()]
    (boundary,) = [one for one in records if one.get("subtype") == "compact_boundary"]
    told = given.replace("\\n", "\n").splitlines()
    assert told.index(OPEN_NOTE) < told.index(f"user: {asked}") < told.index(f"user: {RULE}")
    assert EARLIER_ORDER not in given

    session = str(talk.session)
    (row,) = receipts_of(recollect_home, agent.project, session, "--list")["compactions"]
    sizes = boundary["compactMetadata"]
    assert row["tokens_before"] == sizes["preTokens"]
    assert row["tokens_after"] == sizes["postTokens"]
    assert (row["host"], row["undone"]) == ("Claude Code", False)
    found = receipts_of(recollect_home, agent.project, session)
    assert "SUMMARY-MARK" in found["summary"]
    pinned = [one["text"] for one in found["receipt"]["findings"] if one["pinned"]]
    assert {DECISION, RULE} <= set(pinned)
    listed = run_recollect(recollect_home, agent.project, "receipt", session)
    assert "Claude Code compacted by itself" in listed
    assert "given back" in listed
    assert_nothing_left(recollect_home, agent.project)


@with_claude
def test_claude_code_starts_goes_on_and_forks(tmp_path: Path, recollect_home: Path) -> None:
    """A new session is told what another decided, when it asks. One that goes on is told nothing
    that its window has, also if its prompt cache has expired."""
    with scripted_server(ScriptedProvider()) as server, RecordingHop(server.url) as hop:
        agent = ClaudeCode(lab=LAB, folder=tmp_path / "agent", url=hop.url)
        installed(agent, recollect_home, "claude-code")
        assert agent.ask(DECISION).status == 0
        assert "recalled-context" not in requests(hop)[-1], "a first session has nothing to recall"
        assert agent.ask(ASKED).status == 0
        assert _recalled(requests(hop)[-1]).count("port 5433") == 1, "told in another session"
        assert agent.ask("Bake some bread.", resume=True).status == 0
        assert _recalled(requests(hop)[-1]).count("port 5433") == 1, "the cache holds: no more"
        agent.extra = ("--fork-session",)
        assert agent.ask("And a cake, too.", resume=True).status == 0
        assert _recalled(requests(hop)[-1]).count("port 5433") == 1, "the fork has what it had"
        agent.extra = ()
        newest = max(agent.home.rglob("*.jsonl"), key=lambda path: path.stat().st_mtime)
        text = newest.read_text(encoding="utf-8")
        newest.write_text(re.sub(r"20\d\d-\d\d-\d\dT", "2026-01-01T", text), encoding="utf-8")
        assert agent.ask("And some biscuits.", resume=True).status == 0
        assert _recalled(requests(hop)[-1]).count("port 5433") == 1, "all is in the window"
    assert_nothing_left(recollect_home, agent.project)


@with_claude
def test_a_daemon_that_is_killed_under_claude_code_loses_nothing(
    tmp_path: Path, recollect_home: Path
) -> None:
    """SIGKILL in the midst of a prompt's hook: the turn goes on. The next session starts another
    daemon, and what was said meanwhile is there, once."""
    with scripted_server(ScriptedProvider()) as server, RecordingHop(server.url) as hop:
        agent = ClaudeCode(lab=LAB, folder=tmp_path / "agent", url=hop.url)
        installed(agent, recollect_home, "claude-code")
        with agent.talk() as talk:
            assert not talk.say("Good morning.").get("is_error")
            daemon = daemon_of(recollect_home)
            daemon.suspend()  # the hook is taken and not answered
            with ThreadPoolExecutor(1) as pool:
                said = pool.submit(talk.say, DECISION)
                _wait_for_hook()
                daemon.kill()
                daemon.wait(10)
                assert not said.result(60).get("is_error")
            assert not talk.say("Bake some bread.").get("is_error"), "without a daemon"
            assert talk.session is not None
        assert agent.ask("Good evening.", resume=True).status == 0, "starts another one"
        assert agent.ask(ASKED).status == 0
        told = _recalled(requests(hop)[-1])
        assert told.count("port 5433") == 1, "not lost, and not there twice"
    assert daemon_of(recollect_home).pid != daemon.pid
    assert_nothing_left(recollect_home, agent.project)


@with_codex
def test_a_decision_outlasts_the_compaction_of_codex(tmp_path: Path, recollect_home: Path) -> None:
    """Over its resumes and in a fork; at the resume that compacts, SessionStart comes twice."""
    with scripted_server(ScriptedProvider()) as server, RecordingHop(server.url) as hop:
        agent = Codex(
            lab=LAB,
            folder=tmp_path / "agent",
            url=hop.url,
            extra=("--dangerously-bypass-hook-trust",),  # in tests only: nobody is there to ask
        )
        installed(agent, recollect_home, "codex")
        assert agent.ask(DECISION).status == 0
        assert agent.ask(f"USED:97000 {FILLER}", resume=True).status == 0
        assert agent.ask("Bake some bread.", resume=True).status == 0
        compacted = requests(hop)[-1]
        assert agent.ask(ASKED, resume=True).status == 0
        asked = requests(hop)[-1]
        assert agent.fork("And the port, in this copy of our talk?").status == 0
        forked = requests(hop)[-1]
    assert any(b'"type":"compacted"' in path.read_bytes() for path in agent.home.rglob("*.jsonl"))
    assert compacted.count("port 5433") == 1, "in what was told at the start, and there once"
    assert "port 5433" in _recalled(compacted)
    assert "environment_context" not in _recalled(compacted), "nobody laid that down"
    assert "port 5433" in _recalled(asked)
    assert "port 5433" in _recalled(forked)
    rollouts = sorted(agent.home.rglob("rollout-*.jsonl"))
    first = json.loads(rollouts[0].read_bytes().split(b"\n")[0])["payload"]["id"]
    found = receipts_of(recollect_home, agent.project, first)
    assert found["host"] == "Codex"
    assert "SUMMARY-MARK" in found["summary"]
    assert DECISION in [one["text"] for one in found["receipt"]["findings"] if one["pinned"]]
    run_recollect(recollect_home, agent.project, "uninstall", "codex", "--project")
    assert not (agent.project / ".codex").exists()
    assert_nothing_left(recollect_home, agent.project)


def receipts_of(home: Path, folder: Path, session: str, *words: str) -> Any:
    """Return what `recollect receipt` says, once there is one: it is made in the background."""
    text = ""
    for _ in range(100):
        text = run_recollect(home, folder, "receipt", session, *words, "--json")
        if text and '"compactions": []' not in text:
            break
        time.sleep(0.2)
    return json.loads(text)


def _recalled(request: str) -> str:
    """What was handed over in a request."""
    found = re.findall(r"<recalled-context.*?</recalled-context>", request, re.DOTALL)
    return "\n".join(found)


def _wait_for_hook() -> None:
    """Until the hook of a prompt runs, which waits for the daemon."""
    for _ in range(300):
        for process in psutil.process_iter(["cmdline", "create_time"]):
            command = " ".join(process.info["cmdline"] or ())
            hooked = "recollect-hook" in command or "-m recollect hook" in command
            if hooked and time.time() - process.info["create_time"] > 1:
                return
        time.sleep(0.1)
    raise AssertionError("no hook came")


def _belongs(process: psutil.Process, home: Path) -> bool:
    environment = process.info["environ"] or {}
    return bool(environment.get("RECOLLECT_HOME") == str(home))
