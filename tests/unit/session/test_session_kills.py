"""A writer that is killed at any point: the file opens, and nothing acknowledged is lost."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.session.doomed_writers import Writers

from recollect.adapters.session.files import SessionIndex
from recollect.adapters.session.transcript import SessionTranscript, open_transcript
from recollect.adapters.wiring.memory import critical_rules_of
from recollect.errors import TranscriptLocked
from recollect.system.config.settings import Redaction
from recollect.system.durable import read_inside, read_plain

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
    counts = {key: record.raw_fields["n"] for key, record in found.items()}
    assert counts == {"a": 30, "b": 15}
    left = sorted(one.name for one in tmp_path.iterdir())
    assert left == ["sessions.json", "sessions.json.lock"]


RULES = "# Project\n\n## Red Lines\n\n- Never push to main.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / "memory").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.md").write_text(RULES)
    return tmp_path / "project"


def test_a_link_inside_is_followed_and_one_that_leads_out_is_not(project: Path) -> None:
    (project / "memory" / "a.md").write_text("ours")
    (project / "inside.md").symlink_to("memory/a.md")
    assert read_inside(project, "inside.md", 100)[0] == b"ours"
    (project / "up.md").symlink_to("../outside/secret.md")
    (project / "absolute.md").symlink_to(project.parent / "outside" / "secret.md")
    (project / "folder").symlink_to("../outside", target_is_directory=True)
    (project / "chain.md").symlink_to("folder/secret.md")
    (project / "ring.md").symlink_to("ring.md")
    for name in ("up.md", "absolute.md", "folder/secret.md", "chain.md", "ring.md", "none.md"):
        with pytest.raises(OSError):
            read_inside(project, name, 100_000)


def test_a_folder_on_the_way_that_became_a_link_is_not_followed(project: Path) -> None:
    """What was resolved before is opened step by step."""
    path = project / "memory" / "secret.md"
    (project / "memory").rmdir()
    (project / "memory").symlink_to("../outside", target_is_directory=True)
    assert path.read_text() == RULES, "by its name it would be read"
    with pytest.raises(OSError):
        read_plain(path, 100_000)


def test_pipes_and_large_files_are_not_read(project: Path) -> None:
    os.mkfifo(project / "pipe.md")
    with pytest.raises(OSError, match="regular"):
        read_inside(project, "pipe.md", 100)
    (project / "large.md").write_bytes(b"x" * 101)
    with pytest.raises(OSError, match="100 bytes"):
        read_inside(project, "large.md", 100)
    assert len(read_inside(project, "large.md", 101)[0]) == 101


def test_rules_for_summaries_are_the_projects_own(project: Path) -> None:
    (project / "AGENTS.md").write_text(RULES)
    assert "Never push" in critical_rules_of(project)()
    (project / "AGENTS.md").unlink()
    (project / "AGENTS.md").symlink_to("../outside/secret.md")
    assert critical_rules_of(project)() == ""
