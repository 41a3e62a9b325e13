"""Turns text into the words that lexical search counts, the same way for index and question. Words
are case-folded (NFKC), without English stop words, stemmed if ASCII. Scripts without spaces become
characters and pairs. `getUserName` and `src/payment/webhook.ts` also become their parts.

Also splits a message into passages, which are indexed and recalled: at newlines, else at sentences,
else at spaces. Passages are in order, do not overlap, and omit only white space."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import add
from typing import TYPE_CHECKING, Final
from unicodedata import normalize

from snowballstemmer.english_stemmer import EnglishStemmer

if TYPE_CHECKING:
    from collections.abc import Iterator


_STOP_WORD_LINES: Final = """
a an and are as at be been but by for from had has have if in into is it its no not of on or
such than that the then there these this to was were will with about
i me my you your he him his she her we our they them their
what when where which who how do does did
d ll m re s t ve
"""
STOP_WORDS: Final = frozenset(_STOP_WORD_LINES.split())
"""Common English words. The last line holds word ends after an apostrophe."""

# Longer runs are digests, base64 and similar. They are cut into words of this length, because words
# and caches must not become arbitrarily large. 64 characters hold a SHA-256.
_WORD_MAX_CHARS: Final = 64
_PATH_MAX_SEGMENTS: Final = 16

# A run of characters with more parts, or with many short ones, is random and not a name.
_NAME_MAX_PIECES: Final = 12
_NAME_MIN_PIECE_CHARS: Final = 3
_SHORT_NAME_PIECES: Final = 4

# Size of a cache with one entry per different word. An English session has about ten thousand.
_CACHED_WORDS: Final = 32_768

# Scripts written without spaces: Thai, Lao, Myanmar, Khmer; Hangul (jamo and syllables), Hiragana,
# Katakana (half-width too), Bopomofo, Yi, and Han with all extensions and compatibility forms.
# Brackets and punctuation of those blocks are excluded.
_UNSPACED: Final = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u1049\u1050-\u109f\u1780-\u17d3"
    "\u1100-\u11ff\ua960-\ua97c\ud7b0-\ud7fb\u3131-\u318e\uac00-\ud7a3\uffa0-\uffdc"
    "\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
    "\U0001b000-\U0001b16f"
    "\u3105-\u312f\u31a0-\u31bf\ua000-\ua48c"
    "\u3005-\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
# Marks that belong to the letter before them, which `\w` does not match: separate accents,
# the vowel signs of Hebrew, Arabic and the Indic scripts.
_MARKS: Final = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06ed\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963"
    "\u0981-\u0983\u09bc-\u09cd\u0a01-\u0a03\u0a3c-\u0a4d\u0a81-\u0a83\u0abc-\u0acd"
    "\u0b01-\u0b03\u0b3c-\u0b4d\u0b82\u0bbe-\u0bcd\u0c00-\u0c04\u0c3e-\u0c4d"
    "\u0c81-\u0c83\u0cbc-\u0ccd\u0d00-\u0d03\u0d3b-\u0d4d\u0d81-\u0d83\u0dca-\u0ddf"
)
_JOINT: Final = r"(?:[./]|::|\\\\?)"
_ASCII_RUN: Final = rf"\w{{1,{_WORD_MAX_CHARS}}}"
_ANY_RUN: Final = (
    rf"[^\W{_UNSPACED}]{{1,{_WORD_MAX_CHARS}}}"
    rf"(?:[{_MARKS}]{{1,8}}[^\W{_UNSPACED}]{{0,{_WORD_MAX_CHARS}}}){{0,{_WORD_MAX_CHARS}}}"
)


def _path_of(run: str) -> str:
    return rf"{run}(?:{_JOINT}{run}){{0,{_PATH_MAX_SEGMENTS - 1}}}"


_ASCII_CHUNKS: Final = re.compile(_path_of(_ASCII_RUN), re.ASCII)
_ANY_CHUNKS: Final = re.compile(_path_of(_ANY_RUN))
_UNSPACED_RUNS: Final = re.compile(f"[{_UNSPACED}]+")
_JOINTS: Final = re.compile(_JOINT)
# aB | HTTPServer -> HTTP Server, but not the plural in "URLs".
_HUMPS: Final = re.compile(
    r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])(?![A-Z]s(?![a-z]))", re.ASCII
)

# Always the pure Python stemmer: stems must not depend on installed packages.
_stemmer: Final = EnglishStemmer()
_stemmer_lock: Final = threading.Lock()  # the stemmer holds its word, so threads must take turns
os.register_at_fork(
    before=_stemmer_lock.acquire,
    after_in_parent=_stemmer_lock.release,
    after_in_child=_stemmer_lock.release,
)


def is_unspaced_pair(word: str) -> bool:
    """Return whether an index word is a pair of characters in a script without spaces."""
    return len(word) == 2 and _UNSPACED_RUNS.fullmatch(word) is not None


def tokenize(text: str) -> list[str]:
    if text.isascii():
        return list(chain.from_iterable(map(_words_of_chunk, _ASCII_CHUNKS.findall(text))))
    words = list(chain.from_iterable(map(_words_of_chunk, _ANY_CHUNKS.findall(text))))
    for run in _UNSPACED_RUNS.findall(text):
        nfkc_text = normalize("NFKC", run)
        words.extend(nfkc_text)
        words.extend(map(add, nfkc_text, nfkc_text[1:]))
    return words


@lru_cache(maxsize=_CACHED_WORDS)
def _words_of_chunk(chunk: str) -> tuple[str, ...]:
    if not chunk.isascii():
        nfkc_chunk = normalize("NFKC", chunk)
        # one letter may become several words, also in a script without spaces
        if nfkc_chunk != chunk:
            return tuple(tokenize(nfkc_chunk))
    segments = _JOINTS.split(chunk)
    if len(segments) == 1:
        return tuple(_words_of_name(chunk))
    whole_word = _fold(_JOINTS.sub(_plain_joint, chunk))
    words = [whole_word]
    _, slash, file_name = whole_word.rpartition("/")
    if slash and "." in file_name:
        words.append(file_name)
    for segment in segments:
        words.extend(_words_of_name(segment))
    return tuple(words)


def _plain_joint(joint: re.Match[str]) -> str:
    return "/" if joint[0].startswith("\\") else joint[0]


def _words_of_name(name: str) -> Iterator[str]:
    pieces = [piece for part in name.split("_") if part for piece in _humps(part)]
    if len(pieces) > 1:
        joined_name = _fold("".join(pieces))
        if joined_name not in STOP_WORDS:  # "dO" is not a name
            yield _stem(joined_name)
        pieces = [piece for piece in pieces if len(piece) > 1]
    for piece in pieces:
        word = _fold(piece)
        if word not in STOP_WORDS:
            yield _stem(word)


def _humps(name: str) -> list[str]:
    if name.islower() or not name.isascii():
        return [name]
    pieces = _HUMPS.split(name)
    crowded = len(pieces) > _SHORT_NAME_PIECES and len(name) < _NAME_MIN_PIECE_CHARS * len(pieces)
    return [name] if crowded or len(pieces) > _NAME_MAX_PIECES else pieces


def _fold(word: str) -> str:
    return word.lower() if word.isascii() else normalize("NFKC", word.casefold())


@lru_cache(maxsize=_CACHED_WORDS)
def _stem(word: str) -> str:
    if not (word.isascii() and word.isalpha()):
        return word  # numbers and versions have no stem, and other languages need another stemmer
    with _stemmer_lock:
        stem: str = _stemmer.stemWord(word)
    return stem


WHOLE_MAX_CHARS: Final = 585
"""Maximum length of a passage. A text up to this length is one passage."""
TARGET_CHARS: Final = 450
"""Pieces of a longer text are joined up to about this length."""
TAIL_MIN_CHARS: Final = 90
"""If the last passage would be shorter than this, it is joined to the one before."""

_LINES: Final = re.compile(r"\S(?:[^\n]*\S)?")
_NEXT_WORD: Final = re.compile(r"\S")
# End of a sentence: white space after its mark, which may be followed by a quote or bracket.
# Chinese and Japanese marks need no white space. The pattern only looks back, which keeps the
# search linear.
_AFTER_SENTENCES: Final = re.compile(
    r"(?<=[.!?…])\s+|(?<=[.!?…][\"'”’)\]])\s+"
    r"|(?<=[。！？])(?![。！？」』”’）】])\s*|(?<=[。！？][」』”’）】])\s*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A span of a text: `text` is the source from `start` up to `end`, in characters."""

    start: int
    end: int
    text: str


