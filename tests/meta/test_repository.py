"""What must never be committed, and what importing must never cost."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SKIPPED = {".git", ".venv", ".ci/venv", "__pycache__", ".hypothesis"}


def committed() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / line for line in listed.stdout.splitlines()]


def texts() -> list[tuple[Path, str]]:
    found = []
    for path in committed():
        try:
            found.append((path, path.read_text()))
        except (UnicodeDecodeError, FileNotFoundError):
            continue
    return found


def test_no_registry_host_and_no_path_of_a_machine() -> None:
    hosts = re.compile(r"pypi\.org|files\.pythonhosted|registry\.npmjs|deb\.debian|index-url")
    machine = re.compile(r"(?<![\w.])/(?:root|home/\w+|work|opt)/\w")
    here = Path(__file__)
    for path, text in texts():
        if path == here:
            continue
        assert not hosts.search(text), path
        found = machine.search(text)
        assert found is None or "tests" in path.parts or "docs" in path.parts, (path, found)


def test_no_large_files() -> None:
    for path in committed():
        if path.exists():
            assert path.stat().st_size < 1_000_000, path


def test_constraints_pin_and_name_no_source() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line]
    for line in lines:
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9_.-]+==[\w.]+", line), line


def imported_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_importing_recollect_loads_nothing_heavy() -> None:
    assert not imported_by("import recollect") & {"msgspec", "rich", "click", "asyncio"}


def test_the_engine_never_loads_the_drawing_library() -> None:
    loaded = imported_by("import recollect; recollect.open_memory()")
    assert not loaded & {"rich", "click", "json5", "bpe_openai", "detect_secrets"}
