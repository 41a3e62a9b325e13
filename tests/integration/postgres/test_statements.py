"""Every statement of the store names its space, for every table it touches."""

import importlib
import itertools
import pkgutil
import re

import recollect.adapters.stores.postgres as package
from recollect.adapters.stores.postgres import candidates
from recollect.adapters.stores.postgres.driver import RowInsert

LEADS = re.compile(r"^\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b")
ACROSS_SPACES = {("store", "_DUE"), ("store", "_NAMES")}
"""Questions across spaces: which have work, and which there are. Row security lets only a worker,
or the owner, see more than its own."""
ACROSS_TENANTS = {
    ("tenants", "_TENANT_NAMED"),
    ("tenants", "_TENANTS"),
    ("tenants", "_WHOLE_LOG"),
    ("tenants", "_DELETED"),
}
"""Questions of who runs a service, which row security answers to nobody else."""
OF_THE_DATABASE = {("store", "_RECORDS"), ("store", "_DROP_RECORDS"), ("store", "_ADD_RECORD")}
"""Of the secret from which the ids of all spaces are derived."""
OUTSIDE = {"schema", "admin"}
"""Run by the owner: the catalogue and the record of versions; and what asks nodes one by one."""


def statements() -> dict[tuple[str, str], str]:
    found = {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.name in OUTSIDE:
            continue
        loaded = importlib.import_module(f"{package.__name__}.{module.name}")
        for name, value in vars(loaded).items():
            value = value.sql if isinstance(value, RowInsert) else value
            if isinstance(value, str) and LEADS.match(value) and "recollect." in value:
                found[module.name, name] = value
    for vectors in range(4):  # these are built for the number of asked vectors
        found["around", f"statement({vectors})"] = candidates.around_statement(vectors)
        for kinds in itertools.product((None, False, True), repeat=vectors):
            found["found", str(kinds)] = candidates.candidates_statement(kinds)
    return found


def test_there_are_statements_to_look_at() -> None:
    assert len(statements()) > 80


def test_every_table_is_bound_to_the_space() -> None:
    for named, text in statements().items():
        if named in ACROSS_SPACES | ACROSS_TENANTS | OF_THE_DATABASE:
            continue
        whose = "tenant_id" if named[0] == "tenants" else "space_id"
        inserted = re.findall(r"INSERT INTO recollect\.(\w+)\s*\(\s*(\w+)", text)
        assert all(first == whose for _, first in inserted), named
        touched = len(re.findall(r"recollect\.\w+", text)) - len(inserted)
        bound = len(re.findall(rf"\b{whose} = %", text))
        assert bound >= touched, (named, text)


def test_times_are_parameters_and_spaces_never_change() -> None:
    for named, text in statements().items():
        for never in (
            r"\bnow\(\)|clock_timestamp|current_timestamp",
            r"set\s+space_id",
            "recursive|listen|pg_advisory",
        ):
            assert not re.search(never, text.lower()), (named, text)


def test_rows_are_written_in_a_form_that_a_distributed_database_takes() -> None:
    """Rows from arrays are joined to the space's own row: without that Citus makes a COPY of them,
    which row security refuses."""
    for named, text in statements().items():
        if "INSERT INTO" in text and "unnest(" in text:
            wanted = "recollect.counters WHERE space_id = %s) AS c CROSS JOIN unnest("
            assert wanted in " ".join(text.split()), (named, text)


REFUSED = {
    "a lock on rows of several spaces": r"^(?!.*(space|tenant)_id = %).*for update",
    "a recursive query": r"\bwith\s+recursive\b",
    "a row that changes its space": r"\bset\s+(space_id|tenant_id)\b",
    "a volatile function in an update": r"do update set.*\b(now|random|clock_timestamp)\(",
    "grouping sets": r"\b(grouping sets|rollup|cube)\b",
    "a table sample": r"\btablesample\b",
    "a cursor": r"\b(declare|fetch|where current of)\b",
    "an upsert that does not say where": r"on conflict do update",
    "a copy": r"^\s*copy\b",
    "a merge": r"^\s*merge\b",
    "rows for a session only": r"\b(create temp|listen|notify|set session authorization)\b",
}
"""Forms that Citus refuses, or answers without row security."""


def test_no_statement_has_a_form_that_citus_refuses() -> None:
    for named, text in statements().items():
        for what, form in REFUSED.items():
            flat = " ".join(text.lower().split())
            assert not re.search(form, flat), (what, named, text)
