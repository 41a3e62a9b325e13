"""Forgetting reaches the store and what waits in spools, and leaves a certificate."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from tests.store_contract import examples
from tests.unit.upkeep.quoting import MARKER, quoting_batch

from recollect.adapters.stores.spool import FileSpool
from recollect.adapters.wiring import open_store
from recollect.core.formats.stored_records import read_batch, write_batch
from recollect.core.ports import Store
from recollect.core.upkeep.certificates import certificate_json, certificate_text, seal
from recollect.core.upkeep.forget import find_targets, forget
from recollect.core.values.batch import Batch
from recollect.core.values.fact import FactId
from recollect.core.values.upkeep import ForgetOrder

AT = 1_760_011_200.0


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[Store, FileSpool]]:
    store = await open_store(str(folder / "space.db"), space="alice")
    spool = FileSpool(folder / "spool", space="alice")
    try:
        yield store, spool
    finally:
        await spool.close()
        await store.close()


def files_with(marker: str, folder: Path) -> list[Path]:
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and marker.encode() in path.read_bytes()
    ]


def spooled(*texts: str, session: str = "waits") -> bytes:
    new = examples.conversation(texts, session=session)
    pieces = tuple(examples.piece(one.segment.text, about=(one.segment.message_id,)) for one in new)
    return write_batch(Batch(at=AT, segments=new, pieces=pieces))


async def test_a_message_is_forgotten_wherever_it_lies_and_cannot_come_back(tmp_path: Path) -> None:
    batch = quoting_batch()
    new = batch.segments
    waits = spooled(f"waits {MARKER}", "harmless too")
    async with opened(tmp_path) as (store, spool):
        await store.write(batch)
        await spool.append(waits)
        await spool.set_aside(write_batch(batch), reason="refused")
        assert await asyncio.to_thread(files_with, MARKER, tmp_path)
        (waiting, _) = read_batch(waits).segments
        order = ForgetOrder(
            at=AT, segments=(new[0].segment.id,), message_ids=(waiting.segment.message_id,)
        )
        certificate = await forget(store, [spool], order, now=AT)
        assert seal(certificate) == certificate
        assert certificate.counts == {
            "segments": 1, "passages": 1, "vectors": 1, "facts": 1, "ledger pieces": 1, "jobs": 1,
            "session states changed": 1, "compactions": 1, "spooled batches changed": 2,
        }  # fmt: skip
        assert certificate.asked.segments == 1
        assert certificate.space == "alice"
        assert MARKER not in certificate_text(certificate) + str(certificate_json(certificate))
        assert not await asyncio.to_thread(files_with, MARKER, tmp_path)

        # the client sends it all again, and the spool drains
        assert (await store.write(batch)).forgotten == (new[0].segment.id,)
        assert (await store.write(read_batch(waits))).forgotten == (waiting.segment.id,)

        async def take(record: bytes) -> None:
            await store.write(read_batch(record))

        assert await spool.drain(take) == 1
        assert (await store.stats()).segments == 2
        assert not await asyncio.to_thread(files_with, MARKER, tmp_path)


async def test_a_session_that_only_waits_is_forgotten_by_its_name(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, spool):
        await spool.append(spooled(f"waits {MARKER}", session="monday"))
        await spool.append(spooled("stays", session="tuesday"))
        order = ForgetOrder(at=AT, sessions=("monday",))
        certificate = await forget(store, [spool], order, now=AT)
        assert certificate.asked.sessions == ("monday",)
        assert await spool.waiting() == 1
        assert not await asyncio.to_thread(files_with, MARKER, tmp_path)
        waits = read_batch(spooled(f"waits {MARKER}", session="monday"))
        assert len((await store.write(waits)).forgotten) == 1, "its tombstone stands"


async def test_what_cannot_be_reached_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, spool):
        await spool.append(b"B9 of a newer version")
        order = ForgetOrder(at=AT, sessions=("monday",))
        certificate = await forget(store, [spool], order, now=AT)
        said = "\n".join(certificate.cannot)
        assert "1 spooled batches that another version of Recollect wrote" in said
        assert "backups" in said
        assert "providers" in said
        assert not sum(certificate.counts.values())
        assert await spool.waiting() == 1


async def test_a_damaged_part_of_the_spool_is_named(tmp_path: Path) -> None:
    spool = FileSpool(tmp_path / "spool", space="alice")
    await spool.append(spooled("a"))
    await spool.close()
    (file,) = (tmp_path / "spool").glob("*.db")
    file.write_bytes(file.read_bytes()[:100] + b"\xa5" * 8_000)

    async def reopen() -> None:
        spool = await FileSpool.open(tmp_path / "spool", space="alice")
        await spool.close()

    await reopen()
    async with opened(tmp_path) as (store, spool):
        certificate = await forget(store, [spool], ForgetOrder(at=AT, sessions=("x",)), now=AT)
        assert any(".damaged" in line for line in certificate.cannot)


async def test_a_text_is_looked_for_in_store_spools_and_facts(tmp_path: Path) -> None:
    escaped = '7\t{"id":"foreign","extra":"' + "".join(f"\\u{ord(c):04x}" for c in MARKER) + '"}'
    facts = (
        examples.fact("plain", content=f"it is {MARKER.upper()}"),
        examples.fact("context", content="x", context=f"said with {MARKER}"),
        replace(examples.fact("foreign"), foreign=escaped),
        examples.fact("other", content="nothing of it"),
    )
    waits = Batch(
        at=AT,
        segments=examples.conversation([f"only waits: {MARKER}", "harmless"], session="waits"),
        facts=(examples.fact("spooled", content=MARKER), examples.fact("kept")),
    )
    async with opened(tmp_path) as (store, spool):
        stored = examples.conversation([f"It is {MARKER.title()}.", "an answer"])
        await store.write(Batch(at=AT, segments=stored, facts=facts))
        await spool.append(write_batch(waits))
        await spool.set_aside(spooled(f"refused {MARKER}", session="aside"), reason="refused")
        order = ForgetOrder(at=AT, matching=MARKER)
        assert MARKER not in repr(order)
        meant = await find_targets(store, [spool], order)
        assert [one.segment.id for one in meant.stored_segments] == [stored[0].segment.id]
        assert sorted(one.session for one in meant.spooled_segments) == ["aside", "waits"]
        assert sorted(fact.id for fact in meant.facts) == [
            "context", "foreign", "plain", "spooled",
        ]  # fmt: skip
        assert await asyncio.to_thread(files_with, MARKER, tmp_path), "nothing is changed yet"

        certificate = await forget(store, [spool], order, now=AT)
        assert certificate.asked.matching
        assert (certificate.counts["segments"], certificate.counts["facts"]) == (1, 3)
        assert MARKER not in certificate_text(certificate) + str(certificate_json(certificate))
        assert not await asyncio.to_thread(files_with, MARKER, tmp_path)
        assert [fact.id for fact in await store.facts(superseded=True)] == ["other"]

        async def take(record: bytes) -> None:
            await store.write(read_batch(record))

        await spool.drain(take)
        assert {fact.id for fact in await store.facts()} == {"other", "kept"}
        texts = [one.segment.text for one in await store.page()]
        assert sorted(texts) == ["an answer", "harmless"]
        assert len((await store.write(waits)).forgotten) == 1, "and it does not come back"


async def test_a_fact_is_forgotten_by_its_id(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, spool):
        said = examples.conversation(["a", "b"])
        rests = examples.fact("rests", sources=[said[1].segment.id])
        await store.write(Batch(at=AT, segments=said, facts=(rests, examples.fact("other"))))
        order = ForgetOrder(at=AT, facts=(FactId("rests"), FactId("unknown")))
        certificate = await forget(store, [spool], order, now=AT)
        assert certificate.counts["facts"] == 1
        assert [fact.id for fact in await store.facts()] == ["other"]
        assert (await store.stats()).segments == 2
