"""`recollect explain FILE`: where a session's tokens go, and each message's fate.

Owns the command: reading the file, choosing run, turn and window, progress, and the way out
as a drawing or as JSON. Data goes to standard output, progress to standard
error and only while somebody watches. Changes nothing on disk.

Tokens of single messages are the engine's estimates carried over to its calibrated total, so that
what is shown adds up.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect import config
from recollect.config.load import PRESETS
from recollect.errors import FormatError, RecollectError
from recollect.formats.transcripts import read_transcripts
from recollect.plain_text import plain_line, window_from
from recollect.rules.budget import window_of
from recollect.rules.tokens import Weigher
from recollect.surfaces.cli.explain_replay import replay, requests_of
from recollect.surfaces.cli.explained import (
    KINDS,
    Explained,
    KindShare,
    MessageFate,
    Recording,
    RepairCount,
    StageNote,
    ToolShare,
    WindowSource,
    WindowUsed,
    apportioned,
    excerpt_of,
    shown_text,
    sort_rows,
    tool_names,
)
from recollect.surfaces.cli.progress import ShownProgress
from recollect.values.message import Message, ToolCall, ToolResult

if TYPE_CHECKING:
    from recollect.config import Settings
    from recollect.surfaces.cli.explain_replay import Replay
    from recollect.values.message import CallId, EntryKey
    from recollect.values.report import Fate, Report
    from recollect.values.transcript import RecordedSession


# A replayed session, measured


LARGEST = 10


def explain_session(
    transcript: RecordedSession,
    replayed: Replay,
    settings: Settings,
    *,
    turn: int,
    file: str,
    run: int,
    runs: int,
    window_source: WindowSource,
) -> Explained:
    """Everything there is to tell about the turn."""
    report = replayed.report
    messages = [entry.message for entry in report.entries]
    names = tool_names(messages)
    fates = _fates(transcript, replayed, messages, names)
    message_fates = [fate for fate in fates if fate.number is not None]
    largest = sorted(message_fates, key=lambda fate: (-fate.tokens_before, fate.number))[:LARGEST]
    kinds, tools = _shares(replayed, names, Weigher(settings.tokens.counter))
    usage = replayed.request.usage
    return Explained(
        recording=_recording(transcript, file, run, runs),
        turn=turn,
        turns=len(requests_of(transcript)),
        next_request=not transcript.requests,
        preset=settings.preset,
        window=WindowUsed(
            tokens=report.window_tokens,
            source=window_source,
            reserve_tokens=report.reserve_tokens,
            limit_tokens=report.limit_tokens,
        ),
        came_tokens=report.tokens_before,
        sent_tokens=report.tokens_after,
        reported_tokens=usage.input_tokens if usage and usage.input_tokens else None,
        calibration_ratio=report.calibration_ratio,
        moment=str(report.moment.reason) if report.moment else None,
        kinds=kinds,
        tools=tools,
        filling=replayed.points,
        skipped_turns=replayed.skipped_turns,
        largest=tuple(largest),
        fates=fates,
        repairs=_repairs(replayed),
        stages=tuple(
            StageNote(stage=line.stage, outcome=line.outcome, reasons=line.reasons)
            for line in report.lines
        ),
        said=_turn_line(report, fates, turn, next_request=not transcript.requests),
    )


def _recording(transcript: RecordedSession, file: str, run: int, runs: int) -> Recording:
    def plain(text: str | None) -> str | None:
        return plain_line(text) if text else None

    return Recording(
        file=plain_line(file),
        kind=transcript.kind,
        format=transcript.format,
        version=plain(transcript.version),
        model=plain(transcript.model),
        session_id=plain(transcript.session_id),
        run=run,
        runs=runs,
        messages=len(transcript.items),
        requests=len(transcript.requests),
        compactions=transcript.compactions,
        passed_over=tuple(shown_text(line) for line in transcript.passed_over),
    )


def _shares(
    replayed: Replay, names: dict[CallId, str], weigher: Weigher
) -> tuple[tuple[KindShare, ...], tuple[ToolShare, ...]]:
    """What came and what was sent by kind, each adding up to the report's total."""
    report = replayed.report
    came = sort_rows(report.entries, names, weigher)
    sent = sort_rows(report.view.rows, names, weigher)
    for found in (came, sent):
        found.kinds["system"] += replayed.fixed.system_tokens
        found.kinds["tools"] += replayed.fixed.tools_tokens
        found.kinds["not recorded"] += replayed.fixed.unrecorded_tokens
    came_tokens = apportioned([came.kinds[kind] for kind in KINDS], report.tokens_before)
    sent_tokens = apportioned([sent.kinds[kind] for kind in KINDS], report.tokens_after)
    kinds = tuple(
        KindShare(kind=kind, came_tokens=came_tokens[at], sent_tokens=sent_tokens[at])
        for at, kind in enumerate(KINDS)
    )
    results = KINDS.index("tool results")
    by_tokens = [tool for tool, _ in came.tools.most_common()]
    tool_came = apportioned([came.tools[tool] for tool in by_tokens], came_tokens[results])
    tool_sent = apportioned([sent.tools[tool] for tool in by_tokens], sent_tokens[results])
    tools = tuple(
        ToolShare(
            tool=plain_line(tool),
            results=came.results[tool],
            came_tokens=tool_came[at],
            sent_tokens=tool_sent[at],
        )
        for at, tool in enumerate(by_tokens)
    )
    return kinds, tools


