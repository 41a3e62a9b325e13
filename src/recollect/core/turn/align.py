"""Reads incoming messages into entries, and gives each the key that it had in the known history.
Messages of the last request are recognized by their bytes. A key includes all messages before it,
so a resent prefix has the same keys. After the first difference, messages are matched by the
longest equal sequences (docs/design.md). One short message ("ok") is never matched this way."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, takewhile
from operator import attrgetter
from typing import Final, Literal, NamedTuple, TypeAlias

from recollect.core.formats.codec import Codec
from recollect.core.rules.calls import call_ids, is_odd, result_ids
from recollect.core.rules.identity import ROOT, SealSecret, block_mark, chain, identify, is_sealed
from recollect.core.rules.tokens import Weigher
from recollect.core.turn.apply import LastView
from recollect.core.turn.ingest import split_message
from recollect.core.values.history import Entry, SessionState, Slot
from recollect.core.values.message import (
    CallId,
    EntryKey,
    Flaw,
    Message,
    MessageId,
    Text,
    ToolResult,
)
from recollect.core.values.model import WireRules
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.recall import BLOCK_OPENING, TOOL_OPENING

_ANSWER_SIGN = b"memory-tools"
"""Bytes that occur in every answer of a memory tool."""
SPARE_ROWS = 256  # not measured; bounds memory


class Reading(NamedTuple):
    """A message with computed values, as a tuple, because a request creates thousands."""

    message: Message
    id: MessageId
    tokens: int
    calls: tuple[CallId, ...]
    results: tuple[CallId, ...]
    odd: bool
    attachments: int


_FIELDS_OF_READING: Final = attrgetter(*Reading._fields)
StatementCache: TypeAlias = dict[EntryKey, tuple[tuple[str, str, float, str], ...]]
"""The statements of each message: speaker, sentence, importance and normalized form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRequest:
    """The last request of a session. It is only a cache: results are the same without it."""

    rules: WireRules | None = None
    raws: tuple[bytes, ...] = ()
    entries: tuple[Entry, ...] = ()
    readings: dict[bytes, Reading] = field(default_factory=dict)
    composed: dict[Slot, Slot] = field(default_factory=dict)
    last_view: LastView | None = None
    statements: StatementCache = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """Entries of messages that the last request had too, and readings of the new messages."""

    settled: tuple[Entry, ...]
    new_readings: tuple[Reading, ...]

    @property
    def reason(self) -> Reason:
        return Reason(Cause.MESSAGES_READ, known=len(self.settled), fresh=len(self.new_readings))


def read(
    raws: Sequence[bytes],
    codec: Codec,
    secret: bytes,
    weigher: Weigher,
    last_request: LastRequest,
    blocks: Collection[str] = (),
    answers: Mapping[str, tuple[MessageId, ...]] | None = None,
    seal: SealSecret | None = None,
) -> ReadResult:
    """Read messages that were not at this position in the last request. `blocks` are hashes of the
    session's recalled blocks and tool answers. `answers` maps hashes of answers of memory tools to
    the messages that each answer quotes."""
    settled = _count_unchanged(raws, last_request)
    new_readings: list[Reading] = []
    for raw in raws[settled:]:
        reading = last_request.readings.get(raw)
        if reading is None:
            message = codec.read(raw)
            if blocks and message.role == "user":
                message = _without_own_blocks(message, blocks, secret)
            if _ANSWER_SIGN in raw:
                message = _with_quotes(message, blocks, answers or {}, secret, seal)
            reading = reading_of(message, codec, secret, weigher)
        new_readings.append(reading)
    return ReadResult(settled=last_request.entries[:settled], new_readings=tuple(new_readings))


def _count_unchanged(raws: Sequence[bytes], last_request: LastRequest) -> int:
    common_length = min(len(raws), len(last_request.raws))
    # Compare all messages in one step first, because usually none of them has changed.
    if tuple(raws[:common_length]) == last_request.raws[:common_length]:
        return common_length
    return count_same_first(raws, last_request.raws)


