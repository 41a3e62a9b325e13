"""Frees space in an edit batch: prunes old tool results, trims whole messages. Pruning shortens
long results to both ends, and clears the oldest except for one line. Trimming leaves out the least
relevant messages first, then the oldest: a call with its results, a question with its answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, cached_property, partial
from operator import attrgetter
from typing import Final

from recollect.core.rules.calls import Group, group
from recollect.core.rules.tokens import MESSAGE_TOKENS, Weigher
from recollect.core.search.bm25 import Bm25Index, KeyLines
from recollect.core.search.openclaw import score_texts, words_of
from recollect.core.search.tokenize import tokenize
from recollect.core.turn.apply import gap_note
from recollect.core.turn.ingest import tools_by_call
from recollect.core.turn.query import LEAST_QUERY_CHARS, spoken_text
from recollect.core.values.edit import Edit, LeaveOut, Shorten
from recollect.core.values.history import Entry
from recollect.core.values.message import (
    CallId,
    EntryKey,
    MessageId,
    Part,
    Text,
    ToolCall,
    ToolResult,
)
from recollect.core.values.model import WireRules
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.report import BatchMoment
from recollect.system.config.settings import Pruning, Trim

LINE_OF_IT: Final = " One line of it: "
LINES_SHARE: Final = 0.05
"""Key lines take at most a twentieth of the window beyond `SMALL_WINDOW`. In smaller windows they
displaced the user's statements (decision 0043)."""
SMALL_WINDOW: Final = 16_000
"""In windows above this size, one line of each cleared result may remain (decision 0043)."""
LEAST_FREED_TOKENS: Final = 16  # not measured; a smaller gain is not worth an edit
_PROSE_CHARS: Final = 4_000  # not measured; bounds the words compared


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneResult:
    """The edits, the (uncalibrated) tokens that they free, and the reason."""

    edits: tuple[Shorten, ...] = ()
    freed_tokens: int = 0
    reason: Reason


@dataclass(slots=True)
class _Prunable:
    key: EntryKey
    message: MessageId
    part: int
    full_text: str
    text: str
    tokens: int
    hard: bool
    quoted: bool


def prune(
    entries: Sequence[Entry],
    edits: Sequence[Edit],
    settings: Pruning,
    weigher: Weigher,
    *,
    moment: BatchMoment,
    used_tokens: int,
    window_tokens: int,
    target_tokens: int,
    turn: int,
    everything: bool = False,
    hidden: AbstractSet[tuple[EntryKey | None, int | None]] = frozenset(),
    mask: Callable[[str], str] = str,
) -> PruneResult:
    """Shorten results of `entries` until the request has at most `target_tokens`. With
    `everything`, recent results are shortened too. Parts in `hidden` are not sent anyway. `mask`
    masks secrets in stored texts."""
    if settings.mode == "off":
        return PruneResult(reason=Reason(Cause.PRUNING_OFF))
    if settings.mode == "cache-ttl" and moment.kind == "ratio":
        return PruneResult(reason=Reason(Cause.CACHE_WARM))
    prunables = _prunable(entries, edits, settings, weigher, hidden, everything=everything)
    if not prunables:
        return PruneResult(reason=Reason(Cause.NO_OLD_RESULT))
    # a result may be shortened, then cleared
    job = _Pruner(entries, prunables, settings, weigher, turn, used_tokens, moment, cache(mask))
    job.lines_tokens = int(LINES_SHARE * (window_tokens - SMALL_WINDOW))
    if everything:
        prunables.sort(key=lambda item: -item.tokens)
        job.shorten_long(prunables, until=target_tokens)
    elif settings.mode == "aggressive":
        job.clear(prunables, until=0)
    else:
        over = moment.kind == "over-limit"
        if over or used_tokens >= settings.soft_trim_ratio * window_tokens:
            job.shorten_long(prunables, until=target_tokens if over else 0)
        chars = sum(len(item.text) for item in prunables)
        full = job.used >= settings.hard_clear_ratio * window_tokens
        if over or (full and chars >= settings.min_prunable_tool_chars):
            job.clear(
                prunables,
                until=target_tokens if over else settings.hard_clear_ratio * window_tokens,
            )
    return PruneResult(
        edits=tuple(job.made.values()),
        freed_tokens=used_tokens - job.used,
        reason=Reason(Cause.PRUNED, results=len(job.made), found=len(prunables))
        if job.made
        else Reason(Cause.RESULTS_SHORT),
    )


