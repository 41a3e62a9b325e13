"""Every field that a hook is told, or may answer with, does what OpenClaw's design says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.integration.long_talk import SESSION, Talk, grown, opened, scribe

SUPPLIED = "The hook knows the harbour."


def answering(told: list[Any], **more: Any) -> Any:
    """A hook that keeps what it was told and supplies a summary with these fields."""

    def hook(event: Any, context: Any) -> Any:
        told.append((event, context))
        chosen = {
            key: value(event["preparation"]) if callable(value) else value
            for key, value in more.items()
        }
        return {"compaction": {"summary": SUPPLIED, **chosen}}

    return hook


def compacted(folder: Path, hook: Any, *, provider: str | None = None) -> tuple[Any, Any, Any]:
    """A compaction with this hook: its result, the cut request, and what it came from."""

    async def run() -> tuple[Any, Any, Any]:
        talk = Talk()
        async with opened(folder / "m.db", scribe()) as memory:
            memory.on("session_before_compact", hook)
            await grown(memory, talk, 9)
            memory.session(SESSION).message_provider = provider
            body = talk.body("go on")
            done = await memory.compact(SESSION, body)
            return done, await memory.prepare(SESSION, body), body

    return asyncio.run(run())


def test_details_that_are_supplied_are_kept(tmp_path: Path) -> None:
    done, context, _ = compacted(tmp_path, answering([], details={"ticket": {"key": "H-7"}}))
    assert done.compacted, done.reason
    assert done.details["ticket"] == {"key": "H-7"}
    assert SUPPLIED in str(context.request)


def test_secrets_in_supplied_details_are_masked(tmp_path: Path) -> None:
    key = "sk-proj-q8Zt3LmX0vRb7KpWn2YcHd5JfGs9TaUe"
    done, _, _ = compacted(tmp_path, answering([], details={"note": f"OPENAI_API_KEY={key}"}))
    assert key not in str(done.details)
    assert "note" in done.details


def test_a_summary_that_covers_less_than_the_cut_is_not_used(tmp_path: Path) -> None:
    early = answering([], firstKeptEntryId=lambda prepared: prepared["cutEntryIds"][1])
    done, context, _ = compacted(tmp_path, early)
    assert done.compacted, done.reason
    assert any("firstKeptEntryId" in note for note in done.notes)
    assert SUPPLIED not in str(context.request)


def test_the_message_provider_is_told_where_the_host_names_it(tmp_path: Path) -> None:
    told: list[Any] = []
    compacted(tmp_path, answering(told), provider="slack")
    assert told[0][1]["messageProvider"] == "slack"
