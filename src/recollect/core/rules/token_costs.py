"""The fitted costs behind `tokens.py`: the cost of a byte after the byte before it.

Three tables of byte classes, each with costs of pairs (`class before * 16 + class`, at most 127).
Never edit the costs: `python -m recollect_bench.tokens fit --write` derives them.
"""

from __future__ import annotations

UNITS_PER_TOKEN = 64

# Letters by how they combine: hex letters apart, so that digests are told from words; `A` apart,
# which is what zero bytes become in base64; marks by the company they keep.
_LETTER_GROUPS = (
    "ae",
    "bcdf",
    "iou",
    "tnsrlhm",
    "gpwyvkjqxz",
    "A",
    "BCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789",
    " \t",
    "\n\r",
    "_",
    "-=#*~",
    ".,",
    "'\"",
    "()[]{}<>:;!?@$%^&+/\\|`",
)
_SCRIPT_STARTS = (
    (0x80, 1), (0x90, 2), (0xA0, 3), (0xB0, 4),  # continuation bytes, by their quarter
    (0xC0, 5),  # accented Latin
    (0xCC, 6),  # combining marks, Greek
    (0xD0, 7),  # Cyrillic
    (0xD4, 8),  # Armenian, Hebrew
    (0xD8, 9),  # Arabic, Syriac, N'Ko
    (0xE0, 10),  # Indic scripts, Thai, Lao, Tibetan
    (0xE1, 11),  # Georgian, Ethiopic, Khmer, Vietnamese letters
    (0xE2, 12),  # typographic marks, symbols, box drawing
    (0xE3, 0),  # East Asian, below
    (0xEA, 13), (0xEC, 14),  # Hangul, two halves
    (0xEE, 15),  # private use, full-width forms
    (0xF0, 12),  # emoji and the rarest scripts
)  # fmt: skip
# Simplified and traditional characters share the planes but not the radicals, which Unicode keeps
# together: an eighth of each lead byte's range tells them apart well enough.
_EAST_ASIAN_STARTS = (
    (0x80, 1), (0x88, 2), (0x90, 3), (0x98, 4), (0xA0, 5), (0xA8, 6), (0xB0, 7), (0xB8, 8),
    (0xC0, 0),
    (0xE3, 9),  # kana, CJK marks
    (0xE4, 10), (0xE5, 11), (0xE6, 12), (0xE7, 13), (0xE8, 14), (0xE9, 15),  # Han
    (0xEA, 0),
)  # fmt: skip


def _letter_classes() -> bytes:
    # Control characters count as marks: class 0 would make them free.
    classes = bytearray([len(_LETTER_GROUPS)]) * 128 + bytearray(128)
    for number, group in enumerate(_LETTER_GROUPS, start=1):
        for character in group:
            classes[ord(character)] = number
    return bytes(classes)


def _byte_classes(starts: tuple[tuple[int, int], ...]) -> bytes:
    classes = bytearray(256)
    for first_byte, number in starts:
        classes[first_byte:] = bytes([number]) * (256 - first_byte)
    return bytes(classes)


LETTER_CLASSES = _letter_classes()
SCRIPT_CLASSES = _byte_classes(_SCRIPT_STARTS)
EAST_ASIAN_CLASSES = _byte_classes(_EAST_ASIAN_STARTS)

# Pages of 256 characters: what one costs beyond its bytes' pairs, in units of PAGE_UNITS. Nothing
# where the corpus has the script. A fitted cost is 1.1 times o200k's tokens a letter less our
# pairs, on random words of FITTED_SCRIPTS (`bench/token_generated.py`); every other page is taken
# to be as unknown to a vocabulary as the median of those.
PAGE_UNITS = 2
_KNOWN = (
    *range(0x07), *range(0x09, 0x0F), 0x10, 0x17, 0x1E, *range(0x20, 0x2C),
    *range(0x30, 0x34), *range(0x4E, 0xA0), *range(0xAC, 0xE0), 0xFE, 0xFF,
)  # fmt: skip
_FITTED_PAGES = {
    0x07: 55, 0x0F: 38, 0x12: 63, 0x13: 63, 0x15: 73, 0x18: 86, 0x1A: 88, 0x1C: 102,
    0x2D: 54, 0xA1: 88, 0xA9: 76, 0xE0: 63,
}  # fmt: skip
_OTHER_PAGE = 68
KNOWN_PAGES = bytes(_KNOWN)
PAGE_COSTS = bytes(
    0 if page in _KNOWN else _FITTED_PAGES.get(page, _OTHER_PAGE) for page in range(256)
)
# Scripts that share a page with a known one, or lie beyond the pages: what begins their characters.
RARE_PREFIXES = (
    (0xE0, (b"\xe0\xba", b"\xe0\xbb"), 100),  # Lao
    (0xF0, tuple(bytes((0xF0, at)) for at in range(0x90, 0x99)), 140),  # historic scripts
    (0xF0, (b"\xf0\x9e",), 155),  # Adlam, Mende
)

