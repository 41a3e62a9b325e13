"""What is drawn says what is so, on narrow and wide screens, with and without colours."""

import asyncio
import io
import json
from dataclasses import replace as with_changes

from rich.console import Console

from recollect.core.values.reason import Cause, Reason
from recollect.core.values.transcript import RecordedRequest, RecordedSession, TranscriptItem
from recollect.hosts.inspect.drawn import draw_session
from recollect.hosts.inspect.explained import Explained, explain_session, replay
from recollect.hosts.inspect.turns import MessageFate, span_text, stretches, why_text
from recollect.system.config import Settings


def fate(number: int | None, kind: str, reason: Reason) -> MessageFate:
    return MessageFate(
        number=number,
        line=number,
        role="user",
        what="user",
        fate=kind,  # type: ignore[arg-type]
        reasons=(reason,),
        tokens_before=10,
        tokens_after=10 if kind == "kept" else 0,
        excerpt="",
    )


def explained_session(*, window_tokens: int, turns: int = 30) -> Explained:
    items: list[TranscriptItem] = []
    requests: list[RecordedRequest] = []

    def add(message: dict[str, object]) -> None:
        raw = json.dumps(message).encode()
        items.append(TranscriptItem(raw=raw, line=len(items) + 1))

    for turn in range(turns):
        add({"role": "user", "content": f"question {turn}"})
        call = {"type": "tool_use", "id": f"c{turn}", "name": "grep", "input": {}}
        requests.append(RecordedRequest(shown=tuple(range(len(items))), answered=(len(items),)))
        add({"role": "assistant", "content": [call]})
        result = {"type": "tool_result", "tool_use_id": f"c{turn}", "content": "found " * 90}
        add({"role": "user", "content": [result]})
        requests.append(RecordedRequest(shown=tuple(range(len(items))), answered=(len(items),)))
        add({"role": "assistant", "content": f"answer {turn}"})
    transcript = RecordedSession(
        kind="messages", format="anthropic", items=tuple(items), requests=tuple(requests)
    )
    settings = Settings(window_tokens=window_tokens)
    done = asyncio.run(replay(transcript, settings, turn=len(requests)))
    return explain_session(
        transcript,
        done,
        settings,
        turn=len(requests),
        file="session.json",
        runs=1,
        window_source="argument",
    )


def screen(explained: Explained, *, width: int, colours: bool = False, every: bool = False) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colours,
        color_system="truecolor" if colours else None,
        legacy_windows=False,
        highlight=False,
    )
    draw_session(explained, console, every=every)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_text_is_never_read_as_markup_and_turns_passed_over_are_told() -> None:
    explained = explained_session(window_tokens=200_000, turns=2)
    odd = with_changes(explained.largest[0], excerpt="[red]x[/red] :smile: [/]")
    drawn = screen(with_changes(explained, largest=(odd,)), width=120)
    assert "[red]x[/red] :smile: [/]" in drawn
    explained = with_changes(explained_session(window_tokens=200_000, turns=3), skipped_turns=4)
    assert "4 of the 5 turns before were not replayed" in screen(explained, width=100)


def test_neighbours_of_one_fate_are_told_as_one_stretch() -> None:
    fates = [fate(n, "kept", Reason(Cause.AS_IT_CAME)) for n in range(1, 5)]
    fates += [fate(n, "left out", Reason(Cause.LEAST_RELEVANT, score=float(n))) for n in (5, 6)]
    fates += [
        fate(None, "inserted", Reason(Cause.GAP_NOTE)),
        fate(7, "kept", Reason(Cause.AS_IT_CAME)),
    ]
    found = stretches(fates)
    assert [(one.fate, span_text(one)) for one in found] == [
        ("kept", "#1–#4"),
        ("left out", "#5–#6"),
        ("inserted", "ours"),
        ("kept", "#7"),
    ]
    assert why_text(found[1]) == "least relevant to the query (score 5.00 to 6.00)"
    together = stretches(fates, together=True)
    assert [(one.fate, one.count) for one in together] == [
        ("kept", 5),
        ("left out", 2),
        ("inserted", 1),
    ]
    assert sum(one.count for one in together) == len(fates)
