"""Who is asking: the client, its session, and whether the request is part of a conversation.

Reads what clients say of themselves in headers and bodies, and guesses nothing: what names no
session is recognised by its history (`recognition`), what names no folder is in the default space.
Side requests (titles, probes, the client's own compaction) bear the session's key, and must not
become part of its history.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import Any, Final, Literal, TypeAlias

import msgspec

from recollect.core.formats.anthropic import SYSTEM_INSIDE_BETAS
from recollect.core.formats.json_text import decode
from recollect.core.values.model import FormatName
from recollect.errors import FormatError

ClientName: TypeAlias = Literal["claude-code", "codex", "opencode", "pi", "openclaw", "other"]

SESSION_HEADER: Final = "x-recollect-session"
SPACE_HEADER: Final = "x-recollect-space"
LONGEST_KEY: Final = 200
"""A longer session key is none of those we know, and would be a file name somewhere."""


class RequestKind(Enum):
    """What a request is for; the value is what people read."""

    TURN = "a turn of the conversation"
    TITLE = "a side request without tools: a title, or a summary of the client's own"
    PROBE = "a probe: a reply of one token"
    COMPACTION = "the client compacts its history itself"
    COUNT = "a count of tokens"
    UNREADABLE = "no request that can be read"

    @property
    def in_conversation(self) -> bool:
        """Whether it is shaped and kept."""
        return self is RequestKind.TURN


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sent a request, as far as it says."""

    client: ClientName
    kind: RequestKind
    model: str | None = None
    """Which it asks."""
    session: str | None = None
    """The session's key; None where the client names none."""
    folder: str | None = None
    """The project's folder, where the client says it."""
    betas: tuple[str, ...] = ()
    """The provider's beta features that its headers name, and those it uses without naming them."""
    space: str | None = None
    """The space that the request names."""
    credential: str = ""
    """A keyed hash of the credential that it brings for its provider."""


class _Fields(msgspec.Struct):
    messages: list[msgspec.Raw] | None = None
    input: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    model: msgspec.Raw = msgspec.Raw()
    metadata: msgspec.Raw = msgspec.Raw()
    prompt_cache_key: msgspec.Raw = msgspec.Raw()
    max_tokens: msgspec.Raw = msgspec.Raw()
    max_completion_tokens: msgspec.Raw = msgspec.Raw()
    max_output_tokens: msgspec.Raw = msgspec.Raw()


_FIELDS: Final = msgspec.json.Decoder(_Fields)
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""No JSON, or deeper than any reader goes."""
_AGENTS: Final = frozenset({"claude-code", "codex", "opencode", "pi"})
"""Clients whose every turn offers tools: what offers none is a side request."""
_UNNAMED_BETAS: Final[Mapping[ClientName, tuple[str, ...]]] = {"claude-code": SYSTEM_INSIDE_BETAS}
"""Claude Code sends system messages between the turns with its betas switched off, too."""
_COMPACTION: Final = re.compile(
    rb'(?<!\\)"(?:CRITICAL: Respond with TEXT ONLY\. Do NOT call any tools\.'
    rb"|Your task is to create a detailed summary of the conversation"
    rb"|You are performing a CONTEXT CHECKPOINT COMPACTION)"
)
"""How the text of a client's own request for a summary begins; it offers tools as a turn does."""
_MARK_BYTES: Final = 65_536
"""A request for a summary is shorter than this."""


_RANDOM_ID: Final = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|ses_\w{20,40}")
"""How agents spell the random ids of their sessions: a UUID, or opencode's own form."""
_CREDENTIALS: Final = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
"""Headers in which clients send a provider's key."""


def credential_mark(headers: Mapping[str, str], secret: bytes) -> str:
    """A keyed hash of the credential in a request's headers; the same for all without one."""
    given = [f"{name}\0{headers[name]}" for name in _CREDENTIALS if name in headers]
    said = "\0".join(given).encode("utf-8", "surrogateescape")
    return blake2b(said, key=blake2b(secret).digest(), digest_size=8).hexdigest()


def read_caller(
    format_name: FormatName, headers: Mapping[str, str], body: bytes, *, secret: bytes
) -> Caller:
    """Who sent this; `headers` by their names in lower case. `secret` keys the credential."""
    try:
        fields = _FIELDS.decode(body)
    except _UNREADABLE:
        return Caller(client=_client(headers), kind=RequestKind.UNREADABLE)
    client = _client(headers)
    credential = credential_mark(headers, secret)
    turn_metadata = _json(headers.get("x-codex-turn-metadata"))
    return Caller(
        client=client,
        model=_model(fields),
        kind=_kind(client, fields, turn_metadata),
        session=_session(client, headers, fields, format_name, credential),
        credential=credential,
        folder=_folder(turn_metadata),
        betas=(*_named_betas(headers), *_UNNAMED_BETAS.get(client, ())),
        space=headers.get(SPACE_HEADER) or None,
    )


def _named_betas(headers: Mapping[str, str]) -> Iterator[str]:
    for name in headers.get("anthropic-beta", "").split(","):
        yield name.strip()


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
    headers: Mapping[str, str],
    fields: _Fields,
    format_name: FormatName,
    credential: str,
) -> str | None:
    """The session's key, ours first, then the client's own; a subagent is a session of its own.

    An agent's session is called as the agent calls it: hooks and imports do, too, and what came by
    several ways is one session. Such an id is random, so no other caller can guess it. Every other
    name, such as "main", is bound to the caller's credential, whoever the client says it is.
    """
    key = headers.get(SESSION_HEADER)
    if not key and client == "claude-code":
        user = _json(_mapping(fields.metadata).get("user_id"))
        key = headers.get("x-claude-code-session-id") or user.get("session_id")
    if not key and client == "codex":
        key = headers.get("thread-id") or headers.get("session-id")
    if not key:
        key = headers.get("x-session-id") or headers.get("session_id")
    if not key and format_name == "openai-responses":
        key = _plain(fields.prompt_cache_key)
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY:
        return None
    agent = headers.get("x-claude-code-agent-id")
    name = f"{key}/{agent}" if agent else key
    shared = client != "other" and _RANDOM_ID.fullmatch(key)
    return name if shared else f"{client}:{credential}:{name}"


def _model(fields: _Fields) -> str | None:
    model = _plain(fields.model)
    return model if isinstance(model, str) else None


def _kind(client: ClientName, fields: _Fields, turn_metadata: Mapping[str, Any]) -> RequestKind:
    if turn_metadata.get("request_kind") == "compaction":
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
    return RequestKind.TURN


def _folder(turn_metadata: Mapping[str, Any]) -> str | None:
    folders = turn_metadata.get("workspaces")
    if isinstance(folders, Mapping) and len(folders) == 1:
        return str(next(iter(folders)))
    return None


def _mapping(raw: msgspec.Raw) -> Mapping[str, Any]:
    value = _plain(raw)
    return value if isinstance(value, Mapping) else {}


def _plain(raw: msgspec.Raw) -> Any:
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
