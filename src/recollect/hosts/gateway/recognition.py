"""Sessions of clients that name none: recognised by the reply that they send back.

A request continues a session if it repeats the session's last request and the reply that the
session received to it. A shared beginning is never enough: applications send the same greeting,
primer or examples for all of their users. So a session holds nothing that a request which
continues it does not hold itself, and one conversation cannot read another. Everything is keyed
by the caller's credential too: two callers never share a session, whatever they send.

Replies are compared by their words and tool calls, so moved cache marks, a string that became a
block and thinking that was left out make no difference. One case needs no reply: the last request
got no whole reply (an error, a stream that was cancelled). Then the same request, or a longer one
in a session that received a reply before, continues it, under the same system prompt.

Everything else is a new session, also the next turn of a client that leaves out a message which it
sent before. It loses little, because such clients resend the rest of the history.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from recollect.core.formats.codec import CODECS
from recollect.core.formats.request import split_request
from recollect.core.rules.identity import identify, unnamed_session
from recollect.core.values.message import EntryKey, Message, MessageId, Role, Text, ToolCall
from recollect.core.values.model import FormatName

MOST_SESSIONS: Final = 2_000
"""Conversations that are recognised from memory; older ones are looked up in the store."""
MOST_MESSAGES: Final = 20_000
MOST_ALIKE: Final = 8
"""Sessions with the same history and the same reply that the store can tell apart."""
_DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyWords:
    """What a reply says, apart from white space, thinking and how it is spelled."""

    text: str = field(repr=False)
    calls: tuple[str, ...] = field(repr=False)


def reply_words(messages: Iterable[Message]) -> ReplyWords | None:
    """What the messages of a reply say; None where they say nothing."""
    parts = [part for message in messages for part in message.parts]
    text = "".join("".join(part.text.split()) for part in parts if isinstance(part, Text))
    calls = tuple(
        f"{part.id}\0{part.name}\0{part.arguments}" for part in parts if isinstance(part, ToolCall)
    )
    return ReplyWords(text=text, calls=calls) if text or calls else None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the messages of a request say, and whose they are; keyed by the caller's credential."""

    start: str
    """The name that all sessions of this format and first message begin with."""
    secret: bytes = field(repr=False)
    ids: tuple[MessageId, ...]
    system: bytes = field(repr=False)
    """The system prompt that is no message."""
    before_reply: int | None = None
    """How many messages precede the last reply in it; None where it holds no reply."""
    after_reply: int = 0
    """How many messages it holds up to the end of that reply."""
    reply: ReplyWords | None = None
    """The last reply in it."""

    def asked(self, count: int | None = None) -> str:
        """The mark of its first `count` messages, of all by default, with the system prompt."""
        return self._mark(b"asked", self.ids[:count], self.system)

    def begun(self, count: int | None = None) -> str:
        """The mark of its first `count` messages."""
        return self._mark(b"begun", self.ids[:count])

    def replied(self, reply: ReplyWords) -> str:
        """The mark of this whole history, answered by `reply`."""
        return self._replied(len(self.ids), reply)

    @property
    def repeats(self) -> str | None:
        """The mark of the session that it continues; None where it holds no reply."""
        return None if self.reply is None else self._replied(self.before_reply, self.reply)

    def _replied(self, count: int | None, reply: ReplyWords) -> str:
        words = "\0".join((reply.text, *reply.calls)).encode("utf-8", "surrogatepass")
        return self._mark(b"reply", self.ids[:count], hashlib.blake2b(words).digest())

    def _mark(self, kind: bytes, ids: Sequence[MessageId], more: bytes = b"") -> str:
        mark = hashlib.blake2b(key=self.secret, digest_size=_DIGEST_BYTES)
        mark.update(b"%s\0%s\0%d\0" % (kind, self.start.encode(), len(ids)))
        mark.update("".join(ids).encode())
        mark.update(more)
        return mark.hexdigest()


@dataclass(slots=True)
class _Known:
    history: History
    heard: bool
    """Whether it received a whole reply, ever."""
    marks: list[str]
    stored: EntryKey | None
    """Its newest message when it was found in the store."""
    answered: bool = False
    """Whether it received a whole reply to its last request."""


