"""What was stored in clear is masked afterwards: in no byte of any file, and the rest is found."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.disk import bytes_of
from tests.store_contract import examples

from recollect import open_memory
from recollect.adapters.session.files import SessionIndex, transcript_file
from recollect.adapters.session.transcript import open_transcript
from recollect.adapters.wiring import open_spool, open_store
from recollect.agent.flush import append_note
from recollect.cli import main
from recollect.core.formats.stored_records import write_batch
from recollect.core.search.tokenize import tokenize
from recollect.core.values.batch import Batch, NewJob
from recollect.core.values.edit import Insert
from recollect.core.values.fact import EvidenceSpan
from recollect.core.values.reason import NOT_RUN
from recollect.core.values.recall import CandidateQuery
from recollect.system.config.settings import Redaction
from recollect_bench.postgres_server import PostgresServer, TestDatabase

# Made up; in two parts, so that no scanner takes this file for a leak.
TOKEN = "ghp_" + "Zq7LmT2xVb9KsR4wYd1NcF6hJp3QaE8uGi5o"
STAFF = "ACME-48213"
SETTINGS = {"jobs.in_process": False, "window_tokens": 16_000}
OPEN_EYES = {**SETTINGS, "redaction.enabled": False}
TOLD = f"Deploy the harbour crane with the token {TOKEN}, badge {STAFF}, on Friday."


def request(turns: int) -> dict[str, Any]:
    held: list[dict[str, Any]] = [
        {"role": "user", "content": TOLD},
        {"role": "assistant", "content": "Which crane of the two?"},
    ]
    for n in range(turns):
        held += [
            {"role": "user", "content": f"and then number {n}?"},
            {
                "role": "assistant",
                "content": f"step {n}: " + "cargo and winch over the quay " * 200,
            },
        ]
    held.append({"role": "user", "content": "Go on."})
    system = f"The token is {TOKEN} for {STAFF}."
    return {"model": "claude-x", "max_tokens": 100, "system": system, "messages": held}


async def plant(url: str) -> None:
    """In archive, index and ledger by talking; the rest beside it, as older rules left it."""
    async with open_memory(store=url, settings=OPEN_EYES) as memory:
        await memory.prepare("s", request(1))
        await memory.observe("s", {"role": "assistant", "content": "ok"})
        await memory.prepare("s", request(9))
        await memory.observe("s", {"role": "assistant", "content": "so it is"})
        assert await memory.settle() == 0, "all of it is in the store, however busy the machine"
    store = await open_store(url, space="default")
    held = next(one.segment for one in await store.page(limit=100) if TOKEN in one.segment.text)
    start = held.text.index("badge")
    evidence = (EvidenceSpan(segment=held.id, start=start, end=len(held.text)),)
    facts = (
        examples.fact("f", content=f"the token is {TOKEN}", sources=(held.id,), evidence=evidence),
        examples.fact("d", content=f"{STAFF}: {TOKEN}", sources=(held.id,), joint=True),
    )
    quoting = Insert(
        anchor=None, placement="head", text=TOLD, stage="inject", reason=NOT_RUN, turn=1
    )
    others = examples.conversation(["One more."], session="quoting")
    state = examples.session_write(others, turn=1, session="quoting", edits=(quoting,))
    payload = json.dumps({"text": json.dumps({"inner": TOLD})}).encode()
    job = NewJob(kind="later", key="k", payload=payload, run_at=2e9)
    body = json.dumps({"summary": TOLD, "receipt": {"findings": [{"text": TOKEN}]}})
    records = (examples.compaction(7, session="s", body=body),)
    await store.write(
        Batch(at=1.0, facts=facts, jobs=(job,), session=state, segments=others, compactions=records)
    )
    spool = await open_spool(url, space="default")
    waiting = examples.conversation([f"By boat: {TOLD}"], session="offline")
    row = examples.piece(json.dumps({"role": "user", "content": TOLD}))
    await spool.append(write_batch(Batch(at=1.0, segments=waiting, pieces=(row,), jobs=(job,))))
    await spool.close()
    await store.close()


def plant_files(workspace: Path) -> None:
    off = Redaction(enabled=False)
    record = SessionIndex.of_space("default").open("main")
    path = transcript_file("default", record.session_id)
    with open_transcript(path, session_id=record.session_id, redaction=off) as transcript:
        transcript.append_message({"role": "user", "content": TOLD, "timestamp": 1})
        transcript.append_message({"role": "user", "content": "And now?", "timestamp": 2})
    append_note(workspace, "memory/2026-02-13.md", f"- {TOLD}\n- water the plants", off)
    (workspace / "MEMORY.md").write_text(f"# Mine\n{TOLD}\n")


def recollect(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    done = CliRunner().invoke(main, [*map(str, arguments), "--json"])
    assert done.exit_code == code, done.output
    assert TOKEN not in done.output
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def spellings() -> list[bytes]:
    words = {word for word in tokenize(TOKEN) if len(word) > 8}
    return [TOKEN.encode(), TOKEN.lower().encode(), *(word.encode() for word in words)]


def files_with(*folders: Path) -> list[str]:
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    found = [path.name for path in files if any(one in bytes_of(path) for one in spellings())]
    return [name for name in found if name != "MEMORY.md"]


async def look(url: str) -> None:
    """The rest of the message is found; facts stay, and rest on what they rested on."""
    store = await open_store(url, space="default")
    try:
        hits = await store.candidates(CandidateQuery(words=tuple(tokenize("harbour crane Friday"))))
        held = await store.segments([hit.segment for hit in hits.passages])
        told = next(one.segment for one in held if one.segment.text.startswith("Deploy the"))
        assert "[REDACTED:" in told.text
        assert "on Friday" in told.text
        facts = {str(fact.id): fact for fact in await store.facts(superseded=True)}
        assert set(facts) == {"f", "d"}
        assert facts["d"].joint
        (span,) = facts["f"].evidence
        assert told.text[span.start : span.end].startswith("badge")
        assert told.text[span.start : span.end].endswith("on Friday.")
        state = await store.session("quoting")
        assert state is not None
        assert b"harbour crane" in state.state
        assert (await store.check()).problems == ()
    finally:
        await store.close()


async def resend(url: str) -> None:
    async with open_memory(store=url, settings=SETTINGS) as memory:
        context = await memory.prepare("s", request(9))
        assert TOKEN in json.dumps(context.request), "the client's own history is the client's"
        await memory.prepare("another", request(1))
        await memory.observe("another", {"role": "assistant", "content": "ok"})
        assert await memory.settle() == 0


def redacted(url: str, workspace: Path) -> dict[str, Any]:
    """Counted first, then masked; what was told by the second."""
    seen = recollect("redact", "--store", url, "--workspace", workspace, code=1)
    assert not seen["applied"]
    for place in (
        "messages", "facts", "ledger pieces", "jobs", "summaries and receipts",
        "session states", "spooled batches", "transcripts", "daily notes",
    ):  # fmt: skip
        assert seen["places"][place]["holding"] >= 1, place
        assert seen["places"][place]["kinds"]["github-token"] >= 1, place
    assert seen["sessions"]["s"] >= 2
    told = recollect("redact", "--apply", "--store", url, "--workspace", workspace, code=1)
    assert told["left"] == 1, "MEMORY.md is the user's, so one stands in clear still"
    assert told["applied"]
    assert len(told["checksum"]) == 64
    assert told["places"] == seen["places"]
    assert any("MEMORY.md" in line for line in told["cannot"])
    return told


def test_sqlite_is_masked_to_the_last_byte(tmp_path: Path) -> None:
    home = Path(os.environ["RECOLLECT_HOME"])
    url = str(tmp_path / "m.db")
    asyncio.run(plant(url))
    plant_files(tmp_path)
    assert {"m.db", "2026-02-13.md"} <= {
        name.removesuffix("-wal") for name in files_with(tmp_path, home)
    }
    redacted(url, tmp_path)
    assert files_with(tmp_path, home) == []
    asyncio.run(look(url))
    replayed = recollect("replay", "s", "--turn", "1", "--store", url)
    assert not replayed["exact"]
    assert {"system prompt", "message 1 of 5"} <= set(replayed["redacted"])
    again = recollect("redact", "--apply", "--store", url, "--workspace", tmp_path, code=1)
    assert again["secrets"] == 0
    asyncio.run(resend(url))
    assert files_with(tmp_path, home) == []
    note = (tmp_path / "memory" / "2026-02-13.md").read_text()
    assert note.endswith("on Friday.\n- water the plants\n")


def test_a_pattern_of_ones_own(tmp_path: Path) -> None:
    home = Path(os.environ["RECOLLECT_HOME"])
    url = str(tmp_path / "m.db")
    asyncio.run(plant(url))
    plant_files(tmp_path)
    order = ("redact", "--store", url, "--workspace", tmp_path, "--pattern", r"ACME-\d+")
    told = recollect(*order, "--apply", code=1)
    assert told["places"]["messages"]["kinds"]["own-pattern-1"] == 1
    assert any("--pattern" in line for line in told["notes"])
    left = [
        path.name
        for folder in (tmp_path, home)
        for path in folder.rglob("*")
        if path.is_file() and STAFF.encode() in bytes_of(path)
    ]
    assert left == ["MEMORY.md"]
    assert recollect(*order, "--apply", code=1)["secrets"] == 0


@pytest.fixture(scope="module")
def database(server: PostgresServer) -> TestDatabase:
    return asyncio.run(server.migrated_database())


def test_postgres_is_masked_in_every_row(database: TestDatabase, tmp_path: Path) -> None:
    import psycopg

    asyncio.run(plant(database.app_url))
    plant_files(tmp_path)
    redacted(database.app_url, tmp_path)
    with psycopg.connect(database.admin_url) as connection:
        tables = connection.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables "
            "WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        for (table,) in tables:
            for (row,) in connection.execute(f"SELECT t::text FROM {table} t"):
                assert not any(one.decode() in row or one.hex() in row for one in spellings()), (
                    table
                )
    asyncio.run(look(database.app_url))
    again = recollect("redact", "--store", database.app_url)
    assert again["secrets"] == 0
