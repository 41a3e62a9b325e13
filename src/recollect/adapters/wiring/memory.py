"""Builds an engine from settings, and reads the sections of AGENTS.md to repeat after every
compaction: "Session Startup" and "Red Lines" (docs/reference/session-files.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec

from recollect.adapters.embedders.offer import offer_model
from recollect.adapters.wiring import stores
from recollect.errors import SettingsError, StoreUnavailable
from recollect.system.config import Settings, load_settings
from recollect.system.durable import read_inside

if TYPE_CHECKING:
    from recollect.adapters.wiring.models import Embedders, OwnModel
    from recollect.core.blocking import BlockingEngine
    from recollect.core.engine import Engine
    from recollect.core.engine.archive import DurableArchive
    from recollect.core.engine.background import BackgroundNotes
    from recollect.core.engine.recaller import MemoryRecaller
    from recollect.core.ports import Clock, Embedder, Model, Recaller, Store, TokenCounter
    from recollect.core.transfer.memory_files import Following
    from recollect.core.upkeep.jobs import BackgroundJobs
    from recollect.core.values.batch import Batch
    from recollect.core.values.history import SpaceId
    from recollect.system.config.settings import Preset


P = ParamSpec("P")
CHECK_SECONDS = 300.0
"""Interval between checks whether followed memory files have changed."""
QUESTION_SECONDS = 0.4
"""The share of `recall.deadline_seconds` that embedding a question may take."""

_MAX_RULES_BYTES = 2_000_000
"""An AGENTS.md larger than this is not read for a summary."""


def open_memory(
    *,
    space: SpaceId = "default",
    store: str | Path | None = None,
    config: Path | str | None = None,
    openclaw: Path | str | None = None,
    window_tokens: int | None = None,
    preset: Preset | None = None,
    clock: Clock | None = None,
    workspace: Path | str | None = None,
    embedders: Sequence[Embedder] | None = None,
    recaller: Recaller | None = None,
    counter: TokenCounter | None = None,
    model: OwnModel | None = None,
    extraction_model: OwnModel | None = None,
    compact_in_background: bool = True,
    off_the_loop: bool = False,
    open_space: Callable[[SpaceId], Awaitable[Store]] | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
) -> Engine:
    """Open an engine for one space, with settings from arguments, environment and files.

    `settings` takes dotted names: `settings={"trim.protect_messages": 8}`. If you pass a `Settings`
    object, no file and no variable is read. `store` is the setting `store.url`: a file or a
    `postgresql://` URL. The store is opened with the first request. If `ingest.enabled = false`,
    nothing new is stored, but stored messages are recalled. `workspace` is a folder whose memory
    files Recollect follows. `embedders` replace the embedders of the settings. `model` writes a
    summary when the window fills: pass an object with `async def ask(prompt)`, or such a function.
    Without a model the window is only trimmed. `extraction_model` extracts facts, as
    `models.extraction` does. To use one model for summaries and facts, pass it as both. Pass
    `compact_in_background=False` if the host compacts between its turns itself. Pass `open_space`
    if the host shares one database between many spaces: such a memory has no spool.

    At a terminal, the first call offers an embedding model, with one question per user. Pass
    `embedders`, a `Settings` object or the setting `recall.embedder` to prevent that.
    """
    from recollect.adapters.providers.overflow import recognize_overflow
    from recollect.adapters.wiring.models import (
        Embedders,
        choose_embedders,
        choose_model,
        own_model,
    )
    from recollect.core.boundary import SystemClock
    from recollect.core.engine import Engine
    from recollect.core.engine.background import BackgroundNotes
    from recollect.core.engine.session import check_name

    check_name(space, "space")
    summarizer = (
        None if model is None else own_model(model)
    )  # check the model before a store is opened
    extractor = None if extraction_model is None else own_model(extraction_model)
    named_arguments = {"window_tokens": window_tokens, "preset": preset}
    arguments = {name: value for name, value in named_arguments.items() if value is not None}
    chosen_settings = _settings(settings, arguments, config, openclaw)
    background_notes = BackgroundNotes()
    archive = jobs = files = None
    vectors = Embedders()
    may_store = chosen_settings.ingest.enabled
    may_offer_model = embedders is None and recaller is None and not isinstance(settings, Settings)
    if may_offer_model and may_store and chosen_settings.recall.embedder == "auto":
        offer_model(chosen_settings.recall.model_source)
    url = str(store) if store is not None else chosen_settings.store.url
    secret = stores.data_secret(url)
    if may_store or (chosen_settings.recall.enabled and stores.is_stored(url, space)):
        archive = stores.open_archive(chosen_settings, space, url, open_space)
        if embedders is not None:
            vectors = Embedders(used=tuple(embedders))
        elif recaller is None:  # memory tools search even if turns recall nothing
            vectors = choose_embedders(chosen_settings)
    if may_store and archive is not None:
        jobs = _background_jobs(
            archive, chosen_settings, clock, vectors, extractor, background_notes
        )
        files = follow_files(
            archive,
            chosen_settings,
            space=space,
            secret=secret,
            workspace=None if workspace is None else Path(workspace),
            clock=clock or SystemClock(),
            embedders=[embedder.name for embedder in vectors.used],
        )
    if archive is not None and recaller is None:
        recaller = _recaller(archive, chosen_settings, vectors, clock or SystemClock(), jobs)
    return Engine(
        chosen_settings,
        space=space,
        clock=clock,
        recaller=recaller,
        embedders=vectors.used,
        counter=counter,
        recognize_overflow=recognize_overflow,
        archive=archive,
        jobs=jobs,
        files=files,
        background_notes=background_notes,
        model=summarizer if summarizer is not None else choose_model(chosen_settings, "summary"),
        critical_rules=critical_rules_of(workspace),
        workspace=None if workspace is None else str(workspace),
        compact_in_background=compact_in_background,
        deployment_secret=secret,
        seal=partial(stores.seal_secret, space, url),
        off_the_loop=off_the_loop,
        reads_facts=extractor is not None or chosen_settings.models.extraction is not None,
        delete_stored=None
        if open_space is not None
        else partial(stores.delete_stored_space, chosen_settings, space, url, must_exist=False),
    )


def _blocking(opening: Callable[P, Engine]) -> Callable[P, BlockingEngine]:
    def open_blocking_memory(*args: P.args, **arguments: P.kwargs) -> BlockingEngine:
        """Open a memory as `open_memory` does, for code without an event loop."""
        from recollect.core.blocking import BlockingEngine

        return BlockingEngine(
            opening(*args, **arguments), reopen=partial(opening, *args, **arguments)
        )

    return open_blocking_memory


open_blocking_memory: Final = _blocking(open_memory)


def _settings(
    settings: Settings | Mapping[str, Any] | None,
    arguments: Mapping[str, Any],
    config: Path | str | None,
    openclaw: Path | str | None,
) -> Settings:
    if not isinstance(settings, Settings):
        return load_settings(
            arguments={**(settings or {}), **arguments},
            file=None if config is None else Path(config),
            openclaw=None if openclaw is None else Path(openclaw),
        ).settings
    if arguments or config or openclaw:
        raise SettingsError("pass either a Settings object or single settings, not both")
    return settings


def _background_jobs(
    archive: DurableArchive,
    settings: Settings,
    clock: Clock | None,
    vectors: Embedders,
    reader: Model | None,
    notes: BackgroundNotes,
) -> BackgroundJobs | None:
    from recollect.adapters.wiring.models import choose_model
    from recollect.core.engine.background import in_process_jobs

    return in_process_jobs(
        archive,
        settings,
        clock,
        vectors.used,
        model=reader if reader is not None else choose_model(settings, "extraction"),
        notify=lambda note: notes.add_line(str(note)),
        used=notes.add_use,
    )


def _recaller(
    archive: DurableArchive,
    settings: Settings,
    vectors: Embedders,
    clock: Clock,
    jobs: BackgroundJobs | None,
) -> MemoryRecaller:
    from recollect.core.engine.recaller import MemoryRecaller, QuestionVectors
    from recollect.core.upkeep.chores import VectorUpkeep

    deadline = settings.recall.deadline_seconds or min(1.0, settings.turn.stage_deadline_seconds)
    return MemoryRecaller(
        archive,
        settings,
        QuestionVectors(
            vectors.used, seconds=deadline * QUESTION_SECONDS, pii=settings.redaction.pii
        ),
        VectorUpkeep(
            archive, vectors.used, clock, on_queued=jobs.wake if jobs is not None else lambda: None
        )
        # If ingest is off, write nothing, not even jobs for missing vectors.
        if settings.ingest.enabled
        else None,
        lacking=vectors.lacking,
    )


def follow_files(
    archive: DurableArchive,
    settings: Settings,
    *,
    space: SpaceId,
    secret: bytes,
    workspace: Path | None,
    clock: Clock,
    embedders: Sequence[str],
) -> Following | None:
    """Follow a workspace's memory files and the settings' extra paths; None without both."""
    if workspace is not None and not workspace.is_dir():
        raise SettingsError(f"workspace: {workspace} must be a folder")
    own_files = workspace is not None and "memory" in settings.index.sources
    if not own_files and not settings.index.extra_paths:
        return None
    from recollect.core.rules.identity import space_secret
    from recollect.core.rules.tokens import Weigher
    from recollect.core.transfer.file_sections import FileRules
    from recollect.core.transfer.memory_files import Following, MemoryFiles

    async def open_store() -> Store:
        if await archive.settle(0.0):
            raise StoreUnavailable("some messages are still in the spool")
        return await archive.store()

    async def write(batch: Batch) -> None:
        outcome = await archive.write(batch)
        if outcome.location == "nowhere":
            raise StoreUnavailable(outcome.problem)

    files = MemoryFiles(
        workspace or Path(),
        settings.index.extra_paths,
        own_files=own_files,
        open_archive=open_store,
        write=write,
        clock=clock,
        rules=FileRules(
            secret=space_secret(space, secret),
            redaction=settings.redaction,
            weigher=Weigher(settings.tokens.counter),
            embedders=tuple(embedders),
        ),
    )
    return Following(files.look, interval_seconds=CHECK_SECONDS)


def critical_rules_of(workspace: Path | str | None) -> Callable[[], str]:
    """Return a function that reads the critical rules of AGENTS.md for each summary."""
    if workspace is None:
        return lambda: ""

    def read() -> str:
        try:
            data, _ = read_inside(Path(workspace), "AGENTS.md", _MAX_RULES_BYTES)
            return critical_rules(data.decode("utf-8", "replace"))
        except OSError:  # the file is optional, and a summary without it is better than none
            return ""

    return read


LIMIT_CHARS: Final = 2000
"""OpenClaw's limit for `<workspace-critical-rules>` (docs/contributing/sources.md)."""
TITLES: Final = frozenset({"session startup", "red lines"})

