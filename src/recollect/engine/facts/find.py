"""Finds facts for people: by conditions, by the beginning of an id, with what they rest on.

Only reads. Always holds: an id that means no fact, or several, is an error that says what to do.
"""

from __future__ import annotations

from typing import Final

from recollect.engine.facts.told import FactFilter, FactSource
from recollect.errors import RecollectError
from recollect.memory.history import as_of
from recollect.ports import Archive
from recollect.search.tokenize import tokenize
from recollect.values.fact import Fact, FactId, fact_identity

_NAMED: Final = 5


async def list_facts(store: Archive, asked: FactFilter) -> tuple[Fact, ...]:
    """The facts that are asked for: pinned ones first, then by time."""
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
    """The fact with this id, or the only one whose id begins so."""
    if not id:
        raise RecollectError("an id is missing; `recollect facts list` shows them")
    exact = await store.facts([FactId(id)], superseded=True)
    if exact:
        return exact[0]
    found = [one for one in await store.facts(superseded=True) if one.id.startswith(id)]
    if len(found) == 1:
        return found[0]
    if found:
        raise RecollectError(
            f"{len(found)} facts have ids that begin with {id!r}; give more of it: "
            + ", ".join(one.id for one in found[:_NAMED])
        )
    if await store.tombstoned([fact_identity(FactId(id))]):
        raise RecollectError("that fact was forgotten; nothing is kept of it")
    raise RecollectError(
        f"no fact's id begins with {id!r}; `recollect facts list --all` shows them"
    )


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
