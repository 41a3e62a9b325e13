"""A writer that is killed at any point: the file opens, and nothing acknowledged is lost."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.session.doomed_writers import Writers

from recollect.adapters.session.files import SessionIndex
from recollect.adapters.session.transcript import SessionTranscript, open_transcript
from recollect.errors import TranscriptLocked
from recollect.system.config.settings import Redaction

KILLS = 20


def opened(path: Path) -> SessionTranscript:
    return open_transcript(path, session_id="s", redaction=Redaction())


@pytest.fixture(scope="module")
def writers() -> Iterator[Writers]:
    writers = Writers()
    yield writers
    writers.close()


def test_no_kill_loses_what_was_acknowledged(writers: Writers, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    rng = random.Random(11)
    acknowledged: list[str] = []
    for kill in range(KILLS):
        child = writers.start("write", str(path), kill)
        heard = [writers.next() for _ in range(kill % 6)]  # the first says that it is open
        time.sleep(rng.uniform(0, 0.005))
        heard += writers.kill(child)
        acknowledged += [told for word, told in heard if word == "wrote"]
        with opened(path) as transcript:
            found = [entry.id for entry in transcript.entries]
            assert [one for one in found if one in set(acknowledged)] == acknowledged
            assert len(found) - len(acknowledged) <= kill + 1, "at most one a kill was not told"
            mine = transcript.append_message({"role": "user", "content": "alive"})
            acknowledged.append(str(mine.id))
            assert len(transcript.context().messages) == len(transcript.entries)
    assert len(acknowledged) > 2 * KILLS, "the writers came to write"


def test_a_writer_elsewhere_is_refused_until_it_dies(writers: Writers, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    child = writers.start("write", str(path), 0)
    assert writers.next() == ("open", "s")
    with pytest.raises(TranscriptLocked):
        opened(path)
    writers.kill(child)
    opened(path).close()


def test_processes_lose_no_update_of_the_index(writers: Writers, tmp_path: Path) -> None:
    path = tmp_path / "sessions.json"
    writers.start("count", str(path), ["a", "a", "b"], 15)
    assert writers.until_ended() == []
    found = SessionIndex(path).sessions()
    counts = {key: record.others["n"] for key, record in found.items()}
    assert counts == {"a": 30, "b": 15}
    left = sorted(one.name for one in tmp_path.iterdir())
    assert left == ["sessions.json", "sessions.json.lock"]
