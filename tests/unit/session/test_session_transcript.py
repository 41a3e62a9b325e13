"""A transcript on disk: durable, locked, mended after a crash, redacted, undone."""

import errno
import json
import os
import random
import stat
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.session.node_pi import assert_node_agrees

from recollect.adapters.session import transcript as session_file
from recollect.adapters.session.entries import UNDONE_SUMMARY
from recollect.adapters.session.transcript import (
    SessionTranscript,
    open_transcript,
    read_session_file,
)
from recollect.core.formats.pi_session import PiEntry, build_context
from recollect.core.formats.summaries import PI_CLOSING, PI_OPENING
from recollect.errors import TranscriptError, TranscriptLocked
from recollect.system.config.settings import Redaction
from recollect.system.durable import sync_file

_RNG = random.Random(7)
SECRET = "ghp_" + "".join(_RNG.choices(string.ascii_letters + string.digits, k=36))


class At:
    """A clock that stands."""

    def now(self) -> float:
        return 1771000000.125


def opened(path: Path, *, redaction: Redaction | None = None) -> SessionTranscript:
    return open_transcript(
        path,
        session_id="the-session",
        redaction=redaction or Redaction(),
        cwd=Path("/w"),
        clock=At(),
    )


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 1}


def shown(transcript: SessionTranscript) -> list[str]:
    return [message["content"][0]["text"] for message in transcript.context().messages]


def wrapped(summary: str) -> str:
    return PI_OPENING + summary + PI_CLOSING


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agents" / "a space" / "sessions" / "s.jsonl"


def test_a_new_transcript_is_on_the_disk_at_once_and_only_the_owners(path: Path) -> None:
    with opened(path) as transcript:
        transcript.append_message(user("hello"))
        header, message = path.read_text().splitlines()
    assert json.loads(header) == {
        "type": "session",
        "version": 3,
        "id": "the-session",
        "timestamp": "2026-02-13T16:26:40.125Z",
        "cwd": "/w",
    }
    assert json.loads(message)["message"] == user("hello")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_every_kind_of_entry_is_one_that_node_would_write(path: Path) -> None:
    with opened(path) as transcript:
        kept = transcript.append_message(user("\ud83d lone \u2028 👍"))
        transcript.append_name("a name")
        transcript.append_custom("c")
        transcript.append_compaction(
            summary="s", first_kept_entry_id=kept.id, tokens_before=3, details={"cost": 4.5e-05}
        )
        assert_node_agrees(path.read_bytes(), transcript.context())


def test_a_second_writer_is_refused_and_a_reader_is_not(path: Path) -> None:
    with opened(path) as transcript:
        transcript.append_message(user("one"))
        with pytest.raises(TranscriptLocked, match="close that session, or start another"):
            opened(path)
        transcript.append_message(user("two"))
        assert len(read_session_file(path).entries) == 2
    with opened(path) as transcript:
        assert shown(transcript) == ["one", "two"]


# after a crash


def test_wherever_a_line_is_cut_nothing_before_it_is_lost(path: Path) -> None:
    with opened(path) as transcript:
        transcript.append_message(user("one"))
        transcript.append_message(user("två 👍"))
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in range(last, len(whole)):
        path.write_bytes(whole[:end])
        with opened(path) as transcript:
            complete = end == len(whole) - 1  # all but its line end
            assert shown(transcript) == (["one", "två 👍"] if complete else ["one"])
            if end > last:
                assert len(transcript.notes) == 1
                said = "line end" if complete else f"{end - last} bytes of a line"
                assert said in transcript.notes[0]
            transcript.append_message(user("three"))
        assert [json.loads(line)["type"] for line in path.read_text().splitlines()][-1] == "message"
        with opened(path) as transcript:
            assert transcript.notes == ()
            assert shown(transcript)[-1] == "three"


def test_zeros_that_a_power_failure_left_are_taken_away(path: Path) -> None:
    with opened(path) as transcript:
        transcript.append_message(user("one"))
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0" * 4096)
    with opened(path) as transcript:
        assert shown(transcript) == ["one"]
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"type":"message","id":"a","parentId":null}\n', "no session header"),
        (b"Dear diary,\n", "no session header"),
        (b'{"type":"session","id":"s"}\n', "rewrite it with pi"),
        (b'{"type":"session","id":"s","version":4}\n', "upgrade Recollect"),
    ],
)
def test_file_not_ours_to_write_is_left_alone(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(content)
    with pytest.raises(TranscriptError, match=said):
        opened(path)
    assert path.read_bytes() == content


# a disk that fails

Writing = Callable[[int, bytes], int]


def test_a_line_that_fits_only_in_part_is_taken_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as transcript:
        transcript.append_message(user("one"))
        before = path.read_bytes()
        real: Writing = os.write
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda fd, content: real(fd, content[:20]))
            with pytest.raises(TranscriptError, match="may be full"):
                transcript.append_message(user("too long"))
        assert path.read_bytes() == before
        transcript.append_message(user("two"))
        assert shown(transcript) == ["one", "two"]


