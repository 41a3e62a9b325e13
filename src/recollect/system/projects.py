"""Which memory belongs to a folder: the worktrees of a repository share one, and a folder that was
moved or renamed keeps its own. A file in the data folder lists the projects of this machine.

A folder is recognized by its number and birth time in the file system, which no archive can
contain. Names, origins and files in a folder only lead to an offer, which the user accepts with
`recollect project join`."""

from __future__ import annotations

import ctypes
import logging
import os
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from recollect.errors import RecollectError
from recollect.system.durable import STEP_SECONDS, make_folder, replace_file, try_lock
from recollect.system.git_folder import Repository, find_repository, first_commit, read_origin
from recollect.system.places import data_home, sessions_folder, space_file

LOG: Final = logging.getLogger(__name__)
HISTORY_SECONDS: Final = 0.3
"""Time at a session's start to find the first commit of a new project. 10,000 packed commits took
0.5 s (one core, shared). A longer history is read by `recollect project`, which waits."""
_STATX_SYNC, _STATX_INODE_AND_BIRTH, _STATX_BYTES = 0, 0x100 | 0x800, 256

Reason: TypeAlias = Literal[
    "folder", "moved", "worktree", "repository", "path", "joined", "split", "chosen", "everywhere"
]
REASONS: Final[dict[Reason, str]] = {
    "folder": "the memory of this folder",
    "moved": "this folder was moved or renamed, and keeps its memory",
    "worktree": "worktrees share the memory of their repository",
    "repository": "the memory of this repository",
    "path": "another folder had this path before, with the same history",
    "joined": "you joined several folders to one memory",
    "split": "this folder has a memory of its own",
    "chosen": "chosen with `recollect install --project --space`",
    "everywhere": "chosen with `recollect install --space`, for all projects",
}


class Place(msgspec.Struct, frozen=True):
    """A folder, and what identifies it wherever it is moved."""

    path: str
    inode: int = 0
    born: int = 0
    """Birth time in nanoseconds; 0 if the file system does not keep it."""

    def is_at(self, other: Place) -> bool:
        """Return True if both are the same folder."""
        return bool(self.born) and (self.inode, self.born) == (other.inode, other.born)


class Project(msgspec.Struct):
    """One project, with every folder that uses its memory."""

    space: str
    folders: list[Place] = []
    repositories: list[Place] = []
    """Common folders of its repositories. Each worktree of them belongs to the project."""
    inside: str = ""
    """Path below the repository's top, if a recollect.toml there makes a part a project."""
    label: str = ""
    """Name that the user gave to the memory."""
    reason: Reason = "folder"
    origin: str = ""
    first_commit: str = ""
    earlier_paths: list[str] = []
    offered: list[str] = []
    """Memories that were offered to the user for this project."""
    joinable: str = ""
    """A memory that may belong to this project, whatever its history."""
    stored_until: dict[str, float] = {}
    """Sessions that came with a joined memory, and the time of their last message in it."""
    joined: list[str] = []
    """Memories that were moved into this one."""

    @property
    def paths(self) -> frozenset[str]:
        """Where its folders are, and were."""
        return frozenset([*self.earlier_paths, *(place.path for place in self.folders)])

    @property
    def name(self) -> str:
        """The name to show: the user's, or else the space."""
        return self.label or self.space


class Registry(msgspec.Struct):
    """The projects of this machine."""

    version: int = 1
    everywhere: str = ""
    """The memory of all projects, if the user chose one."""
    projects: list[Project] = []
    moving: list[tuple[str, str]] = []
    """Memories whose messages must still be moved into another memory."""

    def of_space(self, space: str) -> Project | None:
        return next((project for project in self.projects if project.space == space), None)


