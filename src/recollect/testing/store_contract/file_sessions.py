"""What holds for a search of one session and the memory files beside it.

What came from a file is in a session of its own, whose name begins with `file:`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from recollect.ports import Store
from recollect.testing.store_contract.examples import (
    START,
    asked,
    ids,
    segments,
    vector,
    vectors,
    worded,
)
from recollect.testing.store_contract.harness import Spaces
from recollect.testing.store_contract.model import Model
from recollect.values.batch import Batch
from recollect.values.recall import CandidateQuery, Candidates
from recollect.values.segment import NewSegment
from recollect.values.upkeep import ForgetOrder

_FILES = (
    "file:", "file:MEMORY.md", "file:memory/2026-11-15.md", "file:~/notes/a b.md", "file:%_*?[",
    "file::", "file:;", "file:'\"\\", "file:\t\n", "file:\x01", "file:\x1a", "file:été",
    "file:数据.md", "file:🙂", "file:\uffff", "file:\U0010ffff",
)  # fmt: skip
_NO_FILES = (
    "file", "files", "file;", "file9", "file\x1a", "file\x1a003a", "fil", "fi", "", "File:a",
    "FILE:a", " file:a", "a file:a", "file :a", "profile:a", "file\uff1aa", "\u0444ile:a", "ﬁle:a",
)  # fmt: skip


async def _write(store: Store, model: Model, *new: NewSegment) -> None:
    batch = Batch(at=START, segments=new, vectors=(vectors(new, embedder="e"),))
    model.write(batch)
    await store.write(batch)


async def _ask(store: Store, model: Model, query: CandidateQuery) -> Candidates:
    found = await store.candidates(query)
    model.expect(query, found)
    return found


def _asking(like: NewSegment) -> CandidateQuery:
    near = asked("q", embedder="e", like=vector("e" + like.segment.text))
    return CandidateQuery(words=("target",), vectors=(near,), lexical_limit=200, vector_limit=200)


def _ways(query: CandidateQuery) -> tuple[CandidateQuery, ...]:
    """By words and vectors, and by either alone."""
    return query, replace(query, words=()), replace(query, vectors=())


async def files_are_searched_beside_a_session(spaces: Spaces) -> None:
    """With its files a session is searched together with every session whose name begins with
    `file:`, whatever follows, and with no other; without a session that changes nothing."""
    store = await spaces.open()
    model = Model()
    names = ("talk", "other", *_FILES, *_NO_FILES)
    new = [
        worded(["target"] * (number % 3 + 1) + ["filler"] * (number % 5), number=number,
               session=name, said_at=START + number)
        for number, name in enumerate(names)
    ]  # fmt: skip
    await _write(store, model, *new)
    for session in ("talk", "unheard of", "file", "files", "file:MEMORY.md", "file:unheard of"):
        for query in _ways(replace(_asking(new[0]), session=session)):
            alone = await _ask(store, model, query)
            assert {one.session for one in alone.passages} <= {session}
            found = await _ask(store, model, replace(query, with_files=True))
            expected = {*_FILES, session}.intersection(names)
            assert {one.session for one in found.passages} == expected
    for query in _ways(_asking(new[0])):
        everything = await _ask(store, model, replace(query, with_files=True))
        assert {one.session for one in everything.passages} == set(names)


async def files_are_let_through_before_limits(spaces: Spaces) -> None:
    """The best of a session and its files fill the limits, within times, and without what the
    view shows; the other sessions take no place."""
    store = await spaces.open()
    model = Model()
    loud = [worded(["target"] * 3, number=number, session="loud") for number in range(40)]
    talk = [
        worded(["target"] + ["more"] * number, number=100 + number, session="talk",
               said_at=START + number)
        for number in range(12)
    ]  # fmt: skip
    noted = [
        worded(["target"] * 2 + ["more"] * number, number=200 + number,
               session=f"file:{number % 5}.md", said_at=START + number)
        for number in range(12)
    ]  # fmt: skip
    await _write(store, model, *loud, *talk, *noted)
    base = replace(_asking(loud[3]), session="talk", lexical_limit=5, vector_limit=5)
    for with_files, shown, after, before in product(
        (False, True),
        ((), ids(noted[:4]), ids((*talk[:5], *noted[:7])), ids((*talk, *noted))),
        (None, START + 3.5),
        (None, START + 8.5),
    ):
        query = replace(
            base,
            with_files=with_files,
            leave_out=frozenset(shown),
            said_after=after,
            said_before=before,
        )
        for way in _ways(query):
            await _ask(store, model, way)
    found = await _ask(store, model, replace(base, vectors=(), with_files=True))
    assert len(found.passages) == 5
    assert set(ids(noted[:3])) < {one.segment for one in found.passages}


async def files_are_searched_as_they_are_now(spaces: Spaces) -> None:
    """What was written, went cold, came back, was withdrawn, indexed anew or forgotten a moment
    ago is found, or not, by every store that is open."""
    store = await spaces.open()
    other = await spaces.open()
    model = Model()
    talk = segments(4, first=10, session="talk", words=6, said_at=START + 500)
    notes = [
        worded(["target", f"note{number}"], number=number, session=f"file:{number % 3}.md",
               said_at=START + number)
        for number in range(9)
    ]  # fmt: skip
    base = replace(_asking(notes[4]), session="talk", with_files=True)

    async def hold(*, found: int) -> None:
        for one in (store, other):
            for query in _ways(base):
                await _ask(one, model, query)
            cold = await _ask(one, model, replace(base, cold=True))
            assert cold.cold_searched == len(model.cold)
            by_words = await _ask(one, model, replace(base, vectors=()))
            assert len(by_words.passages) == found

    await _write(store, model, *talk)
    await hold(found=0)
    await _write(other, model, *notes[:3])
    await hold(found=3)
    await _write(store, model, *notes[3:])
    await hold(found=9)
    await store.evict(max_segments=None, said_before=START + 2.5)
    model.evict_before(START + 2.5)
    await hold(found=6)
    await other.warm(ids(notes[1:3]))
    model.cold -= set(ids(notes[1:3]))
    await hold(found=8)
    gone = ids((notes[0], notes[5]))
    assert await store.withdraw(gone, at=START) == model.withdraw(gone) == 2
    await hold(found=7)
    await _write(other, model, notes[5])
    await hold(found=8)
    anew = replace(notes[6].passages[0], words=("target", "target", "anew"))
    await store.replace_passages({notes[6].segment.id: (anew,)}, at=START)
    model.segments[notes[6].segment.id] = replace(notes[6], passages=(anew,))
    await hold(found=8)
    left = tuple(one for one, new in model.segments.items() if new.segment.session == "file:1.md")
    model.forget(left, by_place=True)
    done = await other.forget(ForgetOrder(at=START, sessions=("file:1.md",)))
    assert sorted(done.segments) == sorted(left)
    await hold(found=8 - len(left))
