"""The store bench: its data are what they claim, both sides do the same work, its shape holds."""

import json
from itertools import repeat
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from click.testing import CliRunner
from tests.sizes import only_in_full

from recollect.core.search.bm25 import Bm25Index
from recollect.core.values.segment import NewSegment
from recollect.errors import RecollectError
from recollect_bench import store
from recollect_bench.command import bench
from recollect_bench.store_data import Corpus, Turns, vector_batches
from recollect_bench.store_measure import Baseline, Paired, milliseconds
from recollect_bench.store_postgres_baseline import PostgresBaseline
from recollect_bench.store_sqlite_baseline import SqliteBaseline


def test_the_data_are_the_same_in_every_run() -> None:
    corpus = Corpus()
    assert corpus.until(50) == Corpus().until(50)
    assert corpus.segment(40) == next(Corpus().segments(first=40))
    assert corpus.queries(corpus.until(50), 5) == Corpus().queries(corpus.until(50), 5)


def test_a_throughput_above_and_a_time_below_one_mean_that_the_store_is_faster() -> None:
    faster = Paired(ours=[1.0, 1.0, 1.0], theirs=[2.0, 2.0, 5.0])
    assert faster.throughput_ratio == 3.0
    assert faster.time_ratio == 0.5
    assert milliseconds([0.003, 0.001, 0.002]) == 2.0
    assert milliseconds([0.003, 0.001, 0.002], share=0.99) == 3.0


@pytest.fixture(params=["sqlite", "postgres"])
def baseline(request: pytest.FixtureRequest, tmp_path: Path):
    made: Baseline
    if request.param == "sqlite":
        made = SqliteBaseline(tmp_path / "baseline.db")
    else:
        running = request.getfixturevalue("server")
        made = PostgresBaseline(running.new_database().admin_url, space=uuid4())
    yield made
    made.close()


def test_a_baseline_finds_what_exact_search_finds(baseline: Baseline) -> None:
    corpus = Corpus()
    segments = corpus.until(400)
    _load(baseline, corpus, segments)
    named = [(new.segment.id, at) for new in segments for at in range(len(new.passages))]
    words = [passage.words for new in segments for passage in new.passages]
    index = Bm25Index.build(words)
    matrix = _matrix(corpus, segments)
    for query in corpus.queries(segments, 10):
        rows, frequencies = baseline.candidates(query)
        (asked,) = query.vectors
        similarities = matrix @ np.frombuffer(asked.values, "<f4")
        near = {named[at] for at in np.argsort(-similarities)[:40]}
        lexical = {named[at] for at, _ in index.top(query.words, 20)}
        found = {(row[0], row[1]): row for row in rows}
        assert near <= found.keys()
        assert len(lexical & found.keys()) >= 18, "ranked by the engine's own formula"
        for key, row in found.items():
            place = named.index(key)
            held = words[place]
            assert row[-1] == {w: held.count(w) for w in query.words if w in held}
            assert row[-2] == pytest.approx(similarities[place], abs=2e-3)
        assert frequencies == {w: index.document_frequencies[w] for w in query.words}


def _load(baseline: Baseline, corpus: Corpus, segments: list[NewSegment]) -> None:
    for batch in Turns().batches(segments, repeat(20)):
        baseline.write(batch)
    for batch in vector_batches(corpus, segments, size=64):
        baseline.write(batch)
    baseline.settle()


def _matrix(corpus: Corpus, segments: list[NewSegment]) -> np.ndarray:
    batches = vector_batches(corpus, segments, size=64)
    values = [vector.values for batch in batches for vector in batch.vectors[0].vectors]
    return np.frombuffer(b"".join(values), "<f4").reshape(len(values), -1)


@pytest.mark.parametrize("url", ["sqlite:", pytest.param("pg18", marks=only_in_full)])
def test_a_quick_run_gives_every_figure_and_both_sides_agree(url: str) -> None:
    done = CliRunner().invoke(
        bench, ["store", "--store", url, "--quick", "--json"], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["bench"] == "store"
    assert result["notes"]
    figures = result["figures"]
    wanted = {"ingest_ratio", "ingest_ratio_turn", "ingest_ratio_import", "vector_ingest_ratio_2k",
              "query_ratio_2k", "query_p50_ms_2k", "query_p99_ms_2k", "agreement_2k"}  # fmt: skip
    assert wanted <= figures.keys()
    assert all(value > 0 for name, value in figures.items() if not name.startswith("pack"))
    assert 0.8 <= figures["agreement_2k"] <= 1
    assert ("open_ms" in figures) == (url == "sqlite:")
    assert result["baselines"]["query_p50_ms_2k"] > 0


def test_an_unknown_store_is_named() -> None:
    with pytest.raises(RecollectError, match="no store is named mysql"):
        store.run(store="mysql://somewhere")
