"""A memory that fails in the middle of a recall costs the turn its block, and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from recollect import open_memory
from recollect.adapters.stores.sqlite import SQLiteStore

TOLD = "the green crane stands at the north quay, says the keeper"
ASKS = "which crane stands at the north quay, by the way?"


def turn(*texts: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    said = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    return {"model": "claude-x", "max_tokens": 10, "messages": said}


def asked(folder: Path) -> Any:
    """Somebody talked; a new session of the same space asks."""
    patient = {
        "store.read_seconds": 20.0,
        "store.write_seconds": 20.0,
        "recall.deadline_seconds": 20.0,
        "turn.deadline_seconds": 40.0,
        "recall.embedder": "none",
        "recall.scope": "space",
        "jobs.in_process": False,
    }

    async def run() -> Any:
        memory = open_memory(store=folder / "m.db", settings=patient)
        await memory.prepare("before", turn(TOLD, "noted"))
        await memory.close()
        again = open_memory(store=folder / "m.db", settings=patient)
        context = await again.prepare("after", turn(ASKS))
        await again.close()
        return context

    return asyncio.run(run())


def test_without_a_failure_it_is_recalled(tmp_path: Path) -> None:
    assert TOLD in str(asked(tmp_path).request)


@pytest.mark.parametrize("broken", ["candidates", "around", "segments", "fact_candidates"])
def test_the_turn_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    async def fail(self: SQLiteStore, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{TOLD} is not to be told")

    monkeypatch.setattr(SQLiteStore, broken, fail)
    context = asked(tmp_path)
    assert context.request["messages"][-1]["content"] == ASKS
    failed = [line for line in context.report.failures if line.stage == "recall"]
    assert len(failed) == 1
    assert "crane" not in str(failed), "a failure never quotes what was said"
