"""Commands in a project's folder mean the project's memory, and the worker serves all of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from recollect import open_memory
from recollect.surfaces.cli import main

SAID = "We decided that invoices are printed by the Kestrel service."


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder with a memory, as an agent's hooks leave it, and the folder to be in."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)

    async def speak() -> None:
        idle = {"facts.idle_seconds": 0.01, "jobs.in_process": False}
        async with open_memory(space=str(folder), settings=idle) as memory:
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
    assert str(project) in json.loads(done.stdout)["spaces"]
