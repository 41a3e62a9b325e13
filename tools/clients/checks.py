"""What must hold of a recorded stage; each check gives the faults that it finds, in words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tests.harness.faithful import unfaithful

from recollect.core.formats.json_text import array_spans, object_spans
from recollect.core.values.segment import StoredSegment
from recollect.testing.provider_rules import violations
from tools.clients.agents import KEY
from tools.clients.hop import HttpExchange
from tools.clients.lab import Stage

_BETWEEN_TWO: Final = frozenset(
    {"connection", "keep-alive", "host", "content-length", "transfer-encoding", "date", "server"}
)
"""Headers that belong to one connection."""
_OURS: Final = "x-recollect-"
WIRES: Final = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "openai-chat",
    "/v1/responses": "openai-responses",
}
_SIDE_MARKS: Final = (
    "Your task is to create a detailed summary",
    "CONTEXT CHECKPOINT COMPACTION",
    "Generate a concise, sentence-case title",
)
"""What only requests hold that are no part of a conversation."""


def unlike(stage: Stage) -> Iterator[str]:
    """Where a request or a reply is not the same on both sides, byte for byte."""
    for sent, got in stage.pairs():
        name = f"{sent.method} {sent.target}"
        if (sent.method, sent.target) != (got.method, got.target):
            yield f"{name} became {got.method} {got.target}"
        if sent.body != got.body:
            yield f"{name}: {len(sent.body):,} bytes sent, {len(got.body):,} others arrived"
        if (sent.status, sent.reply) != (got.status, got.reply):
            yield f"{name}: the reply {got.status} came as {sent.status}, or with other bytes"
        yield from _headers_unlike(name, sent, got)


def _headers_unlike(name: str, sent: HttpExchange, got: HttpExchange) -> Iterator[str]:
    for side, mine, theirs in (
        ("request", sent.headers, got.headers),
        ("reply", got.reply_headers, sent.reply_headers),
    ):
        expected, there = _lasting(mine), _lasting(theirs)
        if expected != there:
            names = {key for key, _ in expected.items() ^ there.items()}
            yield f"{name}: headers of the {side} differ: {', '.join(sorted(names))}"


def _lasting(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in headers.items()
        if name not in _BETWEEN_TWO and not name.startswith(_OURS)
    }


def unanswered(stage: Stage) -> Iterator[str]:
    """Requests of the client that the gateway answered by itself, but for WebSocket upgrades."""
    for sent in stage.before.exchanges():
        if sent.status is not None and not sent.request_id and sent.status != 426:
            yield f"{sent.method} {sent.target}: answered {sent.status} by the gateway"


def misshapen(stage: Stage) -> Iterator[str]:
    """Where a shaped request breaks a rule, or changes what nobody had to touch."""
    for sent, got in stage.pairs():
        if sent.body != got.body:
            yield from _misshapen(sent, got)
        if sent.reply != got.reply:
            yield f"{sent.target}: the reply has other bytes"


def shaped_count(stage: Stage) -> int:
    """How many requests left the gateway otherwise than they came."""
    return sum(sent.body != got.body for sent, got in stage.pairs())


def _misshapen(sent: HttpExchange, got: HttpExchange) -> Iterator[str]:
    wire = WIRES[sent.path]
    betas = sent.headers.get("anthropic-beta", "").replace(" ", "").split(",")
    before, after = json.loads(sent.body), json.loads(got.body)
    for broken in violations(wire, after, betas=betas, ids_unique_across_messages=True):
        yield f"{sent.target}: {broken.rule} at {broken.where}"
    for broken in unfaithful(wire, before, after):
        yield f"{sent.target}: {broken.rule} at {broken.where}"
    field = "input" if wire == "openai-responses" else "messages"
    came, went = object_spans(sent.body), object_spans(got.body)
    for name in came.keys() | went.keys():
        if name != field and came.get(name) != went.get(name):
            yield f"{sent.target}: the field {name} changed"
    rows = array_spans(came[field])
    known = {json.dumps(json.loads(row), sort_keys=True): row for row in rows}
    untouched = 0
    for row in array_spans(went[field]):
        original = known.get(json.dumps(json.loads(row), sort_keys=True))
        if original is not None:
            untouched += 1
            if row != original:
                yield f"{sent.target}: an untouched message has other bytes"
        elif json.loads(row).get("role") == "system" and wire == "anthropic":
            yield f"{sent.target}: a system message between the turns was changed"
    if not untouched:
        yield f"{sent.target}: no message of {len(rows)} is as it came"


def keys_in_files(stage: Stage) -> Iterator[str]:
    """Files of the gateway's that hold the key."""
    for path in (stage.folder / "gateway").rglob("*"):
        if path.is_file() and KEY.encode() in path.read_bytes():
            yield f"the key is in {path.name}"


def side_requests_kept(stored: Iterable[StoredSegment]) -> Iterator[str]:
    """Side requests that became part of a conversation."""
    for one in stored:
        if one.segment.role == "user" and any(mark in one.segment.text for mark in _SIDE_MARKS):
            yield f"a side request is kept in {one.segment.session}"


def by_session(stored: Iterable[StoredSegment]) -> dict[str, list[str]]:
    """What is kept, by session and in order."""
    sessions: dict[str, list[str]] = {}
    for one in stored:
        sessions.setdefault(one.segment.session, []).append(one.segment.text)
    return sessions


def words_where(sessions: Mapping[str, list[str]], words: str) -> list[str]:
    """The sessions in which these words were said."""
    return [name for name, texts in sessions.items() if any(words in text for text in texts)]
