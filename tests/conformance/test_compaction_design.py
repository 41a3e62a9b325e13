"""What the documents on compaction describe (002, 003 and 004), through the library and the agent.
Values are those of the documents, written down here."""

import asyncio
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.harness.model_server import Asked
from tests.integration.long_talk import SESSION, Talk, notes, opened, reply, scribe
from tests.integration.test_openclaw_preset import shown, spoken
from tests.integration.test_session_commands import TALK as CHAT_TALK
from tests.integration.test_session_commands import Folder, folder, server
from tests.unit.agent.agent_harness import AgentHarness, filling, of
from tests.unit.agent.test_agent_window import FLUSHING, SMALL, WINDOW, note
from tests.unit.agent.test_agent_window import TALK as LONG_TALK

from recollect import open_memory
from recollect.adapters.session.transcript import read_session_file
from recollect.agent.events import Compacted, Flushed
from recollect.core.compaction.chunks import adaptive_ratio
from recollect.core.formats.pi_session import build_context
from recollect.core.values.model import Prompt
from recollect.system.config import load_settings
from recollect.testing.scripted_model import Says, ScriptedModel

__all__ = ["folder", "server"]  # fixtures
LARGE = 200_000


@pytest.mark.parametrize(
    ("model", "tokens", "source"),
    [
        ("claude-sonnet-4-5", 200_000, "model"),
        ("gpt-4.1", 1_047_576, "model"),
        ("a-model-nobody-knows", 200_000, "assumed"),
    ],
)
async def test_the_window_is_the_models_else_200_000(
    tmp_path: Path, model: str, tokens: int, source: str
) -> None:
    async with open_memory(store=tmp_path / "m.db") as memory:
        body = {"model": model, "messages": [spoken("user", "hello")]}
        report = (await memory.prepare("s", body)).report
    assert (report.window_tokens, report.window_source) == (tokens, source)


def due(tmp_path: Path, window: int = LARGE, **settings: Any) -> dict[str, int]:
    """From how many used tokens on what is due, to a token."""

    async def run() -> dict[str, int]:
        async with opened(tmp_path / "m.db", scribe(), window_tokens=window, **settings) as memory:
            await memory.prepare(SESSION, Talk().exchange(2).body("so?"))

            async def state(used: int) -> str:
                seen = await memory.observe(SESSION, reply("yes", used_tokens=used - 10))
                return str(seen.due)

            async def first(*wanted: str) -> int:
                low, high = 1, window
                while low < high:
                    middle = (low + high) // 2
                    if await state(middle) in wanted:
                        high = middle
                    else:
                        low = middle + 1
                return low

            return {
                "flush": await first("flush", "compaction"),
                "compaction": await first("compaction"),
            }

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("settings", "reserve", "soft"),
    [
        ({}, 20_000, 4_000),  # the floor is above reserveTokens, 16,384
        ({"compaction__reserve_tokens_floor": 24_000}, 24_000, 4_000),
        ({"compaction__reserve_tokens_floor": 0}, 16_384, 4_000),
        ({"compaction__reserve_tokens": 30_000}, 30_000, 4_000),
        ({"compaction__flush__soft_threshold_tokens": 8_000}, 20_000, 8_000),
    ],
)
def test_the_thresholds_are_the_formulas(
    tmp_path: Path, settings: dict[str, Any], reserve: int, soft: int
) -> None:
    """flush: window - reserve - softThreshold; compaction: above window - reserve."""
    found = due(tmp_path, **settings)
    assert found["flush"] == pytest.approx(LARGE - reserve - soft, abs=1)
    assert found["compaction"] == pytest.approx(LARGE - reserve, abs=1)


def test_a_share_of_the_window_can_be_the_threshold(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"compaction__flush__at_ratio": 0.7, "compaction__at_ratio": 0.8}
    found = due(tmp_path, **settings)
    assert found["flush"] == pytest.approx(0.7 * LARGE, abs=1)
    assert found["compaction"] == pytest.approx(0.8 * LARGE, abs=1)


