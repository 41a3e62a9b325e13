"""`recollect doctor` names writes that no process with the store's secret can store."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from recollect import open_memory
from recollect.adapters.wiring import open_spool
from recollect.cli import main


def test_doctor_counts_batches_of_another_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "m.db"
    monkeypatch.setenv("RECOLLECT_STORE__URL", str(file))

    async def fill() -> None:
        async with open_memory(store=file, embedders=[]) as memory:
            await memory.prepare("s", {"messages": [{"role": "user", "content": "hello"}]})
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RECOLLECT_SECRET", "the one of an outage")
            spool = await open_spool(str(file), space="default")
            await spool.append(b"a batch")
            await spool.close()

    asyncio.run(fill())
    checks = json.loads(CliRunner().invoke(main, ["doctor", "--json"]).stdout)["checks"]
    (store,) = [check for check in checks if check["name"] == "store"]
    assert "1 batch" in json.dumps(store)
    assert "another secret" in json.dumps(store)
