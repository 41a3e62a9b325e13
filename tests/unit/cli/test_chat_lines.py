"""What a chat prints, by values: replies, numbered lines, the status line."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_harness import AgentHarness

from recollect.agent.chat.plain import run_turn
from recollect.agent.chat.view import LineView, call_note, main_argument, memory_note, one_line
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


def test_text_of_others_is_harmless() -> None:
    evil = "a\x1b[31mb\x07\x9b2J\u202ec\r\x00d\te\nf\ud800"
    assert harmless(evil) == "a[31mb2Jcd\te\nf"
    assert one_line(evil, 80) == "abc d e f"
    assert one_line("日本語" * 20, 10) == "日本語日…"


def view_on(out: io.StringIO) -> LineView:
    return LineView(out, out)


def test_the_main_argument() -> None:
    assert main_argument({"timeout": 3, "command": "ls\n-la"}) == "ls -la"
    assert main_argument({"content": "x", "path": "a.txt"}) == "a.txt"
    assert main_argument({"n": 1}) == ""


def test_a_call_is_one_line_whatever_comes_in_between() -> None:
    ended = CallEnded(id="c", name="bash", is_error=True, text="no rule\nmore")
    silent = replace(ended, text="(no output)\n[exit code 3]", exit_code=3)
    assert call_note(silent) == "exit code 3: (no output)"
    out = io.StringIO()
    view = view_on(out)
    began = CallBegan(id="c", name="bash", arguments={"command": "make"})
    view.on(Said(text="I try."))
    view.on(began)
    assert out.getvalue() == "I try.\n[1] bash make", "what runs is shown before it ends"
    view.on(ended)
    view.on(began)
    view.note("store: not working")
    view.on(silent)
    assert out.getvalue().splitlines()[1:] == [
        "[1] bash make — error: no rule",
        "[2] bash make",
        "store: not working",
        "[2] bash make — exit code 3: (no output)",
    ]
    long = CallBegan(id="d", name="bash", arguments={"command": "word " * 900})
    view.on(long)
    view.on(replace(ended, text="wrong " * 900))
    view.show(1)
    last = out.getvalue().splitlines()[5]
    assert last.startswith("[3] bash word word")
    assert len(last) < 180
    assert "[1] bash\ncommand: make\n\nno rule\nmore" in out.getvalue()


def test_the_memory_line_tells_what_is_new(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, ScriptedModel(["fine"]))
    report = next(event.report for event in harness.say("hello") if isinstance(event, Prepared))
    assert memory_note(report) == ""
    key = report.entries[-1].key
    found = Insert(
        anchor=key, placement="after", text="found", stage="inject", turn=1,
        reason=Reason(Cause.RECALLED_BLOCK, tokens=20, fill="all"),
    )  # fmt: skip
    stands = replace(found, text="stands", stage="stand", reason=Reason(Cause.STANDING_ROW))
    gone = LeaveOut(anchor=key, part=None, stage="trim", turn=1, reason=Reason(Cause.NOT_SHOWN))
    told = memory_note(replace(report, new_edits=(gone, stands, found)))
    assert told == f"{found.reason}; {stands.reason}; 1 message left out"
    same = replace(report, new_edits=(stands,), ended_edits=(stands,), edits=(stands,))
    assert memory_note(same) == ""


def test_a_compaction_that_was_asked_for_is_told_once() -> None:
    out = io.StringIO()
    made = CompactionResult(
        convergence="reduced", reason=Reason(Cause.MADE_EARLIER), trigger="manual",
        summary="what was said", tokens_before=650, tokens_after=300, compacted_messages=7,
    )  # fmt: skip
    view = view_on(out)
    view.on(Compacted(result=made))
    assert "650 to 300 tokens" in out.getvalue()
    view.show(1)
    assert "what was said" in out.getvalue()
    view.on(Compacted(result=replace(made, convergence="irreducible")))
    assert "[2]" not in out.getvalue(), "what came to nothing is told by the answer alone"


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic"])
def test_the_status_line_tells_what_status_tells(tmp_path: Path, wire: WireName) -> None:
    """After a turn and after commands; whatever the provider reported."""
    odd = Says(text="fine", usage=Usage(input_tokens=50, output_tokens=1))
    model = ScriptedModel([odd] * 4, format=wire)
    harness = AgentHarness(tmp_path, model, settings={"window_tokens": 8_000})

    async def work(agent: Agent) -> None:
        out = io.StringIO()
        for text in ("word " * 900, "and on", "/compact", "/new"):
            await run_turn(agent, view_on(out), text)
            request = (await agent.status()).request
            sizes = f"{short_tokens(request.tokens)}/8k {request.window_share:.0%}"
            assert out.getvalue().splitlines()[-1].startswith(f"{sizes}  "), text

    harness.run(work)


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_are_for_terminals_that_have_and_want_them(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    class Colourful(io.StringIO):
        def isatty(self) -> bool:
            return True

    for name, value in {"TERM": "xterm-256color", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    out = Colourful()
    view_on(out).on(Failed(kind="model", reason="broken"))
    assert ("\x1b[31m" in out.getvalue()) is not bool(variables)
    assert ("\x1b" in out.getvalue()) is not bool(variables)


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
    out = io.StringIO()
    view = view_on(out)
    for event in events():
        view.on(event)
    view.show(None)
    view.show(2)
    view.show(7)
    for evil in "\x1b\x07\x9b":
        assert evil not in out.getvalue()
    for told in ("[1] thought", "one", "[2] read", "asked again", "told", "[3] notes",
                 "[4] compaction", "failed", "stopped", "[31mred", "no line [7]"):  # fmt: skip
        assert told in out.getvalue()
