"""Redaction rules. Each rule is a row of a table: the pattern of a secret, and keywords. A rule is
skipped unless the text contains one of its keywords, and its pattern is searched only near them. To
find keywords fast, a text is split into runs of word characters, and a cache maps each run to the
bits of its keywords."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import reduce
from itertools import filterfalse
from operator import or_
from typing import Generic, NamedTuple, TypeAlias, TypeVar

_MOST_RUNS = 65_536
_MOST_HELD = 1024
_MOST_RUN_CHARS = 128
"""Longer runs are not cached, because they rarely occur twice and may be secrets."""
LEAST_TOKEN_CHARS = 16
_RUN_CHARS = string.ascii_letters + string.digits + "_.~-"
_RUNS_ALONE = bytes(code if chr(code) in _RUN_CHARS else 32 for code in range(256))
_RUN = re.compile(r"[a-z0-9_.~-]+")
# The non-ASCII characters whose lower case is ASCII, or longer than one character.
_CAPITALS = (("\u0130", "I"), ("\u212a", "K"))

_bit_of_run: dict[tuple[str, bool, bool], int] = {}
"""Bit of each run of word characters in a keyword. The first boolean is true if a run of the text
must begin with it, the second if it must end with it."""
_bits_of_run: dict[str, list[tuple[int, bool, bool]]] = {}
_bit_of_sign: dict[str, int] = {}
"""Bits of keywords without two adjacent word characters, for which every text is searched."""
_bit_of_char: dict[str, int] = {}
"""Bits of keywords with non-ASCII characters, by one of these characters."""
_bit_of_token: dict[re.Pattern[str], int] = {}
_any_run: re.Pattern[str] | None = None
_any_char: re.Pattern[str] | None = None
_known: dict[bytes, int] = {}
"""Bits of the cached runs that contain a keyword."""
_plain: set[bytes] = set()
"""Cached runs that contain no keyword."""
_declared = 0

Rule = TypeVar("Rule")


def declare(keyword: str) -> int:
    """Register a lower-case keyword. Return the bits that every text with the keyword has."""
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
    """Register a pattern that every long run is searched for. Return the pattern's bit."""
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
    """A text, its lower case, and the bits of the keywords in it."""

    __slots__ = ("_places", "found", "lowered", "text")

    def __init__(self, text: str) -> None:
        self.text: str = text
        self.lowered: str = _in_lower_case(text)
        self.found: int = keywords_in(text)
        self._places: dict[str, list[int]] = {}

    def places(self, keyword: str) -> list[int]:
        places = self._places.get(keyword)
        if places is None:
            places = self._places[keyword] = []
            at = self.lowered.find(keyword)
            while at >= 0:
                places.append(at)
                at = self.lowered.find(keyword, at + len(keyword))
        return places


class Keywords(Generic[Rule]):
    """Finds rules by the keywords in a text."""

    def __init__(self, rules: Iterable[tuple[str, Rule]]) -> None:
        self._rules = [(declare(keyword), keyword, rule) for keyword, rule in rules]
        self.bits: int = reduce(or_, [bits for bits, _, _ in self._rules], 0)
        self._held: dict[int, list[tuple[str, Rule]]] = {}

    def held(self, found: int) -> list[tuple[str, Rule]]:
        """Return the keywords that a text with these bits may contain, each with its rule."""
        found &= self.bits
        held = self._held.get(found)
        if held is None:
            held = [(word, rule) for bits, word, rule in self._rules if bits & found == bits]
            if len(self._held) >= _MOST_HELD:
                self._held.clear()
            self._held[found] = held
        return held


def _in_lower_case(text: str) -> str:
    if not text.isascii():
        for capital, plain in _CAPITALS:
            text = text.replace(capital, plain)
    return text.lower()


def keywords_in(text: str) -> int:
    """Return the bits of all keywords that a text may contain."""
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
        for size in range(2, len(longest) + 1):  # shorter keywords may match here too
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


COMMAND_CHARS = 2000
LINE_CHARS = 400


class SecretMatch(NamedTuple):
    """A secret at [start, end), and at [first, last) the whole match with its label."""

    rule: str
    start: int
    end: int
    first: int
    last: int


class RowPlace(Enum):
    """Where a rule's pattern is searched."""

    AT = auto()  # from the first character of the keyword
    BEHIND = auto()  # from the end of the keyword
    LINE = auto()  # from the start of its line
    COMMAND = auto()  # searched from the keyword to the end of its command
    BEFORE = auto()  # searched in the `back` characters before the keyword
    TEXT = auto()  # searched everywhere


