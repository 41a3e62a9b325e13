"""`recollect undo` asks nobody, so it needs no model, no embedder and no key."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.integration.long_talk import SESSION, Talk, grown, opened, scribe
from tests.trusted_settings import write_trusted

from recollect.cli import main

KEYLESS = """
[models]
provider = "anthropic"
main = "claude-x"
key_variable = "NO_SUCH_KEY"

[recall]
embedder = "remote"

[recall.remote]
provider = "openai"
key_variable = "NO_SUCH_KEY"
"""


def test_undo_needs_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def compacted() -> None:
        async with opened(tmp_path / "m.db", scribe()) as memory:
            await grown(memory, Talk(), 9)
            assert (await memory.compact(SESSION)).compacted

    asyncio.run(compacted())
    write_trusted(KEYLESS, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    arguments = ["undo", SESSION, "--store", str(tmp_path / "m.db"), "--json"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["undone"] is True
