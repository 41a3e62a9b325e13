"""Parts that all commands share: the memory that a command works on, options, questions, progress
bars, and the formats of messages and facts.

Data goes to standard output, everything else to standard error. Text from a memory is made harmless
before printing, so that it cannot move the cursor or color the screen."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import click

from recollect.core.formats.json_text import instant as instant
from recollect.core.formats.json_text import when as when
from recollect.core.values.fact import MadeBy
from recollect.core.values.segment import SPEAKERS, Trust
from recollect.errors import RecollectError
from recollect.system import config, projects
from recollect.system.config.fields import read_age
from recollect.system.plain_text import harmless, number_of, plain_line
from recollect.system.plain_text import size_text as size_text
from recollect.system.progress import ShownProgress as ShownProgress
from recollect.system.projects import chat_space, project_space, shown_space, space_named

if TYPE_CHECKING:
    from recollect.adapters.stores.spool import FileSpool
    from recollect.core.ports import Store
    from recollect.core.values.fact import Fact
    from recollect.core.values.segment import Segment, StoredSegment
    from recollect.system.config import Settings

Command: TypeAlias = Callable[..., Coroutine[Any, Any, None] | None]
SpoolUse: TypeAlias = Literal["ignored", "reported", "drained"]
DEFAULT_SPACE: Final = "default"
# Not measured: an export waits this long for waiting writes before it reports them as missing.
_DRAIN_SECONDS: Final = 60.0
# Not measured: the answer is not needed, so a busy daemon must not delay the command.
_STOP_SECONDS: Final = 2.0

json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
store_option: Final = click.option(
    "--store",
    "url",
    metavar="URL",
    help="Use this store: a file, sqlite:///PATH or postgresql://…. Default: store.url.",
)
_space_option = click.option(
    "--space",
    metavar="NAME",
    help='Use this memory. Default: that of this folder\'s project, else "default".',
)
_own_space_option = click.option(
    "--space", metavar="NAME", help="Use this memory. Default: that of this folder's project."
)
text_argument: Final = click.argument(
    "text",
    metavar="TEXT",
    callback=lambda _context, _parameter, text: (
        sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text
    ),
)
yes_option: Final = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
download_option: Final = click.option(
    "--download-model/--no-download-model",
    "download",
    default=None,
    help="Download the embedding model (24 MB), or do without, without asking. Default: ask once at"
    " a terminal.",
)


@dataclass(slots=True, kw_only=True)
class Memory:
    """The memory that `--store` and `--space` name, and the value of `--json`."""

    url: str | None = None
    named_space: str | None = None
    """The space in `--space`; None if the user named none."""
    as_json: bool = False
    create: bool = False
    """True if the command creates a missing memory."""
    only_reads: bool = True
    """True if the command may use the memory `default` in a folder without a memory."""
    space: str = field(default="", init=False)
    """The space that the command uses; empty before `choose`."""
    settings: Settings = field(init=False)
    spool_waiting: int = field(default=0, init=False)
    """Number of batches in this machine's spool that are not in the store yet."""

    @property
    def secret(self) -> bytes:
        """Return the secret that keys the identities of a space's messages, as the engine does."""
        from recollect.adapters.wiring import data_secret
        from recollect.core.rules.identity import space_secret

        return space_secret(self.space, data_secret(self.url))

    async def choose(self) -> None:
        """Load the settings, and choose store and space. Print the space unless it was named."""
        if self.named_space == "":
            raise RecollectError("--space must have at least one character")
        self.settings = config.load_settings().settings
        given_url, self.url = self.url, self.store_url(self.settings)
        folder = Path.cwd()
        if self.named_space is not None:
            self.space = space_named(self.named_space)
        else:
            self.space = await choose_space(
                folder, given_url, self.settings, only_reads=self.only_reads
            )
            project = project_space(str(folder), keep=self.create)
            if given_url is None and self.space in (project, str(folder)):
                text = f"this project's memory, --space {shlex.quote(shown_space(self.space))}"
                click.echo(harmless(f"recollect: {text}"), err=True)
            elif self.url is None:
                text = f"this folder has no memory yet; using --space {self.space}"
                click.echo(f"recollect: {text}", err=True)
        from recollect.core.rules.identity import space_secret

        assert space_secret(self.space)  # a name that is not valid Unicode is refused here

    def store_url(self, settings: Settings) -> str | None:
        """Return the URL of the store: `--store`, or the URL in the settings."""
        check_url(self.url)
        return settings.store.url if self.url is None else self.url

    @asynccontextmanager
    async def open(self, *, spool: SpoolUse = "ignored") -> AsyncIterator[Store]:
        """Choose the memory and open its store. `spool` reports or stores waiting batches."""
        from recollect.adapters.wiring import open_store
        from recollect.adapters.wiring.stores import is_stored

        if not self.space:
            await self.choose()
        if not self.create and self.url is None and not is_stored(None, self.space):
            folder = str(Path.cwd())
            if self.space in (project_space(folder, keep=False), folder):
                hint = (
                    "Fill one with `recollect import --all` or `recollect install claude-code`, or "
                    "pick another with --space (`recollect space list`)"
                )
                if joinable := projects.find_joinable(folder):
                    hint = (
                        f"{plain_line(joinable.name)} may belong to this project: use it here with "
                        "`recollect project join`"
                    )
                raise RecollectError(f"this folder has no memory yet. {hint}")
        store = await open_store(
            self.url,
            space=self.space,
            create=self.create,
            key=self.settings.store.key,
            makes_ids=self.create,
        )
        try:
            if spool != "ignored":
                self.spool_waiting = await self._count_spooled(drain=spool == "drained")
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def open_spool(self) -> AsyncIterator[FileSpool]:
        """Open this machine's spool of the memory, even if the store is down."""
        from recollect.adapters.wiring import open_spool

        spool = await open_spool(self.url, space=self.space, key=self.settings.store.key)
        try:
            yield spool
        finally:
            await spool.close()

    async def _count_spooled(self, *, drain: bool) -> int:
        from recollect.adapters.wiring import store_spooled

        async with self.open_spool() as spool:
            waiting = (await spool.state()).waiting
        if waiting and drain:
            await store_spooled(self.settings, self.space, self.url, seconds=_DRAIN_SECONDS)
            return await self._count_spooled(drain=False)
        if waiting:
            click.echo(
                f"recollect: this output lacks {number_of(waiting, 'batch', 'batches')} in the "
                "spool. Their process, or the next that opens this memory, stores them",
                err=True,
            )
        return waiting

    def find_session(self, name: str) -> str:
        """Return a session's id. For a chat of this folder, also select the chat's memory. If
        nothing matches, return `wanted`."""
        from recollect.hosts.inspect.sessions import find_session, find_sessions, sessions_of

        space = self.named_space or chat_space(str(Path.cwd()))
        lines = sessions_of(space)
        if not find_sessions(lines, name):
            return name
        self.named_space = space
        return find_session(lines, name).session_id

    def show(self, value: object, lines: Iterable[str], *, failed: bool = False) -> None:
        """Print the value as JSON with `--json`, else the lines. Exit with 1 if `failed` is
        true."""
        if self.as_json:
            print_json(value)
        else:
            for line in lines:
                click.echo(line)
        if failed:
            raise SystemExit(1)


