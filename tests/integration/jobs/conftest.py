"""A store for each test of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.jobs.work_bench import Scenario, opened


@pytest.fixture
def on_store(tmp_path: Path) -> Callable[[Scenario], None]:
    """Runs a scenario on a store of its own."""

    def run(scenario: Scenario) -> None:
        async def whole() -> None:
            async with opened(tmp_path / "jobs.db") as bench:
                await scenario(bench)

        asyncio.run(whole())

    return run
