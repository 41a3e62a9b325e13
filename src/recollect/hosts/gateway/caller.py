"""Identifies the sender of a request: the client, its session, and the kind of request. If a client
sends no session name, its session is recognized by the reply that the client sends back. A request
continues a session if it repeats the session's last request with its reply. Equal first messages do
not identify a session, because applications greet all users alike. Every mark is keyed by the
caller's credential, so two callers never share a session. A name that others could guess proves
nothing: then everything that may identify the caller must be the same as in the session's last
request, or the request must repeat the whole session."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from typing import Any, Final, Literal, TypeAlias

import msgspec

from recollect.core.formats.anthropic import SYSTEM_INSIDE_BETAS
from recollect.core.formats.codec import CODECS
from recollect.core.formats.json_text import decode
from recollect.core.formats.request import split_request
from recollect.core.rules.identity import block_mark, identify, prefix_of_unnamed_session
from recollect.core.values.message import EntryKey, Message, MessageId, Role, Text, ToolCall
from recollect.core.values.model import FormatName
from recollect.errors import FormatError
from recollect.hosts.gateway.credentials import Headers, identity_places

ClientName: TypeAlias = Literal["claude-code", "codex", "opencode", "pi", "openclaw", "other"]

SESSION_HEADER: Final = "x-recollect-session"
SPACE_HEADER: Final = "x-recollect-space"
LONGEST_KEY: Final = 200
"""A session key longer than this belongs to no known client, and could become a file name."""


class RequestKind(Enum):
    """The purpose of a request, as people read it."""

    TURN = "a turn of the conversation"
    TITLE = "a side request without tools: for a title, or for the client's own summary"
    PROBE = "a check by the client: it asks for one token"
    COMPACTION = "the client compacts its history itself"
    COUNT = "a count of tokens"
    UNREADABLE = "a request that cannot be read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The sender of a request, identified by the request's headers and body."""

    client: ClientName
    kind: RequestKind
    model: str | None = None
    session: str | None = None
    """The session's name, if the client names it."""
    scope: str | None = None
    """The credentials and a name that others could guess; None if the name is a random id."""
    folder: str | None = None
    betas: tuple[str, ...] = ()
    """The provider's beta features that the headers name, or that the client is known to use."""
    space: str | None = None


class _Fields(msgspec.Struct):
    messages: list[msgspec.Raw] | None = None
    input: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    model: msgspec.Raw = msgspec.Raw()
    metadata: msgspec.Raw = msgspec.Raw()
    prompt_cache_key: msgspec.Raw = msgspec.Raw()
    tool_choice: msgspec.Raw = msgspec.Raw()
    max_tokens: msgspec.Raw = msgspec.Raw()
    max_completion_tokens: msgspec.Raw = msgspec.Raw()
    max_output_tokens: msgspec.Raw = msgspec.Raw()


_FIELDS: Final = msgspec.json.Decoder(_Fields)
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""Errors from parsing a body that is invalid JSON or nested too deeply."""
_AGENTS: Final = frozenset({"claude-code", "codex", "opencode", "pi"})
"""Clients that send tools with every turn, so that a request without tools is a side request."""
_UNNAMED_BETAS: Final[Mapping[ClientName, tuple[str, ...]]] = {"claude-code": SYSTEM_INSIDE_BETAS}
"""Beta features that a client uses without naming them: system messages between turns."""
_COMPACTION: Final = re.compile(
    rb'(?<!\\)"(?:CRITICAL: Respond with TEXT ONLY\. Do NOT call any tools\.'
    rb"|Your task is to create a detailed summary of the conversation"
    rb"|You are performing a CONTEXT CHECKPOINT COMPACTION)"
)
"""First words of a client's own request for a summary, which has tools like a turn."""
_SUMMARY: Final = re.compile(
    rb'(?i)(?<!\\)"(?:Please )?(?:create|write|provide|generate) a (?:\w+ )?summary of '
    rb"(?:the|our|this) (?:conversation|session|chat)"
)
"""The same of any client whose request forbids the tools that it offers."""
_MARK_BYTES: Final = 65_536  # not measured; bounds hashing per request
_RANDOM_ID: Final = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|ses_\w{20,40}")
"""Pattern of random session ids: a UUID, or opencode's own form."""


