"""Which memory a folder gets, with real git repositories: never another project's, never none.

Each case makes folders, lets their sessions leave a memory, changes something, and names the
memories that the folders have then: `A` is that of the first project, `new` an empty one. "offer"
means that the session's start offers A."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect.system import projects
from recollect.system.places import space_file
from recollect.system.projects import (
    find_match,
    join_project,
    offer_memory,
    project_space,
    split_project,
)

URL = "https://git.example/team/shop.git"


class Disk:
    """A folder with repositories, and the memories that sessions in them have left."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.memories: dict[str, str] = {}

    def git(self, *arguments: str, folder: str = "") -> None:
        identity = (
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b.c",
            "-c",
            "protocol.file.allow=always",
        )
        command = ["git", *identity, *arguments]
        subprocess.run(command, cwd=self.root / folder, check=True, capture_output=True)

    def repository(self, name: str, *, origin: str = "", commits: int = 1, text: str = "") -> str:
        (self.root / name).mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main", folder=name)
        for number in range(commits):
            self.git("commit", "-q", "--allow-empty", "-m", f"{text or name} {number}", folder=name)
        if origin:
            self.git("remote", "add", "origin", origin, folder=name)
        return name

    def folder(self, name: str) -> str:
        (self.root / name).mkdir(parents=True)
        return name

    def session(self, name: str) -> str:
        """Start a session here, as a hook does, and let it leave a memory. Return the memory."""
        path = str(self.root / name)
        space = project_space(path)
        file = space_file(space)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        offer_memory(path)
        return self.memories.setdefault(space, f"memory {len(self.memories) + 1}")

    def old_memory(self, name: str) -> None:
        """Leave a memory as a version that named memories by path did."""
        space = str(self.root / name)
        space_file(space).parent.mkdir(parents=True, exist_ok=True)
        space_file(space).touch()
        self.memories[space] = f"memory {len(self.memories) + 1}"

    def memory(self, name: str) -> str:
        path = str(self.root / name)
        found = self.memories.get(project_space(path), "new")
        return f"{found}, offer" if offer_memory(path) else found

    def move(self, name: str, to: str) -> None:
        (self.root / to).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).rename(self.root / to)

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)


Case = Callable[[Disk], dict[str, str]]
CASES: list[Case] = []


def case(make: Case) -> Case:
    CASES.append(make)
    return make


A, NEW, OFFER = "memory 1", "new", "new, offer"


