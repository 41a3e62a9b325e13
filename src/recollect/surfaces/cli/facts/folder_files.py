"""The files of a Markdown folder of facts: read and replaced, whole or not at all.

Never touches a file that is not of the layout, nor one that somebody else wrote under its name.
"""

from __future__ import annotations

from pathlib import Path

from recollect.errors import RecollectError
from recollect.formats.memory_folder import (
    EXPORTED,
    FACTS,
    FOLDER,
    MAIN_FILES,
    PREFERENCES,
    RESEARCH,
    WRITTEN_MARK,
    belongs,
    day_of,
)
from recollect.session.files import private_folder, replace_file


def read_files(folder: Path) -> dict[str, str]:
    """The folder's files by their place in it; a folder that is the `memory` itself will do."""
    at = _holding(folder)
    paths = [at / path for path in (*MAIN_FILES, EXPORTED)]
    paths += sorted((at / FOLDER / "daily").glob("*.md"))
    texts: dict[str, str] = {}
    for path in paths:
        name = path.relative_to(at).as_posix()
        if not belongs(name) or not path.is_file():
            continue
        try:
            texts[name] = path.read_bytes().decode("utf-8")
        except OSError as error:
            raise RecollectError(f"{path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise RecollectError(f"{path} is no UTF-8 text; save it as UTF-8") from error
    return texts


def write_files(folder: Path, texts: dict[str, str], *, before: dict[str, str]) -> int:
    """Write the files that differ, and remove days that are over; returns how many changed."""
    at = _holding(folder)
    changed = 0
    try:
        for name, text in sorted(texts.items()):
            if before.get(name) != text:
                private_folder((at / name).parent)
                replace_file(at / name, text.encode("utf-8"))
                changed += 1
        for name in sorted(before.keys() - texts.keys()):
            if day_of(name) is not None and WRITTEN_MARK in before[name]:
                (at / name).unlink()
                changed += 1
    except OSError as error:
        raise RecollectError(f"{folder} cannot be written: {error.strerror}") from error
    return changed


def strangers(texts: dict[str, str]) -> list[str]:
    """Files under the layout's names that no export wrote."""
    return [name for name, text in texts.items() if name != EXPORTED and WRITTEN_MARK not in text]


def _holding(folder: Path) -> Path:
    """The folder that holds `memory/`."""
    names = [Path(path).name for path in (PREFERENCES, FACTS, RESEARCH)]
    itself = folder.name == FOLDER and any((folder / name).is_file() for name in names)
    return folder.parent if itself else folder
