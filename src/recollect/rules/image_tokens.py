"""What an image costs in tokens, read from the first bytes of its base64 data.

Owns the providers' published size formulas and the few header bytes that hold width and height
in PNG, JPEG, GIF and WebP. It must never decode a whole image, fetch one, or raise: whatever
cannot be read costs `UNKNOWN_IMAGE_TOKENS`. The result is always at least 1.
"""

from __future__ import annotations

import binascii
from math import ceil
from typing import Literal

ImageProvider = Literal["anthropic", "openai", "generic"]

UNKNOWN_IMAGE_TOKENS = 1600
"""The cost of an image whose size cannot be read: the most Anthropic charges, above OpenAI's."""

# Anthropic's vision guide: width * height / 750 after scaling the long edge to 1568, about 1600
# at most. OpenAI's vision guide, high detail: 85 + 170 a tile of 512, after fitting into a square
# of 2048 and bringing the short side to 768.
_ANTHROPIC_LONG_EDGE_PX = 1568
_ANTHROPIC_PX_PER_TOKEN = 750
_OPENAI_SQUARE_PX = 2048
_OPENAI_SHORT_SIDE_PX = 768
_OPENAI_TILE_PX = 512
_OPENAI_BASE_TOKENS = 85
_OPENAI_TILE_TOKENS = 170

_HEADER_CHARS = 64
# A camera's EXIF block with its thumbnail fits one JPEG segment, which is at most 64 KB long.
_JPEG_CHARS = 96 * 1024
_JPEG_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE_MARKERS = frozenset(range(0xD0, 0xD9)) | {0x01}


def count_image(
    *, media_type: str | None, data: str | None, provider: ImageProvider = "generic"
) -> int:
    """Tokens one image costs; `data` is base64 or a data URL, anything else is of unknown size."""
    if data is None or (media_type is not None and not media_type.startswith("image/")):
        return UNKNOWN_IMAGE_TOKENS
    size = _image_size_px(data)
    if size is None:
        return UNKNOWN_IMAGE_TOKENS
    if provider == "anthropic":
        return _anthropic_tokens(*size)
    if provider == "openai":
        return _openai_tokens(*size)
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
    """Width and height, or None where the header is not one of the four formats we read."""
    start = 0
    if data.startswith("data:"):
        start = data.find(",", 0, 256) + 1
        if start == 0:
            return None
    header = _decoded_prefix(data, start, _HEADER_CHARS)
    if header.startswith(b"\xff\xd8"):
        size = _jpeg_size_px(_decoded_prefix(data, start, _JPEG_CHARS))
    else:
        size = _fixed_header_size_px(header)
    return size if size is not None and min(size) > 0 else None


def _decoded_prefix(data: str, start: int, chars: int) -> bytes:
    """The bytes of the first `chars` base64 characters; empty where they are not base64."""
    text = "".join(data[start : start + chars].split()).replace("-", "+").replace("_", "/")
    text = text.rstrip("=")
    try:
        return binascii.a2b_base64(text[: len(text) - len(text) % 4])
    except ValueError:  # binascii.Error is one; so is text outside ASCII
        return b""


def _fixed_header_size_px(header: bytes) -> tuple[int, int] | None:
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
    """The size in the frame header, found by walking from segment to segment."""
    at = 2
    while at + 9 <= len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # fill bytes may stand before a marker
            at += 1
        elif marker in _JPEG_BARE_MARKERS:
            at += 2
        elif marker in _JPEG_FRAME_MARKERS:
            height_px = int.from_bytes(data[at + 5 : at + 7], "big")
            return int.from_bytes(data[at + 7 : at + 9], "big"), height_px
        else:
            at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4], "big"))
    return None
