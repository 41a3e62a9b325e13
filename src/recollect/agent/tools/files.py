"""The tools `read`, `write` and `edit`: they read files or parts of them, and replace files or
exact passages.

A file is replaced in one step. No tool reads or writes outside the workspace, even if another
program replaces a folder by a link meanwhile, because folders are opened one by one, and never
through a link. If `read` cuts a file, its result names the next offset."""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from recollect.adapters.session.files import write_durably
from recollect.agent.tools.confine import (
    AllowedPath,
    Tool,
    ToolOutcome,
    ToolScope,
    confine,
    number_argument,
    schema,
    text_argument,
    tool_failure,
)
from recollect.system.durable import FOLDER_STEP, NO_LINK, read_plain

# pi's limits for one `read`.
MAX_LINES = 2000
MAX_BYTES = 50 * 1024
"""pi's limits for one `read`: as much as a model can read without losing track of its task."""
MAX_FILE_BYTES = 64 * 1024 * 1024
"""Files larger than this are not loaded."""
MAX_IMAGE_BYTES = 5 * 1024 * 1024
"""Anthropic's limit for one image."""
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


READ_ONLY = "The workspace is read-only; nothing can be written."
_PATH = {"type": "string", "description": "The file, relative to the workspace"}
_DONE = {"read": "read", "write": "written", "edit": "edited"}


def read_tool(scope: ToolScope) -> Tool:
    description = (
        f"Read a text file or an image. At most {MAX_LINES} lines or {MAX_BYTES // 1024} KB "
        "at once; for more, use offset and limit."
    )
    parameters = schema(
        ("path",),
        path=_PATH,
        offset={"type": "integer", "description": "First line to read, counted from 1"},
        limit={"type": "integer", "description": "How many lines to read"},
    )
    return _file_tool(scope, "read", description, parameters, _read)


def write_tool(scope: ToolScope) -> Tool:
    description = "Write a file whole, with its folders; what was in it is replaced."
    content = {"type": "string", "description": "The whole text"}
    parameters = schema(("path", "content"), path=_PATH, content=content)
    return _file_tool(scope, "write", description, parameters, _write)


def edit_tool(scope: ToolScope) -> Tool:
    description = (
        "Replace one exact piece of a file. oldText must occur in it exactly once, "
        "whitespace included."
    )
    parameters = schema(
        ("path", "oldText", "newText"),
        path=_PATH,
        oldText={"type": "string", "description": "The text to replace, exactly as it is"},
        newText={"type": "string", "description": "What takes its place"},
    )
    return _file_tool(scope, "edit", description, parameters, _edit)


def _file_tool(
    scope: ToolScope,
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    work: Callable[[AllowedPath, Mapping[str, Any]], ToolOutcome],
) -> Tool:
    """Create a tool that works on the file named by the argument `path`. A read ends with the turn;
    a write always completes first."""
    reads = name == "read"

    async def run(arguments: Mapping[str, Any]) -> ToolOutcome:
        allowed_path = confine(text_argument(arguments, "path"), scope, reading=reads)
        if isinstance(allowed_path, ToolOutcome):
            return allowed_path
        if scope.read_only and not reads:
            return tool_failure(READ_ONLY)
        try:
            if reads:
                return await asyncio.to_thread(work, allowed_path, arguments)
            return await write_durably(work, allowed_path, arguments)
        except FileNotFoundError:
            return tool_failure(f"{allowed_path.shown} does not exist.")
        except IsADirectoryError:
            return tool_failure(f"{allowed_path.shown} is a folder; list it with bash (ls).")
        except OSError as error:
            problem = error.strerror or type(error).__name__
            return tool_failure(f"{allowed_path.shown} cannot be {_DONE[name]}: {problem}.")

    return Tool(name=name, description=description, parameters=parameters, run=run)


def _read(allowed_path: AllowedPath, arguments: Mapping[str, Any]) -> ToolOutcome:
    data = _whole_file(allowed_path)
    if media_type := _media_type(data):
        if len(data) > MAX_IMAGE_BYTES:
            return tool_failure(
                f"{allowed_path.shown} is an image of {len(data)} bytes; make it smaller."
            )
        image_data = base64.b64encode(data).decode("ascii")
        return ToolOutcome(
            text=f"{allowed_path.shown}: {media_type}", images=((media_type, image_data),)
        )
    if b"\0" in data[:8192]:
        return tool_failure(
            f"{allowed_path.shown} is not text; look at it with bash (file, xxd, strings)."
        )
    lines = data.decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    offset = number_argument(arguments, "offset")
    limit = number_argument(arguments, "limit")
    return _stretch(allowed_path.shown, lines, max(1, offset or 1), limit)


