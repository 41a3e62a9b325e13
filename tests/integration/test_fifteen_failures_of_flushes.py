"""The lessons of the fifteen failures about retries, counts and flushes (5 to 10).

The agent's own loop, its transcript and the workspace's files take part; models are scripted, one
of them behind a real HTTP server."""

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.harness.model_server import ModelServer
from tests.integration.long_talk import SESSION, Talk, grown, opened, reply, scribe
from tests.unit.agent.agent_harness import AgentHarness, ended, filling, of
from tests.unit.providers.wire_models import WIRES, model_at

from recollect.agent.events import Compacted, Failed, Flushed
from recollect.testing.scripted_model import Fails, Says, ScriptedCall, ScriptedModel, WireName

WINDOW = 8_000
SOFT, LIMIT = 5_600, 6_000
"""Where a flush and where a compaction is due in this window."""
SMALL: dict[str, Any] = {"window_tokens": WINDOW, "compaction.keep_recent_tokens": 300}
LONG = "tell me more about the harbour at night " * 40


def note(text: str, path: str = "memory/2024-03-11.md") -> ScriptedCall:
    return ScriptedCall(id="w1", name="write", input={"path": path, "content": text})


@pytest.mark.parametrize(("wire", "status"), list(zip(WIRES, (400, 401, 404), strict=True)))
def test_05_a_request_that_can_never_succeed_is_made_once(
    wire: WireName, status: int, tmp_path: Path
) -> None:
    """openclaw#30044: the same 400 was retried with every key, and all of them were put to rest."""
    with ModelServer(lambda _: Fails(status=status)) as server:
        harness = AgentHarness(tmp_path, model_at(wire, server))
        events = harness.say("hello")
        assert ended(events) == "failed"
        assert [one.kind for one in of(events, Failed)] == ["refused"]
        assert len(server.asked) == 1, "asking again could not help"
        assert not of(events, Compacted), "nor could a compaction"


def test_05_a_summary_that_can_never_succeed_is_asked_for_once(tmp_path: Path) -> None:
    async def run(server: ModelServer) -> None:
        talk = Talk()
        model = model_at("openai-chat", server)
        async with opened(tmp_path / "m.db", model) as memory:
            await grown(memory, talk, 8)
            context = await memory.prepare(SESSION, talk.exchange(5).body("go on"))
            assert context.compaction is not None
            assert context.compaction.convergence == "failed"
        await model.close()

    with ModelServer(lambda _: Fails(status=400)) as server:
        asyncio.run(run(server))
        assert len(server.asked) == 1


async def test_06_counts_from_before_a_compaction_trigger_nothing(tmp_path: Path) -> None:
    """openclaw#15101: the old total was read again, so it flushed and compacted in turn."""
    talk = Talk()
    async with opened(tmp_path / "m.db", scribe()) as memory:
        used = (await grown(memory, talk, 11)).report.tokens_after
        assert SOFT < used < LIMIT
        seen = await memory.observe(SESSION, reply("yes", used_tokens=used, written_tokens=900))
        assert (seen.due, seen.flush_first) == ("compaction", True)
        done = await memory.compact(SESSION)
        assert done.compacted, done.reason
        seen = await memory.observe(SESSION, {"role": "assistant", "content": "and more"})
        assert seen.due == "nothing", seen.due_reason
        await memory.prepare(SESSION, talk.body("go on"))
        seen = await memory.observe(SESSION, reply("yes"))
        assert seen.due == "nothing", seen.due_reason


def test_06_a_fresh_count_after_a_compaction_triggers_nothing(tmp_path: Path) -> None:
    steps: list[Any] = [
        "fine",
        "fine",
        filling("full now", LIMIT + 100),
        filling("small again", 900),
    ]
    model = ScriptedModel(steps)
    harness = AgentHarness(tmp_path, model, settings={**SMALL, "compaction.flush.enabled": False})
    events = harness.say(LONG, LONG, LONG)
    assert of(events, Compacted)[0].result.compacted
    events = harness.say("and now?")
    assert not of(events, Compacted), "one turn, one look at a fresh count"
    model.check()


async def test_07_a_flush_comes_though_nothing_was_ever_compacted(tmp_path: Path) -> None:
    """openclaw#47143: both counts were 0, which counted as "flushed in this cycle"."""
    talk = Talk()
    async with opened(tmp_path / "m.db", scribe()) as memory:
        for _ in range(9):
            await memory.prepare(SESSION, talk.exchange().body("go on"))
        used = SOFT + 100
        seen = await memory.observe(SESSION, reply("yes", used_tokens=used))
        assert seen.due == "flush", seen.due_reason
        await memory.flushed(SESSION)
        await memory.prepare(SESSION, talk.body("go on"))
        seen = await memory.observe(SESSION, reply("yes", used_tokens=used))
        assert seen.due == "nothing", "once in a cycle"
        assert (await memory.compact(SESSION)).compacted
        await memory.prepare(SESSION, talk.body("go on"))
        seen = await memory.observe(SESSION, reply("yes", used_tokens=used))
        assert seen.due == "flush", "and once in the next"


