"""What sessions.json says of a session, and when a session is reset."""

import asyncio
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_harness import QUIET, Clock, collected, filling, notes, of
from tests.unit.agent.test_agent_window import FLUSHING, TALK, WINDOW, note

from recollect.adapters.session.files import sessions_file
from recollect.agent.conversation import needs_reset
from recollect.agent.events import Compacted, Told
from recollect.agent.opening import open_agent
from recollect.core.values.model import Prompt
from recollect.system.config.settings import Reset
from recollect.testing.scripted_model import Says, ScriptedModel

NOON = 1_773_230_400.0  # 2026-03-11 12:00 UTC, the time zone of these tests
HOUR = 3600.0


class Chat:
    """Messages to agents that are opened one after the other, on one clock."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
        self.workspace = tmp_path / "work"
        self.workspace.mkdir()
        self.clock = Clock(NOON)

    def say(self, model: ScriptedModel, *texts: str, **given: Any) -> list[Any]:
        async def talk() -> list[Any]:
            events = []
            async with open_agent(self.workspace, model=model, clock=self.clock, **given) as agent:
                for text in texts:
                    events += await collected(agent, text)
            return events

        return asyncio.run(talk())

    @property
    def record(self) -> dict[str, Any]:
        path = sessions_file(str(self.workspace.resolve()))
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))["main"]
        return found


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chat:
    return Chat(tmp_path, monkeypatch)


def scripted(*steps: Any) -> ScriptedModel:
    left = iter(steps)
    return ScriptedModel(lambda asked: notes(asked) if isinstance(asked, Prompt) else next(left))


SETTINGS: dict[str, Any] = {"settings": {**QUIET, **FLUSHING}}
FLUSH = (Says(calls=[note()]), Says(text="NO_REPLY"))


def test_counts_are_what_the_provider_reported(chat: Chat) -> None:
    chat.say(scripted(filling("yes", 1234)), "hello", **SETTINGS)
    record = chat.record
    assert record.pop("sessionId")
    assert record == {
        "updatedAt": NOON * 1000,
        "compactionCount": 0,
        "inputTokens": 1234,
        "outputTokens": 5,
        "totalTokens": 1239,
        "contextTokens": 1239,
    }


def test_after_a_compaction_only_the_estimate_is_known(chat: Chat) -> None:
    model = scripted(
        *("fine" for _ in TALK), filling("full", WINDOW), *FLUSH, filling("again", 2000)
    )
    events = chat.say(model, *TALK, "fill it", **SETTINGS)
    (compacted,) = of(events, Compacted)
    record = chat.record
    assert record["compactionCount"] == 1
    assert record["totalTokens"] == record["contextTokens"] == compacted.result.tokens_after
    assert "inputTokens" not in record
    assert "outputTokens" not in record
    assert record["memoryFlushAt"] == NOON * 1000
    assert record["memoryFlushCompactionCount"] == 0
    chat.clock.at += 5
    chat.say(model, "go on", **SETTINGS)
    assert chat.record["totalTokens"] == 2005
    assert chat.record["updatedAt"] == (NOON + 5) * 1000


def test_an_undone_compaction_is_not_counted_and_leaves_no_total(chat: Chat) -> None:
    model = scripted(*("fine" for _ in TALK), filling("full", WINDOW), *FLUSH)
    chat.say(model, *TALK, "fill it", "/undo", **SETTINGS)
    assert chat.record["compactionCount"] == 0
    assert "totalTokens" not in chat.record


def test_a_new_session_has_no_counts_of_the_one_before(chat: Chat) -> None:
    chat.say(scripted(filling("yes", 1234)), "hello", **SETTINGS)
    before = chat.record["sessionId"]
    chat.say(scripted(), "/new", **SETTINGS)
    record = chat.record
    assert record["sessionId"] != before
    assert set(record) == {"sessionId", "updatedAt", "compactionCount"}


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("reset", "last", "now", "due"),
    [
        ({}, "2026-01-01 10:00", "2026-03-11 12:00", False),
        ({"mode": "daily"}, "2026-03-11 03:59", "2026-03-11 04:00", True),
        ({"mode": "daily"}, "2026-03-11 03:59", "2026-03-11 03:59:59", False),
        ({"mode": "daily"}, "2026-03-11 04:00", "2026-03-12 03:59", False),
        ({"mode": "daily"}, "2026-03-10 23:00", "2026-03-11 01:00", False),
        ({"mode": "daily"}, "2026-03-09 12:00", "2026-03-11 01:00", True),
        ({"mode": "daily", "at_hour": 0}, "2026-03-10 23:59", "2026-03-11 00:00", True),
        ({"mode": "daily", "at_hour": 23}, "2026-03-11 12:00", "2026-03-11 23:00", True),
        ({"mode": "daily", "idle_minutes": 480}, "2026-03-11 05:00", "2026-03-11 13:01", True),
        ({"mode": "daily", "idle_minutes": 480}, "2026-03-11 05:00", "2026-03-11 13:00", False),
        ({"mode": "idle"}, "2026-03-11 10:59", "2026-03-11 12:00", True),
        ({"mode": "idle"}, "2026-03-11 11:00", "2026-03-11 12:00", False),
        ({"mode": "idle", "idle_minutes": 2000}, "2026-03-10 23:00", "2026-03-11 12:00", False),
        ({"idle_minutes": 5}, "2026-03-11 05:00", "2026-03-11 12:00", False),
    ],
)
def test_when_a_session_is_reset(reset: dict[str, Any], last: str, now: str, due: bool) -> None:
    assert needs_reset(at(last), at(now), Reset(**reset)) is due


@pytest.mark.parametrize("reopened", [True, False])
def test_a_message_on_the_next_day_begins_a_session_and_the_old_one_stays(
    chat: Chat, reopened: bool
) -> None:
    settings: dict[str, Any] = {"settings": {**QUIET, "session.reset.mode": "daily"}}
    waits = [("first", 0.0), ("same day", 2 * HOUR), ("next day", 20 * HOUR)]

    async def talk() -> list[Any]:
        events, model = [], scripted("one", "two", "three")
        async with open_agent(chat.workspace, model=model, clock=chat.clock, **settings) as agent:
            for text, seconds in waits:
                chat.clock.at += seconds
                events += await collected(agent, text)
        return events

    events = [] if reopened else asyncio.run(talk())
    for text, seconds in waits if reopened else []:
        chat.clock.at += seconds
        events += chat.say(scripted("fine"), text, **settings)
    (told,) = [event.text for event in of(events, Told)]
    assert told.startswith("session.reset: A new session has begun")
    transcripts = sorted(sessions_file(str(chat.workspace.resolve())).parent.glob("*.jsonl"))
    assert len(transcripts) == 2
    texts = {path.stem: path.read_text("utf-8") for path in transcripts}
    assert "next day" in texts.pop(chat.record["sessionId"])
    ((old, kept),) = texts.items()
    assert old in told
    assert "same day" in kept
    assert "next day" not in kept


def test_a_session_that_the_user_asked_for_is_not_reset_by_its_age(chat: Chat) -> None:
    settings: dict[str, Any] = {"settings": {**QUIET, "session.reset.mode": "daily"}}
    chat.say(scripted("one"), "first", **settings)
    old = chat.record["sessionId"]
    chat.clock.at += 48 * HOUR
    events = chat.say(scripted("two"), "again", session_id=old, **settings)
    assert of(events, Told) == []
    assert chat.record["sessionId"] == old


def test_openclaws_preset_resets_daily_at_four_and_ours_never(chat: Chat) -> None:
    for preset, sessions in (("recollect", 1), ("openclaw", 2)):
        settings = {"settings": {"preset": preset}, "key": preset}
        chat.say(scripted("one"), "first", **settings)
        chat.clock.at += 24 * HOUR
        events = chat.say(scripted("two"), "again", **settings)
        assert len(of(events, Told)) == sessions - 1
