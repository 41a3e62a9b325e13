"""`recollect explain FILE`: where a session's tokens go, and what became of each message.

Owns the command: reading the file, choosing run, turn and window, and progress. Data goes to
standard output, progress to standard error if that is a terminal. Changes nothing on disk.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.cli.progress import ShownProgress
from recollect.cli.store_options import console, print_json
from recollect.core.formats.transcripts import read_transcripts
from recollect.core.rules.budget import window_of
from recollect.errors import FormatError, RecollectError
from recollect.hosts.inspect.explained import WindowSource, explain_session
from recollect.hosts.inspect.recorded import replay, requests_of
from recollect.hosts.inspect.text import turn_line
from recollect.system import config
from recollect.system.config.load import PRESETS
from recollect.system.plain_text import plain_line, window_from

if TYPE_CHECKING:
    from recollect.core.values.transcript import RecordedSession
    from recollect.system.config import Settings


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
        from recollect.cli.tail import show_live

        show_live(file, url=url, as_json=as_json)
        return
    if not file:
        raise click.UsageError("Missing argument 'FILE'.")
    window_tokens = window_from(window) if window is not None else None
    with ShownProgress() as progress:
        name = plain_line("standard input" if file == "-" else Path(file).name)
        runs = read_transcripts(_contents(file, name), name=name)
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
    if as_json:
        print_json({**explained.as_json(), "said": turn_line(explained)})
        return
    from recollect.hosts.inspect.drawn import draw_session  # loads rich

    draw_session(explained, console(), every=every)


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
