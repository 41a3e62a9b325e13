"""The small parts of the agent: silence, resets, commands, the notes of the day."""

from __future__ import annotations

import errno
import fcntl
import re
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.agent import flush as day_note
from recollect.agent.commands import Command, Mistyped, NoCommand, read_command
from recollect.agent.flush import (
    NO_REPLY,
    DayNote,
    SilentFilter,
    append_note,
    day_of,
    means_a_day_note,
    shown_of,
)
from recollect.agent.loop import reset_due
from recollect.agent.request import Shape, request_body
from recollect.core.formats.translate import Speaker, to_wire
from recollect.system.config.settings import Redaction, Reset

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("window_tokens", "asked", "sent"),
    [(4_096, None, 1_024), (4_096, 300, 300), (400_000, None, None), (None, None, None)],
)
def test_a_reply_on_a_small_window_ends_with_the_room_kept_for_it(
    window_tokens: int | None, asked: int | None, sent: int | None
) -> None:
    """A local server lets a model write until the window is full."""
    shape = Shape(
        speaker=Speaker(format="openai-chat", model="local", provider=""),
        system="",
        tools=(),
        window_tokens=window_tokens,
        max_output_tokens=asked,
    )
    history = to_wire([{"role": "user", "content": "hello"}], shape.speaker)
    assert request_body(history, shape).get("max_completion_tokens") == sent


def is_silent(text: str) -> bool:
    kept = SilentFilter()
    kept.feed(text)
    kept.finish()
    return kept.silent


def streamed(pieces: list[str]) -> str:
    kept = SilentFilter()
    return "".join([kept.feed(piece) for piece in pieces]) + kept.finish()


@given(
    st.lists(
        st.sampled_from(["NO", "NO_", "REPLY", "_REPLY", NO_REPLY, " ", "\n", ".", "x", "É"]),
        max_size=8,
    )
)
def test_a_stream_shows_the_same_however_it_is_cut(pieces: list[str]) -> None:
    text = "".join(pieces)
    shown = shown_of(text)
    assert streamed(pieces) == streamed(list(text)) == shown
    assert text.startswith(shown)
    assert re.fullmatch(rf"(?:\s*{NO_REPLY}\W*)*", text.removeprefix(shown))
    if is_silent(text):
        assert not shown.strip()


@pytest.mark.parametrize("text", [NO_REPLY, "  NO_REPLY\n", "NO_REPLY.", "NO_REPLY\n\nNO_REPLY !"])
def test_no_reply_is_never_shown(text: str) -> None:
    kept = SilentFilter()
    assert [kept.feed(letter) for letter in text] == [""] * len(text)
    assert kept.finish() == ""
    assert kept.silent


@pytest.mark.parametrize(
    "text",
    [
        "NO",
        "NO_REPLYING to that",
        "No_reply",
        "Well: NO_REPLY",
        "NO_REPLY is the word that keeps a reply from being shown.",
        "NO_REPLY - all saved",
        "Say NO_REPLY",
        "NO_REPLY\nNO",
    ],
)
def test_words_that_only_look_like_it_are_shown(text: str) -> None:
    assert streamed(list(text)) == text
    assert not is_silent(text)


@pytest.mark.parametrize("end", ["\nNO_REPLY", " NO_REPLY", "\n\nNO_REPLY.\n"])
def test_the_token_at_the_end_of_an_answer_is_not_shown(end: str) -> None:
    assert streamed(list("All saved." + end)) == "All saved."
    assert not is_silent("All saved." + end)


def at(text: str, tz: ZoneInfo = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=tz).timestamp()


@pytest.mark.parametrize(
    ("last", "now", "due"),
    [
        ("2026-03-10T23:00", "2026-03-11T03:59", False),
        ("2026-03-10T23:00", "2026-03-11T04:00", True),
        ("2026-03-11T04:00", "2026-03-11T23:00", False),
        ("2026-03-11T03:59", "2026-03-11T23:00", True),
        ("2026-03-08T12:00", "2026-03-11T02:00", True),
        ("2026-03-28T23:00", "2026-03-29T04:30", True),  # the night of the change of clocks
        ("2026-10-25T04:30", "2026-10-25T05:00", False),
    ],
)
def test_a_day_begins_at_its_hour_where_the_user_is(last: str, now: str, due: bool) -> None:
    settings = Reset(mode="daily")
    assert reset_due(at(last), at(now), settings, BERLIN).due is due


def test_idling_ends_a_session_and_never_is_never() -> None:
    idle = Reset(mode="idle", idle_minutes=30)
    assert not reset_due(1000.0, 1000.0 + 29 * 60, idle).due
    assert reset_due(1000.0, 1000.0 + 30 * 60, idle).due
    both = Reset(mode="daily", idle_minutes=30)
    assert reset_due(at("2026-03-11T10:00"), at("2026-03-11T10:30"), both, BERLIN).due
    assert not reset_due(0.0, 1e9, Reset()).due
    assert not reset_due(None, 1e9, both).due
    assert not reset_due(0.0, 1e9, Reset(mode="idle")).due


