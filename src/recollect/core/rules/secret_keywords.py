"""Which rules of redaction a text can start: read once from its words, before any rule runs.

Owns the keywords without which no rule finds anything, one bit for each. A text is cut into runs
of letters, digits and `_.~-`; each run sets the bits of the keywords in it, and is remembered,
because the same words come again and again. Most texts hold few keywords, so most rules cost
nothing. Never decides what a secret is. Always linear. A rule that is skipped would have found
nothing.
"""

from __future__ import annotations

import re
import string
from functools import reduce
from itertools import filterfalse
from operator import or_
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_RUNS = 65_536
_MOST_HELD = 1024
_MOST_RUN_CHARS = 128
"""A longer run is read each time: it rarely comes again, and may be a secret."""
LEAST_TOKEN_CHARS = 16
_RUN_CHARS = string.ascii_letters + string.digits + "_.~-"
_RUNS_ALONE = bytes(code if chr(code) in _RUN_CHARS else 32 for code in range(256))
_RUN = re.compile(r"[a-z0-9_.~-]+")
# The characters beyond ASCII whose lower case is in ASCII, or longer than one character.
_CAPITALS = (("\u0130", "I"), ("\u212a", "K"))

_bit_of_run: dict[tuple[str, bool, bool], int] = {}
"""Of a run of a keyword: whether the text's run begins with it, and whether it ends so."""
_bits_of_run: dict[str, list[tuple[int, bool, bool]]] = {}
_bit_of_sign: dict[str, int] = {}
"""Keywords without a run of two characters: they are looked for in each text."""
_bit_of_char: dict[str, int] = {}
"""Keywords beyond ASCII, by one of their characters."""
_bit_of_token: dict[re.Pattern[str], int] = {}
_any_run: re.Pattern[str] | None = None
_any_char: re.Pattern[str] | None = None
_known: dict[bytes, int] = {}
"""The bits of each run that was read and holds a keyword."""
_plain: set[bytes] = set()
"""The runs that were read and hold none."""
_declared = 0

Rule = TypeVar("Rule")


def declare(keyword: str) -> int:
    """Declare a keyword, in lower case: the bits of all texts that may hold it."""
    if not keyword.isascii():
        return _bit_in(_bit_of_char, max(keyword))
    bits = 0
    for run in _RUN.finditer(keyword):
        if len(run[0]) > 1:
            starts, ends = run.start() > 0, run.end() < len(keyword)
            new = (run[0], starts, ends) not in _bit_of_run
            bit = _bit_in(_bit_of_run, (run[0], starts, ends))
            if new:
                _bits_of_run.setdefault(run[0], []).append((bit, starts, ends))
            bits |= bit
    return bits or _bit_in(_bit_of_sign, keyword)


def declare_token(pattern: re.Pattern[str]) -> int:
    """Declare what is looked for in each long run: the bit of the texts that may hold it."""
    return _bit_in(_bit_of_token, pattern)


Key = TypeVar("Key")


def _bit_in(table: dict[Key, int], key: Key) -> int:
    global _any_run, _any_char, _declared
    if key not in table:
        table[key] = 1 << _declared
        _declared += 1
        _any_run = _any_char = None
        _known.clear()
        _plain.clear()
    return table[key]


class SearchedText:
    """A text, as the rules read it."""

    __slots__ = ("_places", "found", "lowered", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.lowered = in_lower_case(text)
        """Of equal length."""
        self.found = keywords_in(text)
        """The bits of its keywords."""
        self._places: dict[str, list[int]] = {}

    def places(self, keyword: str) -> list[int]:
        """Where the keyword stands in the text, in order."""
        places = self._places.get(keyword)
        if places is None:
            places = self._places[keyword] = []
            at = self.lowered.find(keyword)
            while at >= 0:
                places.append(at)
                at = self.lowered.find(keyword, at + len(keyword))
        return places


class Keywords(Generic[Rule]):
    """Rules by their keywords."""

    def __init__(self, rules: Iterable[tuple[str, Rule]]) -> None:
        self._rules = [(declare(keyword), keyword, rule) for keyword, rule in rules]
        self.bits = reduce(or_, [bits for bits, _, _ in self._rules], 0)
        self._held: dict[int, list[tuple[str, Rule]]] = {}

    def held(self, found: int) -> list[tuple[str, Rule]]:
        """The keywords that a text with these bits may hold, with their rules, in their order."""
        found &= self.bits
        held = self._held.get(found)
        if held is None:
            held = [(word, rule) for bits, word, rule in self._rules if bits & found == bits]
            if len(self._held) >= _MOST_HELD:
                self._held.clear()
            self._held[found] = held
        return held


def in_lower_case(text: str) -> str:
    """The text in lower case, of equal length."""
    if not text.isascii():
        for capital, plain in _CAPITALS:
            text = text.replace(capital, plain)
    return text.lower()


def keywords_in(text: str) -> int:
    """The bits of all keywords that a text may hold."""
    found = 0
    for sign, bit in _bit_of_sign.items():
        if sign in text:
            found |= bit
    if _bit_of_char and not text.isascii():
        text = text.replace(*_CAPITALS[0]).replace(*_CAPITALS[1])
        found |= _read_chars(text)
    runs = text.encode("utf-8", "replace").translate(_RUNS_ALONE).split()
    for run in set(filterfalse(_plain.__contains__, runs)):
        bits = _known.get(run)
        found |= _read_run(run) if bits is None else bits
    return found


def _read_chars(text: str) -> int:
    global _any_char
    if _any_char is None:
        chars = {form for char in _bit_of_char for form in (char, *char.upper())}
        _any_char = re.compile("[" + "".join(sorted(chars)) + "]")
    found = 0
    for char in set(_any_char.findall(text)):
        found |= _bit_of_char.get(char.lower(), 0)
    return found


def _read_run(run: bytes) -> int:
    bits = _bits_of(run.decode())
    if len(run) <= _MOST_RUN_CHARS:
        if len(_known) + len(_plain) >= _MOST_RUNS:
            _known.clear()
            _plain.clear()
        if bits:
            _known[run] = bits
        else:
            _plain.add(run)
    return bits


def _bits_of(run: str) -> int:
    global _any_run
    if _any_run is None:
        _any_run = _run_pattern()
    bits = 0
    for match in _any_run.finditer(run.lower()):
        at, longest = match.start(), match[1]
        for size in range(2, len(longest) + 1):  # what begins like it is there, too
            for bit, starts, ends in _bits_of_run.get(longest[:size], ()):
                if not (starts and at) and not (ends and at + size < len(run)):
                    bits |= bit
    if len(run) >= LEAST_TOKEN_CHARS:
        for pattern, bit in _bit_of_token.items():
            if pattern.search(run) is not None:
                bits |= bit
    return bits


_Tree: TypeAlias = "dict[str, _Tree]"


def _run_pattern() -> re.Pattern[str]:
    tree: _Tree = {}
    for keyword in _bits_of_run:
        node = tree
        for char in (*keyword, ""):
            node = node.setdefault(char, {})
    return re.compile(f"(?=({_branches(tree)}))")


def _branches(tree: _Tree) -> str:
    branches = [re.escape(char) + _branches(tree[char]) for char in sorted(tree) if char]
    if not branches:
        return ""
    joined = branches[0] if len(branches) == 1 else "|".join(branches)
    return f"(?:{joined})?" if "" in tree else f"(?:{joined})"