@contextmanager
def _folder_of(allowed_path: AllowedPath) -> Iterator[int]:
    steps = allowed_path.path.relative_to(allowed_path.base).parts[:-1]
    if allowed_path.path == allowed_path.base:
        raise _is_folder()
    folder = os.open(allowed_path.base, FOLDER_STEP)
    try:
        for step in steps:
            with suppress(FileExistsError):
                os.mkdir(step, dir_fd=folder)
            outer, folder = folder, os.open(step, FOLDER_STEP, dir_fd=folder)
            os.close(outer)
        yield folder
    finally:
        os.close(folder)


def _is_folder() -> IsADirectoryError:
    return IsADirectoryError(errno.EISDIR, "it is a folder")


def _whole_file(allowed_path: AllowedPath) -> bytes:
    return read_plain(allowed_path.path, MAX_FILE_BYTES)[0]


def _stretch(shown_path: str, lines: list[str], first: int, limit: int | None) -> ToolOutcome:
    total = len(lines)
    if not lines:
        return ToolOutcome(text=f"[{shown_path} is empty]")
    if first > total:
        return tool_failure(f"{shown_path} has {total} lines; there is no line {first}.")
    max_lines = MAX_LINES if limit is None else max(1, min(limit, MAX_LINES))
    lines_read: list[str] = []
    size = 0
    for line in lines[first - 1 : first - 1 + max_lines]:
        size += len(line.encode("utf-8", "replace")) + 1
        if size > MAX_BYTES and lines_read:
            break
        lines_read.append(line)
    cut_line = len(lines_read) == 1 and size > MAX_BYTES
    if cut_line:
        lines_read = [lines_read[0][:MAX_BYTES]]
    last = first + len(lines_read) - 1
    if cut_line:
        lines_read.append(f"\n[line {first} is cut off; read the rest of it with bash]")
    if last < total:
        lines_read.append(f"\n[lines {first}-{last} of {total}; read on with offset={last + 1}]")
    details = {"lines": total, "first": first, "last": last}
    return ToolOutcome(text="\n".join(lines_read), details=details)


def _media_type(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES if data.startswith(magic)), None)


def _write(allowed_path: AllowedPath, arguments: Mapping[str, Any]) -> ToolOutcome:
    content = text_argument(arguments, "content")
    if content is None:
        return tool_failure("`content` is missing; give the whole text of the file.")
    _replace(allowed_path, content.encode("utf-8", "surrogatepass"))
    return ToolOutcome(text=f"Wrote {allowed_path.shown} ({len(content)} characters).")


def _edit(allowed_path: AllowedPath, arguments: Mapping[str, Any]) -> ToolOutcome:
    old_text, new_text = text_argument(arguments, "oldText"), text_argument(arguments, "newText")
    if old_text is None or new_text is None:
        return tool_failure("`oldText` and `newText` are both needed.")
    try:
        text = _whole_file(allowed_path).decode("utf-8")
    except UnicodeDecodeError:
        return tool_failure(f"{allowed_path.shown} is not UTF-8 text; change it with bash.")
    if not old_text:
        return tool_failure("`oldText` is empty; to begin a file use write.")
    if old_text == new_text:
        return tool_failure("`oldText` and `newText` are the same; nothing was changed.")
    if "\r\n" in text and "\r\n" not in old_text:  # the model does not see the line endings
        old_text, new_text = old_text.replace("\n", "\r\n"), new_text.replace("\n", "\r\n")
    match_count = text.count(old_text)
    if match_count != 1:
        return tool_failure(
            f"`oldText` is in {allowed_path.shown} {match_count} times; it must be there once. "
            "Read the file again, copy it exactly, and take more of the lines around it."
        )
    offset = text.index(old_text)
    new_content = text[:offset] + new_text + text[offset + len(old_text) :]
    _replace(allowed_path, new_content.encode("utf-8", "surrogatepass"))
    line = text.count("\n", 0, offset) + 1
    return ToolOutcome(text=f"Edited {allowed_path.shown} at line {line}.", details={"line": line})


def _replace(allowed_path: AllowedPath, data: bytes) -> None:
    """Replace the file in one step, and keep its permissions."""
    name = allowed_path.path.name
    temporary_name = f".{name[:40]}.{os.urandom(4).hex()}.new"
    with _folder_of(allowed_path) as folder:
        rights = _rights(name, folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK
        handle = os.open(temporary_name, flags, 0o666, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                if rights is not None:
                    os.fchmod(file.fileno(), rights)
            os.replace(temporary_name, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with suppress(FileNotFoundError):
                os.unlink(temporary_name, dir_fd=folder)
            raise


def _rights(name: str, folder: int) -> int | None:
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise _is_folder()
    return None if stat.S_ISLNK(mode) else mode & 0o7777
