"""`recollect import PATH…`: recorded sessions and OpenClaw's files into a memory.

Owns the command: which session a recording becomes, progress, and the tale of what became of
every file. Files that are read are never altered. Interrupted, it can be run again: what is
stored is skipped.
"""

from __future__ import annotations

import mmap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.errors import FormatError, RecollectError, UnknownFormat
from recollect.formats.openclaw_files import read_vmem
from recollect.formats.transcripts import read_transcripts
from recollect.rules.tokens import Weigher
from recollect.surfaces.cli.facts.waiting import said_waiting, sessions_waiting
from recollect.surfaces.cli.import_sources import (
    KNOWLEDGE,
    SEGMENTS,
    VECTORS,
    OpenclawFolder,
    Recorded,
    find_sources,
)
from recollect.surfaces.cli.import_told import FileTold, counted, summed, tell, totals
from recollect.surfaces.cli.progress import ShownProgress
from recollect.surfaces.cli.store_options import Place, print_json, store_options, with_store
from recollect.transfer.openclaw import FileCounts, VectorFile, import_facts, import_segments
from recollect.transfer.transcripts import ImportRules, import_transcript

if TYPE_CHECKING:
    from recollect.ports import Store
    from recollect.values.transcript import RecordedSession


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One call of the command."""

    store: Store
    rules: ImportRules
    session: str | None
    progress: ShownProgress
    restore: bool


@click.command("import")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", type=click.Path(path_type=Path))
@click.option("--session", metavar="NAME", help="Call the session so, whatever the file says.")
@click.option(
    "--restore",
    is_flag=True,
    help="It is an export of your own: facts keep their trust, maker and pins.",
)
@click.option("--quiet", is_flag=True, help="Tell only what went wrong.")
@store_options
def import_(
    *,
    paths: tuple[Path, ...],
    session: str | None,
    restore: bool,
    quiet: bool,
    url: str | None,
    space: str,
    as_json: bool,
) -> None:
    """Take recorded sessions into a memory.

    PATH is a session file of pi, OpenClaw, Claude Code or Codex, a log, a list of messages, a
    folder or archive of them, or a folder with segments.jsonl, knowledge.jsonl and vectors.bin.
    Run it again at any time: what is stored is skipped.
    """
    for path in paths:
        if not path.exists():
            raise FormatError(f"{path} is not there; give a file or a folder")
        if not (path.is_file() or path.is_dir()):  # a pipe would be waited for
            raise FormatError(f"{path} is no regular file; give a file or a folder")
    if session is not None and sum(1 for _ in find_sources(paths)) > 1:
        raise RecollectError("--session names one session, but several files were found")
    with ShownProgress(quiet=quiet or as_json) as progress:

        async def work(store: Store, place: Place) -> tuple[list[FileTold], int]:
            run = _Run(
                store=store,
                rules=_rules(place),
                session=session,
                progress=progress,
                restore=restore,
            )
            told = []
            for source in find_sources(paths):  # archives are read one file at a time
                told.append(await _import(source, run))
                if not as_json:
                    progress.clear()
                    tell(told[-1], quiet=quiet)
            return told, await sessions_waiting(store) if told else 0

        told, waiting = with_store(url, space, work, create=True)
    if not told:
        raise FormatError("nothing in there could be a recording; name the files themselves")
    _tell_all(told, waiting, quiet=quiet, as_json=as_json)
    if any(one.problem for one in told):
        raise SystemExit(1)


def _tell_all(told: list[FileTold], waiting: int, *, quiet: bool, as_json: bool) -> None:
    if as_json:
        files = [one.as_json() for one in told]
        print_json({"files": files, "totals": totals(told), "sessions_waiting": waiting})
    elif not quiet:
        if len(told) > 1:
            click.echo(f"in all: {counted(summed(told))}")
        if waiting:
            click.echo(f"recollect: {said_waiting(waiting)}", err=True)


def _rules(place: Place) -> ImportRules:
    return ImportRules(
        secret=place.secret,
        redaction=place.settings.redaction,
        weigher=Weigher(place.settings.tokens.counter),
        now=time.time(),
        facts=place.settings.facts.enabled,
    )


async def _import(source: Recorded | OpenclawFolder, run: _Run) -> FileTold:
    """One file; what cannot be read is told and keeps no other one out."""
    try:
        if isinstance(source, OpenclawFolder):
            return await _import_openclaw(source, run)
        return await _import_recording(source, run)
    except UnknownFormat:
        said = "no reader knows it; docs/transcripts.md lists what is read"
        return FileTold(file=source.name, kind="unknown", problem=said)
    except FormatError as problem:
        said = " ".join(str(problem).split())
        return FileTold(file=source.name, kind="unknown", problem=said)
    except OSError as problem:
        said = f"{source.name} cannot be read: {problem.strerror or problem}"
        return FileTold(file=source.name, kind="unknown", problem=said)


async def _import_recording(source: Recorded, run: _Run) -> FileTold:
    show = run.progress.show
    transcripts = read_transcripts(
        source.read(),
        name=source.name,
        progress=lambda done, total: show(f"reading {source.name}", done, total),
    )
    if run.session is not None and len(transcripts) > 1:
        raise RecollectError(
            f"--session names one session, but {source.name} holds {len(transcripts):,}"
        )
    told = FileTold(file=source.name, kind=transcripts[0].kind, sessions=len(transcripts))
    several = len(transcripts) > 1
    for number, transcript in enumerate(transcripts, 1):
        if several:
            show(source.name, number, len(transcripts))
        counts = await import_transcript(
            run.store,
            transcript,
            session=run.session or session_name(transcript, source.stem, number, several=several),
            file=source.name,
            file_said_at=source.modified_at,
            rules=run.rules,
            progress=None if several else lambda done, total: show(source.name, done, total),
        )
        told.messages = told.messages.plus(counts)
        told.passed_over += transcript.passed_over
    return told


def session_name(transcript: RecordedSession, stem: str, number: int, *, several: bool) -> str:
    """What a recording's session is called: its own name, else one from its file.

    The runs of one file are numbered by their benchmark, alike in every file of it.
    """
    if transcript.session_id and transcript.kind != "tau-bench":
        return transcript.session_id
    if transcript.session_id:
        return f"{stem} {transcript.session_id}"
    return f"{stem} {number}" if several else stem


async def _import_openclaw(source: OpenclawFolder, run: _Run) -> FileTold:
    told = FileTold(file=source.name, kind="openclaw")
    if SEGMENTS in source.files:
        done = await _import_segments(source, run)
        told.messages, told.altered, told.passed_over = (
            done.messages,
            done.altered,
            done.passed_over,
        )
        told.vectors = done.vectors if VECTORS in source.files else None
    elif VECTORS in source.files:
        raise FormatError(f"{VECTORS} says nothing without the {SEGMENTS} beside it")
    if KNOWLEDGE in source.files:
        with (source.folder / KNOWLEDGE).open("rb") as file:
            facts = await import_facts(run.store, file, rules=run.rules, restore=run.restore)
        told.facts = facts.messages
        told.altered += facts.altered
        told.passed_over += tuple(f"{KNOWLEDGE} {said}" for said in facts.passed_over)
    return told


async def _import_segments(source: OpenclawFolder, run: _Run) -> FileCounts:
    def show(done: int, _: int) -> None:
        run.progress.show(source.name, done, None)

    async def read(vectors: VectorFile | None) -> FileCounts:
        with (source.folder / SEGMENTS).open("rb") as file:
            return await import_segments(
                run.store,
                file,
                vectors=vectors,
                rules=run.rules,
                session=run.session,
                progress=show,
            )

    path = source.folder / VECTORS
    if VECTORS not in source.files or not path.stat().st_size:
        return await read(None)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return await read(VectorFile(read_vmem(data), data))
