"""Decides when a compaction is due and what it cuts, replaces the older messages by a summary, and
undoes that. A cut never separates a call from its results. A breaker pauses compactions if they
fail or free nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from recollect.core.rules.budget import WindowLimits
from recollect.core.rules.calls import group
from recollect.core.rules.tokens import CALL_TOKENS, MESSAGE_TOKENS, Weigher
from recollect.core.values.compaction import CompactionResult, CutPlan, Due, NoCut
from recollect.core.values.edit import Cut, Edit, Insert, LeaveOut, Shorten
from recollect.core.values.history import Breaker, Entry, behind_cut, newest_cut
from recollect.core.values.message import CallId, EntryKey, Part, Text, ToolCall, ToolResult
from recollect.core.values.model import WireRules
from recollect.core.values.reason import Cause, Reason
from recollect.system.config.settings import Compaction

FAILURES = 3
"""Not measured; bounds the calls that a broken model costs before a pause."""
PAUSE_SECONDS = 600.0
"""Not measured; bounds how often compactions that fail cost calls."""
REFILLS = 3
"""Not measured; after so many windows in a row that filled up at once, compacting does not help."""
RAPID_TURNS = 2
"""Not measured; a window that is full again after two requests was filled by what a cut cannot
remove."""
MIN_FREED_SHARE = 0.05
"""Not measured; a compaction that frees less would be due again in a few turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerResult:
    """The step that is due (nothing, a note-taking turn, a compaction), and the reason."""

    due: Due
    reason: Reason
    flush_first: bool = False


def trigger(
    *,
    used_tokens: int | None,
    limits: WindowLimits,
    settings: Compaction,
    compactions: int,
    flushed_in: int | None = None,
    why_paused: Reason | None = None,
) -> TriggerResult:
    """Return the step that is due. `used_tokens` is the request's calibrated size, if known."""
    if used_tokens is None:
        return TriggerResult(due="nothing", reason=Reason(Cause.COUNT_STALE))
    if not settings.enabled:
        return TriggerResult(due="nothing", reason=Reason(Cause.COMPACTION_OFF))
    flush_due = (
        settings.flush.enabled
        and used_tokens >= limits.flush_tokens
        and (flushed_in is None or flushed_in != compactions)
    )
    limit = limits.compact_tokens
    if used_tokens > limit and why_paused is None:
        reason = Reason(Cause.DUE_OVER, tokens=used_tokens, limit=limit)
        return TriggerResult(due="compaction", reason=reason, flush_first=flush_due)
    if used_tokens > limit and why_paused is not None:
        reason = Reason(Cause.DUE_HELD_BACK, tokens=used_tokens, limit=limit, why=why_paused)
    elif flush_due:
        reason = Reason(Cause.FLUSH_DUE, tokens=used_tokens, limit=limits.flush_tokens)
    elif used_tokens >= limits.flush_tokens:
        reason = Reason(Cause.FLUSHED if settings.flush.enabled else Cause.FLUSHES_OFF)
    else:
        reason = Reason(Cause.NOT_FULL, tokens=used_tokens, limit=limits.flush_tokens)
    return TriggerResult(due="flush" if flush_due else "nothing", reason=reason)


def breaker_after(
    breaker: Breaker, result: CompactionResult, *, now: float, turn: int, window_tokens: int
) -> Breaker:
    """Return the breaker's state after a compaction. `turn` is the number of prepared requests."""
    if result.convergence == "failed":
        if breaker_is_open(breaker, now=now):
            return breaker
        failures, problem = breaker.failures + 1, str(result.reason)
        return _open_if_due(replace(breaker, failures=failures, problem=problem), now)
    freed_tokens = result.tokens_before - result.tokens_after if result.compacted else 0
    real = freed_tokens >= window_tokens * MIN_FREED_SHARE
    last_turn = turn if result.compacted else breaker.last_turn
    trying = breaker.opened_at is not None
    if real and (trying or not _refilled_rapidly(breaker, result, turn)):
        return Breaker(last_turn=last_turn)
    if result.trigger == "manual":
        return replace(breaker, last_turn=last_turn)
    refills = breaker.refills + 1
    new_breaker = Breaker(refills=refills, opened_at=breaker.opened_at, last_turn=last_turn)
    return _open_if_due(new_breaker, now)


