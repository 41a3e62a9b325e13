"""Through the command: what our agent left on the disk is forgotten with what the store holds."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.disk import bytes_of

from recollect import open_memory
from recollect.adapters.session.files import SessionIndex, transcript_file
from recollect.adapters.session.transcript import SessionTranscript, open_transcript
from recollect.adapters.wiring import open_store
from recollect.agent.flush import append_note
from recollect.core.formats.pi_session import build_context
from recollect.core.formats.translate import Speaker, to_wire
from recollect.system.config.settings import Redaction

MARKER = "zanzibarquokka"
PLAN = f"The plan for {MARKER} is to leave at dawn from the old quay."
SPEAKER = Speaker(format="anthropic", model="claude-x", provider="anthropic")
SETTINGS = {"jobs.in_process": False}


def recollect(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "recollect", *map(str, arguments), "--json"],
        capture_output=True,
        text=True,
        env=os.environ.copy(),
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert MARKER not in done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["checksum"]
    return told


def opened() -> SessionTranscript:
    record = SessionIndex.of_space("default").open("main")
    return open_transcript(
        transcript_file("default", record.session_id),
        session_id=record.session_id,
        redaction=Redaction(),
    )


async def send(transcript: SessionTranscript, store: Path) -> None:
    """The history goes to the engine as the agent sends it."""
    wire = to_wire(list(transcript.history().messages), SPEAKER)
    body = {"model": "claude-x", "max_tokens": 100, "messages": list(wire.messages)}
    async with open_memory(store=str(store), settings=SETTINGS) as memory:
        await memory.prepare(transcript.session_id, body)
        await memory.observe(transcript.session_id, {"role": "assistant", "content": "done"})


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A workspace beside a store: `m.db`, transcript, index and a daily note hold the marker."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with opened() as transcript:
        transcript.append_message({"role": "user", "content": "Begin.", "timestamp": 1})
        transcript.append_message(
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "plan"}},
                ],
                "api": "anthropic-messages",
                "provider": "anthropic",
                "model": "claude-x",
                "usage": {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0},
                "stopReason": "toolUse",
                "timestamp": 2,
            }
        )
        transcript.append_message(
            {
                "role": "toolResult",
                "toolCallId": "c1",
                "toolName": "read",
                "content": [{"type": "text", "text": PLAN}],
                "isError": False,
                "timestamp": 3,
            }
        )
        kept = transcript.append_message({"role": "user", "content": "And now?", "timestamp": 4})
        transcript.append_compaction(
            summary="They leave early.", first_kept_entry_id=kept.id, tokens_before=10
        )
        asyncio.run(send(transcript, tmp_path / "m.db"))
    append_note(
        workspace, "memory/2026-02-13.md", f"# Friday\n- {PLAN}\n- water the plants", Redaction()
    )
    return workspace


async def segment_with_the_marker(store: Path) -> str:
    memory = await open_store(str(store), space="default")
    try:
        held = await memory.page(limit=100)
    finally:
        await memory.close()
    return next(one.segment.id for one in held if MARKER in one.segment.text)


def files_with(*folders: Path) -> list[str]:
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if MARKER.encode() in bytes_of(path).lower()]


def test_text_is_in_no_byte_afterwards_and_session_goes_on(planted: Path, tmp_path: Path) -> None:
    home = Path(os.environ["RECOLLECT_HOME"])
    store = tmp_path / "m.db"
    assert {"2026-02-13.md", "m.db"} <= {name.removesuffix("-wal") for name in files_with(tmp_path)}
    assert any(name.endswith(".jsonl") for name in files_with(home))
    order = ("memory", "forget", "--store", store, "--matching", MARKER.upper(), "--yes")
    told = recollect(*order, "--workspace", planted)
    assert files_with(tmp_path, home) == []
    counts = told["counts"]
    assert counts["segments"] == 1
    assert counts["entries of transcripts"] == 1
    assert counts["summaries in transcripts, withdrawn"] == 1
    assert counts["lines of daily notes"] == 1
    assert any("transcripts" in line for line in told["covers"])
    assert any("disk blocks" in line for line in told["cannot"])
    assert (planted / "memory" / "2026-02-13.md").read_text() == "# Friday\n- water the plants\n"
    with opened() as transcript:
        assert transcript.notes == ()
        shown = build_context(transcript.entries)
        assert "withdrawn" in shown.messages[0]["content"][0]["text"]
        transcript.append_message({"role": "user", "content": "Go on.", "timestamp": 9})
        asyncio.run(send(transcript, store))
    assert files_with(tmp_path, home) == []
    again = recollect(*order, "--workspace", planted, code=1)
    assert not any(again["counts"].values())


def test_a_segment_is_found_in_the_transcript_by_its_words(planted: Path, tmp_path: Path) -> None:
    home = Path(os.environ["RECOLLECT_HOME"])
    store = tmp_path / "m.db"
    segment = asyncio.run(segment_with_the_marker(store))
    order = ("memory", "forget", "--store", store, "--segment", segment, "--yes")
    told = recollect(*order, "--workspace", planted)
    assert told["counts"]["entries of transcripts"] == 1
    assert told["counts"]["lines of daily notes"] == 1
    assert files_with(tmp_path, home) == []


def test_a_session_goes_by_the_key_that_people_know(planted: Path, tmp_path: Path) -> None:
    home = Path(os.environ["RECOLLECT_HOME"])
    store = tmp_path / "m.db"
    told = recollect("memory", "forget", "--store", store, "--session", "main", "--yes")
    assert told["counts"]["transcripts deleted"] == 1
    assert told["counts"]["segments"] >= 4, "the archive has it under the transcript's id"
    assert any("--workspace" in line for line in told["cannot"]), "nobody looked at the notes"
    assert files_with(home) == []
    assert list(home.rglob("*.jsonl")) == []
    assert SessionIndex.of_space("default").sessions() == {}
    assert files_with(planted) == ["2026-02-13.md"]


def test_a_running_agent_is_told_and_the_next_time_finishes(planted: Path, tmp_path: Path) -> None:
    home = Path(os.environ["RECOLLECT_HOME"])
    order = ("memory", "forget", "--store", tmp_path / "m.db", "--matching", MARKER, "--yes")
    with opened() as transcript:
        told = recollect(*order, "--workspace", planted)
        left = [line for line in told["cannot"] if "running agent" in line]
        assert len(left) == 1
        assert transcript.path.name in left[0]
        assert "forget again" in left[0]
        assert files_with(tmp_path, home) == [transcript.path.name]
    told = recollect(*order, "--workspace", planted)
    assert told["counts"]["transcripts changed"] == 1
    assert not any("running agent" in line for line in told["cannot"])
    assert files_with(tmp_path, home) == []
