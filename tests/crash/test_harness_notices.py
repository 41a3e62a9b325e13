"""A harness that finds nothing is worth as much as its finding of stores that are broken."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.crash.syncs import counted_syncs
from tools.crash.__main__ import main
from tools.crash.crowd import crowd
from tools.crash.outage import Phase, judge
from tools.crash.outcome import Outcome, table
from tools.crash.places import Place, site
from tools.crash.plan import planned_batch
from tools.crash.spoken import compare_spoken
from tools.crash.torn_spool import tear_spool
from tools.crash.verify import Acknowledged, verify
from tools.crash.worker_kills import kill_workers
from tools.crash.writer_kills import kill_writers

BROKEN = "tests.crash.broken_stores"


def broken(opener: str, folder: Path) -> Place:
    with site("sqlite", folder) as found:
        place = found.place()
    return replace(
        place, name=opener, opener=f"{BROKEN}:{opener}", modules=(*place.modules, BROKEN)
    )


def test_a_store_that_acknowledges_before_it_writes_is_found_out(tmp_path: Path) -> None:
    outcome = kill_writers(broken("open_acks_early", tmp_path), kills=15)
    assert outcome.lost, table([outcome])
    assert not outcome.clean


def test_a_store_that_writes_without_a_transaction_is_found_out(tmp_path: Path) -> None:
    outcome = kill_writers(broken("open_without_transaction", tmp_path), kills=25)
    assert any("in part" in problem for problem in outcome.problems), table([outcome])


def test_a_store_that_keeps_what_is_sent_again_twice_is_found_out(tmp_path: Path) -> None:
    # a kill has to fall between a commit and its acknowledgement
    outcome = kill_writers(broken("open_not_idempotent", tmp_path), kills=30)
    attempt = 0
    while not outcome.figures["found_when_resent"] and (attempt := attempt + 1) < 4:
        folder = tmp_path / str(attempt)
        folder.mkdir()
        outcome = kill_writers(broken("open_not_idempotent", folder), kills=30)
    assert outcome.duplicated, table([outcome])


@pytest.mark.parametrize("what", ["text", "piece", "vector"])
async def test_a_store_that_keeps_other_content_is_found_out(tmp_path: Path, what: str) -> None:
    place = replace(broken("open_scribbler", tmp_path), space=what)
    store = await place.open()
    for number in range(8):
        await store.write(planned_batch("w", number))
    verdict = await verify(store, {"w": Acknowledged(batches=8)})
    await store.close()
    assert any(what in problem for problem in verdict.problems)


async def _least_syncs(place: Place) -> int:
    """The fewest syncs that any of some writes took."""
    counts = []
    with counted_syncs() as syncs:
        store = await place.open()
        for number in range(8):
            before = syncs.count
            await store.write(planned_batch("w", number))
            counts.append(syncs.count - before)
        await store.close()
    return min(counts)


@pytest.mark.parametrize("kind", ["sqlite", "encrypted"])
def test_every_commit_is_synced(tmp_path: Path, kind: str) -> None:
    """No kill shows a missing sync: the system outlives the process. So they are counted."""
    with site(kind, tmp_path) as found:
        assert asyncio.run(_least_syncs(found.place())) >= 1


def test_a_store_that_never_syncs_is_found_out(tmp_path: Path) -> None:
    assert asyncio.run(_least_syncs(broken("open_unsynced", tmp_path))) == 0


def test_an_effect_apart_from_its_completion_is_found_out(tmp_path: Path) -> None:
    outcome = kill_workers(broken("open_effect_first", tmp_path), kills=15)
    assert outcome.duplicated, table([outcome])


def test_a_budget_that_is_not_kept_is_found_out(tmp_path: Path) -> None:
    outcome = kill_workers(broken("open_spendthrift", tmp_path), kills=4)
    assert any("budget" in problem for problem in outcome.problems), table([outcome])


def test_a_store_that_forgets_among_others_is_found_out(tmp_path: Path) -> None:
    outcome = crowd(broken("open_forgetful", tmp_path), seconds=1.0, rounds=20, members=2)
    assert outcome.lost, table([outcome])


def test_a_spooled_batch_that_does_not_arrive_is_found_out(tmp_path: Path) -> None:
    outcome = tear_spool(broken("open_forgetful", tmp_path), tmp_path, step=60)
    assert outcome.lost, table([outcome])


def test_a_turn_that_waits_for_an_absent_store_is_found_out() -> None:
    outcome = Outcome(scenario="outage", store="none")
    quick = Phase(prepared=[0.01] * 100, archived=["store"] * 100)
    slow = Phase(prepared=[0.01] * 60 + [0.60] * 40, archived=["spool"] * 100)
    judge(outcome, quick, slow, quick, drained_seconds=0.1)
    assert any("600 ms" in problem for problem in outcome.problems)


def test_a_turn_may_find_out_that_the_store_is_away_and_not_for_ever() -> None:
    quick = Phase(prepared=[0.01] * 100, archived=["store"] * 100)
    for seconds, problems in ((4.9, 0), (5.1, 1)):
        outcome = Outcome(scenario="outage", store="none")
        away = Phase(prepared=[0.01] * 99 + [seconds], archived=["spool"] * 100)
        judge(outcome, quick, away, quick, drained_seconds=0.1)
        assert len(outcome.problems) == problems


def test_messages_that_are_missing_or_doubled_are_counted() -> None:
    verdict = compare_spoken((), ["a.0.user", "a.0.assistant"])
    assert (verdict.acknowledged, verdict.lost) == (2, 2)


def test_the_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--store", "sqlite", "--scenario", "writers", "--kills", "3"])
    printed = capsys.readouterr()
    assert status == 0
    assert "writer kills" in printed.out
    assert "3" in printed.out