@dataclass
class _Pruner:
    entries: Sequence[Entry]
    prunables: Sequence[_Prunable]
    settings: Pruning
    weigher: Weigher
    turn: int
    used: int
    moment: BatchMoment
    mask: Callable[[str], str]
    lines_tokens: int = 0
    made: dict[tuple[EntryKey, int], Shorten] = field(default_factory=dict)

    def shorten_long(self, prunables: list[_Prunable], *, until: float) -> None:
        """Shorten results over the size limit to their beginning and end, the oldest first."""
        trim = self.settings.soft_trim
        for item in prunables:
            if self.used <= until:
                return
            if item.hard or len(item.text) <= trim.max_chars:
                continue
            note = (
                f"[Tool result shortened: first {trim.head_chars} and last {trim.tail_chars} "
                f"of {len(item.text)} characters kept]"
            )
            # Mask the whole text, because half of a secret is not recognized.
            text = self.mask(item.text)
            if len(text) > trim.max_chars:
                head, tail = text[: trim.head_chars], text[len(text) - trim.tail_chars :]
                text = f"{head}\n...\n{tail}\n{note}"
            self._replace(item, text, Cause.LONG_RESULT, quotes=True)

    def clear(self, prunables: list[_Prunable], *, until: float) -> None:
        """Replace results by a placeholder and their most relevant line, the oldest first. If space
        is short, drop the lines of the oldest results first."""
        if not self.settings.hard_clear.enabled:
            return
        cleared_with_line = deque(item for item in prunables if item.hard and item.quoted)
        room = self.lines_tokens - sum(item.tokens for item in cleared_with_line)
        for item in prunables:
            if self.used <= until:
                return
            if item.hard:
                continue
            if self._clear(item, self._key_line(item)):
                cleared_with_line.append(item)
                room -= item.tokens
            while room < 0 and cleared_with_line:
                oldest = cleared_with_line.popleft()
                room += oldest.tokens
                self._clear(oldest, "")

    def _clear(self, item: _Prunable, line: str) -> bool:
        text = self.settings.hard_clear.placeholder
        if line and self._replace(item, text + LINE_OF_IT + line, Cause.OLD_RESULT, quotes=True):
            return True
        self._replace(item, text, Cause.OLD_RESULT, quotes=False)
        return False

    def _replace(self, item: _Prunable, text: str, cause: Cause, *, quotes: bool) -> bool:
        hard = cause is Cause.OLD_RESULT
        tokens = self.weigher.text(text)
        least = 1 if item.hard else LEAST_FREED_TOKENS
        if item.tokens - tokens < least or len(text) > len(item.text):
            return False
        self.used -= item.tokens - tokens
        item.text, item.tokens, item.hard, item.quoted = text, tokens, hard, quotes
        self.made[item.key, item.part] = Shorten(
            anchor=item.key,
            part=item.part,
            text=text,
            stage="prune",
            reason=Reason(cause, moment=self.moment.reason),
            turn=self.turn,
            hard=hard,
            quotes=(item.message,) if quotes else (),
        )
        return True

    def _key_line(self, item: _Prunable) -> str:
        """Return the most relevant line of a result, masked; empty if no line is relevant."""
        if self.lines_tokens <= 0 or not self.settings.hard_clear.line_chars:
            return ""
        words = self._words_by_result.get((item.key, item.part), set())
        return self._key_lines.of(self.mask(item.full_text), words)

    @cached_property
    def _words_by_result(self) -> dict[tuple[EntryKey, int], set[str]]:
        return _words_by_result(self.entries)

    @cached_property
    def _key_lines(self) -> KeyLines:
        lines = KeyLines(self.settings.hard_clear.line_chars)
        for item in self.prunables:
            lines.read(item.full_text)
        return lines


def _words_by_result(entries: Sequence[Entry]) -> dict[tuple[EntryKey, int], set[str]]:
    found: dict[tuple[EntryKey, int], set[str]] = {}
    of_calls: dict[CallId, set[str]] = {}
    user_words: set[str] = set()
    latest: list[set[str]] = []
    for entry in entries:
        prose = [part.text[-_PROSE_CHARS:] for part in entry.parts if isinstance(part, Text)]
        entry_words = set(tokenize("\n".join(prose)))
        if entry.role == "user" and entry_words and not entry.results:
            user_words, latest = entry_words, []
        elif entry.role == "assistant":
            for words in latest:
                words |= entry_words
            latest = []
        for index, part in enumerate(entry.parts):
            if isinstance(part, ToolCall):
                of_call = user_words | entry_words | set(tokenize(part.arguments[:_PROSE_CHARS]))
                of_calls[part.id] = of_call  # a later call may have the same id
                latest.append(of_call)
            elif isinstance(part, ToolResult) and part.call_id in of_calls:
                found[entry.key, index] = of_calls[part.call_id]
    return found


