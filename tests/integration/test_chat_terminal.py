"""`recollect chat` in a real terminal: a pty that pyte reads, a scripted model."""

import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.acceptance.recollect_cli import PROGRAM, environment
from tests.harness.chat import chatting
from tests.harness.model_server import Asked, Step
from tests.harness.terminal import Terminal

from recollect.core.values.model import Usage
from recollect.system.places import sessions_folder, space_file
from recollect.testing.scripted_model import Says, ScriptedCall

CTRL_C, CTRL_D, CTRL_J, CTRL_O, CTRL_R = "\x03", "\x04", "\x0a", "\x0f", "\x12"
ALT_ENTER = "\x1b\r"
REPLY = """# Bread

Some **bold** words.

- flour
- water

```python
def bake(minutes):
    return minutes
```

| what | much |
|---|---|
| flour | 500 g |

That is all."""


def lines_between(lines: Sequence[str], first: str, last: str) -> list[str]:
    start = next(at for at, line in enumerate(lines) if first in line)
    end = next(at for at, line in enumerate(lines) if last in line and at >= start)
    return list(lines[start : end + 1])


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_a_turn_is_lines_that_show_opens(tmp_path: Path, term: str) -> None:
    """Also in a terminal that can neither move its cursor nor show colours."""
    read = ScriptedCall(id="c1", name="read", input={"path": "a.txt"})
    usage = Usage(input_tokens=8_000, output_tokens=100, cache_read_tokens=4_000)
    steps = [Says(calls=(read,)), Says(text=REPLY, piece_bytes=40, usage=usage)]
    with chatting(tmp_path, steps, "--window", "32k", rows=40, term=term) as chat:
        (chat.workspace / "a.txt").write_text("alpha\nbeta \x1b[2J gamma\n")
        terminal = chat.terminal
        chat.say("how?")
        terminal.wait_for("That is all.")
        terminal.wait_for("›", times=2)
        lines = terminal.all_lines()
        assert lines_between(lines, "how?", "That is all.") == [
            "› how?",
            "[1] read a.txt — 2 lines, 21 B",
            *REPLY.split("\n"),
        ]
        status = lines[lines.index("That is all.") + 1]
        sizes = re.fullmatch(r"[\d.]+k/32k (\d+)%  scripted", status)
        assert sizes is not None, status

        terminal.send(CTRL_O)
        terminal.wait_for("gamma")
        opened = lines_between(terminal.all_lines(), "alpha", "gamma")
        assert opened == ["alpha", "beta [2J gamma"]

        chat.say("/status")
        terminal.wait_for(f"tokens, {sizes[1]}% of the window")
        chat.say("/show 7")
        terminal.wait_for("there is no line [7]")
        terminal.send(CTRL_D)
        assert terminal.wait_until_ended() == 0
        assert terminal.is_cooked()
        assert b"\x1b[?1049h" not in terminal.written, "the other screen"
        assert not re.search(rb"\x1b\[\?100[0-6]h", terminal.written), "the mouse"
        assert term != "dumb" or b"\x1b" not in terminal.written


def find_typed(terminal: Terminal, words: str, line: str) -> None:
    """Search the lines typed earlier, and search on while they are being read."""
    terminal.send(f"{CTRL_R}{words}")
    while True:
        try:
            terminal.wait_for(line, 2)
        except AssertionError:
            assert f"I-search backward: {words}" in "\n".join(terminal.shown())
            terminal.send(CTRL_R)
        else:
            return


def test_lines_paste_history_and_completion(tmp_path: Path) -> None:
    with chatting(tmp_path, lambda _: Says(text="yes")) as chat:
        terminal = chat.terminal
        terminal.send(f"one{CTRL_J}two{ALT_ENTER}three\r")
        terminal.wait_for("yes")
        assert chat.users() == ["one\ntwo\nthree"]
        terminal.send("\x1b[200~pasted\rlines\r\x1b[201~ end\r")
        terminal.wait_for("yes", times=2)
        assert chat.users()[-1] == "pasted\nlines\n end"
        chat.say("my key is ghp_0123456789abcdefghijABCDEFGHIJ012345 ok")
        terminal.wait_for("yes", times=3)
        terminal.send("/stat\t\r")
        terminal.wait_for("tool schemas")
        terminal.send(CTRL_D)
        assert terminal.wait_until_ended() == 0
    kept = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if b"ghp_" in path.read_bytes()]
    with chatting(tmp_path, lambda _: Says(text="again")) as chat:
        chat.terminal.wait_for("›")
        find_typed(chat.terminal, "tw", "three")
        chat.terminal.send("\r\r")
        chat.terminal.wait_for("again")
        assert chat.users()[-1] == "one\ntwo\nthree"


def test_ctrl_c_stops_a_reply_and_the_session_goes_on(tmp_path: Path) -> None:
    steps = [Says(text="words that stay " * 3, hang_after_events=3), Says(text="here again")]
    with chatting(tmp_path, steps) as chat:
        terminal = chat.terminal
        chat.say("begin")
        terminal.wait_for("words")
        terminal.send("typed ahead")
        terminal.send(CTRL_C)
        terminal.wait_for("stopped; the messages so far stay")
        terminal.wait_for("typed ahead")
        terminal.send("\r")
        terminal.wait_for("here again")
        assert [text for text in chat.users() if "typed" in text]
        terminal.wait_for("›", times=3)
        terminal.send(CTRL_C)
        terminal.wait_for("Ctrl-C again ends")
        terminal.send(CTRL_C)
        assert terminal.wait_until_ended() == 0
    with chatting(tmp_path, [Says(text="and on")]) as chat:
        chat.say("after a restart")
        chat.terminal.wait_for("and on")
        assert [text[:5] for text in chat.users()] == ["begin", "typed", "after"]


