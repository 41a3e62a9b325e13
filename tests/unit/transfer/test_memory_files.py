"""Memory files in a real store: what a look adds, changes, withdraws and leaves alone."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.boundary import SystemClock
from recollect.core.rules.identity import space_secret
from recollect.core.rules.tokens import Weigher
from recollect.core.search.tokenize import tokenize
from recollect.core.transfer import file_sections
from recollect.core.transfer import file_walk as followed_files
from recollect.core.transfer.file_sections import FileRules
from recollect.core.transfer.memory_files import MemoryFiles
from recollect.core.values.batch import Batch
from recollect.core.values.recall import CandidateQuery
from recollect.core.values.segment import StoredSegment
from recollect.core.values.upkeep import ForgetOrder, MemoryFilesResult
from recollect.system.config.settings import Redaction
from recollect.system.durable import open_plain

SECRET = "sk-proj-" + "Zx81Qm4Lr7Ty2Vb9Nc6Hd3Kf5Gj0Pw" * 2
NOTES = """# Projects

## Payments
Webhooks are retried with jitter.

## Quay
The crane lifts cargo on Tuesdays.

## Garden
Roses need water.
"""
RULES = FileRules(
    secret=space_secret("default"), redaction=Redaction(), weigher=Weigher(), embedders=("hash",)
)


class Space:
    """A store, a workspace, and what was written to it."""

    def __init__(self, store: SQLiteStore, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.written: list[Batch] = []

    def files(self, *extra: str, folder: Path | None = None, **more: Any) -> MemoryFiles:
        async def opened() -> SQLiteStore:
            return self.store

        async def write(batch: Batch) -> object:
            self.written.append(batch)
            return await self.store.write(batch)

        return MemoryFiles(
            folder or self.folder,
            extra,
            **{
                "open_archive": opened,
                "write": write,
                "clock": SystemClock(),
                "rules": RULES,
                **more,
            },
        )

    def put(self, name: str, text: str | bytes, *, age: float = 60.0) -> Path:
        """A file that was changed some time ago."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        at = time.time() - age
        os.utime(path, (at, at))
        return path

    async def held(self, session: str | None = None) -> dict[str, StoredSegment]:
        """What is stored, by file and line."""
        page = await self.store.page(limit=10_000, session=session)
        assert (await self.store.check()).problems == ()
        return {one.segment.origin or "": one for one in page}

    async def found(self, *words: str) -> list[str]:
        """Origins of what the words find."""
        asked = tuple(word for one in words for word in tokenize(one))
        candidates = await self.store.candidates(CandidateQuery(words=asked))
        named = {one.segment for one in candidates.passages}
        return sorted(one.segment.origin or "" for one in await self.store.segments(sorted(named)))


@asynccontextmanager
async def opened(tmp_path: Path) -> AsyncIterator[Space]:
    folder = tmp_path / "workspace"
    folder.mkdir(exist_ok=True)
    store = await SQLiteStore.open(tmp_path / "memory.db", space="default")
    try:
        yield Space(store, folder)
    finally:
        await store.close()


def outcomes(look: MemoryFilesResult) -> dict[str, str]:
    return {one.file: one.outcome for one in look.files}