_LEFT_OUT: Final = "\n[…]"


def critical_rules(agents_md_text: str, limit_chars: int = LIMIT_CHARS) -> str:
    """Return the sections of AGENTS.md to repeat after a compaction; empty if it has none. Text
    over the limit is cut, with a mark."""
    from recollect.core.transfer.file_sections import MarkdownLines

    lines = MarkdownLines(agents_md_text)
    headings = sorted(lines.headings.items())
    sections: list[str] = []
    inside_until = -1
    for index, (line, (level, title)) in enumerate(headings):
        plain = " ".join(title.strip("*_: ").casefold().split())
        if plain not in TITLES or line < inside_until:
            continue
        ends = (later for later, (above, _) in headings[index + 1 :] if above <= level)
        inside_until = next(ends, len(lines.lines))
        sections.append("\n".join(lines.lines[line:inside_until]).strip())
    return "\n\n".join(_fit_sections(sections, limit_chars))


def _fit_sections(sections: list[str], limit_chars: int) -> list[str]:
    left = limit_chars - 2 * (len(sections) - 1)
    fitted_texts = dict.fromkeys(range(len(sections)), "")
    by_length = sorted(fitted_texts, key=lambda index: len(sections[index]))
    for finished_count, index in enumerate(by_length):
        share = max(0, left // (len(sections) - finished_count))
        fitted_texts[index] = _cut_text(sections[index], share)
        left -= len(fitted_texts[index])
    return [text for text in fitted_texts.values() if text]


def _cut_text(text: str, limit_chars: int) -> str:
    if len(text) <= limit_chars:
        return text
    space_left = limit_chars - len(_LEFT_OUT)
    if space_left <= 0:
        return ""
    last_line, newline, _ = text[: space_left + 1].rpartition("\n")
    return (last_line.rstrip() if newline and last_line.strip() else text[:space_left]) + _LEFT_OUT