def split_passages(text: str) -> tuple[Passage, ...]:
    start = len(text) - len(text.lstrip())
    end = len(text.rstrip())
    if start >= end:
        return ()
    is_whole = end - start <= WHOLE_MAX_CHARS
    spans = [(start, end)] if is_whole else _pack_units(_units(text, start, end))
    return tuple(Passage(start=first, end=last, text=text[first:last]) for first, last in spans)


def _pack_units(units: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for start, end in units:
        if spans and end - spans[-1][0] <= TARGET_CHARS:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    if len(spans) > 1:
        (before, _), (start, end) = spans[-2:]
        if end - start < TAIL_MIN_CHARS and end - before <= WHOLE_MAX_CHARS:
            spans[-2:] = [(before, end)]
    return spans


def _units(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for line in _LINES.finditer(text, start, end):
        if line.end() - line.start() <= TARGET_CHARS:
            yield line.span()
            continue
        for sentence_start, sentence_end in _sentences(text, line.start(), line.end()):
            yield from _stretches(text, sentence_start, sentence_end)


def _sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for gap in _AFTER_SENTENCES.finditer(text, start, end):
        if start < gap.start():
            yield start, gap.start()
        start = gap.end()
    if start < end:
        yield start, end


def _stretches(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while end - start > TARGET_CHARS:
        space = text.rfind(" ", start + TARGET_CHARS // 2, start + TARGET_CHARS + 1)
        cut = space if space >= 0 else start + TARGET_CHARS
        yield start, start + len(text[start:cut].rstrip())
        next_word = _NEXT_WORD.search(text, cut, end)
        assert next_word is not None, "a sentence ends with a character that is not white space"
        start = next_word.start()
    yield start, end