async def compacted(
    tmp_path: Path, talk: Talk, say: Callable[[Prompt], Any] = notes, **settings: Any
) -> tuple[Any, list[Prompt], Any]:
    """A compaction of this talk: its result, the prompts, and the next request."""
    model = scribe(say)
    async with opened(tmp_path / "m.db", model, **settings) as memory:
        result = await memory.compact(SESSION, talk.body("go on"))
        assert result.compacted, result.reason
        after = await memory.prepare(SESSION, talk.body("go on"))
        return result, model.prompts, after


async def test_20_000_tokens_of_the_newest_messages_stay(tmp_path: Path) -> None:
    talk = Talk()
    for number in range(60):
        talk.ask(f"Question {number}: " + "abc " * 450).answer(f"Answer {number}: " + "abc " * 450)
    settings: dict[str, Any] = {
        "window_tokens": LARGE,
        "tokens__counter": "openclaw",
        "tokens__calibrate": False,
    }
    _, _, after = await compacted(tmp_path, talk, **settings)
    kept = [one["content"] for one in talk.messages if one["content"] in shown(after)]
    assert kept == [one["content"] for one in talk.messages[-len(kept) :]]
    counts = [math.ceil(len(text) / 3) for text in kept]
    assert 17_000 < sum(counts) <= 20_000


def test_the_sessions_own_model_writes_the_summary(folder: Folder) -> None:
    folder.chat(*CHAT_TALK, "/compact")
    asked: list[Asked] = [one for one in folder.server.asked if one.wire]
    assert {one.body["model"] for one in asked} == {"scripted"}
    assert any("stream" not in one.body for one in asked), "no summary was asked for"


async def test_a_chunk_is_at_most_two_fifths_of_the_window_with_a_margin(tmp_path: Path) -> None:
    """BASE_CHUNK_RATIO 0.4, SAFETY_MARGIN 1.2, and smaller chunks for large messages."""
    sizes = {}
    for name, repeats, exchanges in (("small", 4, 180), ("large", 90, 18)):
        folder = tmp_path / name
        folder.mkdir()
        talk = Talk().exchange(exchanges, repeats=repeats)
        _, prompts, _ = await compacted(folder, talk, window_tokens=8_000)
        said = [prompt.text.count("berth") for prompt in prompts]
        assert len([count for count in said if count]) > 1, "it was read in one piece"
        sizes[name] = max(
            len(prompt.text.partition("<conversation>")[2].partition("</conversation>")[0]) / 4
            for prompt in prompts
        )
        assert sizes[name] * 1.2 <= 0.4 * 8_000 * 1.25
    assert sizes["large"] < sizes["small"]


@pytest.mark.parametrize(
    ("message_tokens", "ratio"),
    [
        (800, 0.4),  # with the margin of 1.2 just below a tenth of the window
        (1_000, 0.4 - 2 * 0.12),
        (1_020, 0.4 - 2 * 0.1224),
        (1_250, 0.15),
        (8_000, 0.15),
    ],
)
def test_large_messages_make_chunks_smaller_by_the_formula(
    message_tokens: int, ratio: float
) -> None:
    """Twice the share of an average message, times 1.2, is subtracted; never below 0.15."""
    assert adaptive_ratio([message_tokens] * 9, 10_000) == pytest.approx(ratio)


async def test_an_oversized_message_is_noted(tmp_path: Path) -> None:
    talk = Talk().ask("begin").answer("The log follows: " + "crane 4711 moved. " * 4_000)
    _, prompts, after = await compacted(tmp_path, talk.exchange(9))
    assert "[Large assistant message (~" in "\n".join(shown(after))
    assert all(len(prompt.text) < 8_000 * 4 for prompt in prompts)


def worked() -> Talk:
    talk = Talk().ask("Fix the crane module.")
    talk.call("read", "def lift(): ...", path="src/crane.py")
    talk.call("edit", "ok", path="src/hoist.py", oldText="a", newText="b")
    failing = "Error: command not found: cranectl"
    talk.call("bash", failing, command="cranectl --check")
    talk.messages[-1]["content"][0]["is_error"] = True
    return talk.answer("I will go on without it.").exchange(9)


