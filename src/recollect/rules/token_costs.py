"""The fitted costs behind `tokens.py`: what a byte costs after the byte before it.

Owns three tables of classes, of ASCII, of most scripts' bytes in UTF-8, and of kana and Han, and
for each a table of costs, for pairs `class before * 16 + class`. Class 0 is what a table does not
look at, and what stands before the first byte. The costs are never edited by hand:
`python -m recollect.bench.tokens fit --write` derives them and rewrites the rows below. A cost is
at most 127, which the sum in `tokens.py` relies on.
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

# python -m recollect.bench.tokens fit --write
# fmt: off
LETTER_COSTS = bytes((
      0,  24,   1,   1,   1,   1,   1,  72,  33,   1,  75,   1, 127,  34,  54,   1,
     66,   2,   2,  26,   2,   2,  58,   2,  45,   1, 127,   1,  31,  63,  86,   1,
      1,   5,  47,   2,   2,  42, 127,   2,   1,  10,  68,   1,   1,  35,  25,  31,
      1,   6,   2,   2,   2,   2,  60, 127, 107,   1, 127,  45,  80,  69, 106,  58,
      1,   4,  10,   2,   2,  10, 127,   2,  69,  13,  50,  14,  40,  20,   1,  39,
      1,   2,  39,   2,   4,  58, 127,  43,  32,  18,   3,   1,   5,  27, 111,   1,
     12, 127, 117,  83,  69,   2,  10,  22,   1, 123, 127,  17,  50,   7,  22, 127,
     14,  29,  91,  19,  43, 119,  35,  14, 110,  23,  27,  33,  99,   1,  22,   1,
     65,  88, 112, 127,  75, 127,   1,  93,  21,  95,  63,  47,  57,  74,  48,  93,
     12,  20,  47,  43,  46,  89,   1,  34,  48,   2,  16,  57,  44,  98,  28,  59,
     75,  68, 127,  36,  52, 127,   1, 110,  44,  89,   8,  71,  35,  68,  24,  82,
      1,  14,  58,  66,  54,  44,   1,  26,  38,  91,  29,   1,  35,   1,  14,  72,
    127,  83,  70, 127,  56, 127,  48,  63,  52,  35,  51,  19,   2, 127,   1,  77,
      1,   1,  56,  67,  82,  47,   5,  90,  59,  33,   1,  38,  76,   1,  47,  32,
      2,  61,  42,  79,  38,  99,   1,  38,   7,  62,   1,  72,  23,  40,  25,  52,
    127,  68,  57,   1,  52,  75, 124,  94,  36,  52,   5,  45,  55,  70,   1,  11,
))
SCRIPT_COSTS = bytes((
      0,   5,   1,   1,   1,  30,   1,  34,  66,   1,   4,   1,  35,  23,   1,   1,
      1,   1,   9,  10,   3,  77,   4,   1,   1,  14,   9,  22,   1,  20,  15,  24,
      1,   1,  22,   1,   1,   1,  71,   1,  14,  46,  17,   1,  94,   1,   1,   1,
      1,   1,  10,   1,   1,  64,  48,   3,  28,  25,   2,  10,  98,  29,   1,  72,
      3,   1,   1,   1,   4,   1,  28,   1,   1,  39,  20,   1,  36,   1,  14,  37,
     21, 127,  11,   1,  10,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,  33,   1,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,  67,  39,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,   1,   1,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   2,  25,   1,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,  21,  21,   1,   2,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   2,  21,  21,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,   8,  14,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,   1,  30,  16,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,   1,  10,  86,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,  21,  21,  21,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
))
EAST_ASIAN_COSTS = bytes((
      0,   1,   6,   1,   1,   1,   1,   1,   1,   3,  89,   4,   1,  64,   1,  62,
      1,   5,   1,   1,  19,  11,  29,   1,   3,   1,   1,   1,  11,  58,   1,  27,
      1,  22,  30,   6,   1,   1,   1,   1,  31,  21,  44,  48,  22,  37,   6,  57,
      1,   1,  21,  26,   1,   1,   1,   2,  93,  10,  69,   1,  93,   1,   1,   1,
      1,  42,  34,  37,  29,   1,  29,  27,   1,   1,   1,   5,   1,  28,   1,   1,
      1,   1,  10,   9,   1,   7,  34,   9,   1,   1,   1,  25,   1,   9,   3,   1,
      1,  22,   1,   1,  40,   1,  58,   1,   1,   1,  13,   1,   1,   4, 103,   4,
     10,   6,  27,   1,   1,   1,  21,   1,  24,  32,   1,   1,   1,   1,  47,   1,
     13,   1,   1,   1,   1,  19,   1,  52,  16,   1,  27,   1,   1,   1,   9,  11,
     21,  13,  30,  26,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,  21,  21,  21,  21,  26,  21,  21,   1,  21,  21,  21,  21,  21,  21,  21,
     21,  47,   1,  14,   1,  45,   1,   1,  17,  21,  21,  21,  21,  21,  21,  21,
     21,  18,   1,   5,   1,  23,  37,   1,  73,  21,  21,  21,  21,  21,  21,  21,
     21, 127,   1,   1,  11,   8,  58,  44,   1,  21,  21,  21,  21,  21,  21,  21,
     21, 102,  35,  27, 127,  58,   1,  66,   1,  21,  21,  21,  21,  21,  21,  21,
     21,  35, 127,   7,   1,   3,  98,   6,  92,  21,  21,  21,  21,  21,  21,  21,
))
# fmt: on
