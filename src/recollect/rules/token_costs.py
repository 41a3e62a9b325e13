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
      0,   6,   1,   1,   1,   1,   1,  64,  10,   1,  65,   1, 127,  40,  49,   1,
     86,   2,  10,  37,   2,   2,  12,   2,  27,   1, 127,   1,  43,  59,  30,  12,
      1,   3,  43,   2,   2,  28, 127,   2,   5,  17, 100,   1,   1,   1,  23,  36,
      1,  10,   2,   2,   2,   2,  78, 119,  68,   1, 127,  48,  83,  64, 108,  75,
      1,   2,  21,   2,   6,   7, 127,   2,  71,  18,  19,   2,  21,  14,   1,  43,
      1,   2,  41,   2,   8,  59, 127,  69,  25,  20,  45,   8,   1,  23, 102,  20,
     23, 127,  64, 127, 122,   2,  10,  42,   1, 113, 127,  19,  50,  57,  15, 127,
     26,  28,  83,  20,  16, 127,   9,  13, 114,  36,  48,  10, 127,   1,  45,   7,
     72,  95, 114, 127, 100, 127,   1,  91,  21, 115,  47,  52,  63,  95,  77, 110,
      7,  13,  45,  58,  33,  90,   1,  23,  21,   1,  19,  63,  37, 106,  29,  60,
     90,  23, 117,  42,  81, 114,   1, 114,  43, 101,   1,  84,  42,  64,  87,  94,
      1,   1,  64,  55,  55,  48,   1,  46,  22,  91,  57,   1,  26,   1,  81,  76,
    127,  62,  77,  98,  37, 127,  33,  73,  19,  40,   1,   6,   1, 127,   1,  70,
      1,   1,  63,  93,  81,  62,  27,  84,  41,  35,   1,  63,  81,   1,  55,  40,
      6,  56,  57, 106,  35,  66,   1,  22,   1,  36,   7,  84,  12,  34,  35,  57,
    127,  60,  53,   1,  47,  77,  52,  85,  27,  50,   1,   1,  54,  74,   1,  10,
))
SCRIPT_COSTS = bytes((
      0,   5,   1,   1,   1,  39,   1,  40,  70,   7,   8,   1,  26,  27,   1,   1,
      1,   2,   8,   9,   1,  58,   8,   1,   1,  12,   7,  22,   1,  11,  29,   1,
      1,   1,  23,   1,   1,   1,  62,   1,  12,  53,  15,   1,  97,   3,   1,   1,
      1,   1,  14,   1,   1,  44,  53,   1,  27,  27,   3,   6, 125,  30,   1,  80,
      1,   1,   1,   1,   2,   1,  26,   1,   1,  31,  22,   1,  32,   1,  19,  27,
     21, 127,  20,   1,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,  33,   1,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,  64,  43,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,   1,   1,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   3,  25,   1,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,  21,  21,   1,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   3,  21,  21,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,  11,  13,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,   1,  34,  15,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,   1,  15,  77,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,  21,  21,  21,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
))
EAST_ASIAN_COSTS = bytes((
      0,   1,   6,   1,   1,   1,   1,   1,   1,   1,  70,  13,  16,  45,  13,  63,
      1,   9,   1,   1,  20,  18,  34,   1,  13,   1,   1,   1,  18,  51,   8,  12,
      1,  13,  21,  18,   1,   1,   1,   1,  19,  24,  50,  55,  31,  46,  25,  57,
      1,   1,   1,  37,   1,   2,  17,   1,  76,   1,  30,   1,  77,   1,   1,   1,
      1,  36,  24,  32,  33,   1,  19,  12,   1,   7,   1,   1,   1,  50,   1,   1,
      1,   1,  12,   8,   1,   9,  28,   7,   1,   1,   1,  21,   1,   1,   1,   1,
      1,  28,   1,   1,  34,   1,  48,   1,   1,   1,  25,  11,   1,  21,  91,   1,
     11,  12,  30,   1,   1,   1,  17,   1,  27,  34,   1,   1,   1,   1,  28,   1,
     11,   1,   1,   1,   1,  18,   1,  57,  14,   4,  25,   1,   5,   1,   1,   1,
     21,  11,  29,  26,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,  21,  21,  21,  21,  26,  21,  21,   1,  21,  21,  21,  21,  21,  21,  21,
     21,  47,   1,   1,   1,  48,   1,   1,   9,  21,  21,  21,  21,  21,  21,  21,
     21,  18,   1,   1,   1,  24,  45,   1, 101,  21,  21,  21,  21,  21,  21,  21,
     21, 127,   1,   1,  17,   1,  64,  37,   1,  21,  21,  21,  21,  21,  21,  21,
     21, 127,  85,  46, 127,  51,   1,  68,   1,  21,  21,  21,  21,  21,  21,  21,
     21,  35, 127,   1,   1,   1,  43,   9, 116,  21,  21,  21,  21,  21,  21,  21,
))
# fmt: on
