"""The rules by which the schema distributes on Citus, held on the live catalogue."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from recollect_bench.postgres_server import TestDatabase

OF_TENANTS = {
    "api_keys", "tenant_spaces", "idempotency_keys", "tenant_usage", "audit_log",
}  # fmt: skip
"""What belongs to a tenant and to none of its spaces: distributed by tenant_id."""
REFERENCE = {"schema_versions", "tenants", "rewritten", "secrets"}
"""What is on every node, or on the coordinator alone."""
OF_NO_SPACE = OF_TENANTS | REFERENCE
CONTENT = {
    "segments": {"body", "noise", "tool", "origin", "foreign_line"},
    "passage_terms": {"terms", "counts"},
    "postings": {"block", "first_term", "last_term"},
    "vectors": {"v", "half"},
    "sign_blocks": {"block"},
    "facts": {"content", "context", "words", "foreign_line", "subject", "attribute"},
    "fact_terms": {"term"},
    "fact_vectors": {"v", "half"},
    "sessions": {"state"},
    "compactions": {"body"},
    "jobs": {"payload", "key", "reason"},
    "pieces": {"body"},
}
"""Columns that hold what was said, or what was made of it."""


@pytest.fixture
def catalogue(database: TestDatabase) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database.admin_url, autocommit=True) as connection:
        yield connection


def tables(catalogue: psycopg.Connection[Any]) -> set[str]:
    return {
        row[0]
        for row in catalogue.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'recollect'::regnamespace"
            " AND relkind IN ('r', 'p')"
        )
    }


def test_every_table_has_a_primary_key_that_its_space_leads(
    catalogue: psycopg.Connection[Any],
) -> None:
    rows = catalogue.execute(
        """
        SELECT c.relname, i.indisprimary, a.attname
        FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
        LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
        WHERE c.relnamespace = 'recollect'::regnamespace AND i.indisunique
        """
    ).fetchall()
    with_key = {table for table, primary, _ in rows if primary}
    assert with_key == tables(catalogue)
    assert {first for table, _, first in rows if table not in OF_NO_SPACE} == {"space_id"}
    assert {first for table, _, first in rows if table in OF_TENANTS} == {"tenant_id"}


def test_space_id_is_one_type_and_never_missing(catalogue: psycopg.Connection[Any]) -> None:
    rows = catalogue.execute(
        """
        SELECT c.relname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attnum
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'space_id'
        WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind = 'r'
        """
    ).fetchall()
    assert {row[0] for row in rows} == tables(catalogue) - OF_NO_SPACE
    assert {row[1:] for row in rows} == {("uuid", True, 1)}


def test_no_triggers_and_foreign_keys_only_within_space(catalogue: psycopg.Connection[Any]) -> None:
    triggers = catalogue.execute(
        "SELECT t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
        " WHERE c.relnamespace = 'recollect'::regnamespace"
    ).fetchall()
    assert triggers == []
    for first, rule in catalogue.execute(
        """
        SELECT a.attname, k.confdeltype FROM pg_constraint k
        JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = k.conkey[1]
        WHERE k.contype = 'f' AND k.connamespace = 'recollect'::regnamespace
        """
    ):
        assert first == "space_id"
        assert rule != b"n"
    defaults = catalogue.execute(
        "SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d JOIN pg_class c"
        " ON c.oid = d.adrelid WHERE c.relnamespace = 'recollect'::regnamespace"
    ).fetchall()
    assert not [one for (one,) in defaults if "now" in one or "clock" in one or "nextval" in one]


def test_row_security_is_forced_and_asks_only_setting(catalogue: psycopg.Connection[Any]) -> None:
    rows = catalogue.execute(
        "SELECT relname, relrowsecurity, relforcerowsecurity FROM pg_class"
        " WHERE relnamespace = 'recollect'::regnamespace AND relkind = 'r'"
    ).fetchall()
    for table, enabled, forced in rows:
        assert (enabled and forced) or table in {"schema_versions", "rewritten", "secrets"}, table
    policies = catalogue.execute(
        "SELECT tablename, policyname, cmd, qual, with_check FROM pg_policies"
        " WHERE schemaname = 'recollect'"
    ).fetchall()
    own = "(space_id = (NULLIF(current_setting('app.space_id'::text, true), ''::text))::uuid)"
    for table, name, command, using, checking in policies:
        if name == "operator":  # for who runs the service: names of tenants, and what was done
            assert table in {"tenants", "audit_log"}
            assert (command, using) == (
                "SELECT", "(current_setting('app.operator'::text, true) = 'on'::text)"
            )  # fmt: skip
            continue
        if table in OF_NO_SPACE:
            whose = own.replace("space_id", "tenant_id")
            assert (using, checking) == (whose, whose), table
            continue
        if name == "due_work":  # names of spaces with work, for a worker, without content
            assert (table, command) == ("spaces", "SELECT")
            columns = catalogue.execute("SELECT * FROM recollect.spaces LIMIT 0").description
            assert [column.name for column in columns or ()] == ["space_id", "name", "jobs_due_at"]
        else:
            assert (using, checking) == (own, own), table
    assert {policy[0] for policy in policies} == tables(catalogue) - {
        "schema_versions",
        "rewritten",
        "secrets",
    }


def test_what_a_search_reads_is_never_compressed_nor_torn_out(
    catalogue: psycopg.Connection[Any],
) -> None:
    storage = {
        (table, column): kind
        for table, column, kind in catalogue.execute(
            "SELECT c.relname, a.attname, a.attstorage::text FROM pg_class c JOIN pg_attribute a"
            " ON a.attrelid = c.oid WHERE c.relnamespace = 'recollect'::regnamespace"
        )
    }
    plain = [("postings", "block"), ("sign_blocks", "block")]
    # These may be larger than a page: unpacked, and in the row up to 8 kB.
    external = [("passage_terms", "terms"), ("passage_terms", "counts"), ("vectors", "v"),
                ("fact_vectors", "v"), ("vectors", "half"), ("fact_vectors", "half")]  # fmt: skip
    assert [storage[one] for one in plain] == ["p"] * len(plain)
    assert [storage[one] for one in external] == ["e"] * len(external)
    for table in ("passage_terms", "vectors", "fact_vectors"):
        options = catalogue.execute(
            "SELECT reloptions FROM pg_class WHERE oid = %s::regclass", (f"recollect.{table}",)
        ).fetchone()
        assert options is not None
        assert "toast_tuple_target=8160" in options[0]


def test_no_sample_of_content_is_kept_in_statistics(catalogue: psycopg.Connection[Any]) -> None:
    kept = catalogue.execute(
        """
        SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'recollect'::regnamespace AND a.attstattarget = 0
        """
    ).fetchall()
    for table, columns in CONTENT.items():
        assert columns <= {column for named, column in kept if named == table}, table


def test_the_application_owns_nothing_and_is_under_row_security(
    catalogue: psycopg.Connection[Any],
) -> None:
    role = catalogue.execute(
        "SELECT rolsuper, rolbypassrls, rolcreaterole, rolcreatedb FROM pg_roles"
        " WHERE rolname = 'recollect_app'"
    ).fetchone()
    assert role == (False, False, False, False)
    owned = catalogue.execute(
        "SELECT count(*) FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner"
        " WHERE r.rolname = 'recollect_app'"
    ).fetchone()
    assert owned == (0,)
