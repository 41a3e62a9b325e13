"""What a chat draws, by values: blocks of a reply, folded lines, the live lines."""

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.unit.agent.agent_harness import AgentHarness

from recollect.agent.chat.drawing import (
    MarkdownStream,
    fold_call,
    fold_report,
    main_argument,
    one_line,
)
from recollect.agent.chat.plain import note_of
from recollect.agent.chat.screen import Screen
from recollect.agent.events import (
    CallBegan,
    CallEnded,
    Compacted,
    Ended,
    Failed,
    Flushed,
    FlushResult,
    Prepared,
    Replied,
    Said,
    Thought,
    Told,
    Withdrawn,
)
from recollect.agent.loop import Agent
from recollect.core.values.compaction import CompactionResult
from recollect.core.values.edit import Insert, LeaveOut
from recollect.core.values.model import Usage
from recollect.core.values.reason import Cause, Reason
from recollect.system.plain_text import harmless, short_tokens
from recollect.testing.scripted_model import Says, ScriptedModel, WireName


def blocks(text: str, step: int) -> list[str]:
    stream = MarkdownStream()
    found = []
    for at in range(0, len(text), step):
        found += stream.feed(text[at : at + step])
    found += stream.finish()
    return [one.strip("\n") for one in found]


MARKDOWN = "Intro:\n```py\na\n\n\nb\n```\n- one\n\n  more of one\n- two\n\nEnd\n~~~~\n```\n~~~~"


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_blocks_are_the_same_wherever_the_stream_is_cut(step: int) -> None:
    assert blocks(MARKDOWN, step) == [
        "Intro:",
        "```py\na\n\n\nb\n```",
        "- one\n\n  more of one\n- two",
        "End",
        "~~~~\n```\n~~~~",
    ]


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from(["a b", "", "```", "```py", "  x", "| a |", "|---|", "- i"])),
    st.integers(1, 9),
)
def test_no_word_is_lost_or_said_twice(lines: list[str], step: int) -> None:
    marked = [
        line.replace("a", f"w{at}") if line == "a b" else line for at, line in enumerate(lines)
    ]
    text = "\n".join(marked)
    stream, found = MarkdownStream(), []
    for at in range(0, len(text), step):
        found += stream.feed(text[at : at + step])
    found += stream.finish()
    said = " ".join(found).split()
    words = [line.split()[0] for line in marked if line.startswith("w")]
    assert [word for word in said if word.startswith("w")] == words


def test_text_of_others_is_harmless() -> None:
    evil = "a\x1b[31mb\x07\x9b2J\u202ec\r\x00d\te\nf\ud800"
    assert harmless(evil) == "a[31mb2Jcd\te\nf"
    assert one_line(evil, 80) == "abc d e f"
    assert one_line("日本語" * 20, 10) == "日本語日…"


def test_the_main_argument() -> None:
    assert main_argument({"timeout": 3, "command": "ls\n-la"}) == "ls -la"
    assert main_argument({"content": "x", "path": "a.txt"}) == "a.txt"
    assert main_argument({"n": 1}) == ""
    ended = CallEnded(id="c", name="bash", is_error=True, text="no rule\nmore")
    folded = fold_call("bash", {"command": "make"}, ended)
    assert folded.line(3, 40).plain == "[3] bash make — error: no rule"
    assert len(folded.line(3, 24).plain) <= 24
    assert "more" in folded.whole
    silent = replace(ended, text="(no output)\n[exit code 3]", exit_code=3)
    assert fold_call("bash", {}, silent).note == "exit code 3: (no output)"


def test_the_memory_line_tells_what_is_new(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, ScriptedModel(["fine"]))
    report = next(event.report for event in harness.say("hello") if isinstance(event, Prepared))
    assert fold_report(report) is None
    key = report.entries[-1].key
    found = Insert(
        anchor=key, placement="after", text="found", stage="inject", turn=1,
        reason=Reason(Cause.RECALLED_BLOCK, tokens=20, fill="all"),
    )  # fmt: skip
    stands = replace(found, text="stands", stage="stand", reason=Reason(Cause.STANDING_ROW))
    gone = LeaveOut(anchor=key, part=None, stage="trim", turn=1, reason=Reason(Cause.NOT_SHOWN))
    told = fold_report(replace(report, new_edits=(gone, stands, found)))
    assert told is not None
    assert told.note == f"{found.reason}; {stands.reason}; 1 message left out"
    same = replace(report, new_edits=(stands,), ended_edits=(stands,), edits=(stands,))
    assert fold_report(same) is None


