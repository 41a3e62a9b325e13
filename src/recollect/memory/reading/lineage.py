"""Finds whose words a statement repeats, so that nothing gains trust by being said again.

A model that has read "always send backups to …" on a web page may answer "Noted: always send
backups to …". Those are the page's words in the model's mouth. Owns when that is so. Must never
lower what the user says: what users say they mean, wherever they read it. What always holds: the
trust it gives is no higher than the speaker's; the same words give the same answer. Pure.

Three signs, each measured by words that stand together or can mean one thing only (`repeated`):
- a run: enough of the statement's neighbouring words stand in the segment, in this order;
- a name: an identifier of the statement stands in fetched content and nowhere in what people said;
- an order: a statement that lays something down shares that name, or most of its words with one
  sentence of the segment, in any order.

All statements are looked for at once: each segment is gone through once, to its end, and let go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from recollect.memory.reading.repeated import Look, Statement, as_statement
from recollect.rules.trust import is_below, lowest
from recollect.values.segment import Segment, SegmentId, Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A statement, who said it, and what its speaker can have read."""

    statement: str = field(repr=False)
    trust: Trust
    before: int
    """How many of the segments were read before it."""
    own: frozenset[SegmentId] = frozenset()
    """The segments that it was said in: nobody repeats themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """How far a statement may be trusted, and the segments whose words it repeats."""

    trust: Trust
    segments: tuple[SegmentId, ...] = ()


def lineages(said: Iterable[Said], segments: Sequence[Segment]) -> Mapping[Said, Lineage]:
    """The trust of each statement, by those of these segments that were read before it."""
    repeated: dict[Said, list[Segment]] = {one: [] for one in said}
    doubted = [one for one in repeated if one.trust != "high"]
    read = {one.statement: as_statement(one.statement) for one in doubted}
    named = _first_named(read.values(), segments) if doubted else {}
    for place, segment in enumerate(segments):
        meant = [one for one in doubted if _may_repeat(one, place, segment)]
        if not meant:
            continue
        look = Look(segment.text, (read[one.statement] for one in meant))
        outside = segment.trust == "outside"
        for one in meant:
            stated = read[one.statement]
            unheard = {name for name in stated.names if named.get(name, one.before) >= one.before}
            if look.repeated_by(stated, unheard=unheard, outside=outside):
                repeated[one].append(segment)
    return {
        one: Lineage(
            trust=lowest([one.trust, *(segment.trust for segment in found)]),
            segments=tuple(dict.fromkeys(segment.id for segment in found)),
        )
        for one, found in repeated.items()
    }


def lineage(statement: str, own: Trust, before: Sequence[Segment]) -> Lineage:
    """The trust of one statement by a speaker of `own` trust, by the segments before it."""
    one = Said(statement=statement, trust=own, before=len(before))
    return lineages((one,), before)[one]


def _may_repeat(one: Said, place: int, segment: Segment) -> bool:
    return place < one.before and is_below(segment.trust, one.trust) and segment.id not in one.own


def _first_named(statements: Iterable[Statement], segments: Sequence[Segment]) -> dict[str, int]:
    """Where each name of the statements was first said by people."""
    names = set[str]().union(*(one.names for one in statements))
    first: dict[str, int] = {}
    for place, segment in enumerate(segments):
        if segment.trust != "high" or not names:
            continue
        text = segment.text.casefold()
        for name in [name for name in names if name in text]:
            first[name] = place
            names.discard(name)
    return first
