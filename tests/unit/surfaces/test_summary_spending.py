"""What summaries took today, told by all gateways of a user."""

from __future__ import annotations

from pathlib import Path

from recollect.gateway.summaries import DaySpending


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