def test_after_one_sync_that_failed_nothing_is_written_until_it_is_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system drops what it failed to write: the next sync succeeds and says nothing of it."""
    real = sync_file
    failing = [True]

    def fail_once(descriptor: int) -> None:
        if failing:
            failing.pop()
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    with opened(path) as transcript:
        transcript.append_message(user("one"))
        monkeypatch.setattr(session_file, "sync_file", fail_once)
        with pytest.raises(TranscriptError, match="Input/output error"):
            transcript.append_message(user("two"))
        with pytest.raises(TranscriptError, match="open it again"):
            transcript.append_message(user("three"))
    with opened(path) as transcript:
        transcript.append_message(user("four"))
        assert shown(transcript) == ["one", "four"]


def test_a_file_that_went_away_takes_nothing(path: Path) -> None:
    with opened(path) as transcript:
        transcript.append_message(user("one"))
        path.rename(path.with_name("moved.jsonl"))
        with pytest.raises(TranscriptError, match="moved, replaced or deleted"):
            transcript.append_message(user("two"))


def test_a_writer_who_heeds_no_lock_is_noticed(path: Path) -> None:
    with opened(path) as transcript:
        with path.open("ab") as file:
            file.write(b'{"type":"message","id":"x')
        with pytest.raises(TranscriptError, match="ignores the lock"):
            transcript.append_message(user("two"))


# secrets


def test_a_secret_is_in_the_conversation_but_not_on_the_disk(path: Path) -> None:
    with opened(path) as transcript:
        entry = transcript.append_message(user(f"use {SECRET} please"))
        assert SECRET not in str(entry.value)
        assert shown(transcript) == [f"use {SECRET} please"]
        transcript.append_custom("state", {"token": SECRET})
        transcript.append_compaction(
            summary=f"key {SECRET}", first_kept_entry_id=None, tokens_before=1
        )
    assert SECRET not in path.read_text()
    with opened(path) as transcript:
        assert "[REDACTED:" in shown(transcript)[0]


def test_what_holds_a_conversation_together_is_never_masked(path: Path) -> None:
    message = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "plain", "thinkingSignature": SECRET},
            {"type": "thinking", "thinking": f"the key {SECRET}", "thinkingSignature": "signed"},
            {"type": "toolCall", "id": SECRET, "name": "bash", "arguments": {"env": SECRET}},
        ],
        "model": "m",
        "usage": {"input": 1, "cost": {"total": 4.5e-05}},
        "stopReason": "toolUse",
    }
    result = {"role": "toolResult", "toolCallId": SECRET, "toolName": "bash", "content": []}
    with opened(path) as transcript:
        written: PiEntry = transcript.append_message(message)
        answered = transcript.append_message(result)
    assert written.message is not None
    plain, thought, call = written.message["content"]
    assert plain["thinkingSignature"] == SECRET
    assert SECRET not in thought["thinking"]
    assert "thinkingSignature" not in thought, "it did not sign what stands there now"
    assert call["id"] == SECRET
    assert SECRET not in call["arguments"]["env"]
    assert answered.message is not None
    assert answered.message["toolCallId"] == SECRET
    assert written.message["usage"] == message["usage"]


@pytest.mark.parametrize("where", ["content", "summary"])
def test_reasoning_that_is_kept_whole_as_a_signature_is_masked_too(path: Path, where: str) -> None:
    """OpenAI's Responses: pi keeps the item in the signature, and servers state it in words."""
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "plain"}],
        "encrypted_content": "gAAAAABo" + "x7Kq9ZtR2mVb4Lw8Yc1Nf6Hd3Js5Pg0AeUiT" * 4,
    }
    leaky = {**item, where: [{"type": "reasoning_text", "text": f'I try\n"{SECRET}" there'}]}
    blocks = [
        {"type": "thinking", "thinking": "plain", "thinkingSignature": json.dumps(one)}
        for one in (item, leaky)
    ]
    with opened(path) as transcript:
        transcript.append_message({"role": "assistant", "content": blocks})
        said = transcript.history().messages[0]["content"]
        assert said == blocks, "in this process it can still be sent back"
    assert SECRET not in path.read_text()
    with opened(path) as transcript:
        sealed, masked = transcript.history().messages[0]["content"]
    assert sealed == blocks[0], "what only its provider can read stays as it is"
    assert "thinkingSignature" not in masked


