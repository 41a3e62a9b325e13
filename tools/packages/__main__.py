"""Build the distributions, and use them as a stranger would, in empty environments.

    python -m tools.packages [--python 3.11] [--only NAME] [--skip-types]

Environments: the core and all extras on every Python that is found; each extra alone, the core from
the sdist, and the lowest allowed dependencies on the oldest Python. Then `pyright --verifytypes`.
Ends with 1 on any problem. Needs a package index; writes to .cache/packages only.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.packages.built import (
    FOLDER,
    Built,
    build,
    check_files,
    empty_environment,
    install,
    project,
    run,
    tool,
)

PYTHONS: Final = ("3.11", "3.12", "3.13")
SMOKE: Final = Path(__file__).with_name("smoke.py")
COMPLETE: Final = 1.0
"""The part of public names whose types are complete."""


@dataclass(frozen=True, slots=True)
class Case:
    """One environment."""

    name: str
    version: str
    extras: tuple[str, ...] = ()
    lowest: bool = False
    from_sdist: bool = False


def cases(extras: tuple[str, ...], versions: tuple[str, ...]) -> Iterator[Case]:
    """The environments, the quickest first."""
    oldest = versions[0]
    for version in versions:
        yield Case("core", version)
        yield Case("all", version, extras)
    yield Case("core-sdist", oldest, from_sdist=True)
    for extra in extras:
        yield Case(extra, oldest, (extra,))
    yield Case("core-lowest", oldest, lowest=True)
    for extra in extras:
        yield Case(f"{extra}-lowest", oldest, (extra,), lowest=True)
    yield Case("all-lowest", oldest, extras, lowest=True)


def find_python(version: str) -> Path | None:
    """A Python of this version: on the path, or one of pyenv's."""
    found = [shutil.which(f"python{version}")]
    if pyenv := shutil.which("pyenv"):
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=True)
        places = Path(root.stdout.strip(), "versions").glob(f"{version}.*/bin/python")
        found += map(str, sorted(places))
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    for path in filter(None, found):
        done = subprocess.run([path, "-c", asked], capture_output=True, text=True)
        if done.stdout.strip() == version:
            return Path(path)
    return None


def try_case(case: Case, built: Built, python: Path, place: Path) -> str:
    """Install and use it; the problem, or nothing."""
    try:
        own = empty_environment(place, python)
        distribution = built.sdist if case.from_sdist else built.wheel
        install(own, distribution, case.extras, lowest=case.lowest)
        run(own, "-I", SMOKE, ",".join(case.extras))
    except RuntimeError as error:
        return str(error)
    return ""


def check_types(built: Built, python: Path, extras: tuple[str, ...], place: Path) -> str:
    """Ask pyright whether the types of all public names are complete; the problem, or nothing."""
    own = empty_environment(place, python)
    install(own, built.wheel, extras)
    words = ("--verifytypes", "recollect", "--ignoreexternal", "--outputjson")
    # --verifytypes looks for the package in the active environment, not by --pythonpath
    active = {"PATH": f"{own.parent}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": str(place)}
    done = subprocess.run(
        [tool("pyright"), *words],
        capture_output=True,
        text=True,
        cwd=FOLDER,
        env={**os.environ, **active, "PYTHONPATH": ""},
    )
    found = json.loads(done.stdout)["typeCompleteness"]
    score, counts = found["completenessScore"], found["exportedSymbolCounts"]
    print(f"pyright: {score:.2%} of the public names have complete types, {counts}")
    if score >= COMPLETE:
        return ""
    symbols = [one for one in found["symbols"] if one["isExported"] and not one["isTypeKnown"]]
    lines = [
        f"{one['name']}: {hint['message'].splitlines()[0]}"
        for one in symbols
        for hint in one["diagnostics"]
        if "docstring" not in hint["message"]
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", choices=PYTHONS, help="Only these versions.")
    parser.add_argument("--only", action="append", help="Only environments of this name.")
    parser.add_argument("--skip-types", action="store_true", help="Do not run pyright.")
    asked = parser.parse_args()
    found = {version: find_python(version) for version in asked.python or PYTHONS}
    pythons = {version: path for version, path in found.items() if path is not None}
    for version in set(found) - set(pythons):
        print(f"Python {version}: not found, so not tested")
    if not pythons:
        return 2
    extras = tuple(project()["project"]["optional-dependencies"])
    failed: dict[str, str] = {}
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        built = build(Path(folder) / "dist")
        for problem in check_files(built):
            failed[problem] = problem
        for case in cases(extras, tuple(pythons)):
            if asked.only and case.name not in asked.only:
                continue
            begun, place = time.monotonic(), Path(folder) / "environment"
            problem = try_case(case, built, pythons[case.version], place)
            if problem:
                failed[f"{case.name} on {case.version}"] = problem
            seconds = time.monotonic() - begun
            outcome = "FAILED" if problem else "ok"
            print(f"{case.name:24} Python {case.version}  {outcome}  {seconds:.0f} s", flush=True)
        if not asked.skip_types:
            place, oldest = Path(folder) / "environment", next(iter(pythons.values()))
            if problem := check_types(built, oldest, extras, place):
                failed["types"] = problem
    for name, problem in failed.items():
        print(f"\n{name}\n{problem}")
    print(f"\n{len(failed)} problems" if failed else "\nNo problems")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