def breaker_is_open(breaker: Breaker, *, now: float) -> bool:
    """Return whether compactions are paused now. If the clock was set back, the pause is over."""
    if breaker.opened_at is None:
        return False
    return 0 <= now - breaker.opened_at < PAUSE_SECONDS


def _refilled_rapidly(breaker: Breaker, result: CompactionResult, turn: int) -> bool:
    # After a provider's overflow error, only a compaction can make the request small enough.
    if result.trigger in ("manual", "overflow") or breaker.last_turn is None:
        return False
    return turn - breaker.last_turn <= RAPID_TURNS


def _open_if_due(breaker: Breaker, now: float) -> Breaker:
    trying = breaker.opened_at is not None
    if trying or breaker.failures >= FAILURES or breaker.refills >= REFILLS:
        return replace(breaker, opened_at=now)
    return breaker


SLACK = 1.5
"""Not measured; a better place for the cut may keep half as much more than asked for."""
MIN_FREED_TOKENS = 200
"""Not measured; a call for a summary costs more than so few tokens save."""


def count_sent_tokens(
    entries: Sequence[Entry], edits: Sequence[Edit], weigher: Weigher
) -> list[int]:
    """Return the tokens of each message as sent; 0 if it is left out. Cuts are ignored."""
    out: set[EntryKey] = set()
    parts_out: set[tuple[EntryKey, int]] = set()
    texts: dict[tuple[EntryKey, int], str] = {}
    for edit in edits:
        if isinstance(edit, Shorten):
            texts[edit.anchor, edit.part] = edit.text
        elif isinstance(edit, LeaveOut) and edit.part is None:
            out.add(edit.anchor)
        elif isinstance(edit, LeaveOut) and edit.part is not None:
            parts_out.add((edit.anchor, edit.part))
    edited = {key for key, _ in (*texts, *parts_out)}
    weights: list[int] = []
    for entry in entries:
        if entry.key in out or entry.key not in edited:
            weights.append(0 if entry.key in out else entry.tokens)
            continue
        left_parts = [
            _weight(part, texts.get((entry.key, index)), weigher)
            for index, part in enumerate(entry.parts)
            if (entry.key, index) not in parts_out
        ]
        weights.append(MESSAGE_TOKENS + sum(left_parts) if left_parts else 0)
    return weights


def _weight(part: Part, text: str | None, weigher: Weigher) -> int:
    if text is None:
        return weigher.part(part)
    if not isinstance(part, ToolResult):
        return weigher.text(text)
    other_tokens = sum(weigher.part(inner) for inner in part.content if not isinstance(inner, Text))
    return CALL_TOKENS + weigher.text(text) + other_tokens


def bound_spans(entries: Sequence[Entry], rules: WireRules) -> list[tuple[int, int]]:
    """Return the first and last position of each group of messages that must not be separated."""
    spans = [(min(unit.entries), max(unit.entries)) for unit in group(entries, rules)]
    waiting: dict[CallId, list[int]] = {}
    early: list[tuple[int, CallId]] = []
    for index, entry in enumerate(entries):
        if not entry.calls and not entry.results:
            continue
        for part in entry.parts:
            if isinstance(part, ToolCall):
                waiting.setdefault(part.id, []).append(index)
            elif isinstance(part, ToolResult):
                call_indexes = waiting.get(part.call_id) or waiting.get(
                    part.alternative or CallId("")
                )
                if call_indexes:
                    spans.append((call_indexes.pop(), index))
                else:
                    early.append((index, part.call_id))
    for index, call_id in early:
        later = next((call for call in waiting.get(call_id, ()) if call > index), None)
        if later is not None:
            waiting[call_id].remove(later)
            spans.append((index, later))
    return spans


@dataclass(frozen=True, slots=True)
class _Range:
    entries: Sequence[Entry]
    first_point: int
    kept_tokens: list[int]
    continued: bool


