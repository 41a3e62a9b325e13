"""A batch as bytes, for the spool: what could not be written yet, exactly as it would have been.

MessagePack with a version in front. Pure; a record of another version is refused by name, so a
spool left by a newer program is kept and not guessed at. A batch is written as the oldest version
that knows all it holds: a program that does not know the rest may drain it. The second brought
compactions; the third facts with their history and evidence, vectors of facts, how far sessions
were read, and what came from outside.
"""

from __future__ import annotations

from typing import Final

import msgspec

from recollect.errors import FormatError
from recollect.values.batch import Batch
from recollect.values.fact import Fact

_FIRST: Final = b"B1"
_WITH_COMPACTIONS: Final = b"B2"
_WITH_HISTORY: Final = b"B3"
_VERSIONS: Final = (_FIRST, _WITH_COMPACTIONS, _WITH_HISTORY)
_VERSION_BYTES: Final = 2
_LATER_TYPES: Final = ("preference", "digest")
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Batch)


def write_batch(batch: Batch) -> bytes:
    """The batch as bytes that `read_batch` takes back."""
    return _version(batch) + _ENCODER.encode(batch)


def read_batch(record: bytes) -> Batch:
    """The batch that `write_batch` wrote; FormatError for anything else."""
    if record[:_VERSION_BYTES] not in _VERSIONS:
        raise FormatError("not a batch of this version: it may be a newer one's")
    try:
        return _DECODER.decode(record[_VERSION_BYTES:])
    except msgspec.MsgspecError as error:
        raise FormatError(f"not a batch: {type(error).__name__}") from error


def _version(batch: Batch) -> bytes:
    newer = batch.fact_vectors or batch.extracted or batch.facts_revision is not None
    outside = any(new.segment.trust == "outside" for new in batch.segments)
    if newer or outside or not all(map(_as_before, batch.facts)):
        return _WITH_HISTORY
    return _WITH_COMPACTIONS if batch.compactions else _FIRST


def _as_before(fact: Fact) -> bool:
    """Whether the versions before the third know all of a fact."""
    known = Fact(
        id=fact.id,
        type=fact.type,
        content=fact.content,
        context=fact.context,
        at=fact.at,
        superseded_by=fact.superseded_by,
        sources=fact.sources,
        trust=fact.trust,
        words=fact.words,
        foreign=fact.foreign,
    )
    return fact == known and fact.type not in _LATER_TYPES and fact.trust != "outside"