@dataclass(frozen=True, slots=True)
class Row:
    """One rule: the name of its mask, its keywords, its pattern, and its conditions."""

    name: str
    keywords: str
    """Keywords in lower case, separated by bars. The text must contain at least one keyword."""
    written: str
    """The pattern of the match, whose last named group is the secret."""
    judge: Callable[[str], bool] | None = None
    place: RowPlace = RowPlace.AT
    check: Callable[[re.Match[str], str], bool] | None = None
    at: str = ""
    """Words near which the pattern is searched, if not near the keywords."""
    back: int = 0
    near: re.Pattern[str] | None = None
    """Pattern that the lower-cased text around the match must contain too."""
    around: tuple[int, int] = (0, 0)
    trim: str = ""
    whole: bool = False
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", re.compile(self.written))

    def find(self, reading: SearchedText, keyword: str) -> Iterator[SecretMatch]:
        """Find every secret that the rule recognizes near this keyword."""
        if self.place is RowPlace.TEXT:
            for match in self.pattern.finditer(reading.text):
                yield from self._judged(reading, match.start(), match)
            return
        for literal in keys(self.at) if self.at else (keyword,):
            for at in reading.places(literal):
                found = self._match_at(reading, at, at + len(literal))
                if found is not None:
                    yield from self._judged(reading, at, found)

    def _match_at(self, reading: SearchedText, at: int, end: int) -> re.Match[str] | None:
        text, place = reading.text, self.place
        if self.whole and not begins_word(reading.lowered, at):
            return None
        if place is RowPlace.AT:
            return self.pattern.match(text, at)
        if place is RowPlace.BEHIND:
            return self.pattern.match(text, end)
        if place is RowPlace.COMMAND:
            return self.pattern.search(text, at, min(_command_end(text, at), at + LINE_CHARS))
        if place is RowPlace.BEFORE:
            return self.pattern.search(text, max(0, at - self.back), at)
        start = _line_start(text, at)
        if start and text[start - 1] != "\n":
            return None
        return self.pattern.match(text, start)

    def _judged(
        self, reading: SearchedText, at: int, match: re.Match[str]
    ) -> Iterator[SecretMatch]:
        group = match.lastgroup or 0
        start, value = match.start(group), match[group]
        if self.trim:
            value = value.rstrip(self.trim)
        if self.judge is not None and not self.judge(value):
            return
        if self.check is not None and not self.check(match, value):
            return
        if self.near is not None:
            since, until = self._around(reading.text, at, match)
            if self.near.search(reading.lowered, since, until) is None:
                return
        end = start + len(value)
        yield SecretMatch(self.name, start, end, match.start(), max(end, match.end()))

    def _around(self, text: str, at: int, match: re.Match[str]) -> tuple[int, int]:
        if self.around == ON_LINE:
            end = match.end()
            return _command_start(text, at), min(_command_end(text, end), end + LINE_CHARS)
        if self.around == BEFORE_ON_LINE:
            return _command_start(text, at), at
        return max(0, at - self.around[0]), match.end() + self.around[1]


ON_LINE, BEFORE_ON_LINE = (-1, -1), (-1, 0)


def find_by_rows(rows: Keywords[Row], reading: SearchedText) -> Iterator[SecretMatch]:
    done: Row | None = None
    for keyword, row in rows.held(reading.found):
        if row.at or row.place is RowPlace.TEXT:
            if row is done or keyword not in reading.lowered:
                continue
            done = row
        elif not reading.places(keyword):
            continue
        yield from row.find(reading, keyword)


def by_keywords(rows: Iterable[Row]) -> Keywords[Row]:
    return Keywords((keyword, row) for row in rows for keyword in keys(row.keywords))


def keys(text: str) -> tuple[str, ...]:
    return tuple(text.split("|"))


def begins_word(lowered: str, at: int) -> bool:
    return at == 0 or not (lowered[at - 1].isalnum() or lowered[at - 1] in "_-.$/+\\=&?")


def _line_start(text: str, at: int) -> int:
    since = max(0, at - LINE_CHARS)
    return max(text.rfind("\n", since, at) + 1, since)


def _command_start(text: str, at: int) -> int:
    since = _line_start(text, at)
    while since > 1 and text[since - 2 : since] == "\\\n" and at - since < LINE_CHARS:
        since = _line_start(text, since - 2)
    return since


def _command_end(text: str, start: int) -> int:
    limit = min(len(text), start + COMMAND_CHARS)
    end = start
    while True:
        end = text.find("\n", end, limit)
        if end < 0:
            return limit
        if text[end - 1 : end] != "\\":
            return end
        end += 1
