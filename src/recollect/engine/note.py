"""The way of a note into the archive: one text, kept like something the user said.

Owns what a note becomes; `turn/ingest` says what is kept of it. The same note in the same
session is the same segment, so it can be added again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from recollect.config.settings import Redaction
from recollect.ports import Store
from recollect.rules.identity import ROOT, chain, identify
from recollect.rules.weigh import Weigher
from recollect.turn.ingest import ingest
from recollect.values.batch import Batch
from recollect.values.history import Entry
from recollect.values.message import Message, Text
from recollect.values.segment import Segment

Outcome: TypeAlias = Literal["stored", "known", "forgotten", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """What became of a note."""

    outcome: Outcome
    """"nothing" where it is but a recalled block, of which nothing is kept."""
    segment: Segment | None = None


async def keep_note(
    store: Store,
    text: str,
    *,
    session: str,
    secret: bytes,
    weigher: Weigher,
    redaction: Redaction,
    now: float,
) -> Noted:
    """Write a note to the archive as a message of `session`."""
    made = ingest(
        [_entry(text, secret, weigher)],
        session=session,
        source="note",
        said_at=now,
        redaction=redaction,
        now=now,
    )
    if not made.segments:
        return Noted(outcome="nothing")
    written = await store.write(Batch(at=now, segments=made.segments, jobs=made.jobs))
    segment = made.segments[0].segment
    if segment.id in written.forgotten:
        return Noted(outcome="forgotten", segment=segment)
    return Noted(outcome="stored" if segment.id in written.stored else "known", segment=segment)


def _entry(text: str, secret: bytes, weigher: Weigher) -> Entry:
    """The note as the first message of a history: it has no place in any other."""
    message = Message(role="user", parts=(Text(text=text),), raw=b"")
    identity = identify(message, secret)
    return Entry(
        key=chain(ROOT, identity),
        id=identity,
        message=message,
        tokens=weigher.message(message.parts),
        role="user",
        raw=b"",
    )
