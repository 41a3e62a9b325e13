"""`recollect tenant` and `recollect key`: who may use a service, with which key and how much.

Speaks to the database alone, so a service need not run. A key is printed once, when it is made:
only a hash of it is kept. Every change stands in the audit log.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import re
import shlex
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

import click

from recollect.cli.store_options import (
    check_url,
    instant,
    json_option,
    print_json,
    store_option,
    when,
)
from recollect.core.values.tenant import KEY_SCOPES, ApiKey, KeyScope, Tenant, tenant_space
from recollect.errors import RecollectError
from recollect.hosts.service.keys import (
    DEFAULT_SCOPES,
    MadeKey,
    limited,
    make_key,
    new_tenant,
    rotated_key,
    shown_key,
)
from recollect.system import config
from recollect.system.config.fields import read_seconds
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres import PostgresFleet

T = TypeVar("T")
PAGE: Final = 500
LONGEST_AGE_SECONDS: Final = 100 * 366 * 86_400.0
LIFTED: Final = 0
"""A limit that is taken away; no limit is so low."""
Work = Callable[["PostgresFleet"], Awaitable[T]]


class LimitType(click.IntRange):
    """A limit: a number above 0, or `none`."""

    name = "limit"

    def __init__(self) -> None:
        super().__init__(min=1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; `LIFTED` for `none`."""
        if isinstance(value, str) and value.strip().lower() == "none":
            return LIFTED
        return int(super().convert(value, param, ctx))


requests_option = click.option(
    "--requests-per-minute", type=LimitType(), metavar="N", help="Requests, on all nodes; or none."
)
tokens_option = click.option(
    "--tokens-per-day",
    type=LimitType(),
    metavar="N",
    help="Tokens taken in, on all nodes; or none.",
)


def with_fleet(url: str | None, work: Work[T]) -> T:
    """Do it on the database of a service."""
    check_url(url)
    from recollect.adapters.wiring.stores import is_server, open_fleet

    url = config.load_settings().settings.store.url if url is None else url
    if url is None or not is_server(url):
        raise RecollectError(
            "tenants are for a service on PostgreSQL: give --store postgresql://USER@HOST/DATABASE"
        )

    async def run() -> T:
        fleet = await open_fleet(url)
        try:
            return await work(fleet)
        finally:
            await fleet.close()

    return asyncio.run(run())


def actor() -> str:
    """Who runs the command, for the audit log."""
    try:
        return f"command line, {getpass.getuser()}"
    except (KeyError, OSError):  # a container's user need not have a name
        return "command line"


async def meant_tenant(fleet: PostgresFleet, name: str) -> Tenant:
    """The tenant of this name; RecollectError where there is none."""
    tenant = await fleet.tenants().tenant_named(name)
    if tenant is None:
        raise RecollectError(
            f"there is no tenant {plain_line(name)!r}: `recollect tenant list` shows them"
        )
    return tenant


@click.group()
def tenant() -> None:
    """Say who may use a service, and how much of it."""


