"""Read incoming messages into entries, each message once.

What was read before is found again by its bytes; a resent history costs a comparison a
message. Must never keep more than the last two requests' messages.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from recollect.formats.codec import Codec
from recollect.rules.identity import block_mark, identify
from recollect.rules.weigh import Weigher
from recollect.rules.well_formed import call_ids, is_odd, result_ids
from recollect.turn.extend import LastView
from recollect.values.history import Composed, Entry
from recollect.values.message import CallId, EntryKey, Flaw, Message, MessageId, Text
from recollect.values.reason import Cause, Reason
from recollect.values.recalled import BLOCK_OPENING
from recollect.values.slot import Slot

SPARE_ROWS = 256
"""How many composed rows that no view shows any more are kept before they are forgotten."""


class Reading(NamedTuple):
    """A message and what was worked out about it, before it has a place.

    A tuple because a cold request makes thousands of them.
    """

    message: Message
    id: MessageId
    tokens: int
    calls: tuple[CallId, ...]
    results: tuple[CallId, ...]
    odd: bool


StatementCache: TypeAlias = dict[EntryKey, tuple[tuple[str, str, float], ...]]
"""Who said what of a message, and how much it lays down."""


@dataclass(slots=True)
class Remembered:
    """What the last request of a session looked like; only speed depends on it."""

    format: str = ""
    raws: tuple[bytes, ...] = ()
    entries: tuple[Entry, ...] = ()
    readings: dict[bytes, Reading] = field(default_factory=dict)
    composed: dict[Slot, Composed] = field(default_factory=dict)
    last_view: LastView | None = None
    statements: StatementCache = field(default_factory=dict)
    """What of a message may stand at the head, once it was read for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """Entries known from last time, and readings of the rest."""

    settled: tuple[Entry, ...]
    fresh: tuple[Reading, ...]

    @property
    def reason(self) -> Reason:
        """What it did, for the report."""
        return Reason(Cause.MESSAGES_READ, known=len(self.settled), fresh=len(self.fresh))


def read(
    raws: Sequence[bytes],
    codec: Codec,
    secret: bytes,
    weigher: Weigher,
    remembered: Remembered,
    blocks: Collection[str] = (),
) -> ReadResult:
    """Read what was not at this place last time; `blocks` are the marks of recalled blocks that
    were put into the session."""
    settled = 0
    for raw, known in zip(raws, remembered.raws, strict=False):
        if raw != known:
            break
        settled += 1
    fresh: list[Reading] = []
    for raw in raws[settled:]:
        reading = remembered.readings.get(raw)
        if reading is None:
            message = codec.read(raw)
            if blocks and message.role == "user":
                message = _without_own_blocks(message, blocks, secret)
            reading = _reading_of(message, codec, secret, weigher)
        fresh.append(reading)
    return ReadResult(settled=remembered.entries[:settled], fresh=tuple(fresh))


def enter(reading: Reading, key: EntryKey) -> Entry:
    """Give a reading its place."""
    return Entry(
        key=key,
        id=reading.id,
        message=reading.message,
        tokens=reading.tokens,
        role=reading.message.role,
        raw=reading.message.raw,
        calls=reading.calls,
        results=reading.results,
        odd=reading.odd,
    )


def remember(
    remembered: Remembered,
    format_name: str,
    entries: tuple[Entry, ...],
    done: ReadResult,
    composed: dict[Slot, Composed],
    last_view: LastView,
) -> None:
    """Keep this request's messages for the next one; of older ones only the branch just left."""
    left = remembered.entries[len(done.settled) :]
    if left:
        remembered.readings = {entry.raw: _reading(entry) for entry in left}
    remembered.readings.update({reading.message.raw: reading for reading in done.fresh})
    if len(remembered.readings) > 2 * len(entries) + 64:
        remembered.readings = {reading.message.raw: reading for reading in done.fresh}
    remembered.format = format_name
    remembered.raws = remembered.raws[: len(done.settled)] + tuple(
        [reading.message.raw for reading in done.fresh]
    )
    remembered.entries = entries
    if len(composed) > len(last_view.view.rows) + SPARE_ROWS:
        shown = {id(row) for row in last_view.view.rows}
        composed = {slot: row for slot, row in composed.items() if id(row) in shown}
    remembered.composed = composed
    remembered.last_view = last_view


def _reading(entry: Entry) -> Reading:
    return Reading(
        message=entry.message,
        id=entry.id,
        tokens=entry.tokens,
        calls=entry.calls,
        results=entry.results,
        odd=entry.odd,
    )


def _without_own_blocks(message: Message, blocks: Collection[str], secret: bytes) -> Message:
    """The message, with every block of ours that came back marked to be left out."""
    own = [
        Flaw(part=at, reason=Reason(Cause.EARLIER_BLOCK))
        for at, part in enumerate(message.parts)
        if isinstance(part, Text)
        and part.text.startswith(BLOCK_OPENING)
        and block_mark(part.text, secret) in blocks
    ]
    return replace(message, flaws=(*message.flaws, *own)) if own else message


def _reading_of(message: Message, codec: Codec, secret: bytes, weigher: Weigher) -> Reading:
    return Reading(
        message=message,
        id=identify(message, secret),
        tokens=weigher.message(message.parts),
        calls=call_ids(message),
        results=result_ids(message),
        odd=is_odd(message, codec.rules),
    )
