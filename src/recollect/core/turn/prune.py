"""Prune old tool results in a view: head and tail of the long ones, one line of the oldest.

Runs only at batch moments; which moments count is `pruning.mode`. Results of the last assistant
messages, results with images, and tools that the settings deny stay as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Final, TypeAlias

from recollect.core.rules.tokens import Weigher
from recollect.core.search.bm25 import KeyLines
from recollect.core.search.tokenize import tokenize
from recollect.core.turn.ingest import called_tools
from recollect.core.values.edit import Edit, Shorten
from recollect.core.values.history import Entry
from recollect.core.values.message import CallId, EntryKey, MessageId, Text, ToolCall, ToolResult
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.report import BatchMoment
from recollect.system.config.settings import Pruning

LINE_OF_IT: Final = " One line of it: "
LINES_SHARE: Final = 0.05
SMALL_WINDOW: Final = 16_000
"""Of the window beyond a small one, what cleared results that have a line may take. In a small
window whole exchanges have to leave, and lines of results would take the place of what was said
(decision 0043)."""
LEAST_FREED_TOKENS: Final = 16
"""A result that would free fewer tokens stays as it is."""
_PROSE_CHARS: Final = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneResult:
    """The edits made, what they free (before calibration), and why."""

    edits: tuple[Shorten, ...]
    freed_tokens: int
    reason: Reason


@dataclass(slots=True)
class _Prunable:
    key: EntryKey
    message: MessageId
    part: int
    whole: str
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
    """Shorten results of the visible `entries` until the view holds `target_tokens`.

    `used_tokens` is what the request holds now. With `everything` recent results may be
    shortened too: the last resort when the protected part alone is over the limit. `hidden`
    parts are not shown, so shortening them would free nothing. `mask` makes a text as it may be
    stored: an edit is.
    """
    if settings.mode == "off":
        return PruneResult(edits=(), freed_tokens=0, reason=Reason(Cause.PRUNING_OFF))
    if settings.mode == "cache-ttl" and moment.kind == "ratio":
        return PruneResult(edits=(), freed_tokens=0, reason=Reason(Cause.CACHE_WARM))
    prunables = _prunable(entries, edits, settings, weigher, hidden, everything=everything)
    if not prunables:
        return PruneResult(edits=(), freed_tokens=0, reason=Reason(Cause.NO_OLD_RESULT))
    lines = _KeyLines(entries, prunables, settings.hard_clear.line_chars)
    room = int(LINES_SHARE * (window_tokens - SMALL_WINDOW))
    job = _Pruner(settings, weigher, turn, used_tokens, moment, mask, lines, room)
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


class _Pruner:
    def __init__(
        self,
        settings: Pruning,
        weigher: Weigher,
        turn: int,
        used_tokens: int,
        moment: BatchMoment,
        mask: Callable[[str], str],
        lines: _KeyLines,
        lines_tokens: int,
    ) -> None:
        self.settings = settings
        self.mask = cache(mask)  # a long result may be shortened, and then cleared
        self.lines = lines
        self.lines_tokens = lines_tokens
        self.weigher = weigher
        self.turn = turn
        self.used = used_tokens
        self.moment = moment
        self.made: dict[tuple[EntryKey, int], Shorten] = {}

    def shorten_long(self, prunables: list[_Prunable], *, until: float) -> None:
        """Keep head and tail of results over the size, first ones first."""
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
            text = self.mask(item.text)  # a secret that is cut in two is known by neither half
            if len(text) > trim.max_chars:
                head, tail = text[: trim.head_chars], text[len(text) - trim.tail_chars :]
                text = f"{head}\n...\n{tail}\n{note}"
            self._replace(item, text, Cause.LONG_RESULT, hard=False, quotes=(item.message,))

    def clear(self, prunables: list[_Prunable], *, until: float) -> None:
        """Replace whole results by the placeholder and their telling line, oldest first; where
        lines take more than their room, the oldest go."""
        if not self.settings.hard_clear.enabled:
            return
        lined = deque(item for item in prunables if item.hard and item.quoted)
        room = self.lines_tokens - sum(item.tokens for item in lined)
        for item in prunables:
            if self.used <= until:
                return
            if item.hard:
                continue
            line = self.lines.of(item, self.mask) if self.lines_tokens > 0 else ""
            if self._clear(item, line):
                lined.append(item)
                room -= item.tokens
            while room < 0 and lined:
                oldest = lined.popleft()
                room += oldest.tokens
                self._clear(oldest, "")

    def _clear(self, item: _Prunable, line: str) -> bool:
        bare = self.settings.hard_clear.placeholder
        quoting = (item.message,)
        if line and self._replace(
            item, bare + LINE_OF_IT + line, Cause.OLD_RESULT, hard=True, quotes=quoting
        ):
            return True
        self._replace(item, bare, Cause.OLD_RESULT, hard=True, quotes=())
        return False

    def _replace(
        self, item: _Prunable, text: str, cause: Cause, *, hard: bool, quotes: tuple[MessageId, ...]
    ) -> bool:
        tokens = self.weigher.text(text)
        least = 1 if item.hard else LEAST_FREED_TOKENS
        if item.tokens - tokens < least or len(text) > len(item.text):
            return False
        self.used -= item.tokens - tokens
        item.text, item.tokens, item.hard, item.quoted = text, tokens, hard, bool(quotes)
        self.made[item.key, item.part] = Shorten(
            anchor=item.key,
            part=item.part,
            text=text,
            stage="prune",
            reason=Reason(cause, moment=self.moment.reason),
            turn=self.turn,
            hard=hard,
            quotes=quotes,
        )
        return True


_CalledFor: TypeAlias = dict[tuple[EntryKey, int], set[str]]


class _KeyLines:
    def __init__(
        self, entries: Sequence[Entry], prunables: Sequence[_Prunable], line_chars: int
    ) -> None:
        self._entries, self._found = entries, prunables
        self._lines = KeyLines(line_chars) if line_chars else None
        self._called_for: _CalledFor | None = None

    def of(self, item: _Prunable, mask: Callable[[str], str]) -> str:
        """The line, as it may be stored; empty where none bears on it."""
        if self._lines is None:
            return ""
        if self._called_for is None:
            self._called_for = _called_for(self._entries)
            for each in self._found:
                self._lines.read(each.whole)
        return self._lines.of(mask(item.whole), self._called_for.get((item.key, item.part), set()))


def _called_for(entries: Sequence[Entry]) -> _CalledFor:
    found: _CalledFor = {}
    of_calls: dict[CallId, set[str]] = {}
    asked: set[str] = set()
    latest: list[set[str]] = []
    for entry in entries:
        prose = [part.text[-_PROSE_CHARS:] for part in entry.parts if isinstance(part, Text)]
        said = set(tokenize("\n".join(prose)))
        if entry.role == "user" and said and not entry.results:
            asked, latest = said, []
        elif entry.role == "assistant":
            for words in latest:
                words |= said
            latest = []
        for at, part in enumerate(entry.parts):
            if isinstance(part, ToolCall):
                of_call = asked | said | set(tokenize(part.arguments[:_PROSE_CHARS]))
                of_calls[part.id] = of_call  # an id may be used again, in a later exchange
                latest.append(of_call)
            elif isinstance(part, ToolResult) and part.call_id in of_calls:
                found[entry.key, at] = of_calls[part.call_id]
    return found


def _prunable(
    entries: Sequence[Entry],
    edits: Sequence[Edit],
    settings: Pruning,
    weigher: Weigher,
    hidden: AbstractSet[tuple[EntryKey | None, int | None]],
    *,
    everything: bool,
) -> list[_Prunable]:
    shown = {(e.anchor, e.part): e for e in edits if isinstance(e, Shorten)}
    names = called_tools(entries)
    start = next((at for at, entry in enumerate(entries) if entry.role == "user"), len(entries))
    end = len(entries) if everything else _protected_from(entries, settings.keep_last_assistants)
    prunables: list[_Prunable] = []
    for entry in entries[start:end]:
        if not entry.results:
            continue
        for at, part in enumerate(entry.parts):
            if not isinstance(part, ToolResult) or part.has_images or (entry.key, at) in hidden:
                continue
            if not _allowed(part.name or names.get(part.call_id, ""), settings):
                continue
            edit = shown.get((entry.key, at))
            text = edit.text if edit else part.text
            hard = edit.hard if edit else False
            quoted = bool(edit.quotes) if edit else True
            tokens = weigher.text(text)
            prunables.append(
                _Prunable(entry.key, entry.id, at, part.text, text, tokens, hard, quoted)
            )
    return prunables


def _protected_from(entries: Sequence[Entry], keep_last_assistants: int) -> int:
    left = keep_last_assistants
    if left == 0:
        return len(entries)
    for at in range(len(entries) - 1, -1, -1):
        if entries[at].role == "assistant":
            left -= 1
            if left == 0:
                return at
    return 0


def _allowed(name: str, settings: Pruning) -> bool:
    tools = settings.tools
    if any(fnmatchcase(name, pattern) for pattern in tools.deny):
        return False
    return any(fnmatchcase(name, pattern) for pattern in tools.allow)
