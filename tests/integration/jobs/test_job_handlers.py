"""What the jobs do: vectors for passages, a bounded index, a ledger of a bounded age."""

from collections.abc import Sequence
from pathlib import Path

from tests.integration.jobs.work_bench import NOON, opened
from tests.store_contract import examples

from recollect.core.engine.background import runner_of
from recollect.core.values.batch import Batch, NewJob
from recollect.core.values.recall import CandidateQuery, EmbedderKind
from recollect.system.config import Settings, load_settings


class HashEmbedder:
    """A vector made from the text itself."""

    name = "hash-8"
    kind: EmbedderKind = "hash"
    dimensions = 8
    ready = True

    def __init__(self, lose: int = 0) -> None:
        self.texts: list[str] = []
        self.lose = lose

    async def load(self) -> None:
        """It is always ready."""

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        self.texts += texts
        made = [examples.vector(text, dimensions=self.dimensions) for text in texts]
        return made[: len(made) - self.lose]


def embed_job(name: str = HashEmbedder.name) -> NewJob:
    return NewJob(kind="embed", key=name, run_at=NOON)


async def test_every_passage_gets_one_vector_in_several_jobs(tmp_path: Path) -> None:
    async with opened(tmp_path / "jobs.db") as bench:
        count = 600
        new = examples.segments(count)
        await bench.store.write(Batch(at=NOON, segments=new, jobs=(embed_job(),)))
        embedder = HashEmbedder()
        runner = runner_of(bench.store, Settings(), bench.clock, (embedder,))
        result = await runner.run_due()
        assert result["done"] == 3
        assert len(embedder.texts) == len(set(embedder.texts)) == count
        assert (await bench.store.stats()).vectors == {"hash-8": count}
        assert await bench.store.unembedded("hash-8", limit=1) == ()
        asked = examples.asked(new[7].segment.text, embedder="hash-8", dimensions=8)
        found = await bench.store.candidates(CandidateQuery(vectors=(asked,), vector_limit=1))
        (best,) = found.passages
        assert best.segment == new[7].segment.id
        (similarity,) = best.similarities
        assert similarity is not None
        assert similarity > 0.999


async def test_an_embedder_that_miscounts_or_is_another_is_not_believed(tmp_path: Path) -> None:
    async with opened(tmp_path / "jobs.db") as bench:
        jobs = (embed_job(), embed_job("of-another"))
        await bench.store.write(Batch(at=NOON, segments=examples.segments(3), jobs=jobs))
        runner = runner_of(bench.store, Settings(), bench.clock, (HashEmbedder(lose=1),))
        assert (await runner.run_due())["dead"] == 2
        assert (await bench.store.stats()).vectors == {}
        reasons = {job.reason for job in await bench.store.jobs()}
        assert len(reasons) == 2


async def test_old_turns_leave_the_ledger(tmp_path: Path) -> None:
    async with opened(tmp_path / "jobs.db") as bench:
        for number in (0, 1):
            await bench.store.write(examples.full_batch(number, session=f"s{number}"))
        bench.clock.time = examples.START + 50 + 30 * 86_400
        job = NewJob(kind="expire", key="daily", run_at=NOON)
        await bench.store.write(Batch(at=NOON, jobs=(job,)))
        result = await runner_of(bench.store, Settings(), bench.clock).run_due()
        assert result["done"] == 1
        assert await bench.store.turns("s0") == ()
        assert await bench.store.turns("s1") == (2,)
        assert (await bench.store.stats()).segments == 8
        # nobody speaks any more: the last turn goes all the same, and then no job is left
        bench.clock.time += 31 * 86_400
        assert (await runner_of(bench.store, Settings(), bench.clock).run_due())["done"] == 1
        assert await bench.store.turns("s1") == ()
        assert not [job for job in await bench.store.jobs() if job.kind == "expire"]


def _settings(given: dict[str, object]) -> Settings:
    return load_settings(arguments=given).settings