def _fates(
    transcript: RecordedSession, replayed: Replay, messages: list[Message], names: dict[CallId, str]
) -> tuple[MessageFate, ...]:
    report = replayed.report
    estimate = report.fixed_tokens + sum([entry.tokens for entry in report.entries])
    ratio = report.tokens_before / estimate if estimate else 1.0
    shown = tuple(replayed.request.shown)

    def told(fate: Fate) -> MessageFate:
        message = messages[fate.place] if fate.place is not None else None
        return MessageFate(
            number=None if fate.place is None else fate.place + 1,
            line=None if fate.place is None else transcript.items[shown[fate.place]].line,
            role=fate.role,
            what=plain_line(_what(message, names)) if message else "recollect",
            fate=fate.fate,
            reasons=fate.reasons[-1:] if fate.fate == "left out" else fate.reasons,
            tokens_before=round(fate.tokens_before * ratio),
            tokens_after=round(fate.tokens_after * ratio),
            excerpt=excerpt_of(message.parts) if message else "",
        )

    return tuple(told(fate) for fate in report.fates())


def _what(message: Message, names: dict[CallId, str]) -> str:
    """What a reader knows a message by: its tool, else its role."""
    if message.summary:
        return "summary"
    for part in message.parts:
        if isinstance(part, ToolResult):
            return f"{part.name or names.get(part.call_id, '?')} result"
    for part in message.parts:
        if isinstance(part, ToolCall) and message.role == "assistant":
            return f"{part.name} call"
    return message.role


def _repairs(replayed: Replay) -> tuple[RepairCount, ...]:
    report = replayed.report
    numbers: dict[EntryKey, int] = {
        entry.key: place for place, entry in enumerate(report.entries, 1)
    }
    counts: list[RepairCount] = []
    for (kind, reason), places in replayed.repaired.items():
        now = [r for r in report.repairs if (r.kind, r.reason) == (kind, reason)]
        touched = [numbers[r.anchor] for r in now if r.anchor in numbers]
        counts.append(
            RepairCount(
                kind=kind,
                reasons=(reason,),
                this_turn=len(now),
                session=len(places),
                numbers=tuple(sorted(set(touched))),
            )
        )
    return tuple(sorted(counts, key=lambda count: (-count.session, count.reason)))


def _turn_line(
    report: Report, fates: tuple[MessageFate, ...], turn: int, *, next_request: bool
) -> str:
    """The turn in one sentence."""
    subject = "The next request" if next_request else f"Turn {turn}"
    came, sent = report.tokens_before, report.tokens_after
    limit = report.limit_tokens
    did: list[str] = []
    for word, kind in (("left out", "left out"), ("changed", "changed")):
        count = sum(fate.fate == kind for fate in fates)
        if count:
            did.append(f"{count:,} {'message' if count == 1 else 'messages'} {word}")
    own = sum(fate.fate == "inserted" for fate in fates)
    if own:
        did.append(f"{own:,} of our own put in")
    if report.over_limit:
        return (
            f"{subject} came with {came:,} tokens and is still at {sent:,}, over the limit of "
            f"{limit:,}: what is left is protected."
        )
    if not did:
        return f"{subject} goes out as it came: {came:,} tokens, within the limit of {limit:,}."
    return (
        f"{subject} came with {came:,} tokens and goes out with {sent:,}, within the limit of "
        f"{limit:,}: {_joined(did)}."
    )


