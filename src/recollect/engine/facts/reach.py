"""Whose facts a statement is held against: never those of a session that it is no business of.

Owns one decision. Under `recall.scope = "session"`, and "auto", which is that for what is said now,
a session's facts are its own. What came by import, hook, note or file belongs to no session but to
the whole space, and is held against its like alone. Under "space" all are one memory. Always holds:
what one session says neither closes, nor lends its words to, a fact that another one recalls.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from recollect.config.settings import Scope
from recollect.values.fact import Fact
from recollect.values.segment import Segment

_OF_THE_SPACE: Final = frozenset({"import", "hook", "note", "file"})
NO_SESSION: Final = ""
"""Asked of a store as a session, which none is named: only facts of no session are found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Which facts are in reach, and whose a new one is."""

    session: str | None
    """Whose new facts are; None: the whole space's."""
    everything: bool = False
    """All sessions are one memory."""

    @property
    def asked(self) -> str | None:
        """What a store is asked for; it finds those of no session, too."""
        if self.everything:
            return None
        return NO_SESSION if self.session is None else self.session

    def holds(self, fact: Fact) -> bool:
        """Whether a fact may be replaced, joined or summed up from here."""
        return self.everything or fact.session == self.session


def reach_of(session: str, segments: Iterable[Segment], scope: Scope) -> Reach:
    """The reach of what a session said in these messages."""
    if scope == "space":
        return Reach(session=session, everything=True)
    if all(one.source in _OF_THE_SPACE for one in segments):
        return Reach(session=None)
    return Reach(session=session)
