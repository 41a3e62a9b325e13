"""Checks of the installation, as values. A check changes nothing and sends no key."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Literal, TypeAlias

from recollect.errors import MissingExtra, SettingsError
from recollect.system.places import data_home, user_settings_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recollect.system.config import LoadedSettings, Settings

CheckState: TypeAlias = Literal["ok", "note", "broken"]
# A file system on a full disk may still take a file of a few bytes.
_CHECKED_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    state: CheckState
    said: str
    todo: str = ""
    """The fix; empty if there is nothing to do."""


def check_machine(loaded_settings: LoadedSettings) -> list[Check]:
    """Check the installation without using the network."""
    return [
        *check_settings(loaded_settings),
        check_data(),
        check_embedder(loaded_settings.settings),
        check_permissions(loaded_settings),
    ]


def check_settings(loaded_settings: LoadedSettings) -> Iterator[Check]:
    idle = [str(notice) for notice in loaded_settings.notices if notice.without_effect]
    if idle:
        todo = "remove these keys from the file, or ignore this"
        yield Check("settings", "note", "; ".join(idle), todo)
    else:
        yield Check("settings", "ok", "every key in the settings has an effect")
    if loaded_settings.project_notice:
        todo = f"review it with `recollect trust`, or set it in {user_settings_file()}"
        yield Check("project", "note", loaded_settings.project_notice, todo)


def check_data() -> Check:
    """Check that the data folder's disk takes a temporary file, which is removed again."""
    folder = data_home()
    existing_folder = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    try:
        with TemporaryFile(dir=existing_folder) as file:
            file.write(bytes(_CHECKED_BYTES))
            file.flush()
            os.fsync(file)
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            todo = "free space on it, or set RECOLLECT_HOME to a folder on another disk"
            return Check("data", "broken", f"the disk of {folder} is full", todo)
        todo = f"make {existing_folder} writable, or set RECOLLECT_HOME to another folder"
        return Check("data", "broken", f"{folder} cannot be written", todo)
    state = "is writable"
    if existing_folder != folder:
        state = "is created when Recollect first stores something"
    return Check("data", "ok", f"{folder} {state}")


def check_embedder(settings: Settings) -> Check:
    """Check the embedder. This check loads and downloads nothing."""
    from recollect.adapters.embedders.onnx import EXTRA, OFFERED_MODEL, are_packages_installed
    from recollect.adapters.wiring.models import choose_embedders

    try:
        choice = choose_embedders(settings)
    except (SettingsError, MissingExtra) as problem:
        return Check("embedder", "broken", str(problem), "correct recall.embedder")
    kinds = {embedder.kind for embedder in choice.used}
    if kinds & {"onnx", "remote"} or settings.recall.embedder in ("none", "hash", "static"):
        return Check("embedder", "ok", choice.said)
    todo = f"recollect models download {OFFERED_MODEL}"
    if not are_packages_installed():
        todo = f"pip install 'recollect[{EXTRA}]' && {todo}"
    text = f"recall misses most answers in other words than the question's ({choice.said})"
    return Check("embedder", "note", text, todo)


def check_permissions(loaded_settings: LoadedSettings) -> Check:
    private = [data_home() / name for name in ("spaces", "agents", "spool")]
    readable = [str(path) for path in private if path.is_dir() and path.stat().st_mode & 0o077]
    if readable:
        names = " ".join(readable)
        text = f"other users of this machine can read {names}"
        return Check("permissions", "note", text, f"chmod 700 {names}")
    source = loaded_settings.sources["store.url"]
    url = loaded_settings.settings.store.url or ""
    if source.kind == "file" and "@" in url and _others_read(Path(source.name)):
        text = (
            f"{source.name} contains the store's URL with its password, and other users can read it"
        )
        todo = f"chmod 600 {source.name}, or set RECOLLECT_STORE__URL instead"
        return Check("permissions", "note", text, todo)
    return Check("permissions", "ok", "only you can read the private folders")


def _others_read(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & 0o044)
    except OSError:
        return False
