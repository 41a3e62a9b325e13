"""`recollect memory add|index|reindex|check|scrub|jobs`: fill a memory and maintain it.

`add`, `index` and `reindex` are safe to run next to an engine and to interrupt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from recollect.cli.store_options import (
    Memory,
    ShownProgress,
    change_options,
    confirm_change,
    instant,
    memory_options,
    new_memory_options,
    print_json,
    text_argument,
    when,
)
from recollect.core.values.batch import EXTRACT_JOB, extract_key
from recollect.errors import EmbedderError, RecollectError, StoreUnavailable
from recollect.system.plain_text import number_of, plain_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recollect.core.ports import Embedder, Store
    from recollect.core.transfer.memory_files import MemoryFiles
    from recollect.core.values.batch import JobId, JobRecord, QueueState
    from recollect.core.values.upkeep import FileOutcome, MemoryFilesResult, SpoolState

_OUTCOMES: Final[tuple[FileOutcome, ...]] = ("added", "changed", "withdrawn", "unchanged")
_ALL_KINDS: Final = "*"
_JOB_KINDS: Final = click.Choice([_ALL_KINDS, "extract", "embed", "expire", "pack"])
_kind_option: Final = partial(
    click.option, is_flag=False, flag_value=_ALL_KINDS, type=_JOB_KINDS, metavar="KIND"
)
# Not measured: a job's line fits a terminal, and a queue fits a few screens.
_KEY_CHARS: Final = 40
_MAX_JOBS: Final = 100


@click.command("add")
@text_argument
@click.option(
    "--session",
    default="notes",
    show_default=True,
    metavar="NAME",
    help="Store the note in this session.",
)
@new_memory_options
async def memory_add(*, text: str, session: str, memory: Memory) -> None:
    """Store TEXT as a note, as if you had sent it to an agent. Pass - to read TEXT from standard
    input."""
    from recollect.core.engine.lookup import keep_note
    from recollect.core.rules.tokens import Weigher

    if not text.strip():
        raise RecollectError("the note is empty; pass its text")
    async with memory.open() as store:
        note_result = await keep_note(
            store,
            text.strip(),
            session=session,
            secret=memory.secret,
            weigher=Weigher(memory.settings.tokens.counter),
            redaction=memory.settings.redaction,
            now=time.time(),
        )
    segment = note_result.segment
    if segment is None:
        raise RecollectError("the note contains only a recalled block, so it was not stored")
    value = {"id": segment.id, "session": session, "outcome": note_result.outcome}
    memory.show(value, [f"{note_result.outcome}: {segment.id}"])
    if segment.noise is not None and note_result.outcome == "stored":
        click.echo(f"recollect: the note is stored but not indexed: {segment.noise}", err=True)
    if note_result.outcome == "forgotten":
        click.echo("recollect: this text was forgotten on request, so it was not stored", err=True)
        raise SystemExit(1)


@click.command("index")
@click.argument("folders", nargs=-1, metavar="[FOLDER…]", type=click.Path(path_type=Path))
@click.option(
    "--withdraw",
    is_flag=True,
    help="Remove the content of these folders from the memory, instead of reading it.",
)
@new_memory_options
async def memory_index(*, folders: tuple[Path, ...], withdraw: bool, memory: Memory) -> None:
    """Read the memory files of FOLDER into a memory. Default: the current folder.

    Reads MEMORY.md, memory.md, memory/**/*.md and the paths in index.extra_paths. Updates changed
    files, and removes text that a file no longer contains."""
    folders = folders or (Path(),)
    memory.create = not withdraw
    for folder in folders:
        if not withdraw and not folder.is_dir():
            raise RecollectError(f"{plain_line(str(folder))} must be a folder; name a workspace")
    results: list[tuple[str, MemoryFilesResult]] = []
    with ShownProgress(quiet=memory.as_json) as progress:
        async with memory.open() as store:
            for folder in folders:
                show = partial(progress.show, plain_line(folder.name) or "indexing")
                files = _files(folder, store, memory)
                results.append((str(folder), await files.look(withdraw=withdraw, progress=show)))
    if memory.as_json:
        looks = [look for _, look in results]
        totals: dict[str, int] = {
            **{kind: sum(look.count(kind) for look in looks) for kind in _OUTCOMES},
            "skipped": sum(len(look.skipped) for look in looks),
            "forgotten": sum(len(look.forgotten) for look in looks),
            "redacted": sum(look.redacted for look in looks),
        }
        folder_results = [{"folder": name, **asdict(look)} for name, look in results]
        print_json({"folders": folder_results, "totals": totals})
    else:
        for name, look in results:
            if len(results) > 1:
                click.echo(f"{plain_line(name)}:")
            _print_indexed(look)
    if any(look.skipped and not look.files for _, look in results):
        raise SystemExit(1)


def _files(folder: Path, store: Store, memory: Memory) -> MemoryFiles:
    from recollect.adapters.wiring.models import Embedders, choose_embedders
    from recollect.core.boundary import SystemClock
    from recollect.core.rules.tokens import Weigher
    from recollect.core.transfer.file_sections import FileRules
    from recollect.core.transfer.memory_files import MemoryFiles

    async def open_archive() -> Store:
        return store

    settings = memory.settings
    own_files = "memory" in settings.index.sources
    if not own_files and not settings.index.extra_paths:
        raise RecollectError(
            'index.sources excludes memory files: add "memory" to it, or name files in '
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
            secret=memory.secret,
            redaction=settings.redaction,
            weigher=Weigher(settings.tokens.counter),
            embedders=tuple(embedder.name for embedder in vectors.used),
        ),
    )


def _print_indexed(look: MemoryFilesResult) -> None:
    for file in look.files:
        if file.outcome != "unchanged":
            click.echo(f"{plain_line(file.file)}: {file.outcome}")
    for skipped_file in look.skipped:
        name, reason = plain_line(skipped_file.file), plain_line(skipped_file.reason)
        click.echo(f"{name}: not indexed: {reason}", err=True)
    for origin in look.forgotten:
        text = "was forgotten on request and is not indexed again; the file still contains it"
        click.echo(f"{plain_line(origin)}: {text}", err=True)
    if not look.files and not look.skipped:
        click.echo("Found no MEMORY.md, memory.md or memory/**/*.md.")
        return
    counts_text = ", ".join(f"{look.count(kind):,} {kind}" for kind in _OUTCOMES)
    masked_note = f"; {look.redacted:,} secrets masked" if look.redacted else ""
    click.echo(f"{len(look.files):,} files: {counts_text}{masked_note}")


@click.command("reindex")
@change_options
async def memory_reindex(*, memory: Memory) -> None:
    """Rebuild the search index, and compute vectors that are missing.

    Recollect also computes missing vectors in the background; this command computes them now. The
    index needs a rebuild only if the release notes say so."""
    from recollect.adapters.wiring.models import choose_embedders
    from recollect.core.upkeep.chores import reindex

    with ShownProgress(quiet=memory.as_json) as progress:
        async with memory.open() as store:
            result = await reindex(store, partial(progress.show, "indexing"))
            embedders = choose_embedders(memory.settings).used
            vectors = {
                embedder.name: await _embed_all(store, embedder, progress) for embedder in embedders
            }
    lines = [f"{result.segments:,} messages indexed, {result.passages:,} passages"]
    lines += [f"{name}: {count:,} vectors computed" for name, count in vectors.items()]
    memory.show({**asdict(result), "vectors": vectors}, lines)


async def _embed_all(store: Store, embedder: Embedder, progress: ShownProgress) -> int:
    from recollect.core.boundary import SystemClock
    from recollect.core.upkeep.chores import embed_next
    from recollect.core.upkeep.jobs import GiveUp

    stats = await store.stats()
    missing = stats.passages - stats.vectors.get(embedder.name, 0)
    vector_count = 0
    await embedder.load()
    while True:
        try:
            batch, has_more = await embed_next(store, embedder, SystemClock())
        except GiveUp as reason:
            raise EmbedderError(
                f"{embedder.name} cannot be used: {reason}; earlier vectors stay. Choose another "
                "embedder with recall.embedder"
            ) from None
        if batch.vectors:
            await store.write(batch)
            vector_count += sum(len(vectors.vectors) for vectors in batch.vectors)
            progress.show(f"{embedder.kind} vectors", vector_count, max(missing, 1))
        if not has_more:
            return vector_count
        await asyncio.sleep(0)


@click.command("check")
@click.option("--retry", is_flag=True, help="Queue again the writes that the store refused.")
@click.option(
    "--discard", is_flag=True, help="Delete waiting writes that were made with another secret."
)
@memory_options
async def memory_check(*, retry: bool, discard: bool, memory: Memory) -> None:
    """Check the store, and the spool: a file on this machine that holds writes while the store is
    down.

    Exits 1 if it finds a problem. Shows the spool even if the store is down."""
    from recollect.adapters.wiring.secrets import shows_secret

    memory.only_reads = not (retry or discard)
    await memory.choose()
    if discard:  # with a wrong secret, the right writes would be the others
        confirm_change("Delete the writes that were made with another secret?", yes=False)
        async with memory.open() as store:
            if not await shows_secret(store, memory.url):
                raise RecollectError(
                    "nothing in the store shows that this RECOLLECT_SECRET made its ids, so the "
                    "batches may be the right ones: let the application store a message first"
                )
    async with memory.open_spool() as spool:
        retried_count = await spool.retry_refused() if retry else 0
        discarded_count = await spool.discard_foreign() if discard else 0
        state = await spool.state()
    try:
        async with memory.open() as store:
            result = await store.check()
        check_lines, problems = list(result.checked), list(result.problems)
    except StoreUnavailable as error:
        check_lines, problems = [], [f"store: {error}"]
    check_lines.append(f"the spool of this machine: {state.waiting:,} batches wait")
    problems += spool_problems(state)
    lines = [
        *(f"checked  {plain_line(item)}" for item in check_lines),
        *(f"PROBLEM  {plain_line(problem)}" for problem in problems),
        f"{len(problems):,} problems" if problems else "Everything is in order.",
    ]
    if retry:
        batches = number_of(retried_count, "refused batch", "refused batches")
        lines.insert(0, f"{batches} queued again")
    if discard:
        lines.insert(
            0, f"{number_of(discarded_count, 'batch', 'batches')} of another secret deleted"
        )
    counts = {"retried": retried_count, "discarded": discarded_count}
    value = {"checked": check_lines, "problems": problems, "spool": asdict(state), **counts}
    memory.show(value, lines, failed=bool(problems))


def spool_problems(state: SpoolState) -> list[str]:
    """Describe the problems of a spool, and what to do about each."""
    problems = []
    if state.foreign:
        problems.append(
            f"spool: {number_of(state.foreign, 'batch', 'batches')} in {state.folder} cannot be "
            "stored, because their ids were made with another secret, for example while the "
            "database was down. Messages are stored if the client sends them again: delete the "
            "batches with `recollect memory check --discard`"
        )
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
@click.option(
    "--admin-url",
    metavar="URL",
    help="PostgreSQL URL that logs in as the owner of the tables. Needed if the store's URL logs"
    " in as another role.",
)
@change_options
async def memory_scrub(*, admin_url: str | None, memory: Memory) -> None:
    """Erase deleted data from the database files. May take long.

    On PostgreSQL, rewrites all tables with content, if data of this memory was removed. Locks each
    table while rewriting it. --space may name a deleted memory."""
    from recollect.adapters.wiring.stores import scrub_store

    async with memory.open() as store:
        result = await scrub_store(store, admin_url=admin_url)
    lines = [f"done    {plain_line(item)}" for item in result.done]
    lines += [f"cannot  {plain_line(item)}" for item in result.cannot]
    memory.show(asdict(result), lines)


@click.command("jobs")
@_kind_option("--pause", help="Start no more jobs of this kind.")
@_kind_option("--resume", help="Start jobs of this kind again, after --pause.")
@click.option("--revive", is_flag=True, help="Queue jobs again that failed too often.")
@memory_options
async def memory_jobs(
    *, pause: str | None, resume: str | None, revive: bool, memory: Memory
) -> None:
    """List the background jobs of a memory. With an option, pause, resume or revive jobs.

    KIND is extract (find facts), embed (compute vectors), expire (delete old records) or pack
    (reorder the word index). Without KIND, an option applies to all kinds."""
    from recollect.core.upkeep.jobs import day_of

    now = time.time()
    memory.only_reads = pause is None and resume is None and not revive
    async with memory.open() as store:
        if pause is not None:
            await store.pause(pause)
        if resume is not None:
            await store.resume(resume)
        revived_count = await store.revive(at=now) if revive else 0
        queue = await store.queue(day=day_of(now))
        jobs = await store.jobs(limit=_MAX_JOBS)
        names: dict[str, str] = {}
        for session in await store.sessions() if any(j.kind == EXTRACT_JOB for j in jobs) else ():
            for has_left in (False, True):
                names[extract_key(session.session, left=has_left)] = session.session
    keys = {job.id: plain_line(names.get(job.key, job.key)) for job in jobs}
    lines = [f"{revived_count:,} dead jobs are queued again"] if revive else []
    job_records = [{**asdict(job), "run_at": instant(job.run_at)} for job in jobs]
    value = {"queue": asdict(queue), "revived": revived_count, "jobs": job_records}
    memory.show(value, [*lines, *_job_lines(queue, jobs, keys)])


def _job_lines(
    queue: QueueState, jobs: Sequence[JobRecord], keys: dict[JobId, str]
) -> Iterator[str]:
    text = f"{queue.waiting:,} waiting, {queue.leased:,} running"
    text += f", {queue.dead:,} dead (failed too often)"
    if queue.spent_tokens_today:
        text += f", {queue.spent_tokens_today:,} tokens reserved today"
    yield text
    if queue.paused:
        kinds = "all kinds" if _ALL_KINDS in queue.paused else ", ".join(queue.paused)
        first = plain_line(queue.paused[0])
        yield f"paused: {plain_line(kinds)}; continue with `--resume {first}`"
    if not jobs:
        return
    # Print one job per line, never wrapped, with the longest column last.
    width = max(len("key"), *(min(len(keys[job.id]), _KEY_CHARS) for job in jobs))
    yield f"kind     state    tries  {'runs at':16}  {'key':{width}}  why"
    for job in jobs:
        line = (
            f"{job.kind:7}  {job.state:7}  {job.attempts:>5}  {when(job.run_at):16}  "
            f"{keys[job.id]:{width}}  {plain_line(job.reason or '')}"
        )
        yield line.rstrip()
