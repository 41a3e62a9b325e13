"""Clients that go away: the request ends with them, and stands once in the records."""

import asyncio
from typing import Any

import pytest
from tests.harness.gateway import PATHS, ask, body_of, gateway, leave_in_mid_stream, records
from tests.harness.model_server import ModelServer
from tests.harness.waiting import PATIENCE_SECONDS

from recollect.hosts.http import run_for_client
from recollect.testing.scripted_model import Says


async def test_work_that_loses_a_cancellation_is_cancelled_again() -> None:
    """As `asyncio.wait_for` of Python 3.11 loses one that comes together with the result."""
    reached: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            reached.append("lost")
        await asyncio.sleep(3_600)
        reached.append("went on")

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.05)
        return {"type": "http.disconnect"}

    await asyncio.wait_for(run_for_client(receive, work()), PATIENCE_SECONDS)
    assert reached == ["lost"]


@pytest.mark.parametrize("wire", list(PATHS))
def test_a_request_that_was_cut_off_stands_once_in_the_records(wire: str) -> None:
    says = Says(text="One two three four.", hang_after_events=2)
    with ModelServer([says, Says(text="One.")]) as server, gateway(server) as running:
        leave_in_mid_stream(running, wire)
        assert server.wait_until_hung_up()
        ask(running.url, PATHS[wire], body_of(wire, ["count"]))
        record, _ = records(running, 2)
    assert record["outcome"] == "the client disconnected"
    assert record["handling"] == "as it came"
    assert record["turn"] == 1
