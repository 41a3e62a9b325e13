"""`recollect`, and `python -m recollect`.

Hooks are recognized before the command line is imported, because that import takes longer than
answering a hook."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that was typed."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["hook"] and len(arguments) == 2 and not arguments[1].startswith("-"):
        from recollect.hosts.daemon.client import main as hook

        del sys.argv[1]
        hook()
    if arguments == ["daemon", "run", "--detach"]:
        from recollect.hosts.daemon.life import run_detached

        sys.exit(run_detached())
    from recollect.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