@case
def the_same_folder_again(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    return {"a": A}


@case
def a_folder_below(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.folder("a/src/deep")
    return {"a/src/deep": A, "a/.git/hooks": A}


@case
def a_worktree(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.git("worktree", "add", "-q", "../wt", folder="a")
    disk.folder("wt/src")
    return {"wt": A, "wt/src": A, "a": A}


@case
def a_worktree_first(disk: Disk) -> dict[str, str]:
    disk.repository("a")
    disk.git("worktree", "add", "-q", "../wt", folder="a")
    disk.session("wt")
    return {"a": A}


@case
def a_worktree_inside_the_project(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.git("worktree", "add", "-q", ".trees/one", folder="a")
    return {"a/.trees/one": A}


@case
def a_worktree_with_relative_links(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.git("worktree", "add", "-q", "../wt", folder="a")
    disk.write("wt/.git", "gitdir: ../a/.git/worktrees/wt\n")
    disk.write("a/.git/worktrees/wt/gitdir", "../../../../wt/.git\n")
    return {"wt": A}


@case
def a_moved_worktree(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.git("worktree", "add", "-q", "../wt", folder="a")
    disk.session("wt")
    disk.move("wt", "moved")
    return {"moved": A}


@case
def a_removed_worktree_at_a_path_of_another_repository(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.git("worktree", "add", "-q", "../wt", folder="a")
    disk.session("wt")
    disk.git("worktree", "remove", "../wt", folder="a")
    disk.session(disk.repository("b"))
    disk.git("worktree", "add", "-q", "../wt", folder="b")
    return {"wt": "memory 2", "a": A}


@case
def a_deleted_worktree_in_a_transcript(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.git("worktree", "add", "-q", "../wt", folder="a")
    disk.session("wt")
    disk.git("worktree", "remove", "../wt", folder="a")
    return {"wt": A, "wt/src": A}


@case
def worktrees_of_a_bare_repository(disk: Disk) -> dict[str, str]:
    disk.repository("seed")
    disk.git("clone", "-q", "--bare", "seed", "a.git")
    disk.git("worktree", "add", "-q", "../one", "main", folder="a.git")
    disk.git("worktree", "add", "-q", "-b", "two", "../two", folder="a.git")
    disk.session("one")
    return {"two": A, "a.git": A, "a.git/refs": A}


@case
def a_bare_repository_in_the_project_s_folder(disk: Disk) -> dict[str, str]:
    disk.repository("seed")
    disk.git("clone", "-q", "--bare", "seed", "a/.bare")
    disk.write("a/.git", "gitdir: ./.bare\n")
    disk.git("worktree", "add", "-q", "main", folder="a")
    disk.session("a")
    return {"a/main": A, "a/.bare": A}


@case
def a_renamed_project(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.move("a", "b")
    return {"b": A}


@case
def a_moved_project_and_its_worktree(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.git("worktree", "add", "-q", "../wt", folder="a")
    disk.session("wt")
    disk.move("a", "deep/er/b")
    disk.move("wt", "deep/wt")
    return {"deep/er/b": A, "deep/wt": A}


@case
def a_moved_parent(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("work/a"))
    disk.session(disk.repository("work/b"))
    disk.move("work", "old")
    return {"old/a": A, "old/b": "memory 2"}


@case
def a_moved_folder_without_git(disk: Disk) -> dict[str, str]:
    disk.session(disk.folder("a"))
    disk.move("a", "b")
    return {"b": A}


@case
def two_projects_that_change_places(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.session(disk.repository("b"))
    disk.move("a", "c")
    disk.move("b", "a")
    disk.move("c", "b")
    return {"b": A, "a": "memory 2"}


@case
def two_folders_without_git_that_change_places(disk: Disk) -> dict[str, str]:
    disk.session(disk.folder("a"))
    disk.session(disk.folder("b"))
    disk.move("a", "c")
    disk.move("b", "a")
    disk.move("c", "b")
    return {"b": A, "a": "memory 2"}


@case
def a_new_project_with_the_name_of_a_moved_one(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.move("a", "b")
    disk.session("b")
    disk.repository("a", text="another")
    return {"a": NEW, "b": A}


@case
def a_new_project_before_the_moved_one_was_seen(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.move("a", "b")
    disk.repository("a", text="another")
    return {"a": OFFER, "b": A}


@case
def a_new_folder_before_the_moved_one_was_seen(disk: Disk) -> dict[str, str]:
    disk.session(disk.folder("a"))
    disk.move("a", "b")
    disk.folder("a")
    return {"a": OFFER, "b": A}


@case
def the_same_name_elsewhere(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("one/shop"))
    disk.repository("two/shop", text="another")
    disk.folder("three/shop")
    return {"two/shop": NEW, "three/shop": NEW}


@case
def a_second_clone(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a", origin=URL))
    disk.git("clone", "-q", "a", "b")
    disk.git("remote", "set-url", "origin", "git@git.example:team/shop.git", folder="b")
    return {"b": OFFER, "a": A}


@case
def a_clone_is_offered_once(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.git("clone", "-q", "a", "b")
    assert disk.memory("b") == OFFER
    return {"b": NEW}


@case
def a_clone_of_a_folder_that_was_renamed(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.git("clone", "-q", "a", "b")
    disk.move("a", "c")
    return {"c": A, "b": OFFER}


@case
def a_clone_with_a_packed_history(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a", origin=URL, commits=30))
    disk.git("clone", "-q", f"file://{disk.root}/a", "b")
    disk.git("gc", "-q", "--aggressive", folder="b")
    disk.git("remote", "set-url", "origin", URL, folder="b")
    return {"b": OFFER}


@case
def a_joined_clone(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.git("clone", "-q", "a", "b")
    join_project(str(disk.root / "b"), str(disk.root / "a"))
    disk.move("b", "c")
    disk.git("worktree", "add", "-q", "../wt", folder="c")
    return {"c": A, "a": A, "wt": A}


@case
def a_split_clone(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.git("clone", "-q", "a", "b")
    join_project(str(disk.root / "b"), str(disk.root / "a"))
    split_project(str(disk.root / "b"))
    return {"b": NEW, "a": A}


@case
def a_split_worktree(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.git("worktree", "add", "-q", "../wt", folder="a")
    disk.session("wt")
    split_project(str(disk.root / "wt"))
    disk.move("wt", "moved")
    return {"moved": NEW, "a": A}


@case
def a_forged_origin(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a", origin=URL))
    disk.repository("evil", origin=URL, text="another")
    return {"evil": NEW}


@case
def a_forged_origin_without_commits(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a", origin=URL))
    disk.repository("evil", origin=URL, commits=0)
    return {"evil": NEW}


@case
def a_git_file_that_names_another_repository(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.write("evil/.git", f"gitdir: {disk.root}/a/.git\n")
    return {"evil": NEW}


@case
def a_git_file_that_names_the_worktree_of_another(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.git("worktree", "add", "-q", "../wt", folder="a")
    disk.write("evil/.git", f"gitdir: {disk.root}/a/.git/worktrees/wt\n")
    return {"evil": NEW, "wt": A}


@case
def a_hard_link_to_the_git_file_of_a_worktree(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.git("worktree", "add", "-q", "../wt", folder="a")
    (disk.root / disk.folder("evil") / ".git").hardlink_to(disk.root / "wt/.git")
    return {"evil": NEW, "wt": A}


@case
def a_git_file_that_names_a_link_to_another_repository(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.write("evil/.git", "gitdir: ./x\n")
    (disk.root / "evil/x").symlink_to(disk.root / "a/.git")
    return {"evil": NEW}


@case
def a_git_folder_with_a_common_folder_elsewhere(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.repository("evil", text="another")
    disk.write("evil/.git/commondir", f"{disk.root}/a/.git\n")
    disk.write("evil2/x/commondir", f"{disk.root}/a/.git\n")
    disk.write("evil2/x/gitdir", f"{disk.root}/evil2/sub/.git\n")
    disk.write("evil2/x/HEAD", "ref: refs/heads/main\n")
    disk.write("evil2/sub/.git", "gitdir: ../x\n")
    return {"evil": NEW, "evil2/sub": NEW}


@case
def a_link_to_another_git_folder(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    (disk.root / disk.folder("evil") / ".git").symlink_to(disk.root / "a/.git")
    return {"evil": NEW}


@case
def a_copy_with_its_git_folder(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    shutil.copytree(disk.root / "a", disk.root / "b")
    return {"b": OFFER, "a": A}


@case
def a_project_file_that_names_a_project(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.write(
        "evil/recollect.toml", f'space = "{disk.root}/a"\n[gateway]\nspace = "{disk.root}/a"\n'
    )
    return {"evil": NEW}


@case
def a_part_of_a_repository_with_a_project_file(disk: Disk) -> dict[str, str]:
    disk.repository("a")
    disk.write("a/part/recollect.toml", "")
    disk.session("a/part")
    disk.git("add", ".", folder="a")
    disk.git("commit", "-q", "-m", "part", folder="a")
    disk.git("worktree", "add", "-q", "../wt", folder="a")
    return {"wt/part": A, "wt": NEW, "a": NEW}


@case
def a_submodule(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.repository("library", text="library")
    disk.git("submodule", "add", "-q", str(disk.root / "library"), "lib", folder="a")
    disk.session("a/lib")
    disk.move("a", "b")
    return {"b": A, "b/lib": "memory 2", "library": "new, offer"}


@case
def a_nested_repository(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    disk.repository("a/vendor/other", text="other")
    return {"a/vendor/other": NEW, "a/vendor": A}


@case
def a_sparse_worktree(disk: Disk) -> dict[str, str]:
    disk.repository("a")
    disk.write("a/one/file", "1")
    disk.write("a/two/file", "2")
    disk.git("add", ".", folder="a")
    disk.git("commit", "-q", "-m", "files", folder="a")
    disk.session("a")
    disk.git("worktree", "add", "-q", "--no-checkout", "../wt", folder="a")
    disk.git("sparse-checkout", "set", "one", folder="wt")
    disk.git("checkout", "-q", folder="wt")
    disk.git("clone", "-q", "--sparse", "a", "clone")
    return {"wt/one": A, "clone": OFFER}


@case
def a_shallow_clone(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a", origin=URL, commits=3))
    disk.git("clone", "-q", "--depth=1", f"file://{disk.root}/a", "b")
    disk.git("remote", "set-url", "origin", URL, folder="b")
    return {"b": NEW}


@case
def a_symlinked_path(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a"))
    (disk.root / "link").symlink_to(disk.root / "a")
    disk.folder("a/src")
    return {"link": A, "link/src": A}


@case
def a_path_in_other_letters(disk: Disk) -> dict[str, str]:
    """Where letters of another case name the same folder, its number is the same, too; elsewhere
    it is another folder."""
    disk.session(disk.repository("shop"))
    if not (disk.root / "SHOP").exists():
        disk.repository("SHOP", text="another")
        return {"SHOP": NEW, "shop": A}
    return {"SHOP": A, "shop": A}


@case
def a_folder_without_git(disk: Disk) -> dict[str, str]:
    disk.session(disk.folder("a"))
    disk.folder("a/below")
    return {"a": A, "a/below": NEW}


@case
def a_folder_that_becomes_a_repository(disk: Disk) -> dict[str, str]:
    disk.session(disk.folder("a"))
    disk.repository("a")
    disk.folder("a/src")
    return {"a": A, "a/src": A}


@case
def a_repository_that_begins_again(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a", origin=URL))
    shutil.rmtree(disk.root / "a/.git")
    disk.repository("a", text="squashed")
    return {"a": A}


@case
def a_deleted_folder_cloned_again(disk: Disk) -> dict[str, str]:
    disk.repository("seed")
    disk.git("clone", "-q", "seed", "a")
    disk.session("a")
    shutil.rmtree(disk.root / "a")
    disk.git("clone", "-q", "seed", "a")
    return {"a": A}


@case
def a_deleted_folder_with_another_project(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("a", origin=URL))
    shutil.rmtree(disk.root / "a")
    disk.repository("a", origin=URL, text="another")
    return {"a": OFFER}


@case
def a_deleted_and_recreated_folder_without_git(disk: Disk) -> dict[str, str]:
    disk.session(disk.folder("a"))
    shutil.rmtree(disk.root / "a")
    disk.folder("a")
    return {"a": OFFER}


@case
def a_deleted_repository_below_a_folder(disk: Disk) -> dict[str, str]:
    disk.session(disk.folder("home"))
    disk.session(disk.repository("home/clients/acme"))
    shutil.rmtree(disk.root / "home/clients")
    return {"home/clients/acme/src": "memory 2", "home/clients/other": NEW, "home": A}


@case
def a_deleted_repository_within_another(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("mono"))
    disk.session(disk.repository("mono/client"))
    shutil.rmtree(disk.root / "mono/client")
    return {"mono/client": "memory 2", "mono/client/src": "memory 2", "mono/lib": A}


@case
def a_deleted_folder_at_an_earlier_path_of_another(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("scratch"))
    disk.move("scratch", "a")
    disk.session("a")
    disk.session(disk.repository("scratch", text="another"))
    shutil.rmtree(disk.root / "scratch")
    return {"scratch/api": "memory 2", "scratch": "memory 2", "a": A}


@case
def a_deleted_folder_that_only_one_project_left(disk: Disk) -> dict[str, str]:
    disk.session(disk.repository("old"))
    disk.move("old", "a")
    disk.session("a")
    return {"old/src": A, "old": A}


@case
def a_path_that_two_projects_left(disk: Disk) -> dict[str, str]:
    for name in ("a", "b"):
        disk.session(disk.repository("scratch", text=name))
        disk.move("scratch", name)
        disk.session(name)
    return {"scratch/api": NEW, "a": A, "b": "memory 2"}


@case
def a_deleted_folder_without_git(disk: Disk) -> dict[str, str]:
    disk.session(disk.folder("notes"))
    shutil.rmtree(disk.root / "notes")
    return {"notes": A, "notes/below": NEW}


@case
def a_name_that_is_not_utf_8(disk: Disk) -> dict[str, str]:
    name = os.fsdecode(b"caf\xe9")
    disk.session(disk.repository(name, origin=f"../{name}"))
    disk.session(disk.folder(f"plain {name}"))
    disk.folder(f"{name}/src")
    return {name: A, f"{name}/src": A, f"plain {name}": "memory 2"}


@case
def an_old_memory_of_a_project(disk: Disk) -> dict[str, str]:
    disk.old_memory(disk.repository("a"))
    disk.git("worktree", "add", "-q", "../wt", folder="a")
    assert disk.memory("a") == A
    disk.move("a", "b")
    return {"b": A}


@case
def old_memories_of_a_project_and_its_worktree(disk: Disk) -> dict[str, str]:
    disk.old_memory(disk.repository("a"))
    disk.git("worktree", "add", "-q", "../wt", folder="a")
    disk.old_memory("wt")
    return {"a": A, "wt": "memory 2, offer"}


@case
def an_old_memory_of_a_worktree_only(disk: Disk) -> dict[str, str]:
    disk.repository("a")
    disk.git("worktree", "add", "-q", "../wt", folder="a")
    disk.old_memory("wt")
    return {"wt": A, "a": A}


@case
def an_old_memory_under_a_symlinked_path(disk: Disk) -> dict[str, str]:
    disk.repository("a")
    (disk.root / "link").symlink_to(disk.root / "a")
    disk.old_memory("link")
    return {"link": A, "a": A}


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_each_folder_has_its_own_memory(make: Case, tmp_path: Path) -> None:
    disk = Disk(tmp_path / "disk")
    disk.root.mkdir()
    expected = make(disk)
    found = {name: disk.memory(name) for name in expected}
    assert found == expected
    assert len(CASES) >= 40
    # a memory, once there, is the memory of some folder, or is offered to one
    reachable = {
        space
        for project in projects._read().projects
        for space in (project.space, project.joinable)
    }
    assert set(disk.memories) <= reachable


def test_finding_a_memory_starts_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path)
    disk.session(disk.repository("a", commits=3))
    monkeypatch.setattr(subprocess, "Popen", None)
    monkeypatch.setattr(os, "posix_spawn", None)
    assert disk.memory("a") == A
    assert find_match(str(tmp_path / "a")).reason == "repository"


def test_without_birth_times_a_project_is_found_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on some network file systems; nothing is written again and again."""
    monkeypatch.setattr(projects, "_birth_time", lambda _: 0)
    disk = Disk(tmp_path)
    disk.session(disk.repository("a"))
    disk.git("worktree", "add", "-q", "../wt", folder="a")
    assert disk.memory("wt") == A
    disk.session(disk.folder("plain"))
    disk.move("plain", "moved")
    assert (disk.memory("moved"), disk.memory("a")) == ("new", A)
    monkeypatch.setattr(projects, "replace_file", None)
    for name in ("a", "wt", "moved"):
        disk.memory(name)


def test_two_processes_that_meet_a_project_first_agree(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.repository("a")
    disk.git("worktree", "add", "-q", "../wt", folder="a")
    script = (
        "import sys; from recollect.system.projects import *; print(project_space(sys.argv[1]))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / name)], stdout=subprocess.PIPE, text=True
        )
        for name in ("a", "wt") * 4
    ]
    assert {process.communicate()[0].strip() for process in processes} == {str(tmp_path / "a")}
    assert len(projects._read().projects) == 1
