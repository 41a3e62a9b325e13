"""Prepare a release: set the version, build, check and try the distributions. Publishes nothing.

    python -m tools.release VERSION     sets the version; you commit, tag and upload
    python -m tools.release --dry-run   checks the tree's own version, and changes nothing

Needs a clean tree and a heading for the version in CHANGELOG.md. Prints the commands that publish.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tools import figures
from tools.packages.built import (
    FOLDER,
    ROOT,
    Built,
    build,
    check_files,
    empty_environment,
    install,
    run,
)

SOURCE: Final = ROOT / "src" / "recollect" / "__init__.py"
DIST: Final = ROOT / "dist"
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+|\.dev\d+)?")
_SET: Final = re.compile(r'^__version__ = "([^"]+)"$', re.M)
_HEADING: Final = re.compile(r"^## (\S+)(?: \((.+)\))?$", re.M)
_EXAMPLE: Final = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
# The client of the README's example is a stand-in: a release asks no provider.
_STAND_IN: Final = """\
import sys, types
from recollect.testing.scripted_model import Says, whole_reply

class Client:
    def __init__(self):
        self.messages = self
    def create(self, **request):
        return whole_reply("anthropic", Says(text="Aye."), model=request["model"])

sys.modules["anthropic"] = types.SimpleNamespace(Anthropic=Client)
"""


class ReleaseError(Exception):
    """Something that must be fixed before a release."""


def version_in(source: str) -> str:
    """Return the version that the package states."""
    found = _SET.search(source)
    if found is None:
        raise ReleaseError(f'{SOURCE.name} must have a line `__version__ = "…"`')
    return found[1]


def with_version(source: str, version: str) -> str:
    """Return the source with this version instead of its own."""
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"{version!r} must be a version such as 1.2.3, 1.2.3rc1 or 1.2.3.dev0")
    version_in(source)
    return _SET.sub(f'__version__ = "{version}"', source)


def check_changelog(text: str, version: str) -> None:
    """Raise unless the changelog has a heading for the version, with a date if it is final."""
    headings = dict(_HEADING.findall(text))
    final = re.sub(r"(?:a|b|rc)\d+$|\.dev\d+$", "", version)
    if version not in headings and final not in headings:
        raise ReleaseError(f"CHANGELOG.md has no heading `## {final}`: add one")
    if version == final and not re.fullmatch(r"\d{4}-\d\d-\d\d", headings[final]):
        raise ReleaseError(f"CHANGELOG.md: write the date, `## {final} (YYYY-MM-DD)`")


def check_figures(commits: set[str], version: str) -> None:
    """Raise unless all figures of a final version's pages come from runs of one known commit."""
    if re.fullmatch(r"[\d.]+", version) and (len(commits) != 1 or "" in commits):
        raise ReleaseError(f"figures are of {len(commits)} commits or unknown ones: `just figures`")


def example_program(readme: str) -> str:
    """Return the README's first Python example as a program that needs no provider."""
    found = _EXAMPLE.search(readme)
    if found is None:
        raise ReleaseError("README.md has no Python example")
    return _STAND_IN + found[1]


def commands(version: str, files: list[str]) -> str:
    """Return what publishes the release."""
    return "\n".join(
        [
            f"git commit -am 'release: {version}'",
            f"git tag -s v{version} -m 'Recollect {version}'",
            f"git push origin main v{version}",
            f"python -m twine upload {' '.join(files)}",
        ]
    )


def check_clean() -> None:
    """Raise if the tree has changes: what is built is what is committed."""
    listed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    if listed.stdout:
        raise ReleaseError(f"commit or remove these first:\n{listed.stdout.rstrip()}")


def try_wheel(built: Built, version: str, place: Path) -> None:
    """Install the wheel into an empty environment, and use it as the README does."""
    python = empty_environment(place / "environment", Path(sys.executable))
    install(python, built.wheel)
    command, home = python.with_name("recollect"), str(place / "home")
    stated = run(command, "--version", RECOLLECT_HOME=home).split()[-1]
    if stated != version:
        raise ReleaseError(f"`recollect --version` prints {stated}, not {version}")
    if "Usage" not in run(command, "--help", RECOLLECT_HOME=home):
        raise ReleaseError("`recollect --help` prints no usage")
    run(python, "-I", "-c", "import recollect")
    program = example_program((ROOT / "README.md").read_text())
    printed = run(python, "-I", "-c", program, RECOLLECT_HOME=home)
    if "No failures" not in printed:
        raise ReleaseError(f"the README's Python example printed:\n{printed}")


def release(version: str, *, keep: bool) -> list[str]:
    """Build, check and try the distributions of this version; their names. `keep`: in dist/."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        place = Path(folder)
        built = build(place / "dist")
        if problems := check_files(built):
            raise ReleaseError("\n".join(problems))
        for path in (built.wheel, built.sdist):
            if f"-{version}" not in path.name:
                raise ReleaseError(f"{path.name} is not of version {version}")
        try_wheel(built, version, place)
        if keep:
            DIST.mkdir(exist_ok=True)
            for path in (built.wheel, built.sdist):
                shutil.copy(path, DIST)
    return [f"dist/{path.name}" if keep else path.name for path in (built.wheel, built.sdist)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("version", nargs="?", help="The version to release, such as 0.1.0.")
    parser.add_argument(
        "--dry-run", action="store_true", help="Check the tree's own version; change nothing."
    )
    asked = parser.parse_args()
    if asked.dry_run == (asked.version is not None):
        parser.error("pass VERSION, or --dry-run for the version of the tree")
    source = SOURCE.read_text()
    version = asked.version or version_in(source)
    try:
        check_clean()
        changed = with_version(source, version)
        check_changelog((ROOT / "CHANGELOG.md").read_text(), version)
        check_figures({figures.read(name)["commit"] for name in figures.RUNS}, version)
        SOURCE.write_text(changed)
        files = release(version, keep=not asked.dry_run)
    except (ReleaseError, RuntimeError) as error:
        SOURCE.write_text(source)
        print(f"not ready: {error}", file=sys.stderr)
        return 1
    print(f"{version} is ready: {', '.join(files)}")
    if not asked.dry_run:
        print(f"Publish it with:\n\n{commands(version, files)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
