"""`recollect export DIR`: a memory as segments.jsonl and knowledge.jsonl.

Owns the files: each is written whole under a temporary name, for its owner alone, and then
given its own. What was imported from such files comes out byte for byte. With `--session` it is a
session of the agent instead, for people or whole.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from recollect.agent.chat.output import harmless
from recollect.cli.progress import ShownProgress
from recollect.cli.store_options import (
    Place,
    print_json,
    store_options,
    with_store,
)
from recollect.core.formats.openclaw_files import KNOWLEDGE, SEGMENTS
from recollect.core.transfer.export import export_facts, export_segments
from recollect.errors import RecollectError
from recollect.system.durable import replacing

if TYPE_CHECKING:
    from recollect.core.ports import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOutcome:
    """What was written."""

    folder: str
    segments: int
    facts: int
    spool_waiting: int
    """Batches that another process has yet to hand over: the export lacks them."""


@click.command("export")
@click.argument("target", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Write over files that are there.")
@click.option(
    "--session",
    "wanted",
    metavar="WHICH",
    help="Instead a session of this folder, by key, id or name, into the file DIR: as Markdown, "
    "or as it is where the name ends in .jsonl; a dash prints Markdown.",
)
@store_options
@click.pass_context
def export(
    ctx: click.Context,
    *,
    target: Path,
    force: bool,
    wanted: str | None,
    url: str | None,
    space: str,
    as_json: bool,
) -> None:
    """Write a space as segments.jsonl and knowledge.jsonl into DIR."""
    if wanted is not None:
        named = ctx.get_parameter_source("space") is ParameterSource.COMMANDLINE
        own = space if named else str(Path.cwd().resolve())
        _export_session(own, wanted, target, force=force, as_json=as_json)
        return
    folder = target
    there = [name for name in (SEGMENTS, KNOWLEDGE) if (folder / name).exists()]
    if there and not force:
        raise RecollectError(
            f"{folder} holds {' and '.join(there)}; give another folder, or --force to replace them"
        )
    with ShownProgress(quiet=as_json) as progress:

        async def work(store: Store, place: Place) -> ExportOutcome:
            return await _export(store, folder, progress, spool_waiting=place.spool_waiting)

        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise RecollectError(f"{folder} cannot be made: {problem.strerror}") from None

        outcome = with_store(url, space, work, spool="drained")
    if as_json:
        print_json(asdict(outcome))
    else:
        _print_outcome(outcome)
    if outcome.spool_waiting:
        raise SystemExit(1)


def _export_session(space: str, wanted: str, file: Path, *, force: bool, as_json: bool) -> None:
    from recollect.adapters.session import read_session_file, transcript_file
    from recollect.adapters.session.exported import export_session, session_markdown
    from recollect.hosts.inspect.sessions import session_meant, sessions_of

    transcript = transcript_file(space, session_meant(sessions_of(space), wanted).session_id)
    if str(file) == "-":
        click.echo(harmless(session_markdown(read_session_file(transcript))))
        return
    done = export_session(transcript, file, replace=force)
    if as_json:
        print_json(asdict(done))
    else:
        click.echo(f"{done.file}: session {done.session_id}, {done.bytes_written:,} bytes")


def _print_outcome(outcome: ExportOutcome) -> None:
    click.echo(f"{outcome.folder}: {outcome.segments:,} segments, {outcome.facts:,} facts")


async def _export(
    store: Store, folder: Path, progress: ShownProgress, *, spool_waiting: int
) -> ExportOutcome:
    with replacing(folder / SEGMENTS) as file:
        segments = await export_segments(
            store, file, lambda done: progress.show("segments", done, None)
        )
    with replacing(folder / KNOWLEDGE) as file:
        facts = await export_facts(store, file)
    return ExportOutcome(
        folder=str(folder), segments=segments, facts=facts, spool_waiting=spool_waiting
    )
