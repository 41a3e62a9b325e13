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
_MOST_PATH_CHARS: Final = 400
_SESSIONS: Final = f"{FILE_SESSIONS}{ROOT}/"
_LISTED_LEVELS: Final = 2
_SNIPPET_LINES: Final = 2
_MOST_RACES: Final = 30
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


def _shown(path: _Path) -> str:
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
        done = await attempted(self._carry_out(arguments))
        if not isinstance(done, Failure):
            return done
        ours = issubclass(done.error, RecollectError)
        why = f": {done.said}" if ours else f" ({done.error.__name__}); continue without it."
        return MemoryAnswer(text=f"The memory tool failed{why}", is_error=True)

    async def _carry_out(self, arguments: Mapping[str, Any] | str | bytes) -> MemoryAnswer:
        try:
            given = _Arguments(arguments)
            command = self._commands[given.command(self._commands)]
            async with self._changing:
                for lost in range(_MOST_RACES):
                    with suppress(_Changed):
                        return MemoryAnswer(text=await command(given))
                    await asyncio.sleep(_PAUSE_SECONDS * lost * 2 * random.random())  # noqa: S311
        except _Refused as refused:
            return MemoryAnswer(text=str(refused), is_error=True)
        return MemoryAnswer(text=_BUSY, is_error=True)

    async def _view(self, given: _Arguments) -> str:
        path, lines = given.path("path"), given.lines()
        files = await self._files()
        if path in files:
            first, last = lines or (1, -1)
            shown, first = _text_of(files[path]).split("\n"), max(1, first)
            content = "\n".join(_numbered(shown[first - 1 : None if last == -1 else last], first))
            return f"Here's the content of {_shown(path)} with line numbers:\n{content}"
        if not _exists(path, files):
            raise _missing(path)
        head = (
            f"Here're the files and directories up to {_LISTED_LEVELS} levels deep in "
            f"{_shown(path)}, excluding hidden items:"
        )
        return "\n".join([head, *_listing(path, files)])

    async def _create(self, given: _Arguments) -> str:
        path, text = given.file("path"), given.text("file_text")
        files = await self._files()
        if _exists(path, files):
            raise _Refused(f"File {_shown(path)} already exists")
        _require_folders(path, files)
        await self._put([_item(path, text, NO_ITEM)])
        return f"File created successfully at: {_shown(path)}"

    async def _str_replace(self, given: _Arguments) -> str:
        path, old, new = given.file("path"), given.text("old_str"), given.text("new_str")
        file = await self._file(path)
        text = _text_of(file)
        found = re.finditer(f"(?={re.escape(old)})", text) if old else ()
        lines = [text.count("\n", 0, one.start()) + 1 for one in found]
        if not lines:
            raise _Refused(
                f"No replacement was performed, old_str `{old}` did not appear verbatim in "
                f"{_shown(path)}."
            )
        if len(lines) > 1:
            raise _Refused(
                f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: "
                f"{', '.join(map(str, lines))}. Please ensure it is unique"
            )
        await self._put([_item(path, text.replace(old, new, 1), file.version)])
        # The stored text, in which secrets are masked.
        shown = _text_of(await self._file(path)).split("\n")
        first = max(0, lines[0] - 1 - _SNIPPET_LINES)
        head = "The memory file has been edited. Here is the snippet showing the change"
        snippet = _numbered(shown[first : lines[0] + _SNIPPET_LINES], first + 1)
        return "\n".join([f"{head} (with line numbers):", *snippet])

    async def _insert(self, given: _Arguments) -> str:
        path, text = given.file("path"), given.text("insert_text")
        at = given.number("insert_line")
        file = await self._file(path)
        lines = _text_of(file).split("\n")
        if lines[-1] == "":
            lines.pop()
        if not 0 <= at <= len(lines):
            raise _Refused(
                f"Invalid `insert_line` parameter: {at}. It should be within the range "
                f"[0, {len(lines)}]."
            )
        lines.insert(at, text.rstrip("\n"))
        changed = "\n".join(lines).removesuffix("\n") + "\n"
        await self._put([_item(path, changed, file.version)])
        return f"The file {_shown(path)} has been edited."

    async def _delete(self, given: _Arguments) -> str:
        path = given.path("path")
        if not path:
            raise _Refused(f"Cannot delete the {ROOT} directory itself")
        files = await self._files()
        deleted = {path: files[path]} if path in files else _below(path, files)
        if not deleted:
            raise _Refused(f"The path {_shown(path)} does not exist")
        await self._put([], gone=deleted)
        return f"Successfully deleted {_shown(path)}"

    async def _rename(self, given: _Arguments) -> str:
        old, new = given.path("old_path"), given.file("new_path")
        if not old:
            raise _Refused(f"Cannot rename the {ROOT} directory itself")
        files = await self._files()
        if not _exists(old, files):
            raise _Refused(f"The path {_shown(old)} does not exist")
        if _exists(new, files):
            raise _Refused(f"The destination {_shown(new)} already exists")
        if new.startswith(f"{old}/"):
            raise _Refused(f"The destination {_shown(new)} lies inside {_shown(old)}")
        _require_folders(new, files)
        moved = {old: files[old]} if old in files else _below(old, files)
        items = [
            _item(new + path.removeprefix(old), _text_of(file), NO_ITEM)
            for path, file in moved.items()
        ]
        await self._put(items, gone=moved)
        return f"Successfully renamed {_shown(old)} to {_shown(new)}"

    async def _files(self) -> _Files:
        return {".".join(item.namespace): item for item in await self._items.under(())}

    async def _file(self, path: _Path) -> StoredItem:
        found = await self._items.get([_place(path)])
        if _place(path) in found:
            return found[_place(path)]
        if _exists(path, await self._files()):
            raise _Refused(f"The path {_shown(path)} is not a file.")
        raise _missing(path)

    async def _put(self, items: Sequence[NewItem], gone: _Files | None = None) -> None:
        versions = {_place(path): file.version for path, file in (gone or {}).items()}
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
        return self._memory._wait(self._tool.call(arguments))


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
    def __init__(self, given: Mapping[str, Any] | str | bytes) -> None:
        try:
            read = json.loads(given) if isinstance(given, str | bytes) else given
        except ValueError:
            read = None
        if not isinstance(read, Mapping):
            raise _Refused('The input must be a JSON object with "command" and "path".')
        self._given = read

    def command(self, known: Iterable[str]) -> str:
        given = self.text("command")
        if given not in known:
            raise _Refused(f"Unknown command {given!r}: use one of {', '.join(known)}.")
        return given

    def text(self, name: str) -> str:
        value = self._given.get(name)
        if not isinstance(value, str):
            raise _Refused(f"`{name}` must be a string.")
        return value

    def number(self, name: str) -> int:
        value = self._given.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _Refused(f"`{name}` must be a line number.")
        return value

    def lines(self) -> tuple[int, int] | None:
        given = self._given.get("view_range")
        if given is None:
            return None
        if (
            not isinstance(given, list | tuple)
            or len(given) != 2
            or not all(isinstance(one, int) and not isinstance(one, bool) for one in given)
        ):
            raise _Refused("`view_range` must be two line numbers, such as [1, 20] or [5, -1].")
        return given[0], given[1]

    def path(self, name: str) -> _Path:
        """Return the path of a file or folder. Refuse a path that is not under /memories."""
        given = self.text(name)
        parts = given.split("/")
        if parts[:2] != ["", ROOT[1:]]:
            raise _Refused(f"Path must start with {ROOT}, got: {given}")
        named = parts[2:-1] if parts[-1] == "" else parts[2:]
        # some programs interpret control characters, backslashes and percent signs
        plain = given.isprintable() and "\\" not in given and "%" not in given
        if any(part in ("", ".", "..") for part in named) or not plain:
            raise _Refused(f"Path {given} would escape {ROOT} directory")
        if len(given) > _MOST_PATH_CHARS:
            raise _Refused(f"The path must have at most {_MOST_PATH_CHARS} characters.")
        return "/".join(named)

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
            raise _Refused(f"The path {_shown(folder)} is a file, not a directory.")


