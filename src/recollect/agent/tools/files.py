"""The tools `write` and `edit`: whole files, and exact replacements in them.

A file is replaced in one step: whoever reads it sees the old text or the new, never half of
it. Nothing outside the workspace is touched, not even through a link.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from recollect.agent.tools.confine import Ground, Placed, confine
from recollect.agent.tools.outcome import Tool, ToolOutcome, failed, schema, text_given
from recollect.agent.tools.read import whole_file

READ_ONLY = "The workspace is read-only; nothing can be written."
MAX_PLACES = 5
"""How many places of an ambiguous text are named."""
MAX_COMPARED_LINES = 20_000
MAX_COMPARED_CHARS = 200
"""How far a text that was not found is looked for: a hint must not take longer than the edit."""
_CLOSE_RATIO = 0.6
"""difflib's own measure of a close match."""
_PATH = {"type": "string", "description": "The file, relative to the workspace"}


def write_tool(ground: Ground) -> Tool:
    """The tool `write`, bound to a workspace."""

    async def run(arguments: Mapping[str, Any]) -> ToolOutcome:
        placed = confine(text_given(arguments, "path"), ground)
        if not isinstance(placed, Placed):
            return failed(placed.reason)
        content = text_given(arguments, "content")
        if content is None:
            return failed("`content` is missing; give the whole text of the file.")
        if ground.read_only:
            return failed(READ_ONLY)
        return await asyncio.to_thread(_write, placed, content)

    return Tool(
        name="write",
        description="Write a file whole, with its folders; what was in it is replaced.",
        parameters=schema(
            ("path", "content"),
            path=_PATH,
            content={"type": "string", "description": "The whole text"},
        ),
        run=run,
    )


def edit_tool(ground: Ground) -> Tool:
    """The tool `edit`, bound to a workspace."""

    async def run(arguments: Mapping[str, Any]) -> ToolOutcome:
        placed = confine(text_given(arguments, "path"), ground)
        if not isinstance(placed, Placed):
            return failed(placed.reason)
        old, new = text_given(arguments, "oldText"), text_given(arguments, "newText")
        if old is None or new is None:
            return failed("`oldText` and `newText` are both needed.")
        if ground.read_only:
            return failed(READ_ONLY)
        return await asyncio.to_thread(_edit, placed, old, new)

    return Tool(
        name="edit",
        description=(
            "Replace one exact stretch of a file. oldText must stand in it exactly once, "
            "whitespace included."
        ),
        parameters=schema(
            ("path", "oldText", "newText"),
            path=_PATH,
            oldText={"type": "string", "description": "The text to replace, exactly as it is"},
            newText={"type": "string", "description": "What takes its place"},
        ),
        run=run,
    )


def _write(placed: Placed, content: str) -> ToolOutcome:
    if placed.path.is_dir():  # before anything is written: beside the root is outside of it
        return failed(f"{placed.shown} is a folder; name a file.")
    try:
        placed.path.parent.mkdir(parents=True, exist_ok=True)
        _replace(placed.path, content.encode("utf-8", "surrogatepass"))
    except OSError as error:
        return failed(f"{placed.shown} cannot be written: {_why(error)}.")
    return ToolOutcome(text=f"Wrote {placed.shown} ({len(content)} characters).")


def _edit(placed: Placed, old: str, new: str) -> ToolOutcome:
    try:
        text = whole_file(placed.path).decode("utf-8")
    except OSError as error:
        return failed(f"{placed.shown} cannot be edited: {_why(error)}.")
    except UnicodeDecodeError:
        return failed(f"{placed.shown} is not UTF-8 text; change it with bash.")
    if not old:
        return failed("`oldText` is empty; to begin a file use write.")
    if old == new:
        return failed("`oldText` and `newText` are the same; nothing was changed.")
    if "\r\n" in text and "\r\n" not in old:  # the model sees lines, not how they end
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    found = text.count(old)
    if found != 1:
        return failed(_not_found(placed.shown, text, old) if not found else _many(text, old))
    at = text.index(old)
    try:
        changed = text[:at] + new + text[at + len(old) :]
        _replace(placed.path, changed.encode("utf-8", "surrogatepass"))
    except OSError as error:
        return failed(f"{placed.shown} cannot be written: {_why(error)}.")
    line = text.count("\n", 0, at) + 1
    return ToolOutcome(text=f"Edited {placed.shown} at line {line}.", details={"line": line})


def _many(text: str, old: str) -> str:
    lines: list[str] = []
    at = text.find(old)
    while at >= 0:
        lines.append(str(text.count("\n", 0, at) + 1))
        at = text.find(old, at + 1)
    named = ", ".join(lines[:MAX_PLACES]) + (", …" if len(lines) > MAX_PLACES else "")
    return (
        f"`oldText` stands there {len(lines)} times (lines {named}); take more of the lines "
        "around it so that it is found once."
    )


def _not_found(shown: str, text: str, old: str) -> str:
    """Where something like it stands: most often only the whitespace differs."""
    first = next((line.strip() for line in old.splitlines() if line.strip()), "")
    wanted = first[:MAX_COMPARED_CHARS]
    best, at = 0.0, 0
    for number, line in enumerate(text.splitlines()[:MAX_COMPARED_LINES], 1):
        near = line.strip()[:MAX_COMPARED_CHARS]
        matcher = SequenceMatcher(None, near, wanted, autojunk=False)
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
            ratio = matcher.ratio()
            if ratio > best:
                best, at = ratio, number
    if best == 1:
        hint = f"Its first line stands at line {at}; the whitespace or a later line differs."
    elif best >= _CLOSE_RATIO:
        hint = f"Line {at} is close to its first line."
    else:
        hint = "Nothing close to it is there."
    return f"`oldText` was not found in {shown}. {hint} Read the file again and copy it exactly."


def _replace(path: Path, data: bytes) -> None:
    """Put the file in place in one step, with the rights that it had."""
    beside = path.with_name(f".{path.name[:40]}.{os.urandom(4).hex()}.new")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            beside.chmod(path.stat().st_mode & 0o7777)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__
