"""Build the wheel and the sdist, check what they hold, and install them into empty environments."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / ".cache" / "packages"
TOOLS: Final = FOLDER / "tools"
TOOL_PACKAGES: Final = ("build", "twine", "uv", "pyright")
FOREIGN: Final = re.compile(
    r"(^|/)(tests?|bench|\.ci|\.cache|__pycache__)/|\.(gz|npz|onnx|safetensors|jsonl|db|pyc)$"
)
"""Tests, benches, data sets, weights and what a run leaves behind."""
MACHINE: Final = re.compile(rb"(?<![\w.~])/(?:root|home/\w+|Users/\w+|work)/\w")
"""A path of the machine that built it; pages of the docs show invented ones."""


@dataclass(frozen=True, slots=True)
class Built:
    """The two files of one build."""

    wheel: Path
    sdist: Path


def project() -> dict[str, Any]:
    """The project's own file."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def run(*words: str | Path, **environment: str) -> str:
    """Run a program; what it prints. It ends this one with its output if it fails."""
    # the package under test is the installed one, and settings of this shell are none of it
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "RECOLLECT_", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=FOLDER, env={**kept, **environment}
    )
    if done.returncode:
        command = " ".join(map(str, words))
        raise RuntimeError(f"{command}\n{done.stdout}{done.stderr}".strip())
    return done.stdout


def tool(name: str) -> Path:
    """The path of a tool, in an environment of its own that is made once."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = TOOLS / "bin" / name
    if not path.exists():
        run(sys.executable, "-m", "venv", TOOLS)
        run(TOOLS / "bin" / "pip", "install", "-q", *TOOL_PACKAGES)
    return path


def build(target: Path) -> Built:
    """Build the sdist, and the wheel from it: so the sdist is complete."""
    tool("pyproject-build")
    run(TOOLS / "bin" / "python", "-m", "build", "--outdir", target, ROOT)
    (wheel,), (sdist,) = target.glob("*.whl"), target.glob("*.tar.gz")
    return Built(wheel, sdist)


def contents(path: Path) -> dict[str, bytes]:
    """The files of a wheel or sdist, by name; those of an sdist without its folder."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    with tarfile.open(path) as archive:
        files = [member for member in archive.getmembers() if member.isfile()]
        read = {member.name: archive.extractfile(member) for member in files}
        return {name.partition("/")[2]: file.read() for name, file in read.items() if file}


def wanted(names: Mapping[str, str], kind: str, licences: Iterable[str]) -> set[str]:
    """What a wheel or sdist must hold; `names` are the plugin files, by their place in the tree."""
    if kind == "sdist":
        top = {"pyproject.toml", "README.md", "CHANGELOG.md", "src/recollect/py.typed", *licences}
        return {*top, *names}
    schema = "recollect/adapters/stores/postgres/schema.sql"
    return {"recollect/py.typed", "recollect/__main__.py", schema, *names.values()}


def content_problems(files: Mapping[str, bytes], needed: Iterable[str]) -> list[str]:
    """What is missing, and what does not belong there."""
    problems = [f"lacks {name}" for name in sorted(set(needed) - set(files))]
    for name, data in files.items():
        if FOREIGN.search(name):
            problems.append(f"holds {name}, which is not part of the package")
        if not name.startswith("docs/") and (found := MACHINE.search(data)):
            problems.append(f"{name} names a path of a machine: {found[0].decode()}")
    return problems


def check_files(built: Built) -> list[str]:
    """Check both files; their problems."""
    own = project()
    plugins = own["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    licences = own["project"]["license-files"]
    problems = []
    for kind, path in (("wheel", built.wheel), ("sdist", built.sdist)):
        files = contents(path)
        needed = wanted(plugins, kind, licences)
        if kind == "wheel":
            (info,) = {name.partition("/")[0] for name in files if ".dist-info/" in name}
            needed |= {f"{info}/licenses/{name}" for name in licences}
            needed |= {f"{info}/entry_points.txt"}
        problems += [f"{path.name}: {problem}" for problem in content_problems(files, needed)]
    try:
        run(tool("twine"), "check", "--strict", built.wheel, built.sdist)
    except RuntimeError as error:
        problems.append(str(error))
    return problems


def empty_environment(place: Path, python: Path) -> Path:
    """Make an environment with nothing in it, not even pip; its Python."""
    run(tool("uv"), "venv", "-q", "--clear", "--no-python-downloads", "-p", python, place)
    return place / "bin" / "python"


def install(
    python: Path, distribution: Path, extras: Iterable[str] = (), *, lowest: bool = False
) -> None:
    """Install a wheel or sdist with extras, with the newest or the lowest allowed dependencies."""
    extras = sorted(extras)
    into = ("pip", "install", "-q", "-p", python)
    resolution = ("--resolution", "lowest-direct" if lowest else "highest")
    needed = f"recollect[{','.join(extras)}] @ {distribution.as_uri()}"
    run(tool("uv"), *into, *resolution, needed)
    if "encrypted" in extras:  # as docs/guides/stores.md has it: both builds fill the same folder
        frozen = run(tool("uv"), "pip", "freeze", "-p", python).splitlines()
        ciphers = next(line for line in frozen if line.startswith("apsw-sqlite3mc=="))
        run(tool("uv"), *into, "--no-deps", "--reinstall", ciphers)
