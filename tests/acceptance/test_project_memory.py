"""Commands in a project's folder mean the project's memory, and the worker serves all of them."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.harness.fact_reader import fact_reader

from recollect import open_memory
from recollect.cli import main
from recollect.system.projects import project_space
from recollect_bench.postgres_server import PostgresServer

SAID = "We decided that invoices are printed by the Kestrel service."


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder with a memory, as an agent's hooks leave it, and the folder to be in."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)

    async def speak() -> None:
        idle = {"facts.idle_seconds": 0.01, "jobs.in_process": False}
        async with open_memory(
            space=str(folder), settings=idle, extraction_model=fact_reader()
        ) as memory:
            await memory.ingest("s", [json.dumps({"role": "user", "content": SAID}).encode()])

    asyncio.run(speak())
    return folder


def test_a_command_in_a_project_asks_its_memory_and_says_so(project: Path) -> None:
    found = CliRunner().invoke(main, ["memory", "search", "who prints invoices?"])
    assert found.exit_code == 0, found.output
    assert "Kestrel" in found.stdout
    assert f"--space {project}" in found.stderr
    other = CliRunner().invoke(main, ["memory", "search", "invoices", "--space", "default"])
    assert other.exit_code == 2
    assert "`recollect space list`" in other.stderr


def test_the_worker_does_the_jobs_of_every_memory(project: Path) -> None:
    done = CliRunner().invoke(main, ["worker", "--once", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["done"] > 0, project


def _run(*arguments: str, code: int = 0) -> tuple[str, str]:
    done = CliRunner().invoke(main, list(arguments))
    assert done.exit_code == code, done.output
    return done.stdout, done.stderr


def _say(space: str, session: str, text: str) -> None:
    """As an agent's hook or gateway does it: one request of a session, prepared and kept."""

    async def say() -> None:
        async with open_memory(space=space, settings={"jobs.in_process": False}) as memory:
            body = {"model": "m", "messages": [{"role": "user", "content": text}]}
            await memory.prepare(session, body)
            await memory.settle()

    asyncio.run(say())


@pytest.mark.parametrize("mark", [".git", "recollect.toml", None])
@pytest.mark.parametrize("used_before", [False, True])
def test_a_fact_added_first_is_in_the_memory_that_hooks_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str | None, used_before: bool
) -> None:
    folder = tmp_path / "fresh"
    below = folder / "src" if mark else folder
    below.mkdir(parents=True)
    if mark == ".git":
        (folder / mark).mkdir()
    elif mark:
        (folder / mark).touch()
    monkeypatch.chdir(below)
    if used_before:
        _say("default", "other", "Something of another program.")
    _, told = _run("facts", "add", "Invoices are printed by the Kestrel service.")
    assert f"--space {folder}" in told
    assert project_space(str(below)) == str(folder)
    _say(str(folder), "hooked", SAID)
    listed, _ = _run("facts", "list")
    assert "Kestrel" in listed


def test_the_same_holds_on_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: PostgresServer
) -> None:
    url = asyncio.run(server.migrated_database()).app_url
    monkeypatch.setenv("RECOLLECT_STORE__URL", url)
    monkeypatch.chdir(tmp_path)
    _say("default", "other", SAID)
    found, _ = _run("memory", "search", "who prints invoices?")
    assert "Kestrel" in found, "the default space, as long as the project has none"
    _, told = _run("facts", "add", "The depot is in Hull.")
    assert f"--space {tmp_path}" in told
    listed, told = _run("facts", "list")
    assert "Hull" in listed
    assert f"--space {tmp_path}" in told


def test_commands_on_a_session_mean_the_project_s_memory(project: Path) -> None:
    _say("default", "hooked-1", "Another program's words.")
    _say(str(project), "hooked-1", SAID)
    assert "Kestrel" in _run("replay", "hooked-1", "--list")[0]
    assert "Kestrel" in _run("replay", "hooked", "--turn", "1")[0]
    _, told = _run("receipt", "hooked-1", code=2)
    assert "no compaction" in told.lower(), told
    _, told = _run("undo", "hooked-1", code=1)
    assert "no session" not in told


