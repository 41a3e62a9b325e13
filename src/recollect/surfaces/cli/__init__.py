"""The `recollect` command. Commands load when they are called, so that help is instant.

Data goes to standard output, everything else to standard error. Exit codes: 0 done, 1 the
answer is no, 2 something has to be changed before it can work (one line says what).
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from importlib.metadata import entry_points
from io import TextIOWrapper
from typing import Any

import click

import recollect
from recollect.errors import RecollectError

COMMANDS = {
    "doctor": "recollect.surfaces.cli.doctor:doctor",
    "explain": "recollect.surfaces.cli.explain:explain",
    "export": "recollect.surfaces.cli.export:export",
    "facts": "recollect.surfaces.cli.facts:facts",
    "import": "recollect.surfaces.cli.import_:import_",
    "models": "recollect.surfaces.cli.models:models",
    "memory": "recollect.surfaces.cli.memory:memory",
    "receipt": "recollect.surfaces.cli.receipt:receipt",
    "redact": "recollect.surfaces.cli.redact:redact",
    "replay": "recollect.surfaces.cli.replay:replay",
    "undo": "recollect.surfaces.cli.undo:undo",
    "worker": "recollect.surfaces.cli.worker:worker",
}
"""Name to module and object. Further ones come from the entry points of `recollect.commands`;
the benches use that door, since nothing may import them."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are first used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command's name, our own and those of entry points."""
        del ctx
        return sorted({*COMMANDS, *entry_points(group="recollect.commands").names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        del ctx
        target = COMMANDS.get(cmd_name)
        if target is not None:
            module, _, name = target.partition(":")
            command = getattr(importlib.import_module(module), name)
        else:
            found = entry_points(group="recollect.commands", name=cmd_name)
            if not found:
                return None
            command = next(iter(found)).load()
        assert isinstance(command, click.Command)
        return command

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line; where the system refuses to write or read, say so in one line.

        A terminal that cannot show a sign gets a question mark in its place.
        """
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="replace")
        try:
            try:
                return super().main(*args, **extra)
            finally:
                sys.stdout.flush()
        except OSError as error:
            # What is still buffered would be tried again at the end, and fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            what = "the output" if error.filename is None else error.filename
            click.echo(f"recollect: {what}: {error.strerror or error}", err=True)
            raise SystemExit(2) from None

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; an error of ours is one line and exit code 2."""
        try:
            return super().invoke(ctx)
        except RecollectError as error:
            click.echo(f"recollect: {error}", err=True)
            raise SystemExit(2) from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(recollect.__version__, prog_name="recollect")
def main() -> None:
    """What an LLM agent knows after its context window has overflowed."""
    if logging.lastResort is not None:  # warnings go to standard error, as they are
        logging.getLogger("recollect").addHandler(logging.lastResort)
