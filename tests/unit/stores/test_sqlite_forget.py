"""Forgetting reaches the bytes: what was forgotten is in no file of the store."""

from pathlib import Path

import apsw
from tests.store_contract.examples import (
    SESSION,
    START,
    asked,
    full_batch,
    ids,
    piece,
    segment,
    segments,
    session_write,
    vector,
    vectors,
)

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.values.batch import Batch, NewJob
from recollect.core.values.edit import Shorten
from recollect.core.values.fact import Fact, FactId
from recollect.core.values.message import MessageId
from recollect.core.values.reason import NOT_RUN
from recollect.core.values.recall import CandidateQuery
from recollect.core.values.upkeep import ForgetOrder

MARK = "xylophonequartz"


def _raw(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


async def _planted(store: SQLiteStore) -> MessageId:
    """A message whose words stand in every place a store has; returns its identity."""
    said = segment(f"the {MARK} is in {MARK}land, and {'so on ' * 2_000}")
    around = segments(30)
    one = said.segment.message_id
    shorten = Shorten(
        anchor=said.segment.key, part=0, text=f"… {MARK}", stage="prune", reason=NOT_RUN, turn=1
    )
    quote = piece(f"a row with {MARK}", about=(one,))
    batch = Batch(
        at=START,
        segments=(said, *around),
        vectors=(vectors((said, *around), embedder="e"),),
        facts=(
            Fact(
                id=FactId("f"), type="config", content=f"{MARK} it is", context=MARK, at=START,
                sources=(said.segment.id,), words=(MARK,),
            ),
        ),
        jobs=(NewJob(kind="extract", key="k", payload=f'"{MARK}"'.encode(), about=(one,)),),
        session=session_write((said, *around), turn=1, edits=(shorten,), about=(one,)),
        pieces=(quote,),
    )  # fmt: skip
    await store.write(batch)
    return one


async def test_marker_is_in_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    async with await SQLiteStore.open(path, space="mine") as store:
        one = await _planted(store)
        await store.write(Batch(at=START, segments=segments(200, first=100)))
        assert _raw(path).count(MARK.encode()) > 6
        done = await store.forget(ForgetOrder(at=START, message_ids=(one,)))
        assert (len(done.segments), done.pieces, done.jobs) == (1, 1, 1)
        assert (done.facts, done.session_states) == ((FactId("f"),), 1)
        assert MARK.encode() not in _raw(path)
        assert vector("e" + f"the {MARK}")[:16] not in _raw(path)
        again = await _planted(store)
        assert again == one
        assert MARK.encode() not in _raw(path)
        assert (await store.check()).problems == ()
    assert MARK.encode() not in _raw(path)


async def test_reader_in_the_way_is_told(tmp_path: Path) -> None:
    """The log cannot be emptied while another connection reads from it; scrub does it later."""
    path = tmp_path / "space.db"
    async with await SQLiteStore.open(path, space="mine", busy_seconds=0.2) as store:
        one = await _planted(store)
        other = apsw.Connection(str(path))
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM segment").fetchall()
        done = await store.forget(ForgetOrder(at=START, message_ids=(one,)))
        assert any("scrub" in sentence for sentence in done.cannot)
        other.execute("ROLLBACK")
        other.close()
        scrubbed = await store.scrub()
        assert not any("scrub" in sentence for sentence in scrubbed.cannot)
        assert MARK.encode() not in _raw(path)


async def test_record_that_cannot_be_read_is_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    new = segments(5)
    async with await SQLiteStore.open(path, space="mine") as store:
        facts = tuple(
            Fact(id=FactId(name), type="config", content=name, at=START) for name in "abc"
        )
        await store.write(Batch(at=START, segments=new, facts=facts))
    harms = (
        ("UPDATE segment SET role = 'torn' WHERE id = ?", new[1].segment.id),
        ("UPDATE segment SET text = CAST(x'61ff62' AS TEXT) WHERE id = ?", new[3].segment.id),
        ("UPDATE fact SET words = '[1, 2]' WHERE id = ?", "b"),
    )
    with apsw.Connection(str(path)) as database:
        for harm, which in harms:
            database.execute(harm, (which,))
    database.close()
    async with await SQLiteStore.open(path, space="mine") as store:
        left = [new[0].segment, new[2].segment, new[4].segment]
        assert [one.segment for one in await store.page(limit=2)] == left[:2]
        assert [one.segment for one in await store.page()] == left
        assert [one.segment for one in await store.segments(ids(new))] == left
        assert [one.id for one in await store.facts()] == ["a", "c"]
        problems = (await store.check()).problems
        assert any("2 records of kind segment" in problem for problem in problems)
        assert any("1 records of kind fact" in problem for problem in problems)


async def test_session_whose_name_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    async with await SQLiteStore.open(path, space="mine") as store:
        for number, name in enumerate(("bad", "good")):
            await store.write(full_batch(number, session=name))
    _harm(path, "UPDATE session SET name = CAST(x'61ff62' AS TEXT) WHERE name = 'bad'")
    async with await SQLiteStore.open(path, space="mine") as store:
        assert [one.session for one in await store.sessions()] == ["good"]
        words = full_batch(1).segments[0].passages[0].words
        found = await store.candidates(CandidateQuery(words=words, vectors=(asked("q"),)))
        assert {one.session for one in found.passages} == {"good"}
        assert len(await store.page()) == 4
        assert (await store.check()).problems
        assert await store.session("good") is not None


async def test_session_that_cannot_be_read_can_be_written_again(tmp_path: Path) -> None:
    new = segments(6)
    path = tmp_path / "space.db"
    async with await SQLiteStore.open(path, space="mine") as store:
        for turn in range(1, 7):
            write = session_write(new[turn - 1 : turn], turn=turn, path_from=turn - 1)
            await store.write(Batch(at=START, session=write))
    _harm(path, "UPDATE path SET keys = x'00' WHERE start = 2")
    async with await SQLiteStore.open(path, space="mine") as store:
        assert await store.session(SESSION) is None
        anew = Batch(at=START, session=session_write(new[:2], turn=1))
        assert not (await store.write(anew)).session_stale
        stored = await store.session(SESSION)
        assert stored is not None
        assert (stored.turn, len(stored.path)) == (1, 2)
        assert (await store.check()).problems == ()


async def test_long_segment_that_cannot_be_read_does_not_stop_embedding(tmp_path: Path) -> None:
    long = segment("\n".join(f"line {number} " + "alpha beta " * 40 for number in range(40)))
    path = tmp_path / "space.db"
    new = segments(3)
    assert len(long.passages) > 32
    async with await SQLiteStore.open(path, space="mine") as store:
        await store.write(Batch(at=START, segments=(long, *new)))
    _harm(path, "UPDATE segment SET text = CAST(x'61ff62' AS TEXT) WHERE sequence = 1")
    async with await SQLiteStore.open(path, space="mine") as store:
        waiting = await store.unembedded("e", limit=32)
        assert [one.segment for one in waiting] == list(ids(new))
        await store.write(Batch(at=START, vectors=(vectors(new, embedder="e"),)))
        assert await store.unembedded("e", limit=32) == ()


async def test_row_with_a_damaged_word_is_left_out_and_told(tmp_path: Path) -> None:
    """A text that is none in a column that is read as text, where no reader sees it coming."""
    path = tmp_path / "space.db"
    new = segments(4)
    jobs = tuple(NewJob(kind="work", key=name) for name in "abc")
    async with await SQLiteStore.open(path, space="mine") as store:
        await store.write(Batch(at=START, segments=new, jobs=jobs))
    _harm(path, "UPDATE segment SET role = CAST(x'ff' AS TEXT) WHERE sequence = 2")
    _harm(path, "UPDATE job SET key = CAST(x'ff' AS TEXT) WHERE key = 'b'")
    async with await SQLiteStore.open(path, space="mine") as store:
        left = [new[0].segment, new[2].segment, new[3].segment]
        assert [one.segment for one in await store.page()] == left
        assert [one.key for one in await store.jobs()] == ["a", "c"]
        assert any("cannot be read" in told for told in (await store.check()).problems)


async def test_text_that_is_about_no_message_is_in_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    async with await SQLiteStore.open(path, space="mine") as store:
        system = piece(f"you are the {MARK} helper", kind="system")
        job = NewJob(kind="work", key="k", payload=f'"{MARK}"'.encode())
        await store.write(Batch(at=START, segments=segments(20), pieces=(system,), jobs=(job,)))
        assert MARK.encode() in _raw(path)
        done = await store.forget(ForgetOrder(at=START, matching=MARK.upper()))
        assert (done.pieces, done.jobs) == (1, 1)
        assert MARK.encode() not in _raw(path)
        assert (await store.stats()).segments == 20


async def test_forgotten_session_leaves_not_even_its_name(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    async with await SQLiteStore.open(path, space="mine") as store:
        await store.write(full_batch(0, session=MARK))
        await store.write(full_batch(1, session="other"))
        assert MARK.encode() in _raw(path)
        await store.forget(ForgetOrder(at=START, sessions=(MARK,)))
        assert MARK.encode() not in _raw(path)
        assert (await store.check()).problems == ()
        assert (await store.stats()).sessions == 1


def _harm(path: Path, statement: str) -> None:
    with apsw.Connection(str(path)) as database:
        database.execute(statement)
    database.close()


async def test_check_tells_of_broken_invariants(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    new = segments(6)
    async with await SQLiteStore.open(path, space="mine") as store:
        sets = (vectors(new, embedder="e"),)
        await store.write(
            Batch(at=START, segments=new, vectors=sets, session=session_write(new, turn=1))
        )
        assert (await store.check()).problems == ()
    for harm, told in (
        ("DELETE FROM words_bag WHERE id = (SELECT min(id) FROM words_bag)", "word"),
        ("UPDATE totals SET tokens = tokens + 1", "counters"),
        ("DELETE FROM vector_at", "vectors"),
        ("UPDATE session SET length = length + 1", "path"),
    ):
        with apsw.Connection(str(path)) as database:
            database.execute(harm)
        database.close()
        async with await SQLiteStore.open(path, space="mine") as store:
            problems = (await store.check()).problems
            assert any(told in problem for problem in problems), (harm, problems)
