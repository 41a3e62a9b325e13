"""`recollect db init|migrate|distribute|check`: a PostgreSQL database, as its operator sees it.

All take the URL of the tables' owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import Any, Literal, TextIO, TypeVar

import click

from recollect.adapters.wiring.stores import is_server, require_driver
from recollect.cli.store_options import check_url, json_option, print_json, store_option
from recollect.errors import RecollectError
from recollect.system import config
from recollect.system.plain_text import plain_line

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

_url_argument = click.argument("server", required=False, metavar="[URL]")
_role_option = click.option("--app-role", metavar="ROLE", help="The role the application acts as.")
_password_option = click.option(
    "--app-password-file",
    "password_file",
    type=click.File("r"),
    metavar="FILE",
    help="Let that role log in with the password in FILE; a dash reads standard input.",
)
_wait_option = click.option(
    "--wait",
    "wait_seconds",
    type=click.FloatRange(0),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to try again while others hold locks.",
)


@click.group()
def db() -> None:
    """Set up, migrate, distribute and check a PostgreSQL database; give its owner's URL."""


@db.command("init")
@_url_argument
@store_option
@_role_option
@_password_option
@json_option
def init(
    *,
    server: str | None,
    url: str | None,
    app_role: str | None,
    password_file: TextIO | None,
    as_json: bool,
) -> None:
    """Make schema and role, and set timeouts and logging on the role; safe to run again.

    Exit code 1 where a statement is left for a superuser to run.
    """
    server = _server(server or url)
    from recollect.adapters.stores.postgres.schema import APP_ROLE, initialize

    made = _run(
        initialize(
            server,
            app_role=app_role or APP_ROLE,
            app_password=_password(password_file),
            waiting=_waiting,
        )
    )
    if as_json:
        print_json(asdict(made))
    else:
        _print("applied", made.applied)
        _print("set", made.settings)
        _print("left to a superuser:", made.cannot)
        if not (made.applied or made.settings or made.cannot):
            click.echo("Schema, role and settings are as they should be.")
    if made.cannot:
        raise SystemExit(1)


@db.command("migrate")
@_url_argument
@store_option
@click.option(
    "--phase",
    type=click.Choice(["pre", "post", "all"]),
    default="all",
    show_default=True,
    help="pre before the new version runs, post when no older one is left.",
)
@_role_option
@_password_option
@_wait_option
@click.option("--dry-run", is_flag=True, help="List the steps; run none.")
@json_option
def migrate(
    *,
    server: str | None,
    url: str | None,
    phase: Literal["pre", "post", "all"],
    app_role: str | None,
    password_file: TextIO | None,
    wait_seconds: float,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Bring a database to this version's schema.

    Waits for no lock longer than 3 seconds, lets others go first and tries again. SQLite files are
    brought up to date when they are opened.
    """
    server = _server(server or url)
    from recollect.adapters.stores.postgres.schema import APP_ROLE, pending
    from recollect.adapters.stores.postgres.schema import migrate as migrate_server

    if dry_run:
        done = tuple(step.file for step in _run(pending(server, phase=phase)))
    else:
        done = _run(
            migrate_server(
                server,
                phase=phase,
                app_role=app_role or APP_ROLE,
                app_password=_password(password_file),
                wait_seconds=wait_seconds,
                waiting=_waiting,
            )
        )
    if as_json:
        print_json({"dry_run": dry_run, "applied": list(done)})
        return
    _print("would apply" if dry_run else "applied", done)
    if not done:
        click.echo("The schema is up to date.")


@db.command("distribute")
@_url_argument
@store_option
@_role_option
@click.option(
    "--shards",
    "shard_count",
    type=click.IntRange(1),
    metavar="N",
    help="How many shards, where none are made yet; else Citus's own number.",
)
@_wait_option
@json_option
def distribute(
    *,
    server: str | None,
    url: str | None,
    app_role: str | None,
    shard_count: int | None,
    wait_seconds: float,
    as_json: bool,
) -> None:
    """Distribute the tables over the nodes of a Citus cluster; safe to run again.

    Run it after every migration: tables that one adds stay on the coordinator until then. Rows
    that were there before are removed from the coordinator's files.
    """
    server = _server(server or url)
    from recollect.adapters.stores.postgres.admin import distribute as distribute_tables
    from recollect.adapters.stores.postgres.schema import APP_ROLE

    done = _run(
        distribute_tables(
            server,
            app_role=app_role or APP_ROLE,
            shard_count=shard_count,
            wait_seconds=wait_seconds,
            waiting=_waiting,
        )
    )
    if as_json:
        print_json(asdict(done))
    else:
        _print("set", done.settings)
        _print("distributed", done.distributed)
        _print("truncated on the coordinator", done.truncated)
        _print("left to do:", done.cannot)
        if not (done.distributed or done.truncated or done.cannot):
            click.echo("Every table is distributed.")
    if done.cannot:
        raise SystemExit(1)


@db.command("check")
@_url_argument
@store_option
@_role_option
@json_option
def check(*, server: str | None, url: str | None, app_role: str | None, as_json: bool) -> None:
    """Look at versions, roles, row security, schema and Citus; exit code 1 on a problem.

    Every finding comes with its mend; nothing is changed.
    """
    server = _server(server or url)
    from recollect.adapters.stores.postgres.admin import check_database
    from recollect.adapters.stores.postgres.schema import APP_ROLE

    found = _run(check_database(server, app_role=app_role or APP_ROLE))
    if as_json:
        print_json({**asdict(found), "problems": found.problems})
    else:
        click.echo(f"{found.server}, schema version {found.schema_version}")
        if found.citus is not None:
            click.echo(f"Citus {found.citus} on {', '.join(found.nodes) or 'no node'}")
        for what in found.checked:
            click.echo(f"checked  {plain_line(what)}")
        for finding in found.findings:
            click.echo(f"{'PROBLEM' if finding.problem else 'note'}  {plain_line(finding.what)}")
            click.echo(f"         {plain_line(finding.mend)}")
        if not found.findings:
            click.echo("Everything is in order.")
    if found.problems:
        raise SystemExit(1)


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def _server(url: str | None) -> str:
    """The URL that was given, or the settings' own, where it names a server."""
    check_url(url)
    server = config.load_settings().settings.store.url if url is None else url
    if server is None or not is_server(server):
        raise RecollectError(
            "this is for PostgreSQL: give postgresql://OWNER@HOST/DATABASE "
            "(SQLite files are brought up to date when they are opened)"
        )
    require_driver()
    return server


def _password(file: TextIO | None) -> str | None:
    return None if file is None else file.readline().rstrip("\r\n") or None


def _waiting(name: str) -> None:
    click.echo(f"recollect: {name}: others hold a lock on its tables; trying again", err=True)


def _print(what: str, lines: tuple[str, ...]) -> None:
    for line in lines:
        click.echo(f"{what}  {plain_line(line)}")
