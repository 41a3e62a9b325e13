"""Outcomes of messages for the ledger: one whole record, and later ones that hold what changed.

A turn is read from two records at most. A record that would hold half of all outcomes is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from recollect.core.formats.turn_records import OutcomeChanges
from recollect.core.values.batch import PieceHash
from recollect.core.values.edit import Edit, Repair
from recollect.core.values.history import newest_cut
from recollect.core.values.message import EntryKey
from recollect.core.values.report import Fate, Outcomes, Report, own_rows

NameChanges: TypeAlias = Callable[[OutcomeChanges], PieceHash]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOutcomes:
    """The outcomes of a session's last record in this process."""

    names: tuple[PieceHash, ...] = ()
    """The records that they are read from, the whole one first."""
    whole: Mapping[int, Fate] = field(default_factory=dict, repr=False)
    """The outcomes of the whole record, by place."""
    newest: OutcomeChanges = field(default_factory=OutcomeChanges, repr=False)
    keys: tuple[EntryKey, ...] = field(default=(), repr=False)
    edits: tuple[Edit, ...] = field(default=(), repr=False)
    repairs: tuple[Repair, ...] = field(default=(), repr=False)

    def record(self, report: Report, name: NameChanges) -> RecordedOutcomes:
        """The outcomes of one more turn; `name` keeps a record."""
        keys = tuple([entry.key for entry in report.entries])
        same = (self.edits, self.repairs) == (report.edits, report.view.repairs)
        if self.names and same and keys[: len(self.keys)] == self.keys:
            fates = self.newest.fates
        else:
            fates = _fates(report)
        places = {key: place for place, key in enumerate(keys)}
        own = tuple(
            (-1 if key is None else places[key], fate)
            for key, rows in own_rows(report.view).items()
            for fate in rows
        )
        cut = newest_cut(report.edits)
        now = OutcomeChanges(fates=fates, own=own, cut=None if cut is None else cut.reason)
        done = replace(self, newest=now, keys=keys, edits=report.edits, repairs=report.view.repairs)
        if self.names and now == self.newest:
            return done
        changed = {place: fate for place, fate in fates.items() if self.whole.get(place) != fate}
        kept = [place for place in self.whole if place not in fates]
        if not self.names or 2 * len(changed) > len(fates):
            return replace(done, whole=fates, names=(name(now),))
        changes = replace(now, number=1, fates=changed, kept=kept)
        return replace(done, names=(self.names[0], name(changes)))


def _fates(report: Report) -> dict[int, Fate]:
    outcomes = Outcomes(report.entries, report.view, report.edits)
    fates: dict[int, Fate] = {}
    for place in range(len(report.entries)):
        fate = outcomes.at(place)
        if fate.fate == "summarised":  # all for the same reason, which is recorded once
            fate = replace(fate, reasons=())
        if fate.fate != "kept":
            fates[place] = fate
    return fates