async def test_files_become_segments_that_are_found_with_file_and_line(tmp_path: Path) -> None:
    async with opened(tmp_path) as space:
        space.put("MEMORY.md", NOTES, age=86_400.0)
        space.put("memory/people/anna.md", "Anna\n====\nSails on the lake.\n")
        space.put("memory/2026-02-10.md", "Met Anna at the quay.\n")
        space.put("other.md", "Not a memory file.\n")
        space.put("memory/.hidden/x.md", "Hidden.\n")
        space.put("memory/data.txt", "Not Markdown.\n")
        look = await space.files().look()
        assert outcomes(look) == {
            "MEMORY.md": "added",
            "memory/people/anna.md": "added",
            "memory/2026-02-10.md": "added",
        }
        assert look.skipped == ()
        held = await space.held()
        assert sorted(held) == [
            *("MEMORY.md:3", "MEMORY.md:6", "MEMORY.md:9", "memory/2026-02-10.md:1"),
            "memory/people/anna.md:1",
        ]
        one = held["MEMORY.md:6"].segment
        assert one.text == "Projects › Quay\n\nThe crane lifts cargo on Tuesdays."
        assert (one.session, one.source) == ("file:MEMORY.md", "file")
        assert (one.role, one.trust) == ("assistant", "medium")
        assert abs(one.said_at - (time.time() - 86_400)) < 60
        assert held["memory/2026-02-10.md:1"].segment.said_at == 1770724800.0  # noon of that day
        assert await space.found("crane", "cargo") == ["MEMORY.md:6"]
        assert await space.found("payments") == ["MEMORY.md:3"]
        assert {(job.kind, job.key) for job in await space.store.jobs()} == {("embed", "hash")}


async def test_editing_one_section_rewrites_only_that(tmp_path: Path) -> None:
    async with opened(tmp_path) as space:
        space.put("memory.md", NOTES)
        files = space.files()
        await files.look()
        before = await space.held()
        space.put("memory.md", NOTES.replace("on Tuesdays", "on Fridays"), age=30.0)
        space.written.clear()
        look = await files.look()
        (told,) = look.files
        assert (told.outcome, told.added, told.withdrawn) == ("changed", 1, 1)
        assert (told.unchanged, told.moved) == (2, 0)
        assert [new.segment.origin for one in space.written for new in one.segments] == [
            "memory.md:6"
        ]
        after = await space.held()
        assert "Fridays" in after["memory.md:6"].segment.text
        assert await space.found("tuesdays") == []
        for kept in ("memory.md:3", "memory.md:9"):
            assert after[kept] == before[kept]


async def test_a_section_that_moved_keeps_its_id_and_time(tmp_path: Path) -> None:
    async with opened(tmp_path) as space:
        space.put("memory.md", NOTES, age=90_000.0)
        files = space.files()
        await files.look()
        before = await space.held()
        space.put("memory.md", f"# Inbox\nBuy rope.\n\n{NOTES}")
        look = await files.look()
        (told,) = look.files
        assert (told.added, told.moved, told.withdrawn) == (1, 3, 0)
        after = await space.held()
        assert sorted(after) == ["memory.md:1", "memory.md:12", "memory.md:6", "memory.md:9"]
        was, now = before["memory.md:6"].segment, after["memory.md:9"].segment
        assert now == replace(was, origin="memory.md:9")
        assert await space.found("crane") == ["memory.md:9"]
        assert outcomes(await files.look()) == {"memory.md": "unchanged"}


async def test_what_is_deleted_emptied_or_renamed_is_withdrawn(tmp_path: Path) -> None:
    async with opened(tmp_path) as space:
        for name in ("a", "b", "c"):
            space.put(f"memory/{name}.md", f"The note {name} about herons.\n")
        files = space.files()
        for _ in range(3):  # the second makes sure, the third knows without reading
            await files.look()
        (space.folder / "memory/a.md").unlink()
        space.put("memory/b.md", "\n\n", age=30.0)
        (space.folder / "memory/c.md").rename(space.folder / "memory/d.md")
        assert outcomes(await files.look()) == {
            "memory/a.md": "withdrawn",
            "memory/b.md": "withdrawn",
            "memory/c.md": "withdrawn",
            "memory/d.md": "added",
        }
        assert sorted(await space.held()) == ["memory/d.md:1"]
        assert await space.found("herons") == ["memory/d.md:1"]
        # no tombstone: what comes back is taken again
        space.put("memory/a.md", "The note a about herons.\n")
        await files.look()
        assert await space.found("herons") == ["memory/a.md:1", "memory/d.md:1"]


