"""Looks at a database as its operator would: versions, roles, row security, schema, Citus.

Every finding comes with its mend. What the schema should be is the recorded catalogue
(`catalogue.txt`), which a test compares with what the migrations make.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from importlib import resources
from typing import Final

from recollect.adapters.stores.postgres.citus import DISTRIBUTE_COMMAND, Cluster, look_at_cluster
from recollect.adapters.stores.postgres.driver import MIGRATE_COMMAND, driver_errors, sql_errors
from recollect.adapters.stores.postgres.pool import Connection, connect
from recollect.adapters.stores.postgres.roles import (
    APP_ROLE,
    LOGGING,
    login_roles,
    mend_of,
    missing_settings,
    require_bound,
)
from recollect.adapters.stores.postgres.schema import (
    VERSION,
    applied_steps,
    migrations,
    require_server,
)
from recollect.errors import StoreError

OLDEST_PGVECTOR: Final = (0, 8)
OLDEST_CITUS: Final = (12, 1)
OLD_TRANSACTION_SECONDS: Final = 600.0
OF_NO_ONE: Final = frozenset({"schema_versions", "rewritten"})
"""Tables that hold nothing of a space or a tenant."""

_VERSIONS: Final = """
    SELECT current_setting('server_version'), (
        SELECT extversion FROM pg_extension WHERE extname = 'vector'), (
        SELECT extract(epoch FROM max(clock_timestamp() - xact_start))::float8
        FROM pg_stat_activity WHERE state = 'idle in transaction'),
        current_setting('synchronous_commit'), current_setting('data_checksums')
"""
_UNSAFE: Final = """
    SELECT c.relname FROM pg_class c
    WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind IN ('r', 'p')
        AND NOT (c.relrowsecurity AND c.relforcerowsecurity) ORDER BY c.relname
"""
_INVALID: Final = """
    SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE c.relnamespace = 'recollect'::regnamespace AND NOT i.indisvalid
