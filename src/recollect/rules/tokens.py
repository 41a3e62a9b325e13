"""How many tokens a text costs, without a tokenizer.

Owns the one estimate every budget rests on. A text is seen as a row of byte classes (kinds of
letters, digits, spaces, marks, the lead bytes of each script), and every pair of neighbours has
a cost, fitted against o200k (`token_costs.py`); the estimate is the sum of these costs, aimed a
tenth above o200k. A calibration (`values/calibration.py`) then follows what the provider reports.

Always: the empty text costs 0, any other at least 1; more text never costs less; the same text
costs the same. It must never raise on any string, lone surrogates included, and never work per
character in Python: it runs over every new message of a request.
"""

from __future__ import annotations

from zlib import adler32

from recollect.rules.token_costs import (
    EAST_ASIAN_CLASSES,
    EAST_ASIAN_COSTS,
    LETTER_CLASSES,
    LETTER_COSTS,
    SCRIPT_CLASSES,
    SCRIPT_COSTS,
    UNITS_PER_TOKEN,
)

# The sum of the costs is taken from Adler-32's low half, which counts modulo 65521: so many
# bytes of the highest cost, 127, still fit.
_CHUNK_BYTES = 512
_SUM_MASK = 0xFFFF


def count_text(text: str) -> int:
    """Estimated tokens of a text: 0 for the empty one, at least 1 for any other."""
    if not text:
        return 0
    if text.isascii():
        units = _pair_units(text.encode(), LETTER_CLASSES, LETTER_COSTS)
    else:
        data = text.encode("utf-8", "surrogatepass")
        units = _pair_units(data, LETTER_CLASSES, LETTER_COSTS)
        units += _pair_units(data, SCRIPT_CLASSES, SCRIPT_COSTS)
        units += _pair_units(data, EAST_ASIAN_CLASSES, EAST_ASIAN_COSTS)
    return -(-units // UNITS_PER_TOKEN) or 1


def count_text_openclaw(text: str) -> int:
    """OpenClaw's estimate, a third of the characters, for `preset = "openclaw"`."""
    return -(-len(text) // 3)


def _pair_units(data: bytes, classes: bytes, costs: bytes) -> int:
    """The summed cost of every byte after its neighbour; the first one follows class 0."""
    if len(data) <= _CHUNK_BYTES:
        return _row_units(data.translate(classes), costs)
    total, before = 0, 0
    for start in range(0, len(data), _CHUNK_BYTES):
        row = data[start : start + _CHUNK_BYTES].translate(classes)
        first = row[0]
        total += _row_units(row, costs) + costs[before << 4 | first] - costs[first]
        before = row[-1]
    return total


def _row_units(row: bytes, costs: bytes) -> int:
    """The cost of one chunk's classes, all below 16.

    Read as one large integer and laid over themselves half a byte further on, they make a byte
    of every pair: four passes in C, none in Python.
    """
    each = int.from_bytes(row, "big")
    if not each:  # nothing here that this table looks at
        return 0
    pairs = (each | each >> 4).to_bytes(len(row), "big")
    return adler32(pairs.translate(costs), 0) & _SUM_MASK
