"""What every command on a memory shares: which store, which space, and how it is told.

Owns the three options and the opening and closing of the store. Data goes to standard output;
text from a memory is printed so that it cannot move the cursor or colour the screen.
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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import click

from recollect.agent.chat.output import harmless
from recollect.core.formats.json_text import instant as instant
from recollect.core.formats.json_text import when as when
from recollect.errors import RecollectError
from recollect.system import config
from recollect.system.agent_folders import project_space
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from rich.console import Console

    from recollect.core.ports import Store
    from recollect.system.config import Settings

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_SPACE = "default"
SpoolUse: TypeAlias = Literal["ignored", "told", "drained"]
_DRAIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A memory as a command names it, with the settings in force."""

    url: str | None
    space: str
    settings: Settings
    spool_waiting: int = 0
    """Batches in the spool that the store does not have yet: what is read lacks them."""

    @property
    def secret(self) -> bytes:
        """The key of the space's identities, the same as the engine's."""
        from recollect.adapters.wiring import deployment_secret
        from recollect.core.rules.identity import space_secret

        return space_secret(self.space, deployment_secret())


_SPACE_LINE = "recollect.space_line"
"""Where a command keeps the line about its space: a call that is refused prints only why."""
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
store_option = click.option(
    "--store",
    "url",
    metavar="URL",
    help="A file, sqlite:///PATH or postgresql://…; without it the settings' store.",
)


def store_options(command: Command) -> Command:
    """Add `--store`, `--space` and `--json` to a command that reads a memory."""
    return _with_options(command, create=False)


def filling_store_options(command: Command) -> Command:
    """The same for a command that creates the memory if it is missing."""
    return _with_options(command, create=True)


def _with_options(command: Command, *, create: bool) -> Command:
    space_option = click.option(
        "--space",
        metavar="NAME",
        callback=partial(_space_option, create=create),
        help="Use this space. Default: the memory of the current folder's project"
        + ("." if create else ", or `default` if the project has none yet."),
    )
    for option in (json_option, space_option, store_option):
        command = option(command)
    return command


def _space_option(
    context: click.Context, _: click.Parameter, given: str | None, *, create: bool
) -> str:
    """The space that is named, else the one that the folder means; a line says which."""
    if given is not None:
        return given
    if context.resilient_parsing or context.params.get("everything"):  # `import --all` needs none
        return DEFAULT_SPACE
    return told_space(Path.cwd(), context.params.get("url"), create=create)


def told_space(folder: Path, url: str | None, *, create: bool = False) -> str:
    """`meant_space`; `place_of` prints a line that names it, unless --store was given."""
    settings = config.load_settings().settings
    space = meant_space(folder, url, settings, create=create)
    told = click.get_current_context().meta
    if url is None and space in (project_space(str(folder)), str(folder)):
        told[_SPACE_LINE] = f"recollect: this project's memory, --space {shlex.quote(space)}"
    elif url is None and settings.store.url is None:
        told[_SPACE_LINE] = f"recollect: this folder has no memory yet; using --space {space}"
    return space


