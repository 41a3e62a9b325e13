"""`open_memory` takes named arguments: a misspelt one fails a type checker, and at run time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recollect import open_blocking_memory, open_memory

ROOT = Path(__file__).parents[3]
WRONG = """\
from recollect import open_blocking_memory, open_memory

open_memory(space="u", window_tokens=16_000, preset="openclaw", settings={"trim.mode": 8})
open_blocking_memory(store="m.db", window_tokens=16_000)
open_memory(windw_tokens=16_000)
open_blocking_memory(windw_tokens=16_000)
open_memory(window_tokens="16k")
open_blocking_memory(window_tokens="16k")
"""


@pytest.mark.parametrize("open_it", [open_memory, open_blocking_memory])
def test_a_misspelt_argument_is_refused(open_it: Any) -> None:
    with pytest.raises(TypeError, match="windw_tokens"):
        open_it(windw_tokens=16_000)


def test_a_misspelt_argument_fails_type_checking(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(WRONG)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    done = subprocess.run(
        [*command, "--cache-dir", str(ROOT / ".mypy_cache"), str(snippet)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line]
    assert lines == ["5", "6", "7", "8"], done.stdout + done.stderr
