"""The tools `read`, `write` and `edit`: files and parts of them, and exact replacements.

A file is replaced in one step: whoever reads it sees the old text or the new, never half of
it; a turn that is stopped meanwhile is told that it was. Nothing outside the workspace is touched,
not even through a link that takes a folder's place meanwhile: folders are opened one by one, and
none through a link. `read` never answers more than its limits and says how to read on; images come
back as images.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import SequenceMatcher
from typing import Any, Final

from recollect.agent.durably import completed
from recollect.agent.tools.confine import Placed, ToolScope, confine
from recollect.agent.tools.outcome import (
    Tool,
    ToolOutcome,
    failed,
    number_given,
    schema,
    text_given,
)

# The tool `read`


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


def read_tool(scope: ToolScope) -> Tool:
    """The tool, bound to a workspace."""

    async def run(arguments: Mapping[str, Any]) -> ToolOutcome:
        placed = confine(text_given(arguments, "path"), scope, reading=True)
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
        data = _whole_file(placed)
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


_NO_LINK: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_STEP: Final[int] = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | _NO_LINK
"""A folder on the way to a file; where the system can, one that may be entered but not listed."""


@contextmanager
def _folder_of(placed: Placed, *, make: bool = False) -> Iterator[int]:
    """The folder that a file is in, opened; `make` creates what is missing of it."""
    steps = placed.path.relative_to(placed.base).parts[:-1]
    if placed.path == placed.base:
        raise _is_folder()
    folder = os.open(placed.base, _STEP)
    try:
        for step in steps:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(step, dir_fd=folder)
            outer, folder = folder, os.open(step, _STEP, dir_fd=folder)
            os.close(outer)
        yield folder
    finally:
        os.close(folder)


def _is_folder() -> IsADirectoryError:
    return IsADirectoryError(errno.EISDIR, "it is a folder")


def _whole_file(placed: Placed) -> bytes:
    """What is in a file; OSError where it is none, or too large to be looked at this way."""
    with _folder_of(placed) as folder:  # without waiting: nobody may ever write to a pipe
        handle = os.open(placed.path.name, os.O_RDONLY | os.O_NONBLOCK | _NO_LINK, dir_fd=folder)
    try:
        there = os.fstat(handle)
        if stat.S_ISDIR(there.st_mode):
            raise _is_folder()
        if not stat.S_ISREG(there.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        if there.st_size > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, "it is too large; look at parts of it with bash (head, sed)")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(MAX_FILE_BYTES)
    finally:
        os.close(handle)


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
        near = _similar(placed)
        return f"{placed.shown} does not exist." + (f" Near it: {', '.join(near)}." if near else "")
    if isinstance(error, IsADirectoryError):
        return f"{placed.shown} is a folder; list it with bash (ls)."
    return f"{placed.shown} cannot be read: {error.strerror or type(error).__name__}."


def _similar(placed: Placed) -> list[str]:
    """Names beside a missing file that begin alike: most often it is a typo."""
    try:
        with _folder_of(placed) as folder:
            listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | _NO_LINK, dir_fd=folder)
        try:
            names = sorted(os.listdir(listed))  # noqa: PTH208 - of an open folder
        finally:
            os.close(listed)
    except OSError:
        return []
    head = placed.path.name[:3].lower()
    return [name for name in names if head and name.lower().startswith(head)][:5]


READ_ONLY = "The workspace is read-only; nothing can be written."
MAX_PLACES = 5
"""How many places of an ambiguous text are named."""
MAX_COMPARED_LINES = 20_000
MAX_COMPARED_CHARS = 200
"""How far a text that was not found is looked for: a hint must not take longer than the edit."""
_CLOSE_RATIO = 0.6
"""difflib's own measure of a close match."""
_PATH = {"type": "string", "description": "The file, relative to the workspace"}


def write_tool(scope: ToolScope) -> Tool:
    """The tool `write`, bound to a workspace."""

    async def run(arguments: Mapping[str, Any]) -> ToolOutcome:
        placed = confine(text_given(arguments, "path"), scope)
        if not isinstance(placed, Placed):
            return failed(placed.reason)
        content = text_given(arguments, "content")
        if content is None:
            return failed("`content` is missing; give the whole text of the file.")
        if scope.read_only:
            return failed(READ_ONLY)
        return await completed(_write, placed, content)

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


def edit_tool(scope: ToolScope) -> Tool:
    """The tool `edit`, bound to a workspace."""

    async def run(arguments: Mapping[str, Any]) -> ToolOutcome:
        placed = confine(text_given(arguments, "path"), scope)
        if not isinstance(placed, Placed):
            return failed(placed.reason)
        old, new = text_given(arguments, "oldText"), text_given(arguments, "newText")
        if old is None or new is None:
            return failed("`oldText` and `newText` are both needed.")
        if scope.read_only:
            return failed(READ_ONLY)
        return await completed(_edit, placed, old, new)

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
    try:
        _replace(placed, content.encode("utf-8", "surrogatepass"))
    except OSError as error:
        return failed(f"{placed.shown} cannot be written: {_why(error)}.")
    return ToolOutcome(text=f"Wrote {placed.shown} ({len(content)} characters).")


def _edit(placed: Placed, old: str, new: str) -> ToolOutcome:
    try:
        text = _whole_file(placed).decode("utf-8")
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
        _replace(placed, changed.encode("utf-8", "surrogatepass"))
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


def _replace(placed: Placed, data: bytes) -> None:
    """Put the file in place in one step, with the rights that it had."""
    name = placed.path.name
    beside = f".{name[:40]}.{os.urandom(4).hex()}.new"
    with _folder_of(placed, make=True) as folder:
        rights = _rights(name, folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK
        handle = os.open(beside, flags, 0o666, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                if rights is not None:
                    os.fchmod(file.fileno(), rights)
            os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=folder)
            raise


def _rights(name: str, folder: int) -> int | None:
    """Those of a file; None where there is none yet."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise _is_folder()
    return None if stat.S_ISLNK(mode) else mode & 0o7777


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__
