"""One statement that memory took everywhere is in no byte after `forget`, and does not come back.

Segments, facts, a summary, a receipt, the ledger, the transcript of our agent and the
note of the day: found in each before, in none after, on SQLite and on PostgreSQL."""

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.disk import bytes_of
from tests.harness.fact_reader import fact_reader
from tests.integration.long_talk import SESSION, Talk, notes, opened, scribe, shown, sound
from tests.store_contract import examples

from recollect.adapters.session.files import SessionIndex, transcript_file
from recollect.adapters.session.transcript import open_transcript
from recollect.adapters.wiring import open_store
from recollect.agent.flush import append_note
from recollect.cli import main
from recollect.core.formats.stored_records import with_texts
from recollect.core.ports import Store
from recollect.core.search.tokenize import tokenize
from recollect.core.values.batch import Batch
from recollect.core.values.edit import Cut
from recollect.core.values.fact import EvidenceSpan, Fact
from recollect.core.values.model import Prompt
from recollect.core.values.recall import CandidateQuery, FactQuery
from recollect.core.values.segment import NewSegment, Segment
from recollect.core.values.upkeep import BODY_KINDS
from recollect.system.config.settings import Redaction
from recollect_bench.postgres_server import PostgresServer, TestDatabase

MARKER = "zanzibarquokka"
PLAN = f"We decided that the crane listens on port 9000, the {MARKER} plan."
BEFORE = "We decided that the crane listens on port 8000."
STAYS = "The tide tables are kept in harbour/tables/tide.csv for now."


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Where one memory is, and how to look into all of its bytes."""

    url: str
    workspace: Path
    database: TestDatabase | None = None

    def holding(self, text: str) -> set[str]:
        """Files, and tables of the database, that hold a text."""
        wanted = text.encode()
        folders = (self.workspace, Path(os.environ["RECOLLECT_HOME"]))
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        found = {path.suffix for path in files if wanted in bytes_of(path).lower()}
        return found | (set() if self.database is None else set(self._tables(wanted)))

    def _tables(self, wanted: bytes) -> Iterator[str]:
        import psycopg

        assert self.database is not None
        with psycopg.connect(self.database.admin_url) as connection:
            tables = connection.execute(
                "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables "
                "WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
            ).fetchall()
            for (table,) in tables:
                for (row,) in connection.execute(f"SELECT t::text FROM {table} t"):
                    if wanted.decode() in row.lower() or wanted.hex() in row:
                        yield table


@pytest.fixture(params=["sqlite", "postgres"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Memory:
    if request.param == "sqlite":
        return Memory(url=str(tmp_path / "m.db"), workspace=tmp_path)
    running: PostgresServer = request.getfixturevalue("server")
    database = asyncio.run(running.migrated_database())
    return Memory(url=database.app_url, workspace=tmp_path, database=database)


def retold(prompt: Prompt) -> str:
    """A model whose summary repeats the plan."""
    return f"{notes(prompt)}\n- {PLAN}" if MARKER in prompt.text else notes(prompt)


def talk() -> Talk:
    made = Talk().ask(BEFORE).answer("Noted.").ask(STAYS).answer("Noted, too.")
    return made.ask(PLAN).answer("I keep to it.").exchange(6)


async def plant(memory: Memory) -> Talk:
    """Say it, compact it, and let facts be made of it."""
    said = talk()
    async with opened(memory.url, scribe(retold)) as engine:
        await engine.prepare(SESSION, said.body("go on"))
        done = await engine.compact(SESSION)
        assert done.compacted, done.reason
        await engine.prepare(SESSION, said.body("and now?"))
        await engine.observe(SESSION, {"role": "assistant", "content": "so it is"})
        assert await engine.settle() == 0, "all of it is in the store, however busy the machine"
    store = await open_store(memory.url, space="default")
    try:
        await store.write(Batch(at=1.0, facts=facts_of(await _segments(store))))
    finally:
        await store.close()
    record = SessionIndex.of_space("default").open("main")
    path = transcript_file("default", record.session_id)
    with open_transcript(path, session_id=record.session_id, redaction=Redaction()) as transcript:
        transcript.append_message({"role": "user", "content": PLAN, "timestamp": 1})
    append_note(
        memory.workspace, "memory/2026-02-13.md", f"- {PLAN}\n- water the plants", Redaction()
    )
    return said


async def _segments(store: Store) -> dict[str, Segment]:
    return {one.segment.text: one.segment for one in await store.page(limit=1_000)}


def facts_of(segments: dict[str, Segment]) -> tuple[Fact, ...]:
    """What is made of it: a fact, the one before, one that others say, too, and a joint one."""
    plan, before, stays = segments[PLAN], segments[BEFORE], segments[STAYS]

    def made(name: str, said: str, *rests_on: Segment, **more: Any) -> Fact:
        spans = tuple(EvidenceSpan(segment=one.id, start=0, end=len(one.text)) for one in rests_on)
        return examples.fact(
            name,
            content=said,
            sources=[one.id for one in rests_on],
            evidence=spans,
            **{"subject": "crane", "attribute": "port", **more},
        )

    return (
        made("old", "the crane listens on port 8000", before, superseded_by="plan", valid_to=2.0),
        made("plan", f"the {MARKER} crane listens on port 9000", plan, change="supersede"),
        made("shared", "a crane was decided upon", plan, stays, attribute="decision"),
        made("about", f"crane: 8000, then 9000 by {MARKER}", before, plan, joint=True),
    )


async def everywhere(memory: Memory) -> set[str]:
    """The kinds of bodies that hold the statement."""
    store = await open_store(memory.url, space="default")
    found: set[str] = set()
    try:
        found |= {"segments" for text in await _segments(store) if MARKER in text}
        facts = await store.facts(superseded=True)
        found |= {fact.type for fact in facts if MARKER in fact.content}
        for kind in BODY_KINDS:
            for one in await store.bodies(kind, limit=1_000):
                said = [one.body.decode("utf-8", "replace")]
                said += _texts_of_state(one.body) if kind == "states" else []
                found |= {kind for text in said if MARKER in text}
        found |= {"recall" for text in await _recalled(store) if MARKER in text}
    finally:
        await store.close()
    return found | memory.holding(MARKER) & {".jsonl", ".md"}


def _texts_of_state(state: bytes) -> list[str]:
    said: list[str] = []

    def look(text: str) -> str:
        said.append(text)
        return text

    with_texts(state, look)
    return said


async def _recalled(store: Store) -> list[str]:
    words = tuple(dict.fromkeys(tokenize(PLAN)))
    hits = await store.candidates(CandidateQuery(words=words))
    held = await store.segments([hit.segment for hit in hits.passages])
    facts = await store.fact_candidates(FactQuery(words=words))
    return [*(one.segment.text for one in held), *(one.fact.content for one in facts.facts)]


def told(memory: Memory, *arguments: str | Path, code: int = 0) -> str:
    """What a command prints; never the statement."""
    done = CliRunner().invoke(main, [*map(str, arguments), "--store", memory.url])
    assert done.exit_code == code, done.output
    assert MARKER not in done.output
    return done.output


async def comes_again(memory: Memory, said: Talk, late: Batch) -> None:
    """The client sends it all again, and a late worker writes what it made of it."""
    async with opened(memory.url, scribe(), reader=fact_reader()) as engine:
        await engine.prepare(SESSION, said.body("go on"))
        await engine.prepare("another", said.body("go on"))
        await engine.observe("another", {"role": "assistant", "content": "ok"})
        assert (await engine.compact("another")).ok
        assert await engine.settle() == 0
    store = await open_store(memory.url, space="default")
    try:
        written = await store.write(late)
        assert len(written.forgotten) == 1
        assert (await store.check()).problems == ()
    finally:
        await store.close()


async def late_batch(memory: Memory) -> Batch:
    """What another machine's spool may hold of it."""
    store = await open_store(memory.url, space="default")
    try:
        segments = await _segments(store)
        facts = facts_of(segments)
        return Batch(at=9.0, segments=(NewSegment(segment=segments[PLAN]),), facts=facts)
    finally:
        await store.close()


