"""`recollect explain|receipt|replay|undo`: show a session's requests, and undo a compaction.

Only `undo` changes the memory. You can name a session by its key, name, id or an id prefix."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from recollect.cli.store_options import (
    Memory,
    ShownProgress,
    SpoolUse,
    change_options,
    confirm_change,
    instant,
    json_option,
    memory_options,
    print_json,
    when,
    yes_option,
)
from recollect.errors import FormatError, RecollectError
from recollect.hosts.inspect.sessions import (
    engine_without_models,
    list_stored_sessions,
    read_receipts,
    resolve_session,
)
from recollect.system import config
from recollect.system.plain_text import plain_line, window_from

if TYPE_CHECKING:
    from recollect.core.engine.rebuild import Rebuilt
    from recollect.core.ports import Store
    from recollect.core.values.transcript import RecordedSession
    from recollect.hosts.inspect.explained import WindowSource
    from recollect.hosts.inspect.sessions import Receipts
    from recollect.system.config import Settings

_CHAT: Final = "main"
_NO_SESSION: Final = (
    "`recollect memory sessions` lists the sessions of a space, `recollect space list` the spaces"
)
session_argument: Final = click.argument("session", default="", metavar="[SESSION]")


@click.command("explain")
@click.argument("file", metavar="FILE")
@click.option("--window", metavar="N", help="Replay in a window of N tokens: 32k, 200_000, 1M.")
@click.option(
    "--turn", type=int, default=-1, metavar="K", help="Explain request K. Default: -1, the last."
)
@click.option("--all", "lists_all", is_flag=True, help="List every message on its own line.")
@click.option(
    "--svg",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Draw the tokens of each turn up to request K as a picture into this file.",
)
@json_option
def explain(
    *,
    file: str,
    window: str | None,
    turn: int,
    lists_all: bool,
    svg: Path | None,
    as_json: bool,
) -> None:
    """Show how many tokens each part of a session takes, and what Recollect would do with each
    message.

    FILE is a session of pi, OpenClaw, Claude Code or Codex, a list of messages, or the body of a
    request. FILE may be gzipped, and its format is detected. Pass - to read standard input."""
    from recollect.core.formats.transcripts import read_transcripts
    from recollect.hosts.inspect.explained import explain_session, replay, requests_of, turn_line

    window_tokens = window_from(window) if window is not None else None
    with ShownProgress() as progress:
        name = plain_line("standard input" if file == "-" else Path(file).name)
        runs = read_transcripts(_contents(file, name), name=name)
        transcript = runs[0]
        if not transcript.items:
            raise FormatError(f"{name} has no messages yet; there is nothing to explain")
        turn_number = _number_of_turn(turn, len(requests_of(transcript)))
        settings, source = _settings(transcript, window_tokens)
        show = partial(progress.show, "replaying")
        replay_result = asyncio.run(replay(transcript, settings, turn=turn_number, progress=show))
    if svg is not None:
        from recollect.hosts.inspect.svg import standalone_svg, timeline

        try:
            svg.write_text(
                standalone_svg(timeline(replay_result.timeline, legend=True)), encoding="utf-8"
            )
        except OSError as problem:
            raise RecollectError(f"{svg} cannot be written: {problem.strerror}") from None
        if not as_json:
            click.echo(f"wrote the turns 1 to {turn_number:,} to {svg}")
            return
    explanation = explain_session(
        transcript,
        replay_result,
        settings,
        turn=turn_number,
        file=name,
        runs=len(runs),
        window_source=source,
    )
    if as_json:
        print_json({**explanation.as_json(), "said": turn_line(explanation)})
        return
    from recollect.hosts.inspect.text import session_lines  # imports rich

    for line in session_lines(explanation, _width(), lists_all=lists_all):
        click.echo(line)


def _width() -> int:
    from recollect.hosts.inspect.text import MIN_WIDTH

    return max(MIN_WIDTH, shutil.get_terminal_size().columns)


def _number_of_turn(turn: int, count: int) -> int:
    number = turn if turn > 0 else count + 1 + turn
    if turn == 0 or not 1 <= number <= count:
        raise RecollectError(
            f"--turn {turn} must be from 1 to {count:,}, or from -1 (the last) to -{count:,}"
        )
    return number


def _contents(file: str, name: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        if Path(file).exists() and not (Path(file).is_file() or Path(file).is_dir()):
            raise FormatError(f"{name} must be a regular file; give `-` to read standard input")
        return Path(file).read_bytes()
    except FileNotFoundError:
        replay_hint = f"`recollect replay {shlex.quote(name)} --turn N` shows a stored session"
        raise FormatError(f"there is no file {name}; {replay_hint}") from None
    except IsADirectoryError:
        raise FormatError(f"{name} is a folder; give the session file inside it") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise FormatError(f"{name} cannot be read: {reason}") from None


def _settings(
    transcript: RecordedSession, window_tokens: int | None
) -> tuple[Settings, WindowSource]:
    from recollect.core.rules.budget import window_of

    settings = config.load_settings().settings
    window = window_of(transcript.model, settings)
    source: WindowSource = "model" if window.source == "model" else "default"
    tokens = window.tokens
    if settings.window_tokens is not None:
        source = "settings"
    elif transcript.window_tokens:
        tokens, source = transcript.window_tokens, "recording"
    if window_tokens is not None:
        tokens, source = window_tokens, "argument"
    return replace(settings, window_tokens=tokens), source


@click.command("receipt")
@session_argument
@click.option(
    "--number",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show the compaction with this number. Default: the newest.",
)
@click.option("--list", "lists_all", is_flag=True, help="List the session's compactions.")
@memory_options
async def receipt(*, session: str, number: int | None, lists_all: bool, memory: Memory) -> None:
    """Show what a compaction kept, what can be recalled, and what is lost.

    SESSION is an id, an id prefix or a name. Default: the session used last."""
    async with _open_session(memory, session, spool="reported") as (store, name):
        receipts = await read_receipts(store, name)
    if lists_all:
        memory.show(
            {"session": receipts.session, "compactions": receipts.rows()}, _receipt_lines(receipts)
        )
        return
    if not receipts.records:
        name, hint = plain_line(receipts.session), _NO_SESSION
        if receipts.is_known:
            hint = (
                "it was not compacted, or its receipt was forgotten. Its messages: `recollect "
                f"memory show {shlex.quote(name)}`"
            )
        raise RecollectError(f"no compaction of session {name!r} is stored in this space; {hint}")
    page = receipts.page(number)
    if memory.as_json:
        print_json(page.as_json())
        return
    from recollect.hosts.inspect.text import receipt_lines  # imports rich

    for line in receipt_lines(page, _width()):
        click.echo(line)


def _receipt_lines(receipts: Receipts) -> list[str]:
    rows = receipts.rows()
    if not rows:
        return [f"No compaction of {plain_line(receipts.session)!r} is stored in this space."]
    lines = [
        "   n  when              trigger     tokens             lost  recallable  pinned  unchecked"
    ]
    for record, row in zip(receipts.records, rows, strict=True):
        tokens = f"{row['tokens_before']:>8,} → {row['tokens_after']:<8,}"
        lines.append(
            f"{record.number:>4}  {when(record.at):16}  {row['trigger']:10}{tokens} "
            f"{row['lost']:>5}  {row['recallable']:>10}  {row['pinned']:>6}  "
            f"{row['not_checked']:>9,}"
            + ("  undone" if row["undone"] else "")
            + (f"  {row['host']}" if row["host"] else "")
        )
    return lines


@click.command("replay")
@session_argument
@click.option(
    "--turn", type=click.IntRange(min=1), metavar="N", help="Print the request of this turn."
)
@click.option("--list", "lists_all", is_flag=True, help="List the stored turns.")
@memory_options
async def replay(*, session: str, turn: int | None, lists_all: bool, memory: Memory) -> None:
    """Print the request of a past turn as it was sent.

    Each request is one turn, as in reports, receipts and `recollect explain`. SESSION is an id, an
    id prefix or a name. Default: the session used last."""
    from recollect.core.engine.rebuild import NotRebuilt, Rebuilt, list_turns, rebuild_request
    from recollect.hosts.inspect.turns import MAX_LISTED, format_excerpt, turns_text

    if turn is None and not lists_all:
        raise RecollectError("pass --turn N, or --list to list the stored turns")
    async with _open_session(memory, session, spool="reported") as (store, name):
        rebuilt_turn = (
            None if turn is None or lists_all else await rebuild_request(store, name, turn)
        )
        listed_turns = () if isinstance(rebuilt_turn, Rebuilt) else await list_turns(store, name)
        is_unknown = isinstance(rebuilt_turn, NotRebuilt) and not listed_turns
        is_unknown = is_unknown and await store.session(name) is None
        if is_unknown and name not in {stored.session for stored in await store.sessions()}:
            raise _no_session(name)
    lines = turns_text(listed_turns)
    if rebuilt_turn is None:
        turns = [
            {"turn": record.turn, "at": instant(record.at), "said": format_excerpt(record.said)}
            for record in listed_turns
        ]
        nothing = f"No turn of session {plain_line(name)!r} is in the ledger."
        memory.show({"session": name, "turns": turns}, lines or [nothing])
    elif isinstance(rebuilt_turn, Rebuilt):
        _print_request(memory, name, rebuilt_turn)
    else:
        for line in lines[-MAX_LISTED:] if not memory.as_json else ():
            click.echo(line, err=True)
        raise RecollectError(f"session {plain_line(name)!r}: {rebuilt_turn.reason}")


def _print_request(memory: Memory, name: str, rebuilt: Rebuilt) -> None:
    from recollect.core.formats.json_text import decode
    from recollect.hosts.inspect.turns import describe_request

    record = rebuilt.record
    if memory.as_json:
        print_json(
            {
                "session": name,
                "turn": record.number,
                "at": instant(record.at),
                "format": record.format,
                "model": record.model,
                "exact": rebuilt.exact and not rebuilt.is_reconstructed,
                "reconstructed": rebuilt.is_reconstructed,
                "missing": list(rebuilt.missing),
                "redacted": list(rebuilt.redacted),
                "bytes": len(rebuilt.body),
                "request": decode(rebuilt.body),
                "report": None if rebuilt.report is None else decode(rebuilt.report),
            }
        )
        return
    # use standard error, so that the bytes can be piped
    click.echo(describe_request(rebuilt), err=True)
    sys.stdout.buffer.write(rebuilt.body + (b"\n" if sys.stdout.isatty() else b""))
    sys.stdout.buffer.flush()


@click.command("undo")
@session_argument
@yes_option
@change_options
async def undo(*, session: str, yes: bool, memory: Memory) -> None:
    """Undo a session's last compaction: its next requests contain the original messages again.

    A running agent still sends one turn with the summary before the undo takes effect. Compactions
    by Claude Code or Codex themselves (with hooks) cannot be undone. SESSION is an id, an id prefix
    or a name. Default: the session used last."""
    async with _open_session(memory, session) as (store, name):
        rows = (await read_receipts(store, name)).rows()
        if rows and all(row["host"] for row in rows):
            raise RecollectError(
                f"{rows[-1]['host']} compacted this session itself, and `recollect undo` only "
                "undoes compactions by Recollect. The messages are still in memory"
            )
        # an engine would create a missing store
        if await store.session(name) is None:
            raise _no_session(name)
    confirm_change(f"Undo the last compaction of {plain_line(name)}?", yes=yes)
    async with engine_without_models(memory.space, memory.url, memory.settings) as engine:
        result = await engine.undo(name)
    if memory.as_json:
        number = None if result.undone is None else result.undone.number
        value = {"session": name, "undone": result.undone is not None, "number": number}
        print_json({**value, "reason": str(result.reason)})
    else:
        click.echo(plain_line(str(result.reason)), err=result.undone is None)
    if result.undone is None:
        raise SystemExit(1)


def _no_session(name: str) -> RecollectError:
    return RecollectError(f"no session {plain_line(name)!r} is stored in this space; {_NO_SESSION}")


@asynccontextmanager
async def _open_session(
    memory: Memory, session: str, *, spool: SpoolUse = "ignored"
) -> AsyncIterator[tuple[Store, str]]:
    """Open the memory of a session, and resolve the session's name. Default: this folder's chat, or
    else the newest session."""
    name = memory.find_session(session or _CHAT)
    async with memory.open(spool=spool) as store:
        if session or name != _CHAT:
            name = await resolve_session(store, name)
        elif sessions := await list_stored_sessions(store):
            name = sessions[0].session_id
        yield store, name
