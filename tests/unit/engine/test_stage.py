"""A stage that fails or is late leaves the request as it was, and the report says so."""

import ast
import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TypeGuard

import pytest

import recollect
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
        value = stage.explain(await stage.call(fail), NOT_RUN)
    assert value == "unchanged"
    async with turn.stage("align") as stage:
        value = stage.explain(await stage.call(str.upper, "done"), NOT_RUN)
    assert value == "DONE"
    assert [line.outcome for line in turn.lines] == ["failed", "done"]
    assert turn.lines[0].reasons[0].cause is Cause.RAISED
    assert "secret" not in str(turn.lines[0].reasons[0])
    assert turn.lines[1].reasons == (NOT_RUN,)


def is_stage(node: ast.AST) -> TypeGuard[ast.AsyncWith]:
    if not isinstance(node, ast.AsyncWith):
        return False
    return "boundary.stage(" in ast.unparse(node.items[0].context_expr)


def names(nodes: Iterable[ast.AST], context: type[ast.expr_context]) -> set[str]:
    found = (name for node in nodes for name in ast.walk(node) if isinstance(name, ast.Name))
    return {name.id for name in found if isinstance(name.ctx, context)}


def test_no_stage_that_fails_changes_a_variable() -> None:
    """The last statement of a stage sets its value once its reason is known, and nothing that an
    earlier one sets is read outside."""
    package, count = Path(recollect.__file__).parent, 0
    for file in package.rglob("*.py"):
        text = file.read_text("utf-8")
        for function in ast.walk(ast.parse(text)) if "boundary.stage(" in text else ():
            if not isinstance(function, ast.AsyncFunctionDef):
                continue
            blocks = [node for node in ast.walk(function) if is_stage(node)]
            inside = {id(node) for block in blocks for node in ast.walk(block)}
            outside = [n for n in ast.walk(function) if id(n) not in inside]
            read = names([n for n in outside if isinstance(n, ast.Name)], ast.Load)
            for block in blocks:
                *earlier, last = block.body
                where = f"{file.relative_to(package)}:{last.lineno}"
                assert isinstance(last, ast.Assign | ast.Return) and last.value, where
                assert ast.unparse(last.value).startswith("stage.explain("), where
                assert not names(earlier, ast.Store) & read, where
                count += 1
    assert count >= 15, "the blocks of stages look different now"


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
