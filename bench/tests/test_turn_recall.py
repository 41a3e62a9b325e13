"""The bench of recall: its memory is what it claims, and bare is what was issued, no less."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.sizes import only_in_full

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect_bench.command import bench
from recollect_bench.turn_recall import (
    SETTINGS,
    STEPS,
    Bare,
    Issued,
    Recorder,
    Timed,
    recall_one,
    time_recalls,
)
from recollect_bench.turn_recall_data import EMBEDDERS, SPACE, Talk, fill

PASSAGES = 900
QUESTIONS = 6
"""More than the store remembers the words of: so each is read from the index again."""


def test_a_memory_and_its_questions_are_the_same_in_every_run() -> None:
    assert Talk().message(40) == Talk().message(40)
    one, other = (Talk().asked(900, 6, gated=True) for _ in range(2))
    assert [asked.vectors for asked in one] == [asked.vectors for asked in other]
    assert [asked.request.newest for asked in one] == [asked.request.newest for asked in other]


async def _timed(path: Path) -> tuple[Timed, Issued]:
    talk = Talk()
    async with await SQLiteStore.open(path, space=SPACE) as store:
        messages = await fill(store, talk, PASSAGES)
    questions = talk.asked(messages, QUESTIONS, gated=True)
    recorder = Recorder()
    with recorder.watching_connections():
        store = await SQLiteStore.open(path, space=SPACE, create=False)
        await store.known([])
    bare = Bare(path, space=SPACE, connections=len(recorder))
    issued = Issued()
    try:
        async with store:
            timed = await time_recalls(
                store, questions, SETTINGS, rounds=2, recorder=recorder, bare=bare
            )
            with recorder.writing_down(issued):
                await recall_one(store, questions[1], SETTINGS)
            bare.run(issued)
    finally:
        bare.close()
    return timed, issued


def test_all_statements_and_products_of_a_recall_are_written_down(tmp_path: Path) -> None:
    timed, issued = asyncio.run(_timed(tmp_path / "memory.db"))
    assert timed.opened == QUESTIONS, "the questions are about what memory holds"
    assert timed.passages > QUESTIONS
    assert len(timed.whole) == len(timed.bare) == QUESTIONS
    assert {len(rounds) for rounds in (*timed.whole, *timed.bare)} == {2}
    assert timed.ratio > 0
    assert timed.processor_ratio > 0
    assert set(timed.steps) == set(STEPS)
    assert all(seconds > 0 for seconds in timed.steps.values())
    told = [" ".join(statement.split()) for _, statement, _ in issued.statements]
    assert told.count("BEGIN") == told.count("COMMIT") >= 4
    for table in ("words_at", "passage", "segment", "fact", "embedder"):
        assert any(table in statement for statement in told), table
    assert {number for number, _, _ in issued.statements} == {0, 1}, "both lanes"
    by_dimensions = {one.shape[1] for one, _ in issued.products}
    assert by_dimensions == {made.dimensions for made in EMBEDDERS}


@only_in_full
def test_the_command_prints_the_figures_of_recall() -> None:
    ran = CliRunner().invoke(bench, ["turn", "--recall", "--quick", "--json"])
    assert ran.exit_code == 0, ran.output
    figures = json.loads(ran.stdout)["figures"]
    assert {"recall_p50_ms", "recall_p99_ms", "recall_ratio", "embed_p50_ms_hash"} <= set(figures)
    assert figures["recall_p50_ms"] <= figures["recall_p99_ms"]
    assert figures["gate_open_20k_gated"] == 1.0
    shares = [value for name, value in figures.items() if name.startswith("share.")]
    assert sum(shares) == pytest.approx(1.0)


def test_options_of_recall_alone_are_refused_without_it() -> None:
    ran = CliRunner().invoke(bench, ["turn", "--quick"])
    assert ran.exit_code != 0
    assert "--recall" in str(ran.exception)
