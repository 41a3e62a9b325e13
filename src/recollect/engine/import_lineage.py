"""The place of every item of a recording: the key a live request would have given it.

Owns how a recording's branches and compactions become one session. A client sends its history
from the first message on, so keys chain from there; an item that a later history shows again
behind a summary keeps its key, under an alias. Pure: no store, no files.
Always holds: the same recording gives the same keys, and an item has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from recollect.rules.identity import ROOT, chain
from recollect.turn.align import Reading, align
from recollect.values.history import SessionState
from recollect.values.message import EntryKey
from recollect.values.transcript import RecordedSession, ShownItems

Runs: TypeAlias = tuple[range, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """Where the items of a recording stand."""

    keys: tuple[EntryKey, ...] = field(repr=False)
    """One an item, in the order of the recording."""
    state: SessionState
    """The session as the newest history leaves it: path, identities, aliases."""


def place_items(
    transcript: RecordedSession, readings: Sequence[Reading], known: SessionState | None = None
) -> Lineage:
    """Give every item its key; `known` is a live session that may hold some of them already."""
    contexts = [tuple(_items(runs)) for runs in _contexts(transcript)]
    keys: dict[int, EntryKey] = {}
    aliases: Mapping[EntryKey, EntryKey] = {}
    if known is not None:
        aliases = known.aliases
        # the newest history is the likeliest to be the one that is known, so it goes first
        for context in reversed(contexts):
            for item, key in _recognised(known, context, readings):
                keys.setdefault(item, key)
    state = SessionState(aliases=aliases)
    for context in contexts:
        state = _follow(state, context, readings, keys)
    _place_unshown(readings, keys)
    placed = tuple([keys[item] for item in range(len(readings))])
    return Lineage(keys=placed, state=state)


def _follow(
    state: SessionState,
    context: Sequence[int],
    readings: Sequence[Reading],
    keys: dict[int, EntryKey],
) -> SessionState:
    """The session after this history was sent, and the keys of what is new in it."""
    recognised = dict(_recognised(state, context, readings)) if state.path else {}
    aliases = dict(state.aliases)
    path: list[EntryKey] = []
    parent = ROOT
    for item in context:
        chained = chain(parent, readings[item].id)
        key = keys.get(item) or recognised.get(item) or aliases.get(chained, chained)
        if key != chained:
            aliases[chained] = key
        keys.setdefault(item, key)
        path.append(key)
        parent = key
    shown = set(path)
    return SessionState(
        path=tuple(path),
        ids=tuple([readings[item].id for item in context]),
        aliases={alias: key for alias, key in aliases.items() if key in shown},
    )


def _recognised(
    state: SessionState, context: Sequence[int], readings: Sequence[Reading]
) -> Iterator[tuple[int, EntryKey]]:
    """Items that a known history holds: the same place, or the same words in the same order."""
    found = align(
        state,
        [readings[item].id for item in context],
        [readings[item].tokens for item in context],
    )
    held = set(state.path)
    for item, key in zip(context, found.keys, strict=True):
        if key in held:
            yield item, key


def _place_unshown(readings: Sequence[Reading], keys: dict[int, EntryKey]) -> None:
    """Items that no request ever showed stand behind what came before them in the file."""
    parent = ROOT
    for item, reading in enumerate(readings):
        if item not in keys:
            keys[item] = chain(parent, reading.id)
        parent = keys[item]


def _contexts(transcript: RecordedSession) -> list[Runs]:
    """The histories that were sent, each once at its longest, in the order of the recording."""
    total = len(transcript.items)
    found: list[Runs] = []
    for request in transcript.requests:
        runs = _joined(request.shown, request.answered)
        if found and _begins_with(runs, found[-1]):
            found[-1] = runs
        elif not (found and _begins_with(found[-1], runs)):
            found.append(runs)
    if not found:
        return [(range(total),)] if total else []
    last = found[-1]
    newest = max((run.stop for runs in found for run in runs), default=0)
    if newest < total:  # said after the last request: the next one would show it
        found[-1] = (*last[:-1], *_merged([*last[-1:], range(newest, total)]))
    return found


def _joined(shown: Sequence[int], answered: tuple[int, ...]) -> Runs:
    runs: list[range] = []
    if isinstance(shown, ShownItems):
        runs.extend(shown.runs())
    elif isinstance(shown, range):
        runs.append(shown)
    else:
        runs.extend(range(item, item + 1) for item in shown)
    runs.extend(range(item, item + 1) for item in answered)
    return tuple(_merged(runs))


def _merged(runs: Sequence[range]) -> list[range]:
    merged: list[range] = []
    for run in runs:
        if not run:
            continue
        if merged and merged[-1].stop == run.start:
            merged[-1] = range(merged[-1].start, run.stop)
        else:
            merged.append(run)
    return merged


def _begins_with(longer: Runs, shorter: Runs) -> bool:
    """Whether one history goes on where the other ends."""
    if not shorter:
        return True
    last = len(shorter) - 1
    if len(longer) <= last or longer[:last] != shorter[:last]:
        return False
    return longer[last].start == shorter[last].start and longer[last].stop >= shorter[last].stop


def _items(runs: Runs) -> Iterator[int]:
    for run in runs:
        yield from run