def test_07_the_agent_flushes_in_its_first_cycle_and_once_in_each(tmp_path: Path) -> None:
    steps: list[Any] = [
        filling("nearly full", SOFT + 50),
        Says(calls=(note("Decided: use the north quay."),)),
        "NO_REPLY",
        filling("still nearly full", SOFT + 60),
        filling("still nearly full", SOFT + 70),
    ]
    model = ScriptedModel(steps)
    harness = AgentHarness(tmp_path, model, settings=SMALL)
    events = harness.say(LONG, LONG, LONG)
    model.check()
    assert [one.result.outcome for one in of(events, Flushed)] == ["written"]
    assert "north quay" in (harness.root / "memory/2026-03-11.md").read_text()


@pytest.mark.parametrize(
    ("reserve", "floor"), [(16_384, 20_000), (0, 500), (500, 0), (1_900, 20), (100, 1_500)]
)
async def test_08_the_flush_comes_before_the_compaction_whatever_the_reserve(
    reserve: int, floor: int, tmp_path: Path
) -> None:
    """openclaw#25880: one took the floor, the other the larger reserve, and compaction won."""
    talk = Talk().exchange(2)
    settings = {"compaction__reserve_tokens": reserve, "compaction__reserve_tokens_floor": floor}
    async with opened(tmp_path / "m.db", scribe(), **settings) as memory:
        await memory.prepare(SESSION, talk.body("go on"))
        dues: list[str] = []
        for used in range(5_000, WINDOW, 50):
            seen = await memory.observe(SESSION, reply("yes", used_tokens=used - 10))
            if not dues or seen.due != dues[-1]:
                dues.append(seen.due)
    assert dues[-2:] == ["flush", "compaction"], dues


def test_09_a_flush_only_adds_to_the_file_of_the_users_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """openclaw#6877, #17603: the day's file was written anew, and in a file of another year."""
    zone = ZoneInfo("Pacific/Auckland")
    monkeypatch.setenv("TZ", zone.key)
    time.tzset()
    model = ScriptedModel(
        [
            filling("nearly full", SOFT + 50),
            Says(calls=(note("Decided: the north quay.", "memory/2024-12-31.md"),)),
            Says(calls=(note("# Fresh start", "memory/2027-01-01.md"),)),
            "NO_REPLY",
        ]
    )
    harness = AgentHarness(tmp_path, model, settings=SMALL)
    harness.clock.at = datetime(2027, 1, 1, 0, 30, tzinfo=zone).timestamp()  # still 2026 in UTC
    folder = harness.root / "memory"
    folder.mkdir()
    (folder / "2027-01-01.md").write_text("- 00:10 the ferry is late\n")
    try:
        events = harness.say(LONG)
    finally:
        monkeypatch.undo()
        time.tzset()
    model.check()
    assert [one.result.outcome for one in of(events, Flushed)] == ["written"]
    assert sorted(path.name for path in folder.iterdir()) == ["2027-01-01.md"]
    text = (folder / "2027-01-01.md").read_text()
    assert text.startswith("- 00:10 the ferry is late\n")
    assert "Decided: the north quay." in text
    assert "# Fresh start" in text
    asked = str(model.requests[1])
    assert "memory/2027-01-01.md" in asked
    assert "Current time: 2027-01-01 00:30" in asked


def test_10_flushes_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    """openclaw#117741: two of them read the file, and the second wrote over the first."""
    agents, notes_each = 4, 3
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    together = threading.Barrier(agents)

    def steps(who: int) -> Iterator[Any]:
        yield filling("nearly full", SOFT + 50)
        for n in range(notes_each - 1):
            yield Says(calls=(note(f"agent {who} note {n}: " + "cargo " * 4_000),))
        together.wait(10)
        yield Says(calls=(note(f"agent {who} note {notes_each - 1}: " + "cargo " * 4_000),))

    def work(who: int) -> None:
        folder = tmp_path / f"agent-{who}"
        folder.mkdir()
        (folder / "workspace").symlink_to(workspace)
        given = steps(who)
        AgentHarness(folder, ScriptedModel(lambda _: next(given)), settings=SMALL).say(LONG)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(agents)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    text = (workspace / "memory/2026-03-11.md").read_text()
    wanted = [f"agent {who} note {n}: " for who in range(agents) for n in range(notes_each)]
    assert [one for one in wanted if text.count(one) != 1] == []
    assert text.count("cargo") == len(wanted) * 4_000
