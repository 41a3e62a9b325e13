"""The id of a message, and its key at a position in a history. An id is a keyed hash of role and
canonical content. A key also includes all messages before it. A repeated "ok" thus has one id and
two keys, and a resent history has the same keys up to its first difference."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b, sha256
from hmac import compare_digest
from typing import TypeAlias

import msgspec

from recollect.core.values.message import (
    EntryKey,
    Image,
    Message,
    MessageId,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from recollect.core.values.segment import SegmentId
from recollect.errors import SettingsError

ROOT = EntryKey("")

SealSecret: TypeAlias = Callable[[], bytes]
"""Returns the installation's secret key, which seals the answers of memory tools. A space's hashes
may use a key made from its name only, which a web page could guess."""

_DIGEST_BYTES = 16  # 128 bits: no collisions among stored messages
_SEAL = "seal "
_MARK_BYTES = 8  # 64 bits: compared within one session only
_ENCODER = msgspec.json.Encoder()


def space_secret(space: str, deployment: bytes = b"") -> bytes:
    """Return the key of a space's hashes, made from its name and the deployment's secret, if any.
    The key is not in the store, because messages need ids even while the store is down."""
    key = blake2b(deployment, digest_size=32).digest() if deployment else b""
    try:
        name = space.encode()
    except UnicodeEncodeError:
        raise SettingsError(
            "the space's name is not valid Unicode (it contains an unpaired surrogate): use "
            "another name"
        ) from None
    return blake2b(name, key=key, digest_size=32, person=b"recollect-space").digest()


def segment_id(session: str, key: EntryKey) -> SegmentId:
    name_bytes = f"{key}\0{session}".encode("utf-8", "surrogatepass")
    return SegmentId(
        blake2b(name_bytes, digest_size=_DIGEST_BYTES, person=b"recollect-seg").hexdigest()
    )


def prefix_of_unnamed_session(format_name: str, first: str) -> str:
    """Return the prefix of a generated session name, for requests that name no session and begin
    with this message. The caller adds a suffix per session."""
    return f"unnamed:{sha256(f'{format_name}:{first}'.encode()).hexdigest()[:16]}"


def identify(message: Message, secret: bytes) -> MessageId:
    words: list[str] = [message.role]
    for part in message.parts:
        words.extend(_describe(part))
    try:
        canonical = _ENCODER.encode(words)
    except UnicodeEncodeError:  # a lone surrogate, which JSON can only contain as an escape
        canonical = json.dumps(words).encode("ascii")
    return MessageId(blake2b(canonical, key=secret, digest_size=_DIGEST_BYTES).hexdigest())


def block_mark(text: str, secret: bytes) -> str:
    """Return a hash that identifies a recalled block when a client sends it back."""
    text_bytes = text.strip().encode("utf-8", "surrogatepass")
    return blake2b(
        text_bytes, key=secret, digest_size=_MARK_BYTES, person=b"recollect-block"
    ).hexdigest()


def seal_answer(text: str, secret: bytes) -> str:
    """Add a seal before the last line of a memory tool's answer. Every process with the secret can
    verify the seal, and nobody without the secret can forge it."""
    head, _, closing = text.rpartition("\n")
    return f"{head}\n{_SEAL}{block_mark(text, secret)}\n{closing}"


def is_sealed(text: str, secret: bytes) -> bool:
    """Return whether the text is an answer that was sealed with this secret and not changed."""
    head, _, sealed_tail = text.strip().rpartition(f"\n{_SEAL}")
    mark, _, closing = sealed_tail.partition("\n")
    return bool(head) and compare_digest(block_mark(f"{head}\n{closing}", secret), mark)


def chain(parent: EntryKey, identity: MessageId) -> EntryKey:
    key_bytes = f"{parent}{identity}".encode("ascii")
    return EntryKey(blake2b(key_bytes, digest_size=_DIGEST_BYTES).hexdigest())


def batch_root(batch: str, secret: bytes) -> EntryKey:
    """Return the key to use as the predecessor of the first message passed to `ingest`."""
    name_bytes = f"batch\0{batch}".encode("utf-8", "surrogatepass")
    return EntryKey(blake2b(name_bytes, key=secret, digest_size=_DIGEST_BYTES).hexdigest())


def root_of_continued(continues_from: str) -> EntryKey:
    """Return the key to use as the predecessor of a request's first message, if the provider stores
    the messages before it."""
    return EntryKey(blake2b(continues_from.encode(), digest_size=_DIGEST_BYTES).hexdigest())


def _describe(part: Part) -> tuple[str, ...]:
    if isinstance(part, Text):
        return ("text", part.text) if part.text else ()
    if isinstance(part, ToolCall):
        return ("call", part.id, part.name, part.arguments)
    if isinstance(part, ToolResult):
        inner = tuple(word for nested in part.content for word in _describe(nested))
        return ("result", part.call_id, "error" if part.is_error else "", *inner, "end")
    if isinstance(part, Thinking):
        return ("thinking", part.text, part.sealed or "")
    if isinstance(part, Image):
        return ("image", part.data or part.address or "")
    return ("other", part.kind, part.payload)