@tenant.command("create")
@click.argument("name")
@requests_option
@tokens_option
@store_option
@json_option
def create_tenant(
    *,
    name: str,
    requests_per_minute: int | None,
    tokens_per_day: int | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Make a tenant. Without limits it may ask for as much as there is."""
    if not name.strip():
        raise RecollectError("a tenant has a name of at least one character")
    made = limited(
        new_tenant(name, now=time.time()),
        requests=requests_per_minute or None,
        tokens=tokens_per_day or None,
    )

    async def work(fleet: PostgresFleet) -> bool:
        return await fleet.tenants().add_tenant(made, actor=actor())

    if not with_fleet(url, work):
        raise RecollectError(f"there is a tenant {plain_line(name)!r} already")
    if as_json:
        print_json(_tenant_json(made))
    else:
        click.echo(f"{made.id}  {plain_line(name)}")
        click.echo(f"Next: recollect key create {_quoted(name)}{_same_store(url)}", err=True)


def _quoted(name: str) -> str:
    """A name as a shell takes it, and as it can be shown."""
    return shlex.quote(plain_line(name))


def _same_store(url: str | None) -> str:
    """The option that a further command needs; a URL that may hold a password is not repeated."""
    if url is None:
        return ""
    secret = "password" in url.lower() or ":" in url.partition("://")[2].rpartition("@")[0]
    return " --store URL, the same as here" if secret else f" --store {shlex.quote(url)}"


@tenant.command("list")
@store_option
@json_option
def list_tenants(*, url: str | None, as_json: bool) -> None:
    """List the tenants and their limits."""

    async def work(fleet: PostgresFleet) -> list[Tenant]:
        found: list[Tenant] = []
        while page := await fleet.tenants().tenants(
            after=found[-1].name if found else "", limit=PAGE
        ):
            found += page
        return found

    found = with_fleet(url, work)
    if as_json:
        print_json({"tenants": [_tenant_json(one) for one in found]})
        return
    for one in found:
        click.echo(f"{one.id}  {when(one.created_at)}  {plain_line(one.name)}  {_limits_text(one)}")


def _limits_text(one: Tenant) -> str:
    requests = "no limit" if one.requests_per_minute is None else f"{one.requests_per_minute:,}"
    tokens = "no limit" if one.tokens_per_day is None else f"{one.tokens_per_day:,}"
    return f"requests a minute: {requests}, tokens a day: {tokens}"


@tenant.command("limits")
@click.argument("name")
@requests_option
@tokens_option
@store_option
@json_option
def set_limits(
    *,
    name: str,
    requests_per_minute: int | None,
    tokens_per_day: int | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Set a tenant's limits, and show them; one that is not named stays, `none` lifts one. Nodes
    follow within seconds."""

    async def work(fleet: PostgresFleet) -> Tenant:
        known = await meant_tenant(fleet, name)
        if requests_per_minute is None and tokens_per_day is None:
            return known
        new = limited(
            known,
            requests=_new_limit(requests_per_minute, known.requests_per_minute),
            tokens=_new_limit(tokens_per_day, known.tokens_per_day),
        )
        await fleet.tenants().set_limits(new, actor=actor(), at=time.time())
        return new

    new = with_fleet(url, work)
    if as_json:
        print_json(_tenant_json(new))
    else:
        click.echo(f"{plain_line(name)}  {_limits_text(new)}")


def _new_limit(given: int | None, known: int | None) -> int | None:
    return known if given is None else given or None


@tenant.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--certificates",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A new file for the certificates, one JSON object a line.",
)
@store_option
@json_option
def delete_tenant(
    *, name: str, yes: bool, file: Path | None, url: str | None, as_json: bool
) -> None:
    """Delete a tenant with its keys, its spaces and all that they hold.

    A certificate a space: a line each, with --certificates or --json the whole of them.
    """
    if not yes and not click.confirm(
        f"Delete tenant {plain_line(name)} with all its spaces for good?", err=True
    ):
        raise SystemExit(1)

    certificates: list[dict[str, Any]] = []
    with ExitStack() as opened:
        written: IO[str] | None = None

        def keep(certificate: dict[str, Any]) -> None:
            """Told at once: what is deleted stays certified where the rest fails."""
            certificates.append(certificate)
            if written is not None:
                written.write(json.dumps(certificate) + "\n")
                written.flush()
            if not as_json:
                segments = certificate["counts"].get("segments", 0)
                click.echo(
                    f"{plain_line(certificate['space'])}  {segments:,} messages  "
                    f"certificate {certificate['checksum']}"
                )

        async def work(fleet: PostgresFleet) -> Tenant:
            nonlocal written
            meant = await meant_tenant(fleet, name)
            if file is not None:
                try:
                    written = opened.enter_context(file.open("x", encoding="utf-8"))
                except OSError as error:
                    raise RecollectError(
                        f"--certificates {plain_line(str(file))}: {error.strerror}; nothing was "
                        "deleted"
                    ) from None
            await _delete(fleet, meant, keep)
            return meant

        gone = with_fleet(url, work)
    if as_json:
        print_json({"deleted": name, "id": str(gone.id), "certificates": certificates})
    else:
        click.echo(f"Deleted {plain_line(name)} and {len(certificates):,} spaces.")
        click.echo(f"Its log stays: recollect tenant audit {gone.id}{_same_store(url)}", err=True)