async def test_a_forgotten_section_stays_out_though_the_file_says_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as space:
        path = space.put("memory.md", NOTES)
        files = space.files()
        await files.look()
        gone = (await space.held())["memory.md:6"].segment
        await space.store.forget(ForgetOrder(at=time.time(), segments=(gone.id,)))
        for again in (files, files, space.files()):
            look = await again.look()
            assert look.forgotten == ("memory.md:6",)
            assert outcomes(look) == {"memory.md": "unchanged"}
        assert await space.found("crane") == []
        assert path.read_text() == NOTES
        # moved it stays out as well; rewritten it is something else
        space.put("memory.md", f"Top.\n\n{NOTES}", age=30.0)
        assert (await files.look()).forgotten == ("memory.md:8",)
        space.put("memory.md", NOTES.replace("lifts cargo", "drops cargo"), age=20.0)
        assert (await files.look()).forgotten == ()
        assert await space.found("crane") == ["memory.md:6"]


async def test_secrets_are_masked_and_never_cut_in_two(tmp_path: Path) -> None:
    key = "\n".join(["-----BEGIN RSA PRIVATE KEY-----"] + ["MIIEowIBAAKCAQEAu1SU1LfVLPHC" * 2] * 90)
    text = f"# Keys\nOPENAI_API_KEY={SECRET}\n\n{key}\n-----END RSA PRIVATE KEY-----\n\nAfter it.\n"
    async with opened(tmp_path) as space:
        space.put("memory.md", text)
        look = await space.files().look()
        assert look.redacted == 2
        said = "\n".join(one.segment.text for one in (await space.held()).values())
        assert SECRET not in said
        assert "MIIEow" not in said
        assert "After it." in said
        raw = b"".join(
            path.read_bytes() for path in (tmp_path / "memory.db", tmp_path / "memory.db-wal")
        )
        assert SECRET.encode() not in raw
        assert b"MIIEowIBAAKCAQEAu1SU1" not in raw


async def test_two_workspaces_of_one_space_leave_each_other_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as space:
        other = tmp_path / "other"
        other.mkdir()
        space.put("memory.md", NOTES)
        (other / "memory.md").write_text(NOTES)
        (other / "MEMORY.md").write_text("Something of its own about kites.\n")
        ours, theirs = space.files(), space.files(folder=other)
        for _ in range(2):
            await ours.look()
            await theirs.look()
        assert (await space.store.stats()).segments == 7
        (other / "memory.md").unlink()
        assert outcomes(await ours.look()) == {"memory.md": "unchanged"}
        look = await theirs.look()
        assert outcomes(look)["memory.md"] == "withdrawn"
        assert (await space.store.stats()).segments == 4
        # the workspace is gone for good: its files are taken out by its name
        await theirs.look(withdraw=True)
        assert sorted(await space.held()) == ["memory.md:3", "memory.md:6", "memory.md:9"]


