"""Which rules of redaction a text can start: read once from its words, before any rule runs.

Owns the triggers: one bit per group of rules, with the words of ASCII letters without which no
rule of the group finds anything. Most texts hold few of them, so most rules cost nothing. Never
decides what a secret is. Always linear. A rule that is skipped would have found nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_WORDS = 65_536
_LETTERS_ALONE = bytes(code if 97 <= code <= 122 else 32 for code in range(256))
_LETTERS = re.compile("[a-z]+")

_bits_of_word: dict[str, int] = {}
_bits_of_part: dict[str, int] = {}
_any_part: re.Pattern[str] | None = None
_known: dict[bytes, int] = {}
"""What was read of words so far: the same words come again and again."""
_declared = 0


def trigger(words: str = "", *, parts: Iterable[str] = ()) -> int:
    """Declare a bit for texts with one of these words, or with one of these parts in any word.

    Only the longest run of letters of a part counts.
    """
    global _any_part, _declared
    bit = 1 << _declared
    _declared += 1
    for word in words.split():
        _bits_of_word[word] = _bits_of_word.get(word, 0) | bit
    for part in parts:
        letters = max(_LETTERS.findall(part.lower()), key=len)
        _bits_of_part[letters] = _bits_of_part.get(letters, 0) | bit
    _any_part = None
    _known.clear()
    return bit


def with_triggers(literals: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Each of these literals, with the bit of texts that may hold it."""
    return tuple((literal, trigger(parts=(literal,))) for literal in literals)


def held(literals: tuple[tuple[str, int], ...], lowered: str, found: int) -> list[str]:
    """Those of the literals that the text holds: of most texts none."""
    return [literal for literal, hint in literals if found & hint and literal in lowered]


def one_of(literals: Iterable[str]) -> re.Pattern[str]:
    """A pattern that each text with one of these literals beyond ASCII matches somewhere."""
    return re.compile("[" + "".join(sorted({max(literal) for literal in literals})) + "]")


def triggers_in(lowered: str) -> int:
    """The bits of all triggers that a text in lower case holds."""
    words = lowered.encode("utf-8", "replace").translate(_LETTERS_ALONE).split()
    found = 0
    for bits in set(map(_known.get, words)):
        if bits is None:
            return _read(words)
        found |= bits
    return found


def _read(words: list[bytes]) -> int:
    """The bits of words some of which no text held before."""
    found = 0
    for word in set(words):
        bits = _known.get(word)
        if bits is None:
            if len(_known) >= _MOST_WORDS:
                _known.clear()
            bits = _known[word] = _bits_of(word.decode())
        found |= bits
    return found


def _bits_of(word: str) -> int:
    global _any_part
    if _any_part is None:
        _any_part = re.compile("|".join(sorted(_bits_of_part)))
    bits = _bits_of_word.get(word, 0)
    if _any_part.search(word) is None:
        return bits
    for part, of_part in _bits_of_part.items():
        if part in word:
            bits |= of_part
    return bits
