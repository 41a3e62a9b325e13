"""The candidates by words are the best by the score of `search`, found by brute force."""

import random
from pathlib import Path

from tests.store_contract.examples import START, worded

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.search.bm25 import Bm25Index, score_passages
from recollect.core.values.batch import Batch
from recollect.core.values.recall import Candidate, CandidateQuery, Candidates
from recollect.core.values.segment import NewSegment

WORDS = [f"w{number}" for number in range(60)]


def _said(dice: random.Random) -> list[NewSegment]:
    """Passages where a few words are in nearly all, most in few; some very long."""
    weights = [1 / (rank + 1) for rank in range(len(WORDS))]
    lengths = [dice.choice((1, 4, 15, 80)) for _ in range(300)] + [5_000, 4_095, 4_096]
    return [
        worded(dice.choices(WORDS, weights, k=length), number=number)
        for number, length in enumerate(lengths)
    ]


def _score(one: Candidate, found: Candidates, words: tuple[str, ...]) -> float:
    return score_passages([one], found, words)[0]


async def test_best_by_search_are_the_candidates(tmp_path: Path) -> None:
    dice = random.Random(11)
    new = _said(dice)
    index = Bm25Index.build([one.passages[0].words for one in new])
    place = {one.segment.id: number for number, one in enumerate(new)}
    async with await SQLiteStore.open(tmp_path / "space.db", space="mine") as store:
        for first in range(0, len(new), 37):
            await store.write(Batch(at=START, segments=tuple(new[first : first + 37])))
        for _ in range(60):
            words = tuple(dict.fromkeys(dice.choices(WORDS, k=dice.choice((1, 2, 5, 12)))))
            limit = dice.choice((1, 7, 50))
            query = CandidateQuery(words=words, lexical_limit=limit)
            found = await store.candidates(query)
            scores = index.scores(words)
            ranked = sorted(
                (number for number, score in enumerate(scores) if score),
                key=lambda number: (-scores[number], new[number].segment.id),
            )
            assert {place[one.segment] for one in found.passages} == set(ranked[:limit])
            for one in found.passages:
                assert _score(one, found, words) == scores[place[one.segment]]
            assert found == await store.candidates(query)


async def test_files_are_found_beside_a_session_whatever_their_names_hold(tmp_path: Path) -> None:
    """A name that is no UTF-8 is stored as bytes, which SQLite sorts behind all texts."""
    files = {"file:", "file:a.md", "file:\ud800", "file:\x00", "file:\udfff数"}
    others = {"file", "files", "file\ud800", "file\ud800:", "\ud800file:", "file;\ud800"}
    new = [
        worded(["target"], number=number, session=session)
        for number, session in enumerate(("talk", "other", *sorted(files | others)))
    ]

    async def found(store: SQLiteStore, session: str, before: float | None = None) -> set[str]:
        query = CandidateQuery(
            words=("target",), session=session, with_files=True, said_before=before
        )
        return {one.session for one in (await store.candidates(query)).passages}

    async with await SQLiteStore.open(tmp_path / "space.db", space="mine") as store:
        await store.write(Batch(at=START, segments=tuple(new[:9])))
        written = {one.segment.session for one in new[:9]}
        assert await found(store, "talk") == (files | {"talk"}) & written
        await store.write(Batch(at=START, segments=tuple(new[9:])))
        assert await found(store, "talk") == files | {"talk"}
        assert await found(store, "file\ud800:") == files | {"file\ud800:"}
        assert await found(store, "talk", START + 1) == files | {"talk"}
        assert await found(store, "talk", START) == set()
