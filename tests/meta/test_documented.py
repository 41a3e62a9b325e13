"""What a user can name stands in the docs, and what the docs name exists."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import click
import pytest

import recollect
from recollect import errors
from recollect.surfaces.cli import main

ROOT = Path(__file__).parent.parent.parent
DOCS = {path.name: path.read_text() for path in (ROOT / "docs").glob("*.md")}
ALL_DOCS = "\n".join([*DOCS.values(), (ROOT / "README.md").read_text()])


def commands() -> dict[str, click.Command]:
    context = click.Context(main)
    found = {name: main.get_command(context, name) for name in main.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_and_option_is_documented(name: str) -> None:
    command = commands()[name]
    assert f"recollect {name}" in DOCS["reference.md"]
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            for option in parameter.opts:
                assert option in ALL_DOCS, f"{name} {option}"
        if isinstance(parameter, click.Argument) and isinstance(parameter.type, click.Choice):
            for choice in parameter.type.choices:
                assert f"recollect {name} {choice}" in DOCS["reference.md"]


def test_every_public_name_is_documented_and_importable() -> None:
    for name in recollect.__all__:
        assert getattr(recollect, name) is not None
        if name != "__version__":
            assert f"`{name}" in DOCS["reference.md"], name
            assert inspect.getdoc(getattr(recollect, name)), name


def test_the_exported_names_are_these() -> None:
    """The public surface; a name that appears or goes is a decision."""
    assert set(recollect.__all__) == {
        "Answer",
        "BlockingEngine",
        "CompactionResult",
        "Context",
        "Engine",
        "Fact",
        "FactFilter",
        "Model",
        "Observation",
        "Prompt",
        "RecollectError",
        "Report",
        "Session",
        "SessionState",
        "Settings",
        "__version__",
        "load_settings",
        "open_blocking_memory",
        "open_memory",
        "read_state",
        "write_state",
    }


def test_every_error_is_documented_and_drawn() -> None:
    classes = [
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception)
    ]
    assert "RecollectError" in classes
    for name in classes:
        assert f"`{name}`" in DOCS["reference.md"], name
        assert name in (errors.__doc__ or ""), name


def test_links_between_documents_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_decisions_name_the_test_that_holds_them() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert records
    for record in records:
        held = re.search(r"Held by: `([^`:]+)", record.read_text())
        assert held, record.name
        assert (ROOT / held.group(1)).exists(), record.name