def count_same_first(first: Sequence[object], second: Sequence[object]) -> int:
    """Return how many items at the start of two sequences are equal."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return sum(1 for _ in pairs)


def answers_in(
    raws: Sequence[bytes], codec: Codec, secret: bytes, last_request: LastRequest
) -> tuple[str, ...]:
    """Return the hashes of new results that look like answers of memory tools, whichever process
    made them, and with whichever seal."""
    new_raws = [raw for raw in raws[_count_unchanged(raws, last_request) :] if _ANSWER_SIGN in raw]
    return tuple(
        block_mark(part.text, secret)
        for raw in new_raws
        if raw not in last_request.readings
        for part in codec.read(raw).parts
        if isinstance(part, ToolResult) and part.text.startswith(TOOL_OPENING)
    )


def enter(reading: Reading, key: EntryKey) -> Entry:
    message = reading.message
    return Entry(key=key, role=message.role, raw=message.raw, **reading._asdict())


def remember(
    before: LastRequest,
    rules: WireRules,
    entries: tuple[Entry, ...],
    read_result: ReadResult,
    last_view: LastView,
) -> LastRequest:
    """Return this request's messages for comparison with the next request. Messages of a branch
    that the client has just left are included."""
    new_readings = {reading.message.raw: reading for reading in read_result.new_readings}
    abandoned_entries = before.entries[len(read_result.settled) :]
    readings = (
        {entry.raw: Reading._make(_FIELDS_OF_READING(entry)) for entry in abandoned_entries}
        if abandoned_entries
        else before.readings
    )
    readings.update(new_readings)
    if len(readings) > 2 * len(entries) + 64:
        readings = new_readings
    composed = before.composed
    if len(composed) > len(last_view.view.rows) + SPARE_ROWS:
        row_ids = {id(row) for row in last_view.view.rows}
        composed = {slot: row for slot, row in composed.items() if id(row) in row_ids}
    return LastRequest(
        rules=rules,
        raws=before.raws[: len(read_result.settled)]
        + tuple([reading.message.raw for reading in read_result.new_readings]),
        entries=entries,
        readings=readings,
        composed=composed,
        last_view=last_view,
        statements=before.statements,
    )


def _without_own_blocks(message: Message, blocks: Collection[str], secret: bytes) -> Message:
    flaws = [
        Flaw(part=index, reason=Reason(Cause.EARLIER_BLOCK))
        for index, part in enumerate(message.parts)
        if isinstance(part, Text)
        and part.text.startswith(BLOCK_OPENING)
        and block_mark(part.text, secret) in blocks
    ]
    return replace(message, flaws=(*message.flaws, *flaws)) if flaws else message


def _with_quotes(
    message: Message,
    blocks: Collection[str],
    answers: Mapping[str, tuple[MessageId, ...]],
    secret: bytes,
    seal: SealSecret | None,
) -> Message:
    results_by_index: dict[int, ToolResult] = {}
    for index, part in enumerate(message.parts):
        if isinstance(part, ToolResult) and part.text.startswith(TOOL_OPENING):
            mark = block_mark(part.text, secret)
            is_known = mark in answers or mark in blocks
            if is_known or (seal is not None and is_sealed(part.text, seal())):
                results_by_index[index] = replace(part, recalls=answers.get(mark, ()))
    if not results_by_index:
        return message
    parts = [results_by_index.get(index, part) for index, part in enumerate(message.parts)]
    return replace(message, parts=tuple(parts))


def reading_of(message: Message, codec: Codec, secret: bytes, weigher: Weigher) -> Reading:
    """Compute the values of a message that its entry needs."""
    return Reading(
        message=message,
        id=identify(message, secret),
        tokens=weigher.message(message.parts),
        calls=call_ids(message),
        results=result_ids(message),
        odd=is_odd(message, codec.rules),
        attachments=len(split_message(message)) - 1,
    )


DISTINCTIVE_TOKENS = 14
"""A single message with fewer tokens is never recognized at another position."""

TELLING_RUN_TOKENS = 4 * DISTINCTIVE_TOKENS

Course: TypeAlias = Literal["begun", "continued", "repeated", "branched", "rejoined"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """The key of each incoming message, and how the history differs from the known one."""

    keys: tuple[EntryKey, ...]
    course: Course
    shared: int
    rejoined: int
    aliases: Mapping[EntryKey, EntryKey]

    @property
    def reason(self) -> Reason:
        """Describe how the history differs from the known one, for the report."""
        if not self.rejoined:
            return Reason(Cause.ALIGNED, course=self.course, shared=self.shared)
        return Reason(
            Cause.REJOINED, course=self.course, shared=self.shared, rejoined=self.rejoined
        )


def align(
    state: SessionState,
    ids: Sequence[MessageId],
    weights: Sequence[int],
    *,
    settled: int = 0,
    root: EntryKey = ROOT,
) -> Alignment:
    """Find the key of every message. The first `settled` messages are unchanged; `weights` has the
    others' token counts. `root` is not `ROOT` if the provider stores the earlier history."""
    if root != ROOT:
        return _behind(root, state, ids)
    keys = list(state.path[:settled])
    for identity in ids[settled:]:
        key = chain(keys[-1] if keys else ROOT, identity)
        key = state.aliases.get(key, key)
        if len(keys) < len(state.path) and state.path[len(keys)] != key:
            break
        keys.append(key)
    shared = len(keys)
    if shared == len(ids):
        course: Course = "repeated" if shared <= len(state.path) else "continued"
        return Alignment(
            keys=tuple(keys),
            course=course if state.path else "begun",
            shared=min(shared, len(state.path)),
            rejoined=0,
            aliases=state.aliases,
        )
    places = _rejoin(state.ids[shared:], ids[shared:], weights[shared - settled :])
    aliases = dict(state.aliases)
    for index, identity in enumerate(ids[shared:]):
        chained_key = chain(keys[-1] if keys else ROOT, identity)
        key = aliases.get(chained_key, chained_key)
        if index in places:
            key = state.path[shared + places[index]]
            if key != chained_key:
                aliases[chained_key] = key
        keys.append(key)
    # also keep keys of branches with edits, because the client may return to such a branch
    used_keys = {*keys, *(edit.anchor for edit in state.edits)}
    used_keys.update(edit.anchor for edit, _ in state.dormant)
    aliases = {alias: key for alias, key in aliases.items() if key in used_keys}
    return Alignment(
        keys=tuple(keys),
        course="rejoined" if places else "branched",
        shared=shared,
        rejoined=len(places),
        aliases=aliases,
    )


