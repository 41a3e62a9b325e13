"""The application's role: its rights, and the settings that it logs in with.

Settings stand on the role that logs in, because a member of it does not inherit them, and because
a pooler in transaction mode would lose what a connection sets for itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from recollect.adapters.stores.postgres.driver import MIGRATE_COMMAND, psycopg, sql_errors
from recollect.adapters.stores.postgres.pool import Connection
from recollect.errors import StoreError

APP_ROLE: Final = "recollect_app"
TIMEOUTS: Final[Mapping[str, str]] = {
    "statement_timeout": "60s",
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "60s",
}
"""What a statement, a wait for a lock, and a client that fell silent may take. The store cancels
by itself after 60 seconds: these hold where it cannot any more."""
LOGGING: Final[Mapping[str, str]] = {
    "log_min_error_statement": "panic",
    "log_parameter_max_length": "0",
}
"""So that no statement writes what was said into the server's log. Only a superuser may set them.
On Citus workers get parameters as literals, so there the first one is what keeps them out."""
CITUS_SETTINGS: Final[Mapping[str, str]] = {"citus.propagate_set_commands": "local"}
"""Row security reads app.space_id, which is set in the transaction: workers must hear of it."""

_APP_ROLE: Final = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = %s"
_LOGIN_ROLES: Final = """
    SELECT r.rolname, coalesce((
        SELECT array_agg(setting ORDER BY s.setdatabase)
        FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) AS setting
        WHERE s.setrole = r.oid AND s.setdatabase IN (0, (
            SELECT oid FROM pg_database WHERE datname = current_database()))
    ), '{}')
    FROM pg_roles r
    WHERE r.rolcanlogin AND NOT r.rolsuper AND (r.rolname = %(role)s OR pg_has_role(
        r.oid, (SELECT oid FROM pg_roles WHERE rolname = %(role)s), 'MEMBER'))
    ORDER BY r.rolname
"""


@dataclass(frozen=True, slots=True)
class LoginRole:
    """A role that the application logs in as, with what is set on it."""

    name: str
    settings: Mapping[str, str]


def wanted_settings(*, citus: bool) -> dict[str, str]:
    """What a login role is to have."""
    return {
        **TIMEOUTS,
        "plan_cache_mode": "force_custom_plan",
        **LOGGING,
        **(CITUS_SETTINGS if citus else {}),
    }


def missing_settings(role: LoginRole, *, citus: bool) -> dict[str, str]:
    """What is not set as it should be; a timeout may be another one, but not none."""
    wanted = wanted_settings(citus=citus)
    return {
        name: value
        for name, value in wanted.items()
        if (
            role.settings.get(name) in (None, "0")
            if name in TIMEOUTS
            else role.settings.get(name) != value
        )
    }


def mend_of(role: str, name: str, value: str) -> str:
    """The statement that sets it."""
    quoted = role.replace('"', '""')
    return f"ALTER ROLE \"{quoted}\" SET {name} = '{value}'"


async def login_roles(connection: Connection, role: str) -> tuple[LoginRole, ...]:
    """The application's role and its members, as far as they may log in."""
    rows = await (await connection.execute(_LOGIN_ROLES, {"role": role})).fetchall()
    return tuple(
        LoginRole(name, dict(setting.split("=", 1) for setting in settings))
        for name, settings in rows
    )


async def apply_setting(connection: Connection, role: str, name: str, value: str) -> bool:
    """Set it on the role; False where the URL's role may not."""
    try:
        async with connection.transaction():
            await connection.execute(mend_of(role, name, value).encode())
    except sql_errors.InsufficientPrivilege:
        return False
    return True


async def require_bound(connection: Connection, role: str) -> None:
    """Raise unless this role exists and is under row-level security."""
    row = await (await connection.execute(_APP_ROLE, (role,))).fetchone()
    if row is None:
        raise StoreError(f"there is no role {role!r} to act as: run `{MIGRATE_COMMAND}`")
    if row[0]:
        raise StoreError(
            f"the role {role!r} is a superuser or has BYPASSRLS, so it would see every space: "
            "name another one"
        )


_KEPT_FROM_THE_ROLE: Final = {
    "recollect.schema_versions": psycopg.sql.SQL("INSERT, UPDATE, DELETE"),
    "recollect.rewritten": psycopg.sql.SQL("INSERT, UPDATE, DELETE"),
    "recollect.audit_log": psycopg.sql.SQL("UPDATE, DELETE"),
}
"""What the application's role may not do with tables; a later migration may add one of them."""


async def _exists(connection: Connection, table: str) -> bool:
    found = await connection.execute("SELECT to_regclass(%s) IS NOT NULL", (table,))
    row = await found.fetchone()
    return row is not None and bool(row[0])


async def grant_rights(connection: Connection, role: str, password: str | None) -> None:
    """Make the role where it is missing; rights on everything but the record of versions."""
    name = psycopg.sql.Identifier(role)
    known = await (
        await connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,))
    ).fetchone()
    if known is None:
        try:
            await connection.execute(
                psycopg.sql.SQL("CREATE ROLE {} NOLOGIN NOSUPERUSER NOBYPASSRLS").format(name)
            )
        except sql_errors.InsufficientPrivilege:
            raise StoreError(
                f"the URL's role may not make the role {role!r}: have it made, or grant CREATEROLE"
            ) from None
    await require_bound(connection, role)
    if password is not None:
        # Statements that change roles may be logged: what the server keeps goes there, not the
        # password itself.
        verifier = connection.pgconn.encrypt_password(
            password.encode(), role.encode(), b"scram-sha-256"
        )
        await connection.execute(
            psycopg.sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(name, verifier.decode())
        )
    with contextlib.suppress(sql_errors.InsufficientPrivilege):  # made by somebody else
        async with connection.transaction():
            plans = psycopg.sql.SQL("ALTER ROLE {} SET plan_cache_mode = force_custom_plan")
            await connection.execute(plans.format(name))
    for statement in (
        psycopg.sql.SQL("GRANT USAGE ON SCHEMA recollect TO {}"),
        psycopg.sql.SQL(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA recollect TO {}"
        ),
    ):
        await connection.execute(statement.format(name))
    for table, rights in _KEPT_FROM_THE_ROLE.items():
        if await _exists(connection, table):
            kept = psycopg.sql.SQL("REVOKE {} ON {} FROM {}")
            parts = psycopg.sql.Identifier(*table.split("."))
            await connection.execute(kept.format(rights, parts, name))
