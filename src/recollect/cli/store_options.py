"""The memory that a command works on, and the ways every command prints.

Data goes to standard output, everything else to standard error. Text from a memory is printed so
that it cannot move the cursor or color the screen.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, TypeVar

import click

from recollect.core.formats.json_text import instant as instant
from recollect.core.formats.json_text import when as when
from recollect.core.values.fact import MadeBy
from recollect.core.values.segment import SPEAKERS, Trust
from recollect.errors import RecollectError
from recollect.system import config
from recollect.system.places import project_space
from recollect.system.plain_text import harmless, number_of, plain_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from recollect.core.ports import Store
    from recollect.core.values.fact import Fact
    from recollect.core.values.segment import Segment, StoredSegment
    from recollect.system.config import Settings

    OpenStore: TypeAlias = Callable[[], Awaitable[Store]]

T = TypeVar("T")
Command: TypeAlias = Callable[..., None]
SpoolUse: TypeAlias = Literal["ignored", "reported", "drained"]
DEFAULT_SPACE: Final = "default"
_DRAIN_SECONDS: Final = 60.0
_PATIENCE_SECONDS: Final = 0.5
NO_SESSION: Final = (
    "`recollect memory sessions` lists the sessions of a space, `recollect space list` the spaces"
)

json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
store_option: Final = click.option(
    "--store",
    "url",
    metavar="URL",
    help="Use this store: a file, sqlite:///PATH or postgresql://…. Default: store.url.",
)
space_option: Final = click.option(
    "--space",
    metavar="NAME",
    help='Use this memory. Default: that of this folder\'s project, else "default".',
)
_new_space_option = click.option(
    "--space", metavar="NAME", help="Use this memory. Default: that of this folder's project."
)
yes_option: Final = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
workspace_option: Final = click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Also search the daily notes of this workspace, memory/YYYY-MM-DD.md.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A space of a store, with the active settings."""

    url: str | None
    space: str
    settings: Settings
    spool_waiting: int = 0
    """Number of batches in this machine's spool that the store does not have yet."""

    @property
    def secret(self) -> bytes:
        """The key of the space's identities, the same as the engine's."""
        from recollect.adapters.wiring import deployment_secret
        from recollect.core.rules.identity import space_secret

        return space_secret(self.space, deployment_secret())


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory that `--store` and `--space` name, and the `--json` flag."""

    url: str | None = None
    space: str | None = None
    as_json: bool = False
    create: bool = False

    def place(self) -> Place:
        """Return the place. If no space was given, a line on standard error names the one used."""
        check_url(self.url)
        if self.space == "":
            raise RecollectError("--space must have at least one character")
        settings = config.load_settings().settings
        folder, space = Path.cwd(), self.space
        if space is None:
            space = meant_space(folder, self.url, settings, create=self.create)
            if self.url is None and space in (project_space(str(folder)), str(folder)):
                text = f"this project's memory, --space {shlex.quote(space)}"
                click.echo(harmless(f"recollect: {text}"), err=True)
            elif self.url is None and settings.store.url is None:
                text = f"this folder has no memory yet; using --space {space}"
                click.echo(f"recollect: {text}", err=True)
        url = settings.store.url if self.url is None else self.url
        place = Place(url=url, space=space, settings=settings)
        assert place.secret  # a space name that is not valid Unicode is refused here
        return place

    def run(
        self, work: Callable[[Store, Place], Awaitable[T]], *, spool: SpoolUse = "ignored"
    ) -> T:
        """Run one piece of work on the open store. Batches that wait in the spool are `reported` on
        standard error, or `drained` first."""
        place = self.place()

        async def run() -> T:
            async with opened(place, create=self.create) as store:
                waiting = 0
                if spool != "ignored":
                    waiting = await _spool_waiting(place, drain=spool == "drained")
                return await work(store, replace(place, spool_waiting=waiting))

        return asyncio.run(run())

    def run_at_need(self, work: Callable[[OpenStore, Place], Awaitable[T]]) -> T:
        """Run work that creates the store only if it has something to store."""
        place = self.place()

        async def run() -> T:
            async with AsyncExitStack() as opening:
                held: list[Store] = []

                async def open_once() -> Store:
                    if not held:
                        held.append(await opening.enter_async_context(opened(place, create=True)))
                    return held[0]

                return await work(open_once, place)

        return asyncio.run(run())

    def of_session(self, wanted: str) -> tuple[str, Memory]:
        """Find a session's id and its memory: a chat of this folder, else the session with this
        name."""
        from recollect.hosts.inspect.sessions import session_meant, sessions_called, sessions_of

        space = self.space or str(Path.cwd())
        lines = sessions_of(space)
        if not sessions_called(lines, wanted):
            return wanted, self
        return session_meant(lines, wanted).session_id, replace(self, space=space)

    def show(self, value: object, draw: Callable[[], object]) -> None:
        if self.as_json:
            print_json(value)
        else:
            draw()


def _memory_options(*, create: bool) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(*, url: str | None, space: str | None, as_json: bool, **given: Any) -> None:
            command(memory=Memory(url=url, space=space, as_json=as_json, create=create), **given)

        named = _new_space_option if create else space_option
        return store_option(named(json_option(run)))

    return decorate


memory_options: Final = _memory_options(create=False)
"""Add `--store`, `--space` and `--json`; the command gets them as `memory`."""
new_memory_options: Final = _memory_options(create=True)
"""Add the same options to a command that creates a missing memory."""


def meant_space(folder: Path, url: str | None, settings: Settings, *, create: bool = False) -> str:
    """Choose the space that every command uses in a folder if none is named.

    It is the memory of the folder's project, which hooks, `wrap`, MCP and imports use. If there is
    none, it is the folder's own, which a chat creates. If there is neither, commands that only read
    use an existing `default`, which programs that use the library create. If the store is a file,
    it is the one space in that file. A store given with `--store` does not belong to the folder.
    """
    from recollect.adapters.wiring.stores import is_server, is_stored

    kept_at = settings.store.url if url is None else url
    if kept_at is not None and not is_server(kept_at):
        return _space_of_file(kept_at, settings) or DEFAULT_SPACE
    if url is not None:
        return DEFAULT_SPACE
    project = project_space(str(folder))
    wanted = [project, str(folder), *([] if create else [DEFAULT_SPACE])]
    if kept_at is None:
        return next((space for space in wanted if is_stored(None, space)), project)
    return asyncio.run(_first_stored(kept_at, wanted)) or project


def _space_of_file(url: str, settings: Settings) -> str | None:
    from recollect.adapters.stores.sqlite.check import glance_at
    from recollect.adapters.stores.sqlite.connection import read_key
    from recollect.adapters.wiring.stores import sqlite_path

    path = sqlite_path(url, DEFAULT_SPACE)
    if not path.is_file():
        return None
    key = settings.store.key
    return glance_at(path, key=None if key is None else read_key(key)).space


async def _first_stored(url: str, wanted: Sequence[str]) -> str | None:
    from recollect.adapters.wiring import open_fleet

    fleet = await open_fleet(url)
    try:
        for space in wanted:
            if await fleet.has_space(space):
                return space
    finally:
        await fleet.close()
    return None


def check_url(url: str | None) -> None:
    """Refuse an empty URL: if a variable is not set, the command must not act on another memory."""
    if url == "":
        raise RecollectError("--store: the URL is empty; leave the option out instead")


@asynccontextmanager
async def opened(place: Place, *, create: bool = False) -> AsyncIterator[Store]:
    from recollect.adapters.wiring import open_store
    from recollect.adapters.wiring.stores import is_stored

    if not create and place.url is None and not is_stored(None, place.space):
        here = str(Path.cwd())
        if place.space in (project_space(here), here):
            raise RecollectError(
                "this folder has no memory yet. Fill one with `recollect import --all` or "
                "`recollect install claude-code`, or pick another with --space (`recollect space "
                "list`)"
            )
    store = await open_store(
        place.url, space=place.space, create=create, key=place.settings.store.key
    )
    try:
        yield store
    finally:
        await store.close()


async def _spool_waiting(place: Place, *, drain: bool) -> int:
    from recollect.adapters.wiring import hand_over_spool, spool_state

    key = place.settings.store.key
    state = await spool_state(place.url, space=place.space, key=key)
    if state.waiting and drain:
        await hand_over_spool(place.settings, place.space, place.url, seconds=_DRAIN_SECONDS)
        state = await spool_state(place.url, space=place.space, key=key)
    if state.waiting:
        click.echo(
            f"recollect: missing here: {number_of(state.waiting, 'batch', 'batches')} in the "
            "spool. The process that wrote them stores them, or the next that opens this memory",
            err=True,
        )
    return state.waiting


def print_json(value: object) -> None:
    """Print one JSON object, with characters that standard output can encode and a terminal can
    show."""
    ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(value, ensure_ascii=ascii_only, indent=2, default=str)
    if text != harmless(text):
        text = json.dumps(value, indent=2, default=str)
    click.echo(text)


def console() -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def confirmed(question: str, *, as_json: bool, unasked: str) -> bool:
    """Ask the user. Raise RecollectError with `unasked` if there is no terminal."""
    if as_json or not sys.stdin.isatty():
        raise RecollectError(unasked)
    return click.confirm(question, err=True)


def size_text(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GB"


def moment_from(text: str, *, option: str) -> float:
    """Parse a point in time: a date, an ISO time, or an age such as 30d."""
    plain = text.strip()
    unit = {"d": 86_400.0, "h": 3_600.0, "w": 604_800.0}.get(plain[-1:].lower())
    if unit is not None and plain[:-1].isascii() and plain[:-1].isdigit():
        return time.time() - int(plain[:-1]) * unit
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        raise RecollectError(
            f"{option} {plain_line(text)!r}: give a date such as 2026-01-31, a time such as "
            "2026-01-31T12:00Z, or an age such as 30d"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class ShownProgress:
    """Progress bars on standard error, only on a terminal and only after half a second."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._watched = sys.stderr.isatty() and not quiet
        self._since = time.monotonic()
        self._bars: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove the bars, so that other text can be printed. The next `show` draws them again."""
        if self._bars is not None:
            self._bars.stop()
        self._bars = self._task = None

    def show(self, what: str, done: int, total: int | None) -> None:
        if not self._watched or time.monotonic() - self._since < _PATIENCE_SECONDS:
            return
        if self._bars is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self._bars = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bars.start()
        if self._task is None:
            self._task = self._bars.add_task(what, total=total)
        self._bars.update(self._task, description=what, completed=done, total=total)


MAKERS: Final[dict[MadeBy, str]] = {
    "rules": "found by rules of an earlier version",
    "model": "found by a model",
    "user": "written by hand",
    "import": "imported",
}


def heading(stored: StoredSegment) -> str:
    """Format one line about a message: role, tool, time, session, id, and anything unusual."""
    return heading_of(stored.segment, ())


def heading_of(segment: Segment, odd: tuple[str, ...] = ("spooled",)) -> str:
    """Format a message that is not stored yet, as `heading` does."""
    who = click.style(plain_line(f"{segment.role} {segment.tool or ''}"), fg="cyan")
    marks: list[str] = [segment.source] if segment.source == "note" else []
    if segment.source == "file" and segment.origin is not None:
        marks.append(plain_line(segment.origin))
    if segment.noise is not None:
        marks.append(f"noise: {segment.noise}")
    marks.extend(odd)
    note = f"  ({', '.join(marks)})" if marks else ""
    where = f"{when(segment.said_at)}  {plain_line(segment.session)}"
    return f"{who}  {where}  {click.style(shown_id(segment.id) + note, dim=True)}"


def segment_as_json(stored: StoredSegment) -> dict[str, Any]:
    segment = stored.segment
    return {
        "id": segment.id,
        "session": segment.session,
        "role": segment.role,
        "tool": segment.tool,
        "said_at": instant(segment.said_at),
        "text": segment.text,
        "tokens": segment.tokens,
        "source": segment.source,
        "trust": segment.trust,
        "noise": segment.noise,
        "origin": segment.origin,
        "sequence": stored.sequence,
    }


def shown_id(id: str) -> str:  # noqa: A002
    """Format an id on one line. An id from a file may be any text."""
    return plain_line(id) or "(no id)"


def statement(fact: Fact) -> str:
    """Format a fact on one line, with its subject if the words do not name it."""
    return plain_line(fact.told) or "(no words)"


def speaker(trust: Trust) -> str:
    """Return the speaker's name and the trust level."""
    return f"{SPEAKERS[trust]} ({trust})"


