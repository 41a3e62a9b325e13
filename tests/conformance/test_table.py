"""The table of what OpenClaw's documents describe: every item has a test that runs, or a reason."""

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.conformance import conformance_items

ROOT = Path(__file__).parents[2]
ITEMS = conformance_items()
DOCUMENTS = {"000": 60, "001": 14, "002": 36, "003": 41, "004": 25}
"""Number of items per document."""
LEAST_THAT_HOLD = 150
SKIPPING = {"skip", "skipif", "xfail"}

COLLECT = """
import json, sys, pytest
class Named:
    def pytest_collection_finish(self, session):
        marks = {item.nodeid: sorted({mark.name for mark in item.iter_markers()})
                 for item in session.items}
        with open(sys.argv[1], "w") as file:
            json.dump(marks, file)
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[2:]], [Named()]))
"""


def test_the_table_has_every_item_once() -> None:
    assert [item["number"] for item in ITEMS] == list(range(1, 177))
    assert Counter(item["document"] for item in ITEMS) == DOCUMENTS
    assert all(item["item"].strip() for item in ITEMS)


def problems_of(item: dict[str, Any]) -> Iterator[str]:
    """What an entry of the table lacks."""
    tests, reason = item.get("tests", []), item.get("reason", "")
    unknown = item.keys() - {"number", "document", "item", "state", "tests", "reason"}
    if unknown:
        yield f"unknown values: {sorted(unknown)}"
    if item["state"] == "holds":
        if not tests:
            yield "an item that holds needs a test"
        if reason:
            yield "an item that holds needs no reason"
    elif item["state"] == "differs":
        if len(reason.split()) < 5:
            yield "an item that differs needs a reason"
    else:
        yield f"unknown state {item['state']!r}"
    if len(set(tests)) != len(tests):
        yield "a test is named twice"


def test_every_item_has_a_test_or_a_reason() -> None:
    assert {item["number"]: list(problems_of(item)) for item in ITEMS if [*problems_of(item)]} == {}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tests": []}, "needs a test"),
        ({"state": "differs", "reason": "no"}, "needs a reason"),
        ({"state": "holds", "reason": "it does"}, "needs no reason"),
        ({"state": "maybe"}, "unknown state"),
        ({"test": ["x"]}, "unknown values"),
        ({"tests": ["x", "x"]}, "twice"),
    ],
)
def test_an_entry_that_lacks_something_is_noticed(change: dict[str, Any], problem: str) -> None:
    item = {"number": 1, "document": "000", "item": "x", "state": "holds", "tests": ["a"]}
    assert any(problem in found for found in problems_of(item | change))


def test_at_least_150_items_hold() -> None:
    assert sum(item["state"] == "holds" for item in ITEMS) >= LEAST_THAT_HOLD


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The marks of every test in the files that the table names, as pytest collects them."""
    files = sorted({test.partition("::")[0] for item in ITEMS for test in item.get("tests", [])})
    assert all((ROOT / file).is_file() for file in files)
    out = tmp_path_factory.mktemp("collected") / "marks.json"
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, str(out), *files],
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout.decode()[-3000:]
    marks: dict[str, list[str]] = json.loads(out.read_text("utf-8"))
    return marks


def test_every_named_test_is_collected_and_never_skipped(collected: dict[str, list[str]]) -> None:
    problems = []
    for item in ITEMS:
        for test in item.get("tests", []):
            found = [id_ for id_ in collected if id_ == test or id_.startswith(f"{test}[")]
            if not found:
                problems.append(f"{item['number']}: {test} is not collected")
            if any(SKIPPING & {*collected[id_]} for id_ in found):
                problems.append(f"{item['number']}: {test} is marked to be skipped")
            if (why := may_skip(test)) is not None:
                problems.append(f"{item['number']}: {test} may be skipped by {why}")
    assert problems == []


@cache
def functions_of(file: str) -> dict[str, ast.AST]:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name: node for node in ast.walk(tree) if isinstance(node, kinds)}


def may_skip(test: str) -> str | None:
    """The function that skips this test: itself, or one of its file that it uses."""
    file, _, rest = test.partition("[")[0].partition("::")
    functions = functions_of(file)
    waiting, seen = [rest.rpartition("::")[2]], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in functions:
            continue
        seen.add(name)
        for node in ast.walk(functions[name]):
            if isinstance(node, ast.Attribute) and node.attr in ("skip", "importorskip"):
                return name
            if isinstance(node, ast.Name):
                waiting.append(node.id)
            if isinstance(node, ast.arg):
                waiting.append(node.arg)
    return None


def test_a_test_that_may_be_skipped_is_noticed() -> None:
    skipping = "tests/acceptance/test_import_export.py::test_a_second_import_adds_nothing"
    assert may_skip(skipping) == "write_openclaw_files", "it needs Node"
    assert may_skip("tests/conformance/test_table.py::test_at_least_150_items_hold") is None