def _memory_options(
    *, create: bool = False, only_reads: bool = False, space: bool = True
) -> Callable[[Command], Any]:
    def decorate(command: Command) -> Any:
        @wraps(command)
        def run(
            *, url: str | None, as_json: bool, space: str | None = None, **arguments: Any
        ) -> None:
            memory = Memory(
                url=url, named_space=space, as_json=as_json, create=create, only_reads=only_reads
            )
            work = command(memory=memory, **arguments)
            if work is not None:
                asyncio.run(work)

        if not space:
            return store_option(json_option(run))
        space_option = _space_option if only_reads else _own_space_option
        return store_option(space_option(json_option(run)))

    return decorate


memory_options: Final = _memory_options(only_reads=True)
"""Decorates a command that only reads with `--store`, `--space` and `--json`, which it gets as
`memory`. The command may be a coroutine function."""
change_options: Final = _memory_options()
"""Decorates a command that changes or deletes something with the same options. It never uses the
memory `default` unless the user names it."""
new_memory_options: Final = _memory_options(create=True)
"""Decorates a command that creates a missing memory with the same options."""
service_options: Final = _memory_options(space=False)
"""Decorates a command with the same options except `--space`."""


async def choose_space(
    folder: Path, url: str | None, settings: Settings, *, only_reads: bool = True
) -> str:
    """Choose the space that commands use in a folder if the user names none.

    The default is the memory of the folder's project, which hooks, `wrap`, MCP and imports use, or
    else the memory of the folder itself, which a chat creates. If neither memory exists, commands
    that only read use the memory `default`, which programs with the library create. If the store is
    a file, use the file's only space. In a server that `--store` names, use `default`."""
    from recollect.adapters.wiring import is_server, list_spaces, open_fleet, sqlite_path
    from recollect.adapters.wiring.stores import is_stored

    store = settings.store.url if url is None else url
    if store is not None and not is_server(store):
        if not sqlite_path(store, DEFAULT_SPACE).is_file():
            return DEFAULT_SPACE
        (file_space,) = await list_spaces(store, key=settings.store.key)
        return file_space.space or DEFAULT_SPACE
    if url is not None:
        return DEFAULT_SPACE
    project = project_space(str(folder), keep=False)
    space_names = [project, str(folder), *([DEFAULT_SPACE] if only_reads else [])]
    if store is None:
        return next((space for space in space_names if is_stored(None, space)), project)
    async with await open_fleet(store) as fleet:
        existing_spaces = [space for space in space_names if await fleet.has_space(space)]
    return existing_spaces[0] if existing_spaces else project


def check_url(url: str | None) -> None:
    """Refuse an empty URL, as from an unset variable: it would select another memory."""
    if url == "":
        raise RecollectError("--store: the URL is empty; leave the option out instead")


def print_json(value: object) -> None:
    """Print one JSON object, escaping characters that standard output or a terminal cannot show."""
    ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(value, ensure_ascii=ascii_only, indent=2, default=str)
    if text != harmless(text):
        text = json.dumps(value, indent=2, default=str)
    click.echo(text)


