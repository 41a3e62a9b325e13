"""Sessions of clients that name none: recognised by the history that they send again.

A request goes on with the session whose last request it begins with. The last message of that
request may be missing: some clients append one that they never send again. Messages are compared
by what they say, not by their bytes, so cache marks that move and a string that became a block
make no difference. Histories that agree in nothing but the first words are different sessions.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from recollect.formats.codec import CODECS
from recollect.formats.request import split_request
from recollect.rules.identity import identify
from recollect.values.model import FormatName

MOST_SESSIONS: Final = 2_000
"""Conversations without a key that are recognised at a time; the longest unseen are let go."""
_VOLATILE_MESSAGES: Final = 1


class SessionRecognition:
    """Names for the conversations of one space whose clients give them none."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._known: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        """The identities of each session's last request, longest unseen first."""
        self._starts: dict[str, set[str]] = {}
        """Sessions by the identity of their first message."""

    def name(self, format_name: FormatName, body: bytes) -> str:
        """The session that this request belongs to; a new one where it goes on with none."""
        ids = self._identities(format_name, body)
        session = self._continued(ids) or self._new(ids)
        self._remember(session, ids)
        return session

    def _identities(self, format_name: FormatName, body: bytes) -> tuple[str, ...]:
        codec = CODECS[format_name]
        messages = split_request(body, format_name).messages
        ids = tuple(identify(codec.read(raw), self._secret) for raw in messages)
        return (f"{format_name}:{ids[0]}", *ids[1:]) if ids else ()

    def _continued(self, ids: Sequence[str]) -> str | None:
        """The session with the longest history that this one goes on with."""
        best, length = None, 0
        for session in self._starts.get(ids[0], ()) if ids else ():
            known = self._known[session]
            shared = _shared(known, ids)
            if shared >= max(1, len(known) - _VOLATILE_MESSAGES) and shared > length:
                best, length = session, shared
        return best

    def _new(self, ids: Sequence[str]) -> str:
        """A name that the same beginning gets again after a restart, unless it is taken."""
        start = hashlib.sha256((ids[0] if ids else "").encode()).hexdigest()[:16]
        number = 1
        while (name := f"unnamed:{start}" + (f"-{number}" if number > 1 else "")) in self._known:
            number += 1
        return name

    def _remember(self, session: str, ids: tuple[str, ...]) -> None:
        self._known[session] = ids
        self._known.move_to_end(session)
        if ids:
            self._starts.setdefault(ids[0], set()).add(session)
        while len(self._known) > MOST_SESSIONS:
            gone, last = self._known.popitem(last=False)
            begun = self._starts.get(last[0]) if last else None
            if begun is not None:
                begun.discard(gone)
                if not begun:
                    del self._starts[last[0]]


def _shared(known: Sequence[str], ids: Sequence[str]) -> int:
    """How many messages two histories have in common from their beginning."""
    count = 0
    for mine, theirs in zip(known, ids, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