def test_ctrl_c_stops_a_command_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a store that does not work: what is logged of it stands in lines of its own."""
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    store = space_file(str(tmp_path / "work"))
    store.parent.mkdir(parents=True)
    store.write_bytes(b"no database" * 1_000)
    bash = ScriptedCall(id="c1", name="bash", input={"command": "sleep 60"})
    steps = [Says(calls=(bash,)), Says(text="fine")]
    with chatting(tmp_path, steps, "--bash", "allow") as chat:
        chat.say("sleep")
        chat.terminal.wait_for("bash sleep 60")
        begun = time.monotonic()
        chat.terminal.send(CTRL_C)
        chat.terminal.wait_for("stopped")
        assert time.monotonic() - begun < 20
        chat.say("go on")
        chat.terminal.wait_for("fine")
        logged = [line for line in chat.terminal.all_lines() if "not working" in line]
        assert logged
        assert all(line.startswith("store: not working") for line in logged), logged
        chat.terminal.wait_for("›", times=3)
        chat.terminal.process.send_signal(signal.SIGHUP)
        assert chat.terminal.wait_until_ended() == 128 + signal.SIGHUP
        assert chat.terminal.is_cooked()


def test_ctrl_c_stops_a_flush_turn(tmp_path: Path) -> None:
    """The reply stays, the notes are not written, and the session goes on after a restart."""

    def answer(asked: Asked) -> Step:
        if "NO_REPLY" in str(asked.body["messages"][-1]["content"]):
            return Says(text="never", hang_after_events=0)
        usage = Usage(input_tokens=6_100, output_tokens=20)
        return Says(text="bread is done", usage=usage)

    with chatting(tmp_path, answer, "--window", "8k") as chat:
        terminal = chat.terminal
        chat.say("bake")
        terminal.wait_for("writing notes")
        terminal.send(CTRL_C)
        terminal.wait_for("Stopped: the notes before a compaction")
        assert "bread is done" in "\n".join(terminal.all_lines())
        assert not list(chat.workspace.glob("memory/*.md"))
        terminal.send(CTRL_D)
        assert terminal.wait_until_ended() == 0
    with chatting(tmp_path, [Says(text="and on")], "--window", "8k") as chat:
        chat.say("after it")
        chat.terminal.wait_for("and on")
        assert chat.users()[-2:] == ["bake", "after it"]


def test_a_command_that_nothing_confines_is_asked_for(tmp_path: Path) -> None:
    """Keys that were typed before the question do not answer it."""
    touch = ScriptedCall(id="c1", name="bash", input={"command": "touch yes.txt\necho two"})
    steps = [
        *(Says(calls=(touch,), delay_seconds=1), Says(text="first")),
        *(Says(calls=(touch,)), Says(text="second")),
    ]
    with chatting(tmp_path, steps, "--bash", "ask") as chat:
        terminal = chat.terminal
        chat.say("go")
        chat.terminal.wait_for_that(lambda: bool(chat.server.asked))
        terminal.send("y\ry\r")
        terminal.wait_for("run it? y / n, then Enter:")
        assert "  echo two" in terminal.shown()
        terminal.send("why\r")
        terminal.wait_for("Enter:", times=2)
        terminal.send("n\r")
        terminal.wait_for("first")
        assert not (chat.workspace / "yes.txt").exists()
        terminal.wait_for("›", times=2)
        chat.say("again")
        terminal.wait_for("Enter:", times=3)
        terminal.send("y\r")
        terminal.wait_for("second")
        assert (chat.workspace / "yes.txt").exists()
        assert chat.users() == ["go", "again"]


def test_a_long_reply_streams_and_is_printed_once(tmp_path: Path) -> None:
    """In a window that changes its size meanwhile; a signal ends the chat in order."""
    lines = [f"Finished line {number}." for number in range(1, 301)]
    text = "\n\n".join(lines) + "\n\nLast words that are still open"
    steps = [Says(text=text, hang_after_events=len(text) // 4)]
    with chatting(tmp_path, steps, columns=100, rows=24) as chat:
        terminal = chat.terminal
        chat.say("go")
        terminal.wait_for("Finished line 299.")
        for columns, rows in ((60, 30), (120, 12), (80, 24)):
            terminal.resize(columns, rows)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.wait_until_ended() == 128 + signal.SIGTERM
        assert terminal.is_cooked()
        found = [line for line in terminal.all_lines() if line.startswith("Finished line")]
        assert found[:299] == lines[:299]
        assert len(found) <= len(lines)
        assert len(terminal.written) < 2 * len(text) + 5_000, "nothing is drawn twice"


def test_a_broken_transcript_hurts_no_other_chat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    folder = sessions_folder(str(tmp_path / "work"))
    (folder / "folder.jsonl").mkdir(parents=True)
    (folder / "broken.jsonl").write_bytes(b"\xff no session\n")
    with chatting(tmp_path, [Says(text="first")]) as one:
        one.say("hello")
        one.terminal.wait_for("first")
        command = [*PROGRAM, "chat", str(one.workspace), "--provider", one.server.url]
        done = subprocess.run(
            [*command, "--plain"],
            input="hi\n",
            capture_output=True,
            text=True,
            env=environment(tmp_path),
            timeout=120,
            check=False,
        )
    assert done.returncode == 2
    assert "is open in another chat" in done.stderr
    assert "--session NAME" in done.stderr
