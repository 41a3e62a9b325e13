"""Finds what can only mean one thing: paths, symbols, hashes, addresses, codes, versions.

A word may mean anything; an identifier that memory holds and the view has lost is reason enough
to recall (measured: docs/gate.md). Owns the shapes. Must never take an ordinary word, a date or a
small number for one. What always holds: an identifier is known by one word of the index, the
longest that the tokenizer makes of it; the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from recollect.search.tokenize import tokenize

_SHAPES: Final = re.compile(
    r"""
    [a-z][a-z0-9+]{1,12}://[^\s"'<>()\[\]{}`]{3,200}                  # an address
    |(?:~|\.{1,2})?/?(?:[\w@.+-]{1,80}[/\\]){1,20}[\w@.+-]{2,80}      # a path
    |(?<![\w.])[\w-]{2,80}\.[A-Za-z]\w{0,4}\b(?!\()                   # a file's name
    |\b[A-Za-z_$][\w$]{0,60}(?:(?:\.|::|->)[A-Za-z_$][\w$]{0,60}){1,8}
    |\b[A-Za-z$]\w{0,60}_\w{1,60}\b|\b_\w{3,60}\b                     # a name in code
    |\b[a-z][a-z0-9]{0,40}[A-Z]\w{0,60}\b|\b[A-Z][a-z0-9]{1,40}[A-Z]\w{0,60}\b
    |\b(?=[0-9a-f]{0,63}\d)(?=[0-9a-f]{0,63}[a-f])[0-9a-f]{7,64}\b    # a hash
    |\b\d{5,20}\b                                                     # a long number
    |\bv?\d{1,4}\.\d{1,5}(?:\.\d{1,6}){1,3}(?:-[\w.]{1,20})?\b        # a version
    |\b(?:E[A-Z]{4,20}|[A-Z]{1,6}-?\d{3,8})\b                         # an error's code, a ticket
    |\#\d{2,8}\b
    |(?<![\w-])--[a-z][\w-]{2,40}                                     # an option
    |\b[A-Za-z]\w{0,40}(?:[-.]\w{1,40}){1,6}(?<=[-.]\d)\b            # us-east-1
    |\b[A-Za-z]\w{0,40}(?:-\w{1,40}){0,4}-\w{0,20}\d\w{0,20}\b       # biscuit-01, pool-b2
    |\bX-[A-Z]\w{1,30}(?:-[A-Z]\w{0,30}){0,5}\b                      # X-Ledger-Once
    |\b[A-Z]\w{0,30}(?:-[A-Z]\w{0,30}){2,6}\b                        # Idempotency-Key-Id
    """,
    re.VERBOSE | re.ASCII,
)
# What has such a shape and is none: and/or, 7/22, 2023/05/07, 22.07.2023, U.S.
_PLAIN: Final = re.compile(
    r"[A-Za-z][a-z]*/[A-Za-z][a-z]*|\d{1,4}(?:[/-]\d{1,4})+|\d{1,2}\.\d{1,2}\.(?:19|20)\d\d"
    r"|(?:[A-Za-z]\.)+[A-Za-z]?|[A-Za-z]+-(?:19|20)\d\d|top-\d+|[A-Z]{2,}-\d{1,2}"
)
_RUNS: Final = re.compile(r"\S+", re.ASCII)
_LEAST_CHARS: Final = 4
_PIECES: Final = re.compile(r"[^\w./:\\]+")
_MOST: Final = 24
_READ_CHARS: Final = 8_000
"""A message is read so far: what follows is a pasted log, which names everything."""


def identifiers_in(text: str) -> dict[str, str]:
    """The identifiers of a text as written, by the word of the index they are known by."""
    found: dict[str, str] = {}
    for written in shapes_in(text[:_READ_CHARS]):
        words = tokenize(written)
        if words:
            found.setdefault(max(words, key=len), written)
            if len(found) == _MOST:
                break
    return found


def shapes_in(text: str) -> Iterator[str]:
    """The identifiers of a text as written, all of them, repeats included."""
    for shape in _SHAPES.finditer(_without_plain_words(text)):
        written = shape[0].rstrip(".,:;/")
        if len(written) < _LEAST_CHARS and not written.startswith("#"):
            continue
        if not _PLAIN.fullmatch(written):
            yield written


def _without_plain_words(text: str) -> str:
    """The text without what no shape can match, which is most of it.

    No shape reaches over white space, and each asks for a sign, a digit or a capital further in.
    """
    return " ".join(
        [run for run in _RUNS.findall(text) if not (run.isalpha() and (run[1:] or "a").islower())]
    )


def words_of(written: str) -> tuple[str, ...]:
    """What whoever holds an identifier must hold: a word for each piece the index knows whole.

    `src/app.py` is one; `ABC-123` and `--dry-run` are two, and neither alone is the identifier.
    """
    pieces = filter(None, map(tokenize, _PIECES.split(written)))
    return tuple(dict.fromkeys(max(words, key=len) for words in pieces))