def meant_space(folder: Path, url: str | None, settings: Settings, *, create: bool = False) -> str:
    """The space that a command means in a folder if none is named. Every command uses this rule.

    The memory of the folder's project, which hooks, `wrap`, MCP and imports use; else the folder's
    own, which a chat creates there. A command that only reads uses `default` if there is neither
    and `default` exists, as a program that uses the library leaves it. A file holds one space, so
    a store that is a file means that one. A store that `--store` names is not the folder's.
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
    """The space that a SQLite file holds; None if it does not exist or cannot be read."""
    from recollect.adapters.stores.sqlite.check import glance_at
    from recollect.adapters.stores.sqlite.connection import read_key
    from recollect.adapters.wiring.stores import sqlite_path

    path = sqlite_path(url, DEFAULT_SPACE)
    if not path.is_file():
        return None
    key = settings.store.key
    return glance_at(path, key=None if key is None else read_key(key)).space


async def _first_stored(url: str, wanted: Sequence[str]) -> str | None:
    """The first of these spaces that a server holds."""
    from recollect.adapters.wiring import open_fleet

    fleet = await open_fleet(url)
    try:
        for space in wanted:
            if await fleet.has_space(space):
                return space
    finally:
        await fleet.close()
    return None


def meant_session(
    wanted: str, space: str | None, workspace: Path, url: str | None
) -> tuple[str, str]:
    """The id and the space of the session that is meant: by its key, its name, its id or a
    beginning of that where the folder or the space has it as a transcript; else as it is named,
    in the space that is named or that the folder means."""
    from recollect.hosts.inspect.sessions import session_meant, sessions_called, sessions_of

    folder = workspace.resolve()
    place = space or str(folder)
    lines = sessions_of(place)
    if sessions_called(lines, wanted):
        return session_meant(lines, wanted).session_id, place
    return wanted, space or told_space(folder, url)


def session_store_options(command: Command) -> Command:
    """Add which session is meant, as a chat's own commands take it, `--store` and `--json`."""
    options = (
        click.argument("session", default="main", metavar="[SESSION]"),
        store_option,
        click.option(
            "--space",
            metavar="NAME",
            help="Use this space. Default: the chat's or the project's memory of the folder.",
        ),
        click.option(
            "--workspace",
            default=".",
            show_default=True,
            metavar="DIR",
            type=click.Path(path_type=Path, exists=True, file_okay=False),
            help="Use the sessions of this folder.",
        ),
        json_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def check_url(url: str | None) -> None:
    """Refuse an empty one: an unset variable must not act on another memory."""
    if url == "":
        raise RecollectError("--store: the URL is empty; leave the option out instead")


def place_of(url: str | None, space: str) -> Place:
    """The memory that the options name; without a URL the one of the settings."""
    check_url(url)
    if not space:
        raise RecollectError("--space: a space has a name of at least one character")
    settings = config.load_settings().settings
    place = Place(url=settings.store.url if url is None else url, space=space, settings=settings)
    assert place.secret  # a name that is no valid text is refused here
    context = click.get_current_context(silent=True)
    if context is not None and (line := context.meta.pop(_SPACE_LINE, None)):
        click.echo(harmless(line), err=True)
    return place


@asynccontextmanager
async def opened(place: Place, *, create: bool = False) -> AsyncIterator[Store]:
    """The open store of a place; closed again whatever happens."""
    from recollect.adapters.wiring import open_store

    if not create:
        _require_memory(place)
    store = await open_store(
        place.url, space=place.space, create=create, key=place.settings.store.key
    )
    try:
        yield store
    finally:
        await store.close()


def with_store(
    url: str | None,
    space: str,
    work: Callable[[Store, Place], Awaitable[T]],
    *,
    create: bool = False,
    spool: SpoolUse = "ignored",
) -> T:
    """Run one piece of work on a store.

    `spool` says what becomes of batches that wait for it on this machine: those that are
    `told` are missing from what is read, and a line says so; `drained` hands them over first.
    """
    place = place_of(url, space)

    async def run() -> T:
        async with opened(place, create=create) as store:
            waiting = 0 if spool == "ignored" else await _waiting(place, drain=spool == "drained")
            return await work(store, replace(place, spool_waiting=waiting))

    return asyncio.run(run())


OpenStore: TypeAlias = "Callable[[], Awaitable[Store]]"


def with_store_at_need(
    url: str | None, space: str, work: Callable[[OpenStore, Place], Awaitable[T]]
) -> T:
    """Run work that opens the store once it has something to store, and makes it if it is missing.

    Work that fails before that leaves no empty memory.
    """
    place = place_of(url, space)

    async def run() -> T:
        async with AsyncExitStack() as opening:
            held: list[Store] = []

            async def open_once() -> Store:
                if not held:
                    held.append(await opening.enter_async_context(opened(place, create=True)))
                return held[0]

            return await work(open_once, place)

    return asyncio.run(run())


def _require_memory(place: Place) -> None:
    """RecollectError with what to type if the folder that a command is run in has no memory."""
    from recollect.adapters.wiring.stores import is_stored

    if place.url is not None or is_stored(None, place.space):
        return
    if place.space in (project_space(str(Path.cwd())), str(Path.cwd())):
        raise RecollectError(
            "this folder has no memory yet. Fill one with `recollect import --all` or `recollect "
            "install claude-code`, or pick another with --space (`recollect space list`)"
        )


async def _waiting(place: Place, *, drain: bool) -> int:
    """How many batches the store does not have yet; says so where there are any."""
    from recollect.adapters.wiring import hand_over_spool, spool_state

    key = place.settings.store.key
    state = await spool_state(place.url, space=place.space, key=key)
    if state.waiting and drain:
        await hand_over_spool(place.settings, place.space, place.url, seconds=_DRAIN_SECONDS)
        state = await spool_state(place.url, space=place.space, key=key)
    if state.waiting:
        several = state.waiting > 1
        waits = f"{state.waiting:,} batches wait" if several else "1 batch waits"
        missing, them = ("are missing", "them") if several else ("is missing", "it")
        click.echo(
            f"recollect: {waits} in the spool and {missing} here; the process that wrote {them} "
            f"hands {them} over, or the next to open this memory",
            err=True,
        )
    return state.waiting


def print_json(value: Any) -> None:
    """One JSON object on standard output, in signs that it can write."""
    ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    click.echo(json.dumps(value, ensure_ascii=ascii_only, indent=2, default=str))


def console() -> Console:
    """Where tables and texts are printed."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def plain_text(text: str) -> str:
    """Several lines that print as they read, indentation kept."""
    lines: list[str] = []
    for line in text.split("\n"):
        kept = plain_line(line)
        indent = len(line) - len(line.lstrip(" "))
        lines.append(" " * min(indent, 40) + kept if kept else "")
    return "\n".join(lines)


def moment_from(text: str, *, option: str) -> float:
    """A point in time as people write it: a date, an ISO time, or an age such as 30d."""
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
