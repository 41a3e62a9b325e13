"""Every statement of the store names its space, for every table it touches."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import recollect.stores.postgres as package
from recollect.stores.postgres import candidates

LEADS = re.compile(r"^\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b")
ACROSS_SPACES = {("store", "_DUE")}
"""The one question across spaces: which have work. Row security lets only a worker ask it."""
OUTSIDE = {"schema"}
"""Run by the owner: the catalogue and the record of versions."""


def statements() -> dict[tuple[str, str], str]:
    found = {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.name in OUTSIDE:
            continue
        loaded = importlib.import_module(f"{package.__name__}.{module.name}")
        for name, value in vars(loaded).items():
            if isinstance(value, str) and LEADS.match(value) and "recollect." in value:
                found[module.name, name] = value
    for vectors in range(4):  # these are built for the number of asked vectors
        found["around", f"statement({vectors})"] = candidates.around_statement(vectors)
        found["describe", f"by_number({vectors})"] = candidates.by_number(vectors)
    return found


def test_there_are_statements_to_look_at() -> None:
    assert len(statements()) > 80


@pytest.mark.parametrize("named", sorted(set(statements()) - ACROSS_SPACES))
def test_every_table_is_bound_to_the_space(named: tuple[str, str]) -> None:
    text = statements()[named]
    inserted = re.findall(r"INSERT INTO recollect\.(\w+)\s*\(\s*(\w+)", text)
    assert all(first == "space_id" for _, first in inserted)
    touched = len(re.findall(r"recollect\.\w+", text)) - len(inserted)
    bound = len(re.findall(r"\bspace_id = %", text))
    assert bound >= touched, text


@pytest.mark.parametrize("named", sorted(statements()))
def test_times_are_parameters_and_spaces_never_change(named: tuple[str, str]) -> None:
    text = statements()[named].lower()
    assert not re.search(r"\bnow\(\)|clock_timestamp|current_timestamp", text)
    assert not re.search(r"set\s+space_id", text)
    assert "recursive" not in text
    assert "listen" not in text
    assert "pg_advisory" not in text
