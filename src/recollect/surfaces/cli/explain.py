"""`recollect explain FILE`: where a session's tokens go, and each message's fate.

Owns the command: reading the file, choosing run, turn and window, progress, and the way out
as a drawing, as JSON or as a picture. Data goes to standard output, progress to standard
error and only while somebody watches. Changes nothing on disk but the picture it is asked for.
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
from recollect.rules.budget import window_of
from recollect.surfaces.cli.explain_replay import replay, requests_of
from recollect.surfaces.cli.explain_session import explain_session
from recollect.surfaces.cli.explain_text import plain_line
from recollect.surfaces.cli.progress import ShownProgress

if TYPE_CHECKING:
    from recollect.config import Settings
    from recollect.surfaces.cli.explained import Explained, WindowSource
    from recollect.values.transcript import RecordedSession

LEAST_WINDOW_TOKENS = 1_000
GREATEST_WINDOW_TOKENS = 100_000_000
_UNITS = {"k": 1_000, "m": 1_000_000}


@click.command("explain")
@click.argument("file", metavar="FILE")
@click.option("--window", metavar="N", help="Replay in a window of N tokens: 32k, 200_000, 1M.")
@click.option(
    "--turn", type=int, metavar="K", help="Explain request K; −1 is the last, the default."
)
@click.option("--run", type=int, metavar="N", help="Which run, for a file that holds several.")
@click.option("--preset", metavar=f"[{'|'.join(PRESETS)}]", help="Settings to replay under.")
@click.option("--all", "every", is_flag=True, help="List every message, none joined with others.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), hidden=True)
def explain(
    *,
    file: str,
    window: str | None,
    turn: int | None,
    run: int | None,
    preset: str | None,
    every: bool,
    as_json: bool,
    svg: Path | None,
) -> None:
    """Show where the tokens of a session go and what becomes of each message.

    FILE is a session of pi, OpenClaw, Claude Code or Codex, a flat log, a list of messages or
    a request body, gzipped or not; what it is shows by itself. A dash reads standard input.
    """
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
    _show(explained, every=every, as_json=as_json, svg=svg)


def window_from(text: str) -> int:
    """A window as people write it: 32k, 200_000, 1M."""
    plain = text.strip().lower().replace("_", "").replace(",", "")
    unit = _UNITS.get(plain[-1:], 1)
    digits = plain[:-1] if plain[-1:] in _UNITS else plain
    whole, _, fraction = digits.partition(".")
    is_number = (whole + fraction).isascii() and (whole + fraction).isdigit()
    tokens = round(float(digits) * unit) if is_number and len(digits) < 16 else 0
    if not LEAST_WINDOW_TOKENS <= tokens <= GREATEST_WINDOW_TOKENS:
        raise RecollectError(
            f"--window {plain_line(text)!r}: give a number of tokens between "
            f"{LEAST_WINDOW_TOKENS:,} and {GREATEST_WINDOW_TOKENS:,}, such as 32k, 200_000 or 1M"
        )
    return tokens


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


def _show(explained: Explained, *, every: bool, as_json: bool, svg: Path | None) -> None:
    if as_json:
        click.echo(json.dumps(explained.as_json(), ensure_ascii=False, indent=2))
        return
    # the drawing library only when something is drawn
    from rich.console import Console

    from recollect.surfaces.cli.draw_session import draw_session

    if svg is not None:
        from recollect.surfaces.cli.draw_paint import short_tokens
        from recollect.surfaces.cli.draw_picture import write_picture

        called = f"$ recollect explain {explained.recording.file}"
        if explained.window.source == "argument":
            called += f" --window {short_tokens(explained.window.tokens)}"
        write_picture(explained, svg, title=called, every=every)
        return
    console = Console(highlight=False, markup=False, emoji=False)
    draw_session(explained, console, every=every)
