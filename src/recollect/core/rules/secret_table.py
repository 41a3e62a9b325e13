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
from itertools import accumulate, filterfalse
from operator import or_
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, TypeVarTuple

_MOST_RUNS = 65_536
_MOST_HELD = 1024
_COMMON_RUNS = frozenset(["the", "for", "with", "into", "in", "to", "it", "of", "de", "du"])
"""Most texts have these runs. As bits they exclude few texts, and took a tenth of the time."""
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
_bit_of_token: dict[Callable[[str], re.Match[str] | None], int] = {}
_any_run: re.Pattern[str] | None = None
_any_char: re.Pattern[str] | None = None
_known: dict[bytes, int] = {}
"""Bits of the cached runs that contain a keyword."""
_plain: set[bytes] = set()
"""Cached runs that contain no keyword."""
_declared = 0

Rule = TypeVar("Rule")
Verdict = TypeVar("Verdict")
Values = TypeVarTuple("Values")
_MOST_VERDICTS = 1024
"""Not measured; bounds the memory that one text takes."""


def declare(keyword: str) -> int:
    """Register a lower-case keyword. Return the bits that every text with the keyword has."""
    if not keyword.isascii():
        return _bit_in(_bit_of_char, max(keyword))
    bits = 0
    runs = [run for run in _RUN.finditer(keyword) if len(run[0]) > 1]
    for run in [run for run in runs if run[0] not in _COMMON_RUNS] or runs:
        starts, ends = run.start() > 0, run.end() < len(keyword)
        is_new = (run[0], starts, ends) not in _bit_of_run
        bit = _bit_in(_bit_of_run, (run[0], starts, ends))
        if is_new:
            _bits_of_run.setdefault(run[0], []).append((bit, starts, ends))
        bits |= bit
    return bits or _bit_in(_bit_of_sign, keyword)


def declare_token(find: Callable[[str], re.Match[str] | None]) -> int:
    """Register a search that every long run is subject to. Return the search's bit."""
    return _bit_in(_bit_of_token, find)


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
    """A text, its lower case, the bits of the keywords in it, and the verdicts on its values. The
    verdicts end with the object, because the values may be secrets."""

    __slots__ = ("_places", "_verdicts", "found", "lowercase_text", "text")

    def __init__(self, text: str) -> None:
        self.text: str = text
        self.lowercase_text: str = _in_lower_case(text)
        self.found: int = keywords_in(text)
        self._places: dict[str, list[int]] = {}
        self._verdicts: dict[tuple[object, ...], Any] = {}

    def places(self, keyword: str) -> list[int]:
        places = self._places.get(keyword)
        if places is None:
            places, size = [], len(keyword)
            if keyword in self.lowercase_text:
                sizes = map(len, self.lowercase_text.split(keyword)[:-1])
                places = [end - size for end in accumulate(map(size.__add__, sizes))]
            self._places[keyword] = places
        return places

    def judge_once(self, judge: Callable[[*Values], Verdict], *values: *Values) -> Verdict:
        """Judge values of this text. The verdict on the same values is kept."""
        key = (judge, *values)
        if key not in self._verdicts:
            if len(self._verdicts) >= _MOST_VERDICTS:
                self._verdicts.clear()
            self._verdicts[key] = judge(*values)
        verdict: Verdict = self._verdicts[key]
        return verdict


class Keywords(Generic[Rule]):
    """Finds rules by the keywords in a text."""

    def __init__(self, rules: Iterable[tuple[str, Rule]]) -> None:
        self._rules = [(declare(keyword), keyword, rule) for keyword, rule in rules]
        self.bits: int = reduce(or_, [bits for bits, _, _ in self._rules], 0)
        self._held: dict[int, list[tuple[str, Rule]]] = {}

    def find_held(self, found: int) -> list[tuple[str, Rule]]:
        """Return the keywords that a text with these bits may contain, each with its rule."""
        found &= self.bits
        held_rules = self._held.get(found)
        if held_rules is None:
            held_rules = [(word, rule) for bits, word, rule in self._rules if bits & found == bits]
            if len(self._held) >= _MOST_HELD:
                self._held.clear()
            self._held[found] = held_rules
        return held_rules


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
    new_runs: list[bytes] = []
    for run in set(filterfalse(_plain.__contains__, runs)):
        bits = _known.get(run)
        if bits is None:
            new_runs.append(run)
        else:
            found |= bits
    return found | _read_runs(new_runs) if new_runs else found


def _read_chars(text: str) -> int:
    global _any_char
    if _any_char is None:
        chars = {form for char in _bit_of_char for form in (char, *char.upper())}
        _any_char = re.compile("[" + "".join(sorted(chars)) + "]")
    found = 0
    for char in set(_any_char.findall(text)):
        found |= _bit_of_char.get(char.lower(), 0)
    return found


def _read_runs(runs: list[bytes]) -> int:
    """Return the bits of these runs, and cache them."""
    global _any_run
    if _any_run is None:
        _any_run = _run_pattern()
    if len(_known) + len(_plain) + len(runs) > _MOST_RUNS:
        _known.clear()
        _plain.clear()
    found = 0
    for run in runs:
        text = run.decode()
        lowercase_text = text.lower()
        keywords = _any_run.findall(lowercase_text)
        bits = (
            _bits_of(text, lowercase_text, keywords)
            if keywords or len(run) >= LEAST_TOKEN_CHARS
            else 0
        )
        if len(run) > _MOST_RUN_CHARS:
            pass
        elif bits:
            _known[run] = bits
        else:
            _plain.add(run)
        found |= bits
    return found


