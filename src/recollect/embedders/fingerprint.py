"""Fingerprints of model files: quick enough to be part of a name, before anything is loaded.

Weights are hundreds of megabytes, so only stretches of a file are read: its head, its end and
some between, and its size. Weights that were trained or quantised anew differ everywhere; an edit
of a few bytes between two stretches goes unseen. The time of change is left out on purpose: a
copy of a model is the same model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from recollect.errors import EmbedderError

_STRETCHES: Final = 16
_STRETCH_BYTES: Final = 16_384
_DIGEST_BYTES: Final = 6
"""Twelve hexadecimal digits: told apart are the few models one person ever has."""


def fingerprint(files: Iterable[Path], *, said: str) -> str:
    """A short hash of these files, in order, and of `said`: what else changes the vectors.

    EmbedderError where one of them cannot be read.
    """
    digest = hashlib.blake2b(said.encode(), digest_size=_DIGEST_BYTES)
    for path in files:
        try:
            _read_into(digest, path)
        except OSError as error:
            raise EmbedderError(f"{path} cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def _read_into(digest: hashlib.blake2b, path: Path) -> None:
    size = path.stat().st_size
    digest.update(size.to_bytes(8, "little"))
    last = max(0, size - _STRETCH_BYTES)
    with path.open("rb", buffering=0) as file:
        for number in range(_STRETCHES):
            file.seek(last * number // (_STRETCHES - 1))
            digest.update(file.read(_STRETCH_BYTES))
