"""The transcript that a hook names."""

import os
import threading
from pathlib import Path

import pytest

from recollect.hosts.hooks.transcript_file import FollowedTranscript, TranscriptLook

LINE = b'{"type":"user","uuid":"u1","message":{"role":"user","content":"hello"}}\n'


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes there")
def test_a_pipe_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    looks: list[TranscriptLook] = []
    followed = FollowedTranscript("claude-code", str(tmp_path / "pipe.jsonl"))
    looking = threading.Thread(target=lambda: looks.append(followed.look()), daemon=True)
    looking.start()
    looking.join(10)
    assert looks == [TranscriptLook()]


def test_what_is_no_regular_file_is_no_transcript(tmp_path: Path) -> None:
    assert FollowedTranscript("claude-code", str(tmp_path)).look() == TranscriptLook()
    assert FollowedTranscript("claude-code", "/dev/null").look() == TranscriptLook()
    (tmp_path / "own.jsonl").write_bytes(LINE)
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "own.jsonl")
    for name in ("own.jsonl", "link.jsonl"):
        session = FollowedTranscript("claude-code", str(tmp_path / name)).look().session
        assert session is not None and len(session.items) == 1
