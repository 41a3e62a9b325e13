"""A memory that fails in the middle of a recall costs the turn its block, and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from recollect import open_memory
from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.values.recall import CandidateQuery, Candidates
from recollect.errors import StoreError

TOLD = "the green crane stands at the north quay, says the keeper"
ASKS = "which crane stands at the north quay, by the way?"


def asked(folder: Path, embedder: str = "none") -> Any:
    """The context of a new session that asks what an earlier one was told."""
    settings: dict[str, Any] = {
        "store.read_seconds": 20.0,
        "store.write_seconds": 20.0,
        "recall.deadline_seconds": 20.0,
        "turn.deadline_seconds": 40.0,
        "recall.embedder": embedder,
        "recall.scope": "space",
        "jobs.in_process": False,
    }

    async def say(session: str, text: str) -> Any:
        async with open_memory(store=folder / "m.db", settings=settings) as memory:
            messages = [{"role": "user", "content": text}]
            return await memory.prepare(session, {"model": "m", "messages": messages})

    asyncio.run(say("before", TOLD))
    return asyncio.run(say("after", ASKS))


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


def test_vectors_that_cannot_be_compared_leave_the_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = SQLiteStore.candidates

    async def compare(self: SQLiteStore, query: CandidateQuery) -> Candidates:
        if query.vectors:
            raise StoreError("vectors of 64 dimensions, not 256")
        return await search(self, query)

    monkeypatch.setattr(SQLiteStore, "candidates", compare)
    context = asked(tmp_path, "hash")
    assert TOLD in str(context.request)
    assert "searched by words only: vectors of 64 dimensions" in "".join(
        line.said for line in context.report.lines
    )