def _prunable(
    entries: Sequence[Entry],
    edits: Sequence[Edit],
    settings: Pruning,
    weigher: Weigher,
    hidden_parts: AbstractSet[tuple[EntryKey | None, int | None]],
    *,
    everything: bool,
) -> list[_Prunable]:
    edit_by_part = {(e.anchor, e.part): e for e in edits if isinstance(e, Shorten)}
    names = tools_by_call(entries)
    start = next(
        (index for index, entry in enumerate(entries) if entry.role == "user"), len(entries)
    )
    end = len(entries) if everything else _first_protected(entries, settings.keep_last_assistants)
    prunables: list[_Prunable] = []
    for entry in entries[start:end]:
        if not entry.results:
            continue
        for index, part in enumerate(entry.parts):
            if (
                not isinstance(part, ToolResult)
                or part.has_images
                or (entry.key, index) in hidden_parts
            ):
                continue
            if not _allowed(part.name or names.get(part.call_id, ""), settings):
                continue
            edit = edit_by_part.get((entry.key, index))
            text = edit.text if edit else part.text
            hard = edit.hard if edit else False
            quoted = bool(edit.quotes) if edit else True
            tokens = weigher.text(text)
            prunables.append(
                _Prunable(entry.key, entry.id, index, part.text, text, tokens, hard, quoted)
            )
    return prunables


def _first_protected(entries: Sequence[Entry], keep_last_assistants: int) -> int:
    indexes = [index for index, entry in enumerate(entries) if entry.role == "assistant"]
    if keep_last_assistants == 0:
        return len(entries)
    return indexes[-keep_last_assistants] if keep_last_assistants <= len(indexes) else 0


def _allowed(name: str, settings: Pruning) -> bool:
    tools = settings.tools
    if any(fnmatchcase(name, pattern) for pattern in tools.deny):
        return False
    return any(fnmatchcase(name, pattern) for pattern in tools.allow)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimResult:
    """The messages to leave out, the (uncalibrated) tokens that this frees, and the reason."""

    edits: tuple[LeaveOut, ...] = ()
    freed_tokens: int = 0
    reason: Reason


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
    pinned_keys: frozenset[EntryKey] = frozenset(),
    by_exchange: bool = True,
    hidden_keys: AbstractSet[EntryKey] = frozenset(),
) -> TrimResult:
    """Leave out groups of `entries` until `excess_tokens` are freed. With `by_exchange`, a question
    is left out with its answer. Messages in `hidden` are not sent anyway."""
    if excess_tokens <= 0:
        return TrimResult(reason=Reason(Cause.VIEW_FITS))
    groups = group(entries, rules)
    protected_indexes = _find_protected(entries, groups, settings, pinned_keys, hidden_keys)
    if by_exchange:
        groups = _with_answers(groups, entries, protected_indexes)
    loose = [g for g in groups if not protected_indexes.intersection(g.entries)]
    if not loose:
        return TrimResult(reason=Reason(Cause.ALL_PROTECTED))
    text_by_part = {(e.anchor, e.part): e.text for e in edits if isinstance(e, Shorten)}
    ordered_groups = _order_groups(loose, entries, text_by_part, query, openclaw=not by_exchange)
    chosen_groups = _choose_groups(
        ordered_groups, groups, entries, text_by_part, weigher, excess_tokens, hidden_keys
    )
    new_edits = [
        LeaveOut(anchor=key, part=part, stage="trim", reason=reason, turn=turn)
        for candidate, reason, _ in chosen_groups
        for key, part in candidate.members
    ]
    if not new_edits:
        return TrimResult(reason=Reason(Cause.NOTES_COST_MORE))
    left = len({edit.anchor for edit in new_edits})
    return TrimResult(
        edits=tuple(new_edits),
        freed_tokens=sum(freed for _, _, freed in chosen_groups),
        reason=Reason(Cause.TRIMMED, messages=left),
    )


def _choose_groups(
    ordered_groups: list[tuple[Group, Reason]],
    groups: Sequence[Group],
    entries: Sequence[Entry],
    shown: dict[tuple[EntryKey, int], str],
    weigher: Weigher,
    excess_tokens: int,
    hidden_keys: AbstractSet[EntryKey],
) -> list[tuple[Group, Reason, int]]:
    place = {id(candidate): index for index, candidate in enumerate(groups)}
    note_tokens = weigher.text(gap_note(len(entries))) + MESSAGE_TOKENS
    weigh_group = cache(
        partial(_tokens, entries=entries, shown=shown, weigher=weigher, hidden_keys=hidden_keys)
    )
    removed_indexes: set[int] = set()
    chosen_groups: list[tuple[Group, Reason, int]] = []
    freed = 0
    for candidate, reason in ordered_groups:
        if freed >= excess_tokens:
            break
        index = place[id(candidate)]
        new_gaps = 1 - (index - 1 in removed_indexes) - (index + 1 in removed_indexes)
        gain = weigh_group(candidate) - note_tokens * new_gaps
        removed_indexes.add(index)
        chosen_groups.append((candidate, reason, gain))
        freed += gain
    chosen_groups = _without_losing_gaps(chosen_groups, place, note_tokens, weigh_group)
    return chosen_groups if sum(gain for _, _, gain in chosen_groups) > 0 else []


