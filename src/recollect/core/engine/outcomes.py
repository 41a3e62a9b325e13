"""What the ledger knows of a session's outcomes, so that a turn records only what it changed.

Each record of outcomes rests on an earlier one. The n-th rests on the number that is n without its
lowest set bit: so a turn is read from a dozen records however long the session is, and all records
together grow with the changes, not with the square of the session. Pure; who writes a turn keeps
the `OutcomeChain` for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from recollect.core.formats.turn_records import (
    OutcomeChanges,
    read_outcomes,
    standing_outcomes,
)
from recollect.core.values.batch import PieceHash
from recollect.core.values.edit import Edit, edits_only_in
from recollect.core.values.history import Composed, Entry, View, newest_cut
from recollect.core.values.message import EntryKey
from recollect.core.values.reason import Reason
from recollect.core.values.report import Fate, Outcomes, Report, own_rows

OwnRows: TypeAlias = tuple[tuple[int, Fate], ...]
NameChanges: TypeAlias = Callable[[OutcomeChanges], PieceHash]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    name: PieceHash
    number: int
    changed: frozenset[int]
    """The places that changed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    entries: tuple[Entry, ...]
    edits: tuple[Edit, ...]
    view: View
    places: Mapping[EntryKey, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeChain:
    """The records of a session's outcomes, as far as the next one may rest on them."""

    links: tuple[_Link, ...] = field(default=(), repr=False)
    """The oldest first."""
    fates: Mapping[int, Fate] = field(default_factory=dict, repr=False)
    """The outcomes that stand, by place; those of messages sent as they came are left out."""
    own: OwnRows = field(default=(), repr=False)
    cut: Reason | None = None
    """Why summarised messages are."""
    recorded: _Recorded | None = field(default=None, repr=False)

    @property
    def names(self) -> tuple[PieceHash, ...]:
        """The records that the outcomes are read from, the oldest first."""
        return tuple([link.name for link in self.links])

    def record(self, report: Report, name: NameChanges) -> OutcomeChain:
        """The chain with the outcomes of one more turn; `name` keeps what changed, if anything
        did."""
        entries, edits, view = report.entries, report.edits, report.view
        before = self.recorded
        places: dict[EntryKey, int] = {}
        touched: AbstractSet[int] | None = None
        if before is not None and _only_grew(before, report):
            places = dict(before.places)
            first = len(before.entries)
            places.update({entry.key: at for at, entry in enumerate(entries[first:], first)})
            touched = _touched(before, report, places) | set(range(first, len(entries)))
        else:
            places = {entry.key: at for at, entry in enumerate(entries)}
        fates, changed = _judged(self.fates, report, touched)
        own = _own_rows(view, places)
        newest = newest_cut(edits)
        cut = None if newest is None else newest.reason
        made = replace(
            self,
            fates=fates,
            own=own,
            cut=cut,
            recorded=_Recorded(entries=entries, edits=edits, view=view, places=places),
        )
        if self.links and not changed and (own, cut) == (self.own, self.cut):
            return made
        return replace(made, links=_linked(made, changed, name))


def read_chain(names: Sequence[PieceHash], bodies: Mapping[PieceHash, bytes]) -> OutcomeChain:
    """The chain that these records make, the oldest first, to go on from; one that rests on
    nothing where they are not all there. FormatError for a record that cannot be read."""
    if not names or any(name not in bodies for name in names):
        return OutcomeChain()
    changes = [read_outcomes(bodies[name]) for name in names]
    standing = standing_outcomes(changes)
    links: list[_Link] = []
    later: frozenset[int] = frozenset()
    for name, changed in zip(reversed(names), reversed(changes), strict=True):
        links.insert(0, _Link(name=name, number=changed.number, changed=later))
        later |= {*changed.fates, *changed.kept}
    return OutcomeChain(
        links=tuple(links), fates=standing.fates, own=tuple(standing.own), cut=standing.cut
    )


def _linked(chain: OutcomeChain, changed: AbstractSet[int], name: NameChanges) -> tuple[_Link, ...]:
    links, fates = chain.links, chain.fates
    number = links[-1].number + 1 if links else 0
    base = number & (number - 1)
    stay = [
        replace(link, changed=link.changed | changed)
        for link in links
        if number and link.number <= base
    ]
    since = stay[-1].changed if stay else fates.keys()
    made = OutcomeChanges(
        number=number,
        fates={place: fates[place] for place in since if place in fates},
        kept=[place for place in since if place not in fates],
        own=chain.own,
        cut=chain.cut,
    )
    return (*stay, _Link(name=name(made), number=number, changed=frozenset()))


def _only_grew(before: _Recorded, report: Report) -> bool:
    length = len(before.entries)
    if not 0 < length <= len(report.entries):
        return False
    if report.entries[length - 1] is not before.entries[-1]:
        return False
    return newest_cut(report.edits) is newest_cut(before.edits)


def _touched(before: _Recorded, report: Report, places: Mapping[EntryKey, int]) -> set[int]:
    keys = {*_shown(before.view), *_shown(report.view)}
    edits = (
        *edits_only_in(report.edits, before.edits),
        *edits_only_in(before.edits, report.edits),
    )
    repairs = (*before.view.repairs, *report.view.repairs)
    keys.update([one.anchor for one in (*edits, *repairs) if one.anchor is not None])
    return {places[key] for key in keys if key in places}


def _shown(view: View) -> list[EntryKey]:
    rows = [row.sources if isinstance(row, Composed) else (row.key,) for row in view.rows]
    return [key for keys in rows for key in keys]


def _judged(
    known: Mapping[int, Fate], report: Report, touched: AbstractSet[int] | None
) -> tuple[dict[int, Fate], set[int]]:
    entries = report.entries
    fates = dict(known)
    changed: set[int] = set()
    asked: set[EntryKey] | None = None
    if touched is None:
        touched = set(range(max(len(entries), max(known, default=-1) + 1)))
    else:
        asked = {entries[place].key for place in touched}
    outcomes = Outcomes(entries, report.view, report.edits, asked=asked)
    for place in touched:
        fate = outcomes.at(place) if place < len(entries) else None
        if fate is None or fate.fate == "kept":
            if fates.pop(place, None) is not None:
                changed.add(place)
            continue
        if fate.fate == "summarised":  # all for the same reason, which is recorded once
            fate = replace(fate, reasons=())
        if fates.get(place) != fate:
            fates[place] = fate
            changed.add(place)
    return fates, changed


def _own_rows(view: View, places: Mapping[EntryKey, int]) -> OwnRows:
    rows = [
        (-1 if key is None else places[key], fate)
        for key, fates in own_rows(view).items()
        for fate in fates
    ]
    return tuple(rows)
