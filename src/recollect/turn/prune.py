"""Prune old tool results in a view: head and tail of the long ones, a placeholder for the oldest.

Runs only at batch moments; which moments count is `pruning.mode`. Results of the last
assistant messages, results with images, and tools that the settings deny stay as they are.
Never touches what users and assistants said. Running it again changes nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fnmatch import fnmatchcase

from recollect.config.settings import Pruning
from recollect.rules.weigh import Weigher
from recollect.values.edit import Edit, Shorten
from recollect.values.history import Entry
from recollect.values.message import CallId, EntryKey, MessageId, ToolCall, ToolResult
from recollect.values.moment import Moment
from recollect.values.reason import Cause, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneResult:
    """The edits made, what they free (before calibration), and why."""

    edits: tuple[Shorten, ...]
    freed_tokens: int
    reason: Reason


@dataclass(slots=True)
class _Prunable:
    """A result that may be shortened, as it is shown now."""

    key: EntryKey
    message: MessageId
    part: int
    text: str
    tokens: int
    hard: bool


def prune(
    entries: Sequence[Entry],
    edits: Sequence[Edit],
    settings: Pruning,
    weigher: Weigher,
    *,
    moment: Moment,
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
    found = _prunable(entries, edits, settings, weigher, hidden, everything=everything)
    if not found:
        return PruneResult(edits=(), freed_tokens=0, reason=Reason(Cause.NO_OLD_RESULT))
    job = _Pruner(settings, weigher, turn, used_tokens, moment, mask)
    if everything:
        found.sort(key=lambda item: -item.tokens)
        job.shorten_long(found, until=target_tokens)
    elif settings.mode == "aggressive":
        job.clear(found, until=0)
    else:
        over = moment.kind == "over-limit"
        if over or used_tokens >= settings.soft_trim_ratio * window_tokens:
            job.shorten_long(found, until=target_tokens if over else 0)
        chars = sum(len(item.text) for item in found)
        full = job.used >= settings.hard_clear_ratio * window_tokens
        if over or (full and chars >= settings.min_prunable_tool_chars):
            job.clear(
                found, until=target_tokens if over else settings.hard_clear_ratio * window_tokens
            )
    return PruneResult(
        edits=tuple(job.made.values()),
        freed_tokens=used_tokens - job.used,
        reason=Reason(Cause.PRUNED, results=len(job.made), found=len(found))
        if job.made
        else Reason(Cause.RESULTS_SHORT),
    )


class _Pruner:
    """Makes edits and keeps count of what they free."""

    def __init__(
        self,
        settings: Pruning,
        weigher: Weigher,
        turn: int,
        used_tokens: int,
        moment: Moment,
        mask: Callable[[str], str],
    ) -> None:
        self.settings = settings
        self.mask = mask
        self.weigher = weigher
        self.turn = turn
        self.used = used_tokens
        self.moment = moment
        self.made: dict[tuple[EntryKey, int], Shorten] = {}

    def shorten_long(self, found: list[_Prunable], *, until: float) -> None:
        """Keep head and tail of results over the size, first ones first."""
        trim = self.settings.soft_trim
        for item in found:
            if self.used <= until:
                return
            if item.hard or len(item.text) <= trim.max_chars:
                continue
            note = (
                f"[Tool result shortened: first {trim.head_chars} and last {trim.tail_chars} "
                f"of {len(item.text)} characters kept]"
            )
            said = self.mask(item.text)  # a secret that is cut in two is known by neither half
            if len(said) > trim.max_chars:
                head, tail = said[: trim.head_chars], said[len(said) - trim.tail_chars :]
                said = f"{head}\n...\n{tail}\n{note}"
            self._replace(item, said, Cause.LONG_RESULT, hard=False)

    def clear(self, found: list[_Prunable], *, until: float) -> None:
        """Replace whole results by the placeholder, oldest first."""
        if not self.settings.hard_clear.enabled:
            return
        for item in found:
            if self.used <= until:
                return
            if not item.hard:
                text = self.settings.hard_clear.placeholder
                self._replace(item, text, Cause.OLD_RESULT, hard=True)

    def _replace(self, item: _Prunable, text: str, cause: Cause, *, hard: bool) -> None:
        tokens = self.weigher.text(text)
        if tokens >= item.tokens:
            return
        self.used -= item.tokens - tokens
        item.text, item.tokens, item.hard = text, tokens, hard
        self.made[item.key, item.part] = Shorten(
            anchor=item.key,
            part=item.part,
            text=text,
            stage="prune",
            reason=Reason(cause, moment=self.moment.reason),
            turn=self.turn,
            hard=hard,
            quotes=() if hard else (item.message,),
        )


def _prunable(
    entries: Sequence[Entry],
    edits: Sequence[Edit],
    settings: Pruning,
    weigher: Weigher,
    hidden: AbstractSet[tuple[EntryKey | None, int | None]],
    *,
    everything: bool,
) -> list[_Prunable]:
    """Results between the first user message and the last assistants, oldest first."""
    shown = {(e.anchor, e.part): e for e in edits if isinstance(e, Shorten)}
    names = _tool_names(entries)
    start = next((at for at, entry in enumerate(entries) if entry.role == "user"), len(entries))
    end = len(entries) if everything else _protected_from(entries, settings.keep_last_assistants)
    found: list[_Prunable] = []
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
            tokens = weigher.text(text)
            found.append(_Prunable(entry.key, entry.id, at, text, tokens, hard))
    return found


def _tool_names(entries: Sequence[Entry]) -> dict[CallId, str]:
    return {
        part.id: part.name
        for entry in entries
        if entry.calls
        for part in entry.parts
        if isinstance(part, ToolCall)
    }


def _protected_from(entries: Sequence[Entry], keep_last_assistants: int) -> int:
    """Where the results of the last assistant messages begin."""
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
