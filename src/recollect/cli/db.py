"""`recollect db init|migrate|distribute|check`: a PostgreSQL database, for its operator.

All take the URL of the tables' owner.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any, Literal, TextIO

import click

from recollect.adapters.wiring.stores import is_server, require_driver
from recollect.cli.store_options import check_url, json_option, print_json
from recollect.errors import RecollectError
from recollect.system import config
from recollect.system.plain_text import plain_line

_url_argument = click.argument("server", required=False, metavar="[URL]")
_role_option = click.option(
    "--app-role",
    metavar="ROLE",
    help="The database role that the application uses. Default: recollect_app.",
)
_password_option = click.option(
    "--app-password-file",
    "password_file",
    type=click.File("r"),
    metavar="FILE",
    help=(
        "Let the application's role log in with the password in FILE. Pass - to read standard "
        "input."
    ),
)


@click.group()
def db() -> None:
    """Initialize, migrate, distribute and check a PostgreSQL database.

    URL must log in as the owner of the tables. Default: store.url.
    """


@db.command("init")
@_url_argument
@_role_option
@_password_option
@json_option
def init(
    *,
    server: str | None,
    app_role: str | None,
    password_file: TextIO | None,
    as_json: bool,
) -> None:
    """Create the schema and the application's role, with timeouts and logging. Safe to run again.

    Exits 1 if a superuser still has to run a statement.
    """
    from recollect.adapters.stores.postgres.schema import APP_ROLE, initialize

    made = asyncio.run(
        initialize(
            _server(server),
            app_role=app_role or APP_ROLE,
            app_password=_password(password_file),
            waiting=_waiting,
        )
    )
    lines = {"applied": made.applied, "set": made.settings, "left to a superuser:": made.cannot}
    _print(asdict(made), lines, "Schema, role and settings are up to date.", as_json)
    if made.cannot:
        raise SystemExit(1)


@db.command("migrate")
@_url_argument
@click.option(
    "--phase",
    type=click.Choice(["pre", "post", "all"]),
    default="all",
    show_default=True,
    help=(
        "Run these steps. pre: before the new version starts. post: after the last older "
        "version has stopped."
    ),
)
@_role_option
@_password_option
@click.option("--dry-run", is_flag=True, help="List the steps, and run none.")
@json_option
def migrate(
    *,
    server: str | None,
    phase: Literal["pre", "post", "all"],
    app_role: str | None,
    password_file: TextIO | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Migrate a database to this version's schema.

    Waits at most 3 seconds for a lock, then lets other queries run and tries again. Recollect
    migrates SQLite files when it opens them.
    """
    from recollect.adapters.stores.postgres.schema import APP_ROLE, pending
    from recollect.adapters.stores.postgres.schema import migrate as migrate_server

    url = _server(server)
    if dry_run:
        done = tuple(step.file for step in asyncio.run(pending(url, phase=phase)))
    else:
        done = asyncio.run(
            migrate_server(
                url,
                phase=phase,
                app_role=app_role or APP_ROLE,
                app_password=_password(password_file),
                waiting=_waiting,
            )
        )
    value = {"dry_run": dry_run, "applied": list(done)}
    lines = {"would apply" if dry_run else "applied": done}
    _print(value, lines, "The schema is up to date.", as_json)


@db.command("distribute")
@_url_argument
@_role_option
@click.option(
    "--shards",
    "shard_count",
    type=click.IntRange(1),
    metavar="N",
    help="Create this many shards if there are none yet. Default: Citus's default.",
)
@json_option
def distribute(
    *,
    server: str | None,
    app_role: str | None,
    shard_count: int | None,
    as_json: bool,
) -> None:
    """Distribute the tables over the nodes of a Citus cluster. Safe to run again.

    Run it after every migration, because new tables stay on the coordinator until then. Removes
    existing rows from the coordinator's files.
    """
    from recollect.adapters.stores.postgres.admin import distribute as distribute_tables
    from recollect.adapters.stores.postgres.schema import APP_ROLE

    done = asyncio.run(
        distribute_tables(
            _server(server),
            app_role=app_role or APP_ROLE,
            shard_count=shard_count,
            waiting=_waiting,
        )
    )
    lines = {
        "set": done.settings,
        "distributed": done.distributed,
        "truncated on the coordinator:": done.truncated,
        "left to do:": done.cannot,
    }
    _print(asdict(done), lines, "Every table is distributed.", as_json)
    if done.cannot:
        raise SystemExit(1)


@db.command("check")
@_url_argument
@_role_option
@json_option
def check(*, server: str | None, app_role: str | None, as_json: bool) -> None:
    """Check versions, roles, row security, schema and Citus. Changes nothing.

    Lists problems and the fix for each. Exits 1 if it finds any.
    """
    from recollect.adapters.stores.postgres.admin import check_database
    from recollect.adapters.stores.postgres.schema import APP_ROLE

    found = asyncio.run(check_database(_server(server), app_role=app_role or APP_ROLE))
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


def _server(url: str | None) -> str:
    check_url(url)
    server = config.load_settings().settings.store.url if url is None else url
    if server is None or not is_server(server):
        raise RecollectError(
            "this is for PostgreSQL: give postgresql://OWNER@HOST/DATABASE "
            "(SQLite files are migrated when they are opened)"
        )
    require_driver()
    return server


def _password(file: TextIO | None) -> str | None:
    return None if file is None else file.readline().rstrip("\r\n") or None


def _waiting(name: str) -> None:
    click.echo(
        f"recollect: {name}: other transactions hold a lock on its tables; trying again", err=True
    )


def _print(
    value: dict[str, Any],
    lines: dict[str, tuple[str, ...]],
    nothing: str,
    as_json: bool,  # noqa: FBT001
) -> None:
    if as_json:
        print_json(value)
        return
    for what, found in lines.items():
        for line in found:
            click.echo(f"{what}  {plain_line(line)}")
    if not any(lines.values()):
        click.echo(nothing)