def cut(
    entries: Sequence[Entry],
    edits: Sequence[Edit],
    rules: WireRules,
    *,
    keep_tokens: int,
    least_freed_tokens: int = MIN_FREED_TOKENS,
    weigher: Weigher | None = None,
) -> CutPlan | NoCut:
    """Plan a cut after which about `keep_tokens` of the messages remain; with 0, only the newest
    turn. Recalled blocks do not count, because a compaction removes them."""
    if all(entry.role == "system" for entry in entries):
        return NoCut(reason=Reason(Cause.NOTHING_SAID))
    cuttable = _find_cuttable_range(entries, edits, weigher or Weigher())
    newest = len(cuttable.entries) - 1
    place = next(
        (index for index in range(newest, -1, -1) if cuttable.kept_tokens[index] >= keep_tokens),
        None,
    )
    if place is None:
        return NoCut(reason=Reason(Cause.ALL_FITS, tokens=keep_tokens))
    points = _find_points(cuttable, rules)
    if not points:
        return NoCut(reason=Reason(Cause.ONE_EXCHANGE))
    useful_points = [
        index for index in points if _count_freed(cuttable, index) > least_freed_tokens
    ]
    if not useful_points:
        freed_tokens = _count_freed(cuttable, points[-1])
        return NoCut(reason=Reason(Cause.FREES_LITTLE, tokens=freed_tokens))
    return _make_plan(
        cuttable, _choose_point(cuttable, useful_points, place, keep_tokens), keep_tokens
    )


def _find_cuttable_range(
    entries: Sequence[Entry], edits: Sequence[Edit], weigher: Weigher
) -> _Range:
    hidden_keys = behind_cut(entries, edits)
    entries = [entry for entry in entries if entry.key not in hidden_keys]
    cut = newest_cut(edits)
    anchors = (index for index, entry in enumerate(entries) if cut and entry.key == cut.anchor)
    anchor = next(anchors, None)
    sent_tokens = count_sent_tokens(entries, edits, weigher)
    kept_tokens = [0] * (len(entries) + 1)
    for index in range(len(entries) - 1, -1, -1):
        weight = 0 if entries[index].role == "system" else sent_tokens[index]
        kept_tokens[index] = kept_tokens[index + 1] + weight
    return _Range(
        entries=entries,
        kept_tokens=kept_tokens,
        first_point=(anchor or 0) + 1,
        continued=anchor is not None,
    )


def _count_freed(cuttable: _Range, index: int) -> int:
    return cuttable.kept_tokens[0] - cuttable.kept_tokens[index]


def _find_points(cuttable: _Range, rules: WireRules) -> list[int]:
    size = len(cuttable.entries)
    depth_changes = [0] * (size + 1)
    for first, last in bound_spans(cuttable.entries, rules):
        depth_changes[first + 1] += 1
        depth_changes[last + 1] -= 1
    points: list[int] = []
    depth = depth_changes[0] if size else 0
    for index in range(1, size):
        depth += depth_changes[index]
        allowed = index >= cuttable.first_point and _may_begin(cuttable.entries[index])
        if depth == 0 and cuttable.kept_tokens[index] > 0 and allowed:
            points.append(index)
    return points


def _may_begin(entry: Entry) -> bool:
    return entry.role in ("user", "assistant") and not entry.results and not entry.message.summary


def _choose_point(cuttable: _Range, points: list[int], place: int, keep_tokens: int) -> int:
    max_tokens = int(keep_tokens * SLACK)
    point_index = bisect_right(points, place - 1)
    earlier = points[point_index - 1] if point_index else None
    if point_index == len(points):
        point = points[-1]
    else:
        point = points[point_index]
        keeps_little = cuttable.kept_tokens[point] * 2 < keep_tokens
        if keeps_little and earlier is not None and cuttable.kept_tokens[earlier] <= max_tokens:
            point = earlier
    newest_turn = _find_turn_start(cuttable, len(cuttable.entries))
    if newest_turn is not None and point > newest_turn:
        before_turn = bisect_right(points, newest_turn)
        if before_turn and cuttable.kept_tokens[points[before_turn - 1]] <= max_tokens:
            point = points[before_turn - 1]
    return point


