"""`recollect chat` in a real terminal: a pty whose screen is drawn by pyte, a scripted model."""

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
from tests.sizes import at_size

from recollect.core.values.model import Usage
from recollect.system.places import chat_history_file, space_file
from recollect.testing.scripted_model import Says, ScriptedCall

CTRL_C, CTRL_D, CTRL_J, CTRL_O, CTRL_R = "\x03", "\x04", "\x0a", "\x0f", "\x12"
ALT_ENTER = "\x1b\r"
REDRAWN_CPU_SECONDS = 0.1
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


def block_of(lines: Sequence[str], first: str, last: str) -> list[str]:
    start = next(at for at, line in enumerate(lines) if first in line)
    end = next(at for at, line in enumerate(lines) if last in line and at >= start)
    return [line.strip() for line in lines[start : end + 1] if line.strip()]


def test_a_turn_streams_markdown_folds_calls_and_opens_them(tmp_path: Path) -> None:
    read = ScriptedCall(id="c1", name="read", input={"path": "a.txt"})
    usage = Usage(input_tokens=8_000, output_tokens=100, cache_read_tokens=4_000)
    steps = [Says(calls=(read,)), Says(text=REPLY, piece_bytes=40, usage=usage)]
    with chatting(tmp_path, steps, "--window", "32k", rows=40) as chat:
        (chat.workspace / "a.txt").write_text("alpha\nbeta \x1b[2J gamma\n")
        terminal = chat.terminal
        chat.say("how?")
        terminal.wait_for("That is all.")
        terminal.wait_for("›", times=2)
        terminal.wait_for("%  scripted")
        lines = terminal.all_lines()
        assert block_of(lines, "how?", "That is all.") == [
            "› how?",
            "[1] read a.txt — 2 lines, 21 B",
            *("Bread", "Some bold words.", "• flour", "• water"),
            *("def bake(minutes):", "return minutes", "what   much", "────────────"),
            *("flour  500 g", "That is all."),
        ]
        status = terminal.shown()[-1]
        sizes = re.search(r"[\d.]+k/32k (\d+)%  ", status)
        assert sizes is not None, status
        assert "scripted" in status

        terminal.send(CTRL_O)
        terminal.wait_for("gamma")
        assert block_of(terminal.all_lines(), "alpha", "gamma") == ["alpha", "beta [2J gamma"]

        chat.say("/status")
        terminal.wait_for(f"tokens, {sizes[1]}% of the window")
        chat.say("/show 7")
        terminal.wait_for("there is no folded line [7]")
        terminal.send(CTRL_D)
        assert terminal.wait_until_ended() == 0
        assert b"\x1b[?1049h" not in terminal.written, "the other screen"
        assert not re.search(rb"\x1b\[\?100[0-6]h", terminal.written), "the mouse"


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
    (kept,) = (tmp_path / "home").rglob("chat_history")
    assert kept.parent.name == "sessions", "of this space alone"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert "ghp_" not in kept.read_text()
    with chatting(tmp_path, lambda _: Says(text="again")) as chat:
        chat.terminal.send(f"{CTRL_R}tw")
        chat.terminal.wait_for("three")
        chat.terminal.send("\r\r")
        chat.terminal.wait_for("again")
        assert chat.users()[-1] == "one\ntwo\nthree"


def test_ctrl_c_stops_a_reply_and_the_session_goes_on(tmp_path: Path) -> None:
    steps = [Says(text="words that stay " * 3, hang_after_events=3), Says(text="here again")]
    with chatting(tmp_path, steps) as chat:
        terminal = chat.terminal
        chat.say("begin")
        terminal.wait_for("answering")
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
        terminal.wait_for("waiting")
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


def test_a_resize_in_mid_stream_loses_nothing(tmp_path: Path) -> None:
    lines = [f"Finished line {number}." for number in range(1, 31)]
    text = "\n\n".join(lines) + "\n\nLast words that are still open"
    count = len(text) // 4
    steps = [Says(text=text, hang_after_events=count)]
    with chatting(tmp_path, steps, columns=100, rows=24) as chat:
        terminal = chat.terminal
        chat.say("go")
        terminal.wait_for("Finished line 29.")
        for columns, rows in ((60, 30), (120, 12), (80, 24)):
            begun, computed = time.monotonic(), terminal.cpu_seconds()
            before = len(terminal.written)
            terminal.resize(columns, rows)
            while len(terminal.written) == before:
                assert time.monotonic() - begun < 10
                time.sleep(0.001)
            print(f"redrawn {1000 * (time.monotonic() - begun):.0f} ms after the resize")
            assert terminal.cpu_seconds() - computed < REDRAWN_CPU_SECONDS
            time.sleep(0.3)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.wait_until_ended() == 128 + signal.SIGTERM
        assert terminal.is_cooked()
        shown = terminal.all_lines()
        found = [line for line in shown if line.startswith("Finished line")]
        assert found[:29] == lines[:29]
        assert len(found) <= len(lines)
        assert sum("Last words" in line for line in shown) <= 1, "no copy of what was open is left"


@pytest.mark.parametrize("paragraphs", [at_size(ci=200, full=400)])
def test_bytes_for_a_token_do_not_grow_and_scrollback_is_complete(
    tmp_path: Path, paragraphs: int
) -> None:
    """2,000 lines of talk: the last quarter of the tokens costs what the first did."""
    code = "\n".join(f"    step_{number}()" for number in range(100))
    parts = [
        f"Paragraph {number} has a few words, and **some** stand out among the others of it."
        if number % 20
        else f"```python\n{code}\n```"
        for number in range(paragraphs)
    ]
    text = "\n\n".join(parts)
    steps = [Says(text=text, piece_bytes=4_000), Says(text=text, piece_bytes=4_000)]
    with chatting(tmp_path, steps, "--window", "200k") as chat:
        terminal = chat.terminal
        sizes = []
        for turn in (1, 2):
            before = len(terminal.written)
            chat.say("go")
            terminal.wait_for(f"Paragraph {paragraphs - 1} ", 200, times=turn)
            terminal.wait_for("200k", 30)
            time.sleep(0.5)
            sizes.append(len(terminal.written) - before)
        lines = terminal.all_lines()
    tokens = len(text) / 4
    print(f"{len(lines)} lines; bytes a token: {[round(size / tokens, 1) for size in sizes]}")
    assert len(lines) > 2_000
    assert sizes[1] < 1.2 * sizes[0] + 20_000
    assert sizes[1] / tokens < 40
    for number in range(paragraphs):
        if number % 20:
            assert sum(f"Paragraph {number} " in line for line in lines) == 2, number
    assert sum("step_57()" in line for line in lines) == 2 * (paragraphs // 20)


def test_a_broken_history_hurts_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    chat_history_file(str(tmp_path / "work")).mkdir(parents=True)
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