class SessionRecognition:
    """Names for the conversations of one space whose clients give them none."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._known: OrderedDict[str, _Known] = OrderedDict()
        """Sessions, longest unseen first."""
        self._marked: dict[str, dict[str, None]] = {}
        """Sessions by their marks."""
        self._messages: OrderedDict[tuple[FormatName, bytes], tuple[MessageId, Role]] = (
            OrderedDict()
        )
        """Messages by their bytes: a history is sent again with every request."""

    def history(self, format_name: FormatName, body: bytes, credential: str) -> History:
        """Read what a request says; what an earlier one said in the same bytes is known."""
        request = split_request(body, format_name)
        raws = request.messages
        known = [self._read(format_name, raw) for raw in raws]
        roles = [role for _, role in known]
        lead = next((at for at, role in enumerate(roles) if role != "system"), len(roles))
        first = known[lead][0] if lead < len(known) else ""
        key = f"{credential}\0{request.continues_from}".encode()
        end = next((at for at in range(len(roles), 0, -1) if roles[at - 1] == "assistant"), 0)
        begin = end
        while begin and roles[begin - 1] == "assistant":
            begin -= 1
        reply = reply_words(CODECS[format_name].read(raw) for raw in raws[begin:end])
        return History(
            start=unnamed_session(format_name, first),
            secret=hashlib.blake2b(key, key=self._secret, digest_size=32).digest(),
            ids=tuple(identity for identity, _ in known),
            system=hashlib.blake2b(request.system or b"").digest(),
            before_reply=begin if end else None,
            after_reply=end,
            reply=reply,
        )

    def _read(self, format_name: FormatName, raw: bytes) -> tuple[MessageId, Role]:
        digest = hashlib.blake2b(raw, digest_size=16).digest()
        known = self._messages.get((format_name, digest))
        if known is None:
            message = CODECS[format_name].read(raw)
            known = identify(message, self._secret), message.role
            self._messages[format_name, digest] = known
            if len(self._messages) > MOST_MESSAGES:
                self._messages.popitem(last=False)
        return known

    def awaited(self, history: History) -> tuple[str, ...]:
        """Sessions that may be about to receive the reply that this history repeats."""
        if history.before_reply is None:
            return ()
        found = self._with(history.begun(history.before_reply))
        return tuple(name for name in found if not self._known[name].answered)

    def continued(self, history: History, running: Collection[str]) -> str | None:
        """The session that this history continues, as far as memory knows; none of `running`."""
        whole = len(history.ids)
        for count in range(whole, history.after_reply - 1, -1):
            name = self._unanswered(history, count, running, heard=count < whole)
            if name is not None:
                return name
        if history.before_reply is None:
            return None
        exact = self._with(history.repeats)
        if exact:
            return exact[-1]
        return self._unanswered(history, history.before_reply, running, heard=True)

    def _unanswered(
        self, history: History, count: int, running: Collection[str], *, heard: bool
    ) -> str | None:
        found = [
            name
            for name in self._with(history.asked(count))
            if name not in running and (self._known[name].heard or not heard)
        ]
        return found[-1] if found else None

    def _with(self, mark: str | None) -> list[str]:
        return [] if mark is None else list(self._marked.get(mark, ()))

    def stored_marks(self, history: History) -> tuple[str, ...]:
        """The marks to look for in the store, in the order in which they count."""
        mark = history.repeats
        return () if mark is None else tuple(_slot(mark, at) for at in range(MOST_ALIKE))

    def knows(self, session: str) -> bool:
        """Whether what is in memory of a session counts, and not what the store says."""
        return session in self._known

    def new_name(self, history: History) -> str:
        """A name that no session has."""
        return f"{history.start}-{secrets.token_hex(4)}"

    def stored_before(self, session: str) -> EntryKey | None:
        """The newest message of a session when it was found in the store."""
        known = self._known.get(session)
        return None if known is None else known.stored

    def remember(
        self,
        session: str,
        history: History,
        *,
        heard: bool = False,
        stored: EntryKey | None = None,
    ) -> None:
        """Note the session's last request; `heard`: it received a reply before."""
        known = self._known.get(session)
        self.forget(session)
        marks = [history.asked(), history.begun()]
        if known is not None:
            heard, stored = heard or known.heard, stored or known.stored
        self._known[session] = _Known(history, heard, marks, stored)
        self._mark(session, marks)
        while len(self._known) > MOST_SESSIONS:
            self.forget(next(iter(self._known)))

    def forget(self, session: str) -> None:
        """Let go of what memory knows of a session."""
        known = self._known.pop(session, None)
        for mark in () if known is None else known.marks:
            self._marked[mark].pop(session, None)
            if not self._marked[mark]:
                del self._marked[mark]

    def heard(self, session: str, history: History, messages: Sequence[Message]) -> tuple[str, ...]:
        """Note a whole reply to a session's last request; the marks under which to store it."""
        known, reply = self._known.get(session), reply_words(messages)
        if known is None or known.history is not history or reply is None:
            return ()
        self.forget(session)
        mark = history.replied(reply)
        at = len(self._with(mark))
        known.heard = known.answered = True
        known.marks = [mark, history.begun()]
        self._known[session] = known
        self._mark(session, known.marks)
        return (_slot(mark, at),) if at < MOST_ALIKE else ()

    def _mark(self, session: str, marks: Iterable[str]) -> None:
        for mark in marks:
            self._marked.setdefault(mark, {})[session] = None


def _slot(mark: str, at: int) -> str:
    return f"{mark}-{at}"
