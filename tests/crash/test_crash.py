"""The crash harness at the sizes of CI; `just crash` kills by the hundred."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sizes import at_size
from tools.crash.compaction_kills import kill_assistants
from tools.crash.crowd import crowd
from tools.crash.outage import outage
from tools.crash.outcome import Outcome, table
from tools.crash.places import Site, site
from tools.crash.restarts import restarts
from tools.crash.server_stops import stop_server
from tools.crash.talker_kills import kill_talkers
from tools.crash.torn_spool import tear_spool
from tools.crash.worker_kills import kill_workers
from tools.crash.writer_kills import kill_writers

KILLS = at_size(ci=6, full=40)
FEW_KILLS = at_size(ci=4, full=10)
LOAD = at_size(ci=1, full=4)
"""Busy processes; the other half of CI keeps the machine busy besides."""
STOPS = at_size(ci=2, full=3)


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site("sqlite", tmp_path_factory.mktemp("sqlite")) as found:
        yield found


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site("pg18", tmp_path_factory.mktemp("postgres")) as found:
        yield found


def assert_clean(outcome: Outcome) -> None:
    assert outcome.clean, table([outcome])


def test_killed_writers_lose_nothing_on_sqlite(sqlite: Site) -> None:
    outcome = kill_writers(sqlite.place(), kills=KILLS)
    assert_clean(outcome)
    assert outcome.kills == KILLS
    assert outcome.acknowledged > KILLS
    assert outcome.figures["inside_writes"] >= KILLS / 5, "the kills must fall into writes"


def test_killed_writers_lose_nothing_on_an_encrypted_file(tmp_path: Path) -> None:
    with site("encrypted", tmp_path) as found:
        outcome = kill_writers(found.place(), kills=KILLS // 2)
    assert_clean(outcome)
    assert outcome.acknowledged > FEW_KILLS


def test_killed_writers_lose_nothing_on_postgres(postgres: Site) -> None:
    outcome = kill_writers(postgres.place(), kills=KILLS)
    assert_clean(outcome)
    assert outcome.acknowledged > KILLS
    assert outcome.figures["inside_writes"] >= KILLS / 5, "the kills must fall into writes"


def test_a_server_that_loses_its_power_loses_nothing(postgres: Site) -> None:
    assert postgres.server is not None
    outcome = stop_server(postgres.place(), postgres.server, stops=STOPS)
    assert_clean(outcome)
    assert outcome.kills == STOPS
    assert outcome.figures["refused_meanwhile"], "the writers must have met the stops"


def test_killed_workers_on_sqlite_do_every_job_once_within_the_budget(sqlite: Site) -> None:
    check_workers(kill_workers(sqlite.place(), kills=FEW_KILLS))


def test_killed_workers_on_postgres_do_every_job_once_within_the_budget(postgres: Site) -> None:
    check_workers(kill_workers(postgres.place(), kills=FEW_KILLS))


def check_workers(outcome: Outcome) -> None:
    assert_clean(outcome)
    assert outcome.figures["cut_off"], "the kills must fall into jobs"
    assert outcome.figures["days_at_budget"], "the budget must have been reached"


def test_eight_processes_share_one_file(sqlite: Site) -> None:
    rounds = at_size(ci=6, full=20)
    outcome = crowd(sqlite.place(), seconds=at_size(ci=2.0, full=8.0), rounds=rounds)
    assert_clean(outcome)
    assert outcome.figures["queries"] >= 4 * 8 * rounds
    assert outcome.figures["jobs"] >= 8


def test_killed_engines_lose_nothing_on_sqlite(sqlite: Site) -> None:
    outcome = kill_talkers(sqlite.place(), sqlite.home(), kills=FEW_KILLS)
    assert_clean(outcome)
    assert outcome.acknowledged > FEW_KILLS


def test_killed_engines_lose_nothing_on_postgres(postgres: Site) -> None:
    outcome = kill_talkers(postgres.place(), postgres.home(), kills=FEW_KILLS)
    assert_clean(outcome)
    assert outcome.acknowledged > FEW_KILLS


def test_agents_killed_within_compactions_lose_nothing_on_postgres(postgres: Site) -> None:
    kills = at_size(ci=3, full=8)
    outcome = kill_assistants(postgres.place(), postgres.home(), kills=kills)
    assert_clean(outcome)
    assert outcome.figures["inside"] == kills
    assert outcome.acknowledged > 2 * kills


@pytest.mark.usefixtures("usual_deadlines")
def test_turns_go_on_while_the_server_is_away(postgres: Site) -> None:
    assert postgres.server is not None
    away = at_size(ci=1.5, full=3.0)
    outcome = outage(postgres.place(), postgres.home(), postgres.server, away_seconds=away)
    assert_clean(outcome)
    assert outcome.figures["spooled"] > at_size(ci=5, full=10)


@pytest.mark.parametrize("store", at_size(ci=["postgres"], full=["sqlite", "postgres"]))
def test_busy_machine_makes_no_store_seem_away(store: str, request: pytest.FixtureRequest) -> None:
    found: Site = request.getfixturevalue(store)
    outcome = restarts(found.place(), found.home(), turns=16, times=1, load=LOAD)
    assert_clean(outcome)
    assert outcome.acknowledged == 16
    assert outcome.figures["asked"]


@pytest.mark.usefixtures("usual_deadlines")
def test_a_server_that_hangs_costs_few_turns_and_recovers_by_itself(postgres: Site) -> None:
    assert postgres.server is not None
    outcome = outage(
        postgres.place(), postgres.home(), postgres.server, away_seconds=4.0, hangs=True
    )
    assert_clean(outcome)
    assert outcome.figures["spooled"] > 5


def test_a_spool_torn_anywhere_is_recovered(sqlite: Site) -> None:
    outcome = tear_spool(sqlite.place(), sqlite.home(), step=at_size(ci=18, full=9))
    assert_clean(outcome)
    assert outcome.kills > at_size(ci=20, full=40)
