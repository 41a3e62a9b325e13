"""Settings of one turn change what they say: rows of a table, and a few tests."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from recollect.core.engine import Context, Engine, Session
from recollect.core.rules.price import model_price, read_prices
from recollect.core.rules.tokens import count_text
from recollect.core.turn.prune import LINE_OF_IT
from recollect.core.values.edit import Insert, Shorten
from recollect.core.values.model import Usage
from recollect.core.values.recall import Recalled, RecalledPassage, RecallRequest
from recollect.errors import SettingsError
from recollect.system.config import build, load_settings


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
            passages=tuple(
                RecalledPassage(
                    text=f"{n} {words}", role="user", said_at="2026-01-01 10:00", score=0.5
                )
                for n in range(12)
            )
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


def block(context: Context) -> str:
    return next((edit.text for edit in context.edits if isinstance(edit, Insert)), "")


def fates(context: Context) -> int:
    shown = [one for one in context.report.fates() if one.fate in ("kept", "changed")]
    return len([one for one in shown if one.role == "assistant" or (one.place or 1) % 4 == 0])


ADAPTIVE = {"window_tokens": 150_000, "pruning.mode": "adaptive", "pruning.hard_clear_ratio": 1.0}
AGGRESSIVE = {"window_tokens": 150_000, "pruning.mode": "aggressive"}
CLEARED = {"window_tokens": 100_000, "pruning.mode": "adaptive", "pruning.hard_clear_ratio": 0.31}
TRIMMED = {"window_tokens": 12_000, "pruning.mode": "off"}
BOTTOM = {**TRIMMED, "trim.low_water_ratio": 0.01}
LARGE = {"recall.block_tokens": 50_000, "recall.hard_cap_tokens": 6_000}

many = history(20)
short_results = history(40, result_chars=3_900)
long_talk = history(60, result_chars=400)
browsed = history(20, tool="browser_open")
tells = [{"role": "user", "content": "paint the crane of the harbour green"}]


def first_head(context: Context) -> int:
    return shortened(context)[0].text.index("\n...\n")


def first_tail(context: Context) -> int:
    tail = shortened(context)[0].text.split("\n...\n")[1]
    return tail.index("\n[Tool result shortened")


def hard_edits(context: Context) -> bool:
    return any(edit.hard for edit in shortened(context))


def edits(context: Context) -> int:
    return len(shortened(context))


def has_edits(context: Context) -> bool:
    return bool(shortened(context))


def first_is_shown(context: Context) -> bool:
    return next(one.fate for one in context.report.fates() if one.place == 0) != "left out"


def tokens_after(context: Context) -> int:
    return context.report.tokens_after


def limit(context: Context) -> int:
    return context.report.limit_tokens


def window(context: Context) -> int:
    return context.report.window_tokens


def recall_failed(context: Context) -> bool:
    return "recall" in [line.stage for line in context.report.failures]


def starts_with_block(context: Context) -> bool:
    content = json.loads(context.request)["messages"][0]["content"]
    text = content if isinstance(content, str) else str(content[0]["text"])
    return text.startswith("<recalled-context")


# key, messages, other settings, measure, and per value what it measures
Row = tuple[str, list[dict[str, Any]], dict[str, Any], Callable[[Context], Any], dict[Any, Any]]
ROWS: list[Row] = [
    ("window_tokens", tells, {}, window, {32_000: 32_000, None: 200_000}),
    ("pruning.mode", many, {"window_tokens": 150_000}, has_edits,
     {"adaptive": True, "off": False, "cache-ttl": False, "aggressive": True}),
    ("pruning.keep_last_assistants", history(12), AGGRESSIVE, edits, {0: 12, 2: 11, 8: 8}),
    ("pruning.soft_trim_ratio", many, {**ADAPTIVE, "pruning.hard_clear_ratio": 0.95}, has_edits,
     {0.9: False, 0.2: True}),
    ("pruning.hard_clear_ratio", short_results, CLEARED, hard_edits, {0.31: True, 0.99: False}),
    ("pruning.min_prunable_tool_chars", short_results, CLEARED, hard_edits,
     {50_000: True, 10_000_000: False}),
    ("pruning.soft_trim.max_chars", history(20, result_chars=6_000),
     {**ADAPTIVE, "window_tokens": 80_000}, has_edits, {4_000: True, 7_000: False}),
    ("pruning.soft_trim.head_chars", many, ADAPTIVE, first_head, {321: 321}),
    ("pruning.soft_trim.tail_chars", many, ADAPTIVE, first_tail, {123: 123}),
    ("pruning.hard_clear.enabled", many, AGGRESSIVE, has_edits, {True: True, False: False}),
    ("pruning.tools.allow", browsed, AGGRESSIVE, has_edits,
     {("read", "exec*"): False, ("browser*",): True}),
    ("pruning.tools.deny", browsed, AGGRESSIVE, has_edits, {("*open",): False, (): True}),
    ("trim.protect_messages", long_talk, BOTTOM, lambda done: fates(done) >= 12,
     {1: False, 12: True}),
    ("trim.protect_first_user", long_talk, BOTTOM, first_is_shown, {True: True, False: False}),
    ("trim.low_water_ratio", long_talk, TRIMMED, lambda done: tokens_after(done) < 4_050,
     {0.3: True, 0.9: False}),
    ("turn.trim_first", long_talk,
     {**TRIMMED, "trim.low_water_ratio": 1.0, "recall.enabled": False},
     lambda done: tokens_after(done) <= 12_000 - 3_000 - 1_200, {True: True, False: False}),
    ("turn.deadline_seconds", tells, {}, recall_failed, {0.02: True, 6.0: False}),
    ("recall.deadline_seconds", tells, {}, recall_failed, {0.02: True, 1.5: False}),
    ("recall.enabled", many, {}, lambda done: bool(block(done)), {True: True, False: False}),
    ("recall.placement", history(2), {}, starts_with_block,
     {"after-system": True, "before-newest-user": False}),
    ("recall.hard_cap_tokens", history(1), LARGE, lambda done: count_text(block(done)) <= 500,
     {500: True, 6_000: False}),
    ("recall.block_tokens", tells, {}, lambda done: count_text(block(done)) <= 400,
     {400: True, 3_500: False}),
    ("compaction.reserve_tokens", tells, {"compaction.reserve_tokens_floor": 0}, limit,
     {40_000: 160_000, 16_384: 200_000 - 16_384}),
    ("compaction.reserve_tokens_floor", tells, {}, limit, {20_000: 180_000, 0: 200_000 - 16_384}),
]  # fmt: skip


@pytest.mark.parametrize(("key", "held", "others", "measure", "expected"), ROWS)
def test_the_key_changes_what_it_says(
    key: str,
    held: list[dict[str, Any]],
    others: dict[str, Any],
    measure: Callable[[Context], Any],
    expected: dict[Any, Any],
) -> None:
    recaller = Memory(seconds=0.05 if "deadline" in key else 0.0)
    found = {
        value: measure(prepare(held, {**others, key: value}, recaller=recaller))
        for value in expected
    }
    assert found == expected


def test_text_of_a_cleared_result() -> None:
    named = prepare(many, {**AGGRESSIVE, "pruning.hard_clear.placeholder": "[gone]"})
    assert all(edit.text.startswith("[gone]") for edit in shortened(named))
    assert b'"[gone]' in named.request
    for chars in (0, 40):
        done = prepare(many, {**AGGRESSIVE, "pruning.hard_clear.line_chars": chars})
        texts = [
            edit.text.removeprefix("[Old tool result content cleared]") for edit in shortened(done)
        ]
        assert texts
        assert all((text.startswith(LINE_OF_IT) if chars else not text) for text in texts)
        assert all(len(text) <= len(LINE_OF_IT) + chars for text in texts)


def test_counting_and_calibrating() -> None:
    text = [{"role": "user", "content": "请把迁移分两次做完" * 50}]
    theirs = prepare(text, {"tokens.counter": "openclaw"}).report.tokens_before
    assert prepare(text, {}).report.tokens_before != theirs
    for calibrate in (True, False):
        engine, session = Engine(build({"tokens.calibrate": calibrate})), Session("s")
        asyncio.run(engine.prepare(session, {"messages": history(2)}))
        asyncio.run(engine.observe(session, {"usage": {"input_tokens": 9_999}}))
        done = asyncio.run(engine.prepare(session, {"messages": history(2)}))
        assert (done.report.tokens_after == 9_999) is calibrate


def test_a_cache_expires_after_the_ttl() -> None:
    class Clock:
        seconds = 1_000_000.0

        def now(self) -> float:
            return self.seconds

    for later, ttl, expected in ((100, 300.0, False), (301, 300.0, True), (100, 90.0, True)):
        clock = Clock()
        engine = Engine(build({"window_tokens": 150_000, "pruning.ttl": ttl}), clock=clock)
        session = Session("s")
        asyncio.run(engine.prepare(session, {"messages": many}))
        clock.seconds += later
        done = asyncio.run(engine.prepare(session, {"messages": many}))
        assert has_edits(done) is expected


@pytest.mark.parametrize("sticky", [True, False])
def test_a_sticky_block_stays(sticky: bool) -> None:
    engine, session = Engine(build({"recall.sticky": sticky}), recaller=Memory(600)), Session("s")
    asyncio.run(engine.prepare(session, {"messages": history(1)}))
    grown = [*history(1), {"role": "assistant", "content": "module 0"}, *tells]
    done = asyncio.run(engine.prepare(session, {"messages": grown}))
    assert len([edit for edit in done.edits if isinstance(edit, Insert)]) == 1 + sticky


@pytest.mark.parametrize(
    ("before", "asked", "least", "most"),
    [
        ([], "which crane of the harbour is green?", 1_800, 2_667),
        (history(1), "which crane of the harbour is green?", 500, 800),
        ([], "how do I paint a crane?", 1_800, 2_667),
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


def test_decisions_stand_in_so_many_tokens() -> None:
    laid_down = "We decided to keep the crane at berth 4711."
    talk = [{"role": "user", "content": "we look after a harbour"}]
    for n in range(60):
        said = laid_down if n == 2 else f"round {n}: " + "sweep the quay and coil the ropes " * 20
        talk += [{"role": "assistant", "content": "done"}, {"role": "user", "content": said}]
    for tokens, stands in ((1_600, True), (0, False)):
        settings = {"window_tokens": 6_000, "recall.standing_tokens": tokens}
        shown = prepare(talk, settings).request.decode()
        assert (laid_down in shown) is stands


def test_prices_of_other_models() -> None:
    used = Usage(input_tokens=1_000_000, output_tokens=1_000_000, cache_read_tokens=500_000)
    assert model_price("mine-large") is None
    given = load_settings(arguments={"models.prices": ["mine 2 4", "mine-large 3 15 0.3"]})
    price = model_price("mine-large", read_prices(given.settings.models.prices))
    assert price is not None
    assert price.of(used) == pytest.approx(0.5 * 3 + 0.5 * 0.3 + 15)
    for wrong in ("mine two", "mine", "mine 1 2 3 4 5", "mine nan 1", "mine -1 1", ""):
        with pytest.raises(SettingsError, match=r"models\.prices"):
            read_prices([wrong])
