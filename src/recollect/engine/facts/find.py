"""Finds facts for people: by conditions, by the beginning of an id, with what they rest on.

Only reads. Always holds: an id that means no fact, or several, is an error that says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar, get_args

from recollect.engine.facts.told import TRUSTS, FactFilter, FactSource
from recollect.errors import RecollectError
from recollect.memory.history import as_of
from recollect.ports import Archive
from recollect.search.tokenize import tokenize
from recollect.values.fact import Fact, FactId, FactType, MadeBy, fact_identity

_NAMED: Final = 5
_TYPES: Final[Mapping[str, FactType]] = {one: one for one in get_args(FactType)}
_MAKERS: Final[Mapping[str, MadeBy]] = {one: one for one in get_args(MadeBy)}

Named = TypeVar("Named")


async def list_facts(store: Archive, asked: FactFilter) -> tuple[Fact, ...]:
    """The facts that are asked for: pinned ones first, then by time."""
    asked = replace(
        asked,
        types=_meant("types", asked.types, _TYPES),
        trusts=_meant("trusts", asked.trusts, TRUSTS),
        made_by=_meant("made_by", asked.made_by, _MAKERS),
    )
    facts = await store.facts(superseded=asked.superseded or asked.as_of is not None)
    if asked.as_of is not None:
        moment = asked.as_of
        facts = (
            tuple(one for one in facts if one.at <= moment)
            if asked.superseded
            else tuple(as_of(facts, moment))
        )
    words = frozenset(tokenize(asked.search))
    found = [one for one in facts if _asked_for(one, asked, words)]
    return tuple(sorted(found, key=lambda one: (not one.pinned, one.at, one.id)))


async def find_fact(store: Archive, id: str) -> Fact:  # noqa: A002
    """The fact with this id, or the only one whose id begins so; in any case of letters."""
    if not id:
        raise RecollectError("an id is missing; `recollect facts list` shows them")
    exact = await store.facts([FactId(id)], superseded=True)
    if exact:
        return exact[0]
    found = _beginning(id, await store.facts(superseded=True))
    if len(found) == 1:
        return found[0]
    if found:
        raise RecollectError(
            f"{len(found)} facts have ids that begin with {id!r}; give more of it: "
            + ", ".join(spelled(one.id) for one in found[:_NAMED])
        )
    forms = dict.fromkeys((id, id.lower()))
    if await store.tombstoned([fact_identity(FactId(one)) for one in forms]):
        raise RecollectError("that fact was forgotten; nothing is kept of it")
    raise RecollectError(
        f"no fact's id begins with {id!r}; `recollect facts list --all` shows them"
    )


def spelled(id: str) -> str:  # noqa: A002
    """An id for a message: what a terminal would act upon is escaped."""
    return id if id.isprintable() else repr(id)[1:-1]


async def sources_of(store: Archive, fact: Fact) -> tuple[FactSource, ...]:
    """The messages that a fact names, as far as they are there, and the spans of them."""
    held = {one.segment.id: one for one in await store.segments(fact.sources)}
    found: list[FactSource] = []
    for id_ in fact.sources:
        stored = held.get(id_)
        spans = [one for one in fact.evidence if one.segment == id_]
        size = 0 if stored is None else len(stored.segment.text)
        within = [one for one in spans if 0 <= one.start < one.end <= size]
        found.append(
            FactSource(
                id=id_,
                stored=stored,
                spans=tuple(sorted(within, key=lambda one: (one.start, one.end))),
                lost_spans=0 if stored is None else len(spans) - len(within),
            )
        )
    return tuple(found)


def _beginning(id: str, facts: Sequence[Fact]) -> list[Fact]:  # noqa: A002
    """Those whose id begins so; where none does as it is spelled, in any case."""
    exact = [one for one in facts if one.id.startswith(id)]
    folded = id.casefold()
    return exact or [one for one in facts if one.id.casefold().startswith(folded)]


def _meant(what: str, names: Sequence[str], known: Mapping[str, Named]) -> tuple[Named, ...]:
    """What names mean; one that means nothing would hide everything without a word."""
    unknown = [name for name in names if name not in known]
    if unknown:
        raise RecollectError(
            f"{what}: {unknown[0]!r} is none of them; there are {', '.join(known)}"
        )
    return tuple(known[name] for name in names)


def _asked_for(fact: Fact, asked: FactFilter, words: frozenset[str]) -> bool:
    return (
        (not asked.types or fact.type in asked.types)
        and (not asked.trusts or fact.trust in asked.trusts)
        and (not asked.made_by or fact.made_by in asked.made_by)
        and (asked.session is None or fact.session == asked.session)
        and (not asked.search or _says(fact, asked.search, words))
    )


def _says(fact: Fact, search: str, words: frozenset[str]) -> bool:
    """The text as it stands, or all of its words that count."""
    if search.casefold() in fact.content.casefold():
        return True
    return bool(words) and words <= {*tokenize(f"{fact.content} {fact.subject}")}