def _make_plan(cuttable: _Range, index: int, keep_tokens: int) -> CutPlan:
    entries = cuttable.entries
    split, continues = index, False
    if not _starts_a_turn(entries[index]):
        turn = _find_turn_start(cuttable, index)
        if turn is not None:
            split = turn
        elif cuttable.continued:
            split, continues = 0, True  # the previous cut was inside the same turn
    history = _without_system(entries[:split])
    turn_prefix = _without_system(entries[split:index])
    return CutPlan(
        anchor=entries[index].key,
        history=history,
        turn_prefix=turn_prefix,
        continues_turn=continues,
        kept=tuple(entries[index:]),
        kept_tokens=cuttable.kept_tokens[index],
        summarized_tokens=sum(entry.tokens for entry in history + turn_prefix),
        reason=Reason(
            Cause.CUT_WITHIN if turn_prefix else Cause.CUT_BETWEEN,
            messages=len(history) + len(turn_prefix),
            tokens=cuttable.kept_tokens[index],
            wanted=keep_tokens,
        ),
    )


def _without_system(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    return tuple(entry for entry in entries if entry.role != "system")


def _find_turn_start(cuttable: _Range, before: int) -> int | None:
    for index in range(before - 1, -1, -1):
        if _starts_a_turn(cuttable.entries[index]):
            while index > 0 and _starts_a_turn(cuttable.entries[index - 1]):
                index -= 1  # a client may send one user's request as several messages
            return index
    return None


def _starts_a_turn(entry: Entry) -> bool:
    if entry.role != "user" or entry.message.summary:
        return False
    unfit_parts = {flaw.part for flaw in entry.message.flaws}
    return any(
        not isinstance(part, ToolResult)
        and index not in unfit_parts
        and not (isinstance(part, Text) and not part.text.strip())
        for index, part in enumerate(entry.parts)
    )


def replace_past(
    edits: Sequence[Edit],
    cut: Cut,
    entries: Sequence[Entry],
    *,
    keep_blocks: AbstractSet[EntryKey] = frozenset(),
) -> tuple[Edit, ...]:
    """Return the edits after `cut` replaced the `entries` before its anchor."""
    blocks = [edit for edit in edits if isinstance(edit, Insert)]
    kept_blocks = [block for block in blocks if block.anchor in keep_blocks]
    ended_blocks = tuple(block for block in blocks if block.anchor not in keep_blocks)
    cuts = [edit for edit in edits if isinstance(edit, Cut)]
    other_edits = [edit for edit in edits if not isinstance(edit, Cut | Insert)]
    older = cuts[-1:]
    if len(cuts) > 1:
        # The request before the older cut, and its recalled blocks, can no longer be restored.
        older = [replace(cuts[-1], ended=())]
    hidden_keys = behind_cut(entries, older)
    needed_edits = [edit for edit in other_edits if edit.anchor not in hidden_keys]
    return (*needed_edits, *kept_blocks, *older, replace(cut, ended=ended_blocks))


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoResult:
    """The edits after an undo, the removed cut if there was one, and the reason."""

    edits: tuple[Edit, ...] = field(repr=False)
    undone: Cut | None = field(repr=False)
    reason: Reason

    def __str__(self) -> str:
        return str(self.reason)


def undo(edits: Sequence[Edit], *, known_keys: Collection[EntryKey] | None = None) -> UndoResult:
    """Remove the newest cut, so that the cut before it applies again."""
    index = max((index for index, edit in enumerate(edits) if isinstance(edit, Cut)), default=None)
    if index is None:
        return UndoResult(edits=tuple(edits), undone=None, reason=Reason(Cause.NOTHING_TO_UNDO))
    undone = edits[index]
    assert isinstance(undone, Cut)
    if undone.before and not any(isinstance(edit, Cut) for edit in edits[:index]):
        return UndoResult(
            edits=tuple(edits), undone=None, reason=Reason(Cause.UNDO_LOST, number=undone.number)
        )
    other_edits = [  # standing blocks were made for the request with this cut
        edit
        for edit in (*edits[:index], *edits[index + 1 :])
        if not (isinstance(edit, Insert) and edit.stage == "stand")
    ]
    restored_blocks = [
        block
        for block in undone.ended
        if (known_keys is None or block.anchor is None or block.anchor in known_keys)
        and block not in other_edits
    ]
    older = any(isinstance(edit, Cut) for edit in other_edits)
    return UndoResult(
        # Older blocks first: if two follow the same message, their order stays the same.
        edits=(*restored_blocks, *other_edits),
        undone=undone,
        reason=Reason(Cause.UNDONE_TO_SUMMARY if older else Cause.UNDONE, number=undone.number),
    )
