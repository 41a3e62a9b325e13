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

import re
from zlib import adler32

from recollect.rules.token_costs import (
    EAST_ASIAN_CLASSES,
    EAST_ASIAN_COSTS,
    KNOWN_PAGES,
    LETTER_CLASSES,
    LETTER_COSTS,
    PAGE_COSTS,
    PAGE_UNITS,
    RARE_PREFIXES,
    SCRIPT_CLASSES,
    SCRIPT_COSTS,
    UNITS_PER_TOKEN,
)

# The sum of the costs is taken from Adler-32's low half, which counts modulo 65521: so many
# bytes of the highest cost, 127, still fit.
_CHUNK_BYTES = 512
_SUM_MASK = 0xFFFF

# What a table of pairs cannot see: long runs without a seam, which a vocabulary has no words for.
# Capitals without an end (sequences of proteins and genes) cost by the letter from so many on,
# empty fields of a table by the pair of commas. Measured against o200k like the tables, on the
# shapes of `bench/token_generated.py`. Every eighth pair tells whether a row is read for runs.
# Rows of `A` are zero bytes in base64, and cheap.
_CAPITALS = re.compile(rb"(?:\x06{0,2}\x07){17,}")
_LOOKED_AT = 8
_CAPITAL_PAIR, _FEW_CAPITALS = 0x77, 4
_CAPITALS_FREE, _CAPITAL_UNITS = 16, 24
_COMMA_PAIR, _EMPTY_UNITS = 0xDD, 29


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
        units += _rare_units(text, data)
    return -(-units // UNITS_PER_TOKEN) or 1


def count_text_openclaw(text: str) -> int:
    """OpenClaw's estimate, a third of the characters, for `preset = "openclaw"`."""
    return -(-len(text) // 3)


def _pair_units(data: bytes, classes: bytes, costs: bytes) -> int:
    """The summed cost of every byte after its neighbour; the first one follows class 0."""
    if len(data) <= _CHUNK_BYTES:
        return _row_units(data, data.translate(classes), costs)
    total, before = 0, 0
    for start in range(0, len(data), _CHUNK_BYTES):
        chunk = data[start : start + _CHUNK_BYTES]
        row = chunk.translate(classes)
        first = row[0]
        total += _row_units(chunk, row, costs) + costs[before << 4 | first] - costs[first]
        before = row[-1]
    return total


def _rare_units(text: str, data: bytes) -> int:
    """What characters cost, beyond their bytes' pairs, in scripts that the tables were not fitted
    on: a vocabulary that has no words of a script spells it out by the byte."""
    pages = text.encode("utf-16-be", "surrogatepass")[::2].translate(None, KNOWN_PAGES)
    units = 0
    for start in range(0, len(pages), _CHUNK_BYTES):
        row = pages[start : start + _CHUNK_BYTES].translate(PAGE_COSTS)
        units += PAGE_UNITS * (adler32(row, 0) & _SUM_MASK)
    for lead, prefixes, cost in RARE_PREFIXES:
        if lead in data:
            units += cost * sum([data.count(prefix) for prefix in prefixes])
    return units


def _row_units(chunk: bytes, row: bytes, costs: bytes) -> int:
    """The cost of one chunk's classes, all below 16.

    Read as one large integer and laid over themselves half a byte further on, they make a byte
    of every pair: four passes in C, none in Python.
    """
    each = int.from_bytes(row, "big")
    if not each:  # nothing here that this table looks at
        return 0
    pairs = (each | each >> 4).to_bytes(len(row), "big")
    units = adler32(pairs.translate(costs), 0) & _SUM_MASK
    return units + _run_units(chunk, row, pairs) if costs is LETTER_COSTS else units


def _run_units(chunk: bytes, row: bytes, pairs: bytes) -> int:
    """What long runs cost beyond their pairs; most rows have none, and are not read for them."""
    units = 0
    some = pairs[::_LOOKED_AT]
    if some.count(_CAPITAL_PAIR) > _FEW_CAPITALS:
        long = sum([len(run) - _CAPITALS_FREE for run in _CAPITALS.findall(row)])
        units += long * _CAPITAL_UNITS
    if _COMMA_PAIR in some:
        units += chunk.count(b",,") * _EMPTY_UNITS
    return units
