"""What the command line says where a command comes with another package."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from recollect import cli


def test_without_the_benches_the_package_to_install_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    result = CliRunner().invoke(cli.main, ["bench", "turn"])
    assert result.exit_code == 2
    assert "install recollect-bench" in result.output


def test_the_list_of_commands_tells_them_all_and_imports_none() -> None:
    code = "from recollect.cli import main; main(['--help'])"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"numpy", "msgspec", "rich", "recollect.system.config"} & set(done.stderr.split())
    lines = {name: line for section in cli.SECTIONS.values() for name, line in section.items()}
    assert set(lines) == {*cli.COMMANDS, "bench"} - {"hook"}, "agents run hooks, people do not"
    for line in lines.values():
        assert line in done.stdout


def test_numbers_in_help_can_be_typed() -> None:
    """A typographic minus, copied from help, is refused as no number."""

    def read(command: click.Command, name: str) -> None:
        context = click.Context(command, info_name=name)
        assert "\u2212" not in command.get_help(context), name
        if isinstance(command, click.Group):
            for each in command.list_commands(context):
                found = command.get_command(context, each)
                assert found is not None
                read(found, f"{name} {each}")

    read(cli.main, "recollect")


def test_the_options_of_a_chat_wait_for_no_other_commands_machinery() -> None:
    code = "from recollect.cli import main; main(['chat', '--window', 'many'])"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True
    )
    loaded = set(done.stderr.split())
    assert "--window 'many': give a number" in done.stderr
    assert not {"rich", "numpy", "recollect.cli.memory", "recollect.agent.loop"} & loaded
