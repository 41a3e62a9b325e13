"""A batch as bytes, for the spool: what could not be written yet, exactly as it would have been.

MessagePack with a version in front. Pure; a record of another version is refused by name, so a
spool left by a newer program is kept and not guessed at.
"""

from __future__ import annotations

from typing import Final

import msgspec

from recollect.errors import FormatError
from recollect.values.batch import Batch

_VERSION: Final = b"B1"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Batch)


def write_batch(batch: Batch) -> bytes:
    """The batch as bytes that `read_batch` takes back."""
    return _VERSION + _ENCODER.encode(batch)


def read_batch(record: bytes) -> Batch:
    """The batch that `write_batch` wrote; FormatError for anything else."""
    if record[: len(_VERSION)] != _VERSION:
        raise FormatError("not a batch of this version: it may be a newer one's")
    try:
        return _DECODER.decode(record[len(_VERSION) :])
    except msgspec.MsgspecError as error:
        raise FormatError(f"not a batch: {type(error).__name__}") from error
