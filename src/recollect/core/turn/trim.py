"""Trim: leave whole messages out of a view that is over its limit, in one sticky batch.

Protect first (system, summary, the first and the newest user message, the last messages, the last
tool span, pinned), then leave out what is least relevant to the query, then what is oldest, down
to the low-water mark. Calls and results leave together, a question with its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache, partial

from recollect.core.rules.calls import Group, group
from recollect.core.rules.tokens import MESSAGE_TOKENS, Weigher
from recollect.core.search.bm25 import Bm25Index
from recollect.core.search.openclaw import score_texts, words_of
from recollect.core.search.tokenize import tokenize
from recollect.core.turn.apply import gap_note
from recollect.core.turn.query import LEAST_QUERY_CHARS, spoken_text
from recollect.core.values.edit import Edit, LeaveOut, Shorten
from recollect.core.values.history import Entry
from recollect.core.values.message import EntryKey, Part, Text, ToolCall, ToolResult
from recollect.core.values.model import WireRules
from recollect.core.values.reason import Cause, Reason
from recollect.system.config.settings import Trim


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimResult:
    """What leaves the view, what that frees (before calibration), and why."""

    edits: tuple[LeaveOut, ...]
    freed_tokens: int
    reason: Reason
    protected: frozenset[EntryKey] = frozenset()


def trim(
    entries: Sequence[Entry],
    edits: Sequence[Edit],
    rules: WireRules,
    settings: Trim,
    weigher: Weigher,
    *,
    query: str,
    excess_tokens: int,
    turn: int,
    pinned: frozenset[EntryKey] = frozenset(),
    by_exchange: bool = True,
    hidden: AbstractSet[EntryKey] = frozenset(),
) -> TrimResult:
    """Leave out groups of the visible `entries` until `excess_tokens` are freed.

    `by_exchange`: a question leaves with its answer, so that no view shows a row of questions
    that nobody answered; OpenClaw chooses message by message, and by its
    own words. `hidden` messages are not shown
    because of what a provider refuses; they weigh nothing, and leave with their group.
    """
    if excess_tokens <= 0:
        return TrimResult(edits=(), freed_tokens=0, reason=Reason(Cause.VIEW_FITS))
    groups = group(entries, rules)
    protected = _protected(entries, groups, settings, pinned, hidden)
    if by_exchange:
        groups = _with_answers(groups, entries, protected)
    loose = [g for g in groups if not protected.intersection(g.entries)]
    keys = frozenset(entries[at].key for at in protected)
    if not loose:
        reason = Reason(Cause.ALL_PROTECTED)
        return TrimResult(edits=(), freed_tokens=0, reason=reason, protected=keys)
    shown = {(e.anchor, e.part): e.text for e in edits if isinstance(e, Shorten)}
    ordered = _ordered(loose, entries, shown, query, openclaw=not by_exchange)
    taken = _taken(ordered, groups, entries, shown, weigher, excess_tokens, hidden)
    made = [
        LeaveOut(anchor=key, part=part, stage="trim", reason=reason, turn=turn)
        for candidate, reason, _ in taken
        for key, part in candidate.members
    ]
    if not made:
        reason = Reason(Cause.NOTES_COST_MORE)
        return TrimResult(edits=(), freed_tokens=0, reason=reason, protected=keys)
    left = len({edit.anchor for edit in made})
    return TrimResult(
        edits=tuple(made),
        freed_tokens=sum(freed for _, _, freed in taken),
        reason=Reason(Cause.TRIMMED, messages=left),
        protected=keys,
    )


def _taken(
    ordered: list[tuple[Group, Reason]],
    groups: Sequence[Group],
    entries: Sequence[Entry],
    shown: dict[tuple[EntryKey, int], str],
    weigher: Weigher,
    excess_tokens: int,
    hidden: AbstractSet[EntryKey],
) -> list[tuple[Group, Reason, int]]:
    place = {id(candidate): at for at, candidate in enumerate(groups)}
    note_tokens = weigher.text(gap_note(len(entries))) + MESSAGE_TOKENS
    weigh_group = cache(
        partial(_tokens, entries=entries, shown=shown, weigher=weigher, hidden=hidden)
    )
    gone: set[int] = set()
    taken: list[tuple[Group, Reason, int]] = []
    freed = 0
    for candidate, reason in ordered:
        if freed >= excess_tokens:
            break
        at = place[id(candidate)]
        new_gaps = 1 - (at - 1 in gone) - (at + 1 in gone)
        gain = weigh_group(candidate) - note_tokens * new_gaps
        gone.add(at)
        taken.append((candidate, reason, gain))
        freed += gain
    taken = _without_losing_gaps(taken, place, note_tokens, weigh_group)
    return taken if sum(gain for _, _, gain in taken) > 0 else []


def _without_losing_gaps(
    taken: list[tuple[Group, Reason, int]],
    place: dict[int, int],
    note_tokens: int,
    weigh_group: Callable[[Group], int],
) -> list[tuple[Group, Reason, int]]:
    """Gaps that weigh less than the note they would leave are closed again."""
    places = sorted(place[id(candidate)] for candidate, _, _ in taken)
    by_place = {place[id(candidate)]: candidate for candidate, _, _ in taken}
    losing: set[int] = set()
    run: list[int] = []
    for at in [*places, None]:
        if run and (at is None or at != run[-1] + 1):
            if sum(weigh_group(by_place[inside]) for inside in run) <= note_tokens:
                losing.update(run)
            run = []
        if at is not None:
            run.append(at)
    return [one for one in taken if place[id(one[0])] not in losing]


def _with_answers(
    groups: Sequence[Group], entries: Sequence[Entry], protected: set[int]
) -> list[Group]:
    joined: list[Group] = []
    question: Group | None = None
    for candidate in groups:
        first = entries[candidate.first]
        if first.role == "user":
            question = candidate if not protected.intersection(candidate.entries) else None
        elif candidate.calls or protected.intersection(candidate.entries):
            pass  # tool work leaves by itself; what stays, stays
        elif first.role == "assistant" and question is not None:
            question.members += candidate.members
            question.entries += candidate.entries
            question = None
            continue
        joined.append(candidate)
    return joined


def _protected(
    entries: Sequence[Entry],
    groups: Sequence[Group],
    settings: Trim,
    pinned: frozenset[EntryKey],
    hidden: AbstractSet[EntryKey],
) -> set[int]:
    """Places that must stay."""
    safe = {
        at
        for at, entry in enumerate(entries)
        if entry.role == "system"
        or entry.message.summary
        or entry.message.pinned
        or entry.key in pinned
    }
    first_user = _first_user(entries) if settings.protect_first_user else None
    if first_user is not None:
        safe.add(first_user)
    left = settings.protect_messages
    newest_user_seen = False
    for at in range(len(entries) - 1, -1, -1):
        entry = entries[at]
        if entry.key in hidden:
            continue
        spoken = entry.role == "user" and bool(spoken_text(entry))
        if entry.role == "assistant" or spoken:
            if left > 0 or (spoken and not newest_user_seen):
                safe.add(at)
            left -= 1
            newest_user_seen = newest_user_seen or spoken
        if left <= 0 and newest_user_seen:
            break
    last_span = next((g for g in reversed(groups) if g.calls), None)
    if last_span is not None:
        safe.update(last_span.entries)
    if entries:
        safe.add(len(entries) - 1)
    return safe


def _first_user(entries: Sequence[Entry]) -> int | None:
    """Where the first user message stands, unless it is most of what there is to trim."""
    total = sum(entry.tokens for entry in entries)
    for at, entry in enumerate(entries):
        if entry.role == "user" and spoken_text(entry):
            return at if entry.tokens * 4 <= total else None
    return None


def _ordered(
    loose: list[Group],
    entries: Sequence[Entry],
    shown: dict[tuple[EntryKey, int], str],
    query: str,
    *,
    openclaw: bool,
) -> list[tuple[Group, Reason]]:
    if len(query) < LEAST_QUERY_CHARS:
        return [(g, Reason(Cause.OLDEST)) for g in sorted(loose, key=_place)]
    texts = [_text(g, entries, shown) for g in loose]
    documents = [words_of(text) if openclaw else tokenize(text) for text in texts]
    if openclaw:
        scores = score_texts(texts, query)
    else:
        scores = Bm25Index.build(documents).scores(tokenize(query))
    by_relevance = sorted(
        zip(scores, loose, documents, strict=True), key=lambda s: (s[0], s[1].first)
    )
    spoken = [(s, g) for s, g, document in by_relevance if document]
    silent = [g for _, g, document in by_relevance if not document]
    return [
        *((g, Reason(Cause.LEAST_RELEVANT, score=round(score, 3))) for score, g in spoken),
        *((g, Reason(Cause.NOTHING_TO_SEARCH)) for g in sorted(silent, key=_place)),
    ]


def _place(candidate: Group) -> int:
    return candidate.first


def _member_parts(candidate: Group, entries: Sequence[Entry]) -> list[tuple[EntryKey, int, Part]]:
    by_key = {entries[at].key: entries[at] for at in candidate.entries}
    found: list[tuple[EntryKey, int, Part]] = []
    for key, part_at in candidate.members:
        parts = by_key[key].parts
        places = range(len(parts)) if part_at is None else (part_at,)
        found.extend((key, at, parts[at]) for at in places)
    return found


def _text(
    candidate: Group, entries: Sequence[Entry], shown: dict[tuple[EntryKey, int], str]
) -> str:
    texts: list[str] = []
    for key, at, part in _member_parts(candidate, entries):
        if (key, at) in shown:
            texts.append(shown[key, at])
        elif isinstance(part, Text | ToolResult):
            texts.append(part.text)
        elif isinstance(part, ToolCall):
            texts.append(f"{part.name} {part.arguments}")
    return "\n".join(texts)


def _tokens(
    candidate: Group,
    entries: Sequence[Entry],
    shown: dict[tuple[EntryKey, int], str],
    weigher: Weigher,
    hidden: AbstractSet[EntryKey],
) -> int:
    counted = {entries[at].key: entries[at].tokens for at in candidate.entries}
    edited = {key for key, _ in shown}
    whole = {key for key, part_at in candidate.members if part_at is None and key not in edited}
    total = sum(counted[key] for key in whole if key not in hidden)
    for key, at, part in _member_parts(candidate, entries):
        if key not in whole and key not in hidden:
            text = shown.get((key, at))
            total += weigher.part(part) if text is None else weigher.text(text)
    return total
