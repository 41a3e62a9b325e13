"""Settings into the following of memory files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.config import Settings
from recollect.errors import SettingsError, StoreUnavailable
from recollect.ports import Clock, Store
from recollect.rules.identity import space_secret
from recollect.rules.weigh import Weigher
from recollect.values.batch import Batch
from recollect.values.history import SpaceId
from recollect.wiring.stores import deployment_secret

if TYPE_CHECKING:
    from recollect.engine.archive import DurableArchive
    from recollect.engine.files.following import Following
    from recollect.memory.jobs import BackgroundJobs


def follow_files(
    archive: DurableArchive,
    settings: Settings,
    *,
    space: SpaceId,
    workspace: Path | None,
    clock: Clock,
    jobs: BackgroundJobs | None,
    embedders: Sequence[str],
) -> Following | None:
    """The files of a workspace and the settings' extra paths; None where there are none.

    Without a workspace nothing is guessed: only extra paths are followed.
    """
    if workspace is not None and not workspace.is_dir():
        raise SettingsError(f"workspace: {workspace} is no folder")
    own_files = workspace is not None and "memory" in settings.index.sources
    if not own_files and not settings.index.extra_paths:
        return None
    from recollect.engine.files.following import Following
    from recollect.engine.files.keeping import FileRules
    from recollect.engine.files.memory_files import MemoryFiles

    async def opened() -> Store:
        if await archive.settle(0.0):
            raise StoreUnavailable("batches wait in the spool")
        return await archive.store()

    async def write(batch: Batch) -> None:
        kept = await archive.write(batch)
        if kept.where == "nowhere":
            raise StoreUnavailable(kept.said)
        if kept.where == "store" and jobs is not None:
            jobs.wake()

    files = MemoryFiles(
        workspace or Path(),
        settings.index.extra_paths,
        own_files=own_files,
        open_archive=opened,
        write=write,
        clock=clock,
        rules=FileRules(
            secret=space_secret(space, deployment_secret()),
            redaction=settings.redaction,
            weigher=Weigher(settings.tokens.counter),
            embedders=tuple(embedders),
        ),
    )
    return Following(files.look, interval_seconds=settings.index.update_interval.total_seconds())


def critical_rules_of(workspace: Path | str | None) -> Callable[[], str]:
    """Reads the rules of a workspace that a summary must not lose, anew each time."""
    if workspace is None:
        return lambda: ""
    file = Path(workspace) / "AGENTS.md"

    def read() -> str:
        from recollect.rules.critical_rules import critical_rules

        try:
            return critical_rules(file.read_text(encoding="utf-8", errors="replace"))
        except OSError:  # it is optional, and a summary without it is better than none
            return ""

    return read