def _behind(root: EntryKey, state: SessionState, ids: Sequence[MessageId]) -> Alignment:
    keys = tuple(accumulate(ids, chain, initial=root))[1:]
    shared = count_same_first(keys, state.path)
    return Alignment(
        keys=keys,
        course="repeated" if keys and shared == len(keys) else "continued",
        shared=shared,
        rejoined=0,
        aliases=state.aliases,
    )


def _rejoin(
    old_ids: Sequence[MessageId], new_ids: Sequence[MessageId], weights: Sequence[int]
) -> dict[int, int]:
    old_counts, new_counts = Counter(old_ids), Counter(new_ids)
    old_indexes = {identity: index for index, identity in enumerate(old_ids)}
    anchors = [
        (index, old_indexes[identity])
        for index, identity in enumerate(new_ids)
        if old_counts[identity] == 1 and new_counts[identity] == 1
    ]
    places: dict[int, int] = {}
    for new_index, old_index in _longest_increasing(anchors):
        if new_index in places:
            continue
        run = _run_around(old_ids, new_ids, new_index, old_index)
        if _is_enough(run, weights, len(new_ids)):
            places.update(run)
    return _increasing_only(places)


def _is_enough(run: dict[int, int], weights: Sequence[int], length: int) -> bool:
    if len(run) == 1 and length - 1 in run:
        return False
    heaviest = max(weights[index] for index in run)
    return (
        heaviest >= DISTINCTIVE_TOKENS or sum(weights[index] for index in run) >= TELLING_RUN_TOKENS
    )


def _run_around(
    old_ids: Sequence[MessageId], new_ids: Sequence[MessageId], new_index: int, old_index: int
) -> dict[int, int]:
    start = 0
    while (
        min(new_index, old_index) - start > 0
        and new_ids[new_index - start - 1] == old_ids[old_index - start - 1]
    ):
        start += 1
    run: dict[int, int] = {}
    a, b = new_index - start, old_index - start
    while a < len(new_ids) and b < len(old_ids) and new_ids[a] == old_ids[b]:
        run[a] = b
        a, b = a + 1, b + 1
    return run


def _longest_increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    tails: list[int] = []
    tail_indexes: list[int] = []
    before: list[int] = []
    for index, (_, old_index) in enumerate(pairs):
        place = bisect_left(tails, old_index)
        before.append(tail_indexes[place - 1] if place else -1)
        if place == len(tails):
            tails.append(old_index)
            tail_indexes.append(index)
        else:
            tails[place] = old_index
            tail_indexes[place] = index
    sequence: list[tuple[int, int]] = []
    index = tail_indexes[-1] if tail_indexes else -1
    while index >= 0:
        sequence.append(pairs[index])
        index = before[index]
    sequence.reverse()
    return sequence


def _increasing_only(places: dict[int, int]) -> dict[int, int]:
    kept: dict[int, int] = {}
    highest = -1
    for new_index in sorted(places):
        if places[new_index] > highest:
            highest = places[new_index]
            kept[new_index] = highest
    return kept
