"""Sessions of clients that name none: recognised by the history that they send again.

A request goes on with the session whose last request it begins with. The last message of that
request may be missing: some clients append one that they never send again. Messages are compared
by what they say, not by their bytes, so cache marks that move and a string that became a block
make no difference. Histories that agree in nothing but the first words are different sessions.
After a restart what the store knows of a session takes the place of what was in memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from recollect.formats.codec import CODECS
from recollect.formats.request import split_request
from recollect.rules.identity import identify, unnamed_session
from recollect.values.message import MessageId, Role
from recollect.values.model import FormatName

MOST_SESSIONS: Final = 2_000
"""Conversations without a key that are recognised at a time; the longest unseen are let go."""
MOST_ALIKE: Final = 50
"""So many sessions of one beginning are looked for in the store; the next one is a new one."""
VOLATILE_MESSAGES: Final = 1
MOST_MESSAGES: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the messages of a request say, one after the other."""

    ids: tuple[MessageId, ...]
    lead: int = 0
    """How many system messages it begins with: conversations share those."""

    def goes_on_with(self, known: Sequence[MessageId]) -> bool:
        """Whether it goes on with a known history, but for a volatile message at that one's end."""
        shared = 0
        for mine, theirs in zip(known, self.ids, strict=False):
            if mine != theirs:
                break
            shared += 1
        return shared > self.lead and shared >= len(known) - VOLATILE_MESSAGES


class SessionRecognition:
    """Names for the conversations of one space whose clients give them none."""

    def __init__(self, secret: bytes) -> None:
        self.naming = asyncio.Lock()
        """One conversation is named at a time, so that two of one beginning get two names."""
        self._secret = secret
        self._known: OrderedDict[str, tuple[MessageId, ...]] = OrderedDict()
        """The identities of each session's last request, longest unseen first."""
        self._alike: dict[str, set[str]] = {}
        """Sessions by how they begin."""
        self._messages: OrderedDict[tuple[FormatName, bytes], tuple[MessageId, Role]] = (
            OrderedDict()
        )
        """Messages by their bytes: a history is sent again with every request."""

    def history(self, format_name: FormatName, body: bytes) -> History:
        """Read what a request says; what an earlier one said in the same bytes is known."""
        raws = split_request(body, format_name).messages
        told = [self._told(format_name, raw) for raw in raws]
        lead = next((at for at, (_, role) in enumerate(told) if role != "system"), len(told))
        return History(ids=tuple(identity for identity, _ in told), lead=lead)

    def _told(self, format_name: FormatName, raw: bytes) -> tuple[MessageId, Role]:
        """A message's identity, and whose it is."""
        digest = hashlib.blake2b(raw, digest_size=16).digest()
        told = self._messages.get((format_name, digest))
        if told is None:
            message = CODECS[format_name].read(raw)
            told = identify(message, self._secret), message.role
            self._messages[format_name, digest] = told
            if len(self._messages) > MOST_MESSAGES:
                self._messages.popitem(last=False)
        return told

    def continued(self, format_name: FormatName, history: History) -> str | None:
        """The session with the longest history that this one goes on with."""
        best, length = None, 0
        for session in self._alike.get(_beginning(format_name, history), ()):
            known = self._known[session]
            if history.goes_on_with(known) and len(known) > length:
                best, length = session, len(known)
        return best

    def candidates(self, format_name: FormatName, history: History) -> list[str]:
        """Names that a session of this beginning may have had before a restart, then free ones."""
        start = _beginning(format_name, history)
        taken = len(self._alike.get(start, ()))
        numbers = range(1, taken + MOST_ALIKE + 1)
        names = [start if number == 1 else f"{start}-{number}" for number in numbers]
        return [name for name in names if name not in self._known]

    def is_last(self, session: str, stored: Sequence[MessageId]) -> bool:
        """Whether what is stored of a session is what was last seen of it here."""
        seen = self._known[session]
        return tuple(stored[: len(seen)]) == seen

    def new_name(self, format_name: FormatName, history: History) -> str:
        """A name that no session has, where too many begin alike to look for more."""
        return f"{_beginning(format_name, history)}-{secrets.token_hex(4)}"

    def remember(self, format_name: FormatName, session: str, history: History) -> None:
        """What the session's last request was."""
        self._known[session] = history.ids
        self._known.move_to_end(session)
        self._alike.setdefault(_beginning(format_name, history), set()).add(session)
        while len(self._known) > MOST_SESSIONS:
            gone, _ = self._known.popitem(last=False)
            start = gone.partition("-")[0]
            self._alike[start].discard(gone)
            if not self._alike[start]:
                del self._alike[start]


def _beginning(format_name: FormatName, history: History) -> str:
    """The name of the first session that begins so, the same after a restart."""
    return unnamed_session(format_name, next(iter(history.ids[history.lead :]), ""))