def said_by(trust: Trust) -> str:
    return ("" if trust == "outside" else "said by ") + speaker(trust)


def fact_line(fact: Fact) -> str:
    """Format a line about a fact without its words: type, speaker, time and source."""
    until = "" if fact.current else ", replaced since"
    if fact.valid_to is not None:
        until = f" until {when(fact.valid_to)}"
    parts = [
        click.style(fact.type.replace("_", " "), bold=True),
        said_by(fact.trust),
        f"{when(fact.at)}{until}",
        MAKERS[fact.made_by],
        *(["pinned"] if fact.pinned else []),
    ]
    return "  ".join(parts)


def fact_as_json(fact: Fact) -> dict[str, Any]:
    return {
        "id": fact.id,
        "type": fact.type,
        "content": fact.content,
        "context": fact.context,
        "subject": fact.subject,
        "attribute": fact.attribute,
        "trust": fact.trust,
        "made_by": fact.made_by,
        "since": instant(fact.at),
        "until": instant(fact.valid_to),
        "recorded_at": instant(fact.recorded_at),
        "change": fact.change,
        "superseded_by": fact.superseded_by,
        "session": fact.session,
        "pinned": fact.pinned,
        "sources": list(fact.sources),
        "evidence": [
            {"segment": span.segment, "start": span.start, "end": span.end}
            for span in fact.evidence
        ],
    }
