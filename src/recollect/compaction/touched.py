"""Finds the files that tools read and changed, from the calls alone.

Owns the names of file tools and of their path arguments, for the agents that we know. Must never
count a call that failed. What always holds: in order of touch, oldest first; a path stands once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from recollect.rules.text import clean_text
from recollect.values.history import Entry
from recollect.values.message import ToolCall, ToolResult

# By name without case and signs: pi, OpenClaw, Claude Code, Codex, Gemini, the editor tools.
_READERS: Final = frozenset(
    {"read", "readfile", "readfiles", "readmanyfiles", "view", "viewfile", "viewimage", "openfile"}
    | {"notebookread", "getfile"}
)
_WRITERS: Final = frozenset(
    {"write", "writefile", "writetofile", "createfile", "edit", "editfile", "multiedit", "insert"}
    | {"strreplace", "searchreplace", "replace", "replaceinfile", "notebookedit", "deletefile"}
    | {"applydiff", "insertedit"}
)
_EDITORS: Final = frozenset({"strreplaceeditor", "strreplacebasededittool", "texteditor"})
"""One tool for all; its `command` says what it does."""
_PATCHERS: Final = frozenset({"applypatch", "bash", "shell", "exec", "execcommand", "localshell"})
"""Where a patch may be given as text."""
_PATH_NAMES: Final = (
    *("path", "file_path", "filename", "filePath", "file", "target_file", "absolute_path"),
    *("notebook_path", "paths", "files"),
)
_PATCHED: Final = re.compile(
    r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.{1,400}?)\s*$", re.MULTILINE
)
_SIGNS: Final = re.compile(r"[^a-z0-9]")
_MOST_PATH_CHARS: Final = 400
_MOST_IN_A_CALL: Final = 50


def touched(entries: Sequence[Entry]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files read and the files modified."""
    failed = {
        part.call_id
        for entry in entries
        for part in entry.parts
        if isinstance(part, ToolResult) and part.is_error
    }
    read: dict[str, None] = {}
    modified: dict[str, None] = {}
    for entry in entries:
        for part in entry.parts:
            if isinstance(part, ToolCall) and part.id not in failed:
                for written, changed in _paths(part):
                    path = clean_text(written)
                    into = modified if changed else read
                    into.pop(path, None)
                    into[path] = None
    return tuple(read), tuple(modified)


def _paths(part: ToolCall) -> Iterator[tuple[str, bool]]:
    name = _SIGNS.sub("", part.name.lower())
    arguments = _arguments(part.arguments)
    if name in _READERS:
        yield from ((path, False) for path in _named(arguments))
    elif name in _WRITERS:
        yield from ((path, True) for path in _named(arguments))
    elif name in _EDITORS:
        changed = arguments.get("command") != "view"
        yield from ((path, changed) for path in _named(arguments))
    elif name in _PATCHERS:
        texts = list(_texts(arguments)) or [part.arguments]
        for text in texts:
            found = _PATCHED.findall(text)[:_MOST_IN_A_CALL]
            yield from ((path, True) for path in found)


def _arguments(written: str) -> Mapping[str, Any]:
    try:
        arguments = json.loads(written)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {"input": arguments}


def _named(arguments: Mapping[str, Any]) -> Iterator[str]:
    for name in _PATH_NAMES:
        value = arguments.get(name)
        for path in value[:_MOST_IN_A_CALL] if isinstance(value, list) else [value]:
            if isinstance(path, str) and 0 < len(path.strip()) <= _MOST_PATH_CHARS:
                yield " ".join(path.split())


def _texts(arguments: Mapping[str, Any]) -> Iterator[str]:
    for value in arguments.values():
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from (inner for inner in value if isinstance(inner, str))
