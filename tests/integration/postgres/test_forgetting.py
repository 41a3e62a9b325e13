"""Forgetting on PostgreSQL: a marker is in no row, and after scrubbing in no data file."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from tests.store_contract import examples

from recollect.adapters.stores.postgres.store import PostgresFleet, space_uuid
from recollect.adapters.stores.postgres.words import term_of
from recollect.core.formats.stored_records import join_state, split_state
from recollect.core.values.batch import Batch, NewJob, SessionWrite
from recollect.core.values.edit import Insert, Shorten
from recollect.core.values.history import SessionState
from recollect.core.values.reason import NOT_RUN
from recollect.core.values.recall import CandidateQuery
from recollect.core.values.segment import NewSegment
from recollect.core.values.upkeep import ForgetOrder
from recollect_bench.postgres_server import PostgresServer, TestDatabase

MARKER = "Zq7Kx9-xylophone-marker-Wv3"
LONG = MARKER + " " + " ".join(f"{MARKER}{number}" for number in range(400))
"""Long enough to be stored out of line."""


def planted(number: int) -> Batch:
    """A batch whose every part quotes the marker."""
    said = LONG if number % 2 else MARKER
    new = examples.segment(f"{said} {number}", session="secret", tool=MARKER, origin=MARKER,
                           foreign=MARKER)  # fmt: skip
    about = (new.segment.message_id,)
    insert = Insert(
        anchor=None, placement="head", text=MARKER, stage="inject", reason=NOT_RUN, turn=1
    )
    return Batch(
        at=examples.START,
        segments=(new,),
        vectors=(examples.vectors([new]),),
        facts=(examples.fact(f"f{number}", sources=[new.segment.id], content=MARKER),),
        jobs=(NewJob(kind="embed", key=f"k{number}", payload=MARKER.encode(), about=about),),
        session=SessionWrite(
            session="secret",
            turn=number,
            state=split_state(SessionState(turn=number, edits=(insert,))),
            about=about,
        ),
        pieces=(examples.piece(f"{MARKER} piece {number}", about=about),),
        compactions=(examples.compaction(number, about, session="secret", body=MARKER),),
    )


def rows_with(url: str, marker: bytes) -> list[str]:
    """Tables of which a row, written out as text or bytes, holds the marker."""
    found = []
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'recollect'::regnamespace"
            " AND relkind = 'r'"
        ).fetchall()
        for (table,) in tables:
            for row in connection.execute(f"SELECT * FROM recollect.{table}".encode()):
                if any(marker in _bytes(value) for value in row):
                    found.append(table)
                    break
    return sorted(found)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else repr(value).encode()


def files_with(folder: Path, marker: bytes) -> list[str]:
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and marker in path.read_bytes()
    )


async def plant(url: str) -> tuple[str, ...]:
    fleet = await PostgresFleet.open(url)
    store = await fleet.space("one")
    await store.write(examples.full_batch(0, count=40))
    ids = []
    for number in range(1, 6):
        batch = planted(number)
        await store.write(batch)
        ids.append(batch.segments[0].segment.id)
    await store.pack(least=1)
    for number in range(6, 9):  # these are in the tail of the index
        batch = planted(number)
        await store.write(batch)
        ids.append(batch.segments[0].segment.id)
    await fleet.close()
    return tuple(ids)


def test_a_marker_is_in_no_row_and_after_scrubbing_in_no_data_file(
    server: PostgresServer, database: TestDatabase
) -> None:
    asyncio.run(plant(database.app_url))
    marker = MARKER.encode()
    with psycopg.connect(database.admin_url, autocommit=True) as owner:
        owner.execute("ANALYZE")
        owner.execute("CHECKPOINT")
    assert set(rows_with(database.admin_url, marker)) == {
        "compactions", "facts", "jobs", "pieces", "segments", "sessions",
    }  # fmt: skip
    base = server.data / "base"
    assert files_with(base, marker)

    async def forget() -> None:
        fleet = await PostgresFleet.open(database.admin_url)
        store = await fleet.space("one")
        done = await store.forget(ForgetOrder(at=1.0, sessions=("secret",)))
        assert len(done.segments) == done.pieces == done.jobs == done.compactions == 8
        assert done.message_ids == (), "only where it was said, not wherever"
        assert done.vectors == done.passages >= 8
        assert len(done.facts) == 8
        assert done.session_states == 1
        assert any("scrub" in one for one in done.cannot)
        assert any("write-ahead" in one for one in done.cannot)
        assert (await store.check()).problems == ()
        again = await store.write(planted(3))
        assert again.forgotten == (planted(3).segments[0].segment.id,)
        found = await store.candidates(
            CandidateQuery(words=planted(3).segments[0].passages[0].words)
        )
        assert not any(found.document_frequencies.values())
        await fleet.close()

    asyncio.run(forget())
    assert rows_with(database.admin_url, marker) == []
    _no_term_is_left(database.admin_url)

    async def scrub() -> None:
        fleet = await PostgresFleet.open(database.app_url)
        store = await fleet.space("one")
        without = await store.scrub()
        assert without.done == ()
        assert any("owner" in one for one in without.cannot)
        done = await store.scrub(database.admin_url)
        assert any("tables" in one for one in done.done)
        assert any("write-ahead" in one for one in done.cannot)
        assert (await store.check()).problems == ()
        await fleet.close()

    asyncio.run(scrub())
    assert files_with(base, marker) == []


def _no_term_is_left(url: str) -> None:
    """The marker's words have left the index: as hashes they stand in no block either."""
    words = set(planted(3).segments[0].passages[0].words)
    others = {
        word
        for new in examples.full_batch(0, count=40).segments
        for passage in new.passages
        for word in passage.words
    }
    _no_block_has(url, words - others)


