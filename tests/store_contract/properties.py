"""The checks that make up their own cases: any text, and any order of writes, evictions,
withdrawals and forgetting.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.store_contract.examples import (
    START,
    asked,
    compaction,
    conversation,
    ids,
    vector,
    vectors,
    worded,
)
from tests.store_contract.harness import Spaces, for_every
from tests.store_contract.model import ReferenceModel

from recollect.core.values.batch import Batch
from recollect.core.values.recall import AskedVector, CandidateQuery
from recollect.core.values.segment import SegmentId
from recollect.core.values.upkeep import ForgetOrder

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from recollect.core.ports import Store

_WORDS = ("apple", "pear", "src/a.py", "数据", "NEAR", '"')
_SESSIONS = ("one", "two")
_PLACES = 10
"""How many different segments the cases are about."""

Step: TypeAlias = tuple[str, Any]


def _steps() -> SearchStrategy[list[Step]]:
    from hypothesis import strategies as st

    place = st.integers(0, _PLACES - 1)
    places = st.lists(place, min_size=1, max_size=6)
    words = st.lists(st.sampled_from(_WORDS), unique=True, max_size=3).map(tuple)
    left_out = st.lists(place, max_size=6)
    step = st.one_of(
        st.tuples(st.just("write"), st.tuples(places, places)),
        st.tuples(st.just("write"), st.tuples(places, places)),
        st.tuples(st.just("compact"), st.tuples(place, places, st.lists(place, max_size=2))),
        st.tuples(st.just("forget"), st.lists(place, min_size=1, max_size=2)),
        st.tuples(st.just("leave"), st.tuples(st.sampled_from((None, *_SESSIONS)), place)),
        st.tuples(st.just("withdraw"), st.lists(place, min_size=1, max_size=3)),
        st.tuples(
            st.just("look"),
            st.tuples(places, words, left_out, st.integers(0, 3), st.integers(0, 2)),
        ),
        st.tuples(
            st.just("ask"),
            st.tuples(
                words,
                st.one_of(st.none(), place),
                st.integers(0, 5),
                st.integers(0, 5),
                st.sampled_from((None, *_SESSIONS)),
                left_out,
            ),
        ),
    )
    return st.lists(step, min_size=6, max_size=16)


_SEGMENTS = tuple(
    worded(
        [_WORDS[(number * step + step) % len(_WORDS)] for step in range(number % 7 + 1)],
        number=number,
        session=_SESSIONS[number % 2],
        said_at=START + number,
    )
    for number in range(_PLACES)
)


def _vectors(near: int | None) -> tuple[AskedVector, ...]:
    """None, or one of each embedder that is like a segment's; one embedder wrote nothing."""
    if near is None:
        return ()
    return tuple(
        asked("q", embedder=name, like=vector(name + _SEGMENTS[near].segment.text))
        for name in (("e", "f", "unheard of") if near % 2 else ("e",))
    )


def _left_out(places: Sequence[int]) -> frozenset[SegmentId]:
    return frozenset(ids(_SEGMENTS[place] for place in places))


