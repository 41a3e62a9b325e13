"""Says whether a text holds what a probe asks for, and what a sentence says without it.

Owns the one test by which a summary, a recalled text and a pinned line are judged. Exact things
must stand there literally: white space aside, a hash in any case, and never as part of a longer
word or number. What was settled in words must stand there in words enough: three fifths of its
content words within two neighbouring lines, every exact thing in it among them, and a "not" where
it says "not". Must never call something held that a reader could not find. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from recollect.compaction.exact import exact_things
from recollect.search.question import substance
from recollect.search.tokenize import tokenize
from recollect.values.compaction import Probe, ProbeKind

WORDED: Final[frozenset[ProbeKind]] = frozenset(
    {"error", "decision", "constraint", "task", "attempt"}
)
"""Kinds that are known by their words; the others by their spelling."""
WORDS_SHARE: Final = 0.6
"""Of a statement's content words, so many have to stand together for it to be held: ours, the
least at which a statement with another verb or object is not taken for it (test_receipt.py)."""
_NEGATION: Final = re.compile(
    r"\b(?:not|never|no|none|without|cannot|nor|avoid|forbid(?:den)?|fail(?:s|ed|ure)?|broken|\w+n't)\b"
    r"|不|没|禁|勿",
    re.IGNORECASE,
)
_KNOWN_TEXTS: Final = 64


def holds(text: str, probe: Probe) -> bool:
    """Whether a reader of the text finds what the probe asks for."""
    return holds_literally(text, probe) or (probe.kind in WORDED and _in_words(text, probe))


def without(sentence: str, texts: tuple[str, ...]) -> str:
    """A sentence with these texts masked."""
    masked = " ".join(sentence.split())
    for text in sorted(texts, key=len, reverse=True):
        wanted = r"\s+".join(map(re.escape, text.split()))
        masked = re.sub(wanted, " ", masked, flags=re.IGNORECASE)
    return " ".join(masked.split())


def says_something(text: str) -> bool:
    """Whether memory can be asked by this: it is about something."""
    return bool(substance(text, tuple(tokenize(text))))


def holds_literally(text: str, probe: Probe) -> bool:
    """Whether the probe stands in the text as it is spelled."""
    wanted = " ".join(probe.text.split())
    if not wanted:
        return False
    within = _normalised(text)
    if probe.kind == "hash" or probe.kind in WORDED:
        wanted, within = wanted.casefold(), within.casefold()
    digits = probe.kind == "number"
    at = within.find(wanted)
    while at >= 0:
        if _stands_alone(within, at, at + len(wanted), number=digits):
            return True
        at = within.find(wanted, at + 1)
    return False


def _stands_alone(text: str, start: int, end: int, *, number: bool) -> bool:
    before, after = text[start - 1 : start], text[end : end + 1]
    if _wordy(before) and _wordy(text[start]):
        return False
    if _wordy(after) and _wordy(text[end - 1]):
        return False
    if not number:
        return True
    return not (
        (after in {".", ","} and text[end + 1 : end + 2].isdigit())
        or (before in {".", ","} and text[start - 2 : start - 1].isdigit())
    )


def _wordy(sign: str) -> bool:
    return sign.isalnum() or sign == "_"


def _in_words(text: str, probe: Probe) -> bool:
    words = content_words(probe.text)
    if not words:
        return False
    exact = [thing.text.casefold() for thing in exact_things(probe.text)]
    negated = _NEGATION.search(probe.text) is not None
    for said, held in _stretches(text):
        if len(words & held) < WORDS_SHARE * len(words):
            continue
        if negated and not _NEGATION.search(said):
            continue
        if all(one in said.casefold() for one in exact):
            return True
    return False


def content_words(text: str) -> frozenset[str]:
    """The words of a statement that it is about."""
    return frozenset(substance(text, tuple(tokenize(text))))


@lru_cache(maxsize=_KNOWN_TEXTS)
def _normalised(text: str) -> str:
    return " ".join(text.split())


@lru_cache(maxsize=_KNOWN_TEXTS)
def _stretches(text: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """Each line together with the one behind it, and its words."""
    return tuple(_two_lines(text))


def _two_lines(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    lines = [line for line in text.splitlines() if line.strip()]
    words = [content_words(line) for line in lines]
    for at, line in enumerate(lines):
        behind = lines[at + 1] if at + 1 < len(lines) else ""
        also = words[at + 1] if at + 1 < len(lines) else frozenset()
        yield f"{line}\n{behind}", words[at] | also
