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
PAUSE_SECONDS = 600.0
REFILLS = 3
RAPID_TURNS = 2
LEAST_FREED_SHARE = 0.05


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
    if used_tokens > limits.compact_tokens:
        limit = limits.compact_tokens
        if why_paused is None:
            over = Reason(Cause.DUE_OVER, tokens=used_tokens, limit=limit)
            return TriggerResult(due="compaction", reason=over, flush_first=flush_due)
        held_back = Reason(Cause.DUE_HELD_BACK, tokens=used_tokens, limit=limit, why=why_paused)
        return TriggerResult(due="flush" if flush_due else "nothing", reason=held_back)
    if flush_due:
        due = Reason(Cause.FLUSH_DUE, tokens=used_tokens, limit=limits.flush_tokens)
        return TriggerResult(due="flush", reason=due)
    if used_tokens >= limits.flush_tokens:
        written = Reason(Cause.FLUSHED if settings.flush.enabled else Cause.FLUSHES_OFF)
        return TriggerResult(due="nothing", reason=written)
    room = Reason(Cause.NOT_FULL, tokens=used_tokens, limit=limits.flush_tokens)
    return TriggerResult(due="nothing", reason=room)


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
    real = freed_tokens >= window_tokens * LEAST_FREED_SHARE
    last_turn = turn if result.compacted else breaker.last_turn
    trying = breaker.opened_at is not None
    if real and (trying or not _refilled_rapidly(breaker, result, turn)):
        return Breaker(last_turn=last_turn)
    if result.trigger == "manual":
        return replace(breaker, last_turn=last_turn)
    refills = breaker.refills + 1
    counted = Breaker(refills=refills, opened_at=breaker.opened_at, last_turn=last_turn)
    return _open_if_due(counted, now)


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


def _open_if_due(counted: Breaker, now: float) -> Breaker:
    trying = counted.opened_at is not None
    if trying or counted.failures >= FAILURES or counted.refills >= REFILLS:
        return replace(counted, opened_at=now)
    return counted


SLACK = 1.5
LEAST_FREED_TOKENS = 200


def shown_tokens(entries: Sequence[Entry], edits: Sequence[Edit], weigher: Weigher) -> list[int]:
    """Return the tokens of each message as sent; 0 if it is left out. Cuts are ignored."""
    out: set[EntryKey] = set()
    parts_out: dict[EntryKey, set[int]] = {}
    texts: dict[EntryKey, dict[int, str]] = {}
    for edit in edits:
        if isinstance(edit, Shorten):
            texts.setdefault(edit.anchor, {})[edit.part] = edit.text
        elif isinstance(edit, LeaveOut) and edit.part is None:
            out.add(edit.anchor)
        elif isinstance(edit, LeaveOut) and edit.part is not None:
            parts_out.setdefault(edit.anchor, set()).add(edit.part)
    weights: list[int] = []
    for entry in entries:
        if entry.key in out:
            weights.append(0)
        elif entry.key in texts or entry.key in parts_out:
            gone, said = parts_out.get(entry.key, set()), texts.get(entry.key, {})
            weights.append(_edited(entry, gone, said, weigher))
        else:
            weights.append(entry.tokens)
    return weights


def _edited(entry: Entry, gone: set[int], said: dict[int, str], weigher: Weigher) -> int:
    left = [(at, part) for at, part in enumerate(entry.parts) if at not in gone]
    if not left:
        return 0
    return MESSAGE_TOKENS + sum(_weight(part, said.get(at), weigher) for at, part in left)


def _weight(part: Part, text: str | None, weigher: Weigher) -> int:
    if text is None:
        return weigher.part(part)
    if not isinstance(part, ToolResult):
        return weigher.text(text)
    rest = sum(weigher.part(inner) for inner in part.content if not isinstance(inner, Text))
    return CALL_TOKENS + weigher.text(text) + rest