@dataclass(frozen=True, slots=True)
class ProjectFolder:
    """A project's folder on disk."""

    place: Place
    repository: Repository | None
    inside: str = ""

    @property
    def shared(self) -> Place | None:
        """The repository's common folder."""
        return None if self.repository is None else place_of(self.repository.folder)

    @property
    def is_linked(self) -> bool:
        """True for a worktree that is not the repository's main one."""
        return self.repository is not None and self.repository.is_linked

    @property
    def default_space(self) -> str:
        """The space of a project that is not recorded yet."""
        if self.repository is None:
            return self.place.path
        return _to_text(os.path.normpath(os.path.join(self.repository.top, self.inside)))


@dataclass(frozen=True, slots=True)
class Match:
    """The memory of a folder, and why."""

    space: str
    reason: Reason
    project: Project


def place_of(path: str) -> Place:
    """Identify a folder. Its birth time is 0 if it is missing or the file system keeps none."""
    try:
        status = os.stat(path)
        born = round(getattr(status, "st_birthtime", 0.0) * 1e9) or _birth_time(path)
    except (OSError, ValueError):
        return Place(_to_text(path))
    return Place(_to_text(path), status.st_ino, born)


def _to_text(path: str) -> str:
    """Return a path with bytes that are not UTF-8 escaped, for names of memories and for JSON."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


@cache
def _statx() -> ctypes._NamedFuncPointer | None:
    return getattr(ctypes.CDLL(None), "statx", None) if sys.platform == "linux" else None


def _birth_time(path: str) -> int:
    ask = _statx()
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    current_folder = -100
    flags = (_STATX_SYNC, _STATX_INODE_AND_BIRTH)
    if ask is None or ask(current_folder, os.fsencode(path), *flags, buffer):
        return 0
    has_birth = struct.unpack_from("I", buffer, 0)[0] & 0x800
    seconds, nanoseconds = struct.unpack_from("qI", buffer, 80)
    return int(seconds) * 10**9 + int(nanoseconds) if has_birth else 0


def find_project(folder: str) -> ProjectFolder:
    """Find the project of a folder: the nearest folder with `.git` or a recollect.toml, or a bare
    repository, or else the folder itself."""
    if "\0" in folder:
        return ProjectFolder(Place(folder), None)
    start = Path(os.path.realpath(folder))
    marked = None
    for parent in (start, *start.parents):
        top = str(parent)
        if marked is None and os.path.exists(os.path.join(top, "recollect.toml")):
            marked = top
        has_mark = os.path.lexists(os.path.join(top, ".git"))
        repository = find_repository(top)
        if has_mark or repository is not None:
            root = marked or top
            if marked is None and repository is not None and not has_mark:
                root = repository.top  # inside a bare repository, or a `.git` folder
            inside = os.path.relpath(root, top) if marked else ""
            return ProjectFolder(place_of(root), repository, "" if inside == "." else inside)
    return ProjectFolder(place_of(marked or str(start)), None)


def project_space(folder: str, *, keep: bool = True) -> str:
    """Return the space of a folder. With `keep`, record a new project; without, only record what
    has changed in a known one."""
    return find_match(folder, keep=keep).space


def chat_space(folder: str) -> str:
    """Return the space of chats in a folder: that of the project, unless chats of an older version
    left one for the folder itself."""
    has_own = space_file(folder).exists() or sessions_folder(folder).exists()
    return folder if has_own else project_space(folder)


def find_match(folder: str, *, keep: bool = True) -> Match:
    """Return the memory of a folder and the reason, as `project_space` does."""
    found, registry = find_project(folder), _read()
    match, is_changed = _match(registry, found, folder)
    if is_changed and (keep or space_file(match.space).exists()):
        try:
            with changing() as registry:
                match, _ = _match(registry, found, folder)
        except OSError as error:  # a session continues without the record
            LOG.warning("the list of projects cannot be written: %s", error)
    if registry.everywhere and match.project.reason not in ("chosen", "joined", "split"):
        return Match(registry.everywhere, "everywhere", match.project)
    return match


def _match(registry: Registry, found: ProjectFolder, folder: str) -> tuple[Match, bool]:
    """Find the project in the registry, or add it. Also return whether the registry changed."""
    place, shared = found.place, found.shared
    deleted = _deleted_project(registry, folder)
    if deleted is not None:
        return Match(deleted.space, "folder", deleted), False
    for project in registry.projects:
        if any(_is_same_folder(known, place) for known in project.folders):
            reason = _reason(project, found)
            return Match(project.space, reason, project), _update(project, found)
    own_space = _unused_memory(registry, found, folder)
    if shared is not None and not (own_space and found.is_linked):
        for project in registry.projects:
            is_known = any(_is_same_folder(known, shared) for known in project.repositories)
            if is_known and project.inside == found.inside:
                _update(project, found)
                return Match(project.space, _reason(project, found), project), True
    before = _project_at(registry, place.path)
    if before is not None and _continues(before, found):
        return Match(before.space, "path", before), _update(before, found)
    project = _add(registry, found, own_space)
    if before is not None:
        project.joinable = before.space
    return Match(project.space, _reason(project, found), project), bool(place.inode)


def _is_same_folder(known: Place, now: Place) -> bool:
    if known.path == now.path and not (known.born and now.born):
        return bool(now.inode)  # this file system keeps no birth times
    if not known.is_at(now):
        return False
    if known.path == now.path:
        return True
    try:  # a snapshot of a file system has equal numbers, and both folders exist
        there, here = os.stat(known.path), os.stat(now.path)
    except OSError:
        return True
    return there.st_ino != here.st_ino or there.st_dev == here.st_dev


def _reason(project: Project, found: ProjectFolder) -> Reason:
    if project.reason != "folder":
        return project.reason
    if found.is_linked:
        return "worktree"
    if project.earlier_paths:
        return "moved"
    return "folder" if found.repository is None else "repository"


def _project_at(registry: Registry, path: str) -> Project | None:
    """Return the project whose folder was last seen at this path."""
    projects = reversed(registry.projects)
    return next((one for one in projects if any(at.path == path for at in one.folders)), None)


def _deleted_project(registry: Registry, folder: str) -> Project | None:
    """Return the project of a deleted folder, of which a transcript speaks: the nearest that was
    recorded there or, if it is a repository, above. Two that left a path both have no claim to it.
    """
    if "\0" in folder:
        return None
    own_path = path = os.path.realpath(folder)
    while not os.path.exists(path):
        earlier = [project for project in registry.projects if path in project.earlier_paths]
        project = _project_at(registry, path) or (earlier[0] if len(earlier) == 1 else None)
        if project is not None and (project.repositories or path == own_path):
            return project
        path = os.path.dirname(path)
    return None


def _continues(project: Project, found: ProjectFolder) -> bool:
    """Return True if the folder that now has a project's path is that project: it is gone, the file
    system cannot tell, or it is a new copy of the same history."""
    path, now = found.place.path, found.place
    known = next((place for place in project.folders if place.path == path), None)
    if known is None or not known.born or not now.born:
        return True
    if known.born == now.born or not project.first_commit or found.repository is None:
        return known.born == now.born
    return first_commit(found.repository) == project.first_commit


def _unused_memory(registry: Registry, found: ProjectFolder, folder: str) -> str:
    """Return a memory of this folder from a version that named memories by path, unless the
    repository's own memory has this name."""
    for path in dict.fromkeys((found.place.path, _marked_parent(folder))):
        is_free = registry.of_space(path) is None and path != found.default_space
        if is_free and space_file(path).exists():
            return path
    return ""


