"""What summaries took today, told by all gateways of a user."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from recollect.core.values.model import Prompt
from recollect.errors import ModelUnavailable
from recollect.hosts.gateway.summaries import ClientModel, CrossingRequest, DaySpending, crossing
from recollect.hosts.gateway.upstream import Upstreams
from recollect.system.config import Settings


def test_two_gateways_share_what_was_spent_and_what_was_given_back(tmp_path: Path) -> None:
    first, second = DaySpending(tmp_path / "day.json"), DaySpending(tmp_path / "day.json")
    for spending in (first, second) * 5:
        assert spending.charge(17_500, most=100_000)
        assert spending.charge(5_000 - 17_500)
    assert not first.charge(60_000, most=100_000)
    assert second.charge(50_000, most=100_000)
    assert not first.charge(1, most=100_000)


def test_what_is_given_back_after_midnight_makes_no_debt(tmp_path: Path) -> None:
    spending = DaySpending(tmp_path / "day.json")
    spending.charge(-5_000)
    assert spending.charge(100, most=100)
    assert not spending.charge(1, most=100)


def test_summaries_at_the_clients_expense_have_a_limit_without_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path))
    assert DaySpending().charge(999_999)

    async def ask() -> None:
        crossing.set(CrossingRequest(format="anthropic", model="m", headers=[]))
        model = ClientModel(Upstreams(Settings().gateway), day_tokens=None)
        await model.ask(Prompt(text="summarise", max_output_tokens=100, purpose="summary"))

    with pytest.raises(ModelUnavailable, match="1,000,000 tokens a day"):
        asyncio.run(ask())