def confirm(question: str, effect: str, *, as_json: bool) -> bool:
    """Ask the user for confirmation. Without a terminal, raise a RecollectError that names
    `effect`, what would happen, and `--yes`."""
    if as_json or not sys.stdin.isatty():
        raise RecollectError(f"{effect}; cannot ask for confirmation (no terminal): pass --yes")
    # An event loop's own handler would ignore the first Ctrl-C.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return click.confirm(question, err=True)
    finally:
        signal.signal(signal.SIGINT, handler)


def confirm_change(question: str, *, yes: bool) -> None:
    """Ask a user at a terminal before a change, and exit with 1 if the answer is no."""
    if not yes and sys.stdin.isatty() and not confirm(question, "", as_json=False):
        raise SystemExit(1)


def moment_from(text: str, *, option: str) -> float:
    """Parse a date, an ISO time, or an age such as 30d, and return the time in seconds."""
    plain_text = text.strip()
    try:
        moment = datetime.fromisoformat(plain_text)
    except ValueError:
        age = read_age(plain_text) if plain_text[-1:].isalpha() else None
        if age is not None:
            return time.time() - age
        raise RecollectError(
            f"{option} {plain_line(text)!r}: give a date such as 2026-01-31, a time such as "
            "2026-01-31T12:00Z, or an age such as 30d"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def offer_model(settings: Settings, download: bool | None) -> None:  # noqa: FBT001
    """Offer the embedding model, and let a running daemon use it."""
    from recollect.adapters.embedders import offer

    if download is None and settings.recall.embedder != "auto":
        return
    if offer.offer_model(settings.recall.model_source, download):
        end_daemon()


def end_daemon() -> None:
    """Stop the daemon, which has chosen its embedders: the next hook starts it again."""
    from recollect.hosts.daemon.client import ask

    with suppress(OSError):
        ask("POST", "/stop", seconds=_STOP_SECONDS)


MAKERS: Final[dict[MadeBy, str]] = {
    "rules": "found by rules of an earlier version",
    "model": "found by a model",
    "user": "written by hand",
    "import": "imported",
}


_SEGMENT_FIELDS: Final = (
    *("id", "session", "role", "tool", "said_at", "text"),
    *("tokens", "source", "trust", "noise", "origin"),
)


_FACT_FIELDS: Final = (
    *("id", "type", "content", "context", "subject", "attribute", "trust", "made_by"),
    *("change", "superseded_by", "session", "pinned", "sources"),
)


def heading(segment: Segment, *marks: str) -> str:
    """Format one line about a message: role, tool, time, session, id, and anything unusual."""
    speaker_text = click.style(plain_line(f"{segment.role} {segment.tool or ''}"), fg="cyan")
    notes: list[str] = [segment.source] if segment.source == "note" else []
    if segment.source == "file" and segment.origin is not None:
        notes.append(plain_line(segment.origin))
    if segment.noise is not None:
        notes.append(f"noise: {segment.noise}")
    note = ", ".join([*notes, *marks])
    place_text = f"{when(segment.said_at)}  {plain_line(segment.session)}"
    details = format_id(segment.id) + (f"  ({note})" if note else "")
    return f"{speaker_text}  {place_text}  {click.style(details, dim=True)}"


def segment_as_json(stored_segment: StoredSegment) -> dict[str, Any]:
    segment = stored_segment.segment
    record = {name: getattr(segment, name) for name in _SEGMENT_FIELDS}
    return {**record, "said_at": instant(segment.said_at), "sequence": stored_segment.sequence}


def format_id(id: str) -> str:  # noqa: A002
    """Format an id on one line. Ids from files may contain any character."""
    return plain_line(id) or "(no id)"


def statement(fact: Fact) -> str:
    """Format a fact on one line, with its subject if the fact's text does not name it."""
    return plain_line(fact.told) or "(no words)"


def speaker(trust: Trust) -> str:
    """Return the speaker's name and the trust level."""
    return f"{SPEAKERS[trust]} ({trust})"


def format_speaker(trust: Trust) -> str:
    return ("" if trust == "outside" else "said by ") + speaker(trust)


def fact_line(fact: Fact) -> str:
    """Format a line about a fact without its words: type, speaker, time and source."""
    until = "" if fact.current else ", replaced since"
    if fact.valid_to is not None:
        until = f" until {when(fact.valid_to)}"
    parts = [
        click.style(fact.type.replace("_", " "), bold=True),
        format_speaker(fact.trust),
        f"{when(fact.at)}{until}",
        MAKERS[fact.made_by],
        *(["pinned"] if fact.pinned else []),
    ]
    return "  ".join(parts)


def fact_as_json(fact: Fact) -> dict[str, Any]:
    times = {"since": fact.at, "until": fact.valid_to, "recorded_at": fact.recorded_at}
    return {
        **{name: getattr(fact, name) for name in _FACT_FIELDS},
        **{name: instant(time) for name, time in times.items()},
        "evidence": [asdict(span) for span in fact.evidence],
    }