# compaction and undo


def test_a_compaction_must_keep_from_an_entry_that_is_there(path: Path) -> None:
    with opened(path) as transcript:
        transcript.append_message(user("one"))
        before = path.read_bytes()
        with pytest.raises(TranscriptError, match="would be lost"):
            transcript.append_compaction(summary="s", first_kept_entry_id="nobody", tokens_before=1)
        assert path.read_bytes() == before
        transcript.append_compaction(summary="s", first_kept_entry_id=None, tokens_before=1)
        assert shown(transcript) == [wrapped("s")]


def test_undo_goes_back_one_compaction_at_a_time(path: Path) -> None:
    with opened(path) as transcript:
        for number in range(4):
            entry = transcript.append_message(user(f"m{number}"))
            transcript.append_compaction(
                summary=f"s{number}",
                first_kept_entry_id=entry.id,
                tokens_before=number,
                details={"readFiles": [f"f{number}"]},
            )
        assert shown(transcript) == [wrapped("s3"), "m3"]
        undo = transcript.append_undo()
        assert isinstance(undo, PiEntry)
        assert undo.value["details"]["readFiles"] == ["f2"], "pi goes on from these"
        assert shown(transcript) == [wrapped("s2"), "m2", "m3"]
    with opened(path) as transcript:
        transcript.append_undo()
        assert shown(transcript) == [wrapped("s1"), "m1", "m2", "m3"]
        transcript.append_compaction(
            summary="anew", first_kept_entry_id=transcript.entries[-1].id, tokens_before=1
        )
        assert shown(transcript) == [wrapped("anew")]
        transcript.append_undo()
        assert shown(transcript) == [wrapped("s1"), "m1", "m2", "m3"]
        transcript.append_undo()
        transcript.append_undo()
        assert shown(transcript) == [wrapped(UNDONE_SUMMARY), "m0", "m1", "m2", "m3"]
        assert_node_agrees(path.read_bytes(), transcript.context())


def test_undo_brings_back_a_compaction_that_carries_its_own_tail(path: Path) -> None:
    with opened(path) as transcript:
        transcript.append_message(user("gone"))
        made = {"summary": "s0", "tokensBefore": 1, "retainedTail": [user("tail")]}
        transcript._add(lambda stamp: {"type": "compaction", **stamp.fields(), **made})
        transcript.append_message(user("one"))
        transcript.append_compaction(summary="s1", first_kept_entry_id=None, tokens_before=2)
        transcript.append_message(user("two"))
        transcript.append_undo()
        transcript.append_message(user("three"))
        assert shown(transcript) == [wrapped("s0"), "tail", "one", "two", "three"]
        assert_node_agrees(path.read_bytes(), transcript.context())


@settings(max_examples=40)
@given(st.lists(st.sampled_from("mmmcu"), max_size=25), st.randoms(use_true_random=False))
def test_undo_shows_at_least_what_was_shown_before_the_compaction(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], rng: random.Random
) -> None:
    """Messages that were shown before a compaction are shown after its undo, in order, and so
    are those said in between."""
    path = tmp_path_factory.mktemp("undo") / "s.jsonl"
    views: list[list[str]] = []
    with opened(path) as transcript:
        for number, step in enumerate(steps):
            messages = [entry for entry in transcript.entries if entry.kind == "message"]
            if step == "m":
                transcript.append_message(user(f"m{number}"))
                views = [[*view, f"m{number}"] for view in views]
            elif step == "c" and messages:
                views.append([text for text in shown(transcript) if not text.startswith("The")])
                kept = rng.choice(messages).id
                transcript.append_compaction(summary="s", first_kept_entry_id=kept, tokens_before=1)
            elif step == "u":
                done = transcript.append_undo()
                assert (done is None) == (not views)
                if views:
                    expected = views.pop()
                    now = [text for text in shown(transcript) if not text.startswith("The")]
                    assert now == expected
        entries = transcript.entries
    again = read_session_file(path)
    assert build_context(again.entries) == build_context(entries)
