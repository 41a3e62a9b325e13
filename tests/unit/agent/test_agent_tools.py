"""read, write, edit and bash as the model uses them."""

import asyncio
import base64
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recollect.agent.tools import files
from recollect.agent.tools.confine import Tool, ToolOutcome, ToolScope, confine
from recollect.agent.tools.files import MAX_BYTES, MAX_LINES, edit_tool, read_tool, write_tool
from recollect.agent.tools.shell import bash_tool


def use(make: Callable[[ToolScope], Tool], root: Path, /, **arguments: Any) -> ToolOutcome:
    given = {name: value for name, value in arguments.items() if name != "ground"}
    ground = arguments.get("ground") or ToolScope(root=root)
    return asyncio.run(_run(make(ground), given))


async def _run(tool: Tool, given: dict[str, Any]) -> ToolOutcome:
    return await tool.run(given)


def test_a_long_file_is_read_on_by_the_offset_that_is_told(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(1, MAX_LINES * 2 + 10)]
    (tmp_path / "long.txt").write_text("\n".join(lines) + "\n")
    read: list[str] = []
    offset = 1
    while True:
        outcome = use(read_tool, tmp_path, path="long.txt", offset=offset)
        shown = outcome.text.split("\n")
        read.extend(line for line in shown if line.startswith("line "))
        if "offset=" not in outcome.text:
            break
        offset = int(outcome.text.rpartition("offset=")[2].rstrip("]"))
    assert read == lines


def test_a_stretch_of_lines_is_just_that(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n3\n4\n")
    outcome = use(read_tool, tmp_path, path="a", offset=2, limit=2)
    assert outcome.text.startswith("2\n3\n")
    assert "offset=4" in outcome.text
    assert use(read_tool, tmp_path, path="a", offset=9).is_error


def test_one_endless_line_is_cut_and_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x" * (MAX_BYTES * 2))
    outcome = use(read_tool, tmp_path, path="a")
    assert len(outcome.text) < MAX_BYTES + 500
    assert "cut off" in outcome.text


def test_what_is_no_file_is_told_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"a\0b")
    for name, hint in (("pipe", "not a regular file"), ("folder", "ls"), ("binary", "not text")):
        outcome = use(read_tool, tmp_path, path=name)
        assert outcome.is_error
        assert hint in outcome.text
    assert use(edit_tool, tmp_path, path="pipe", oldText="a", newText="b").is_error


def test_an_image_comes_back_as_an_image(tmp_path: Path) -> None:
    data = b"\x89PNG\r\n\x1a\n" + bytes(20)
    (tmp_path / "a.png").write_bytes(data)
    outcome = use(read_tool, tmp_path, path="a.png")
    assert outcome.images == (("image/png", base64.b64encode(data).decode()),)