def test_a_statement_is_forgotten_wherever_memory_took_it(memory: Memory) -> None:
    said = asyncio.run(plant(memory))
    late = asyncio.run(late_batch(memory))
    assert asyncio.run(everywhere(memory)) == {
        "segments", "decision", "states", "compactions", "pieces", "recall", ".jsonl",
        ".md",
    }  # fmt: skip
    order = ("memory", "forget", "--matching", MARKER, "--workspace", memory.workspace, "--yes")
    page = told(memory, *order)
    assert page.startswith("Certificate of forgetting")
    for line in ("1  segment\n", "2  facts\n", "1  compaction\n", "1  line of daily notes\n"):
        assert line in page, page
    assert "checksum" in page

    def gone() -> None:
        assert memory.holding(MARKER) == set()
        assert asyncio.run(everywhere(memory)) == set()
        facts = {fact["id"]: fact for fact in json.loads(told(memory, *listed))["facts"]}
        assert set(facts) == {"old", "shared"}, "what others say, too, stays"

    listed = ("facts", "list", "--all", "--json")
    gone()
    versions = json.loads(told(memory, "facts", "why", "old", "--json"))["versions"]
    assert [(one["id"], one["forgotten"]) for one in versions] == [("old", False), ("plan", True)]
    assert "forgotten" in told(memory, "facts", "why", "plan", code=2)
    replayed = json.loads(told(memory, "replay", SESSION, "--turn", "1", "--json"))
    assert not replayed["exact"]
    assert "message 5 of 19" in replayed["missing"]
    assert "no longer kept" in told(memory, "replay", SESSION, "--turn", "2")
    asyncio.run(comes_again(memory, said, late))
    gone()
    again = CliRunner().invoke(main, [*map(str, order), "--store", memory.url, "--json"])
    assert again.exit_code == 1, "nothing is left to be forgotten"


