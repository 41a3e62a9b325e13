"""Whether stored bytes hold a text, case aside and however JSON spells it.

For what is about no message: pieces, jobs and session states are looked through when a text is to
be forgotten. Both engines look here, so that they forget alike. Always holds: too much is found
rather than too little.
"""

from __future__ import annotations

import re
from typing import Final

from recollect.errors import FormatError
from recollect.formats.session_state import join_state, without_quotes, write_state
from recollect.values.edit import Shorten

_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_SHORT: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
# JSON that stands as a text in JSON, as arguments of tool calls do, is escaped twice.
_LEVELS: Final = 3


class HeldText:
    """A text that is looked for."""

    __slots__ = ("_folded",)

    def __init__(self, text: str) -> None:
        self._folded = text.casefold()

    def __repr__(self) -> str:
        return "HeldText(...)"

    def stands_in(self, held: bytes | str | None) -> bool:
        """Whether it is there."""
        if not held or not self._folded:
            return False
        text = held if isinstance(held, str) else held.decode("utf-8", "replace")
        for _ in range(_LEVELS):
            if self._folded in text.casefold():
                return True
            if "\\" not in text:
                return False
            text = _unescaped(text)
        return self._folded in text.casefold()

    def taken_out_of(self, state: bytes) -> bytes | None:
        """A session's state without any quote; None when it holds the text all the same.

        The state itself when the text is not in it; a state that cannot be read is taken to
        hold it where its bytes do.
        """
        try:
            held = join_state(state, (), ())
            if not self.stands_in(write_state(held)):
                return state
            anchors = frozenset(edit.anchor for edit in held.edits if isinstance(edit, Shorten))
            cleaned = without_quotes(state, anchors)
            left = write_state(join_state(cleaned, (), ()))
        except FormatError:
            return None if self.stands_in(state) else state
        return None if self.stands_in(left) else cleaned


def _unescaped(text: str) -> str:
    plain = _ESCAPE.sub(_meant, text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _meant(escape: re.Match[str]) -> str:
    if escape[1]:
        return chr(int(escape[1], 16))
    return _SHORT.get(escape[2], escape[2])
