"""`recollect memory index` as a user runs it: a folder of notes, a store, what is on the screen."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from tests.acceptance.recollect_cli import PROGRAM, Recollect, environment

NOTES = "# Quay\nThe crane lifts cargo on Tuesdays.\n\n# Garden\nRoses need water.\n"


@pytest.fixture
def recollect(tmp_path: Path) -> Recollect:
    return Recollect(tmp_path)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    put(folder / "MEMORY.md", NOTES)
    put(folder / "memory/2026-02-10.md", "Met Anna about the cargo.\n")
    return folder


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    at = time.time() - 60
    os.utime(path, (at, at))


def test_notes_are_indexed_and_found_with_file_and_line(recollect: Recollect, notes: Path) -> None:
    shown = recollect.text("memory", "index", notes)
    assert "MEMORY.md: added" in shown
    assert "2 files: 2 added, 0 changed, 0 withdrawn, 0 unchanged" in shown
    hits = recollect.json("memory", "search", "crane")["hits"]
    best = hits[0]
    assert (best["origin"], best["source"], best["trust"]) == ("MEMORY.md:1", "file", "medium")
    dated = recollect.json("memory", "search", "Anna")["hits"]
    assert dated[0]["said_at"] == "2026-02-10T12:00:00Z"
    again = recollect.text("memory", "index", notes)
    assert again.strip() == "2 files: 0 added, 0 changed, 0 withdrawn, 2 unchanged"


def test_json_tells_every_file(recollect: Recollect, notes: Path) -> None:
    (notes / "memory/bad.md").write_bytes(b"\xff\xfe")
    recollect.json("memory", "index", notes)
    put(notes / "MEMORY.md", f"# New\nFirst.\n\n{NOTES.replace('Tuesdays', 'Fridays')}")
    (notes / "memory/2026-02-10.md").unlink()
    told = recollect.json("memory", "index", notes)
    (folder,) = told["folders"]
    assert {one["file"]: one for one in folder["files"]} == {
        "MEMORY.md": {
            "file": "MEMORY.md",
            "outcome": "changed",
            "added": 2,
            "moved": 1,
            "withdrawn": 1,
            "unchanged": 0,
        },
        "memory/2026-02-10.md": {
            "file": "memory/2026-02-10.md",
            "outcome": "withdrawn",
            "added": 0,
            "moved": 0,
            "withdrawn": 1,
            "unchanged": 0,
        },
    }
    assert folder["skipped"] == [{"file": "memory/bad.md", "reason": "it is not UTF-8"}]
    assert told["totals"]["changed"] == told["totals"]["withdrawn"] == 1


def test_a_forgotten_section_is_named_and_stays_out(recollect: Recollect, notes: Path) -> None:
    recollect.text("memory", "index", notes)
    recollect.text("memory", "forget", "--matching", "crane", "--yes")
    done = recollect.run("memory", "index", notes)
    assert done.returncode == 0
    assert b"MEMORY.md:1: was forgotten on request" in done.stderr
    assert recollect.json("memory", "search", "crane")["hits"] == []
    assert (notes / "MEMORY.md").read_text() == NOTES


def test_a_folder_is_taken_out_again_even_when_it_is_gone(
    recollect: Recollect, notes: Path, tmp_path: Path
) -> None:
    recollect.text("memory", "index", notes)
    notes.rename(tmp_path / "moved")
    assert "must be a folder" in recollect.refused("memory", "index", notes)
    told = recollect.json("memory", "index", "--withdraw", notes)
    assert told["totals"]["withdrawn"] == 2
    assert recollect.json("memory", "stats")["segments"] == 0


def test_two_processes_at_once_store_everything_once(recollect: Recollect, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    for n in range(40):
        put(folder / f"memory/{n}.md", NOTES.replace("cargo", f"cargo{n}"))
    recollect.text("memory", "add", "so that the memory is there")
    call = [*PROGRAM, "memory", "index", str(folder), "--store", recollect.url, "--json"]
    running = [
        subprocess.Popen(
            call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(tmp_path)
        )
        for _ in range(3)
    ]
    for process in running:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err.decode()
        assert json.loads(out)["totals"]["skipped"] == 0
    assert recollect.json("memory", "stats")["segments"] == 81
    assert recollect.json("memory", "check")["problems"] == []
    assert recollect.json("memory", "index", folder)["totals"]["unchanged"] == 40
