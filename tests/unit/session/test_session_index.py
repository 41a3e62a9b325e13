"""sessions.json: the transcript of each key; fields of other programs are kept."""

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.adapters.session.files import (
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


def test_a_session_is_begun_once_begun_anew_under_its_key_and_removed(index: SessionIndex) -> None:
    assert index.sessions().get("main") is None
    record = index.open("main")
    assert index.open("main") == index.sessions().get("main")
    assert index.open("main").session_id == record.session_id
    assert stored(index) == {"sessionId": record.session_id, "updatedAt": 1771000000125}
    assert stat.S_IMODE(index.path.stat().st_mode) == 0o600
    old = index.open("main")
    new = index.start_transcript("main")
    assert new.session_id != old.session_id
    assert index.sessions().get("main") == SessionRecord.read(stored(index))
    index.open("main")
    assert index.remove("main")
    assert not index.remove("main")
    assert index.sessions() == {}


def test_fields_of_others_are_kept(index: SessionIndex) -> None:
    index.path.parent.mkdir()
    theirs = {
        "main": {"sessionId": "s", "skills": {"a": [1]}, "compactionCount": "many", "x": None},
        "other": {"sessionId": "t", "label": "é\ud83d"},
    }
    index.path.write_text(json.dumps(theirs))
    index.update("main", lambda record: replace(record, session_id="u"))
    found = json.loads(index.path.read_text())
    assert found["other"] == theirs["other"]
    assert found["main"]["skills"] == {"a": [1]}
    assert found["main"]["x"] is None
    assert (found["main"]["sessionId"], found["main"]["compactionCount"]) == ("u", "many")


def test_a_change_of_nothing_writes_nothing(index: SessionIndex) -> None:
    index.open("main")
    before = index.path.stat().st_mtime_ns
    index.update("main", lambda record: replace(record))
    assert index.path.stat().st_mtime_ns == before


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
