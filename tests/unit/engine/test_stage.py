"""A stage that fails or is late leaves the request as it was, and the report says so."""

import asyncio
import threading

import pytest

from recollect.core.boundary import Boundary
from recollect.core.values.reason import NOT_RUN, Cause


def boundary(*, off_the_loop: bool = False, is_quick: bool = False) -> Boundary:
    return Boundary(
        turn_seconds=5.0, stage_seconds=0.05, off_the_loop=off_the_loop, is_quick=is_quick
    )


def fail() -> str:
    raise ValueError("secret content")


@pytest.mark.parametrize("off_the_loop", [False, True])
async def test_a_failing_stage_leaves_its_input(off_the_loop: bool) -> None:
    turn, value = boundary(off_the_loop=off_the_loop), "unchanged"
    async with turn.stage("align") as stage:
        value = await stage.call(fail)
        stage.explain(NOT_RUN)
    assert value == "unchanged"
    async with turn.stage("align") as stage:
        value = await stage.call(str.upper, "done")
        stage.explain(NOT_RUN)
    assert value == "DONE"
    assert [line.outcome for line in turn.lines] == ["failed", "done"]
    assert turn.lines[0].reasons[0].cause is Cause.RAISED
    assert "secret" not in str(turn.lines[0].reasons[0])
    assert turn.lines[1].reasons == (NOT_RUN,)


async def test_a_stage_ends_at_its_deadline_or_the_turns() -> None:
    turn = boundary()
    async with turn.stage("recall", waits=True):
        await asyncio.sleep(10)
    async with turn.stage("recall", waits=True, seconds=0.1):
        await asyncio.sleep(10)
    turn.allow(-10)  # the turn's time is over
    async with turn.stage("recall", waits=True):
        await asyncio.sleep(10)
    assert [line.outcome for line in turn.lines] == ["late"] * 3
    seconds = [line.reasons[0].numbers["seconds"] for line in turn.lines]
    assert seconds == [0.05, 0.1, 0.0]
    assert turn.lines[0].seconds >= 0.05


async def test_a_cancelled_turn_is_not_a_failed_stage() -> None:
    turn = boundary()

    async def run() -> None:
        async with turn.stage("recall", waits=True, seconds=5):
            await asyncio.sleep(10)

    task = asyncio.create_task(run())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert turn.lines == []


async def test_only_slow_turns_leave_the_event_loop() -> None:
    here = threading.get_ident()
    for is_quick in (True, False):
        async with boundary(off_the_loop=True, is_quick=is_quick).stage("align") as stage:
            assert (await stage.call(threading.get_ident) == here) is is_quick