def test_commands_are_told_from_messages() -> None:
    assert read_command("/compact keep the ids") == Command(name="compact", argument="keep the ids")
    assert read_command("/status detail ") == Command(name="status", argument="detail")
    assert read_command("/compact a\nb") == Command(name="compact", argument="a\nb")
    for text in ("/etc/hosts is wrong", "/unknown", "compact", "see /compact", "/", " /status"):
        assert isinstance(read_command(text), NoCommand)
    for folder in ("bin", "dev", "etc", "home", "opt", "root", "run", "tmp", "usr", "var"):
        assert isinstance(read_command(f"/{folder} is full"), NoCommand), folder


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("/stauts", "Did you mean /status?"),
        ("/STATUS", "Did you mean /status?"),
        ("/ status", "Did you mean /status?"),
        ("/exitt", "Did you mean /exit?"),
        ("/exit now please", "/exit is for a terminal, alone on its line."),
        ("/status foo", "It is /status [detail], and no more."),
        ("/new foo", "It is /new, and no more."),
    ],
)
def test_a_mistyped_command_is_asked_about(text: str, answer: str) -> None:
    read = read_command(text)
    assert isinstance(read, Mistyped)
    assert read.answer.startswith(answer)
    assert isinstance(read_command(f" {text}"), NoCommand), "with a space before it, it is sent"


@pytest.mark.parametrize(
    ("path", "means"),
    [
        ("memory/2026-01-01.md", True),
        ("memory/2025-01-01.md", True),
        ("./memory/x.md", True),
        ("MEMORY.md", False),
        ("memory/../AGENTS.md", False),
        ("memory/a.txt", False),
        (None, False),
    ],
)
def test_only_notes_of_a_day_are_meant(path: str | None, means: bool) -> None:
    assert means_a_day_note(path) is means


def test_the_day_is_the_users() -> None:
    late = datetime(2026, 3, 10, 23, 30, tzinfo=UTC).timestamp()
    assert day_of(late, UTC) == "2026-03-10"
    assert day_of(late, BERLIN) == "2026-03-11"
    assert day_of(late + timedelta(hours=1).total_seconds(), UTC) == "2026-03-11"


def test_notes_are_only_ever_added_to(tmp_path: Path) -> None:
    """Lesson 9: what stands in the file of the day is never overwritten."""
    note = DayNote(root=tmp_path, day="2026-03-11")
    note.path.parent.mkdir()
    note.path.write_text("mine, by hand, without an end")
    append_note(note, "first\n", Redaction())
    append_note(note, "second", Redaction())
    assert note.path.read_text() == "mine, by hand, without an end\n\nfirst\n\nsecond\n"


def test_two_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    """Lesson 10: an append of one must not be lost to the other's."""
    note = DayNote(root=tmp_path, day="2026-03-11")
    texts = [f"{who}-{number} " + who * 3000 for who in "ab" for number in range(20)]

    def write(mine: list[str]) -> None:
        for text in mine:
            append_note(note, text, Redaction())

    threads = [threading.Thread(target=write, args=(texts[at::4],)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [line for line in note.path.read_text().split("\n") if line]
    assert sorted(lines) == sorted(texts)


def test_a_note_does_not_wait_without_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(day_note, "LOCK_SECONDS", 0.2)
    note = DayNote(root=tmp_path, day="2026-03-11")
    note.path.parent.mkdir()
    refused: list[OSError] = []
    with note.path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        waiting = threading.Thread(target=_refused, args=(note, refused), daemon=True)
        waiting.start()
        waiting.join(10)
        assert not waiting.is_alive()
    assert [error.errno for error in refused] == [errno.EAGAIN]
    assert note.path.read_text() == ""
    append_note(note, "now", Redaction())
    assert note.path.read_text() == "now\n"


def _refused(note: DayNote, told: list[OSError]) -> None:
    try:
        append_note(note, "mine", Redaction())
    except OSError as error:
        told.append(error)


def test_a_secret_is_masked_and_a_link_is_not_followed(tmp_path: Path) -> None:
    note = DayNote(root=tmp_path, day="2026-03-11")
    append_note(note, "OPENAI_API_KEY=sk-proj-q8Zt3LmX0vRb7KpWn2YcHd5JfGs9TaUe", Redaction())
    assert "q8Zt3LmX0vRb7KpWn2Yc" not in note.path.read_text()
    other = DayNote(root=tmp_path, day="2026-03-12")
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    elsewhere.write_text("theirs")
    other.path.symlink_to(elsewhere)
    with pytest.raises(OSError, match=r".*"):
        append_note(other, "mine", Redaction())
    assert elsewhere.read_text() == "theirs"
