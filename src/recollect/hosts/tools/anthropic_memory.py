"""Anthropic's own memory tool (`memory_20250818`): files under /memories, stored in the space.
Answers have the wording that Anthropic documents, because Claude expects it. Each file is one item
of the archive, not a file on the disk. A change of a file is durable when the call returns, and
secrets in the file are masked."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias, overload

from recollect.core.blocking import BlockingEngine
from recollect.core.boundary import Failure, attempted
from recollect.core.engine.engine import Engine
from recollect.core.engine.items import NO_ITEM, ItemPlace, ItemStore, NewItem, StoredItem
from recollect.core.values.recall import FILE_SESSIONS
from recollect.errors import RecollectError
from recollect.hosts.tools.handler import MemoryAnswer

ROOT: Final = "/memories"
TOOL_TYPE: Final = "memory_20250818"
TOOL_NAME: Final = "memory"
MOST_CHARS: Final = 200_000
"""Maximum size of a file. Claude is instructed to keep its files short, and reads them in full."""
_MOST_PATH_CHARS: Final = 400  # not measured; paths are shown in answers
_SESSIONS: Final = f"{FILE_SESSIONS}{ROOT}/"
_LISTED_LEVELS: Final = 2  # Anthropic's tool lists two levels
_SNIPPET_LINES: Final = 2  # not measured; lines around a change
_MOST_RACES: Final = 30  # not measured; bounds the work of one call
_PAUSE_SECONDS: Final = 0.005
"""Average pause after another process changed the file twice. The pause grows with each attempt, so
that one process can finish."""
_BUSY: Final = "Another process keeps changing the file: view it and try again."
_Path: TypeAlias = str
"""Path relative to /memories; empty for the folder itself."""
_Files: TypeAlias = Mapping[_Path, StoredItem]


class _Refused(Exception):  # noqa: N818 - it is an answer
    """Raised with the answer for the model if a command is refused."""


class _Changed(Exception):  # noqa: N818 - the command is carried out again
    """Raised if another process changed the file after this one read it."""


def _place(path: _Path) -> ItemPlace:
    """Split a path into the labels of a namespace, without full stops, and a key."""
    return tuple(path.split(".")), ""


def _full_path(path: _Path) -> str:
    return f"{ROOT}/{path}" if path else ROOT


def _below(folder: _Path, files: _Files) -> dict[_Path, StoredItem]:
    start = f"{folder}/" if folder else ""
    return {path: file for path, file in files.items() if path.startswith(start)}


def _exists(path: _Path, files: _Files) -> bool:
    return not path or path in files or bool(_below(path, files))


class AnthropicMemoryTool:
    """Answers the commands of Claude's memory tool; made by `anthropic_memory_tool`."""

    def __init__(self, memory: Engine) -> None:
        self._items = ItemStore(memory, _SESSIONS)
        self._changing = asyncio.Lock()
        self._commands: dict[str, Callable[[_Arguments], Awaitable[str]]] = {
            "view": self._view,
            "create": self._create,
            "str_replace": self._str_replace,
            "insert": self._insert,
            "delete": self._delete,
            "rename": self._rename,
        }

    @property
    def name(self) -> str:
        """The tool's name in requests and calls."""
        return TOOL_NAME

    def definition(self) -> dict[str, Any]:
        """Return the tool's definition for a request to Anthropic."""
        return {"type": TOOL_TYPE, "name": TOOL_NAME}

    async def call(self, arguments: Mapping[str, Any] | str | bytes) -> MemoryAnswer:
        """Run a command. `arguments` is the call's input, as an object or as JSON."""
        result = await attempted(self._carry_out(arguments))
        if not isinstance(result, Failure):
            return result
        explanation = f" ({result.error.__name__}); continue without it."
        if issubclass(result.error, RecollectError):
            explanation = f": {result.said}"
        return MemoryAnswer(text=f"The memory tool failed{explanation}", is_error=True)

    async def _carry_out(self, arguments: Mapping[str, Any] | str | bytes) -> MemoryAnswer:
        try:
            call_input = _Arguments(arguments)
            command = self._commands[call_input.command(self._commands)]
            async with self._changing:
                for lost_races in range(_MOST_RACES):
                    with suppress(_Changed):
                        return MemoryAnswer(text=await command(call_input))
                    await asyncio.sleep(_PAUSE_SECONDS * lost_races * 2 * random.random())  # noqa: S311
        except _Refused as refused:
            return MemoryAnswer(text=str(refused), is_error=True)
        return MemoryAnswer(text=_BUSY, is_error=True)

    async def _view(self, call_input: _Arguments) -> str:
        path, lines = call_input.path("path"), call_input.lines()
        files = await self._files()
        if path in files:
            first, last = lines or (1, -1)
            shown_lines, first = _text_of(files[path]).split("\n"), max(1, first)
            content = "\n".join(
                _number_lines(shown_lines[first - 1 : None if last == -1 else last], first)
            )
            return f"Here's the content of {_full_path(path)} with line numbers:\n{content}"
        if not _exists(path, files):
            raise _missing(path)
        head = (
            f"Here're the files and directories up to {_LISTED_LEVELS} levels deep in "
            f"{_full_path(path)}, excluding hidden items:"
        )
        return "\n".join([head, *_listing(path, files)])

    async def _create(self, call_input: _Arguments) -> str:
        path, text = call_input.file("path"), call_input.text("file_text")
        files = await self._files()
        if _exists(path, files):
            raise _Refused(f"File {_full_path(path)} already exists")
        _require_folders(path, files)
        await self._put([_item(path, text, NO_ITEM)])
        return f"File created successfully at: {_full_path(path)}"

    async def _str_replace(self, call_input: _Arguments) -> str:
        path, old_text = call_input.file("path"), call_input.text("old_str")
        new_text = call_input.text("new_str")
        file = await self._file(path)
        text = _text_of(file)
        matches = re.finditer(f"(?={re.escape(old_text)})", text) if old_text else ()
        lines = [text.count("\n", 0, match.start()) + 1 for match in matches]
        if not lines:
            raise _Refused(
                f"No replacement was performed, old_str `{old_text}` did not appear verbatim in "
                f"{_full_path(path)}."
            )
        if len(lines) > 1:
            raise _Refused(
                f"No replacement was performed. Multiple occurrences of old_str `{old_text}` in "
                f"lines: {', '.join(map(str, lines))}. Please ensure it is unique"
            )
        await self._put([_item(path, text.replace(old_text, new_text, 1), file.version)])
        # The stored text, in which secrets are masked.
        shown_lines = _text_of(await self._file(path)).split("\n")
        first = max(0, lines[0] - 1 - _SNIPPET_LINES)
        head = "The memory file has been edited. Here is the snippet showing the change"
        snippet = _number_lines(shown_lines[first : lines[0] + _SNIPPET_LINES], first + 1)
        return "\n".join([f"{head} (with line numbers):", *snippet])

    async def _insert(self, call_input: _Arguments) -> str:
        path, text = call_input.file("path"), call_input.text("insert_text")
        line_index = call_input.number("insert_line")
        file = await self._file(path)
        lines = _text_of(file).split("\n")
        if lines[-1] == "":
            lines.pop()
        if not 0 <= line_index <= len(lines):
            raise _Refused(
                f"Invalid `insert_line` parameter: {line_index}. It should be within the range "
                f"[0, {len(lines)}]."
            )
        lines.insert(line_index, text.rstrip("\n"))
        new_text = "\n".join(lines).removesuffix("\n") + "\n"
        await self._put([_item(path, new_text, file.version)])
        return f"The file {_full_path(path)} has been edited."

    async def _delete(self, call_input: _Arguments) -> str:
        path = call_input.path("path")
        if not path:
            raise _Refused(f"Cannot delete the {ROOT} directory itself")
        files = await self._files()
        removed_files = {path: files[path]} if path in files else _below(path, files)
        if not removed_files:
            raise _Refused(f"The path {_full_path(path)} does not exist")
        await self._put([], removed_files=removed_files)
        return f"Successfully deleted {_full_path(path)}"

    async def _rename(self, call_input: _Arguments) -> str:
        old_path, new_path = call_input.path("old_path"), call_input.file("new_path")
        if not old_path:
            raise _Refused(f"Cannot rename the {ROOT} directory itself")
        files = await self._files()
        if not _exists(old_path, files):
            raise _Refused(f"The path {_full_path(old_path)} does not exist")
        if _exists(new_path, files):
            raise _Refused(f"The destination {_full_path(new_path)} already exists")
        if new_path.startswith(f"{old_path}/"):
            raise _Refused(
                f"The destination {_full_path(new_path)} lies inside {_full_path(old_path)}"
            )
        _require_folders(new_path, files)
        moved_files = {old_path: files[old_path]} if old_path in files else _below(old_path, files)
        items = [
            _item(new_path + path.removeprefix(old_path), _text_of(file), NO_ITEM)
            for path, file in moved_files.items()
        ]
        await self._put(items, removed_files=moved_files)
        return f"Successfully renamed {_full_path(old_path)} to {_full_path(new_path)}"

    async def _files(self) -> _Files:
        return {".".join(item.namespace): item for item in await self._items.list_under(())}

    async def _file(self, path: _Path) -> StoredItem:
        items = await self._items.get([_place(path)])
        if _place(path) in items:
            return items[_place(path)]
        if _exists(path, await self._files()):
            raise _Refused(f"The path {_full_path(path)} is not a file.")
        raise _missing(path)

    async def _put(self, items: Sequence[NewItem], removed_files: _Files | None = None) -> None:
        versions = {_place(path): file.version for path, file in (removed_files or {}).items()}
        if not await self._items.put(items, versions):
            raise _Changed


