"""OpenClaw's plugin by itself: its own tests, with a real daemon and without one."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tools.clients.lab import Lab

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "plugins" / "openclaw"
LAB = Lab(folder=Path(os.environ.get("CLIENTS_FOLDER", ROOT / ".ci" / "agents")))
STRIPS_TYPES = (22, 18)
"""From here on Node runs TypeScript as it is."""


def node() -> str | None:
    """A Node that runs TypeScript; None where there is none."""
    for found in (LAB.program("node24").with_name("node"), shutil.which("node")):
        if found is None or not Path(found).exists():
            continue
        said = subprocess.run([str(found), "--version"], capture_output=True, text=True, check=True)
        version = re.match(r"v(\d+)\.(\d+)", said.stdout)
        if version and (int(version[1]), int(version[2])) >= STRIPS_TYPES:
            return str(found)
    return None


def run(files: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    program = node()
    if program is None:
        pytest.skip("no Node that runs TypeScript is installed here")
    environment = {
        **os.environ,
        "TESTED_PROGRAM": str(Path(sys.executable).with_name("recollect")),
        "RECOLLECT_HOME": str(folder / "home"),
        "RECOLLECT_RECALL__EMBEDDER": "none",
        "TMPDIR": str(folder),
    }
    return subprocess.run(
        [program, "--test", *(str(PLUGIN / "test" / file) for file in files)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("file", ["daemon.test.ts", "away.test.ts"])
def test_the_plugins_own_tests(file: str, tmp_path: Path) -> None:
    done = run([file], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# fail 0" in done.stdout or "fail 0" in done.stdout


def test_the_plugin_is_what_openclaw_loads() -> None:
    package = (PLUGIN / "package.json").read_text(encoding="utf-8")
    assert '"extensions": ["./index.ts"]' in package
    assert '"id": "recollect"' in (PLUGIN / "openclaw.plugin.json").read_text(encoding="utf-8")
    assert 'ENGINE_ID = "recollect"' in (PLUGIN / "engine.ts").read_text(encoding="utf-8")