def caller_mark(places: Iterable[tuple[str, str]], secret: bytes) -> str:
    """Return a keyed hash of the places of a request that identify its caller."""
    text = "\0".join(f"{name}\0{value}" for name, value in places)
    key = blake2b(secret).digest()
    return blake2b(text.encode("utf-8", "surrogateescape"), key=key, digest_size=8).hexdigest()


def read_caller(
    format_name: FormatName, header_list: Headers, query: str, body: bytes, *, secret: bytes
) -> Caller:
    """Identify the sender. Header names are in lower case; `secret` keys the hashes of places."""
    headers = dict(reversed(header_list))
    client = _client(headers)
    try:
        fields = _FIELDS.decode(body)
    except _UNREADABLE:
        return Caller(client=client, kind=RequestKind.UNREADABLE)
    turn_metadata, model = _json(headers.get("x-codex-turn-metadata")), _decode_value(fields.model)
    named_betas = [name.strip() for name in headers.get("anthropic-beta", "").split(",")]
    session, scope = _session(client, header_list, query, fields, format_name, secret)
    return Caller(
        client=client,
        model=model if isinstance(model, str) else None,
        kind=_kind(client, fields, turn_metadata, headers.get("x-interaction-type")),
        session=session,
        scope=scope,
        folder=_folder(turn_metadata),
        betas=(*named_betas, *_UNNAMED_BETAS.get(client, ())),
        space=headers.get(SPACE_HEADER) or None,
    )


def _client(headers: Mapping[str, str]) -> ClientName:
    agent = headers.get("user-agent", "").lower()
    if "x-claude-code-session-id" in headers or agent.startswith("claude-cli/"):
        return "claude-code"
    if headers.get("originator", "").startswith("codex") or agent.startswith("codex"):
        return "codex"
    if agent.startswith("opencode/"):
        return "opencode"
    if agent.startswith("pi "):
        return "pi"
    return "openclaw" if agent.startswith("openclaw") else "other"


def _session(
    client: ClientName,
    header_list: Headers,
    query: str,
    fields: _Fields,
    format_name: FormatName,
    secret: bytes,
) -> tuple[str | None, str | None]:
    """Return the session's name and scope. An agent's random id is the name, so that hooks and
    imports use the same session. Any other name is combined with the caller's credentials and, if
    others could guess it, with all other places that may identify the caller."""
    credentials, other_places = identity_places(header_list, query)
    credential, headers = caller_mark(credentials, secret), dict(reversed(header_list))
    key = headers.get(SESSION_HEADER)
    if not key and client == "claude-code":
        metadata = _decode_value(fields.metadata)
        user = _json(metadata.get("user_id") if isinstance(metadata, Mapping) else None)
        key = headers.get("x-claude-code-session-id") or user.get("session_id")
    if not key and client == "codex":
        key = headers.get("thread-id") or headers.get("session-id")
    if not key:
        key = headers.get("x-session-id") or headers.get("session_id")
    if not key and format_name == "openai-responses":
        key = _decode_value(fields.prompt_cache_key)
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY:
        return None, credential
    agent = headers.get("x-claude-code-agent-id")
    name = f"{key}/{agent}" if agent else key
    if _RANDOM_ID.fullmatch(key):
        return name if client != "other" else f"{client}:{credential}:{name}", None
    caller = caller_mark((*credentials, *other_places), secret)
    return f"{client}:{caller}:{name}", f"{client}:{credential}:{name}"