def test_a_compaction_that_was_asked_for_is_told_once() -> None:
    out = Sink()
    made = CompactionResult(
        convergence="reduced", reason=Reason(Cause.MADE_EARLIER), trigger="manual",
        summary="what was said", tokens_before=650, tokens_after=300, compacted_messages=7,
    )  # fmt: skip
    screen = screen_on(out, NO_COLOR="1")
    screen.on(Compacted(result=made))
    assert "the summary, 13 B" in out.getvalue()
    screen.on(Compacted(result=replace(made, convergence="irreducible")))
    assert "[2]" not in out.getvalue(), "what came to nothing is told by the answer alone"
    assert note_of(Compacted(result=made)) is None


class Sink(io.StringIO):
    """Counts what is written."""


def screen_on(out: Sink, **environment: str) -> Screen:
    console = Console(
        file=out, force_terminal=True, width=80, height=24, markup=False, highlight=False,
        _environ={"TERM": "xterm-256color", **environment},
    )  # fmt: skip
    return Screen("scripted", console=console, now=lambda: 0.0)


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic"])
def test_the_status_line_tells_what_status_tells(tmp_path: Path, wire: WireName) -> None:
    """While a request goes out, and behind commands; whatever the provider reported."""
    odd = Says(text="fine", usage=Usage(input_tokens=50, output_tokens=1))
    model = ScriptedModel([odd] * 4, format=wire)
    harness = AgentHarness(tmp_path, model, settings={"window_tokens": 8_000})

    async def work(agent: Agent) -> None:
        screen = screen_on(Sink(), NO_COLOR="1")
        for text in ("word " * 900, "and on", "/compact", "/new"):
            report = None
            async for event in agent.run(text):
                screen.on(event)
                report = event.report if isinstance(event, Prepared) else report
            status = await agent.status()
            request = status.request
            if report is None:
                screen.follow(status)
            sizes = f"{short_tokens(request.tokens)}/8k {request.window_share:.0%}"
            assert f"{sizes}  " in screen.status(), text

    harness.run(work)


def test_without_colours_there_are_none() -> None:
    for coloured in (False, True):
        out = Sink()
        screen = screen_on(out) if coloured else screen_on(out, NO_COLOR="1")
        screen.begin()
        screen.on(Said(text="# Head\n\nwords `code`\n\n```py\nx = 1\n```\n"))
        screen.on(Failed(kind="model", reason="broken"))
        screen.end()
        colours = [piece for piece in out.getvalue().split("\x1b[")[1:] if "m" in piece[:12]]
        found = any(piece.split("m")[0].startswith(("3", "9", "1;3", "38")) for piece in colours)
        assert found is coloured


def events() -> list[Any]:
    return [
        Thought(text="hmm \x1b[2J"),
        Said(text="one \x1b]0;evil\x07"),
        CallBegan(id="c", name="read\x1b[H", arguments={"path": "a\x1b[H"}),
        CallEnded(id="c", name="read\x1b[H", is_error=False, text="\x1b[31mred"),
        Withdrawn(reason="too \x1b[Hlarge"),
        Told(text="told \x1b[H"),
        Flushed(result=FlushResult(outcome="written", reason="fine \x1b[H", path="memory/x.md")),
        Compacted(
            result=CompactionResult(
                convergence="irreducible", reason=Reason(Cause.NOT_SHOWN), trigger="threshold"
            )
        ),
        Replied(entry_id="e", message={}, usage=Usage(input_tokens=5, output_tokens=1)),
        Failed(kind="model", reason="failed \x1b[H"),
        Ended(reason="aborted"),
    ]


def test_every_event_is_told_and_no_control_of_others_gets_through() -> None:
    out = Sink()
    screen = screen_on(out, NO_COLOR="1")
    screen.begin()
    for event in events():
        screen.on(event)
    screen.show(None)
    screen.show(2)
    screen.end()
    written = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    for evil in ("\x1b[2J", "\x1b]", "\x1b[H", "\x1b[31m", "\x07"):
        assert evil not in out.getvalue()
    for told in ("[1] thought", "one", "[2] read", "asked again", "told", "[3] notes",
                 "[4] compaction", "failed", "stopped", "[31mred"):  # fmt: skip
        assert told in written
