"""One request, file by file: a turn enters only the modules that docs/design.md lists for it."""

import ast
import asyncio
import re
import sys
import threading
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import recollect
from recollect import open_memory

PACKAGE = Path(recollect.__file__).parent
DESIGN = Path(__file__).parents[2] / "docs" / "design.md"


def listed() -> set[str]:
    """The files and packages in the first column of the page's tables of one request."""
    page = DESIGN.read_text()
    section = page.partition("## One request, file by file")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`([\w/.]+)`", cell)}


def entered(store: Path) -> set[str]:
    """The package's files that run during one `prepare` that recalls one passage."""
    files: set[str] = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    async def run() -> None:
        filler = "the quick brown fox jumps over the lazy dog " * 8
        said = [
            {"role": "user", "content": "Hello, let us set up the servers."},
            {"role": "assistant", "content": "With pleasure."},
            {"role": "user", "content": "The staging API listens on port 8443, note that."},
        ]
        for n in range(60):
            said += [
                {"role": "assistant", "content": f"Noted, step {n}. {filler}"},
                {"role": "user", "content": f"Go on with step {n}. {filler}"},
            ]
        async with open_memory(
            store=store, settings={"window_tokens": 4_000, "recall.standing_tokens": 0}
        ) as memory:
            await memory.prepare("s", {"model": "m", "max_tokens": 100, "messages": said})
            await memory.settle(jobs=True)
            said += [
                {"role": "assistant", "content": "Done."},
                {"role": "user", "content": "Which port does the staging API listen on?"},
            ]
            threading.setprofile(profile)
            sys.setprofile(profile)
            try:
                context = await memory.prepare(
                    "s", {"model": "m", "max_tokens": 100, "messages": said}
                )
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
            assert context.recalled is not None
            assert "8443" in str(context.request["messages"][-2:]), str(context.report)

    asyncio.run(run())
    paths = [Path(name) for name in files]
    return {path.relative_to(PACKAGE).as_posix() for path in paths if path.is_relative_to(PACKAGE)}


def test_a_turn_enters_only_the_modules_that_the_page_lists(tmp_path: Path) -> None:
    known = listed()
    outside = {
        file
        for file in entered(tmp_path / "m.db")
        if file not in known and not any(file.startswith(name) for name in known if name[-1] == "/")
    }
    assert not outside, f"add to docs/design.md, or leave out of the turn: {sorted(outside)}"


def definitions(names: list[str]) -> dict[str, list[str]]:
    """The source of these functions, and of values in a class that are made of one."""
    sources: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        for node in ast.parse(text).body:
            members = node.body if isinstance(node, ast.ClassDef) else [node]
            for member in members:
                name = getattr(member, "name", None)
                if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    name = member.target.id
                full_name = f"{node.name}.{name}" if isinstance(node, ast.ClassDef) else name
                if full_name in names:
                    source = ast.get_source_segment(text, member) or ""
                    sources.setdefault(full_name, []).append(source)
    return sources


def test_each_function_from_prepare_to_the_sql_names_the_next() -> None:
    walk = DESIGN.read_text().partition("names the next one: ")[2].partition("\n\n")[0]
    names = [name for name in re.findall(r"`([\w.]+)`", walk) if name != "GuardedStore.call"]
    sources = definitions(names)
    assert (names[0], names[-1], len(names) <= 14) == ("Engine.prepare", "find_candidates", True)
    for name, following in pairwise(names):
        called = re.compile(rf"\b{following.rpartition('.')[2]}\b")
        assert any(called.search(source) for source in sources[name]), f"{name}: {following}"
    assert any(".rows(" in source for source in sources[names[-1]])
