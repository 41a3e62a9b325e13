"""Every active setting changes what it says; a test a key, and none may be missing.

Keys that act later, or never, say so when they are set (test_settings_every_key.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.config.test_agent_settings_act import AGENT_GROUPS
from tests.unit.config.test_compaction_settings_act import (
    COMPACTION_GROUPS,
    IN_TEST_SETTINGS_ACT,
)
from tests.unit.config.test_facts_settings_act import FACTS_GROUPS
from tests.unit.config.test_memory_settings_act import MEMORY_GROUPS
from tests.unit.config.test_recall_settings_act import ELSEWHERE, RECALL_GROUPS

from recollect.core.engine import Context, Engine, Session
from recollect.core.rules.price import model_price, read_prices
from recollect.core.rules.tokens import count_text, count_text_openclaw
from recollect.core.turn.prune import LINE_OF_IT
from recollect.core.values.edit import Insert, LeaveOut, Shorten
from recollect.core.values.model import Usage
from recollect.core.values.recall import Recalled, RecalledFact, RecalledPassage, RecallRequest
from recollect.errors import SettingsError
from recollect.system.config import active_keys, build, load_settings

ACTS: dict[str, Callable[[], None]] = {}


def acts(key: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(test: Callable[[], None]) -> Callable[[], None]:
        assert key not in ACTS
        ACTS[key] = test
        return test

    return register


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def now(self) -> float:
        return self.seconds


class Memory:
    def __init__(self, chars: int = 3_000, seconds: float = 0.0) -> None:
        self.chars = chars
        self.seconds = seconds
        self.asked: list[str] = []

    async def recall(self, request: RecallRequest) -> Recalled:
        self.asked.append(request.query)
        await asyncio.sleep(self.seconds)
        words = ("crane harbour winch " * self.chars)[: self.chars]
        return Recalled(
            facts=(RecalledFact(type="config", text="port 3000", score=1.0),),
            passages=tuple(
                RecalledPassage(
                    text=f"{n} {words}", role="user", said_at="2026-01-01 10:00", score=0.5
                )
                for n in range(12)
            ),
        )


def history(turns: int, *, result_chars: int = 12_000, tool: str = "read") -> list[dict[str, Any]]:
    held: list[dict[str, Any]] = []
    for n in range(turns):
        held += [
            {"role": "user", "content": f"please look at module number {n} of the harbour"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": f"t{n}", "name": tool, "input": {"n": n}}],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": f"t{n}",
                        "content": (f"{n} crane winch cargo " * result_chars)[:result_chars],
                    }
                ],
            },
            {"role": "assistant", "content": f"module {n} moves cargo with a winch"},
        ]
    return [*held, {"role": "user", "content": "which module had the anchor?"}]


def prepare(
    held: list[dict[str, Any]],
    settings: dict[str, Any],
    *,
    session: Session | None = None,
    **engine: Any,
) -> Context:
    made = Engine(build(settings), **engine)
    body = json.dumps({"model": "claude-x", "messages": held}).encode()
    return asyncio.run(made.prepare(session or Session("s"), body, format="anthropic"))


def shortened(context: Context) -> list[Shorten]:
    return [edit for edit in context.edits if isinstance(edit, Shorten)]


def left_out(context: Context) -> list[LeaveOut]:
    return [edit for edit in context.edits if isinstance(edit, LeaveOut)]


def block(context: Context) -> str:
    return next((edit.text for edit in context.edits if isinstance(edit, Insert)), "")


ADAPTIVE = {"window_tokens": 60_000, "pruning.mode": "adaptive"}


@acts("preset")
def _() -> None:
    there = load_settings(arguments={"preset": "openclaw", "window_tokens": 40_000}, environment={})
    body = json.dumps({"messages": history(2)}).encode()
    context = asyncio.run(Engine(there.settings).prepare("s", body))
    ours = prepare(history(2), {"window_tokens": 40_000})
    assert context.report.tokens_before != ours.report.tokens_before


@acts("window_tokens")
def _() -> None:
    assert prepare(history(3), {"window_tokens": 32_000}).report.window_tokens == 32_000
    assert prepare(history(3), {}).report.window_tokens == 200_000


@acts("turn.trim_first")
def _() -> None:
    long = history(60, result_chars=400)
    limits = {"window_tokens": 12_000, "pruning.mode": "off", "trim.low_water_ratio": 1.0}
    first = prepare(long, {**limits, "turn.trim_first": True})
    later = prepare(long, limits)
    assert first.report.tokens_after <= 12_000 - 3_000 - 1_200
    assert later.report.tokens_after > first.report.tokens_after


@acts("turn.deadline_seconds")
def _() -> None:
    settings = {"turn.deadline_seconds": 0.02}
    late = prepare(history(1), settings, recaller=Memory(seconds=2))
    assert [line.stage for line in late.report.failures] == ["recall"]


@acts("recall.deadline_seconds")
def _() -> None:
    late = prepare(history(1), {"recall.deadline_seconds": 0.02}, recaller=Memory(seconds=2))
    assert [line.stage for line in late.report.failures] == ["recall"]
    patient = prepare(history(1), {"recall.deadline_seconds": 1.5}, recaller=Memory(seconds=0.05))
    assert patient.report.failures == ()


@acts("tokens.counter")
def _() -> None:
    text = "请把迁移分两次做完" * 50
    held = [{"role": "user", "content": text}]
    ours = prepare(held, {}).report.tokens_before
    theirs = prepare(held, {"tokens.counter": "openclaw"}).report.tokens_before
    assert ours - theirs == count_text(text) - count_text_openclaw(text) != 0


@acts("tokens.calibrate")
def _() -> None:
    counted = []
    for calibrate in (True, False):
        engine = Engine(build({"tokens.calibrate": calibrate}))
        session = Session("s")
        body = {"messages": history(2)}
        asyncio.run(engine.prepare(session, body))
        asyncio.run(engine.observe(session, {"usage": {"input_tokens": 9_999}}))
        counted.append(asyncio.run(engine.prepare(session, body)).report.tokens_after)
    assert counted[0] == 9_999
    assert counted[1] != 9_999


@acts("pruning.mode")
def _() -> None:
    held = history(20)
    assert shortened(prepare(held, {**ADAPTIVE, "window_tokens": 150_000}))
    for mode in ("off", "cache-ttl"):
        calm = prepare(held, {"window_tokens": 150_000, "pruning.mode": mode})
        assert not shortened(calm), "no batch moment for this mode"
    off = prepare(held, {"window_tokens": 60_000, "pruning.mode": "off"})
    assert not shortened(off)
    assert left_out(off)
    aggressive = prepare(held, {"window_tokens": 150_000, "pruning.mode": "aggressive"})
    assert all(edit.hard for edit in shortened(aggressive))
    assert len(shortened(aggressive)) == 19, "all but those of the last three assistant messages"


@acts("pruning.ttl")
def _() -> None:
    def after(seconds: float, ttl: str) -> Context:
        loaded = load_settings(
            arguments={"window_tokens": 150_000, "pruning.ttl": ttl}, environment={}
        )
        clock = Clock()
        engine = Engine(loaded.settings, clock=clock)
        session = Session("s")
        body = json.dumps({"messages": history(20)}).encode()
        asyncio.run(engine.prepare(session, body))
        clock.seconds += seconds
        return asyncio.run(engine.prepare(session, body))

    assert not shortened(after(100, "5m"))
    assert shortened(after(301, "5m"))
    assert shortened(after(100, "90s"))


@acts("pruning.keep_last_assistants")
def _() -> None:
    held = history(12)
    aggressive = {"window_tokens": 150_000, "pruning.mode": "aggressive"}
    counts = [
        len(shortened(prepare(held, {**aggressive, "pruning.keep_last_assistants": keep})))
        for keep in (0, 2, 8)
    ]
    assert counts == [12, 11, 8]


@acts("pruning.soft_trim_ratio")
def _() -> None:
    held = history(20)
    assert not shortened(
        prepare(
            held,
            {
                "window_tokens": 150_000,
                "pruning.mode": "adaptive",
                "pruning.soft_trim_ratio": 0.9,
                "pruning.hard_clear_ratio": 0.95,
            },
        )
    )
    assert shortened(
        prepare(
            held,
            {"window_tokens": 150_000, "pruning.mode": "adaptive", "pruning.soft_trim_ratio": 0.2},
        )
    )


@acts("pruning.hard_clear_ratio")
def _() -> None:
    held = history(40, result_chars=3_900)
    base = {"window_tokens": 100_000, "pruning.mode": "adaptive"}
    low = prepare(held, {**base, "pruning.hard_clear_ratio": 0.31})
    high = prepare(held, {**base, "pruning.hard_clear_ratio": 0.99})
    assert any(edit.hard for edit in shortened(low))
    assert not any(edit.hard for edit in shortened(high))


@acts("pruning.min_prunable_tool_chars")
def _() -> None:
    held = history(40, result_chars=3_900)
    base = {"window_tokens": 100_000, "pruning.mode": "adaptive", "pruning.hard_clear_ratio": 0.31}
    assert any(edit.hard for edit in shortened(prepare(held, base)))
    few = prepare(held, {**base, "pruning.min_prunable_tool_chars": 10_000_000})
    assert not any(edit.hard for edit in shortened(few))


@acts("pruning.soft_trim.max_chars")
def _() -> None:
    held = history(20, result_chars=6_000)
    base = {"window_tokens": 80_000, "pruning.mode": "adaptive", "pruning.hard_clear_ratio": 1.0}
    assert shortened(prepare(held, base))
    assert not shortened(prepare(held, {**base, "pruning.soft_trim.max_chars": 7_000}))


@acts("pruning.soft_trim.head_chars")
def _() -> None:
    base = {**ADAPTIVE, "pruning.hard_clear_ratio": 1.0, "window_tokens": 150_000}
    edit = shortened(prepare(history(20), {**base, "pruning.soft_trim.head_chars": 321}))[0]
    assert edit.text.index("\n...\n") == 321


@acts("pruning.soft_trim.tail_chars")
def _() -> None:
    base = {**ADAPTIVE, "pruning.hard_clear_ratio": 1.0, "window_tokens": 150_000}
    edit = shortened(prepare(history(20), {**base, "pruning.soft_trim.tail_chars": 123}))[0]
    tail = edit.text.split("\n...\n")[1]
    assert tail.index("\n[Tool result shortened") == 123


@acts("pruning.hard_clear.enabled")
def _() -> None:
    base = {"window_tokens": 150_000, "pruning.mode": "aggressive"}
    assert not shortened(prepare(history(20), {**base, "pruning.hard_clear.enabled": False}))


@acts("pruning.hard_clear.placeholder")
def _() -> None:
    base = {"window_tokens": 150_000, "pruning.mode": "aggressive"}
    said = prepare(history(20), {**base, "pruning.hard_clear.placeholder": "[gone]"})
    assert all(edit.text.startswith("[gone]") for edit in shortened(said))
    assert b'"[gone]' in said.request


@acts("pruning.hard_clear.line_chars")
def _() -> None:
    base = {"window_tokens": 150_000, "pruning.mode": "aggressive"}
    placeholder = "[Old tool result content cleared]"
    for chars in (0, 40):
        said = prepare(history(20), {**base, "pruning.hard_clear.line_chars": chars})
        behind = [edit.text.removeprefix(placeholder) for edit in shortened(said)]
        assert behind
        assert all((text.startswith(LINE_OF_IT) if chars else not text) for text in behind)
        assert all(len(text) <= len(LINE_OF_IT) + chars for text in behind)


@acts("pruning.tools.allow")
def _() -> None:
    base = {"window_tokens": 150_000, "pruning.mode": "aggressive"}
    held = history(20, tool="browser_open")
    assert not shortened(prepare(held, {**base, "pruning.tools.allow": ("read", "exec*")}))
    assert shortened(prepare(held, {**base, "pruning.tools.allow": ("browser*",)}))


@acts("pruning.tools.deny")
def _() -> None:
    base = {"window_tokens": 150_000, "pruning.mode": "aggressive"}
    held = history(20, tool="browser_open")
    assert not shortened(prepare(held, {**base, "pruning.tools.deny": ("*open",)}))


TRIMMED = {"window_tokens": 12_000, "pruning.mode": "off"}


@acts("trim.low_water_ratio")
def _() -> None:
    held = history(60, result_chars=400)
    low = prepare(held, {**TRIMMED, "trim.low_water_ratio": 0.3})
    high = prepare(held, {**TRIMMED, "trim.low_water_ratio": 0.9})
    assert low.report.tokens_after < 0.45 * 9_000 < high.report.tokens_after <= 9_000


@acts("trim.protect_messages")
def _() -> None:
    held = history(60, result_chars=400)
    for protect in (1, 12):
        done = prepare(
            held, {**TRIMMED, "trim.protect_messages": protect, "trim.low_water_ratio": 0.01}
        )
        shown = [fate for fate in done.report.fates() if fate.fate in ("kept", "changed")]
        spoken = [f for f in shown if f.role == "assistant" or (f.place or 1) % 4 == 0]
        assert len(spoken) >= protect
        assert len(spoken) <= protect + 3


@acts("trim.protect_first_user")
def _() -> None:
    held = history(60, result_chars=400)
    for protect in (True, False):
        done = prepare(
            held, {**TRIMMED, "trim.protect_first_user": protect, "trim.low_water_ratio": 0.01}
        )
        (first,) = [fate for fate in done.report.fates() if fate.place == 0]
        assert (first.fate != "left out") == protect


@acts("recall.enabled")
def _() -> None:
    memory = Memory()
    assert not block(prepare(history(2), {"recall.enabled": False}, recaller=memory))
    assert memory.asked == []
    assert block(prepare(history(2), {}, recaller=memory))


@acts("recall.placement")
def _() -> None:
    def first_text(placement: str) -> str:
        done = prepare(history(2), {"recall.placement": placement}, recaller=Memory())
        content = json.loads(done.request)["messages"][0]["content"]
        return content if isinstance(content, str) else str(content[0]["text"])

    assert first_text("after-system").startswith("<recalled-context")
    assert first_text("before-newest-user").startswith("please look")


@acts("recall.sticky")
def _() -> None:
    for sticky in (True, False):
        engine = Engine(build({"recall.sticky": sticky}), recaller=Memory(600))
        session = Session("s")
        held = history(1)
        asyncio.run(engine.prepare(session, {"messages": held}))
        grown = [
            *held,
            {"role": "assistant", "content": "module 0"},
            {"role": "user", "content": "paint the crane green"},
        ]
        done = asyncio.run(engine.prepare(session, {"messages": grown}))
        blocks = [edit for edit in done.edits if isinstance(edit, Insert)]
        assert len(blocks) == (2 if sticky else 1)


@acts("recall.hard_cap_tokens")
def _() -> None:
    base = {"recall.block_tokens": 50_000}
    small = prepare(history(1), {**base, "recall.hard_cap_tokens": 500}, recaller=Memory())
    large = prepare(history(1), {**base, "recall.hard_cap_tokens": 6_000}, recaller=Memory())
    assert count_text(block(small)) <= 500 < count_text(block(large)) <= 6_000
    tenth = {**base, "recall.hard_cap_tokens": 6_000, "window_tokens": 30_000}
    capped = prepare(history(1), tenth, recaller=Memory())
    assert count_text(block(capped)) <= 3_000


@acts("recall.block_tokens")
def _() -> None:
    told = [{"role": "user", "content": "paint the crane of the harbour green"}]
    small = prepare(told, {"recall.block_tokens": 400}, recaller=Memory(900))
    large = prepare(told, {"recall.block_tokens": 3_500}, recaller=Memory(900))
    assert count_text(block(small)) <= 400 < count_text(block(large)) <= 3_500
    asked = [{"role": "user", "content": "which crane of the harbour is green?"}]
    asks = prepare(asked, {"recall.block_tokens": 400}, recaller=Memory(900))
    assert count_text(block(asks)) > 1_000, "a question may take the hard cap"


@pytest.mark.parametrize(
    ("before", "asked", "least", "most"),
    [
        ([], "which crane of the harbour is green?", 1_800, 2_667),
        (history(1), "which crane of the harbour is green?", 500, 800),
        ([], "how do I paint a crane?", 200, 400),
        ([], "the crane " * 40 + "is green, can you help me with that?", 200, 400),
        ([], "paint our crane as always", 200, 400),
        (history(1), "paint our crane as always", 500, 800),
    ],
)
def test_a_block_is_as_large_as_what_is_asked(
    before: list[Any], asked: str, least: int, most: int
) -> None:
    """In a window of 8,000 tokens; with tools a tenth of it, in mere talk a third."""
    said = [*before, {"role": "assistant", "content": "seen"}] if before else []
    said.append({"role": "user", "content": asked})
    done = prepare(said, {"window_tokens": 8_000}, recaller=Memory(900))
    assert least < count_text(block(done)) <= most


@acts("recall.standing_tokens")
def _() -> None:
    laid_down = "We decided to keep the crane at berth 4711."
    talk = [{"role": "user", "content": "we look after a harbour"}]
    for n in range(60):
        said = laid_down if n == 2 else f"round {n}: " + "sweep the quay and coil the ropes " * 20
        talk += [
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": said},
        ]
    for tokens, stands in ((1_600, True), (0, False)):
        settings = {"window_tokens": 6_000, "recall.standing_tokens": tokens}
        shown = prepare(talk, settings).request.decode()
        assert (laid_down in shown) is stands


@acts("compaction.reserve_tokens")
def _() -> None:
    settings = {"compaction.reserve_tokens": 40_000, "compaction.reserve_tokens_floor": 0}
    assert prepare(history(1), settings).report.limit_tokens == 160_000
    quarter = {**settings, "window_tokens": 40_000}
    assert prepare(history(1), quarter).report.limit_tokens == 30_000


@acts("compaction.reserve_tokens_floor")
def _() -> None:
    assert prepare(history(1), {}).report.limit_tokens == 180_000
    lower = prepare(history(1), {"compaction.reserve_tokens_floor": 0})
    assert lower.report.limit_tokens == 200_000 - 16_384


@acts("models.prices")
def _() -> None:
    used = Usage(input_tokens=1_000_000, output_tokens=1_000_000, cache_read_tokens=500_000)
    assert model_price("mine-large") is None
    given = load_settings(arguments={"models.prices": ["mine 2 4", "mine-large 3 15 0.3"]})
    price = model_price("mine-large", read_prices(given.settings.models.prices))
    assert price is not None
    assert price.of(used) == pytest.approx(0.5 * 3 + 0.5 * 0.3 + 15)
    for wrong in ("mine two", "mine", "mine 1 2 3 4 5"):
        with pytest.raises(SettingsError, match=r"models\.prices"):
            read_prices([wrong])


@pytest.mark.parametrize("key", sorted(ACTS))
def test_the_key_changes_what_it_says(key: str) -> None:
    ACTS[key]()


def test_no_active_key_is_without_a_test() -> None:
    groups = (
        *MEMORY_GROUPS,
        *RECALL_GROUPS,
        *COMPACTION_GROUPS,
        *AGENT_GROUPS,
        *FACTS_GROUPS,
        "gateway.",
        "serve.",
        "telemetry.",
        "daemon.",
    )
    # those act in tests/integration/test_gateway.py, test_daemon.py and service/
    elsewhere = {key for key in active_keys() if key.startswith(groups)}
    assert set(ACTS) == set(active_keys()) - (elsewhere - ELSEWHERE - IN_TEST_SETTINGS_ACT)