def _kind(
    client: ClientName, fields: _Fields, turn_metadata: Mapping[str, Any], interaction: str | None
) -> RequestKind:
    if "compaction" in (turn_metadata.get("request_kind"), (interaction or "").rpartition("-")[2]):
        return RequestKind.COMPACTION
    limits = (fields.max_tokens, fields.max_completion_tokens, fields.max_output_tokens)
    if any(bytes(limit) == b"1" for limit in limits):
        return RequestKind.PROBE
    offers_none = bytes(fields.tools).strip() in (b"", b"null", b"[]")
    if client in _AGENTS and offers_none and turn_metadata.get("request_kind") != "turn":
        return RequestKind.TITLE
    last = bytes(fields.messages[-1]) if fields.messages else b""
    tail = last[-_MARK_BYTES:] if fields.messages else bytes(fields.input)[-_MARK_BYTES:]
    if client in _AGENTS and _COMPACTION.search(tail):
        return RequestKind.COMPACTION
    if b'"none"' in bytes(fields.tool_choice) and _SUMMARY.search(tail):
        return RequestKind.COMPACTION
    return RequestKind.TURN


def _folder(turn_metadata: Mapping[str, Any]) -> str | None:
    folders = turn_metadata.get("workspaces")
    if isinstance(folders, Mapping) and len(folders) == 1:
        return str(next(iter(folders)))
    return None


def _decode_value(raw: msgspec.Raw) -> Any:
    try:
        return decode(bytes(raw)) if bytes(raw) else None
    except FormatError:
        return None


def _json(text: object) -> Mapping[str, Any]:
    if not isinstance(text, str):
        return {}
    try:
        value = msgspec.json.decode(text)
    except _UNREADABLE:
        return {}
    return value if isinstance(value, Mapping) else {}


MAX_SESSIONS: Final = 10_000
"""Number of conversations that are recognized without a query, in about 1 KB of RAM each."""
MOST_MESSAGES: Final = 20_000  # not measured; bounds memory
MAX_ALIKE: Final = 8
"""Number of sessions with the same history and reply that the store can distinguish."""
_DIGEST_BYTES: Final = 16  # 128 bits: no collisions among messages


def hash_reply(messages: Iterable[Message]) -> bytes | None:
    """Hash a reply's text without white space, and its calls; None if it has neither."""
    parts = [part for message in messages for part in message.parts]
    text = "".join("".join(part.text.split()) for part in parts if isinstance(part, Text))
    calls = [
        f"{part.id}\0{part.name}\0{part.arguments}" for part in parts if isinstance(part, ToolCall)
    ]
    words = "\0".join([text, *calls]).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(words).digest() if text or calls else None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The messages of a request, as marks that are keyed by the caller's credential."""

    owner: str | None
    """The session's name, which contains a hash of all places that may identify the caller; None if
    the client names no session."""
    start: str
    """Common prefix of the names of all sessions with this format and first message."""
    secret: bytes = field(repr=False)
    ids: tuple[MessageId, ...]
    system: bytes = field(repr=False)
    """The system prompt, if it is not one of the messages."""
    before_reply: int | None = None
    """Number of messages before the last reply; None if there is no reply."""
    after_reply: int = 0
    """Number of messages up to the end of the last reply."""
    reply: bytes | None = None
    request: object = field(default_factory=object, repr=False)
    """Stands for this request, so that a session need not keep its history."""

    def mark_of_request(self, count: int | None = None) -> str:
        """Return the mark of the system prompt and the first `count` messages (default: all)."""
        return self._mark(b"asked", self.ids[:count], self.system)

    def mark_of_beginning(self, count: int | None = None) -> str:
        return self._mark(b"begun", self.ids[:count])

    def mark_with_reply(self, reply: bytes, count: int | None = None) -> str:
        """Return the mark of the first `count` messages (default: all) followed by `reply`."""
        return self._mark(b"reply", self.ids[:count], reply)

    def marks_with(self, newest: str) -> list[str]:
        """Return the marks by which the session is found from now on."""
        return [newest, self.mark_of_beginning(), *([self.owner] if self.owner else [])]

    @property
    def repeats(self) -> str | None:
        """Return the mark of the session that this history continues; None without a reply."""
        return None if self.reply is None else self.mark_with_reply(self.reply, self.before_reply)

    def _mark(self, kind: bytes, ids: Sequence[MessageId], suffix: bytes = b"") -> str:
        mark = hashlib.blake2b(key=self.secret, digest_size=_DIGEST_BYTES)
        mark.update(b"%s\0%s\0%d\0" % (kind, self.start.encode(), len(ids)))
        mark.update("".join(ids).encode())
        mark.update(suffix)
        return mark.hexdigest()


