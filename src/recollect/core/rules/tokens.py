"""Token estimates of texts, images and messages without a tokenizer, before calibration. An
estimate is the sum of fitted costs of byte pairs, about a tenth above the tokenizer o200k. Images
are estimated by the providers' formulas. A longer text never gets a lower estimate."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable, Iterable
from math import ceil
from pathlib import Path
from zlib import adler32

from recollect.core.values.message import Image, Other, Part, Text, Thinking, ToolCall, ToolResult
from recollect.core.values.model import Answer, ModelUse, Prompt
from recollect.system.config.settings import Counter

UNKNOWN_IMAGE_TOKENS = 1600
"""Cost of an image of unknown size: Anthropic's maximum, which is above OpenAI's."""

# Anthropic's vision guide: width * height / 750 after scaling the long edge to 1568, about 1600 at
# most. OpenAI's vision guide, high detail: 85 + 170 per tile of 512, after fitting into a square of
# 2048 and scaling the short side to 768.
_ANTHROPIC_LONG_EDGE_PX = 1568
_ANTHROPIC_PX_PER_TOKEN = 750
_OPENAI_SQUARE_PX = 2048
_OPENAI_SHORT_SIDE_PX = 768
_OPENAI_TILE_PX = 512
_OPENAI_BASE_TOKENS = 85
_OPENAI_TILE_TOKENS = 170

_HEADER_CHARS = 64  # 48 bytes, enough for the size in PNG, GIF and WebP
# An EXIF block with a thumbnail fits one JPEG segment, which is at most 64 KB long.
_JPEG_CHARS = 96 * 1024
_JPEG_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE_MARKERS = frozenset(range(0xD0, 0xD9)) | {0x01}


def count_image(*, media_type: str | None, data: str | None) -> int:
    """Return the highest cost of an image among the providers. The size of an image is known if
    `data` is base64 or a data URL."""
    if data is None or (media_type is not None and not media_type.startswith("image/")):
        return UNKNOWN_IMAGE_TOKENS
    size = _image_size_px(data)
    if size is None:
        return UNKNOWN_IMAGE_TOKENS
    return max(_anthropic_tokens(*size), _openai_tokens(*size))


def _anthropic_tokens(width_px: int, height_px: int) -> int:
    scale = min(1.0, _ANTHROPIC_LONG_EDGE_PX / max(width_px, height_px))
    area_px = (width_px * scale) * (height_px * scale)
    return min(UNKNOWN_IMAGE_TOKENS, max(1, ceil(area_px / _ANTHROPIC_PX_PER_TOKEN)))


def _openai_tokens(width_px: int, height_px: int) -> int:
    scale = min(1.0, _OPENAI_SQUARE_PX / max(width_px, height_px))
    scale *= min(1.0, _OPENAI_SHORT_SIDE_PX / (min(width_px, height_px) * scale))
    tiles_wide = max(1, ceil(width_px * scale / _OPENAI_TILE_PX))
    tiles_high = max(1, ceil(height_px * scale / _OPENAI_TILE_PX))
    return _OPENAI_BASE_TOKENS + _OPENAI_TILE_TOKENS * tiles_wide * tiles_high


def _image_size_px(data: str) -> tuple[int, int] | None:
    start = 0
    if data.startswith("data:"):
        start = data.find(",", 0, 256) + 1
        if start == 0:
            return None
    header = _decode_prefix(data, start, _HEADER_CHARS)
    if header.startswith(b"\xff\xd8"):
        size = _jpeg_size_px(_decode_prefix(data, start, _JPEG_CHARS))
    else:
        size = _size_px_in_header(header)
    return size if size is not None and min(size) > 0 else None


def _decode_prefix(data: str, start: int, chars: int) -> bytes:
    text = "".join(data[start : start + chars].split()).replace("-", "+").replace("_", "/")
    text = text.rstrip("=")
    try:
        return binascii.a2b_base64(text[: len(text) - len(text) % 4])
    except ValueError:  # raised for invalid base64 (binascii.Error) and for non-ASCII text
        return b""


def _size_px_in_header(header: bytes) -> tuple[int, int] | None:
    if header.startswith(b"\x89PNG\r\n\x1a\n") and len(header) >= 24:
        return int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")
    if header.startswith((b"GIF87a", b"GIF89a")) and len(header) >= 10:
        return int.from_bytes(header[6:8], "little"), int.from_bytes(header[8:10], "little")
    if header.startswith(b"RIFF") and header[8:12] == b"WEBP" and len(header) >= 30:
        return _webp_size_px(header)
    return None


def _webp_size_px(header: bytes) -> tuple[int, int] | None:
    layout = header[12:16]
    if layout == b"VP8X":
        width_less_one = int.from_bytes(header[24:27], "little")
        return width_less_one + 1, int.from_bytes(header[27:30], "little") + 1
    if layout == b"VP8L":
        bits = int.from_bytes(header[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if layout == b"VP8 ":
        width_px = int.from_bytes(header[26:28], "little") & 0x3FFF
        return width_px, int.from_bytes(header[28:30], "little") & 0x3FFF
    return None


def _jpeg_size_px(data: bytes) -> tuple[int, int] | None:
    offset = 2
    while offset + 9 <= len(data):
        if data[offset] != 0xFF:
            return None
        marker = data[offset + 1]
        if marker == 0xFF:  # padding bytes may precede a marker
            offset += 1
        elif marker in _JPEG_BARE_MARKERS:
            offset += 2
        elif marker in _JPEG_FRAME_MARKERS:
            height_px = int.from_bytes(data[offset + 5 : offset + 7], "big")
            return int.from_bytes(data[offset + 7 : offset + 9], "big"), height_px
        else:
            offset += 2 + max(2, int.from_bytes(data[offset + 2 : offset + 4], "big"))
    return None


# The fitted cost of a byte, given the byte before it: three tables of byte classes, each with costs
# of pairs (`class before * 16 + class`, at most 127). Never edit the costs by hand.

UNITS_PER_TOKEN = 64  # costs are integers of a 64th of a token

# Letters are grouped by how they combine. Hex letters have their own class, to distinguish digests
# from words. `A` has its own class, because zero bytes become `A` in base64. Punctuation is grouped
# by the characters next to it.
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
    (0xE3, 0),  # East Asian: in the table below
    (0xEA, 13), (0xEC, 14),  # Hangul, two halves
    (0xEE, 15),  # private use, full-width forms
    (0xF0, 12),  # emoji and the rarest scripts
)  # fmt: skip
# Simplified and traditional characters share the Unicode planes but not the radicals, and Unicode
# keeps each radical together. So splitting each lead byte's range into eighths separates them well
# enough.
_EAST_ASIAN_STARTS = (
    (0x80, 1), (0x88, 2), (0x90, 3), (0x98, 4), (0xA0, 5), (0xA8, 6), (0xB0, 7), (0xB8, 8),
    (0xC0, 0),
    (0xE3, 9),  # kana, CJK marks
    (0xE4, 10), (0xE5, 11), (0xE6, 12), (0xE7, 13), (0xE8, 14), (0xE9, 15),  # Han
    (0xEA, 0),
)  # fmt: skip


def _letter_classes() -> bytes:
    # Control characters count as punctuation, because class 0 would make them free.
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

# Pages of 256 characters: the extra cost of one character beyond its byte pairs, in units of
# PAGE_UNITS. The cost is 0 for scripts in the corpus. A fitted cost is 1.1 times o200k's tokens per
# letter, minus the cost of the byte pairs, measured on random words of FITTED_SCRIPTS
# (`bench/token_generated.py`). All other pages get the median of the fitted ones.
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
# Scripts that share a page with a known one, or have no page, with the first bytes of their
# characters.
RARE_PREFIXES = (
    (0xE0, (b"\xe0\xba", b"\xe0\xbb"), 100),  # Lao
    (0xF0, tuple(bytes((0xF0, at)) for at in range(0x90, 0x99)), 140),  # historic scripts
    (0xF0, (b"\xf0\x9e",), 155),  # Adlam, Mende
)

# Written by `python -m recollect_bench.tokens fit --write` (docs/contributing/tokens.md).
COSTS_FILE = Path(__file__).with_name("token_costs.json")
_COSTS: dict[str, list[int]] = json.loads(COSTS_FILE.read_bytes())
LETTER_COSTS, SCRIPT_COSTS, EAST_ASIAN_COSTS = map(bytes, _COSTS.values())

# The costs are added by the low half of Adler-32, which counts modulo 65521. This many bytes of the
# highest cost, 127, do not overflow it.
_CHUNK_BYTES = 512
_SUM_MASK = 0xFFFF

# Costs that a table of byte pairs cannot express: long runs of one class, for which a tokenizer has
# no words. Capitals in a long run (sequences of proteins and genes) cost extra per letter after the
# first few. Empty fields of a table cost extra per pair of commas. Measured against o200k like the
# tables, on the shapes of `bench/token_generated.py`. Every eighth pair is checked to decide
# whether a row is searched for runs. Rows of `A` are zero bytes in base64, and cheap.
_CAPITALS = re.compile(rb"(?:\x06{0,2}\x07){17,}")
_LOOKED_AT = 8
_CAPITAL_PAIR, _FEW_CAPITALS = 0x77, 4
_CAPITALS_FREE, _CAPITAL_UNITS = 16, 24
_COMMA_PAIR, _EMPTY_UNITS = 0xDD, 29


def count_text(text: str) -> int:
    """Estimate the tokens of a text: 0 if it is empty, at least 1 otherwise."""
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
    """Return OpenClaw's estimate for `preset = "openclaw"`: a third of the characters."""
    return -(-len(text) // 3)


def _pair_units(data: bytes, classes: bytes, costs: bytes) -> int:
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
    """Return the extra cost of characters in scripts that the tables were not fitted on. A
    tokenizer without words of a script encodes it byte by byte."""
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
    """Add up the costs of byte pairs in a chunk; `row` holds the class of each byte. Classes are
    below 16, so shifting all of them by half a byte, as one large integer, makes one byte per pair,
    in four passes in C."""
    row_number = int.from_bytes(row, "big")
    if not row_number:
        return 0
    pairs = (row_number | row_number >> 4).to_bytes(len(row), "big")
    units = adler32(pairs.translate(costs), 0) & _SUM_MASK
    return units + _run_units(chunk, row, pairs) if costs is LETTER_COSTS else units


def _run_units(chunk: bytes, row: bytes, pairs: bytes) -> int:
    units = 0
    sampled_pairs = pairs[::_LOOKED_AT]
    if sampled_pairs.count(_CAPITAL_PAIR) > _FEW_CAPITALS:
        long = sum([len(run) - _CAPITALS_FREE for run in _CAPITALS.findall(row)])
        units += long * _CAPITAL_UNITS
    if _COMMA_PAIR in sampled_pairs:
        units += chunk.count(b",,") * _EMPTY_UNITS
    return units


MESSAGE_TOKENS = 4
"""Tokens of the role and the delimiters of a message. OpenAI's cookbook counts 3 to 4."""
CALL_TOKENS = 10
"""Tokens of the id, the field names and the delimiters of one tool call or result."""
SEALED_CHARS_A_TOKEN = 6
"""Characters per token of encrypted reasoning, which is base64."""
CARRIED_DATA_CHARS_A_TOKEN = 20
"""Characters per token of a document's base64, which costs far less than text, because providers
convert it to pages."""
LONG_DATA_CHARS = 4096  # not measured; shorter data is counted exactly

CountText = Callable[[str], int]


class Weigher:
    """Counts the tokens of messages and their parts with one counter of text."""

    __slots__ = ("_count_text",)

    def __init__(
        self, counter: Counter = "script-aware", *, count: CountText | None = None
    ) -> None:
        default_counter = count_text_openclaw if counter == "openclaw" else count_text
        self._count_text: CountText = count or default_counter

    def message(self, parts: Iterable[Part]) -> int:
        return MESSAGE_TOKENS + sum([self.part(part) for part in parts])

    def text(self, text: str) -> int:
        return self._count_text(text)

    def part(self, part: Part) -> int:
        if isinstance(part, Text):
            return self._count_text(part.text)
        if isinstance(part, ToolCall):
            return CALL_TOKENS + self._count_text(part.name) + self._count_text(part.arguments)
        if isinstance(part, ToolResult):
            return CALL_TOKENS + sum([self.part(inner) for inner in part.content])
        if isinstance(part, Thinking):
            return self._thinking(part)
        if isinstance(part, Image):
            return count_image(media_type=part.media_type, data=part.data)
        return self._weigh_payload(part)

    def _thinking(self, part: Thinking) -> int:
        if part.text:
            return self._count_text(part.text)
        return len(part.sealed or "") // SEALED_CHARS_A_TOKEN

    def _weigh_payload(self, part: Other) -> int:
        if len(part.payload) < LONG_DATA_CHARS or " " in part.payload[:LONG_DATA_CHARS]:
            return self._count_text(part.payload)
        return len(part.payload) // CARRIED_DATA_CHARS_A_TOKEN


def model_use(prompt: Prompt, answer: Answer | None = None, *, prompt_read: bool) -> ModelUse:
    """Return the token usage of one model call: as reported, else estimated."""
    if not prompt_read:
        return ModelUse(purpose=prompt.purpose, calls=1)
    if answer is not None and answer.usage is not None:
        input_tokens, output_tokens = answer.usage.input_tokens, answer.usage.output_tokens
    else:
        input_tokens = count_text(prompt.system) + count_text(prompt.text)
        output_tokens = 0 if answer is None else count_text(answer.text)
    return ModelUse(
        purpose=prompt.purpose, calls=1, input_tokens=input_tokens, output_tokens=output_tokens
    )