async def test_a_withdrawn_summary_is_made_anew_without_it(tmp_path: Path) -> None:
    """The history stands again at once, within its limits, and the next summary is another one."""
    memory = Memory(url=str(tmp_path / "m.db"), workspace=tmp_path)
    said = await plant(memory)
    await asyncio.to_thread(told, memory, "memory", "forget", "--matching", MARKER, "--yes")
    said.messages = [one for one in said.messages if MARKER not in str(one["content"])]
    async with opened(memory.url, None) as engine:
        context = sound(await engine.prepare(SESSION, said.exchange(8).body("go on")))
        assert not [edit for edit in context.edits if isinstance(edit, Cut)]
        assert MARKER not in shown(context)
        assert "[recollect]" in shown(context), "a note by code stands where messages are not"
    model = scribe()
    async with opened(memory.url, model) as engine:
        sound(await engine.prepare(SESSION, said.body("go on")))
        done = await engine.compact(SESSION)
        assert done.compacted, done.reason
        assert MARKER not in done.summary
        assert not any(MARKER in prompt.text for prompt in model.prompts)
        assert STAYS.split()[-3] in shown(await engine.prepare(SESSION, said.body("go on")))


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        (("--pattern", r"port 9\d+"), {BEFORE, STAYS}),
        (("--pattern", r"port \d+"), {STAYS}),
        (("--since", "2026-02-03"), {BEFORE}),
        (("--since", "2026-02-02", "--before", "2026-02-04"), {BEFORE, PLAN}),
    ],
)
def test_by_pattern_and_by_time(tmp_path: Path, asked: tuple[str, ...], left: set[str]) -> None:
    memory = Memory(url=str(tmp_path / "m.db"), workspace=tmp_path)
    days = [datetime(2026, 2, day, tzinfo=UTC).timestamp() for day in (1, 3, 5)]

    async def plant_some() -> None:
        store = await open_store(memory.url, space="default")
        new = tuple(
            examples.segment(text, session=text[:9], said_at=at)
            for text, at in zip((BEFORE, STAYS, PLAN), days, strict=True)
        )
        system = examples.piece(json.dumps(f"always use {PLAN}"), kind="system")
        await store.write(Batch(at=1.0, segments=new, pieces=(system,)))
        await store.close()

    async def look() -> set[str]:
        store = await open_store(memory.url, space="default")
        try:
            if asked[0] == "--pattern":
                (piece,) = await store.bodies("pieces")
                assert b"port" not in piece.body, "a system prompt that is about nobody"
            return set(await _segments(store))
        finally:
            await store.close()

    asyncio.run(plant_some())
    page = told(memory, "memory", "forget", *asked, "--yes")
    assert "all " in page
    assert asyncio.run(look()) == left