@dataclass(slots=True)
class _Known:
    request: object
    has_reply: bool
    marks: list[str]
    stored: EntryKey | None
    """The session's newest message when the store found the session."""
    is_whole: bool
    """True if each request repeated the session, so that the last one contains all of it."""
    answered: bool = False
    """True if the session's last request received a complete reply."""


class SessionRecognition:
    """Recognizes and names a space's conversations whose clients send no session name."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._sessions: OrderedDict[str, _Known] = OrderedDict()
        """Sessions by name. The session that was seen longest ago is first."""
        self._marked: dict[str, dict[str, None]] = {}
        self._messages: OrderedDict[tuple[FormatName, bytes], tuple[MessageId, Role]] = (
            OrderedDict()
        )
        """Message ids by bytes of a message, because clients resend the history each time."""

    def history(self, format_name: FormatName, body: bytes, caller: Caller) -> History:
        """Read a request's messages, but parse only messages that were not seen before."""
        request = split_request(body, format_name)
        raws = request.messages
        identities = [self._read(format_name, raw) for raw in raws]
        roles = [role for _, role in identities]
        lead = next((index for index, role in enumerate(roles) if role != "system"), len(roles))
        first = identities[lead][0] if lead < len(identities) else ""
        key = f"{caller.scope}\0{request.continues_from}".encode()
        end = next(
            (index for index in range(len(roles), 0, -1) if roles[index - 1] == "assistant"), 0
        )
        begin = end
        while begin and roles[begin - 1] == "assistant":
            begin -= 1
        reply = hash_reply(CODECS[format_name].read(raw) for raw in raws[begin:end])
        return History(
            owner=caller.session,
            start=prefix_of_unnamed_session(format_name, first),
            secret=hashlib.blake2b(key, key=self._secret, digest_size=32).digest(),
            ids=tuple(identity for identity, _ in identities),
            system=hashlib.blake2b(request.system or b"").digest(),
            before_reply=begin if end else None,
            after_reply=end,
            reply=reply,
        )

    def _read(self, format_name: FormatName, raw: bytes) -> tuple[MessageId, Role]:
        digest = hashlib.blake2b(raw, digest_size=16).digest()
        identity = self._messages.get((format_name, digest))
        if identity is None:
            message = CODECS[format_name].read(raw)
            identity = identify(message, self._secret), message.role
            self._messages[format_name, digest] = identity
            if len(self._messages) > MOST_MESSAGES:
                self._messages.popitem(last=False)
        return identity

    def find_awaited(self, history: History) -> tuple[str, ...]:
        """Return the sessions that may still be receiving the reply which this history repeats."""
        if history.before_reply is None:
            return ()
        candidates = self._with(history.mark_of_beginning(history.before_reply))
        return tuple(name for name in candidates if not self._sessions[name].answered)

    def find_continued(
        self, history: History, running: Collection[str]
    ) -> tuple[str | None, bool, bool]:
        """Return the session that this history continues, if this process knows it, whether its
        last request came from the same places, and whether the history repeats it."""
        repeated_sessions = self._find_repeated(history, running)
        owned_sessions = self._with(history.owner)
        whole_sessions = [name for name in repeated_sessions if self._sessions[name].is_whole]
        own_repeated_sessions = [name for name in repeated_sessions if name in owned_sessions]
        candidates = own_repeated_sessions or owned_sessions or whole_sessions
        name = candidates[-1] if candidates else None
        return name, name in owned_sessions, name in repeated_sessions

    def _find_repeated(self, history: History, running: Collection[str]) -> list[str]:
        """Return the sessions whose last request and reply this history repeats."""
        message_count = len(history.ids)
        for count in range(message_count, history.after_reply - 1, -1):
            candidates = self._find_unanswered(
                history, count, running, has_reply=count < message_count
            )
            if candidates:
                return candidates
        if history.before_reply is None:
            return []
        exact = self._with(history.repeats)
        return exact or self._find_unanswered(
            history, history.before_reply, running, has_reply=True
        )

    def _find_unanswered(
        self, history: History, count: int, running: Collection[str], *, has_reply: bool
    ) -> list[str]:
        return [
            name
            for name in self._with(history.mark_of_request(count))
            if name not in running and (self._sessions[name].has_reply or not has_reply)
        ]

    def _with(self, mark: str | None) -> list[str]:
        return [] if mark is None else list(self._marked.get(mark, ()))

    def marks_to_search(self, history: History) -> tuple[str, ...]:
        """Return the marks for the search in the store, the most likely one first."""
        mark = history.repeats
        return () if mark is None else tuple(_slot(mark, index) for index in range(MAX_ALIKE))

    def mark_of_passing_on(self, session: str) -> str:
        """Return the mark of a stored session that a request with other places has continued."""
        return block_mark(session, self._secret)

    def new_name(self, history: History, *, is_passed_on: bool) -> str:
        """Return the name for a new session, or for one that began meanwhile."""
        owner, owned_sessions = history.owner, self._with(history.owner)
        if owned_sessions:
            return owned_sessions[-1]
        if owner is None or is_passed_on or owner in self._sessions:
            return f"{owner or history.start}-{secrets.token_hex(4)}"
        return owner

    def knows(self, session: str) -> bool:
        """Return True if this process knows the session, so that the store is not asked."""
        return session in self._sessions

    def newest_stored(self, session: str) -> EntryKey | None:
        """Return the session's newest message from when the store found the session."""
        session_record = self._sessions.get(session)
        return None if session_record is None else session_record.stored

    def remember(
        self,
        session: str,
        history: History,
        *,
        has_reply: bool = False,
        stored: EntryKey | None = None,
        is_repeated: bool = True,
    ) -> None:
        """Record the session's last request. `has_reply`: the session received a reply before.
        `is_repeated`: the request contains the whole session, or begins it."""
        session_record = self._sessions.get(session)
        self.forget(session)
        marks = history.marks_with(history.mark_of_request())
        if session_record is not None:
            has_reply = has_reply or session_record.has_reply
            stored = stored or session_record.stored
            is_repeated = is_repeated and session_record.is_whole
        self._sessions[session] = _Known(history.request, has_reply, marks, stored, is_repeated)
        self._mark(session, marks)
        while len(self._sessions) > MAX_SESSIONS:
            self.forget(next(iter(self._sessions)))

    def forget(self, session: str) -> None:
        session_record = self._sessions.pop(session, None)
        for mark in () if session_record is None else session_record.marks:
            self._marked[mark].pop(session, None)
            if not self._marked[mark]:
                del self._marked[mark]

    def add_reply(
        self, session: str, history: History, messages: Sequence[Message]
    ) -> tuple[str, ...]:
        """Record a session's complete reply. Return the marks under which to store the reply."""
        session_record, reply = self._sessions.get(session), hash_reply(messages)
        if session_record is None or session_record.request is not history.request or reply is None:
            return ()
        self.forget(session)
        mark = history.mark_with_reply(reply)
        index = len(self._with(mark))
        session_record.has_reply = session_record.answered = True
        session_record.marks = history.marks_with(mark)
        self._sessions[session] = session_record
        self._mark(session, session_record.marks)
        marks = (_slot(mark, index),) if index < MAX_ALIKE and session_record.is_whole else ()
        if history.owner in (None, session):
            return marks
        return *marks, self.mark_of_passing_on(session)

    def _mark(self, session: str, marks: Iterable[str]) -> None:
        for mark in marks:
            self._marked.setdefault(mark, {})[session] = None


def _slot(mark: str, index: int) -> str:
    return f"{mark}-{index}"