class BlockingAnthropicMemoryTool:
    """`AnthropicMemoryTool` for code without an event loop; made by `anthropic_memory_tool`."""

    def __init__(self, tool: AnthropicMemoryTool, memory: BlockingEngine) -> None:
        self._tool = tool
        self._memory = memory
        self.name: str = tool.name
        self.definition: Callable[[], dict[str, Any]] = tool.definition

    def call(self, arguments: Mapping[str, Any] | str | bytes) -> MemoryAnswer:
        """Run a command as `AnthropicMemoryTool.call` does, but block until it is done."""
        return self._memory.wait_for(self._tool.call(arguments))


@overload
def anthropic_memory_tool(memory: Engine) -> AnthropicMemoryTool: ...


@overload
def anthropic_memory_tool(memory: BlockingEngine) -> BlockingAnthropicMemoryTool: ...


def anthropic_memory_tool(
    memory: Engine | BlockingEngine,
) -> AnthropicMemoryTool | BlockingAnthropicMemoryTool:
    """Create a handler for Anthropic's memory tool. All sessions of the space share its files under
    /memories. Add `definition()` to the tools of a request, and pass the input of each `memory`
    call to `call`."""
    if isinstance(memory, BlockingEngine):
        return BlockingAnthropicMemoryTool(AnthropicMemoryTool(memory.engine), memory)
    return AnthropicMemoryTool(memory)


