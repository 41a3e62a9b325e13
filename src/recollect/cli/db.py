"""`recollect db init|migrate|distribute|check|secret`: commands for a database's operator.

Each command takes the URL of the tables' owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import asdict
from functools import wraps
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TextIO

import click

from recollect.adapters.wiring.stores import is_server, open_fleet, require_driver
from recollect.cli.store_options import check_url, json_option, print_json
from recollect.errors import RecollectError, StoreError, WrongSecret
from recollect.system import config
from recollect.system.plain_text import number_of, plain_line

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres.admin import DatabaseCheck

_password_option = click.option(
    "--app-password-file",
    "password_file",
    type=click.File("r"),
    metavar="FILE",
    help="Let the application's role log in with the password in FILE. Pass - to read standard "
    "input.",
)


def database_options(command: Callable[..., Coroutine[Any, Any, None]]) -> Any:
    """Add `[URL]`, `--app-role` and `--json` to a command; `server` is the owner's URL."""

    @click.argument("server", required=False, metavar="[URL]")
    @click.option(
        "--app-role",
        metavar="ROLE",
        default="recollect_app",
        help="The database role that the application uses. Default: recollect_app.",
    )
    @json_option
    @wraps(command)
    def run(*, server: str | None, **arguments: Any) -> None:
        asyncio.run(command(server=_owner_url(server), **arguments))

    return run


def _owner_url(url: str | None) -> str:
    check_url(url)
    server = config.load_settings().settings.store.url if url is None else url
    if server is None or not is_server(server):
        raise RecollectError(
            "this command is for PostgreSQL: give postgresql://OWNER@HOST/DATABASE "
            "(SQLite files are migrated when they are opened)"
        )
    require_driver()
    return server


@click.group()
def db() -> None:
    """Initialize, migrate, distribute and check a PostgreSQL database.

    URL must log in as the owner of the tables. Default: store.url."""


@db.command("init")
@_password_option
@database_options
async def init(*, server: str, app_role: str, password_file: TextIO | None, as_json: bool) -> None:
    """Create the schema and the role that the application uses. Safe to run again.

    Also sets timeouts for that role, and keeps message content out of the server's log. If a
    setting needs a superuser, prints the statement and exits 1."""
    from recollect.adapters.stores.postgres.schema import initialize

    password = _password(password_file)
    init_result = await initialize(
        server, app_role=app_role, app_password=password, waiting=_report_lock
    )
    lines = {
        "applied": init_result.applied,
        "set": init_result.settings,
        "statements that a superuser must run:": init_result.cannot,
    }
    _show(asdict(init_result), lines, "Schema, role and settings are up to date.", as_json=as_json)


