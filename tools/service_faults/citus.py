"""`python -m tools.service_faults.citus`: the store's contract on a real Citus, then a lost worker.

Two nodes and a worker of Recollect serve tenants under load while one worker of Citus is killed and
brought back. Tenants and spaces are sorted by the node that their ids belong to: whatever the
tenant, only spaces on the lost node may fail. Ends with 1 where another request failed, or an
acknowledged message was lost or stored twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

import psycopg
from tests.contract.conftest import CITUS_VARIABLE, distributed
from tests.integration.service.nodes import add_key, add_tenant

from recollect.adapters.stores.postgres.store import space_uuid
from recollect.core.values.tenant import tenant_space
from recollect.errors import RecollectError
from recollect_bench.postgres_server import APP_PASSWORD, APP_ROLE, TestDatabase
from tools.service_faults.fleet import Node, Service
from tools.service_faults.load import Answer, Load, stored_tokens

PROGRAM: Final = os.environ.get("CITUS_PROGRAM", "../shared/citus/citus")
"""Builds a cluster of a coordinator and two workers in a folder, starts it, and kills its parts."""
URL: Final = "postgresql://postgres@127.0.0.1:9700/recollect"
STORE: Final = f"postgresql://{APP_ROLE}:{APP_PASSWORD}@127.0.0.1:9700/recollect"
LOST: Final = "w1"
LOST_PORT: Final = 9701
TENANTS: Final = 8
READY_SECONDS: Final = 180.0
AGAIN_SECONDS: Final = 10.0
"""So soon after its return the spaces of a node must be served again."""
_HOME: Final = """
    SELECT nodeport FROM pg_dist_shard_placement WHERE shardid = (
        SELECT get_shard_id_for_distribution_column('recollect.spaces', %s::uuid))