# python -m recollect_bench.tokens fit --write, 2026-11-15 (docs/contributing/tokens.md)
# fmt: off
LETTER_COSTS = bytes((
      0,   1,   1,   1,   1,   1, 127,  62,   1,   1,  44,  34, 127,  34,  46,  16,
     41,   2,   2,  24,   2,   2, 106,   2,  45,   3, 114,   1,   1,  84,  41,   1,
      1,   2,  30,   2,   5,  38, 127,   2,  13,  14, 103,   1,   4,  35,  29,  38,
      1,   2,   2,   2,   2,   2, 127, 127,  77,  37, 127,  49,  35, 113, 127, 127,
      1,   4,   9,   2,   3,  19, 127,   2,  10,   1,  99,  31,  48,  40,   1,  47,
      1,   2,  41,   2,   6,  52, 127,  56,  35,  19,  45,   1,   1,  66,  87,  10,
      1, 127,  31, 127,  93,   2,  10,  27,   1, 120, 104,  54,  40,  31,  19, 127,
     20,  19, 119,  31,  41, 110,  26,  12,  89,  28,  66,  64, 127,  20,  28,  24,
     26, 107,  88, 127, 120, 127,   1, 112,  21,  98,  95,  55, 127, 108,  73, 116,
     19,  39,  48,  62,  33,  84,   1,  27,  53,   1,  71, 127,  43, 127,  64,  61,
     72,   1,  85,  38,  75, 127,   1,  73,  48,  73,   1,  49,  20,  70,  85,  81,
     29,  19,  42,  25,  44,  36,   1,   1,  53,   4, 102,   1,  22,  32,  34,   1,
    127,  42,  88,  57,  44, 106,  72,  66,   1,  49,   1,  29,   5, 127,  16, 111,
     97,   1,  46,  30,  50,  42, 127,  74,  15,  19,   3,  75,  73,   1,  13,  36,
      1,  66,  56, 110,  41, 127,   1,  20,   1,  48,   1, 127,   5,  27,  26,  58,
     97,  63,  66,   1,  49,  54, 127,  66,   6,  37,  21,  40,   1,  61,   1,  11,
))
SCRIPT_COSTS = bytes((
      0,   4,   1,   1,   1,  47,  38,  75,  43,   1,   1,   1,  10,   6,  10,   1,
      1,   1,   1,   3,   1,  35,   1,   1,   1,  29,   1,  25,   1,  18,  17,  32,
      1,   1,  20,   1,   1,   1,  94,  28,  18,  25,  17,   1, 127,   1,   1,  72,
      1,   1,   1,   1,   1,   5,  57,  62,  29,  16,  28,  39, 107,  37,   1,  54,
     12,   1,   1,   1,   1,   1,  14,   1,  16,  31,  30,   1, 127,   1,  18,   1,
     21, 127,   5,   1,   8,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,  13,   1,   2,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,  25,   1,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,   2,   1,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,  59,   1,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,  21,  21,   1,   7,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,  21,  21,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,  57,  20, 127,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   3,   1,  25,  68,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,   1,  31,  96,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,  21,  21,  21,  13,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
))
EAST_ASIAN_COSTS = bytes((
      0,   1,   1,   1,   2,   1,   1,   1,   1,   1,  32,  18,  22,  62,  28,  44,
      1,   4,   1,   4,   9,  19,  47,   1,   1,  14,   1,   1,   1,  14,   1,  42,
      1,  18,   2,   1,   1,   1,   1,   1,  38,  56,  58,  18,  21,  43,  20,  73,
      1,   1,  24,  65,   1,  49,   1,   7, 109,  27,  71,  15,  45,  42,   1,   1,
      1,  47,   5,  10,   1,   1,  13,   8,   1,  34,   1,  24,   6,  55,   1,  33,
      1,   1,   1,   6,  19,  18,   7,   7,   1,  29,   1,  40,   1,  46,   1,  21,
      1,   7,   1,   1,  31,   1,  36,   1,   1,   1,  65,   1,   2,  31,  74,  41,
      1,   1,   1,   1,   1,   1,   1,   1,   1,  12,   1,   1,   1,   1,  29,   1,
      2,   1,   9,   1,   1,   1,   1,   1,  21,   1,  39,   1,   1,   1,   1,  47,
     21,   2,  23,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,  21,  21,  21,  21,  21,  21,  21,   1,  21,  21,  21,  21,  21,  21,  21,
     21,  49,   1,   1,  20,  51,   1,  39,  19,  21,  21,  21,  21,  21,  21,  21,
     21,  21,  18,   1,   1,  27,  40,  30, 122,  21,  21,  21,  21,  21,  21,  21,
     21, 127,  11,   1,   8,  29,  42,  51,   1,  21,  21,  21,  21,  21,  21,  21,
     21,  61,  91,  44, 127,  62,   1,  64,   1,  21,  21,  21,  21,  21,  21,  21,
     21,  19, 127,   1,   1,   1, 127, 127,  89,  21,  21,  21,  21,  21,  21,  21,
))
# fmt: on