@db.command("migrate")
@click.option(
    "--phase",
    type=click.Choice(["pre", "post", "all"]),
    default="all",
    show_default=True,
    help="Run only these steps. pre: steps for before the new version starts. post: steps for "
    "after the last older version has stopped.",
)
@_password_option
@click.option("--dry-run", is_flag=True, help="List the steps, and run none.")
@database_options
async def migrate(
    *,
    server: str,
    phase: Literal["pre", "post", "all"],
    app_role: str,
    password_file: TextIO | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Migrate a database to this version's schema.

    If a table is locked, waits at most 3 seconds, then lets other queries run and tries again.
    Recollect migrates SQLite files when it opens them."""
    from recollect.adapters.stores.postgres import schema

    if dry_run:
        steps = tuple(step.file for step in await schema.pending(server, phase=phase))
    else:
        steps = await schema.migrate(
            server,
            phase=phase,
            app_role=app_role,
            app_password=_password(password_file),
            waiting=_report_lock,
        )
    lines = {"would apply" if dry_run else "applied": steps}
    value = {"dry_run": dry_run, "applied": list(steps)}
    _show(value, lines, "The schema is up to date.", as_json=as_json)


@db.command("distribute")
@click.option(
    "--shards",
    "shard_count",
    type=click.IntRange(1),
    metavar="N",
    help="Create this many shards if there are none yet. Default: Citus's default.",
)
@database_options
async def distribute(*, server: str, app_role: str, shard_count: int | None, as_json: bool) -> None:
    """Distribute the tables over the nodes of a Citus cluster. Safe to run again.

    Run this command after every migration, because new tables are on the coordinator only until
    then. Moves existing rows to the nodes, and removes the copies on the coordinator."""
    from recollect.adapters.stores.postgres import admin

    distribution = await admin.distribute(
        server, app_role=app_role, shard_count=shard_count, waiting=_report_lock
    )
    lines = {
        "set": distribution.settings,
        "distributed": distribution.distributed,
        "moved to the coordinator:": distribution.returned,
        "truncated on the coordinator:": distribution.truncated,
        "still to do:": distribution.cannot,
    }
    _show(asdict(distribution), lines, "Every table is distributed.", as_json=as_json)


@db.command("check")
@database_options
async def check(*, server: str, app_role: str, as_json: bool) -> None:
    """Check versions, roles, row security, schema and Citus. Changes nothing.

    Lists problems and the fix for each. Exits 1 if it finds a problem."""
    from recollect.adapters.stores.postgres.admin import check_database

    database_check = await check_database(server, app_role=app_role)
    await _check_secret(server, app_role, database_check)
    if as_json:
        print_json({**asdict(database_check), "problems": database_check.problems})
    else:
        click.echo(f"{database_check.server}, schema version {database_check.schema_version}")
        if database_check.citus is not None:
            click.echo(
                f"Citus {database_check.citus} on {', '.join(database_check.nodes) or 'no node'}"
            )
        for item in database_check.checked:
            click.echo(f"checked  {plain_line(item)}")
        for finding in database_check.findings:
            click.echo(f"{'PROBLEM' if finding.problem else 'note'}  {plain_line(finding.what)}")
            click.echo(f"         {plain_line(finding.fix)}")
        if not database_check.findings:
            click.echo("Everything is in order.")
    if database_check.problems:
        raise SystemExit(1)


async def _check_secret(server: str, app_role: str, database_check: DatabaseCheck) -> None:
    from recollect.adapters.wiring import secrets

    with suppress(StoreError):  # a finding says why the database cannot be opened
        async with await open_fleet(server, app_role=app_role) as fleet:
            if secrets.deployment_secret() and await fleet.secret_records():
                database_check.checked.append("RECOLLECT_SECRET")
                try:
                    await secrets.unlock(fleet, server)
                except WrongSecret as error:
                    database_check.add(str(error), "set RECOLLECT_SECRET here and on the nodes")


@db.command("secret")
@click.option(
    "--accept",
    "file",
    type=click.File("rb"),
    metavar="FILE",
    help="Also accept the secret in FILE. Pass - to read standard input.",
)
@click.option("--retire", is_flag=True, help="Accept no other secret than RECOLLECT_SECRET.")
@database_options
async def secret(
    *, server: str, app_role: str, file: BinaryIO | None, retire: bool, as_json: bool
) -> None:
    """Check RECOLLECT_SECRET, or rotate it. If no secret is recorded, record it.

    To rotate: run --accept with the new secret in FILE, give the new secret to all nodes, workers
    and commands, then run --retire with it. Exits 1 if RECOLLECT_SECRET is not accepted."""
    from recollect.adapters.wiring.secrets import change_secrets

    new_secret = None if file is None else file.read()
    async with await open_fleet(server, app_role=app_role) as fleet:
        count = await change_secrets(fleet, server, accept=new_secret, retire=retire)
    line = f"Accepted: RECOLLECT_SECRET and {number_of(count - 1, 'other secret')}."
    _show({"accepted": count}, {}, line, as_json=as_json)


def _password(file: TextIO | None) -> str | None:
    return None if file is None else file.readline().rstrip("\r\n") or None


def _report_lock(name: str) -> None:
    click.echo(
        f"recollect: {name}: other transactions hold a lock on its tables; trying again", err=True
    )


def _show(
    value: dict[str, Any], lines: dict[str, tuple[str, ...]], nothing: str, *, as_json: bool
) -> None:
    """Print the result. Exit with 1 if `lines` contain a statement that another person must run."""
    if as_json:
        print_json(value)
    else:
        shown_lines = [
            f"{title}  {plain_line(line)}" for title, texts in lines.items() for line in texts
        ]
        click.echo("\n".join(shown_lines or [nothing]))
    if value.get("cannot"):
        raise SystemExit(1)