async def test_failures_and_files_of_tools_outlast_the_summary(tmp_path: Path) -> None:
    result, _, after = await compacted(tmp_path, worked())
    assert result.details["readFiles"] == ["src/crane.py"]
    assert result.details["modifiedFiles"] == ["src/hoist.py"]
    (failure,) = result.details["toolFailures"]
    assert failure["toolName"] == "bash"
    assert "command not found" in failure["summary"]
    text = "\n".join(shown(after))
    assert all(part in text for part in ("cranectl", "src/crane.py", "src/hoist.py"))


async def test_thinking_does_not_outlast_the_compaction(tmp_path: Path) -> None:
    talk = Talk().ask("begin")
    thought = {"type": "thinking", "thinking": "zanzibar quetzal", "signature": "c2ln"}
    talk.messages.append(
        {"role": "assistant", "content": [thought, {"type": "text", "text": "Fine."}]}
    )
    _, _, after = await compacted(tmp_path, talk.exchange(9))
    assert "zanzibar" not in json.dumps(after.request)


async def test_the_history_beyond_its_share_is_summarized_first(tmp_path: Path) -> None:
    """pruneHistoryForContextShare: the oldest chunks, apart; their summary enters the main one."""
    found = {}
    for share in (0.1, 0.9):
        folder = tmp_path / str(share)
        folder.mkdir()
        settings: dict[str, Any] = {
            "compaction__max_history_share": share,
            "compaction__keep_recent_tokens": 100,
            "compaction__audit": False,
            "window_tokens": 20_000,
        }
        _, prompts, _ = await compacted(folder, Talk().exchange(14), **settings)
        found[share] = [prompt.text for prompt in prompts]
    updates = [text for text in found[0.1] if "<previous-summary>" in text]
    assert "berth 1?" in found[0.1][0]
    assert "berth 14?" not in found[0.1][0]
    assert updates
    assert all("berth 1?" not in text for text in updates)
    assert not any("<previous-summary>" in text for text in found[0.9])


async def test_a_result_has_openclaws_form(tmp_path: Path) -> None:
    result, _, _ = await compacted(tmp_path, worked())
    form = json.loads(json.dumps(result.as_openclaw()))
    assert (form["ok"], form["compacted"]) == (True, True)
    assert isinstance(form["reason"], str)
    names = ["summary", "firstKeptEntryId", "tokensBefore", "tokensAfter", "details"]
    assert list(form["result"]) == names
    assert form["result"]["summary"] == result.summary
    assert form["result"]["firstKeptEntryId"]
    assert form["result"]["tokensAfter"] < form["result"]["tokensBefore"]
    assert form["result"]["details"]["modifiedFiles"] == ["src/hoist.py"]
    async with opened(tmp_path / "n.db", scribe()) as memory:
        nothing = (await memory.compact(SESSION, Talk().body("hello"))).as_openclaw()
    assert (nothing["compacted"], "result" in nothing) == (False, False)


def entry_of(harness: AgentHarness, kind: str) -> dict[str, Any]:
    return next(one for one in harness.entries() if one["type"] == kind)


