"""When an edit before the tail is worth breaking the provider's prompt cache."""

import asyncio
from typing import Any

import pytest

from recollect.core.engine import Context, Engine
from recollect.core.rules.price import is_uncached, model_price, price_edit
from recollect.core.values.history import CacheUse
from recollect.core.values.model import Usage
from recollect.core.values.reason import Cause
from recollect.system.config import load_settings

WINDOW = 40_000


def told(read: int, written: int = 0, whole: int = 20_000) -> Usage:
    return Usage(
        input_tokens=whole, cache_read_tokens=read, cache_write_tokens=written, reports_cache=True
    )


def after(*usages: Usage, pause_seconds: float = 10.0) -> CacheUse:
    use = CacheUse()
    for usage in usages:
        use = use.learn(usage, pause_seconds=pause_seconds, went_on=True)
    return use


def test_only_a_provider_that_reads_and_writes_no_cache_three_times_keeps_none() -> None:
    nothing = told(0)
    assert not is_uncached(after(nothing, nothing))
    assert is_uncached(after(nothing, nothing, nothing))
    assert not is_uncached(after(nothing, nothing, nothing, told(0, 5_000)))
    silent = Usage(input_tokens=20_000)
    assert not is_uncached(after(silent, silent, silent, silent))


def test_an_edit_pays_when_enough_requests_follow() -> None:
    use = after(told(90_000, 2_000, whole=92_000))
    asked: dict[str, Any] = {
        "freed_tokens": 30_000,
        "before_tokens": 20_000,
        "used_tokens": 92_000,
        "history_tokens": 92_000,
        "limit_tokens": 180_000,
    }
    few = price_edit("anthropic", use, **asked, requests=4)
    many = price_edit("anthropic", use, **asked, requests=60)
    assert few.breaks == many.breaks == pytest.approx((92_000 - 20_000 - 30_000) * 1.15)
    assert (few.pays, many.pays) == (False, True)
    assert few.saves == pytest.approx(30_000 * 0.1 * 4)


def test_money_by_the_longest_name_that_fits() -> None:
    used = Usage(
        input_tokens=1_000_000,
        output_tokens=100_000,
        cache_read_tokens=900_000,
        cache_write_tokens=100_000,
    )
    sonnet, opus, old = (
        model_price(name)
        for name in ("anthropic/claude-sonnet-4-5", "claude-opus-4-5", "claude-opus-4-1-20250805")
    )
    assert sonnet is not None
    assert opus is not None
    assert old is not None
    assert sonnet.of(used) == pytest.approx(0.9 * 0.3 + 0.1 * 3.75 + 0.1 * 15)
    assert old.of(used) == pytest.approx(3 * opus.of(used))
    assert model_price("somebody-else's") is None
    assert model_price(None) is None


def history(exchanges: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look at the logs."}]
    for number in range(exchanges):
        call = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"n": number}}
        result = {
            "type": "tool_result",
            "tool_use_id": f"c{number}",
            "content": f"line of log {number} went by\n" * 300,
        }
        messages.append({"role": "assistant", "content": [call]})
        messages.append({"role": "user", "content": [result]})
    return messages


class Clock:
    """Goes on when it is told to."""

    at = 1_700_000_000.0

    def now(self) -> float:
        return self.at


def talk(usage: dict[str, int], **options: Any) -> list[Context]:
    return asyncio.run(_talk(Clock(), usage, **options))


async def _talk(
    clock: Clock,
    usage: dict[str, int],
    *,
    pause_seconds: float,
    marks: str = "",
    mode: str = "cache-ttl",
) -> list[Context]:
    """A conversation that grows by a tool's result a request, each answered with this usage."""
    made = load_settings(
        arguments={
            "window_tokens": WINDOW,
            "compaction.enabled": False,
            "tokens.calibrate": False,
            "pruning.mode": mode,
        }
    ).settings
    engine = Engine(made, clock=clock)
    mark = {"type": "ephemeral", **({"ttl": marks} if marks else {})}
    system = [{"type": "text", "text": "Work.", "cache_control": mark}]
    contexts = []
    for number in range(1, 10):
        request = {"model": "m", "system": system, "messages": history(number)}
        contexts.append(await engine.prepare("s", request, format="anthropic"))
        await engine.observe("s", {"content": [], "usage": {"output_tokens": 1, **usage}})
        clock.at += pause_seconds
    await engine.close()
    return contexts


CACHED = {
    "input_tokens": 10,
    "cache_read_input_tokens": 18_000,
    "cache_creation_input_tokens": 2_000,
}
WRITTEN = {"input_tokens": 10, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 20_000}
UNCACHED = {"input_tokens": 20_000, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}


def test_old_results_are_shortened_early_only_where_no_cache_is_broken_by_it() -> None:
    cached = talk(CACHED, pause_seconds=10)
    uncached = talk(UNCACHED, pause_seconds=10)
    assert not any(context.report.new_edits for context in cached)
    (first, *_) = [context for context in uncached if context.report.new_edits]
    assert first.report.moment is not None
    assert (first.report.moment.kind, first.report.moment.price) == (
        "uncached",
        "the edit costs nothing extra",
    )
    assert "the edit costs nothing extra" in " ".join(first.report.done())


def test_a_cache_that_is_kept_for_an_hour_is_not_broken_after_six_minutes() -> None:
    minutes = talk(WRITTEN, pause_seconds=360)
    hour = talk(WRITTEN, pause_seconds=360, marks="1h")
    assert any(context.report.new_edits for context in minutes)
    assert not any(context.report.new_edits for context in hour)


def test_by_ratio_results_are_shortened_only_where_that_pays() -> None:
    """Read at a tenth of the price, a few requests before the window is full save too little."""
    cached = talk(CACHED, pause_seconds=10, mode="adaptive")
    lines = [line for context in cached for line in context.report.lines]
    assert any(line.cause is Cause.PAYS_TOO_LITTLE for line in lines)
    assert not any(line.cause is Cause.PAYS for line in lines)
    assert not any(context.report.new_edits for context in cached)
    hardly = {**CACHED, "cache_read_input_tokens": 3_000, "cache_creation_input_tokens": 500}
    paying = talk({**hardly, "input_tokens": 16_500}, pause_seconds=10, mode="adaptive")
    (first, *_) = [context for context in paying if context.report.new_edits]
    assert first.report.moment is not None
    assert first.report.moment.price == "the edit pays for itself"
    assert any(line.cause is Cause.PAYS for line in first.report.lines)