def _missing(path: _Path) -> _Refused:
    return _Refused(f"The path {_shown(path)} does not exist. Please provide a valid path.")


def _numbered(lines: list[str], first: int) -> list[str]:
    return [f"{number:>6}\t{line}" for number, line in enumerate(lines, first)]


def _listing(folder: _Path, files: _Files) -> list[str]:
    start = f"{folder}/" if folder else ""
    sizes: dict[tuple[str, ...], int] = {}
    whole = 0
    for path, file in _below(folder, files).items():
        size = len(_text_of(file).encode())
        whole += size
        parts = tuple(path.removeprefix(start).split("/"))
        if not any(part.startswith(".") for part in parts):
            for end in range(1, min(len(parts), _LISTED_LEVELS) + 1):
                sizes[parts[:end]] = sizes.get(parts[:end], 0) + size
    rows = []
    for parts, size in sorted(sizes.items()):
        path = start + "/".join(parts)
        rows.append(f"{_size(size)}\t{_shown(path)}{'' if path in files else '/'}")
    return [f"{_size(whole)}\t{_shown(folder)}", *rows]


def _size(count: int) -> str:
    unit, size = 0, float(count)
    while size >= 1024 and unit < 3:
        unit, size = unit + 1, size / 1024
    return f"{int(size)}{'BKMG'[unit]}" if size == int(size) else f"{size:.1f}{'BKMG'[unit]}"
