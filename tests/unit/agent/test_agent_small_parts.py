"""The small parts of the agent: silence, commands, the notes of the day."""

import fcntl
import threading
from pathlib import Path

import pytest

from recollect.agent import flush as day_note
from recollect.agent.commands import COMMANDS, Command, help_text, read_command
from recollect.agent.conversation import Shape, request_body
from recollect.agent.flush import NO_REPLY, SilentFilter, append_note, note_file
from recollect.core.formats.translate import Speaker, to_wire
from recollect.errors import TranscriptLocked
from recollect.system.config.settings import Redaction

TODAY = "memory/2026-03-11.md"


@pytest.mark.parametrize(
    ("window_tokens", "asked", "sent"),
    [(4_096, None, 1_024), (4_096, 300, 300), (400_000, None, None), (None, None, None)],
)
def test_a_reply_on_a_small_window_ends_with_the_room_kept_for_it(
    window_tokens: int | None, asked: int | None, sent: int | None
) -> None:
    """A local server lets a model write until the window is full."""
    shape = Shape(
        speaker=Speaker(format="openai-chat", model="local"),
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


@pytest.mark.parametrize(
    "text",
    [
        "NO",
        "NO_REPLYING to that",
        "No_reply",
        "NO_REPLY is the word that keeps a reply from being shown.",
        "Say NO_REPLY",
    ],
)
def test_words_that_only_look_like_it_are_shown(text: str) -> None:
    assert streamed(list(text)) == text
    assert not is_silent(text)


def test_commands_are_told_from_messages() -> None:
    for name, (usage, _) in COMMANDS.items():
        assert usage.startswith(f"/{name}")
        assert isinstance(read_command(f"/{name}"), Command)
        assert usage in help_text()
    assert read_command("/compact keep the ids") == Command(name="compact", argument="keep the ids")
    assert read_command("/compact a\nb") == Command(name="compact", argument="a\nb")
    for text in (
        "/etc/hosts is wrong",
        "compact",
        "see /compact",
        "/",
        "/ no",
        "// no",
        " /status",
    ):
        assert read_command(text) is None
    for folder in ("bin", "dev", "etc", "home", "opt", "root", "run", "tmp", "usr", "var"):
        assert read_command(f"/{folder} is full") is None, folder


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("/facts", "There is no command /facts"),
        ("/sessions", "There is no command /sessions"),
        ("/unknown with words", "There is no command /unknown"),
        ("/mcp:server do it", "There is no command /mcp:server"),
        ("/my-command", "There is no command /my-command"),
        ("/facts\nin two lines", "There is no command /facts"),
        ("/résumé", ""),
        ("/new foo", "/new takes no argument."),
        ("/reset foo", "/reset takes no argument."),
        ("/status now", "/status takes no argument."),
        ("/exit", "/exit works only in a terminal."),
        ("/show 3", "/show works only in a terminal."),
    ],
)
def test_a_line_that_is_no_command_is_answered_and_not_sent(text: str, answer: str) -> None:
    corrected = read_command(text)
    assert isinstance(corrected, str)
    assert corrected.startswith(answer)
    assert "put a space before it" in corrected
    assert read_command(f" {text}") is None


@pytest.mark.parametrize(
    ("text", "meant"),
    [("/memroy add my PIN", "memory"), ("/Compact", "compact"), ("/exitt", "exit")],
)
def test_a_mistyped_command_is_asked_about(text: str, meant: str) -> None:
    assert str(read_command(text)).startswith(f"Did you mean /{meant}? ")
    assert read_command(f" {text}") is None, "with a space before it, it is sent"


@pytest.mark.parametrize(
    ("path", "means"),
    [
        *(("memory/2026-01-01.md", TODAY), ("./memory/x.md", TODAY), ("memory.md", "memory.md")),
        *(("user.md", "USER.md"), ("memory/../AGENTS.md", None), ("memory/a.txt", None)),
        *(("AGENTS.md", None), ("daily", None), (None, None)),
    ],
)
def test_only_files_for_notes_are_meant(
    path: str | None, means: str | None, tmp_path: Path
) -> None:
    assert note_file(tmp_path, TODAY, path) == means


def test_note_does_not_wait_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(day_note, "LOCK_SECONDS", 0.2)
    note = tmp_path / TODAY
    note.parent.mkdir()
    refused: list[TranscriptLocked] = []
    with note.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        waiting = threading.Thread(target=_refused, args=(tmp_path, refused), daemon=True)
        waiting.start()
        waiting.join(10)
        assert not waiting.is_alive()
    (told,) = refused
    assert "session" not in str(told), "no session has the file of notes open"
    assert TODAY in str(told)
    assert note.read_text() == ""
    append_note(tmp_path, TODAY, "now", Redaction())
    assert note.read_text() == "now\n"


def _refused(root: Path, told: list[TranscriptLocked]) -> None:
    try:
        append_note(root, TODAY, "mine", Redaction())
    except TranscriptLocked as error:
        told.append(error)


def test_a_secret_is_masked_and_a_link_is_not_followed(tmp_path: Path) -> None:
    note = tmp_path / TODAY
    append_note(
        tmp_path, TODAY, "OPENAI_API_KEY=sk-proj-q8Zt3LmX0vRb7KpWn2YcHd5JfGs9TaUe", Redaction()
    )
    assert "q8Zt3LmX0vRb7KpWn2Yc" not in note.read_text()
    other = "memory/2026-03-12.md"
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    elsewhere.write_text("theirs")
    (tmp_path / other).symlink_to(elsewhere)
    with pytest.raises(OSError, match=r".*"):
        append_note(tmp_path, other, "mine", Redaction())
    assert elsewhere.read_text() == "theirs"


@pytest.mark.parametrize("text", [NO_REPLY, "  NO_REPLY\n", "NO_REPLY."])
def test_no_reply_is_never_shown(text: str) -> None:
    kept = SilentFilter()
    assert [kept.feed(letter) for letter in text] == [""] * len(text)
    assert kept.finish() == ""
    assert kept.silent