THEIRS = "nobody-may-read-this"
USES: tuple[tuple[Callable[[ToolScope], Tool], dict[str, Any]], ...] = (
    (read_tool, {}),
    (write_tool, {"content": "mine"}),
    (edit_tool, {"oldText": THEIRS, "newText": "mine"}),
    (edit_tool, {"oldText": "ours", "newText": "mine"}),
)


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace full of links, beside a folder that must be neither read nor changed."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "a/b", outside / "a/b", outside / "b", tmp_path / "root-evil"):
        folder.mkdir(parents=True)
    (root / "a/b/file.txt").write_text("ours")
    for place in ("file.txt", "b/file.txt", "a/b/file.txt"):
        (outside / place).write_text(THEIRS)
    (tmp_path / "root-evil/file.txt").write_text(THEIRS)
    links: dict[str, Path | str] = {
        "link.txt": outside / "file.txt",
        "relative.txt": "../outside/file.txt",
        "chain.txt": "link.txt",
        "dangling.txt": outside / "new.txt",
        "folder": outside,
        "up": "..",
        "a/up": "../..",
        "a/b/link.txt": "../../link.txt",
        "loop": "loop",
        "proc": "/proc/self",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    monkeypatch.setenv("HOME", str(outside))
    monkeypatch.chdir(outside)
    return root


def _kept(root: Path) -> dict[str, str]:
    """All that stands beside the workspace, under the names that it has."""
    beside = (root.parent / "outside", root.parent / "root-evil")
    return {str(one): one.read_text() for top in beside for one in top.rglob("*") if one.is_file()}


WAYS_OUT = (
    "../outside/file.txt",
    "./../outside/file.txt",
    "a/../../outside/file.txt",
    "a/b/../../../outside/file.txt",
    "a//..//..//outside//file.txt",
    "missing/../../outside/file.txt",
    "../root/../outside/file.txt",
    "../root-evil/file.txt",
    "../outside/new.txt",
    "../outside/new/new.txt",
    "{outside}/file.txt",
    "/{outside}/file.txt",
    "{root}/../outside/file.txt",
    "{root}-evil/file.txt",
    "/proc/self/cwd/file.txt",
    "/proc/self/root{outside}/file.txt",
    "proc/cwd/file.txt",
    "~/file.txt",
    "~root/file.txt",
    "~nobody-of-this-name/file.txt",
    "link.txt",
    "relative.txt",
    "chain.txt",
    "dangling.txt",
    "a/b/link.txt",
    "folder/file.txt",
    "folder/./b/../file.txt",
    "folder/new/new.txt",
    "up/outside/file.txt",
    "a/up/outside/file.txt",
    "loop",
    "loop/file.txt",
    "a/b/file.txt\0/../../../outside/file.txt",
)


@pytest.mark.parametrize("way", WAYS_OUT)
def test_no_path_leads_out_of_the_workspace(ground: Path, way: str) -> None:
    before = _kept(ground)
    path = way.format(root=ground, outside=ground.parent / "outside")
    for make, given in USES:
        outcome = use(make, ground, path=path, **given)
        assert outcome.is_error
        assert THEIRS not in outcome.text
    assert _kept(ground) == before


def _take_the_place_of(path: Path, target: Path | str) -> None:
    path.rename(path.with_name(f"{path.name}_"))
    path.symlink_to(target)


SWAPS: dict[str, Callable[[Path, Path], None]] = {
    "the file": lambda root, out: _take_the_place_of(root / "a/b/file.txt", out / "file.txt"),
    "its folder": lambda root, out: _take_the_place_of(root / "a/b", out),
    "its folder, by a relative link": (
        lambda root, out: _take_the_place_of(root / "a/b", "../../outside")
    ),
    "its folder, by a link to a link": (
        lambda root, out: _take_the_place_of(root / "a/b", "../folder")
    ),
    "the folder above": lambda root, out: _take_the_place_of(root / "a", out),
    "the workspace": lambda root, out: _take_the_place_of(root, out),
}


@pytest.mark.parametrize("opened", range(4))
@pytest.mark.parametrize("what", SWAPS)
def test_no_link_that_takes_a_place_meanwhile_leads_out(
    ground: Path, monkeypatch: pytest.MonkeyPatch, what: str, opened: int
) -> None:
    """The path was found to be inside; when so much of the way is open, a link is there."""
    outside, real_open = ground.parent / "outside", os.open
    for make, given in USES:
        before, left = _kept(ground), opened

        def swap() -> None:
            nonlocal left
            if left == 0:
                SWAPS[what](ground, outside)
            left -= 1

        def confining(*given: Any, **named: Any) -> Any:
            placed = confine(*given, **named)
            swap()
            return placed

        def opening(*given: Any, **named: Any) -> int:
            handle = real_open(*given, **named)
            swap()
            return handle

        with monkeypatch.context() as patch:
            patch.setattr(files, "confine", confining)
            patch.setattr(os, "open", opening)
            outcome = use(make, ground, path="a/b/file.txt", **given)
        assert left < 0, "nothing was swapped"
        assert THEIRS not in outcome.text
        assert _kept(ground) == before
        for name in (ground, ground / "a", ground / "a/b", ground / "a/b/file.txt"):
            swapped = name.with_name(f"{name.name}_")
            if swapped.exists():
                name.unlink()
                swapped.rename(name)
        (ground / "a/b/file.txt").write_text("ours")


@pytest.mark.parametrize(
    "way",
    [
        *("recollect.toml", "RECOLLECT.toml", "openclaw.json", "a/recollect.toml"),
        *("settings-link", "a/kept.toml", "a/named.toml"),
    ],
)
def test_settings_are_read_and_never_written(ground: Path, way: str) -> None:
    """They say which server is sent a key; recollect.toml may be a link to where they are."""
    for name in ("a/kept.toml", "a/named.toml", "a/recollect.toml", "openclaw.json"):
        (ground / name).write_text("ours")
    (ground / "recollect.toml").symlink_to("a/kept.toml")
    (ground / "settings-link").symlink_to("openclaw.json")
    scope = ToolScope(root=ground, settings_file=ground / "a/named.toml")
    for make, given in USES[1:]:
        outcome = use(make, ground, path=way, ground=scope, **given)
        assert outcome.is_error
        assert "only the user" in outcome.text
    if way != "RECOLLECT.toml":  # another file than recollect.toml on most systems
        assert use(read_tool, ground, path=way, ground=scope).text == "ours"


@pytest.mark.parametrize("way", ["data/spaces/other.jsonl", "a/data/spaces/other.jsonl"])
def test_a_workspace_around_the_data_folder_shows_no_other_space(
    ground: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(ground / "data"))
    transcript = ground / "data/spaces/other.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.write_text(THEIRS)
    (ground / "a/data").symlink_to("../data")
    for make, given in USES:
        outcome = use(make, ground, path=way, **given)
        assert outcome.is_error
        assert THEIRS not in outcome.text
    assert transcript.read_text() == THEIRS


def test_writing_makes_folders_and_keeps_the_rights_of_a_file(tmp_path: Path) -> None:
    assert not use(write_tool, tmp_path, path="a/b/c.sh", content="one").is_error
    made = tmp_path / "a/b/c.sh"
    made.chmod(0o750)
    use(write_tool, tmp_path, path="a/b/c.sh", content="two")
    assert made.read_text() == "two"
    assert made.stat().st_mode & 0o777 == 0o750
    assert [one.name for one in made.parent.iterdir()] == ["c.sh"]


@pytest.mark.parametrize("way", [".", "", "folder", "folder/.."])
def test_a_folder_is_not_written_to_and_nothing_beside_it(tmp_path: Path, way: str) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    touched = [one.stat().st_mtime_ns for one in (tmp_path, root)]
    outcome = use(write_tool, root, path=way, content="x")
    assert outcome.is_error
    assert [one.stat().st_mtime_ns for one in (tmp_path, root)] == touched
    assert "folder" in outcome.text or "missing" in outcome.text


def test_an_edit_replaces_what_stands_there_once(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b"one\r\ntwo\r\nthree\r\n")
    outcome = use(edit_tool, tmp_path, path="a.py", oldText="one\ntwo", newText="1\n2")
    assert not outcome.is_error
    assert file.read_bytes() == b"1\r\n2\r\nthree\r\n"


def test_an_edit_that_cannot_be_made_says_where_to_look(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("def f():\n    return 1\n\ndef g():\n    return 1\n")
    twice = use(edit_tool, tmp_path, path="a.py", oldText="return 1", newText="return 2")
    assert "2 times" in twice.text
    absent = use(edit_tool, tmp_path, path="a.py", oldText="zzzzzz", newText="x")
    assert "0 times" in absent.text
    same = use(edit_tool, tmp_path, path="a.py", oldText="def f", newText="def f")
    assert all(one.is_error for one in (twice, absent, same))
    assert file.read_text().count("return 1") == 2


def test_a_read_only_workspace_is_only_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    ground = ToolScope(root=tmp_path, read_only=True)
    for make, given in (
        (write_tool, {"path": "b", "content": "y"}),
        (edit_tool, {"path": "a", "oldText": "x", "newText": "y"}),
        (bash_tool, {"command": "touch b"}),
    ):
        assert use(make, tmp_path, ground=ground, **given).is_error
    assert [one.name for one in tmp_path.iterdir()] == ["a"]
    assert use(read_tool, tmp_path, path="a", ground=ground).text == "x"


def test_a_command_tells_its_output_and_how_it_ended(tmp_path: Path) -> None:
    outcome = use(bash_tool, tmp_path, command="echo out; echo err >&2; pwd; exit 3")
    assert outcome.text == f"out\nerr\n{tmp_path.resolve()}\n[exit code 3]"
    assert outcome.is_error
    assert use(bash_tool, tmp_path, command="true").text == "(no output)"


def test_a_long_output_keeps_head_and_tail(tmp_path: Path) -> None:
    outcome = use(bash_tool, tmp_path, command="seq 1 60000")
    assert outcome.text.startswith("1\n2\n")
    assert outcome.text.endswith("59999\n60000")
    assert len(outcome.text) < 60_000
    assert "bytes left out" in outcome.text


def test_a_command_that_hangs_is_stopped_with_all_its_children(tmp_path: Path) -> None:
    command = "sleep 60 & echo $! > child; echo begun; wait"
    begun = time.monotonic()
    outcome = use(bash_tool, tmp_path, command=command, timeout=1)
    assert time.monotonic() - begun < 20
    assert outcome.is_error
    assert "begun" in outcome.text
    assert "stopped after 1 seconds" in outcome.text
    assert _is_gone(int((tmp_path / "child").read_text()))


async def test_a_command_that_is_aborted_leaves_nothing_behind(tmp_path: Path) -> None:
    tool = bash_tool(ToolScope(root=tmp_path))
    task = asyncio.ensure_future(
        _run(tool, {"command": "sleep 60 & echo $! > child; sync child; wait"})
    )
    while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert _is_gone(int((tmp_path / "child").read_text()))


def _is_gone(pid: int) -> bool:
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False