class _Arguments:
    def __init__(self, call_input: Mapping[str, Any] | str | bytes) -> None:
        try:
            read = json.loads(call_input) if isinstance(call_input, str | bytes) else call_input
        except ValueError:
            read = None
        if not isinstance(read, Mapping):
            raise _Refused('The input must be a JSON object with "command" and "path".')
        self._values = read

    def command(self, commands: Iterable[str]) -> str:
        name = self.text("command")
        if name not in commands:
            raise _Refused(f"Unknown command {name!r}: use one of {', '.join(commands)}.")
        return name

    def text(self, name: str) -> str:
        value = self._values.get(name)
        if not isinstance(value, str):
            raise _Refused(f"`{name}` must be a string.")
        return value

    def number(self, name: str) -> int:
        value = self._values.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _Refused(f"`{name}` must be a line number.")
        return value

    def lines(self) -> tuple[int, int] | None:
        view_range = self._values.get("view_range")
        if view_range is None:
            return None
        numbers = view_range if isinstance(view_range, list | tuple) else ()
        if [type(number) for number in numbers] != [int, int]:
            raise _Refused("`view_range` must be two line numbers, such as [1, 20] or [5, -1].")
        return view_range[0], view_range[1]

    def path(self, name: str) -> _Path:
        """Return the path of a file or folder. Refuse a path that is not under /memories."""
        text = self.text(name)
        parts = text.split("/")
        if parts[:2] != ["", ROOT[1:]]:
            raise _Refused(f"Path must start with {ROOT}, got: {text}")
        path_parts = parts[2:-1] if parts[-1] == "" else parts[2:]
        # some programs interpret control characters, backslashes and percent signs
        plain = text.isprintable() and "\\" not in text and "%" not in text
        if any(part in ("", ".", "..") for part in path_parts) or not plain:
            raise _Refused(f"Path {text} would escape {ROOT} directory")
        if len(text) > _MOST_PATH_CHARS:
            raise _Refused(f"The path must have at most {_MOST_PATH_CHARS} characters.")
        return "/".join(path_parts)

    def file(self, name: str) -> _Path:
        path = self.path(name)
        if not path:
            raise _Refused(f"The path {ROOT} is not a file.")
        return path


