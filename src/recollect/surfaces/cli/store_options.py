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
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import click

from recollect import config
from recollect.agent_folders import project_space
from recollect.errors import RecollectError
from recollect.formats.json_text import instant as instant
from recollect.surfaces.cli.text import plain_line

if TYPE_CHECKING:
    from rich.console import Console

    from recollect.config import Settings
    from recollect.ports import Store

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
        from recollect.rules.identity import space_secret
        from recollect.wiring import deployment_secret

        return space_secret(self.space, deployment_secret())


_LEAST_BEGINNING = 4
"""Of a session's name: fewer characters are no beginning that somebody means."""
_MOST_TOLD = 5
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
store_option = click.option(
    "--store",
    "url",
    metavar="URL",
    help="A file, sqlite:///PATH or postgresql://…; without it the settings' store.",
)


def store_options(command: Command) -> Command:
    """Add `--store`, `--space` and `--json`."""
    space_option = click.option(
        "--space",
        metavar="NAME",
        callback=_space_meant,
        help="Which space; else this project's where it has a memory, or `default`.",
    )
    for option in (json_option, space_option, store_option):
        command = option(command)
    return command


def _space_meant(context: click.Context, _: click.Parameter, given: str | None) -> str:
    """The space that is named; else the one that agents at work in this project use, and a line
    says so: who asks for a memory in a project's folder means the project's."""
    if given is not None:
        return given
    if context.resilient_parsing or context.params.get("url") is not None:
        return DEFAULT_SPACE
    url = config.load_settings().settings.store.url
    if url is not None:  # a file holds one space, and a server's are not of this machine
        return DEFAULT_SPACE
    here = space_here(None)
    if here != DEFAULT_SPACE:
        click.echo(f"recollect: this project's memory, --space {shlex.quote(here)}", err=True)
    return here


def meant_session(wanted: str, space: str | None, workspace: Path) -> tuple[str, str]:
    """The id and the space of the session that is meant: by its key, its name, its id or a
    beginning of that where the folder or the space has it as a transcript; else as it is named."""
    from recollect.session.browse import session_meant, sessions_called, sessions_of

    place = space or str(workspace.resolve())
    lines = sessions_of(place)
    if sessions_called(lines, wanted):
        return session_meant(lines, wanted).session_id, place
    return wanted, space or DEFAULT_SPACE


async def stored_session(store: Store, wanted: str) -> str:
    """The session of this store that is meant: by its name, or by a beginning of that which no
    other has; also of the agent's own part, where the agent's name stands before it. As it is
    named where none begins so; RecollectError where several do."""
    if len(wanted) < _LEAST_BEGINNING or await store.session(wanted) is not None:
        return wanted
    names = [one.session for one in await store.sessions()]
    found = [name for name in names if wanted in (name, name.partition(":")[2])]
    found = found or [
        name
        for name in names
        if name.startswith(wanted) or name.partition(":")[2].startswith(wanted)
    ]
    if len(found) > 1:
        told = ", ".join(plain_line(name) for name in found[:_MOST_TOLD])
        more = f" and {len(found) - _MOST_TOLD:,} more" if len(found) > _MOST_TOLD else ""
        raise RecollectError(
            f"several sessions begin with {plain_line(wanted)!r}: {told}{more}; give more of it"
        )
    return found[0] if found else wanted


def session_store_options(command: Command) -> Command:
    """Add which session is meant, as a chat's own commands take it, `--store` and `--json`."""
    options = (
        click.argument("session", default="main", metavar="[SESSION]"),
        store_option,
        click.option("--space", metavar="NAME", help="Which space; else the workspace's own."),
        click.option(
            "--workspace",
            default=".",
            show_default=True,
            metavar="DIR",
            type=click.Path(path_type=Path, exists=True, file_okay=False),
            help="Whose sessions.",
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
    return place


def space_here(url: str | None) -> str:
    """The current project's space where it has a memory, as agents at work in it leave one; else
    the folder's own, which the chat makes; else the default one."""
    from recollect.wiring.stores import is_server, is_stored

    folder = str(Path.cwd())
    found = (here for here in (project_space(folder), folder) if is_stored(url, here))
    return DEFAULT_SPACE if is_server(url) else next(found, DEFAULT_SPACE)


@asynccontextmanager
async def opened(place: Place, *, create: bool = False) -> AsyncIterator[Store]:
    """The open store of a place; closed again whatever happens."""
    from recollect.wiring import open_store

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


async def _waiting(place: Place, *, drain: bool) -> int:
    """How many batches the store does not have yet; says so where there are any."""
    from recollect.wiring import hand_over_spool, spool_state

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


def when(seconds: float | None) -> str:
    """A point in time for people: UTC, to the minute."""
    text = instant(seconds)
    return "—" if text is None else text[:16].replace("T", " ")


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