class _Pair:
    """Two stores on one memory that take steps by turns, and the model beside them."""

    def __init__(self, store: Store, other: Store) -> None:
        self.store, self.other = store, other
        self.model = ReferenceModel()

    async def take(self, name: str, given: Any) -> None:
        """Take a step, and leave the next one to the other store."""
        await getattr(self, name)(given)
        self.store, self.other = self.other, self.store

    async def write(self, given: tuple[Sequence[int], Sequence[int]]) -> None:
        new = tuple(_SEGMENTS[place] for place in given[0])
        embedded = [_SEGMENTS[place] for place in given[1]]
        sets = (vectors(embedded, embedder="e"), vectors(embedded[1:], embedder="f"))
        batch = Batch(at=START, segments=new, vectors=sets)
        stored = self.model.write(batch)
        assert (await self.store.write(batch)).stored == stored

    async def compact(self, drawn: tuple[int, Sequence[int], Sequence[int]]) -> None:
        """Record a compaction that stands for these places, beside segments that may be known."""
        number, places, beside = drawn
        record = compaction(
            number // 3,
            dict.fromkeys(_SEGMENTS[place].segment.message_id for place in places),
            session=_SESSIONS[number % 2],
        )
        new = tuple(_SEGMENTS[place] for place in beside)
        batch = Batch(at=START, segments=new, compactions=(record,))
        stored = self.model.write(batch)
        assert (await self.store.write(batch)).stored == stored

    async def forget(self, places: Sequence[int]) -> None:
        gone = ids(_SEGMENTS[place] for place in places)
        segment_ids = [
            segment_id for segment_id in dict.fromkeys(gone) if segment_id in self.model.segments
        ]
        compactions = self.model.forget(gone)
        done = await self.store.forget(ForgetOrder(at=START, segments=gone))
        assert sorted(done.segments) == sorted(segment_ids)
        assert done.compactions == compactions

    async def leave(self, drawn: tuple[str | None, int]) -> None:
        """Forget what was said before a time, in one session or in all."""
        session, place = drawn
        bound = START + place / 2 - 0.5
        gone = [
            segment_id
            for segment_id, new in self.model.segments.items()
            if new.segment.said_at < bound and session in (None, new.segment.session)
        ]
        compactions = self.model.forget(gone, by_place=True)
        sessions = () if session is None else (session,)
        done = await self.store.forget(ForgetOrder(at=START, sessions=sessions, said_before=bound))
        assert sorted(done.segments) == sorted(gone)
        assert done.compactions == compactions

    async def withdraw(self, places: Sequence[int]) -> None:
        gone = ids(_SEGMENTS[place] for place in places)
        assert await self.store.withdraw(gone) == self.model.withdraw(gone)

    async def look(self, drawn: tuple[Any, ...]) -> None:
        places, words, left_out, reach, passages_each = drawn
        near = ids(_SEGMENTS[place] for place in places)
        query = CandidateQuery(
            words=words, vectors=_vectors(places[0]), leave_out=_left_out(left_out)
        )
        surroundings = await self.store.around(
            near, query, reach=reach, passages_each=passages_each
        )
        self.model.expect_around(
            near, query, surroundings, reach=reach, passages_each=passages_each
        )

    async def ask(self, drawn: tuple[Any, ...]) -> None:
        words, near, lexical_limit, vector_limit, session, left_out = drawn
        query = CandidateQuery(
            words=words,
            vectors=_vectors(near),
            lexical_limit=lexical_limit,
            vector_limit=vector_limit,
            session=session,
            leave_out=_left_out(left_out),
        )
        self.model.expect(query, await self.store.candidates(query))

    async def compare(self) -> None:
        page = await self.store.page()
        assert [row.segment.id for row in page] == list(self.model.segments)
        for embedder in ("e", "f"):
            vectors_ = await self.store.vectors(embedder)
            held = {(vector.segment, vector.ordinal): vector.values for vector in vectors_}
            assert held == self.model.vectors.get(embedder, {})
        for session in _SESSIONS:
            records = await self.store.compactions(session)
            held_records = self.model.compactions
            assert records == tuple(
                held_records[place] for place in sorted(held_records) if place[0] == session
            )
        await self.take("ask", (_WORDS, 0, 50, 50, None, ()))
        await self.take("ask", (_WORDS, 1, 1, 1, None, (0, 1, 2, 5)))
        await self.take("look", (range(_PLACES), _WORDS, (), 2, 3))
        await self.take("look", (range(_PLACES), _WORDS, (2, 3, 5), 2, 3))


async def any_order_of_steps_answers_like_the_model(spaces: Spaces) -> None:
    """Whatever is written, forgotten and withdrawn, in any order: the answers are right."""
    names = count()

    async def hold(steps: list[Step]) -> None:
        name = f"case{next(names)}"
        pair = _Pair(await spaces.open(name), await spaces.open(name))
        for step, given in steps:
            await pair.take(step, given)
        await pair.compare()
        await spaces.close(pair.other)
        await spaces.finish(pair.store)

    await for_every(_steps, hold)


def _histories() -> SearchStrategy[list[tuple[list[str], int]]]:
    from hypothesis import strategies as st

    # What ingest lets through: any character but NUL and surrogates.
    character = st.characters(codec="utf-8", exclude_characters="\0")
    texts = st.lists(st.text(character, max_size=40), min_size=1, max_size=5)
    return st.lists(st.tuples(texts, st.integers(0, 2)), min_size=1, max_size=5)


async def any_text_is_stored_once(spaces: Spaces) -> None:
    """Histories of any text, resent and overlapping, are stored once and come back as said."""
    names = count()

    async def hold(histories: list[tuple[list[str], int]]) -> None:
        store = await spaces.open(f"case{next(names)}")
        expected: dict[str, str] = {}
        for texts, session in histories:
            new = conversation(texts, session=f"s{session}")
            written = await store.write(Batch(at=START, segments=new))
            fresh = [segment for segment in new if segment.segment.id not in expected]
            assert written.stored == ids(fresh)
            expected |= {segment.segment.id: segment.segment.text for segment in new}
        page = await store.page()
        assert {row.segment.id: row.segment.text for row in page} == expected
        for row in page:
            spans = await store.passages(row.segment.id)
            assert all(
                0 <= passage.start < passage.end <= len(row.segment.text) for passage in spans
            )
        await spaces.finish(store)

    await for_every(_histories, hold)