def _joined(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


@click.command("explain")
@click.argument("file", metavar="FILE", required=False, default="")
@click.option(
    "--live",
    is_flag=True,
    help="FILE is a session at a running gateway, or the end of its name; none: the newest.",
)
@click.option(
    "--url", help="With --live: the gateway; else those of yours in this project, or all."
)
@click.option("--window", metavar="N", help="Replay in a window of N tokens: 32k, 200_000, 1M.")
@click.option("--turn", type=int, metavar="K", help="Explain request K. Default: -1, the last.")
@click.option("--run", type=int, metavar="N", help="Which run, for a file that holds several.")
@click.option("--preset", metavar=f"[{'|'.join(PRESETS)}]", help="Settings to replay under.")
@click.option("--all", "every", is_flag=True, help="List every message, none joined with others.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain(
    *,
    file: str,
    live: bool,
    url: str | None,
    window: str | None,
    turn: int | None,
    run: int | None,
    preset: str | None,
    every: bool,
    as_json: bool,
) -> None:
    """Show where the tokens of a session go and what becomes of each message.

    FILE is a session of pi, OpenClaw, Claude Code or Codex, a flat log, a list of messages or
    a request body, gzipped or not; what it is shows by itself. A dash reads standard input.
    """
    if live:
        from recollect.surfaces.cli.tail import show_live

        show_live(file, url=url, as_json=as_json)
        return
    if not file:
        raise click.UsageError("Missing argument 'FILE'.")
    window_tokens = window_from(window) if window is not None else None
    with ShownProgress() as progress:
        name = plain_line("standard input" if file == "-" else Path(file).name)
        runs = read_transcripts(_contents(file, name), name=name, progress=progress.reading)
        number = _choice(run, len(runs), what="run", default=1)
        transcript = runs[number - 1]
        if not transcript.items:
            raise FormatError(f"{name} holds no messages yet; there is nothing to explain")
        turns = len(requests_of(transcript))
        at = _choice(turn, turns, what="turn", default=turns)
        settings, source = _settings(transcript, window_tokens, preset)
        replayed = asyncio.run(replay(transcript, settings, turn=at, progress=progress.replaying))
    explained = explain_session(
        transcript,
        replayed,
        settings,
        turn=at,
        file=name,
        run=number,
        runs=len(runs),
        window_source=source,
    )
    _show(explained, every=every, as_json=as_json)


def _choice(given: int | None, count: int, *, what: str, default: int) -> int:
    """One of `count`, from 1; negative numbers count from the end."""
    if given is None:
        return default
    chosen = given if given > 0 else count + 1 + given
    if given == 0 or not 1 <= chosen <= count:
        only = f"the only {what} is 1" if count == 1 else f"{what}s go from 1 to {count:,}"
        back = "" if count == 1 else f", or back from -1 to -{count:,}"
        raise RecollectError(f"--{what} {given}: {only}{back}")
    return chosen


def _contents(file: str, name: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        if Path(file).exists() and not (Path(file).is_file() or Path(file).is_dir()):
            raise FormatError(f"{name} is no regular file; give `-` to read standard input")
        return Path(file).read_bytes()
    except IsADirectoryError:
        raise FormatError(f"{name} is a folder; give the session file inside it") from None
    except (OSError, ValueError) as problem:
        said = getattr(problem, "strerror", None) or str(problem)
        raise FormatError(f"{name} cannot be read: {said}") from None


def _settings(
    transcript: RecordedSession, window_tokens: int | None, preset: str | None
) -> tuple[Settings, WindowSource]:
    """The user's settings with a window, and where the window came from."""
    arguments: dict[str, object] = {"preset": preset} if preset else {}
    loaded = config.load_settings(arguments=arguments)
    window = window_of(transcript.model, loaded.settings)
    source: WindowSource = "model" if window.source == "model" else "default"
    tokens = window.tokens
    if loaded.settings.window_tokens is not None:
        source = "settings"
    elif transcript.window_tokens:
        tokens, source = transcript.window_tokens, "recording"
    if window_tokens is not None:
        tokens, source = window_tokens, "argument"
    arguments["window_tokens"] = tokens
    return config.load_settings(arguments=arguments).settings, source


def _show(explained: Explained, *, every: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(explained.as_json(), ensure_ascii=False, indent=2))
        return
    # the drawing library only when something is drawn
    from rich.console import Console

    from recollect.surfaces.cli.draw_session import draw_session

    console = Console(highlight=False, markup=False, emoji=False)
    draw_session(explained, console, every=every)
