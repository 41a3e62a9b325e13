"""Text that no one wrote: digests, base64, identifiers, numbers, logs, emoji; by a seeded dice.

Owns the generated half of the token corpus. It must never draw on anything but its seed, the
sources it is given and the interpreter's own binaries. The same input gives the same text.
"""

from __future__ import annotations

import base64
import json
import random
import string
import sys
import sysconfig
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


FITTED_SCRIPTS = {
    "syriac": (0x710, 0x74A), "thaana": (0x780, 0x7B1), "nko": (0x7C0, 0x7EA),
    "ethiopic": (0x1200, 0x12FF), "ethiopic_more": (0x1300, 0x1357),
    "canadian": (0x1500, 0x15FF), "mongolian": (0x1820, 0x1877), "tai_tham": (0x1A20, 0x1A54),
    "ol_chiki": (0x1C50, 0x1C7D), "tifinagh": (0x2D30, 0x2D67), "yi": (0xA100, 0xA1FF),
    "javanese": (0xA984, 0xA9B2), "private": (0xE000, 0xE0FF),
}  # fmt: skip
"""Scripts of which no text is at hand; the costs of their pages come from their letters."""
HELD_SCRIPTS = {
    "samaritan": (0x800, 0x815), "lao": (0xE81, 0xEB0), "jamo": (0x1100, 0x11FF),
    "cherokee": (0x13A0, 0x13F4), "ogham": (0x1681, 0x169A), "runic": (0x16A0, 0x16EA),
    "tai_le": (0x1950, 0x1974), "balinese": (0x1B05, 0x1B33), "greek_extended": (0x1F00, 0x1FFC),
    "glagolitic": (0x2C00, 0x2C5F), "coptic": (0x2C80, 0x2CE3), "vai": (0xA500, 0xA60C),
    "cham": (0xAA00, 0xAA28), "rare_han": (0x3400, 0x4DB5), "arabic_forms": (0xFBD3, 0xFD3D),
    "gothic": (0x10330, 0x1034A), "cuneiform": (0x12000, 0x12399), "adlam": (0x1E900, 0x1E943),
}  # fmt: skip
"""The same, which no cost was taken from."""


def script_text(dice: random.Random, first: int, last: int, words: int = 1_500) -> str:
    """Random words of a script's letters: as good as text, where a vocabulary has no words."""
    signs = [chr(code) for code in range(first, last + 1)]
    letters = [sign for sign in signs if unicodedata.category(sign)[0] in "LMN"] or signs
    return " ".join("".join(dice.choices(letters, k=dice.randint(2, 7))) for _ in range(words))


def tibetan_text(dice: random.Random, syllables: int = 3_000) -> str:
    """Random Tibetan syllables, marked off from each other as they are written."""
    letters = [chr(code) for code in range(0xF40, 0xF6A)]
    return "་".join(
        "".join(dice.choices(letters, k=dice.randint(1, 3)))
        + (dice.choice("ིེོུ") if dice.random() < 0.5 else "")
        + (dice.choice("གངདནབམརལས") if dice.random() < 0.4 else "")
        for _ in range(syllables)
    )


def sparse_rows(dice: random.Random, separator: str, filled: float) -> str:
    """A table with few fields filled in."""
    return "\n".join(
        separator.join(
            str(dice.randint(1, 999)) if dice.random() < filled else "" for _ in range(40)
        )
        for _ in range(120)
    )


def sequence(dice: random.Random, letters: str, line: int | None = None) -> str:
    """Letters without words, in one line or wrapped, as genes and proteins are written."""
    text = "".join(dice.choices(letters, k=6_000))
    step = line or len(text)
    return "\n".join(text[at : at + step] for at in range(0, len(text), step))


def unseen_documents() -> Iterator[tuple[str, str]]:
    """Scripts and shapes beside the corpus, never fitted on by the tables of pairs; the kinds
    named `held` were not looked at for the other costs either."""
    dice = random.Random(23)
    for kind, scripts in (("scripts", FITTED_SCRIPTS), ("scripts_held", HELD_SCRIPTS)):
        for first, last in scripts.values():
            yield kind, script_text(dice, first, last)
    yield "scripts", tibetan_text(dice)
    for filled in (0.0, 0.02, 0.1):
        yield "shapes", sparse_rows(dice, ",", filled)
        yield "shapes_held", sparse_rows(dice, ";", filled)
        yield "shapes_held", sparse_rows(dice, "\t", filled)
    yield "shapes", sequence(dice, "ACDEFGHIKLMNPQRSTVWY")
    yield "shapes_held", sequence(dice, "ACDEFGHIKLMNPQRSTVWY", 60)
    yield "shapes_held", sequence(dice, "ACGT", 70)