def test_a_compaction_is_an_entry_of_the_transcript(tmp_path: Path) -> None:
    model = ScriptedModel([*("fine" for _ in LONG_TALK), "after"])
    harness = AgentHarness(tmp_path, model, settings=SMALL)
    events = harness.say(*LONG_TALK, "/compact", "go on")
    (compaction,) = of(events, Compacted)
    entry = entry_of(harness, "compaction")
    names = ["summary", "firstKeptEntryId", "tokensBefore", "tokensAfter", "details"]
    assert [key for key in entry if key in names] == names
    assert {"id", "parentId", "timestamp"} <= entry.keys()
    assert entry["tokensBefore"] == compaction.result.tokens_before
    assert entry["tokensAfter"] == compaction.result.tokens_after
    assert {"readFiles", "modifiedFiles"} <= entry["details"].keys()
    entries = read_session_file(tmp_path / "session-1.jsonl").entries
    messages = build_context(entries).messages
    assert entry["summary"] in messages[0]["content"][0]["text"]
    ids = [one["id"] for one in harness.entries()]
    kept, made = ids.index(entry["firstKeptEntryId"]), ids.index(entry["id"])
    stored = [one.get("message") for one in harness.entries()]
    rest = [one for one in [*stored[kept:made], *stored[made + 1 :]] if one is not None]
    assert list(messages[1:]) == rest, "the summary, what was kept, and what came after"
    assert any(one is not None for one in stored[:kept]), "the case shows nothing"


@pytest.mark.parametrize("preset", ["openclaw"])
def test_the_preset_summarizes_in_the_default_mode(preset: str) -> None:
    loaded = load_settings(arguments={"preset": preset}, environment={}, folder=None)
    assert loaded.settings.compaction.mode == "default"


async def test_the_default_mode_asks_once_and_safeguard_in_pieces(tmp_path: Path) -> None:
    counts = {}
    for mode in ("default", "safeguard"):
        folder = tmp_path / mode
        folder.mkdir()
        settings: dict[str, Any] = {
            "compaction__mode": mode,
            "compaction__keep_recent_tokens": 100,
            "compaction__audit": False,
            "window_tokens": 20_000,
        }
        _, prompts, _ = await compacted(folder, Talk().exchange(14), **settings)
        counts[mode] = len(prompts)
    assert counts["default"] == 1 < counts["safeguard"]


def test_own_prompts_of_the_flush_turn_are_sent_with_the_date(tmp_path: Path) -> None:
    steps: list[Any] = [
        *("fine" for _ in LONG_TALK),
        filling("full", WINDOW),
        Says(calls=[note()]),
        Says(text="NO_REPLY"),
    ]
    settings: dict[str, Any] = {
        **FLUSHING,
        "compaction.flush.prompt": "Write notes to memory/YYYY-MM-DD.md, or say NO_REPLY.",
        "compaction.flush.system_prompt": "ZANZIBAR on YYYY-MM-DD.",
    }
    model = ScriptedModel(steps)
    harness = AgentHarness(tmp_path, model, settings=settings)
    events = harness.say(*LONG_TALK, "fill it")
    assert of(events, Flushed)[0].result.outcome == "written"
    flush = str(model.requests[len(LONG_TALK) + 1])
    assert "Write notes to memory/2026-03-11.md, or say NO_REPLY." in flush
    assert "ZANZIBAR on 2026-03-11." in flush
    assert "ZANZIBAR" not in str(harness.messages())


def test_a_failed_compaction_is_told_and_not_tried_again(tmp_path: Path) -> None:
    asked: list[str] = []

    def fail(prompt: Prompt) -> str:
        asked.append(prompt.text)
        return ""

    model = ScriptedModel([*("fine" for _ in LONG_TALK), "after"])
    summary = ScriptedModel(fail, name="summary")
    harness = AgentHarness(tmp_path, model, settings=SMALL, summary=summary)
    events = harness.say(*LONG_TALK, "/compact")
    told = [event.text for event in events if hasattr(event, "text")][-1]
    assert told.startswith("Compaction failed: ")
    assert told.endswith("The conversation is unchanged.")
    calls = len(asked)
    harness.say("go on")
    assert len(asked) == calls


def test_ten_minutes_of_the_clock_are_those_of_a_session(tmp_path: Path) -> None:
    """`/status` shows usage, compactions and the duration of the session."""
    model = ScriptedModel(["fine", "fine"])
    harness = AgentHarness(tmp_path, model, settings=SMALL)
    harness.say("hello")
    harness.clock.at += 600
    told = [event.text for event in harness.say("/status") if hasattr(event, "text")][-1]
    assert "10 min 0 s" in told
    assert "0 compactions" in told
    assert "of the window" in told
