"""Sessions of clients that name none: recognised by the history that they send again.

A request goes on with the session whose last request it begins with. The last message of that
request may be missing: some clients append one that they never send again. Messages are compared
by what they say, not by their bytes, so cache marks that move and a string that became a block
make no difference. Histories that agree in nothing but the first words are different sessions.
After a restart what the store knows of a session takes the place of what was in memory.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from recollect.formats.codec import CODECS
from recollect.formats.request import split_request
from recollect.rules.identity import identify
from recollect.values.message import MessageId
from recollect.values.model import FormatName

MOST_SESSIONS: Final = 2_000
"""Conversations without a key that are recognised at a time; the longest unseen are let go."""
MOST_ALIKE: Final = 50
"""So many sessions of one beginning are looked for in the store; the next one is a new one."""
VOLATILE_MESSAGES: Final = 1


class SessionRecognition:
    """Names for the conversations of one space whose clients give them none."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._known: OrderedDict[str, tuple[MessageId, ...]] = OrderedDict()
        """The identities of each session's last request, longest unseen first."""
        self._alike: dict[str, set[str]] = {}
        """Sessions by how they begin."""

    def identities(self, format_name: FormatName, body: bytes) -> tuple[MessageId, ...]:
        """What the messages of a request say, one after the other."""
        codec = CODECS[format_name]
        messages = split_request(body, format_name).messages
        return tuple(identify(codec.read(raw), self._secret) for raw in messages)

    def continued(self, format_name: FormatName, ids: Sequence[MessageId]) -> str | None:
        """The session with the longest history that this one goes on with."""
        best, length = None, 0
        for session in self._alike.get(_beginning(format_name, ids), ()):
            known = self._known[session]
            if goes_on(known, ids) and len(known) > length:
                best, length = session, len(known)
        return best

    def candidates(self, format_name: FormatName, ids: Sequence[MessageId]) -> list[str]:
        """Names that a session of this beginning may have had before a restart, then free ones."""
        start = _beginning(format_name, ids)
        numbered = (start if number == 1 else f"{start}-{number}" for number in range(1, 10_000))
        free = [
            name for name, _ in zip(numbered, range(len(self._known) + MOST_ALIKE), strict=False)
        ]
        return [name for name in free if name not in self._known][:MOST_ALIKE]

    def remember(self, format_name: FormatName, session: str, ids: tuple[MessageId, ...]) -> None:
        """What the session's last request was."""
        self._known[session] = ids
        self._known.move_to_end(session)
        self._alike.setdefault(_beginning(format_name, ids), set()).add(session)
        while len(self._known) > MOST_SESSIONS:
            gone, _ = self._known.popitem(last=False)
            start = gone.partition("-")[0]
            self._alike[start].discard(gone)
            if not self._alike[start]:
                del self._alike[start]


def goes_on(known: Sequence[MessageId], ids: Sequence[MessageId]) -> bool:
    """Whether a history goes on with a known one, but for a volatile message at its end."""
    shared = 0
    for mine, theirs in zip(known, ids, strict=False):
        if mine != theirs:
            break
        shared += 1
    return shared >= max(1, len(known) - VOLATILE_MESSAGES)


def _beginning(format_name: FormatName, ids: Sequence[MessageId]) -> str:
    """The name of the first session that begins so, the same after a restart."""
    first = f"{format_name}:{ids[0] if ids else ''}"
    return f"unnamed:{hashlib.sha256(first.encode()).hexdigest()[:16]}"
