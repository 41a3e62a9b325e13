"""Says what is wrong with the vectors that an embedder gave.

Owns what a vector is: so many 32-bit numbers, little-endian, every one of them finite. Must never
mend one: a vector that was guessed would be searched for ever. What always holds: what it finds
nothing wrong with can be stored and compared; what it says quotes no text.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Final

_FLOAT_BYTES: Final = 4


def what_is_wrong(vectors: Sequence[bytes], *, wanted: int, dimensions: int) -> str:
    """What is wrong with the vectors for so many texts; empty where nothing is."""
    if len(vectors) != wanted:
        if wanted == 1:
            return f"{len(vectors)} vectors for one text"
        return f"another number of vectors than it got texts, {len(vectors)} for {wanted}"
    numbers = struct.Struct(f"<{dimensions}f")
    for values in vectors:
        if len(values) % _FLOAT_BYTES:
            return f"{len(values)} bytes instead of {numbers.size}"
        if len(values) != numbers.size:
            return f"{len(values) // _FLOAT_BYTES} dimensions instead of {dimensions}"
        # 32-bit numbers cannot add up to more than 64 bits hold, and what is none stays none
        if not math.isfinite(sum(numbers.unpack(values))):
            return "a vector with numbers that are none"
    return ""
