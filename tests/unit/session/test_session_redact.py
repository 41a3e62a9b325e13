"""Secrets in transcripts and notes are masked in place; what cannot be reached is told."""

from pathlib import Path

from recollect.adapters.session.clean_files import redact_in_files
from recollect.adapters.session.files import transcript_file
from recollect.adapters.session.transcript import open_transcript
from recollect.core.formats.pi_session import read_session
from recollect.core.rules.patterns import compile_patterns
from recollect.core.upkeep.masks import Masks
from recollect.system.config.settings import Redaction

TOKEN = "ghp_" + "Zq7LmT2xVb9KsR4wYd1NcF6hJp3QaE8uGi5o"
SPACE = "default"
OFF = Redaction(enabled=False)


def planted() -> Path:
    path = transcript_file(SPACE, "one")
    with open_transcript(path, session_id="one", redaction=OFF) as transcript:
        transcript.append_message({"role": "user", "content": f"use {TOKEN}", "timestamp": 1})
        transcript.append_message({"role": "user", "content": "ACME-7 said so", "timestamp": 2})
    with path.open("ab") as file:
        file.write(f"no entry, but {TOKEN}\n".encode())
    return path


def test_lines_without_a_secret_keep_their_bytes() -> None:
    path = planted()
    before = path.read_bytes().split(b"\n")
    seen = redact_in_files(SPACE, Masks(), apply=False)
    assert path.read_bytes().split(b"\n") == before
    done = redact_in_files(SPACE, Masks(), apply=True)
    assert (seen.kinds, seen.sessions) == (done.kinds, done.sessions)
    assert done.kinds == {"transcripts": {"github-token": 2}}
    assert done.sessions == {"one": 2}
    after = path.read_bytes().split(b"\n")
    assert TOKEN.encode() not in path.read_bytes()
    changed = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    assert changed == [1, 3]
    assert [entry.id for entry in read_session(path.read_bytes()).entries] == [
        entry.id for entry in read_session(b"\n".join(before)).entries
    ]
    assert redact_in_files(SPACE, Masks(), apply=True).kinds == {}


def test_a_transcript_that_an_agent_has_open_is_told_and_left() -> None:
    path = planted()
    with open_transcript(path, session_id="one", redaction=OFF):
        done = redact_in_files(SPACE, Masks(), apply=True)
        assert TOKEN.encode() in path.read_bytes()
    assert done.kinds == {}
    assert (done.unmasked, done.unread) == (2, 0), "found, and still in clear"
    assert any("running agent" in line for line in done.cannot)


def test_notes(tmp_path: Path) -> None:
    planted()
    notes = tmp_path / "memory"
    notes.mkdir()
    (notes / "2026-02-13.md").write_text("- ACME-1\n- water\n")
    (notes / "mine.md").write_text("ACME-2\n")
    masks = Masks(patterns=compile_patterns([r"ACME-\d"]))
    done = redact_in_files(SPACE, masks, workspace=tmp_path, apply=True)
    assert set(done.changed) == {"transcripts", "daily notes"}
    assert (notes / "2026-02-13.md").read_text() == "- [REDACTED:own-pattern-1]\n- water\n"
    assert (notes / "mine.md").read_text() == "ACME-2\n", "the user's own"
    assert any("mine.md" in line and "contains 1" in line for line in done.cannot)
    assert done.unmasked == 1


def test_a_link_among_the_transcripts_is_not_taken_for_clean(tmp_path: Path) -> None:
    path = transcript_file(SPACE, "two")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(tmp_path / "elsewhere.jsonl")
    done = redact_in_files(SPACE, Masks(), apply=True)
    assert (done.unmasked, done.unread) == (0, 1)