def _marked_parent(folder: str) -> str:
    """Return the name of a folder's memory in versions without a list of projects."""
    for parent in (Path(folder), *Path(folder).parents):
        if any(os.path.exists(parent / mark) for mark in (".git", "recollect.toml")):
            return _to_text(str(parent))
    return _to_text(folder)


def _add(registry: Registry, found: ProjectFolder, own_space: str) -> Project:
    """Add a project. If a worktree and its repository both have a memory, each keeps its own."""
    main = found.default_space
    has_main = registry.of_space(main) is not None or space_file(main).exists()
    is_apart = bool(own_space) and has_main and found.is_linked
    space = own_space if is_apart or not has_main else main
    project = Project(space=_free_name(registry, space or main), inside=found.inside)
    if is_apart:
        project.reason, project.joinable = "split", main
    elif project.space != own_space:
        project.joinable = own_space
    registry.projects.append(project)
    _update(project, found)
    return project


def _free_name(registry: Registry, space: str) -> str:
    name, number = space, 2
    while registry.of_space(name) is not None:
        name, number = f"{space}#{number}", number + 1
    return name


def _update(project: Project, found: ProjectFolder) -> bool:
    """Record where the project's folders are now. Return whether that changed anything."""
    before = msgspec.json.encode(project)
    places = [(project.folders, found.place)]
    shared = found.shared
    if shared is not None and not (found.is_linked and project.reason == "split"):
        places.append((project.repositories, shared))
    for known_places, now in places:
        if not now.inode:
            continue
        index = next((i for i, known in enumerate(known_places) if known.is_at(now)), None)
        if index is None:
            index = next((i for i, one in enumerate(known_places) if one.path == now.path), None)
        if index is None:
            known_places.append(now)
        elif known_places[index] != now and not _is_another_name(
            known_places[index].path, now.path
        ):
            if known_places is project.folders and known_places[index].path != now.path:
                project.earlier_paths.append(known_places[index].path)
            known_places[index] = now
    return msgspec.json.encode(project) != before


