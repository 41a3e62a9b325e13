"""`recollect memory add|index|reindex|check|scrub|jobs`: fill a memory and maintain it.

`add`, `index` and `reindex` are safe to run next to an engine and to interrupt.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from recollect.cli.store_options import (
    Memory,
    Place,
    ShownProgress,
    instant,
    memory_options,
    new_memory_options,
    opened,
    when,
)
from recollect.core.values.batch import EXTRACT_JOB, extract_key
from recollect.errors import EmbedderError, RecollectError, StoreUnavailable
from recollect.system.plain_text import number_of, plain_line

if TYPE_CHECKING:
    from recollect.core.engine.lookup import NoteResult
    from recollect.core.ports import Embedder, Store
    from recollect.core.transfer.memory_files import MemoryFiles
    from recollect.core.upkeep.chores import Reindexed
    from recollect.core.values.batch import JobId, JobRecord, QueueState
    from recollect.core.values.upkeep import (
        CheckResult,
        FileOutcome,
        MemoryFilesResult,
        ScrubResult,
        SpoolState,
    )

    _Jobs: TypeAlias = tuple[QueueState, tuple[JobRecord, ...], dict[JobId, str], int]

_OUTCOMES: Final[tuple[FileOutcome, ...]] = ("added", "changed", "withdrawn", "unchanged")
_EVERY_KIND: Final = "*"
_KEY_CHARS: Final = 40
_MOST_JOBS: Final = 100


@click.command("add")
@click.argument("text", metavar="TEXT")
@click.option(
    "--session",
    default="notes",
    show_default=True,
    metavar="NAME",
    help="Store the note in this session.",
)
@new_memory_options
def memory_add(*, text: str, session: str, memory: Memory) -> None:
    """Store a note, as if you had sent it to an agent. Pass - to read it from standard input."""
    said = sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text
    said = said.strip()
    if not said:
        raise RecollectError("the note is empty; pass its text")

    async def work(store: Store, place: Place) -> NoteResult:
        from recollect.core.engine.lookup import keep_note
        from recollect.core.rules.tokens import Weigher

        return await keep_note(
            store,
            said,
            session=session,
            secret=place.secret,
            weigher=Weigher(place.settings.tokens.counter),
            redaction=place.settings.redaction,
            now=time.time(),
        )

    noted = memory.run(work)
    segment = noted.segment
    if segment is None:
        raise RecollectError("the note contains only a recalled block, so it was not stored")
    value = {"id": segment.id, "session": session, "outcome": noted.outcome}
    memory.show(value, lambda: click.echo(f"{noted.outcome}: {segment.id}"))
    if segment.noise is not None and noted.outcome == "stored":
        click.echo(f"recollect: it is stored but not indexed: {segment.noise}", err=True)
    if noted.outcome == "forgotten":
        click.echo("recollect: this text was forgotten on request, so it was not stored", err=True)
        raise SystemExit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FolderResult:
    folder: str
    look: MemoryFilesResult


@click.command("index")
@click.argument("folders", nargs=-1, metavar="[FOLDER…]", type=click.Path(path_type=Path))
@click.option(
    "--withdraw",
    is_flag=True,
    help="Remove the content of these folders from the memory instead.",
)
@new_memory_options
def memory_index(*, folders: tuple[Path, ...], withdraw: bool, memory: Memory) -> None:
    """Read the memory files of FOLDER into a memory. Default: the current folder.

    Reads MEMORY.md, memory.md, memory/**/*.md and the paths in index.extra_paths. Updates changed
    files, and removes text that a file no longer contains.
    """
    named = folders or (Path(),)
    for folder in named:
        if not withdraw and not folder.is_dir():
            raise RecollectError(f"{plain_line(str(folder))} must be a folder; name a workspace")
    with ShownProgress(quiet=memory.as_json) as progress:

        async def work(store: Store, place: Place) -> list[_FolderResult]:
            looked = []
            for folder in named:
                show = partial(progress.show, plain_line(folder.name) or "indexing")
                look = await _files(folder, store, place).look(withdraw=withdraw, progress=show)
                looked.append(_FolderResult(folder=str(folder), look=look))
            return looked

        looked = memory.run(work)
    totals: dict[str, int] = {
        **{kind: sum(one.look.count(kind) for one in looked) for kind in _OUTCOMES},
        "skipped": sum(len(one.look.skipped) for one in looked),
        "forgotten": sum(len(one.look.forgotten) for one in looked),
        "redacted": sum(one.look.redacted for one in looked),
    }
    value = {
        "folders": [{"folder": one.folder, **asdict(one.look)} for one in looked],
        "totals": totals,
    }
    memory.show(value, lambda: _draw_indexed(looked))
    if any(one.look.skipped and not one.look.files for one in looked):
        raise SystemExit(1)


def _files(folder: Path, store: Store, place: Place) -> MemoryFiles:
    from recollect.adapters.wiring.models import Embedders, choose_embedders
    from recollect.core.boundary import SystemClock
    from recollect.core.rules.tokens import Weigher
    from recollect.core.transfer.file_sections import FileRules
    from recollect.core.transfer.memory_files import MemoryFiles

    async def open_archive() -> Store:
        return store

    settings = place.settings
    own_files = "memory" in settings.index.sources
    if not own_files and not settings.index.extra_paths:
        raise RecollectError(
            'index.sources leaves memory files out: add "memory" to it, or name files in '
            "index.extra_paths"
        )
    vectors = choose_embedders(settings) if settings.recall.enabled else Embedders()
    return MemoryFiles(
        folder,
        settings.index.extra_paths,
        own_files=own_files,
        open_archive=open_archive,
        write=store.write,
        clock=SystemClock(),
        rules=FileRules(
            secret=place.secret,
            redaction=settings.redaction,
            weigher=Weigher(settings.tokens.counter),
            embedders=tuple(embedder.name for embedder in vectors.used),
        ),
    )


def _draw_indexed(looked: list[_FolderResult]) -> None:
    for result in looked:
        look = result.look
        if len(looked) > 1:
            click.echo(f"{plain_line(result.folder)}:")
        for file in look.files:
            if file.outcome != "unchanged":
                click.echo(f"{plain_line(file.file)}: {file.outcome}")
        for skipped in look.skipped:
            name, reason = plain_line(skipped.file), plain_line(skipped.reason)
            click.echo(f"{name}: not indexed: {reason}", err=True)
        for origin in look.forgotten:
            text = "was forgotten on request and is not indexed again; the file still contains it"
            click.echo(f"{plain_line(origin)}: {text}", err=True)
        if not look.files and not look.skipped:
            click.echo("Found no MEMORY.md, memory.md or memory/**/*.md.")
            continue
        counts_text = ", ".join(f"{look.count(kind):,} {kind}" for kind in _OUTCOMES)
        masked = f"; {look.redacted:,} secrets masked" if look.redacted else ""
        click.echo(f"{len(look.files):,} files: {counts_text}{masked}")


@click.command("reindex")
@memory_options
def memory_reindex(*, memory: Memory) -> None:
    """Rebuild the search index, and compute vectors that are missing.

    Recollect also computes missing vectors in the background; this command does it now. Rebuild
    only if the release notes ask for it.
    """
    with ShownProgress(quiet=memory.as_json) as progress:

        async def work(store: Store, place: Place) -> tuple[Reindexed, dict[str, int]]:
            from recollect.adapters.wiring.models import choose_embedders
            from recollect.core.boundary import SystemClock
            from recollect.core.upkeep.chores import reindex

            done = await reindex(store, SystemClock(), partial(progress.show, "indexing"))
            embedders = choose_embedders(place.settings).used
            return done, {one.name: await _embed_all(store, one, progress) for one in embedders}

        done, vectors = memory.run(work)

    def draw() -> None:
        click.echo(f"{done.segments:,} messages indexed, {done.passages:,} passages")
        for name, count in vectors.items():
            click.echo(f"{name}: {count:,} vectors computed")

    memory.show({**asdict(done), "vectors": vectors}, draw)


async def _embed_all(store: Store, embedder: Embedder, progress: ShownProgress) -> int:
    from recollect.core.boundary import SystemClock
    from recollect.core.upkeep.chores import embed_next
    from recollect.core.upkeep.jobs import GiveUp

    stats = await store.stats()
    missing = stats.passages - stats.vectors.get(embedder.name, 0)
    done = 0
    await embedder.load()
    while True:
        try:
            batch, more = await embed_next(store, embedder, SystemClock())
        except GiveUp as reason:
            raise EmbedderError(
                f"{embedder.name} cannot be used: {reason}; earlier vectors stay. Choose another "
                "embedder with recall.embedder"
            ) from None
        if batch.vectors:
            await store.write(batch)
            done += sum(len(vectors.vectors) for vectors in batch.vectors)
            progress.show(f"{embedder.kind} vectors", done, max(missing, 1))
        if not more:
            return done
        await asyncio.sleep(0)


@click.command("check")
@click.option("--retry", is_flag=True, help="Queue the batches again that the store refused.")
@memory_options
def memory_check(*, retry: bool, memory: Memory) -> None:
    """Check the store, and the spool that holds writes on this machine while the store is down.

    Exits 1 if it finds a problem. Shows the spool even if the store is down.
    """
    place = memory.place()
    retried, spool, result = asyncio.run(_check(place, retry=retry))
    checked = [*result.checked, f"the spool of this machine: {spool.waiting:,} batches wait"]
    problems = [*result.problems, *_spool_problems(spool)]

    def draw() -> None:
        if retry:
            click.echo(f"{number_of(retried, 'refused batch', 'refused batches')} queued again")
        for what in checked:
            click.echo(f"checked  {plain_line(what)}")
        for problem in problems:
            click.echo(f"PROBLEM  {plain_line(problem)}")
        click.echo(f"{len(problems):,} problems" if problems else "Everything is in order.")

    value = {"checked": checked, "problems": problems, "spool": asdict(spool), "retried": retried}
    memory.show(value, draw)
    if problems:
        raise SystemExit(1)


async def _check(place: Place, *, retry: bool) -> tuple[int, SpoolState, CheckResult]:
    from recollect.adapters.wiring import open_spool
    from recollect.core.values.upkeep import CheckResult

    spool = await open_spool(place.url, space=place.space, key=place.settings.store.key)
    try:
        retried = await spool.retry_refused() if retry else 0
        state = await spool.state()
    finally:
        await spool.close()
    try:
        async with opened(place) as store:
            return retried, state, await store.check()
    except StoreUnavailable as error:
        return retried, state, CheckResult(checked=(), problems=(f"store: {error}",))


def _spool_problems(state: SpoolState) -> list[str]:
    problems = []
    if state.refused:
        problems.append(
            f"spool: the store refused {number_of(state.refused, 'batch', 'batches')}, in "
            f"{', '.join(state.refused_files)} of {state.folder}: queue them again with "
            "`recollect memory check --retry`"
        )
    if state.damaged_files:
        problems.append(
            f"spool: {', '.join(state.damaged_files)} of {state.folder} cannot be read: check "
            "the disk, then delete what you do not need"
        )
    return problems


@click.command("scrub")
@click.option("--admin-url", metavar="URL", help="PostgreSQL: connect as the owner of the tables.")
@memory_options
def memory_scrub(*, admin_url: str | None, memory: Memory) -> None:
    """Erase deleted data from the database files. May take long.

    On PostgreSQL, locks each table with content while it is rewritten.
    """

    async def work(store: Store, place: Place) -> ScrubResult:
        from recollect.adapters.wiring.stores import scrub_store

        del place
        return await scrub_store(store, admin_url=admin_url)

    def draw() -> None:
        for what in result.done:
            click.echo(f"done    {plain_line(what)}")
        for what in result.cannot:
            click.echo(f"cannot  {plain_line(what)}")

    result = memory.run(work)
    memory.show(asdict(result), draw)


@click.command("jobs")
@click.option(
    "--pause",
    is_flag=False,
    flag_value=_EVERY_KIND,
    metavar="KIND",
    help="Start no more jobs of this kind.",
)
@click.option(
    "--resume", is_flag=False, flag_value=_EVERY_KIND, metavar="KIND", help="Undo --pause."
)
@click.option("--revive", is_flag=True, help="Queue jobs again that failed too often.")
@memory_options
def memory_jobs(*, pause: str | None, resume: str | None, revive: bool, memory: Memory) -> None:
    """List the background jobs of a memory; pause, resume and revive them.

    KIND is extract, embed, expire or pack; without it, all kinds.
    """

    async def work(store: Store, place: Place) -> _Jobs:
        del place
        now = time.time()
        if pause is not None:
            await store.pause(pause)
        if resume is not None:
            await store.resume(resume)
        revived = await store.revive(at=now) if revive else 0
        today = datetime.fromtimestamp(now, UTC).date().isoformat()
        jobs = await store.jobs(limit=_MOST_JOBS)
        return await store.queue(day=today), jobs, await _job_keys(store, jobs), revived

    def draw() -> None:
        if revive:
            click.echo(f"{revived:,} dead jobs are queued again")
        _draw_jobs(queue, jobs, keys)

    queue, jobs, keys, revived = memory.run(work)
    listed: list[dict[str, Any]] = [{**asdict(job), "run_at": instant(job.run_at)} for job in jobs]
    memory.show({"queue": asdict(queue), "revived": revived, "jobs": listed}, draw)


async def _job_keys(store: Store, jobs: tuple[JobRecord, ...]) -> dict[JobId, str]:
    names: dict[str, str] = {}
    if any(job.kind == EXTRACT_JOB for job in jobs):
        for session in await store.sessions():
            for left in (False, True):
                names[extract_key(session.session, left=left)] = session.session
    return {job.id: plain_line(names.get(job.key, job.key)) for job in jobs}


def _draw_jobs(queue: QueueState, jobs: tuple[JobRecord, ...], keys: dict[JobId, str]) -> None:
    text = f"{queue.waiting:,} waiting, {queue.leased:,} running, {queue.dead:,} dead"
    if queue.spent_tokens_today:
        text += f", {queue.spent_tokens_today:,} tokens reserved today"
    click.echo(text)
    if queue.paused:
        kinds = "all kinds" if _EVERY_KIND in queue.paused else ", ".join(queue.paused)
        click.echo(
            f"paused: {plain_line(kinds)}; continue with `--resume {plain_line(queue.paused[0])}`"
        )
    if not jobs:
        return
    # one line per job, never wrapped: the longest column is last
    width = max(len("key"), *(min(len(keys[job.id]), _KEY_CHARS) for job in jobs))
    click.echo(f"kind     state    tries  {'runs at':16}  {'key':{width}}  why")
    for job in jobs:
        line = (
            f"{job.kind:7}  {job.state:7}  {job.attempts:>5}  {when(job.run_at):16}  "
            f"{keys[job.id]:{width}}  {plain_line(job.reason or '')}"
        )
        click.echo(line.rstrip())
