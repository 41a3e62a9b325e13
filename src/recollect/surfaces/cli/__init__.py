"""The `recollect` command. Commands load when they are called, so that help is instant.

Data goes to standard output, everything else to standard error. Exit codes: 0 done, 1 the
answer is no, 2 something has to be changed before it can work (one line says what).
"""

from __future__ import annotations

import logging
import os
import sys
from importlib.metadata import entry_points
from io import TextIOWrapper
from typing import Any

import click

import recollect
from recollect.errors import RecollectError
from recollect.surfaces.cli.lazy_group import LazyGroup

COMMANDS = {
    "doctor": "doctor:doctor",
    "explain": "explain:explain",
    "export": "export:export",
    "facts": "facts:facts",
    "gateway": "gateway:gateway",
    "import": "import_:import_",
    "models": "models:models",
    "memory": "memory:memory",
    "receipt": "receipt:receipt",
    "redact": "redact:redact",
    "replay": "replay:replay",
    "tail": "tail:tail",
    "undo": "undo:undo",
    "unwrap": "wrap:unwrap",
    "worker": "worker:worker",
    "wrap": "wrap:wrap",
}
"""Name to module and object. Further ones come from the entry points of `recollect.commands`;
the benches use that door, since nothing may import them."""


class CommandLine(LazyGroup):
    """Our own commands and those of installed packages; errors are one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command's name, our own and those of entry points."""
        others = entry_points(group="recollect.commands").names
        return sorted({*super().list_commands(ctx), *others})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        command = super().get_command(ctx, cmd_name)
        for entry in entry_points(group="recollect.commands", name=cmd_name):
            command = command or entry.load()
        if command is None and cmd_name == "bench":
            raise click.UsageError("the benches are a package apart: install recollect-bench")
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


@click.group(
    cls=CommandLine,
    package=__name__,
    subcommands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(recollect.__version__, prog_name="recollect")
def main() -> None:
    """What an LLM agent knows after its context window has overflowed."""
    if logging.lastResort is not None:  # warnings go to standard error, as they are
        logging.getLogger("recollect").addHandler(logging.lastResort)
