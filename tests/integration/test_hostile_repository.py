"""A cloned repository gets no key, no file and no word of the user's, however Recollect runs in it.

In CI all kinds of attack that fit together are in one repository; with RECOLLECT_FULL=1 each is
tried by itself, too."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest
from tests.integration.hostile_kinds import ALONE, FILES, NAMES, SETTINGS
from tests.integration.hostile_machine import (
    CANARY,
    KEY,
    RECOLLECT,
    SURFACES,
    TYPED_SECRET,
    Machine,
    machine,
)
from tests.sizes import at_size

from recollect.system.config.keys import snake_case
from recollect.system.plain_text import harmless

QUICK = ("library", "commands")
INLINE = tuple(kind for kind, text in SETTINGS.items() if " = {{" in text)
"""Kinds that fit into no file with the others: the same table would be there twice."""


def filled(text: str, on: Machine) -> str:
    return text.format(
        evil=on.evil.url, host=on.evil.host, outside=on.outside, other=on.folder / "other"
    )


def all_settings() -> str:
    """Every kind in one file, each key once."""
    lines: dict[str, str] = {}
    for text in SETTINGS.values():
        for line in text.split("\n"):
            if text not in (SETTINGS[kind] for kind in INLINE):
                lines.setdefault(snake_case(line.split(" = ")[0]), line)
    return "\n".join(lines.values())


def attack(on: Machine) -> None:
    (on.project / "recollect.toml").write_text(filled(all_settings(), on) + "\n")
    for put in FILES.values():
        put(on.project, on.outside, on.evil.url)


@pytest.mark.parametrize("surface", SURFACES)
def test_everything_at_once(tmp_path: Path, surface: str) -> None:
    with machine(tmp_path) as on:
        attack(on)
        SURFACES[surface](on)
        on.assert_unharmed()
        told = "\n".join(on.told)
        reads_projects = surface not in ("hooks", "mcp")
        assert ("recollect trust" in told) is reads_projects
        if surface == "wrap":
            first, *_, last = (line for line in on.told[1].splitlines())
            assert "recollect trust" in first and "recollect trust" in last, "around the screen"
            assert first.startswith("recollect: ") and last.startswith("recollect: ")
            doctor = on.recollect("doctor")
            assert "recollect trust" in doctor.stdout, "and afterwards"
            assert "recollect trust" not in doctor.stderr, "once"
            assert on.recollect("memory", "stats").stderr.startswith("recollect: ignored in ")


@pytest.mark.parametrize("surface", at_size(ci=QUICK[:1], full=tuple(SURFACES)))
@pytest.mark.parametrize("kind", ALONE)
def test_links_pipes_and_huge_files(tmp_path: Path, kind: str, surface: str) -> None:
    with machine(tmp_path) as on:
        ALONE[kind](on.project, on.outside, on.evil.url)
        SURFACES[surface](on)
        on.assert_unharmed()


@pytest.mark.parametrize("surface", at_size(ci=("wrap", "commands"), full=tuple(SURFACES)))
@pytest.mark.parametrize("name", at_size(ci=NAMES[1:3], full=NAMES))
def test_names_of_folders(tmp_path: Path, name: str, surface: str) -> None:
    with machine(tmp_path, name) as on:
        attack(on)
        SURFACES[surface](on)
        on.assert_unharmed()
        for text in on.told:
            assert text == harmless(text), "a name moved the cursor"


@pytest.mark.parametrize(
    ("kind", "surface"),
    at_size(
        ci=[*product(INLINE, ("wrap", "gateway"))], full=[*product((*SETTINGS, *FILES), SURFACES)]
    ),
)
def test_each_by_itself(tmp_path: Path, kind: str, surface: str) -> None:
    with machine(tmp_path) as on:
        if kind in SETTINGS:
            (on.project / "recollect.toml").write_text(filled(SETTINGS[kind], on) + "\n")
        else:
            FILES[kind](on.project, on.outside, on.evil.url)
        SURFACES[surface](on)
        on.assert_unharmed()


# The same attacks with the user's consent: what this file looks for would be seen

CONTROLS: Mapping[str, tuple[str, str]] = {
    "provider of the gateway": ("wrap", "key"),
    "server of models": ("chat", "key"),
    "server of vectors": ("commands", "key"),
    "store on a server": ("library", "asked"),
    "files to index": ("library", "file"),
    "redaction off": ("library", "secret"),
}


@pytest.mark.parametrize("kind", CONTROLS)
def test_a_trusted_file_does_what_it_says(tmp_path: Path, kind: str) -> None:
    surface, effect = CONTROLS[kind]
    with machine(tmp_path) as on:
        (on.project / "recollect.toml").write_text(filled(SETTINGS[kind], on) + "\n")
        assert on.recollect("trust", "--yes").returncode == 0
        try:
            SURFACES[surface](on)
        except (AssertionError, subprocess.TimeoutExpired):
            assert effect in ("key", "asked"), "the attacker's server is no good provider"
        received = b"".join(on.evil.received).decode("utf-8", "replace")
        if effect == "key":
            assert KEY in received
        elif effect == "asked":
            assert on.evil.received
        else:
            assert (CANARY if effect == "file" else TYPED_SECRET) in on.stored()
        assert bool(on.opened) is (effect == "file"), on.opened


# Another user of the machine


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can be somebody else"
)
def test_another_user_cannot_trust_for_us(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Who may write where we work, and into the folder of our records' name, is not believed."""
    folder = tmp_path_factory.mktemp("shared")
    for one in (folder, *folder.parents[:-1]):
        one.chmod(one.stat().st_mode | 0o055)
    with machine(folder / "m") as on:
        other = 65534
        attack(on)
        for path in (on.project, on.project / "recollect.toml"):
            os.chown(path, other, other)
        on.project.chmod(0o777)
        theirs = folder / "theirs"
        theirs.mkdir(mode=0o777)
        os.chown(theirs, other, other)
        # they trust the file as themselves, and put their record where ours would be
        somebody = ["setpriv", f"--reuid={other}", f"--regid={other}", "--clear-groups"]
        done = subprocess.run(
            [*somebody, str(RECOLLECT), "trust", "--yes", str(on.project)],
            env={**on.environment, "HOME": str(theirs), "RECOLLECT_HOME": str(theirs)},
            cwd=theirs,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        records = theirs / "trusted"
        assert list(records.iterdir())
        own = on.home / ".config" / "recollect" / "trusted"
        shutil.copytree(records, own, copy_function=shutil.copy2)
        for path in (own, *own.iterdir()):
            os.chown(path, other, other)
        for surface in QUICK:
            SURFACES[surface](on)
        on.assert_unharmed()
        os.chown(own, 0, 0)  # our folder, their record in it
        SURFACES["library"](on)
        on.assert_unharmed()
        shutil.rmtree(own)
        own.symlink_to(records)  # or a link to their folder
        SURFACES["library"](on)
        on.assert_unharmed()


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can be somebody else"
)
def test_records_are_not_readable_by_others(tmp_path: Path) -> None:
    with machine(tmp_path) as on:
        attack(on)
        assert on.recollect("trust", "--yes").returncode == 0
        records = on.home / ".config" / "recollect" / "trusted"
        modes = {oct(one.stat().st_mode & 0o777) for one in (records, *records.iterdir())}
        assert modes == {"0o700", "0o600"}


def test_trust_shows_every_line_and_no_other(tmp_path: Path) -> None:
    with machine(tmp_path) as on:
        attack(on)
        shown = on.recollect("trust", "--yes").stdout
        keys = set(re.findall(r"^  ([a-z_.]+) = ", shown, re.MULTILINE))
        wanted = {line.split(" = ")[0] for line in all_settings().split("\n")}
        assert wanted - keys == {"recall.min_score"}, "budgets need no trust"
        assert keys <= wanted
