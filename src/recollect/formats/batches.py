"""A batch as bytes, for the spool: what could not be written yet, exactly as it would have been.

MessagePack with a version in front. Pure; a record of another version is refused by name, so a
spool left by a newer program is kept and not guessed at. A batch without compactions is still
written as the first version: a program that does not know them may drain it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from recollect.errors import FormatError
from recollect.values.batch import Batch

_FIRST: Final = b"B1"
_WITH_COMPACTIONS: Final = b"B2"
_VERSION_BYTES: Final = 2
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Batch)


def write_batch(batch: Batch) -> bytes:
    """The batch as bytes that `read_batch` takes back."""
    version = _WITH_COMPACTIONS if batch.compactions else _FIRST
    return version + _ENCODER.encode(batch)


def read_batch(record: bytes) -> Batch:
    """The batch that `write_batch` wrote; FormatError for anything else."""
    if record[:_VERSION_BYTES] not in (_FIRST, _WITH_COMPACTIONS):
        raise FormatError("not a batch of this version: it may be a newer one's")
    try:
        return _DECODER.decode(record[_VERSION_BYTES:])
    except msgspec.MsgspecError as error:
        raise FormatError(f"not a batch: {type(error).__name__}") from error