def generated_documents(python_sources: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Documents with their kind; the sources are given back in base64 and in capitals."""
    dice = random.Random(7)
    for index in range(160):
        yield "hex_json", hex_json(dice, indent=(None, 2, 4)[index % 3], entries=150)
    for index in range(120):
        yield "base64", base64_text(dice.randbytes(17_000), style=index)
    binaries = [Path(sys.executable).resolve(), *_compiled_modules()]
    for index, source in enumerate(python_sources):
        if index % 4 == 0:
            yield "base64", base64_text(source.encode()[:17_000], style=index)
            machine_code = dice.choice(binaries).read_bytes()
            start = dice.randrange(max(1, len(machine_code) - 17_000))
            yield "base64_binary", base64_text(machine_code[start : start + 17_000], style=index)
        if index % 20 == 0:
            yield "shouted", source.upper()
    for _ in range(20):
        yield "ids", "\n".join(base64.b32encode(dice.randbytes(15)).decode() for _ in range(300))
        yield "ids", "\n".join(_letters(dice, dice.randint(8, 24)) for _ in range(300))
        yield "hex_dump", _hex_dump(dice)
        yield "symbols", "".join(_symbol_run(dice) for _ in range(600))
        yield "numbers", "\n".join(_number_row(dice) for _ in range(300))
        yield "spelled", " ".join(dice.choice(_ALPHABETS[dice.randrange(2)]) for _ in range(2000))
        yield "logs", "\n".join(_log_line(dice) for _ in range(200))
        yield "emoji", "".join(dice.choice(_EMOJI) + dice.choice(("", "", " ")) for _ in range(900))


def _compiled_modules() -> list[Path]:
    library = Path(sysconfig.get_path("stdlib"))
    compiled = [*library.glob("lib-dynload/*"), *library.glob("asyncio/__pycache__/*.pyc")]
    return sorted(path for path in compiled if path.stat().st_size > 17_000)


_EMOJI = (*"😀😂👍🎉🙏🔥✨🚀🤔✅❌📦🧵💡🐍", "❤️", "⚠️", "👩\u200d💻", "🇩🇪")
_ALPHABETS = (string.ascii_uppercase, string.ascii_letters + string.digits + "\n")
_FIELDS = ("status", "name", "createdAt", "type", "user", "parent", "hash", "size", "version",
           "trace_id", "span", "session", "request_id", "path", "owner", "level")  # fmt: skip


def _letters(dice: random.Random, length: int) -> str:
    return "".join(dice.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(length))


def _symbol_run(dice: random.Random) -> str:
    """A few box-drawing characters, blocks, arrows, Braille dots or signs, as terminals draw."""
    first, last = dice.choice(((0x2500, 0x257F), (0x2580, 0x259F), (0x2190, 0x21FF),
                               (0x2800, 0x28FF), (0x2600, 0x26FF), (0x2200, 0x22FF)))  # fmt: skip
    run = chr(dice.randint(first, last)) * dice.choice((1, 1, 1, 2, 6, 20))
    return run + dice.choice(("", " ", "\n", dice.choice(_FIELDS)))


def _hex_dump(dice: random.Random) -> str:
    separator, group = dice.choice(" \n"), dice.choice((2, 4))
    text = dice.randbytes(3000).hex(separator, group)
    return text.upper() if dice.random() < 0.5 else text


def _number_row(dice: random.Random) -> str:
    return ",".join(f"{dice.uniform(-1e4, 1e4):.{dice.randint(0, 6)}f}" for _ in range(8))


def _log_line(dice: random.Random) -> str:
    clock = f"{dice.randint(0, 23):02}:{dice.randint(0, 59):02}:{dice.uniform(0, 59):06.3f}"
    event = f"{dice.choice(_FIELDS)}.{dice.choice(_FIELDS)} took {dice.randint(1, 9999)} ms"
    address = f"10.{dice.randint(0, 255)}.{dice.randint(0, 255)}.{dice.randint(1, 254)}:8080"
    day = f"2026-11-{dice.randint(1, 30):02}"
    return f"{day}T{clock}Z INFO [{dice.choice(_FIELDS)}] {event} {address}"


def hex_json(dice: random.Random, *, indent: int | None, entries: int) -> str:
    """JSON whose values are mostly digests and UUIDs, as tools and trackers print it."""
    density = dice.choice((0.4, 0.7, 0.95))
    length = dice.choice((8, 16, 24, 32, 40, 64))

    def value() -> Any:
        digest = dice.randbytes(length // 2).hex()
        if dice.random() > density:
            return dice.choice((dice.randint(0, 10**6), True, None, dice.choice(_FIELDS)))
        if dice.random() < 0.5:
            return digest
        h = dice.randbytes(16).hex()
        return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"

    def row() -> dict[str, Any]:
        return {"id": dice.randbytes(length // 2).hex()} | {
            dice.choice(_FIELDS): value() for _ in range(dice.randint(1, 6))
        }

    separators = (",", ":") if indent is None and dice.random() < 0.5 else None
    return json.dumps([row() for _ in range(entries)], indent=indent, separators=separators)


def base64_text(data: bytes, *, style: int) -> str:
    """Base64 as it is met: in one line, wrapped, URL-safe, as a JSON value."""
    if style % 4 == 1:
        return base64.encodebytes(data).decode()
    if style % 4 == 2:
        return base64.urlsafe_b64encode(data).decode()
    text = base64.b64encode(data).decode()
    return json.dumps({"content": text}) if style % 4 == 3 else text