def _is_another_name(path: str, other: str) -> bool:
    """Return True if both paths exist and lead to one folder: by a mount, or by upper case."""
    try:
        return path != other and os.path.samefile(path, other)
    except OSError:
        return False


# Changes that the user orders


def learn_history(folder: str, *, seconds: float = HISTORY_SECONDS) -> None:
    """Record origin and first commit of a folder's repository, to recognize its clones."""
    found, match = find_project(folder), find_match(folder)
    if found.repository is None:
        return
    origin, first = _to_text(read_origin(found.repository)), match.project.first_commit
    first = first or first_commit(found.repository, seconds=seconds)
    if (origin, first) == (match.project.origin, match.project.first_commit):
        return
    with changing() as registry:
        project = _match(registry, found, folder)[0].project
        project.origin, project.first_commit = origin, first


def find_joinable(folder: str, *, seconds: float = HISTORY_SECONDS) -> Project | None:
    """Return an older project whose memory may belong to this folder: one with the same origin and
    the same first commit, the repository of this worktree, or the last folder at this path."""
    learn_history(folder, seconds=seconds)
    project, until = find_match(folder).project, time.monotonic() + HISTORY_SECONDS
    for other in _read().projects if project.first_commit else ():
        if not other.first_commit and other.folders and time.monotonic() < until:
            learn_history(other.folders[0].path)
    for other in _read().projects:
        if other.space == project.space:
            break
        has_origin = other.origin == project.origin
        has_origin |= project.origin in other.paths or other.origin in project.paths
        has_history = project.first_commit and other.first_commit == project.first_commit
        has_history = has_history and other.inside == project.inside
        if other.space == project.joinable or (has_origin and has_history):
            return other
    return Project(space=project.joinable) if project.joinable else None


def offer_memory(folder: str) -> str:
    """Return a line that offers the memory of another clone, once; else ""."""
    project, other = find_match(folder).project, find_joinable(folder)
    if other is None or other.space in project.offered:
        return ""
    with changing() as registry:
        _match(registry, find_project(folder), folder)[0].project.offered.append(other.space)
    return (
        f"Recollect: {other.name} has a memory that may belong to this project, too. To use it "
        "here, run `recollect project join`. This is said once."
    )


