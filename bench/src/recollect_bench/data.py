"""Where the evaluation data and models lie: folders of the reader's own, never in the package."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any, Final

from recollect.errors import RecollectError

_MINILM_FOLDERS: Final = ("all-MiniLM-L6-v2-int8", "all-MiniLM-L6-v2")


class DataNotFoundError(RecollectError):
    """A bench's data is not where it was looked for; the text says what to set."""


def data_folder() -> Path:
    """`RECOLLECT_DATA`, else `../shared/data` as seen from the working directory."""
    return Path(os.environ.get("RECOLLECT_DATA", "../shared/data")).absolute()


def read_data(path: str) -> Any:
    """The JSON of a packed file below the data folder; an error names where it was looked for."""
    file = data_folder() / path
    if not file.is_file():
        raise DataNotFoundError(
            f"no {path} in {data_folder()}: set RECOLLECT_DATA to the folder that "
            "holds memory_qa/ and no_licence_file/ (docs/contributing/bench-recall.md says "
            "where they come from); without them `recollect bench recall --set own --paths FILE` "
            "measures recall on your own transcripts"
        )
    with gzip.open(file, "rt", encoding="utf-8") as opened:
        return json.load(opened)


def minilm_folder() -> Path:
    """Where MiniLM lies: `RECOLLECT_MODELS`, else `../shared/models`."""
    models = Path(os.environ.get("RECOLLECT_MODELS", "../shared/models")).absolute()
    for folder in _MINILM_FOLDERS:
        if (models / folder).is_dir():
            return models / folder
    raise RecollectError(
        f"no {_MINILM_FOLDERS[0]} in {models}: set RECOLLECT_MODELS to the folder that holds it, "
        "or choose --embedder static, which needs no model"
    )