"""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of requests before the fault, and then by the homes of tenant and space."""

    before: dict[int, int] = field(default_factory=dict)
    statuses: dict[str, dict[int, int]] = field(default_factory=dict)
    slowest_ms: dict[str, int] = field(default_factory=dict)
    """Of answers with 200: before the fault, and while the node was down."""
    acknowledged: int = 0
    lost: int = 0
    duplicated: int = 0
    last_failure_seconds: dict[int, float] = field(default_factory=dict)
    """By status, how long after the node's return such an answer came last."""
    problems: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Only the lost spaces failed, nothing was lost or doubled, and everything came back."""
        back = max(self.last_failure_seconds.values(), default=0.0) <= AGAIN_SECONDS
        return back and not (self.lost or self.duplicated or self.problems)


def main(arguments: Sequence[str]) -> int:
    """Build and start the cluster, run both parts, print, and stop it."""
    parser = argparse.ArgumentParser(prog="python -m tools.service_faults.citus")
    parser.add_argument("--folder", type=Path, default=Path(".ci/citus"), help="of the cluster")
    parser.add_argument("--pace", type=float, default=6.0, help="arrivals a second")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each phase")
    parser.add_argument("--no-contract", action="store_true", help="only lose a node")
    options = parser.parse_args(arguments)
    if not Path(PROGRAM).exists():
        sys.stderr.write(f"{PROGRAM} is missing, so no Citus is tried: name it as CITUS_PROGRAM\n")
        return 0
    folder = options.folder.resolve()
    if not list(folder.glob("pg/lib/postgresql/citus.so")):
        _citus("build", folder, sys.executable)
    else:
        _citus("stop", folder)  # of a run that was killed
    _citus("start", folder)
    try:
        if not options.no_contract:
            command = [sys.executable, "-m", "pytest", "-q", "tests/contract", "-k", "TestCitus"]
            if done := subprocess.run(command, env={**os.environ, CITUS_VARIABLE: URL}).returncode:
                return done
        with tempfile.TemporaryDirectory(prefix="recollect-citus-") as homes, ExitStack() as stack:
            outcome = asyncio.run(
                _lose_a_node(folder, Path(homes), stack, options.pace, options.seconds)
            )
    finally:
        _citus("stop", folder)
    sys.stdout.write(f"{json.dumps({**asdict(outcome), 'clean': outcome.clean}, indent=1)}\n")
    return 0 if outcome.clean else 1


def _citus(do: str, folder: Path, *others: str) -> None:
    subprocess.run([PROGRAM, do, str(folder), *others], check=True, stdout=sys.stderr)


async def _lose_a_node(
    folder: Path, homes: Path, stack: ExitStack, pace: float, seconds: float
) -> Outcome:
    database = await distributed(URL)
    mark = f"{time.time_ns():x}"
    given = [
        await asyncio.to_thread(add_tenant, database, f"{mark}-{at}", requests=100_000)
        for at in range(TENANTS)
    ]
    nodes = [Node(f"node-{at}", STORE, homes / f"node-{at}") for at in range(2)]
    worker = Service("worker", ["worker", "--store", STORE], homes / "worker")
    for process in (*nodes, worker):
        stack.callback(process.kill)
        process.start()
    until = time.monotonic() + READY_SECONDS
    while not all([await asyncio.to_thread(node.ready) for node in nodes]):
        if time.monotonic() > until or not all(node.alive for node in nodes):
            raise RuntimeError(f"no node is ready:\n{nodes[0].log()[-2000:]}")
        await asyncio.sleep(0.1)

    load = Load([node.url for node in nodes], [key for _, key in given], patience_seconds=60.0)
    load.pace, stop, outcome = pace, asyncio.Event(), Outcome()
    running = asyncio.create_task(load.run(stop))
    await asyncio.sleep(seconds)
    broken = time.monotonic()
    await asyncio.to_thread(_citus, "kill", folder, LOST)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(_change_keys, database, given[0][0], outcome)
    outcome.problems += [
        f"{node.name} is not ready while a node is down" for node in nodes if not node.ready()
    ]
    repairing = time.monotonic()
    await asyncio.to_thread(_citus, "up", folder, LOST)
    mended = time.monotonic()
    await asyncio.sleep(max(seconds, AGAIN_SECONDS))
    stop.set()
    await running
    _judge_answers(outcome, load, [tenant for tenant, _ in given], (broken, repairing, mended))
    await _judge_messages(outcome, load, [key for _, key in given])
    for process in (*nodes, worker):
        if not process.alive or "Traceback" in process.log():
            outcome.problems.append(f"{process.name}:\n{process.log()[-1500:]}")
    if "no answer from 127.0.0.1:9701" not in worker.log():
        outcome.problems.append(f"the worker did not name the lost node:\n{worker.log()[-500:]}")
    return outcome


def _change_keys(database: TestDatabase, tenant: UUID, outcome: Outcome) -> None:
    """Tenants and keys can be made while a node is down."""
    try:
        add_key(database, tenant, scopes=("read",))
        add_tenant(database, f"made-{time.time_ns():x}")
    except RecollectError as error:
        outcome.problems.append(f"no tenant or key could be made: {error}")


def _judge_answers(
    outcome: Outcome, load: Load, tenants: Sequence[UUID], times: tuple[float, float, float]
) -> None:
    broken, repairing, mended = times
    with psycopg.connect(URL, autocommit=True) as connection:

        def is_lost(name: UUID) -> bool:
            row = connection.execute(_HOME, (name,)).fetchone()
            return row is not None and row[0] == LOST_PORT

        lost_tenants = [is_lost(tenant) for tenant in tenants]
        lost_spaces = {
            place: is_lost(space_uuid(tenant_space(tenants[place[0]], place[1])))
            for place in load.record.spaces
        }
    counts: dict[str, Counter[int]] = {
        f"tenant {one}, space {other}": Counter()
        for one in ("up", "lost") for other in ("up", "lost")
    }  # fmt: skip
    words = {True: "lost", False: "up"}

    def is_down(one: Answer) -> bool:
        return one.at >= broken and one.at + one.seconds < repairing

    ended = [one for one in load.record.answers if one.at + one.seconds < broken]
    outcome.before = dict(Counter(one.status for one in ended))
    for phase, answers in (("before", ended), ("down", filter(is_down, load.record.answers))):
        times_ms = [round(1000 * one.seconds) for one in answers if one.status == 200]
        outcome.slowest_ms[phase] = max(times_ms, default=0)
    for one in load.record.answers:
        if is_down(one):
            name = (
                f"tenant {words[lost_tenants[one.place[0]]]}, space {words[lost_spaces[one.place]]}"
            )
            counts[name][one.status] += 1
    outcome.statuses = {name: dict(sorted(count.items())) for name, count in counts.items()}
    for name, count in counts.items():
        # 404: the space was never written to, which the coordinator knows
        expected = {503, 504, 404} if name.endswith("lost") else {200, 404}
        if not set(count) - {404} or set(count) - expected:
            outcome.problems.append(f"{name}: {dict(count)}")
    for one in load.record.answers:
        after = one.at + one.seconds - mended
        if one.at > repairing and one.status not in (200, 404):
            outcome.last_failure_seconds[one.status] = round(max(0.0, after), 1)
    outcome.problems += [f"{count} × {text}" for text, count in load.record.problems.items()]
    if load.record.given_up:
        outcome.problems.append(f"given up: {dict(load.record.given_up)}")


async def _judge_messages(outcome: Outcome, load: Load, keys: Sequence[str]) -> None:
    record = load.record
    found = await stored_tokens(load.urls, keys, sorted(record.spaces))
    outcome.acknowledged = len(record.acknowledged)
    outcome.lost = sum(not found[token] for token in record.acknowledged)
    outcome.duplicated = sum(found[token] > 1 for token in record.sent)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