async def test_extra_paths_are_files_folders_and_globs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "me"
    (home / "notes/deep").mkdir(parents=True)
    (home / "notes/deep/boats.md").write_text("Boats are fine.\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    extra = ("README.txt", "docs/**/*.md", "wiki", "~/notes", "log/[0-9]*.md", "absent", "logs/*")
    async with opened(tmp_path) as space:
        space.put("README.txt", "Read me.\n")
        space.put("docs/a.md", "Doc a.\n")
        space.put("docs/x/y/b.md", "Doc b.\n")
        space.put("docs/x/y/c.rst", "No.\n")
        space.put("wiki/w.md", "Wiki.\n")
        space.put("log/1.md", "One.\n")
        space.put("log/one.md", "No.\n")
        files = space.files(*extra)
        look = await files.look()
        assert sorted(outcomes(look)) == [
            *("README.txt", "docs/a.md", "docs/x/y/b.md", "log/1.md", "wiki/w.md"),
            "~/notes/deep/boats.md",
        ]
        assert [(one.file, one.reason) for one in look.skipped] == [("absent", "it does not exist")]
        assert await space.found("boats") == ["~/notes/deep/boats.md:1"]
        # another workspace follows the same notes: they are there once
        other = tmp_path / "other"
        other.mkdir()
        await space.files("~/notes", folder=other).look()
        assert len(await space.held()) == 6
        (home / "notes/deep/boats.md").unlink()
        (space.folder / "docs/a.md").unlink()
        look = await files.look()
        assert {name for name, one in outcomes(look).items() if one == "withdrawn"} == {
            "docs/a.md",
            "~/notes/deep/boats.md",
        }
        # a path that is no longer added is no longer followed
        assert set(outcomes(await space.files("wiki").look()).values()) == {
            "unchanged",
            "withdrawn",
        }
        assert sorted(await space.held()) == ["wiki/w.md:1"]


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
async def test_links_stay_inside_and_loops_end(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("Nobody asked for this.\n")
    async with opened(tmp_path) as space:
        space.put("memory/a.md", "The one file.\n")
        memory = space.folder / "memory"
        (memory / "0-same.md").symlink_to("a.md")
        (memory / "round").symlink_to(memory)
        (memory / "out").symlink_to(outside)
        (memory / "out.md").symlink_to(outside / "secret.md")
        (memory / "broken.md").symlink_to("nowhere.md")
        (memory / "self.md").symlink_to("self.md")
        os.link(memory / "a.md", memory / "b.md")
        look = await space.files().look()
        assert outcomes(look) == {"memory/a.md": "added"}
        told = {one.file: one.reason for one in look.skipped}
        assert set(told) >= {"memory/out", "memory/out.md"}
        assert "index.extra_paths" in told["memory/out.md"]
        assert await space.found("nobody") == []
        look = await space.files(str(outside)).look()
        assert outcomes(look)[(outside / "secret.md").resolve().as_posix()] == "added"


async def test_what_is_not_followed_is_told_and_has_nothing_stored(tmp_path: Path) -> None:
    async with opened(tmp_path) as space:
        space.put("memory/a.md", "Words about herons.\n")
        space.put("memory/b.md", "Words about herons, too.\n")
        space.put("memory/c.md", b"\xff\xfe\x00bad")
        files = space.files()
        look = await files.look()
        assert [(one.file, one.reason) for one in look.skipped] == [
            ("memory/c.md", "it is not UTF-8")
        ]
        space.put("memory/a.md", b"\xff\xfe", age=30.0)
        space.put("memory/b.md", "x" * (followed_files.MAX_BYTES + 1), age=30.0)
        look = await files.look()
        assert {one.file for one in look.skipped} == {"memory/a.md", "memory/b.md", "memory/c.md"}
        assert "2 MiB" in next(one.reason for one in look.skipped if one.file == "memory/b.md")
        assert await space.held() == {}


async def test_what_cannot_be_read_now_keeps_what_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refusals are made up: tests may run as root, who may read everything."""
    scandir, opener = os.scandir, open_plain

    def refuse_folder(path: Path) -> Any:
        if Path(path).name == "deep":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    def refuse_file(path: Path) -> int:
        if path.name == "a.md":
            raise PermissionError(13, "Permission denied")
        return opener(path)

    async with opened(tmp_path) as space:
        space.put("memory/a.md", "Words about herons.\n")
        space.put("memory/deep/b.md", "Words about storks.\n")
        files = space.files()
        await files.look()
        space.put("memory/a.md", "Other words.\n", age=30.0)
        with monkeypatch.context() as patched:
            patched.setattr(os, "scandir", refuse_folder)
            patched.setattr(file_sections, "open_plain", refuse_file)
            look = await files.look()
        assert {(one.file, one.reason) for one in look.skipped} == {
            ("memory/a.md", "it cannot be read: Permission denied"),
            ("memory/deep", "it cannot be read: Permission denied"),
        }
        assert len(await space.held()) == 2
        assert outcomes(await files.look()) == {
            "memory/a.md": "changed",
            "memory/deep/b.md": "unchanged",
        }


async def test_too_many_files_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as space:
        for n in range(6):
            space.put(f"memory/{n}.md", f"Note {n} about herons.\n")
        await space.files().look()
        monkeypatch.setattr(followed_files, "MAX_FILES", 4)
        look = await space.files().look()
        assert len(look.files) == 4
        assert "more than 4 files" in look.skipped[0].reason
        assert len(await space.held()) == 6
        monkeypatch.setattr(followed_files, "MAX_ENTRIES", 3)
        look = await space.files().look()
        assert any("more than 3 names" in one.reason for one in look.skipped)
        assert len(await space.held()) == 6


async def test_a_disk_that_hangs_ends_the_look_and_takes_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    try:
        async with opened(tmp_path) as space:
            space.put("memory/a.md", "Words about herons.\n")
            monkeypatch.setattr("recollect.core.transfer.memory_files.STEP_SECONDS", 0.2)
            files = space.files()
            await files.look()
            find = followed_files.FollowedFiles.find

            def hang(self: followed_files.FollowedFiles) -> followed_files.FoundFiles:
                release.wait(30)
                return find(self)

            monkeypatch.setattr(followed_files.FollowedFiles, "find", hang)
            for _ in range(2):
                begun = time.monotonic()
                look = await files.look()
                assert time.monotonic() - begun < 5
                assert look.skipped[0].reason == "it does not answer"
            assert len([one for one in threading.enumerate() if one.name == "recollect-files"]) == 1
            assert len(await space.held()) == 1
            release.set()
            monkeypatch.undo()
            await asyncio.sleep(0.3)
            assert outcomes(await files.look()) == {"memory/a.md": "unchanged"}
    finally:
        release.set()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes there")
async def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    async with opened(tmp_path) as space:
        space.put("memory/a.md", "Words about herons.\n")
        os.mkfifo(space.folder / "memory/pipe.md")
        look = await space.files().look()
        assert outcomes(look) == {"memory/a.md": "added"}
        assert [(one.file, one.reason) for one in look.skipped] == [
            ("memory/pipe.md", "it is not a regular file")
        ]


async def test_a_file_that_changes_while_it_is_read_is_read_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as space:
        space.put("memory.md", NOTES)
        files = space.files()
        find = followed_files.FollowedFiles.find

        def then_changed(self: followed_files.FollowedFiles) -> followed_files.FoundFiles:
            found = find(self)
            space.put("memory.md", f"{NOTES}\nHalf a wor")
            return found

        monkeypatch.setattr(followed_files.FollowedFiles, "find", then_changed)
        look = await files.look()
        assert "changed while" in look.skipped[0].reason
        assert await space.held() == {}
        monkeypatch.undo()
        assert outcomes(await files.look()) == {"memory.md": "added"}


async def test_looks_at_the_same_time_store_everything_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as space:
        second = await SQLiteStore.open(tmp_path / "memory.db", space="default")
        try:
            for n in range(20):
                space.put(f"memory/{n}.md", NOTES.replace("cargo", f"cargo{n}"))

            async def opened_second() -> SQLiteStore:
                return second

            ours = space.files()
            theirs = space.files(open_archive=opened_second, write=second.write)
            await asyncio.gather(ours.look(), theirs.look())
            assert (await space.store.stats()).segments == 60
            for n in range(20):
                space.put(f"memory/{n}.md", f"Top {n}.\n\n{NOTES}", age=30.0)
            await asyncio.gather(ours.look(), theirs.look())
            await ours.look()
            held = await space.held()
            assert len(held) == 80
            assert {one.segment.origin for one in held.values()} == set(held)
            assert set(outcomes(await theirs.look()).values()) == {"unchanged"}
        finally:
            await second.close()
