"""What `recollect doctor` tries out: data folder, store, embedder, provider, permissions.

Each check ends as ok, as something to know, or as something that does not work, with what to do
next. Nothing is written, no key leaves the machine: of a provider only whether its address takes
a connection is tried.
"""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from recollect.errors import MissingExtra, ModelRefused, RecollectError, SettingsError
from recollect.system.config.places import data_home, user_settings_file
from recollect.system.config.trust import ProjectFile, is_trusted, read_project_file

if TYPE_CHECKING:
    from recollect.system.config import LoadedSettings, Settings

CheckName: TypeAlias = Literal[
    "data", "store", "embedder", "provider", "permissions", "project", "settings"
]
CheckState: TypeAlias = Literal["ok", "note", "broken"]
SECONDS: Final = 5.0
_CONNECT_SECONDS: Final = 3.0
_PORTS: Final = {"http": 80, "https": 443}
_OWN_HOSTS: Final = {
    "anthropic": "https://api.anthropic.com",
    "openai-chat": "https://api.openai.com",
    "openai-responses": "https://api.openai.com",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was tried."""

    name: CheckName
    state: CheckState
    said: str
    todo: str = ""
    """What to do about it; empty where nothing has to be done."""

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def checks_of(loaded: LoadedSettings, *, space: str) -> list[Check]:
    """All of them, in the order in which things depend on each other."""
    settings = loaded.settings
    return [
        _settings(loaded),
        *_project(loaded),
        _data(),
        _store(settings, space),
        _embedder(settings),
        _provider(settings),
        _permissions(loaded),
    ]


def _settings(loaded: LoadedSettings) -> Check:
    idle = [notice for notice in loaded.notices if notice.without_effect]
    if not idle:
        return Check(name="settings", state="ok", said="every key that was read acts")
    said = "; ".join(map(str, idle))
    todo = "remove these keys from the file, or ignore this"
    return Check(name="settings", state="note", said=said, todo=todo)


def _project(loaded: LoadedSettings) -> list[Check]:
    """What of the project's settings file is ignored; nothing if none is."""
    if not loaded.project_notice:
        return []
    todo = f"review it with `recollect trust`, or set it in {user_settings_file()}"
    return [Check(name="project", state="note", said=loaded.project_notice, todo=todo)]


def _data() -> Check:
    """The folder of all data: it can be written, or made."""
    folder = data_home()
    there = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Check(
            name="data",
            state="broken",
            said=f"{folder} cannot be written",
            todo=f"make {there} writable, or set RECOLLECT_HOME to another folder",
        )
    state = "is there" if there == folder else "is made when something is first kept"
    return Check(name="data", state="ok", said=f"{folder} {state}")


def _store(settings: Settings, space: str) -> Check:
    """The store opens and answers."""
    from recollect.adapters.wiring.stores import is_stored
    from recollect.cli.store_options import Place, opened

    if settings.store.url is None and not is_stored(None, space):
        return Check(name="store", state="ok", said="nothing is stored yet; a file is made for it")

    async def ask() -> int:
        place = Place(url=settings.store.url, space=space, settings=settings)
        async with asyncio.timeout(SECONDS), opened(place) as store:
            return len(await store.sessions())

    try:
        count = asyncio.run(ask())
    except TimeoutError:
        said = f"the store did not answer within {SECONDS:g} s"
        todo = "see whether its server runs, or who holds the file"
        return Check(name="store", state="broken", said=said, todo=todo)
    except RecollectError as problem:
        todo = "correct store.url, or `recollect memory check`"
        return Check(name="store", state="broken", said=str(problem), todo=todo)
    return Check(name="store", state="ok", said=f"it answers: {count} sessions")


def _embedder(settings: Settings) -> Check:
    """What makes vectors is here; nothing is loaded or downloaded."""
    from recollect.adapters.wiring.models import choose_embedders

    try:
        chosen = choose_embedders(settings)
    except (SettingsError, MissingExtra) as problem:
        todo = "correct recall.embedder"
        return Check(name="embedder", state="broken", said=str(problem), todo=todo)
    if chosen.lacking:
        todo = (
            "`recollect models` shows what can be downloaded; without it words alone are compared"
        )
        return Check(name="embedder", state="note", said=chosen.said, todo=todo)
    return Check(name="embedder", state="ok", said=chosen.said)


def _provider(settings: Settings) -> Check:
    """A model is named, its key is there, and its address takes a connection."""
    from recollect.adapters.wiring.models import choose_model

    models = settings.models
    if models.provider is None and models.main is None:
        said = "no model is named: a full view is trimmed, not summarised, and there is no chat"
        todo = "set ANTHROPIC_API_KEY or OPENAI_API_KEY, then run `recollect init`"
        project = read_project_file(Path())
        if isinstance(project, ProjectFile) and is_trusted(project):  # init keeps it as it is
            todo = (
                "name one in recollect.toml ([models] with provider and main), then run "
                "`recollect trust`"
            )
        elif project is not None:  # perhaps another person wrote it
            todo = (
                f"name one in {user_settings_file()} ([models] with provider and main), or set "
                "RECOLLECT_MODELS__PROVIDER and RECOLLECT_MODELS__MAIN"
            )
        return Check(name="provider", state="note", said=said, todo=todo)
    try:
        choose_model(settings, "main")
    except (SettingsError, MissingExtra, ModelRefused) as problem:
        todo = "set what it names, or run `recollect init` in a new folder"
        return Check(name="provider", state="broken", said=str(problem), todo=todo)
    assert models.provider is not None
    address = urlsplit(models.base_url or _OWN_HOSTS[models.provider])
    host, port = address.hostname or "", address.port or _PORTS.get(address.scheme, 443)
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except OSError as problem:
        return Check(
            name="provider",
            state="broken",
            said=f"{host}:{port} does not take a connection: {problem.strerror or problem}",
            todo="start that server, or see to the network, a proxy or models.base_url",
        )
    asked = models.main or models.summary or "no model"
    said = f"{asked}, {models.provider}; {host}:{port} takes connections (no more was asked)"
    return Check(name="provider", state="ok", said=said)


def _permissions(loaded: LoadedSettings) -> Check:
    """What is private is its owner's alone."""
    folder = data_home()
    private = [folder / name for name in ("spaces", "agents", "spool", "embeddings")]
    open_ones = [path for path in private if path.is_dir() and path.stat().st_mode & 0o077]
    if open_ones:
        names = " ".join(str(path) for path in open_ones)
        said = f"others on this machine can look into {names}"
        return Check(name="permissions", state="note", said=said, todo=f"chmod 700 {names}")
    source = loaded.sources["store.url"]
    url = loaded.settings.store.url or ""
    if source.kind == "file" and "@" in url and _others_read(Path(source.name.split(" [")[0])):
        said = f"{source.name} holds the store's URL with its password, and others may read it"
        todo = f"chmod 600 {source.name}, or set RECOLLECT_STORE__URL instead"
        return Check(name="permissions", state="note", said=said, todo=todo)
    return Check(name="permissions", state="ok", said="what is private is yours alone")


def _others_read(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & 0o044)
    except OSError:
        return False
