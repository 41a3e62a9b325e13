"""`recollect project`: what a user does to share one memory between folders, or to part them."""

import asyncio
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner
from tests.unit.hooks.agent_transcripts import ClaudeTranscript

from recollect import open_memory
from recollect.adapters.wiring import merge, open_store
from recollect.agent.chat.opening import ChatOrder
from recollect.cli import main
from recollect.core.values.segment import Segment
from recollect.hosts.gateway.shaping import Shaper
from recollect.hosts.hooks.memory import HookMemory
from recollect.system import projects
from recollect.system.config import load_settings
from recollect.system.config.settings import GatewaySettings
from recollect.system.places import space_file

PORT = "We decided to run the staging API on port 8443."
BY_FOLDER = GatewaySettings(by_folder=True)
KESTREL = "Invoices are printed by the Kestrel service."


@pytest.fixture
def clones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two clones, each with a memory: `first` knows a port, `second` who prints invoices."""

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q", "-b", "main", "first")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    git("-C", "first", *identity, "commit", "-q", "--allow-empty", "-m", "one")
    git("clone", "-q", "first", "second")
    for name, text in (("first", PORT), ("second", KESTREL)):
        say(projects.project_space(str(tmp_path / name)), f"session of {name}", text)
    monkeypatch.chdir(tmp_path / "second")
    return tmp_path


def say(space: str, session: str, text: str) -> None:
    async def ingest() -> None:
        async with open_memory(space=space, settings={"jobs.in_process": False}) as memory:
            await memory.ingest(session, [json.dumps({"role": "user", "content": text}).encode()])

    asyncio.run(ingest())


def stop_turn(transcript: ClaudeTranscript) -> None:
    """End a turn as Claude Code does, which stores the transcript's messages."""

    async def answer() -> None:
        memory = HookMemory(load_settings(environment={}).settings)
        payload = {
            "session_id": transcript.session_id,
            "transcript_path": str(transcript.path),
            "cwd": str(transcript.path.parent),
            "hook_event_name": "Stop",
        }
        await memory.answer("claude-code", payload)
        await memory.close()

    asyncio.run(answer())


def run(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, list(arguments))
    assert done.exit_code == code, done.output
    return done.output


def segments(space: Path | str) -> list[Segment]:
    async def read() -> list[Segment]:
        store = await open_store(None, space=str(space), create=False)
        try:
            return [stored.segment for stored in await store.page()]
        finally:
            await store.close()

    return asyncio.run(read())


def test_a_second_clone_joins_and_brings_its_messages(clones: Path) -> None:
    fact = run("facts", "add", "The depot is in Hull.")
    assert "second" in fact
    shown = run("project")
    assert "the memory of this repository" in shown
    assert str(clones / "first") in shown, "it offers the memory of the first clone"
    assert "Moved 1 message, 1 fact." in run("project", "join", "--yes")
    assert "Kestrel" in run("memory", "search", "who prints invoices?")
    assert "8443" in run("memory", "search", "which port does staging use?")
    assert "Hull" in run("facts", "list")
    assert not space_file(str(clones / "second")).exists()
    assert json.loads(run("project", "--json"))["space"] == str(clones / "first")


def test_a_search_in_a_new_clone_names_the_memory_to_join(clones: Path) -> None:
    subprocess.run(["git", "clone", "-q", "first", "third"], cwd=clones, check=True)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from recollect.cli import main; main()",
            "memory",
            "search",
            "port",
        ],
        cwd=clones / "third",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert str(clones / "first") in done.stderr
    assert "recollect project join" in done.stderr
    assert "import --all" not in done.stderr


def test_split_gives_an_empty_memory_and_leaves_the_other_whole(clones: Path) -> None:
    run("project", "join", "--yes")
    run("project", "split")
    assert "no memory yet" in run("memory", "search", "port", "--space", str(Path.cwd()), code=2)
    texts = {segment.text for segment in segments(clones / "first")}
    assert texts == {PORT, KESTREL}


def test_a_renamed_memory_is_found_by_its_name(clones: Path) -> None:
    run("project", "rename", "shop")
    assert "Kestrel" in run("memory", "search", "who prints invoices?", "--space", "shop")
    assert "shop" in run("project")
    assert "choose another name" in run("project", "rename", str(clones / "first"), code=2)
    other = CliRunner().invoke(main, ["project", "join", str(clones / "first"), "--yes"])
    assert other.exit_code == 0, other.output


