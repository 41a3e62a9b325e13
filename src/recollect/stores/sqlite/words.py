"""Words as FTS5 keeps them: as they are, but for what its tokenizer would change.

The tokenizer splits at white space and folds A to Z (see `schema.py`). So these, and the few
signs it cannot be told to keep, are written as an escape; it cannot stand in a word itself,
because it is escaped too. Always holds: two words are equal if and only if their forms are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from recollect.stores.sqlite.schema import ESCAPE_SIGN

_SPECIAL = re.compile("[\\x00-\\x20\\x7fA-Z'\"\ud800-\udfff]")
_SPECIAL_IN_BAG = re.compile("[\\x00-\\x1f\\x7fA-Z'\"\ud800-\udfff]")


def bag_of(words: Sequence[str]) -> str:
    """The words of a passage as one text for the index."""
    bag = " ".join(words)
    if bag.count(" ") < len(words) and _SPECIAL_IN_BAG.search(bag) is None:
        return bag
    return " ".join(map(form_of, words))


def form_of(word: str) -> str:
    """A word as the index knows it."""
    return _SPECIAL.sub(_escaped, word)


def _escaped(sign: re.Match[str]) -> str:
    return f"{ESCAPE_SIGN}{ord(sign[0]):x}{ESCAPE_SIGN}"