def _no_block_has(url: str, words: set[str], space: str = "one") -> None:
    hashes = [np.uint32(term_of(space_uuid(space), word)).tobytes() for word in words]
    assert hashes
    with psycopg.connect(url) as connection:
        blocks = connection.execute(
            "SELECT block FROM recollect.postings UNION ALL"
            " SELECT terms FROM recollect.passage_terms"
        ).fetchall()
    assert blocks
    assert not [one for one in hashes for (block,) in blocks if one in block]


async def test_a_state_that_quotes_what_was_forgotten_meanwhile_loses_the_quote(
    database: TestDatabase,
) -> None:
    fleet = await PostgresFleet.open(database.app_url)
    store = await fleet.space("one")
    batch = planted(1)
    await store.write(batch)
    await store.forget(ForgetOrder(at=1.0, message_ids=(batch.segments[0].segment.message_id,)))
    assert batch.session is not None
    late = replace(batch, session=replace(batch.session, turn=9))
    await store.write(late)
    stored = await store.session("secret")
    assert stored is not None
    assert MARKER.encode() not in stored.state
    await fleet.close()
    assert rows_with(database.admin_url, MARKER.encode()) == []


async def test_words_leave_index_under_the_numbers_they_had_before(database: TestDatabase) -> None:
    """Indexed again, a passage has a new number; its words were under the old one."""
    new = examples.segments(30, words=12)
    other_one, renewed = new[3], new[7]
    secret = examples.worded(["xylophone", "marker"], number=1)
    fleet = await PostgresFleet.open(database.app_url)
    store = await fleet.space("one")
    await store.write(Batch(at=1.0, segments=(*new, secret)))
    await store.pack(least=1)
    other = replace(renewed.passages[0], words=("quite", "different"))
    await store.replace_passages({renewed.segment.id: (other,)})
    gone = (other_one, renewed, secret)
    await store.forget(ForgetOrder(at=2.0, segments=tuple(one.segment.id for one in gone)))
    assert (await store.check()).problems == ()
    await fleet.close()
    kept = {word for one in new if one not in (other_one, renewed) for word in _words(one)}
    said = {*_words(other_one), *_words(renewed), *_words(secret), "quite", "different"}
    assert len(said - kept) > 4
    _no_block_has(database.admin_url, said - kept)


def _words(new: NewSegment) -> set[str]:
    return {word for passage in new.passages for word in passage.words}