@pytest.mark.parametrize("step", ["copy_memory", "delete_stored_space"])
def test_an_interrupted_join_loses_nothing_and_is_finished(
    clones: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(merge, step, interrupt)
        run("project", "join", "--yes", code=1)
    assert [segment.text for segment in segments(clones / "second")] == [KESTREL]
    run("project")
    texts = [segment.text for segment in segments(clones / "first")]
    assert texts == [PORT, KESTREL], "each message once"
    assert not projects.pending_moves()


def test_a_session_that_continues_after_the_join_is_stored_once(
    clones: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does what was forgotten before come back from its transcript."""
    transcript = ClaudeTranscript(clones / "second")
    transcript.user("The release key is called Merlin.")
    transcript.reply("Understood.")
    stop = partial(stop_turn, transcript)
    stop()
    run("memory", "forget", "--matching", "Merlin", "--yes")
    run("project", "join", "--yes")
    transcript.user("And the depot is in Hull.")
    *earlier, last = transcript.path.read_text().splitlines(keepends=True)
    transcript.path.write_text("".join(earlier) + last.replace("T01:00", "T02:00"))
    stop()
    texts = [segment.text for segment in segments(clones / "first")]
    assert sorted(texts) == sorted([PORT, KESTREL, "Understood.", "And the depot is in Hull."])


@pytest.mark.parametrize("selected", ["--session", "--matching"])
@pytest.mark.parametrize("again", ["hook", "import"])
def test_what_was_forgotten_before_a_join_does_not_come_back(
    clones: Path, selected: str, again: str
) -> None:
    """A whole session, or the last messages of one, also after the joined memory joins another."""
    transcript = ClaudeTranscript(clones / "second")
    if selected == "--matching":
        transcript.user("The depot is in Hull.")
    transcript.user("The release key is called Merlin.")
    transcript.reply("Merlin it is.")
    first, *later = transcript.path.read_text().splitlines(keepends=True)
    transcript.path.write_text(first + "".join(later).replace("T01:00", "T02:00"))
    stop_turn(transcript)
    chosen = transcript.session_id if selected == "--session" else "Merlin"
    run("memory", "forget", selected, chosen, "--yes")
    run("project", "join", "--yes")
    (clones / "third").mkdir()
    say(projects.project_space(str(clones / "third")), "session of third", "Nothing.")
    run("project", "join", str(clones / "third"), "--yes")
    if again == "hook":
        stop_turn(transcript)
    else:
        run("import", str(transcript.path))
    texts = {segment.text for segment in segments(clones / "third")}
    assert not any("Merlin" in text for text in texts)
    assert {PORT, KESTREL, "Nothing."} <= texts


def test_install_names_the_memory(clones: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.setenv(variable, str(clones / "agent"))
    (clones / "agent").mkdir()
    run("install", "claude-code", "--space", "team", "--no-download-model")
    assert json.loads(run("project", "--json"))["space"] == "team"
    run("install", "claude-code", "--project", "--space", "shop", "--no-download-model")
    assert json.loads(run("project", "--json"))["space"] == "shop"
    monkeypatch.chdir(clones / "first")
    assert projects.project_space(str(clones / "first")) == "team"
    run("install", "claude-code", "--space", "", "--no-download-model")
    assert projects.project_space(str(clones / "first")) == str(clones / "first")
    shutil.rmtree(clones / "second")


def test_every_way_in_has_the_same_memory_for_a_folder(
    clones: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a worktree, in a renamed folder and in a joined clone: hooks, gateway, wrap, MCP, chat,
    commands and imports."""
    run("project", "join", "--yes")
    wanted = str(clones / "first")
    subprocess.run(
        ["git", "worktree", "add", "-q", "../wt"], cwd=clones / "first", check=True, timeout=60
    )
    projects.project_space(str(clones / "wt"))
    (clones / "first").rename(clones / "renamed")
    monkeypatch.setattr("shutil.which", lambda name: name)
    settings = load_settings(environment={}).settings
    for name in ("renamed", "wt", "second"):
        folder = clones / name
        monkeypatch.chdir(folder)
        seen: dict[str, str] = {}

        async def hook(folder: Path = folder, seen: dict[str, str] = seen) -> None:
            memory = HookMemory(settings)
            payload = {"cwd": str(folder), "session_id": "s", "hook_event_name": "SessionStart"}
            await memory.answer("claude-code", payload)
            seen["hooks"] = memory._sessions["s"].space
            await memory.close()

        asyncio.run(hook())
        shaper = SimpleNamespace(_settings=replace(settings, gateway=BY_FOLDER))
        caller = SimpleNamespace(space=None, folder=str(folder))
        seen["gateway"] = Shaper.space_of(cast(Any, shaper), cast(Any, caller))
        with monkeypatch.context() as patch:
            patch.setattr(
                "recollect.cli.gateway.run_wrapped",
                lambda _, given, *__, seen=seen: seen.update(wrap=given.gateway.space) or 0,
            )
            run("wrap", "claude")
            patch.setattr(
                "recollect.hosts.mcp.stdio.serve_stdio",
                lambda order, seen=seen: seen.update(mcp=order.space),
            )
            run("mcp")
        seen["chat"] = ChatOrder(workspace=folder, settings=settings).space_name
        seen["commands"] = json.loads(run("project", "--json"))["space"]
        assert set(seen.values()) == {wanted}, (name, seen)
        assert "Kestrel" in run("memory", "search", "who prints invoices?")