"""
CATALOGUE: Final = """
    SELECT format('table %s%s', c.relname, coalesce(
        ' with ' || (SELECT string_agg(o, ', ' ORDER BY o) FROM unnest(c.reloptions) AS o), ''))
    FROM pg_class c WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind IN ('r', 'p')
    UNION ALL
    SELECT format('column %s.%s %s%s%s storage %s', c.relname, a.attname,
        format_type(a.atttypid, a.atttypmod),
        CASE WHEN a.attnotnull THEN ' not null' ELSE '' END,
        coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), ''), a.attstorage)
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind IN ('r', 'p')
        AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT format('index %s', pg_get_indexdef(i.indexrelid))
    FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
    WHERE c.relnamespace = 'recollect'::regnamespace
    UNION ALL
    SELECT format('check %s.%s %s', c.relname, k.conname, pg_get_constraintdef(k.oid))
    FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
    WHERE c.relnamespace = 'recollect'::regnamespace AND k.contype IN ('c', 'f')
    UNION ALL
    SELECT format('policy %s.%s %s using %s check %s', tablename, policyname, cmd, qual, with_check)
    FROM pg_policies WHERE schemaname = 'recollect'
    UNION ALL
    SELECT format('function %s(%s) %s', p.proname, pg_get_function_identity_arguments(p.oid),
        md5(p.prosrc))
    FROM pg_proc p WHERE p.pronamespace = 'recollect'::regnamespace
    UNION ALL
    SELECT format('trigger %s.%s', c.relname, t.tgname)
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE c.relnamespace = 'recollect'::regnamespace AND NOT t.tgisinternal
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be, or that its operator may want to know."""

    what: str
    mend: str
    problem: bool = True
    """Else only a note."""


@dataclass(slots=True)
class DatabaseCheck:
    """What was looked at, and found."""

    server: str
    schema_version: int = 0
    current: bool = False
    """Every migration of this version ran."""
    citus: str | None = None
    nodes: tuple[str, ...] = ()
    checked: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def problems(self) -> int:
        """How many findings are more than notes."""
        return sum(finding.problem for finding in self.findings)

    def add(self, what: str, mend: str, *, problem: bool = True) -> None:
        """Note a finding."""
        self.findings.append(Finding(what, mend, problem))


async def check_database(admin_url: str, *, app_role: str = APP_ROLE) -> DatabaseCheck:
    """Look at everything that can be seen in the catalogue; changes nothing."""
    with driver_errors():
        async with await connect(admin_url) as connection:
            row = await (await connection.execute(_VERSIONS)).fetchone()
            assert row is not None
            found = DatabaseCheck(server=f"PostgreSQL {row[0]}")
            try:
                await require_server(connection)
            except StoreError as error:
                found.add(str(error), "upgrade the server")
            _look_at_server(found, vector=row[1], oldest=row[2], commit=row[3], checksums=row[4])
            if not await _look_at_versions(connection, found):
                return found
            cluster = await look_at_cluster(connection)
            await _look_at_roles(connection, found, app_role, citus=cluster is not None)
            await _look_at_security(connection, found)
            await _look_at_drift(
                connection, found, distributed=bool(cluster and cluster.distributed)
            )
            if cluster is not None:
                _look_at_cluster(found, cluster)
    return found


def _look_at_server(
    found: DatabaseCheck, *, vector: str | None, oldest: float | None, commit: str, checksums: str
) -> None:
    found.checked.append("versions of PostgreSQL and pgvector")
    if vector is None:
        found.add("pgvector is not installed here", "CREATE EXTENSION vector")
    elif _numbers(vector) < OLDEST_PGVECTOR:
        found.add(f"pgvector is {vector}, too old", "ALTER EXTENSION vector UPDATE")
    if oldest is not None and oldest > OLD_TRANSACTION_SECONDS:
        found.add(
            f"a transaction has been idle for {oldest / 60:.0f} minutes: nothing is vacuumed "
            "meanwhile, and a migration would wait for it",
            "find it in pg_stat_activity and end it; set idle_in_transaction_session_timeout",
        )
    if commit == "off":
        found.add(
            "synchronous_commit is off: a write that returned may be lost with the server",
            "ALTER DATABASE … SET synchronous_commit = 'on'",
        )
    if checksums == "off":
        found.add(
            "data pages have no checksums: a bad disk is noticed late",
            "pg_checksums --enable, with the server stopped",
            problem=False,
        )


async def _look_at_versions(connection: Connection, found: DatabaseCheck) -> bool:
    found.checked.append("version of the schema")
    try:
        done = await applied_steps(connection)
    except sql_errors.InsufficientPrivilege:
        found.add("the URL's role may not use the schema", "give the URL of its owner")
        return False
    found.schema_version = max((number for number, phase in done if phase == "pre"), default=0)
    left = [step for step in migrations() if (step.version, step.phase) not in done]
    found.current = not left and found.schema_version == VERSION
    if not done:
        found.add("there is no schema of ours", "recollect db init URL")
    elif any(step.phase == "pre" for step in left):
        found.add(f"the schema is older than version {VERSION}", MIGRATE_COMMAND)
    elif left:
        names = ", ".join(step.file for step in left)
        found.add(
            f"steps wait for the end of older code: {names}",
            "when none runs any more: recollect db migrate --phase post URL",
            problem=False,
        )
    return bool(done)


async def _look_at_roles(
    connection: Connection, found: DatabaseCheck, app_role: str, *, citus: bool
) -> None:
    found.checked.append("roles and their settings")
    try:
        await require_bound(connection, app_role)
    except StoreError as error:
        found.add(str(error), "recollect db init URL")
        return
    roles = await login_roles(connection, app_role)
    if not roles:
        found.add(
            f"nobody may log in as {app_role} or a member of it",
            f"recollect db init URL --app-password-file FILE, or GRANT {app_role} TO a role",
            problem=False,
        )
    for role in roles:
        for name, value in missing_settings(role, citus=citus).items():
            why = "so that the server's log stays without content" if name in LOGGING else ""
            found.add(
                f"{role.name} logs in without {name}{', set ' + why if why else ''}",
                mend_of(role.name, name, value),
            )


async def _look_at_security(connection: Connection, found: DatabaseCheck) -> None:
    found.checked.append("row-level security")
    for (table,) in await (await connection.execute(_UNSAFE)).fetchall():
        if table not in OF_NO_ONE:
            found.add(
                f"recollect.{table} is not under forced row-level security",
                f"ALTER TABLE recollect.{table} ENABLE ROW LEVEL SECURITY, "
                "FORCE ROW LEVEL SECURITY",
            )


async def _look_at_drift(
    connection: Connection, found: DatabaseCheck, *, distributed: bool
) -> None:
    found.checked.append("the schema, against what the migrations make")
    for (index,) in await (await connection.execute(_INVALID)).fetchall():
        found.add(
            f"the index {index} was left half built",
            f"DROP INDEX CONCURRENTLY recollect.{index}, then {MIGRATE_COMMAND}",
        )
    if not found.current:
        return  # it is that of another version, and this was said
    recorded = Counter(recorded_catalogue())
    present = Counter(await read_catalogue(connection))
    for line in sorted((recorded - present).elements()):
        found.add(
            f"missing, or not as the migrations make it: {line}",
            "put it back by hand, from schema.sql and migrations/ of the package",
        )
    for line in sorted((present - recorded).elements()):
        trigger_of_citus = distributed and line.startswith("trigger ")
        own_index = line.startswith("index ")
        if not trigger_of_citus:
            found.add(
                f"of nobody's making here: {line}",
                "if it is yours, keep it; else drop it" if own_index else "put it back by hand",
                problem=not own_index,
            )


def _look_at_cluster(found: DatabaseCheck, cluster: Cluster) -> None:
    found.citus = cluster.version
    found.nodes = tuple(node.name for node in cluster.nodes)
    found.checked.append("Citus: nodes and distributed tables")
    if _numbers(cluster.version) < OLDEST_CITUS:
        found.add(f"Citus {cluster.version} was never tried", "upgrade Citus")
    for node in cluster.nodes:
        if not node.active:
            found.add(
                f"the node {node.name} is not active",
                "bring it back, then SELECT citus_activate_node('HOST', PORT)",
            )
    for name in cluster.missing:
        found.add(f"recollect.{name} is not distributed", DISTRIBUTE_COMMAND)
    for name in cluster.apart:
        found.add(
            f"recollect.{name} does not stand beside the others of its kind", DISTRIBUTE_COMMAND
        )
    for name in cluster.remains:
        found.add(
            f"rows of recollect.{name} from before it was distributed are still in the "
            "coordinator's files",
            DISTRIBUTE_COMMAND,
        )


async def read_catalogue(connection: Connection) -> list[str]:
    """The schema as lines."""
    rows = await (await connection.execute(CATALOGUE.encode())).fetchall()
    return sorted(line for (line,) in rows)


def recorded_catalogue() -> list[str]:
    """The schema as the migrations make it."""
    text = (resources.files("recollect.adapters.stores.postgres") / "catalogue.txt").read_text(
        "utf-8"
    )
    return text.splitlines()


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split("-")[0].split(".")
    return tuple(int(part) for part in parts if part.isdigit())