def bound_spans(entries: Sequence[Entry], rules: WireRules) -> list[tuple[int, int]]:
    """Return the first and last position of each group of messages that must not be separated."""
    spans = [(min(other.entries), max(other.entries)) for other in group(entries, rules)]
    waiting: dict[CallId, list[int]] = {}
    early: list[tuple[int, CallId]] = []
    for at, entry in enumerate(entries):
        if not entry.calls and not entry.results:
            continue
        for part in entry.parts:
            if isinstance(part, ToolCall):
                waiting.setdefault(part.id, []).append(at)
            elif isinstance(part, ToolResult):
                answered = waiting.get(part.call_id) or waiting.get(part.alternative or CallId(""))
                if answered:
                    spans.append((answered.pop(), at))
                else:
                    early.append((at, part.call_id))
    for at, call_id in early:
        later = next((call for call in waiting.get(call_id, ()) if call > at), None)
        if later is not None:
            waiting[call_id].remove(later)
            spans.append((at, later))
    return spans


@dataclass(frozen=True, slots=True)
class _Range:
    entries: Sequence[Entry]
    first_point: int
    kept: list[int]
    continued: bool


def cut(
    entries: Sequence[Entry],
    edits: Sequence[Edit],
    rules: WireRules,
    *,
    keep_tokens: int,
    least_freed_tokens: int = LEAST_FREED_TOKENS,
    weigher: Weigher | None = None,
) -> CutPlan | NoCut:
    """Plan a cut after which about `keep_tokens` of the messages remain; with 0, only the newest
    turn. Recalled blocks do not count, because a compaction removes them."""
    if all(entry.role == "system" for entry in entries):
        return NoCut(reason=Reason(Cause.NOTHING_SAID))
    cuttable = _cuttable_range(entries, edits, weigher or Weigher())
    newest = len(cuttable.entries) - 1
    place = next((at for at in range(newest, -1, -1) if cuttable.kept[at] >= keep_tokens), None)
    if place is None:
        return NoCut(reason=Reason(Cause.ALL_FITS, tokens=keep_tokens))
    points = _points(cuttable, rules)
    if not points:
        return NoCut(reason=Reason(Cause.ONE_EXCHANGE))
    worth = [at for at in points if _freed(cuttable, at) > least_freed_tokens]
    if not worth:
        freed = _freed(cuttable, points[-1])
        return NoCut(reason=Reason(Cause.FREES_LITTLE, tokens=freed))
    return _plan(cuttable, _chosen(cuttable, worth, place, keep_tokens), keep_tokens)


def _cuttable_range(entries: Sequence[Entry], edits: Sequence[Edit], weigher: Weigher) -> _Range:
    hidden = behind_cut(entries, edits)
    entries = [entry for entry in entries if entry.key not in hidden]
    cut = newest_cut(edits)
    anchors = (at for at, entry in enumerate(entries) if cut and entry.key == cut.anchor)
    anchor = next(anchors, None)
    shown = shown_tokens(entries, edits, weigher)
    kept = [0] * (len(entries) + 1)
    for at in range(len(entries) - 1, -1, -1):
        weight = 0 if entries[at].role == "system" else shown[at]
        kept[at] = kept[at + 1] + weight
    return _Range(
        entries=entries, kept=kept, first_point=(anchor or 0) + 1, continued=anchor is not None
    )


def _freed(cuttable: _Range, at: int) -> int:
    return cuttable.kept[0] - cuttable.kept[at]


def _points(cuttable: _Range, rules: WireRules) -> list[int]:
    size = len(cuttable.entries)
    inside = [0] * (size + 1)
    for first, last in bound_spans(cuttable.entries, rules):
        inside[first + 1] += 1
        inside[last + 1] -= 1
    points: list[int] = []
    within = inside[0] if size else 0
    for at in range(1, size):
        within += inside[at]
        allowed = at >= cuttable.first_point and _may_begin(cuttable.entries[at])
        if within == 0 and cuttable.kept[at] > 0 and allowed:
            points.append(at)
    return points


def _may_begin(entry: Entry) -> bool:
    return entry.role in ("user", "assistant") and not entry.results and not entry.message.summary


def _chosen(cuttable: _Range, points: list[int], place: int, keep_tokens: int) -> int:
    most = int(keep_tokens * SLACK)
    behind = bisect_right(points, place - 1)
    earlier = points[behind - 1] if behind else None
    if behind == len(points):
        chosen = points[-1]
    else:
        chosen = points[behind]
        keeps_little = cuttable.kept[chosen] * 2 < keep_tokens
        if keeps_little and earlier is not None and cuttable.kept[earlier] <= most:
            chosen = earlier
    newest_turn = _turn_start(cuttable, len(cuttable.entries))
    if newest_turn is not None and chosen > newest_turn:
        before_turn = bisect_right(points, newest_turn)
        if before_turn and cuttable.kept[points[before_turn - 1]] <= most:
            chosen = points[before_turn - 1]
    return chosen


