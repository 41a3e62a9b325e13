"""What a turn's batch is made of besides its new messages. Pure.

Owns what of a session's state may be written: nothing in it that redaction would mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from recollect.config.settings import Redaction as RedactionSettings
from recollect.engine.recording import quoted_by
from recollect.formats.session_state import split_state
from recollect.rules.redaction import redact
from recollect.rules.trust import fetched_calls
from recollect.values.batch import SessionWrite
from recollect.values.carried import Carried
from recollect.values.edit import Cut, Edit, Insert, Shorten
from recollect.values.history import Entry, SessionState
from recollect.values.message import CallId, EntryKey, ToolCall

_E = TypeVar("_E", bound=Edit)


def session_write(
    session: str,
    state: SessionState,
    written_path: tuple[EntryKey, ...],
    redaction: RedactionSettings,
) -> SessionWrite:
    """What to remember of a session; of its path only what was not written yet."""
    shared = 0
    for before, now in zip(written_path, state.path, strict=False):
        if before != now:
            break
        shared += 1
    kept = state
    if redaction.enabled:
        kept = replace(
            state,
            edits=tuple([_masked(edit, redaction) for edit in state.edits]),
            dormant=tuple([(_masked(edit, redaction), since) for edit, since in state.dormant]),
        )
    return SessionWrite(
        session=session,
        turn=state.turn,
        state=split_state(kept),
        about=quoted_by([*state.edits, *(edit for edit, _ in state.dormant)]),
        path_from=shared,
        path=state.path[shared:],
        ids=state.ids[shared:],
    )


def called_tools(fresh: Sequence[Entry], history: Sequence[Entry]) -> dict[CallId, str]:
    """The tools that new results answer for, where their calls came earlier."""
    wanted = {call_id for entry in fresh for call_id in entry.results}
    names: dict[CallId, str] = {}
    for entry in reversed(history):
        if len(names) == len(wanted):
            break
        for part in entry.parts if entry.calls else ():
            if isinstance(part, ToolCall) and part.id in wanted:
                names.setdefault(part.id, part.name)
    return names


def earlier_fetches(fresh: Sequence[Entry], history: Sequence[Entry]) -> frozenset[CallId]:
    """The earlier calls that new results answer and that brought in content from elsewhere."""
    wanted = {call_id for entry in fresh for call_id in entry.results}
    if not wanted:
        return frozenset()
    return fetched_calls(
        part
        for entry in history
        if entry.calls and not wanted.isdisjoint(entry.calls)
        for part in entry.parts
    )


def _masked(edit: _E, redaction: RedactionSettings) -> _E:
    """The edit as it may be stored; in another process its text shows the mask."""
    if isinstance(edit, Shorten | Insert):
        text = _masked_text(edit.text, redaction.pii)
        return edit if text == edit.text else replace(edit, text=text)
    if isinstance(edit, Cut):
        summary = _masked_text(edit.summary, redaction.pii)
        ended = tuple(_masked(block, redaction) for block in edit.ended)
        carried = edit.carried and masked_carried(
            edit.carried, lambda text: _masked_text(text, redaction.pii)
        )
        if (summary, ended, carried) == (edit.summary, edit.ended, edit.carried):
            return edit
        return replace(edit, summary=summary, ended=ended, carried=carried)
    return edit


def masked_carried(carried: Carried, mask: Callable[[str], str]) -> Carried:
    """What code carries, as it may be stored."""

    def masked(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(mask(text) for text in texts)

    return Carried(
        read_files=masked(carried.read_files),
        modified_files=masked(carried.modified_files),
        failures=tuple(
            replace(one, tool=mask(one.tool), said=mask(one.said)) for one in carried.failures
        ),
        identifiers=masked(carried.identifiers),
        lines=tuple(replace(one, text=mask(one.text)) for one in carried.lines),
    )


@lru_cache(maxsize=512)  # edits stand for many turns, and are written with each
def _masked_text(text: str, pii: bool) -> str:  # noqa: FBT001 - for the cache
    return redact(text, pii=pii).text
