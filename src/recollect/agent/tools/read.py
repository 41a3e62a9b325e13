"""The tool `read`: a file, or a stretch of its lines.

Never answers more than its limits; what is left out is told, with how to read on. Images come
back as images.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recollect.agent.tools.confine import Ground, Placed, confine
from recollect.agent.tools.outcome import (
    Tool,
    ToolOutcome,
    failed,
    number_given,
    schema,
    text_given,
)

MAX_LINES = 2000
MAX_BYTES = 50 * 1024
"""pi's limits of one reading: what a model reads at once without losing sight of the task."""
MAX_FILE_BYTES = 64 * 1024 * 1024
"""Larger files are not taken into memory."""
MAX_IMAGE_BYTES = 5 * 1024 * 1024
"""Anthropic's limit for one image."""
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def read_tool(ground: Ground) -> Tool:
    """The tool, bound to a workspace."""

    async def run(arguments: Mapping[str, Any]) -> ToolOutcome:
        placed = confine(text_given(arguments, "path"), ground, reading=True)
        if not isinstance(placed, Placed):
            return failed(placed.reason)
        return await asyncio.to_thread(_read, placed, arguments)

    return Tool(
        name="read",
        description=(
            f"Read a text file or an image. At most {MAX_LINES} lines or {MAX_BYTES // 1024} KB "
            "at once; for more, use offset and limit."
        ),
        parameters=schema(
            ("path",),
            path={"type": "string", "description": "The file, relative to the workspace"},
            offset={"type": "integer", "description": "First line to read, counted from 1"},
            limit={"type": "integer", "description": "How many lines to read"},
        ),
        run=run,
    )


def _read(placed: Placed, arguments: Mapping[str, Any]) -> ToolOutcome:
    try:
        data = whole_file(placed.path)
    except OSError as error:
        return failed(_trouble(placed, error))
    if media_type := _media_type(data):
        if len(data) > MAX_IMAGE_BYTES:
            return failed(f"{placed.shown} is an image of {len(data)} bytes; make it smaller.")
        encoded = base64.b64encode(data).decode("ascii")
        return ToolOutcome(text=f"{placed.shown}: {media_type}", images=((media_type, encoded),))
    if b"\0" in data[:8192]:
        return failed(f"{placed.shown} is not text; look at it with bash (file, xxd, strings).")
    lines = data.decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    offset = number_given(arguments, "offset")
    limit = number_given(arguments, "limit")
    return _stretch(placed.shown, lines, max(1, offset or 1), limit)


def whole_file(path: Path) -> bytes:
    """What is in a file; OSError where it is none, or too large to be looked at this way."""
    there = path.stat()
    if stat.S_ISDIR(there.st_mode):
        raise IsADirectoryError(path)
    if not stat.S_ISREG(there.st_mode):  # a pipe would never end
        raise OSError(errno.EINVAL, "it is no regular file")
    if there.st_size > MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, "it is too large; look at parts of it with bash (head, sed)")
    return path.read_bytes()


def _stretch(shown: str, lines: list[str], first: int, limit: int | None) -> ToolOutcome:
    total = len(lines)
    if not lines:
        return ToolOutcome(text=f"[{shown} is empty]")
    if first > total:
        return failed(f"{shown} has {total} lines; there is no line {first}.")
    wanted = MAX_LINES if limit is None else max(1, min(limit, MAX_LINES))
    taken: list[str] = []
    size = 0
    for line in lines[first - 1 : first - 1 + wanted]:
        size += len(line.encode("utf-8", "replace")) + 1
        if size > MAX_BYTES and taken:
            break
        taken.append(line)
    cut_line = len(taken) == 1 and size > MAX_BYTES
    if cut_line:
        taken = [taken[0][:MAX_BYTES]]
    last = first + len(taken) - 1
    notice = _notice(shown, first, last, total, cut_line=cut_line)
    return ToolOutcome(
        text="\n".join([*taken, *notice]), details={"lines": total, "first": first, "last": last}
    )


def _notice(shown: str, first: int, last: int, total: int, *, cut_line: bool) -> list[str]:
    notice: list[str] = []
    if cut_line:
        notice.append(
            f"[line {first} is cut off; read the rest of it with bash, for example "
            f"sed -n '{first}p' {shown} | cut -c {MAX_BYTES + 1}-]"
        )
    if last < total:
        notice.append(f"[lines {first}-{last} of {total}; read on with offset={last + 1}]")
    return ["", *notice] if notice else []


def _media_type(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES if data.startswith(magic)), None)


def _trouble(placed: Placed, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        near = _similar(placed.path)
        return f"{placed.shown} does not exist." + (f" Near it: {', '.join(near)}." if near else "")
    if isinstance(error, IsADirectoryError):
        return f"{placed.shown} is a folder; list it with bash (ls)."
    return f"{placed.shown} cannot be read: {error.strerror or type(error).__name__}."


def _similar(path: Path) -> list[str]:
    """Names beside a missing file that begin alike: most often it is a typo."""
    try:
        names = sorted(one.name for one in path.parent.iterdir())
    except OSError:
        return []
    head = path.name[:3].lower()
    return [name for name in names if head and name.lower().startswith(head)][:5]