def _plan(cuttable: _Range, at: int, keep_tokens: int) -> CutPlan:
    entries = cuttable.entries
    split, continues = at, False
    if not _starts_a_turn(entries[at]):
        turn = _turn_start(cuttable, at)
        if turn is not None:
            split = turn
        elif cuttable.continued:
            split, continues = 0, True  # the previous cut was inside the same turn
    history = _spoken(entries[:split])
    turn_prefix = _spoken(entries[split:at])
    return CutPlan(
        anchor=entries[at].key,
        history=history,
        turn_prefix=turn_prefix,
        continues_turn=continues,
        kept=tuple(entries[at:]),
        kept_tokens=cuttable.kept[at],
        summarized_tokens=sum(entry.tokens for entry in history + turn_prefix),
        reason=Reason(
            Cause.CUT_WITHIN if turn_prefix else Cause.CUT_BETWEEN,
            messages=len(history) + len(turn_prefix),
            tokens=cuttable.kept[at],
            wanted=keep_tokens,
        ),
    )


def _spoken(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    return tuple(entry for entry in entries if entry.role != "system")


def _turn_start(cuttable: _Range, before: int) -> int | None:
    for at in range(before - 1, -1, -1):
        if _starts_a_turn(cuttable.entries[at]):
            while at > 0 and _starts_a_turn(cuttable.entries[at - 1]):
                at -= 1  # a client may send one user's request as several messages
            return at
    return None


def _starts_a_turn(entry: Entry) -> bool:
    if entry.role != "user" or entry.message.summary:
        return False
    unfit = {flaw.part for flaw in entry.message.flaws}
    return any(
        not isinstance(part, ToolResult)
        and at not in unfit
        and not (isinstance(part, Text) and not part.text.strip())
        for at, part in enumerate(entry.parts)
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
    ended = tuple(block for block in blocks if block.anchor not in keep_blocks)
    cuts = [edit for edit in edits if isinstance(edit, Cut)]
    others = [edit for edit in edits if not isinstance(edit, Cut | Insert)]
    older = cuts[-1:]
    if len(cuts) > 1:
        # The request before the older cut, and its recalled blocks, can no longer be restored.
        older = [replace(cuts[-1], ended=())]
    hidden = behind_cut(entries, older)
    needed = [edit for edit in others if edit.anchor not in hidden]
    return (*needed, *kept_blocks, *older, replace(cut, ended=ended))


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoResult:
    """The edits after an undo, the removed cut if there was one, and the reason."""

    edits: tuple[Edit, ...] = field(repr=False)
    undone: Cut | None = field(repr=False)
    reason: Reason

    def __str__(self) -> str:
        return str(self.reason)


def undo(edits: Sequence[Edit], *, known: Collection[EntryKey] | None = None) -> UndoResult:
    """Remove the newest cut, so that the cut before it applies again."""
    at = max((at for at, edit in enumerate(edits) if isinstance(edit, Cut)), default=None)
    if at is None:
        return UndoResult(edits=tuple(edits), undone=None, reason=Reason(Cause.NOTHING_TO_UNDO))
    undone = edits[at]
    assert isinstance(undone, Cut)
    if undone.before and not any(isinstance(edit, Cut) for edit in edits[:at]):
        return UndoResult(
            edits=tuple(edits), undone=None, reason=Reason(Cause.UNDO_LOST, number=undone.number)
        )
    rest = [  # standing blocks were made for the request with this cut
        edit
        for edit in (*edits[:at], *edits[at + 1 :])
        if not (isinstance(edit, Insert) and edit.stage == "stand")
    ]
    back = [
        block
        for block in undone.ended
        if (known is None or block.anchor is None or block.anchor in known) and block not in rest
    ]
    older = any(isinstance(edit, Cut) for edit in rest)
    return UndoResult(
        # Older blocks first: if two follow the same message, their order stays the same.
        edits=(*back, *rest),
        undone=undone,
        reason=Reason(Cause.UNDONE_TO_SUMMARY if older else Cause.UNDONE, number=undone.number),
    )
