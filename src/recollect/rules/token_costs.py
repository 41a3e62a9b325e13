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
      0,   1,   1,   1,   1,   1, 127,  51,   1,   1,  43,  43, 127,  27,  53,  20,
     50,   2,   2,  25,   2,   2, 127,   2,  41,   3, 112,   1,   1,  82,  37,   1,
      1,   2,  31,   2,   6,  40, 127,   2,   8,   7, 127,   7,   1,  29,  26,  32,
      1,   2,   2,   2,   2,   2, 127, 127,  79,  19, 127,  44,  33, 101, 127, 127,
      1,   2,   8,   2,   2,  21, 127,   2,  19,   1,  88,  35,  44,  36,   1,  39,
      1,   2,  34,   2,   7,  50, 127,  48,  33,  15,  54,   1,   1,  41,  98,   2,
     12, 127,  50, 124, 108,   2,  10,  21,   1, 127, 112,  61,  37,  32,  19, 127,
     39,  25, 127,  33,  41, 115,  34,  12,  94,  29,  58,  61, 127,   8,  23,  14,
     22, 108,  94, 107, 127, 117,   1, 109,  21, 103,  79,  39, 127, 105,  70, 123,
     17,  37,  50,  68,  38,  92,   1,  26,  49,   1,  71, 127,  41, 127,  57,  54,
     72,  42,  78,  37,  79, 127,   1,  75,  46,  76,   1,  65,  21,  76, 127,  80,
     20,  15,  48,  18,  39,  36,   1,   4,  65,   1,  98,   1,  21,  59,  48,   1,
    127,  70,  90,  36,  53, 108,  84,  62,   1,  50,   1,  71,   5, 127,  14, 118,
    106,   1,  53,  69,  49,  50, 127,  83,  19,  27,   6,  79,  70,   1,  14,  46,
      1,  72,  56, 118,  38, 127,   1,  25,   1,  46,   1, 127,  10,  29,  28,  56,
     99,  81,  65,   1,  57,  51, 127,  74,   8,  38,  20,  37,   1,  60,   1,  11,
))
SCRIPT_COSTS = bytes((
      0,   6,   1,   1,   1,  48,  32,  75,  42,   1,   1,   1,  58,   7,   2,  39,
      1,   1,   1,   2,   1,  43,   3,   1,   1,  23,   1,  24,   1,  23,  20,  45,
      1,   8,  23,   1,   1,   1,  90,  20,  18,  24,  17,   1,  52,   1,   1,  97,
      1,   1,   5,   1,   1,   5,  69,  60,  30,  20,  35,  42, 122,  61,   1,  78,
     15,   1,   1,   1,   1,   1,  16,   1,  16,  40,  31,   1,  59,   5,  22,   1,
     21, 117,   3,   1,   5,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,  11,   1,   1,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,  32,   1,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,   2,   1,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,  44,   1,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,  21,  21,   1,   6,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,  21,  21,   1,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,   6,  19,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   2,   1,  27,  68,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,   1,   1,  30,  77,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,  21,  21,  21,  10,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
))
EAST_ASIAN_COSTS = bytes((
      0,   1,   1,   1,   2,   1,   1,   1,   1,   1,  51,  18,  17,  51,  21,  58,
      1,   1,   2,   5,  12,  12,  47,   1,   1,  13,   1,   1,   4,  21,   1,  50,
      1,  19,   1,   1,   1,   1,   1,   1,  26,  53,  49,  32,   1,  38,   8,  58,
      1,   1,   1,  58,   1,  48,   1,  11,  99,  18,  83,  17,  33,  40,   1,  28,
      1,  37,   4,   9,   1,   1,   8,   7,   1,  41,   1,  12,   1,  72,   1,  47,
      1,   1,   1,   9,  17,  12,   1,   1,   1,  36,   1,  21,  11,  44,  10,  38,
      1,   1,   1,   1,  15,   1,  31,   1,   1,   1,  70,   1,   1,  23,  73,  38,
      1,   1,   1,   1,   1,   1,   1,   1,   1,  18,   1,   1,   1,   1,  24,   1,
      2,   1,   6,   1,   1,   1,   1,   1,   7,   1,  16,   1,   1,   1,   1,  55,
     21,   1,  22,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,  21,
     21,  21,  21,  21,  21,  21,  21,  21,   1,  21,  21,  21,  21,  21,  21,  21,
     21,  62,   1,   1,  22,  37,   1,  37,  34,  21,  21,  21,  21,  21,  21,  21,
     21,  11,  16,   1,   1,  30,  51,  36, 109,  21,  21,  21,  21,  21,  21,  21,
     21, 127,  12,   1,  15,  15,  33,  47,   1,  21,  21,  21,  21,  21,  21,  21,
     21,  80,  92,  54, 111,  57,   1,  61,   1,  21,  21,  21,  21,  21,  21,  21,
     21,  24, 127,   1,   1,   1, 127, 125,  93,  21,  21,  21,  21,  21,  21,  21,
))
# fmt: on