def _bits_of(run: str, lowercase_text: str, keywords: list[str]) -> int:
    bits = 0
    for longest in set(keywords):
        for size in range(2, len(longest) + 1):  # shorter keywords may match here too
            keyword = longest[:size]
            for bit, starts, ends in _bits_of_run.get(keyword, ()):
                alone = size == len(run) or not (starts and ends)
                at_start = not starts or lowercase_text.startswith(keyword)
                if alone and at_start and (not ends or lowercase_text.endswith(keyword)):
                    bits |= bit
    if len(run) >= LEAST_TOKEN_CHARS:
        for find, bit in _bit_of_token.items():
            if find(run) is not None:
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
    alternatives = branches[0] if len(branches) == 1 else "|".join(branches)
    return f"(?:{alternatives})?" if "" in tree else f"(?:{alternatives})"


MOST_LABELS = 8
"""So many keywords within one run of characters are tried as its label. The rest are part of it."""
COMMAND_CHARS = 2000
LINE_CHARS = 400


class SecretMatch(NamedTuple):
    """A secret at [start, end), and at [first, last) the whole match with its label."""

    rule: str
    start: int
    end: int
    first: int
    last: int

    def move(self, offset: int) -> SecretMatch:
        rule, start, end, first, last = self
        return SecretMatch(rule, start + offset, end + offset, first + offset, last + offset)


class RowPlace(Enum):
    """Where a rule's pattern is searched."""

    AT = auto()  # from the first character of the keyword
    BEHIND = auto()  # from the end of the keyword
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
    sought_text: str = ""
    """Words near which the pattern is searched, if not near the keywords."""
    back: int = 0
    near_pattern: re.Pattern[str] | None = None
    """Pattern that the lower-cased text around the match must contain too."""
    reach: tuple[int, int] = (0, 0)
    trim: str = ""
    whole: bool = False
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", re.compile(self.written))

    def find(self, reading: SearchedText, keyword: str) -> Iterator[SecretMatch]:
        """Find every secret that the rule recognizes near this keyword."""
        if self.place is RowPlace.TEXT:
            for match in self.pattern.finditer(reading.text):
                secret = self._judge(reading, match.start(), match)
                if secret is not None:
                    yield secret
            return
        match_from = self.pattern.match
        directly = self.place in (RowPlace.AT, RowPlace.BEHIND)
        for literal in keys(self.sought_text) if self.sought_text else (keyword,):
            places = reading.places(literal)
            if self.whole:
                places = [
                    offset for offset in places if begins_word(reading.lowercase_text, offset)
                ]
            behind = len(literal) if self.place is RowPlace.BEHIND else 0
            reach = tried = 0
            for index, offset in enumerate(places):
                if offset < reach and tried >= MOST_LABELS:
                    continue
                if directly:
                    found = match_from(reading.text, offset + behind)
                else:
                    found = self._match_near(reading.text, places, index)
                if found is not None:
                    tried = tried + 1 if offset < reach else 1
                    reach = max(reach, found.end())
                    secret = self._judge(reading, offset, found)
                    if secret is not None:
                        yield secret

    def _match_near(self, text: str, places: list[int], index: int) -> re.Match[str] | None:
        offset = places[index]
        if self.place is RowPlace.BEFORE:
            before = places[index - 2] if index > 1 else 0
            return self.pattern.search(text, max(before, offset - self.back), offset)
        end = min(_command_end(text, offset), offset + LINE_CHARS, *places[index + 1 : index + 2])
        return self.pattern.search(text, offset, end)

    def _judge(
        self, reading: SearchedText, offset: int, match: re.Match[str]
    ) -> SecretMatch | None:
        group = match.lastgroup or 0
        start, value = match.start(group), match[group]
        if self.trim:
            value = value.rstrip(self.trim)
        if self.judge is not None and not reading.judge_once(self.judge, value):
            return None
        if self.check is not None and not self.check(match, value):
            return None
        if self.near_pattern is not None:
            since, until = self._span_around(reading.text, offset, match)
            if self.near_pattern.search(reading.lowercase_text, since, until) is None:
                return None
        end = start + len(value)
        return SecretMatch(self.name, start, end, match.start(), max(end, match.end()))

    def _span_around(self, text: str, offset: int, match: re.Match[str]) -> tuple[int, int]:
        if self.reach == ON_LINE:
            end = match.end()
            return _command_start(text, offset), min(_command_end(text, end), end + LINE_CHARS)
        if self.reach == BEFORE_ON_LINE:
            return _command_start(text, offset), offset
        return max(0, offset - self.reach[0]), match.end() + self.reach[1]


ON_LINE, BEFORE_ON_LINE = (-1, -1), (-1, 0)


def find_by_rows(rows: Keywords[Row], reading: SearchedText) -> Iterator[SecretMatch]:
    last_row: Row | None = None
    for keyword, row in rows.find_held(reading.found):
        if row.sought_text or row.place is RowPlace.TEXT:
            if row is last_row or keyword not in reading.lowercase_text:
                continue
            last_row = row
        elif not reading.places(keyword):
            continue
        yield from row.find(reading, keyword)


def by_keywords(rows: Iterable[Row]) -> Keywords[Row]:
    return Keywords((keyword, row) for row in rows for keyword in keys(row.keywords))


def keys(text: str) -> tuple[str, ...]:
    return tuple(text.split("|"))


def begins_word(lowercase_text: str, offset: int) -> bool:
    return offset == 0 or not (
        lowercase_text[offset - 1].isalnum() or lowercase_text[offset - 1] in "_-.$/+\\=&?"
    )


def _line_start(text: str, offset: int) -> int:
    since = max(0, offset - LINE_CHARS)
    return max(text.rfind("\n", since, offset) + 1, since)


def _command_start(text: str, offset: int) -> int:
    since = _line_start(text, offset)
    while since > 1 and text[since - 2 : since] == "\\\n" and offset - since < LINE_CHARS:
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