def test_a_folder_without_a_memory_reads_the_default_one_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, told = _run("memory", "search", "invoices", code=2)
    assert "this folder has no memory yet" in told
    assert "`recollect space list`" in told
    _say("default", "s", SAID)
    found, told = _run("memory", "search", "who prints invoices?")
    assert "Kestrel" in found
    assert "--space default" in told


CHANGES = (
    "memory forget --matching Kestrel --yes",
    "memory forget --pattern Kestrel --yes --json",
    "memory forget --session s --yes",
    "memory forget --since 2d --yes",
    "memory forget --before 0d --yes",
    "memory reindex",
    "memory check --retry",
    "memory scrub",
    "memory index --withdraw",
    "memory jobs --pause",
    "memory jobs --resume embed",
    "memory jobs --revive",
    "facts edit {fact} Nobody-prints-invoices",
    "facts pin {fact}",
    "facts expire {fact}",
    "facts forget {fact} --sources --yes",
    "redact --apply --yes",
    "redact --apply --yes --pattern Kestrel --json",
    "undo s --yes",
)
CREATES = {"facts add", "facts import", "import", "memory add", "memory index"}
READS = {
    *("export", "facts export", "facts list", "facts why", "receipt", "replay"),
    *("memory stats", "memory sessions", "memory show", "memory search"),
}


def _other_memory() -> str:
    """Write a message and a fact to the memory `default`, and return the fact's id."""
    _say("default", "s", SAID)
    written, _ = _run("facts", "add", SAID, "--space", "default", "--json")
    return str(json.loads(written)["fact"]["id"])


def _refused(command: str, fact: str) -> str:
    refused = CliRunner().invoke(main, command.format(fact=fact).split())
    assert refused.exit_code == 2, (command, refused.output)
    assert "default" not in refused.output, command
    return refused.stderr


def test_a_command_that_changes_something_never_uses_the_default_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in a folder without a memory, not below a project without one."""
    fact = _other_memory()
    (tmp_path / "project" / ".git").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "project"):
        monkeypatch.chdir(folder)
        for command in CHANGES:
            assert "this folder has no memory yet" in _refused(command, fact), command
    assert "Kestrel" in _run("memory", "search", "who prints invoices?", "--space", "default")[0]
    assert SAID in _run("facts", "list", "--space", "default")[0]
    assert "paused" not in _run("memory", "jobs", "--space", "default")[0].lower()
    assert _run("memory", "forget", "--matching", "Kestrel", "--yes", "--space", "default")


def test_on_a_server_no_change_uses_the_default_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: PostgresServer
) -> None:
    monkeypatch.setenv("RECOLLECT_STORE__URL", asyncio.run(server.migrated_database()).app_url)
    monkeypatch.chdir(tmp_path)
    fact = _other_memory()
    for command in CHANGES:
        refused = CliRunner().invoke(main, command.format(fact=fact).split())
        assert f"--space {tmp_path}" in refused.stderr, command
    assert "Kestrel" in _run("memory", "search", "who prints invoices?", "--space", "default")[0]


def test_every_command_on_a_memory_reads_creates_or_refuses() -> None:
    def commands(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
        if isinstance(command, click.Group):
            for part in command.list_commands(click.Context(command)):
                child = command.get_command(click.Context(command), part)
                assert child is not None
                yield from commands(child, f"{name} {part}".strip())
        for option in command.params:
            if isinstance(option, click.Option) and "--space" in option.opts:
                yield name, option.help or ""

    tested = {" ".join(change.split(" -")[0].split(" {")[0].split()[:2]) for change in CHANGES}
    tested = {"undo" if name.startswith("undo") else name for name in tested}
    shared = {name for name, text in commands(main, "") if "this folder's project" in text}
    assert shared == tested | CREATES | READS


def test_a_session_is_listed_with_its_first_prompt(project: Path) -> None:
    _say(str(project), "hooked-1", "<system-reminder>Today is Monday.</system-reminder>")
    _say(str(project), "hooked-1", "Fix the importer,\nplease." + " It is slow." * 20)
    listed = _run("memory", "sessions")[0].splitlines()
    assert any("hooked-1 Fix the importer, please. It is slow." in line for line in listed)
    assert any(f"s {SAID[:60]}" in line for line in listed), "as imported"
    assert max(len(line) for line in listed) < 140
