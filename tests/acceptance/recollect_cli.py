"""Calls `recollect` as a user does: a process of its own, with nothing of ours around it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.harness.forked_cli import run_forked

PROGRAM = [sys.executable, "-c", "from recollect.cli import main; main()"]


def environment(home: Path, *, columns: int = 100) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RECOLLECT_") and name not in {"COLUMNS", "NO_COLOR", "FORCE_COLOR"}
    }
    return {
        **kept,
        "RECOLLECT_HOME": str(home / "home"),
        "PYTHONIOENCODING": "utf-8",
        "COLUMNS": str(columns),
    }


class Recollect:
    """One memory in one folder."""

    def __init__(self, home: Path, url: str | None = None) -> None:
        self.home = home
        self.url = url or str(home / "memory.db")

    def run(
        self,
        *arguments: str | Path,
        stdin: bytes = b"",
        space: str | None = None,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        options = ["--store", self.url] + (["--space", space] if space else [])
        return run_forked(
            [*map(str, arguments), *options],
            stdin=stdin,
            env=environment(self.home) | (env or {}),
            cwd=self.home,
            timeout=300,
        )

    def text(
        self,
        *arguments: str | Path,
        stdin: bytes = b"",
        space: str | None = None,
        env: dict[str, str] | None = None,
    ) -> str:
        done = self.run(*arguments, stdin=stdin, space=space, env=env)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def json(
        self, *arguments: str | Path, code: int = 0, stdin: bytes = b"", space: str | None = None
    ) -> dict[str, Any]:
        done = self.run(*arguments, "--json", stdin=stdin, space=space)
        assert done.returncode == code, done.stderr.decode()
        told = json.loads(done.stdout)
        assert isinstance(told, dict)
        return told

    def refused(self, *arguments: str | Path) -> str:
        """The one line that says what to do, of a call that cannot work."""
        done = self.run(*arguments)
        assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
        assert done.stdout == b""
        lines = done.stderr.decode().strip().splitlines()
        assert len(lines) == 1, lines
        assert lines[0].startswith("recollect: ")
        return lines[0]