async def _delete(
    fleet: PostgresFleet, meant: Tenant, keep: Callable[[dict[str, Any]], None]
) -> None:
    from recollect.core.upkeep.certificates import certificate_json
    from recollect.core.upkeep.forget import delete_space

    records = fleet.tenants()
    for key in await records.keys(meant.id):  # nobody writes while spaces go
        await records.revoke_key(meant, key.id, actor=actor(), at=time.time())
    while page := await records.spaces(meant.id, limit=PAGE):
        for space in page:
            store = await fleet.space(tenant_space(meant.id, space.name))
            done = await delete_space(store, named=space.name, now=time.time())
            keep(certificate_json(done))
            await records.remove_space(meant, space.name, actor=actor(), at=time.time())
            late = await delete_space(store, named=space.name, now=time.time())
            if late.counts:  # written until then by a node that knew the key: no name leads to it
                keep(certificate_json(late))
    await records.remove_tenant(meant, actor=actor(), at=time.time())


@tenant.command("audit")
@click.argument("name", required=False)
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@store_option
@json_option
def show_audit(*, name: str | None, limit: int, url: str | None, as_json: bool) -> None:
    """Show what was done about tenants, keys and spaces, the newest first.

    NAME is a tenant's name or id, also of one that was deleted.
    """

    async def work(fleet: PostgresFleet) -> list[dict[str, Any]]:
        tenants = [None] if name is None else await _logged(fleet, name)
        log = [
            record
            for tenant in tenants
            for record in await fleet.tenants().log(tenant, limit=limit)
        ]
        log.sort(key=lambda record: (record.at, record.id), reverse=True)
        return [
            {**asdict(record), "at": instant(record.at), "tenant": str(record.tenant)}
            for record in log[:limit]
        ]

    acts = with_fleet(url, work)
    if as_json:
        print_json({"acts": acts})
        return
    for act in acts:
        text = (
            f"{act['at']}  {act['actor']}  {act['act']}  {act['subject']}  tenant {act['tenant']}"
        )
        click.echo(plain_line(text))


async def _logged(fleet: PostgresFleet, name: str) -> list[UUID | None]:
    """Whose log is meant: the tenant of this name or id, else those that had it once."""
    records = fleet.tenants()
    if (tenant := await records.tenant_named(name)) is not None:
        return [tenant.id]
    with suppress(ValueError):
        if await records.log(UUID(name), limit=1):
            return [UUID(name)]
    found: list[UUID | None] = [*await records.deleted_tenants(name)]
    return found or [(await meant_tenant(fleet, name)).id]


@click.group()
def key() -> None:
    """Make, list, revoke and rotate the keys of a service's tenants."""


