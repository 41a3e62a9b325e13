"""What a reply teaches: its usage, an overflow, and the messages it adds to the history.

Pure. Nothing in a reply is trusted to be there, or to be what a provider documents.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from recollect.config import FALLBACK_WINDOW_TOKENS
from recollect.formats.codec import CODECS
from recollect.formats.replies import StreamedReply, read_error, read_reply, read_usage
from recollect.ports import RecogniseOverflow
from recollect.rules.identity import ROOT, chain, identify
from recollect.rules.tokens import Weigher
from recollect.rules.well_formed import call_ids, result_ids
from recollect.values.history import Entry, SessionState
from recollect.values.message import EntryKey
from recollect.values.model import LimitDoubt, Overflow, Usage

SHRINK_RATIO = 0.9
"""What a window is taken to be, of what was sent, when a provider refuses without a number."""
LEAST_WINDOW_TOKENS = 1_024
"""No smaller window is learned. Servers are started with 2,048 and more; half of the smallest
still holds a question and its answer, and below it every message of a turn would be left out."""
_COUNT_RATIO = 2.0
"""Our count of what was sent and the provider's differ by less than this (`values.calibration`)."""


def learned_from(
    reply: Any, recognise_overflow: RecogniseOverflow | None
) -> tuple[Usage | None, Overflow | None]:
    """What a reply says of usage, or an error of its size."""
    if isinstance(reply, Overflow):
        return None, reply
    streamed = isinstance(reply, StreamedReply)
    usage = read_usage(reply.reply() if streamed else reply)
    if usage is not None or recognise_overflow is None:
        return usage, None
    said = read_error(reply.error if streamed else reply)
    if said is None:
        return None, None
    return None, recognise_overflow(status=said.status, message=said.message, body=said.body)


def replied(
    reply: Any,
    format_name: str | None,
    path: tuple[EntryKey, ...],
    secret: bytes,
    weigher: Weigher,
) -> tuple[Entry, ...]:
    """The messages of a reply, with the keys they will have when the client resends them.

    One that broke off is marked so, and is kept as far as it came.
    """
    sent = next((name for name in CODECS if name == format_name), None)
    if sent is None:
        return ()  # nothing was asked yet
    parent = path[-1] if path else ROOT
    codec = CODECS[sent]
    entries: list[Entry] = []
    broken_off = isinstance(reply, StreamedReply) and reply.broken_off
    messages = read_reply(sent, reply.reply() if isinstance(reply, StreamedReply) else reply)
    for at, raw in enumerate(messages, start=1):
        message = codec.read(raw)
        if broken_off and at == len(messages):
            message = replace(message, ending="aborted")
        identity = identify(message, secret)
        parent = chain(parent, identity)
        entries.append(
            Entry(
                key=parent,
                id=identity,
                message=message,
                tokens=weigher.message(message.parts),
                role=message.role,
                raw=raw,
                calls=call_ids(message),
                results=result_ids(message),
            )
        )
    return tuple(entries)


def followed_by(state: SessionState, reply: tuple[Entry, ...], sent: int) -> SessionState:
    """The session with a reply behind what was sent: a client that compacts right after it, and
    keeps it, is then recognised by it. A second reply to one request takes the first's place."""
    return replace(
        state,
        path=state.path[:sent] + tuple(entry.key for entry in reply),
        ids=state.ids[:sent] + tuple(entry.id for entry in reply),
    )


def after_overflow(state: SessionState, overflow: Overflow) -> SessionState:
    """The session after a provider refused a request for its size; the limit was not doubted.

    Where it names no limit, the window must be smaller than what was sent.
    """
    limit = overflow.limit_tokens
    if limit is None:
        limit = int(_sent_tokens(state) * SHRINK_RATIO)
    if limit < LEAST_WINDOW_TOKENS:
        return state
    return replace(state, learned_window_tokens=limit, learned_for_model=state.sent_model)


def doubt_limit(
    state: SessionState, overflow: Overflow, sent: Iterable[bytes]
) -> LimitDoubt | None:
    """Why the limit that an overflow names cannot be the model's window; None where it can.

    `sent` are the messages that were refused. An error may quote them, and what they say about
    some limit is not the provider's word; unless it also names the size of what we sent.
    """
    limit = overflow.limit_tokens
    if limit is None:
        return None
    if limit < LEAST_WINDOW_TOKENS:
        return LimitDoubt.BELOW_FLOOR
    counted = _sent_tokens(state)
    largest = max(counted * _COUNT_RATIO, overflow.requested_tokens or 0)
    if limit > max(largest, FALLBACK_WINDOW_TOKENS):
        return LimitDoubt.WIDER
    requested = overflow.requested_tokens or 0
    of_ours = counted / _COUNT_RATIO <= requested <= counted * _COUNT_RATIO
    words = overflow.limit_words.lower().encode()
    if words and not of_ours and any(words in raw.lower() for raw in sent):
        return LimitDoubt.ECHOED
    return None


def _sent_tokens(state: SessionState) -> int:
    """What the last request counted, calibrated; 0 where nothing was sent."""
    return state.calibration.apply(state.sent_estimate_tokens) if state.sent_estimate_tokens else 0
