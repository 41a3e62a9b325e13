"""What a reply teaches: its usage, an overflow, and the messages it adds to the history.

Pure. Nothing in a reply is trusted to be there, or to be what a provider documents.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recollect.formats.codec import CODECS
from recollect.formats.replies import read_error, read_reply, read_usage
from recollect.ports import RecogniseOverflow
from recollect.rules.identity import ROOT, chain, identify
from recollect.rules.weigh import Weigher
from recollect.rules.well_formed import call_ids, result_ids
from recollect.values.history import Entry, SessionState
from recollect.values.message import EntryKey
from recollect.values.overflow import Overflow
from recollect.values.request import Usage

SHRINK_RATIO = 0.9
"""What a window is taken to be, of what was sent, when a provider refuses without a number."""


def learned_from(
    reply: Any, recognise_overflow: RecogniseOverflow | None
) -> tuple[Usage | None, Overflow | None]:
    """What a reply says of usage, or an error of its size."""
    if isinstance(reply, Overflow):
        return None, reply
    usage = read_usage(reply)
    if usage is not None or recognise_overflow is None:
        return usage, None
    said = read_error(reply)
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
    """The messages of a reply, with the keys they will have when the client resends them."""
    sent = next((name for name in CODECS if name == format_name), None)
    if sent is None:
        return ()  # nothing was asked yet
    parent = path[-1] if path else ROOT
    codec = CODECS[sent]
    entries: list[Entry] = []
    for raw in read_reply(sent, reply):
        message = codec.read(raw)
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
    """The session after a provider refused a request for its size.

    Where it names no limit, the window must be smaller than what was sent.
    """
    limit = overflow.limit_tokens
    if limit is None and state.sent_estimate_tokens:
        sent = state.calibration.apply(state.sent_estimate_tokens)
        limit = int(sent * SHRINK_RATIO)
    if not limit:
        return state
    return replace(state, learned_window_tokens=limit, learned_for_model=state.sent_model)
