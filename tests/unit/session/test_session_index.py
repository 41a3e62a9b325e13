"""sessions.json: OpenClaw's fields, nobody's field lost, no stale count taken for a fresh one."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.adapters.session import (
    SessionIndex,
    SessionRecord,
    new_session_id,
    sessions_file,
    transcript_file,
)
from recollect.errors import TranscriptError


class At:
    """A clock that stands."""

    def now(self) -> float:
        return 1771000000.125


@pytest.fixture
def index(tmp_path: Path) -> SessionIndex:
    return SessionIndex(tmp_path / "sessions" / "sessions.json", clock=At())


def stored(index: SessionIndex, key: str = "main") -> dict[str, object]:
    found: dict[str, object] = json.loads(index.path.read_text())[key]
    return found


def test_a_session_is_begun_once(index: SessionIndex) -> None:
    assert index.get("main") is None
    record = index.open("main")
    assert index.open("main") == index.get("main")
    assert index.open("main").session_id == record.session_id
    assert stored(index) == {
        "sessionId": record.session_id,
        "updatedAt": 1771000000125,
        "compactionCount": 0,
        "totalTokensFresh": False,
    }
    assert stat.S_IMODE(index.path.stat().st_mode) == 0o600


def test_a_reply_and_a_compaction_leave_openclaws_fields(index: SessionIndex) -> None:
    index.update("main", lambda record: record.after_reply(input_tokens=900, output_tokens=100))
    assert stored(index) | {"inputTokens": 900, "outputTokens": 100} == stored(index)
    assert stored(index)["totalTokens"] == stored(index)["contextTokens"] == 1000
    index.update("main", lambda record: record.after_compaction(tokens_after=300))
    after = stored(index)
    assert after["compactionCount"] == 1
    assert after["totalTokens"] == after["contextTokens"] == 300
    assert "inputTokens" not in after
    assert "outputTokens" not in after


@pytest.mark.parametrize("tokens_after", [300, None, 0])
def test_lesson_6_counts_from_before_a_compaction_are_never_fresh(
    index: SessionIndex, tokens_after: int | None
) -> None:
    index.update("main", lambda record: record.after_reply(input_tokens=900, output_tokens=100))
    record = index.get("main")
    assert record is not None
    assert record.fresh_tokens == 1000
    index.update("main", lambda one: one.after_compaction(tokens_after=tokens_after))
    record = index.get("main")
    assert record is not None
    assert record.fresh_tokens is None
    assert record.total_tokens == (tokens_after or None)
    reply = record.after_reply(input_tokens=310, output_tokens=5)
    assert reply.fresh_tokens == 315


def test_an_undo_makes_counts_stale_without_counting_as_a_compaction() -> None:
    record = SessionRecord(session_id="s").after_reply(input_tokens=1, output_tokens=1)
    undone = record.with_stale_tokens(50)
    assert (undone.fresh_tokens, undone.total_tokens, undone.compaction_count) == (None, 50, 0)


def test_lesson_7_never_flushed_is_not_flushed_at_zero(index: SessionIndex) -> None:
    record = index.open("main")
    assert record.memory_flush_at is None
    assert record.memory_flush_compaction_count is None
    assert not record.flushed_in_this_cycle
    flushed = index.update("main", lambda one: one.after_flush(5.0))
    assert flushed.flushed_in_this_cycle
    assert stored(index)["memoryFlushCompactionCount"] == 0
    assert stored(index)["memoryFlushAt"] == 5000
    again = index.get("main")
    assert again is not None
    assert again.flushed_in_this_cycle, "a flush before the first compaction is one"
    assert not again.after_compaction().flushed_in_this_cycle


def test_a_zero_that_nobody_flushed_is_never() -> None:
    record = SessionRecord.read(
        {"sessionId": "s", "memoryFlushCompactionCount": 0, "memoryFlushAt": 0}
    )
    assert not record.flushed_in_this_cycle
    assert record.memory_flush_at is None


def test_fields_of_others_are_kept(index: SessionIndex) -> None:
    index.path.parent.mkdir()
    theirs = {
        "main": {"sessionId": "s", "skills": {"a": [1]}, "compactionCount": "many", "x": None},
        "other": {"sessionId": "t", "label": "é\ud83d"},
    }
    index.path.write_text(json.dumps(theirs))
    index.update("main", lambda record: record.after_compaction())
    found = json.loads(index.path.read_text())
    assert found["other"] == theirs["other"]
    assert found["main"]["skills"] == {"a": [1]}
    assert found["main"]["x"] is None
    assert found["main"]["compactionCount"] == 1


def test_a_change_of_nothing_writes_nothing(index: SessionIndex) -> None:
    index.open("main")
    before = index.path.stat().st_mtime_ns
    index.update("main", lambda record: replace(record))
    assert index.path.stat().st_mtime_ns == before


def test_begin_anew_keeps_the_key_and_forgets_the_counts(index: SessionIndex) -> None:
    index.update("main", lambda record: record.after_compaction(tokens_after=5))
    old = index.open("main")
    new = index.begin_anew("main")
    assert new.session_id != old.session_id
    assert (new.compaction_count, new.total_tokens, new.memory_flush_at) == (0, None, None)
    assert "totalTokens" not in stored(index)


def test_remove(index: SessionIndex) -> None:
    index.open("main")
    assert index.remove("main")
    assert not index.remove("main")
    assert index.sessions() == {}


@pytest.mark.parametrize("content", ['{"main":', "[]", '{"main": 3}'])
def test_a_damaged_index_is_left_as_it_is(index: SessionIndex, content: str) -> None:
    index.path.parent.mkdir()
    index.path.write_text(content)
    with pytest.raises(TranscriptError, match="damaged"):
        index.open("main")
    assert index.path.read_text() == content


def test_places_never_meet_and_never_lead_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", "/data")
    own = new_session_id()
    assert transcript_file("me", own).name == f"{own}.jsonl"
    names = [own, own.upper(), "main", "Main", "../../etc/passwd", "", "a/b", "a-b", "x" * 900]
    files = [transcript_file("me", name) for name in names]
    assert len({str(file).lower() for file in files}) == len(names)
    for file in files:
        assert file.parent == sessions_file("me").parent
        assert len(file.name) < 120
    assert sessions_file("me").parent.parent.parent == Path("/data/agents")
    assert sessions_file("../x").parent.parent.parent == Path("/data/agents")
    assert sessions_file("me") != sessions_file("Me")