def _without_losing_gaps(
    chosen_groups: list[tuple[Group, Reason, int]],
    place: dict[int, int],
    note_tokens: int,
    weigh_group: Callable[[Group], int],
) -> list[tuple[Group, Reason, int]]:
    places = sorted(place[id(candidate)] for candidate, _, _ in chosen_groups)
    by_place = {place[id(candidate)]: candidate for candidate, _, _ in chosen_groups}
    losing: set[int] = set()
    run: list[int] = []
    for index in [*places, None]:
        if run and (index is None or index != run[-1] + 1):
            if sum(weigh_group(by_place[inside]) for inside in run) <= note_tokens:
                losing.update(run)
            run = []
        if index is not None:
            run.append(index)
    return [choice for choice in chosen_groups if place[id(choice[0])] not in losing]


def _with_answers(
    groups: Sequence[Group], entries: Sequence[Entry], protected_indexes: set[int]
) -> list[Group]:
    joined_groups: list[Group] = []
    question: Group | None = None
    for candidate in groups:
        first = entries[candidate.first]
        if first.role == "user":
            question = candidate if not protected_indexes.intersection(candidate.entries) else None
        elif candidate.calls or protected_indexes.intersection(candidate.entries):
            pass  # a call is left out with its result only, not with its question
        elif first.role == "assistant" and question is not None:
            question.members += candidate.members
            question.entries += candidate.entries
            question = None
            continue
        joined_groups.append(candidate)
    return joined_groups


def _find_protected(
    entries: Sequence[Entry],
    groups: Sequence[Group],
    settings: Trim,
    pinned_keys: frozenset[EntryKey],
    hidden_keys: AbstractSet[EntryKey],
) -> set[int]:
    safe = {
        index
        for index, entry in enumerate(entries)
        if entry.role == "system" or entry.message.summary or entry.key in pinned_keys
    }
    first_user = _first_user(entries) if settings.protect_first_user else None
    if first_user is not None:
        safe.add(first_user)
    left = settings.protect_messages
    newest_user_seen = False
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if entry.key in hidden_keys:
            continue
        spoken = entry.role == "user" and bool(spoken_text(entry))
        if entry.role == "assistant" or spoken:
            if left > 0 or (spoken and not newest_user_seen):
                safe.add(index)
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
    total = sum(entry.tokens for entry in entries)
    for index, entry in enumerate(entries):
        if entry.role == "user" and spoken_text(entry):
            return index if entry.tokens * 4 <= total else None
    return None


def _order_groups(
    loose: list[Group],
    entries: Sequence[Entry],
    shown: dict[tuple[EntryKey, int], str],
    query: str,
    *,
    openclaw: bool,
) -> list[tuple[Group, Reason]]:
    if len(query) < LEAST_QUERY_CHARS:
        return [(g, Reason(Cause.OLDEST)) for g in sorted(loose, key=attrgetter("first"))]
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
    silent.sort(key=attrgetter("first"))
    return [
        *((g, Reason(Cause.LEAST_RELEVANT, score=round(score, 3))) for score, g in spoken),
        *((g, Reason(Cause.NOTHING_TO_SEARCH)) for g in silent),
    ]


def _member_parts(candidate: Group, entries: Sequence[Entry]) -> list[tuple[EntryKey, int, Part]]:
    by_key = {entries[index].key: entries[index] for index in candidate.entries}
    found: list[tuple[EntryKey, int, Part]] = []
    for key, part_at in candidate.members:
        parts = by_key[key].parts
        places = range(len(parts)) if part_at is None else (part_at,)
        found.extend((key, index, parts[index]) for index in places)
    return found


def _text(
    candidate: Group, entries: Sequence[Entry], shown: dict[tuple[EntryKey, int], str]
) -> str:
    texts: list[str] = []
    for key, index, part in _member_parts(candidate, entries):
        if (key, index) in shown:
            texts.append(shown[key, index])
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
    hidden_keys: AbstractSet[EntryKey],
) -> int:
    tokens_by_key = {entries[index].key: entries[index].tokens for index in candidate.entries}
    edited_keys = {key for key, _ in shown}
    whole_keys = {
        key for key, part_at in candidate.members if part_at is None and key not in edited_keys
    }
    total = sum(tokens_by_key[key] for key in whole_keys if key not in hidden_keys)
    for key, index, part in _member_parts(candidate, entries):
        if key not in whole_keys and key not in hidden_keys:
            text = shown.get((key, index))
            total += weigher.part(part) if text is None else weigher.text(text)
    return total