@key.command("create")
@click.argument("tenant_name", metavar="TENANT")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(KEY_SCOPES),
    help="What it may do; may be repeated. Without it: read and write.",
)
@click.option("--name", default="", help="What it is for, to tell keys apart.")
@click.option("--expires", metavar="AGE", help="It ends after this: 90d, 12h, 5m.")
@store_option
@json_option
def create_key(
    *,
    tenant_name: str,
    scopes: tuple[KeyScope, ...],
    name: str,
    expires: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Make a key and print it: it is shown once and can be had from nowhere later."""
    now = time.time()
    ends = None if expires is None else now + _age(expires, "--expires")

    async def work(fleet: PostgresFleet) -> MadeKey:
        owner = await meant_tenant(fleet, tenant_name)
        made = make_key(
            owner.id, name=name, scopes=scopes or DEFAULT_SCOPES, now=now, expires_at=ends
        )
        await fleet.tenants().add_key(made.record, actor=actor())
        return made

    _print_made(with_fleet(url, work), as_json=as_json)


@key.command("list")
@click.argument("tenant_name", metavar="TENANT")
@store_option
@json_option
def list_keys(*, tenant_name: str, url: str | None, as_json: bool) -> None:
    """List a tenant's keys: what may be seen of them, what they may do, when they end."""

    async def work(fleet: PostgresFleet) -> tuple[ApiKey, ...]:
        return await fleet.tenants().keys((await meant_tenant(fleet, tenant_name)).id)

    keys = with_fleet(url, work)
    if as_json:
        print_json({"keys": [_key_json(one) for one in keys]})
        return
    now = time.time()
    for one in keys:
        click.echo(
            f"{one.id}  {shown_key(one)}  {', '.join(one.scopes)}  {_ending(one, now)}  "
            f"{plain_line(one.name)}"
        )


def _ending(one: ApiKey, now: float) -> str:
    if one.revoked_at is not None:
        return f"revoked {when(one.revoked_at)}"
    if one.expires_at is None:
        return "never ends"
    return f"{'ends' if now < one.expires_at else 'ended'} {when(one.expires_at)}"


@key.command("revoke")
@click.argument("tenant_name", metavar="TENANT")
@click.argument("key_id", metavar="KEY")
@store_option
@json_option
def revoke_key(*, tenant_name: str, key_id: str, url: str | None, as_json: bool) -> None:
    """Let a key open nothing from now on. Nodes follow within seconds."""

    async def work(fleet: PostgresFleet) -> bool:
        owner = await meant_tenant(fleet, tenant_name)
        return await fleet.tenants().revoke_key(owner, key_id, actor=actor(), at=time.time())

    if not with_fleet(url, work):
        raise RecollectError(_no_such(tenant_name, key_id))
    if as_json:
        print_json({"revoked": key_id})
    else:
        from recollect.hosts.service.principals import KEY_SECONDS

        click.echo(f"Revoked {plain_line(key_id)}: nodes refuse it within {KEY_SECONDS:g} seconds.")


@key.command("rotate")
@click.argument("tenant_name", metavar="TENANT")
@click.argument("key_id", metavar="KEY")
@click.option(
    "--grace", metavar="AGE", default="24h", show_default=True, help="How long the old one lasts."
)
@store_option
@json_option
def rotate_key(
    *, tenant_name: str, key_id: str, grace: str, url: str | None, as_json: bool
) -> None:
    """Make a key in the place of another, which goes on for a while, so that nothing stops."""
    now = time.time()
    ends = now + _age(grace, "--grace")

    async def work(fleet: PostgresFleet) -> MadeKey | None:
        owner = await meant_tenant(fleet, tenant_name)
        found = await fleet.tenants().key(owner.id, key_id)
        if found is None:
            return None
        made = rotated_key(found[0], now=now)
        done = await fleet.tenants().rotate_key(
            owner, key_id, made.record, ends_at=ends, actor=actor()
        )
        return made if done else None

    made = with_fleet(url, work)
    if made is None:
        raise RecollectError(_no_such(tenant_name, key_id))
    _print_made(made, as_json=as_json)


def _no_such(tenant_name: str, key_id: str) -> str:
    listed = f"`recollect key list {plain_line(tenant_name)}` shows them"
    return f"tenant {plain_line(tenant_name)!r} has no working key {plain_line(key_id)!r}: {listed}"


def _age(text: str, option: str) -> float:
    weeks = re.fullmatch(r"(\d{1,4})w", text, re.ASCII)
    seconds = read_seconds(text) if weeks is None else int(weeks[1]) * 7 * 86_400.0
    if seconds is None or not 0 <= seconds < LONGEST_AGE_SECONDS:
        raise RecollectError(
            f"{option} {plain_line(text)!r}: give an age such as 90d, 12h, 5m or 90s"
        )
    return seconds


def _print_made(made: MadeKey, *, as_json: bool) -> None:
    if as_json:
        print_json({**_key_json(made.record), "key": made.text})
        return
    click.echo(made.text)
    click.echo("It is shown this once: only a hash of it is kept.", err=True)


def _tenant_json(one: Tenant) -> dict[str, Any]:
    return {**asdict(one), "id": str(one.id), "created_at": instant(one.created_at)}


def _key_json(one: ApiKey) -> dict[str, Any]:
    return {
        "id": one.id,
        "prefix": shown_key(one),
        "name": one.name,
        "scopes": list(one.scopes),
        "created_at": instant(one.created_at),
        "expires_at": instant(one.expires_at),
        "revoked_at": instant(one.revoked_at),
    }