async def test_a_quote_goes_that_stands_early_in_the_path_or_has_no_segment(
    database: TestDatabase,
) -> None:
    new = examples.segments(300)  # more than a chunk of the path

    def state(turn: int, place: int) -> bytes:
        edit = Shorten(anchor=new[place].segment.key, part=0, text=f"{MARKER} {place}",
                       stage="prune", reason=NOT_RUN, turn=turn)  # fmt: skip
        return split_state(SessionState(turn=turn, edits=(edit,)))

    fleet = await PostgresFleet.open(database.app_url)
    store = await fleet.space("one")
    first, second = new[3].segment.message_id, new[290].segment.message_id
    path = examples.session_write(new, turn=1, session="one")
    for turn, (place, about) in enumerate(((3, first), (290, second)), start=1):
        later = replace(path, turn=turn, state=state(turn, place), about=(about,))
        if turn > 1:
            later = replace(later, path_from=300, path=(), ids=())
        await store.write(Batch(at=1.0, session=later))
        done = await store.forget(ForgetOrder(at=2.0, message_ids=(about,)))
        assert done.session_states == 1
        stored = await store.session("one")
        assert stored is not None
        assert MARKER.encode() not in stored.state
        late = replace(later, turn=turn + 10, path_from=300, path=(), ids=())
        await store.write(Batch(at=3.0, session=late))
        assert rows_with(database.admin_url, MARKER.encode()) == []
        await store.forget(ForgetOrder(at=4.0, sessions=("one",)))
        await store.write(Batch(at=1.0, session=replace(path, turn=turn)))
    await fleet.close()


async def test_a_session_that_was_forgotten_and_goes_on_quotes_nothing_of_before(
    database: TestDatabase,
) -> None:
    new = examples.segments(4, session="secret")
    edit = Shorten(
        anchor=new[1].segment.key, part=0, text=MARKER, stage="prune", reason=NOT_RUN, turn=1
    )
    about = (new[1].segment.message_id,)
    write = examples.session_write(new, turn=1, session="secret", edits=(edit,), about=about)
    fleet = await PostgresFleet.open(database.app_url)
    store = await fleet.space("one")
    await store.write(Batch(at=1.0, segments=new, session=write))
    await store.forget(ForgetOrder(at=2.0, sessions=("secret",)))
    assert await store.session("secret") is None
    assert await store.tombstoned(about) == frozenset()
    again = await store.write(Batch(at=3.0, segments=new, session=replace(write, turn=2)))
    assert len(again.forgotten) == 4
    on = replace(write, turn=3, path_from=4, path=(), ids=())
    await store.write(Batch(at=4.0, session=on))
    assert rows_with(database.admin_url, MARKER.encode()) == []
    elsewhere = examples.segment(new[1].segment.text, session="other", role="assistant")
    assert (await store.write(Batch(at=5.0, segments=(elsewhere,)))).stored
    await fleet.close()


async def test_a_text_leaves_what_is_about_no_message(database: TestDatabase) -> None:
    system = examples.piece(f'{{"system": "Be {MARKER.upper()}"}}')
    batch = Batch(
        at=1.0,
        pieces=(system, examples.piece("calm")),
        jobs=(NewJob(kind="work", key="k", payload=f'{{"say": "{MARKER}"}}'.encode()),),
        session=SessionWrite(
            session="s",
            turn=1,
            state=split_state(
                SessionState(
                    turn=1,
                    edits=(
                        Insert(anchor=None, placement="head", text=f"{MARKER} " * 500,
                               stage="inject", reason=NOT_RUN, turn=1),
                    ),
                )
            ),
        ),
    )  # fmt: skip
    fleet = await PostgresFleet.open(database.app_url)
    store = await fleet.space("one")
    await store.write(batch)
    done = await store.forget(ForgetOrder(at=2.0, matching=MARKER.lower()))
    assert (done.pieces, done.jobs, done.session_states) == (1, 1, 1)
    stored = await store.session("s")
    assert stored is not None
    assert join_state(stored.state, (), ()).edits == ()
    assert len(await store.pieces([one.hash for one in batch.pieces])) == 1
    await fleet.close()
    assert rows_with(database.admin_url, MARKER.encode()) == []


async def test_a_fact_stays_away_that_rests_on_a_refused_segment(database: TestDatabase) -> None:
    fleet = await PostgresFleet.open(database.app_url)
    store = await fleet.space("one")
    new = examples.segment("never stored")
    await store.forget(ForgetOrder(at=1.0, message_ids=(new.segment.message_id,)))
    assert (await store.write(Batch(at=2.0, segments=(new,)))).forgotten
    await store.write(Batch(at=3.0, facts=(examples.fact("f", sources=[new.segment.id]),)))
    assert await store.facts() == ()
    await fleet.close()