def join_project(folder: str, space: str, *, moves: bool = True) -> str:
    """Let a folder's project use this memory from now on, and return its old memory. With `moves`,
    record that the old memory's messages must be moved (`adapters.wiring.merge` moves them)."""
    found = find_project(folder)
    with changing() as registry:
        project = _match(registry, found, folder)[0].project
        target = registry.of_space(space)
        if target is project:
            raise RecollectError(f"this folder uses the memory {project.name} already")
        if target is None:
            target = Project(space=space, inside=project.inside, origin=project.origin)
            target.first_commit = project.first_commit
            registry.projects.append(target)
        registry.projects.remove(project)
        if moves:
            target.joined.append(project.space)
            target.stored_until |= project.stored_until
        for name in ("folders", "repositories", "earlier_paths", "joined"):
            known = getattr(target, name)
            known.extend(one for one in getattr(project, name) if one not in known)
        target.reason = "joined" if moves else "chosen"
        if moves:
            registry.moving.append((project.space, space))
    return project.space


def split_project(folder: str) -> Project:
    """Give a folder a memory of its own, an empty one."""
    found = find_project(folder)
    with changing() as registry:
        old = _match(registry, found, folder)[0].project
        shared = None if found.is_linked else found.shared
        others = [place for place in old.folders if not place.is_at(found.place)]
        if not others and old.reason not in ("joined", "chosen"):
            raise RecollectError("no other folder uses this memory, so there is nothing to split")
        old.folders = others
        if shared is not None:
            old.repositories = [place for place in old.repositories if not place.is_at(shared)]
        project = Project(
            space=_free_name(registry, found.place.path), inside=found.inside, reason="split"
        )
        project.offered.append(old.space)
        registry.projects.append(project)
        _update(project, found)
    return project


def rename_project(folder: str, label: str) -> Project:
    """Name the memory of a folder. `--space` accepts the name."""
    found = find_project(folder)
    with changing() as registry:
        project = _match(registry, found, folder)[0].project
        others = [one for one in registry.projects if one is not project]
        names = {name for other in others for name in (other.space, other.label)}
        if not label or label in names or space_file(label).exists():
            raise RecollectError(f"another memory has the name {label!r}: choose another name")
        project.label = label
    return project


def choose_for_all(space: str) -> None:
    """Use one memory for all projects; "" ends that."""
    if _read().everywhere != space:
        with changing() as registry:
            registry.everywhere = space


def space_named(name: str) -> str:
    """Return the space that a user's name means: a label, or else a space."""
    labeled = next((one.space for one in _read().projects if one.label == name), None)
    return labeled or name


def shown_space(space: str) -> str:
    """Return the name of a memory to show, which `--space` accepts."""
    return project_of(space).name


def project_of(space: str) -> Project:
    """Return the project of a memory, an empty one if no folder is recorded for it."""
    return _read().of_space(space) or Project(space)


def keep_times(space: str, last_said_at: Mapping[str, float]) -> None:
    """Record which sessions come with a joined memory."""
    with changing() as registry:
        project = registry.of_space(space)
        if project is not None:
            project.stored_until |= last_said_at


def pending_moves() -> list[tuple[str, str]]:
    """Return the joined memories that are not moved yet, with the memories that get them."""
    return _read().moving


def end_move(old: str, new: str) -> None:
    """Record that a joined memory was moved."""
    with changing() as registry:
        registry.moving = [move for move in registry.moving if move != (old, new)]


# The file


def _file() -> Path:
    return data_home() / "projects.json"


def _read() -> Registry:
    path = _file()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Registry)
    except FileNotFoundError:
        return Registry()
    except (OSError, msgspec.MsgspecError) as error:
        raise RecollectError(
            f"{path} cannot be read ({type(error).__name__}): restore it from a backup, or remove "
            "it to find each memory by the path of its folder"
        ) from error


@contextmanager
def changing() -> Iterator[Registry]:
    """Yield the registry for a change, which no other process can make meanwhile."""
    path = _file()
    make_folder(path.parent)
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not try_lock(lock, STEP_SECONDS):
            raise OSError("another process keeps the list of projects locked")
        registry = _read()
        yield registry
        replace_file(path, msgspec.json.encode(registry))
    finally:
        os.close(lock)