def _text_of(file: StoredItem) -> str:
    return str(file.value.get("text", ""))


def _item(path: _Path, text: str, replaces: str) -> NewItem:
    if len(text) > MOST_CHARS:
        raise _Refused(f"A memory file must have at most {MOST_CHARS:,} characters: split it.")
    namespace, key = _place(path)
    value = {"text": text}
    return NewItem(namespace=namespace, key=key, value=value, text=text, replaces=replaces)


def _require_folders(path: _Path, files: _Files) -> None:
    folder = path
    while folder := folder.rpartition("/")[0]:
        if folder in files:
            raise _Refused(f"The path {_full_path(folder)} is a file, not a directory.")


def _missing(path: _Path) -> _Refused:
    return _Refused(f"The path {_full_path(path)} does not exist. Please provide a valid path.")


def _number_lines(lines: list[str], first: int) -> list[str]:
    return [f"{number:>6}\t{line}" for number, line in enumerate(lines, first)]


def _listing(folder: _Path, files: _Files) -> list[str]:
    start = f"{folder}/" if folder else ""
    sizes: dict[tuple[str, ...], int] = {}
    total_size = 0
    for path, file in _below(folder, files).items():
        size = len(_text_of(file).encode())
        total_size += size
        parts = tuple(path.removeprefix(start).split("/"))
        if not any(part.startswith(".") for part in parts):
            for end in range(1, min(len(parts), _LISTED_LEVELS) + 1):
                sizes[parts[:end]] = sizes.get(parts[:end], 0) + size
    rows = []
    for parts, size in sorted(sizes.items()):
        path = start + "/".join(parts)
        rows.append(f"{_size(size)}\t{_full_path(path)}{'' if path in files else '/'}")
    return [f"{_size(total_size)}\t{_full_path(folder)}", *rows]


def _size(count: int) -> str:
    unit, size = 0, float(count)
    while size >= 1024 and unit < 3:
        unit, size = unit + 1, size / 1024
    return f"{int(size)}{'BKMG'[unit]}" if size == int(size) else f"{size:.1f}{'BKMG'[unit]}"
