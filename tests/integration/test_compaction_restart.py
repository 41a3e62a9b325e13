"""Compaction, restart, recall: what was planted early is at hand in a process that never saw it.

On SQLite and on PostgreSQL: several compactions by a model whose summaries know nothing, then a
new engine on the same store. Its request holds what is asked for, by the summary's pins or by the
recalled block; receipts read back; undo and forgetting work from there."""

import asyncio
from pathlib import Path

import pytest
from tests.integration.long_talk import SESSION, Talk, honest, opened, scribe, shown, sound, stored

from recollect import Engine
from recollect.adapters.wiring import open_store
from recollect.core.formats.stored_records import read_record
from recollect.core.formats.summaries import PI_OPENING
from recollect.core.ports import Store
from recollect.core.upkeep.forget import forget
from recollect.core.values.compaction import CompactionRecord
from recollect.core.values.edit import Cut
from recollect.core.values.upkeep import ForgetOrder
from recollect_bench.postgres_server import PostgresServer

OPENING = PI_OPENING.split("\n", 1)[0]
PLANTED = {
    "What is the release code of the Aurora crane?": "QX-7741-Zeta",
    "Which file holds the tide tables of the harbour?": "harbour/tables/tide_2031.parquet",
    "Which port does the winch controller listen on?": "48113",
}
PLANTED_PATH = "harbour/tables/tide_2031.parquet"
SAID = (
    "The release code of the Aurora crane is QX-7741-Zeta, please remember it.",
    "The tide tables of the harbour are in harbour/tables/tide_2031.parquet for the time being.",
    "We decided that the winch controller listens on port 48113 because 8080 is taken.",
)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the memory is."""
    if request.param == "sqlite":
        return str(tmp_path / "m.db")
    running: PostgresServer = request.getfixturevalue("server")
    return asyncio.run(running.migrated_database()).app_url


def planted() -> Talk:
    talk = Talk()
    for line in SAID:
        talk.ask(line).answer("Noted, I shall keep to it.")
        talk.exchange(1)
    return talk


async def compacted(memory: Engine, talk: Talk, times: int) -> None:
    """The conversation goes on, and is compacted so many times."""
    for number in range(1, times + 1):
        for _ in range(5):
            await memory.prepare(SESSION, talk.exchange().body("go on"))
        done = await memory.compact(SESSION)
        honest(done)
        assert done.compacted, done.reason
        assert done.number == number


async def records(url: str) -> tuple[CompactionRecord, ...]:
    store = await open_store(url, space="default")
    try:
        return await store.compactions(SESSION)
    finally:
        await store.close()


async def test_what_was_planted_is_at_hand_after_compactions_and_a_restart(url: str) -> None:
    talk = planted()
    async with opened(url, scribe()) as memory:
        await compacted(memory, talk, 3)
    for question, wanted in PLANTED.items():
        async with opened(url, scribe()) as memory:
            context = sound(await memory.prepare(SESSION, talk.body(question)))
            assert OPENING in shown(context), "the cut stands in the new process"
            assert SAID[0] not in [m["content"] for m in context.request["messages"]]
            assert wanted in shown(context), question


async def test_every_receipt_is_in_the_store_and_true(url: str) -> None:
    talk = planted()
    results = []
    async with opened(url, scribe()) as memory:
        memory.on("after_compaction", lambda event, _: results.append(event))
        await compacted(memory, talk, 2)
    kept = await records(url)
    assert [one.number for one in kept] == [1, 2]
    assert len(results) == 2
    first, second = (read_record(one.body).result for one in kept)
    for result in (first, second):
        honest(result)
        assert result.receipt is not None
    assert first.receipt is not None
    known = {one.probe.text: one for one in first.receipt.findings}
    assert PLANTED_PATH in known
    assert first.seconds >= 0
    for finding in first.receipt.findings:
        if finding.standing == "in summary":
            assert finding.probe.text.casefold() in first.summary.casefold()
    assert kept[1].about[: len(kept[0].about)] == kept[0].about, "the second stands for both"


async def test_undo_in_another_process_restores_the_view(url: str) -> None:
    talk = planted()
    async with opened(url, scribe()) as memory:
        await compacted(memory, talk, 1)
        await memory.prepare(SESSION, talk.exchange().body("go on"))
        before = (await memory.prepare(SESSION, talk.body("so?"))).request
        done = await memory.compact(SESSION)
        assert done.compacted, done.reason
        assert (await memory.prepare(SESSION, talk.body("so?"))).request != before
    model = scribe()
    async with opened(url, model) as memory:
        undone = await memory.undo(SESSION)
        assert undone.undone is not None, undone.reason
        assert undone.undone.number == 2
        after = await memory.prepare(SESSION, talk.body("so?"))
        assert after.request == before, "the first summary stands again, word for word"
        for _ in range(8):
            context = sound(await memory.prepare(SESSION, talk.exchange().body("go on")))
            assert context.compaction is None
        assert model.prompts == [], "nothing is compacted by itself until it is asked for"
    async with opened(url, scribe()) as memory:
        undone = await memory.undo(SESSION)
        assert undone.undone is not None, undone.reason
        context = sound(await memory.prepare(SESSION, talk.body("so?")))
        assert not [edit for edit in context.edits if isinstance(edit, Cut)]
        assert (await memory.undo(SESSION)).undone is None, "there is none left"
    numbers = [one.number for one in await records(url)]
    assert numbers == [1, 2], "records are added to, never taken back"


async def _forget(url: str, text: str) -> None:
    store: Store = await open_store(url, space="default")
    try:
        order = ForgetOrder(at=2e9, matching=text)
        certificate = await forget(store, [], order, now=2e9)
        assert certificate.counts["compactions"] >= 1
    finally:
        await store.close()


def _without(talk: Talk, text: str) -> None:
    """The client lets go of it as well."""
    talk.messages = [one for one in talk.messages if text not in str(one["content"])]


async def test_a_forgotten_message_takes_its_summary_with_it(url: str) -> None:
    secret = "QX-7741-Zeta"
    talk = planted()
    async with opened(url, scribe()) as memory:
        await compacted(memory, talk, 2)
        question = next(iter(PLANTED))
        assert secret in shown(await memory.prepare(SESSION, talk.body(question)))
    await _forget(url, secret)
    assert not [one for one in await records(url) if secret.encode() in one.body]
    assert not [text for text in await stored(url) if secret in text]
    _without(talk, secret)
    async with opened(url, scribe()) as memory:
        for question in (*PLANTED, "what now?"):
            context = sound(await memory.prepare(SESSION, talk.body(question)))
            assert secret[:7] not in shown(context), "nor what code carried of it"
        done = await memory.compact(SESSION)
        honest(done)
        context = sound(await memory.prepare(SESSION, talk.body("and now?")))
        assert secret not in shown(context)
        assert secret not in done.summary


async def test_forgetting_reaches_an_engine_that_runs(url: str) -> None:
    """Another process forgets: the engine that holds the session shows it no longer."""
    secret = "QX-7741-Zeta"
    talk = planted()
    async with opened(url, scribe()) as memory:
        await compacted(memory, talk, 2)
        await memory.settle()
        await _forget(url, secret)
        _without(talk, secret)
        await memory.prepare(SESSION, talk.body("anything?"))
        await memory.settle()
        context = sound(await memory.prepare(SESSION, talk.body(next(iter(PLANTED)))))
        assert secret not in shown(context)
        await memory.settle()
    assert not [one for one in await records(url) if secret.encode() in one.body]
