"""Forget: remove messages from everywhere we keep them, and certify it without content.

Owns the order of steps. Tombstones come first, in the store's one write, so whatever is still
under way cannot bring a message back; then what was derived from it (the cascades), then what
waits in the spools of this machine. A crash in between leaves tombstones and, at worst, bytes
in a spool that the store will refuse: forgetting again finishes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import Final, TypeAlias

from recollect.errors import RecollectError
from recollect.memory.certificate import digest_of, seal
from recollect.memory.forget_rooms import forget_in_rooms, held_meant
from recollect.memory.matching import Meant, content_meant, facts_meant, said_again, stored_meant
from recollect.memory.spooled import Gone, damaged_parts
from recollect.ports import Spool, Store
from recollect.values.fact import Fact, FactId, fact_identity, still_supported
from recollect.values.segment import Segment, SegmentId
from recollect.values.upkeep import Certificate, ForgetOrder, ForgetScope, Forgotten

Cascade: TypeAlias = Callable[[Store, Forgotten], Awaitable[Mapping[str, int]]]
"""Removes what was derived from forgotten messages; says what and how many, by kind.

One that cannot raises `Unreached`.
"""

COVERS: Final = (
    "the archive: segments, passages, the index of words, vectors",
    "facts that rest on them alone, and those that hold a text that was asked for",
    "digests that rest on any of them, or on a fact that was named",
    "the ledger: pieces of requests that quote them",
    "jobs that quote them",
    "session states: shortened results, recalled blocks and cuts that may quote them",
    "compactions that stand for them: summaries and receipts",
    "the spool of this machine, and its embedding cache, which is emptied",
    "a history that is sent again: tombstones keep it out of the archive",
)
CANNOT: Final = (
    "backups, archived logs and replicas of the database that were made before",
    "spools of other machines, until they drain: the store refuses what it has forgotten",
    "what model providers logged or cached",
    "the client's own history and files",
)


class Unreached(RecollectError):  # noqa: N818 - no failure: the rest is forgotten all the same
    """What a cascade could not remove, and what to do: a line of the certificate."""


async def forget(
    store: Store,
    spools: Sequence[Spool],
    order: ForgetOrder,
    *,
    now: float,
    cascades: Sequence[Cascade] = (),
) -> Certificate:
    """Forget what the order names; `cascades` run in this order."""
    gone = _gone(order)
    for spool in spools:  # the store cannot know what is meant by a session that only waits
        await spool.rewrite(gone.look_at)
    named = await _resolved(store, order, gone)
    forgotten = await _forget_in_store(store, named, gone)
    counts = Counter(_counts(forgotten))
    cannot = list(forgotten.cannot)
    rooms = await forget_in_rooms(store, order)
    counts.update(_counts(rooms))
    cannot += rooms.cannot
    for cascade in cascades:
        try:
            counts.update(await cascade(store, forgotten))
        except Unreached as left:
            cannot.append(str(left))
    counts.update(await _forget_spooled(store, spools, order, gone))
    told = (*cannot, *_unreached(spools, gone), *CANNOT)
    return seal(
        Certificate(
            at=now,
            space=store.space,
            engine=(await store.stats()).engine,
            version=_version(),
            asked=_asked(order),
            counts=dict(counts),
            identities_digest=digest_of(gone.message_ids),
            covers=COVERS,
            cannot=tuple(dict.fromkeys(told)),
        )
    )


async def _forget_spooled(
    store: Store, spools: Sequence[Spool], order: ForgetOrder, gone: Gone
) -> Counter[str]:
    """Forget in what waits, and in the store what was spooled while we were at it."""
    known = set(gone.message_ids)
    counts: Counter[str] = Counter()
    for spool in spools:
        counts["spooled batches changed"] += await spool.rewrite(gone.remove)
    if gone.message_ids != known:
        late = ForgetOrder(
            at=order.at,
            message_ids=tuple(sorted(gone.message_ids - known)),
            facts=tuple(sorted(gone.facts)),
        )
        counts.update(_counts(await _forget_in_store(store, late, gone)))
    return counts


def _asked(order: ForgetOrder) -> ForgetScope:
    return ForgetScope(
        segments=len(order.segments),
        identities=len(order.message_ids),
        sessions=order.sessions,
        said_before=order.said_before,
        said_after=order.said_after,
        matching=order.matching is not None,
        pattern=order.pattern is not None,
        facts=len(order.facts),
    )


async def find_meant(store: Store, spools: Sequence[Spool], order: ForgetOrder) -> Meant:
    """What `forget` would remove, for those who are asked first; nothing is changed."""
    stored = tuple([one async for one in stored_meant(store, order)])
    again = await said_again(store, order, stored)
    stored += again.goes
    known = {one.segment.id for one in stored}
    facts = {fact.id: fact for fact in await facts_meant(store, order)}
    gone = _gone(order)
    said = (one.segment for one in stored)
    gone.message_ids.update(one.message_id for one in said if content_meant(order, one))
    spooled: dict[SegmentId, Segment] = {}
    waiting: dict[FactId, Fact] = {}

    def look(record: bytes) -> bytes:
        batch = gone.read(record)
        if batch is not None:
            spooled.update((one.id, one) for one in gone.note(batch) if one.id not in known)
            waiting.update((fact.id, fact) for fact in batch.facts)
        return record

    for spool in spools:
        await spool.rewrite(look)
    facts.update((one.id, one) for one in waiting.values() if one.id in gone.facts)
    every = [*await store.facts(superseded=True), *waiting.values()]
    for fact in every if known or spooled else ():
        if still_supported(fact, known | spooled.keys(), again.twins) is None:
            facts.setdefault(fact.id, fact)
    return Meant(
        stored=stored,
        spooled=tuple(spooled.values()),
        facts=tuple(facts.values()),
        records=await held_meant(store, order),
    )


def _gone(order: ForgetOrder) -> Gone:
    return Gone(
        order=order,
        message_ids={*order.message_ids, *map(fact_identity, order.facts)},
        segments=set(order.segments),
        facts=set(order.facts),
    )


async def _resolved(store: Store, order: ForgetOrder, gone: Gone) -> ForgetOrder:
    """The order in words that a store knows: a text becomes the segments and facts with it."""
    for fact in await facts_meant(store, replace(order, facts=tuple(gone.facts))):
        gone.facts.add(fact.id)
        gone.message_ids.add(fact_identity(fact.id))
    named = replace(order, pattern=None, facts=tuple(sorted(gone.facts)))
    if order.matching is None and order.pattern is None:
        return named
    by_text = replace(order, sessions=(), said_before=None, said_after=None)
    found = [one.segment.id async for one in stored_meant(store, by_text)]
    return replace(named, segments=tuple(dict.fromkeys((*order.segments, *found))))


async def _forget_in_store(store: Store, order: ForgetOrder, gone: Gone) -> Forgotten:
    """Forget in the store, and learn from it which messages that meant."""
    forgotten = await store.forget(
        replace(order, message_ids=tuple(sorted({*order.message_ids, *gone.message_ids})))
    )
    gone.message_ids.update(forgotten.message_ids)
    gone.segments.update(forgotten.segments)
    gone.facts.update(forgotten.facts)
    marks = set(map(fact_identity, forgotten.facts)) - gone.message_ids
    if marks:  # of facts that rested on it: whoever asks for one is told that it was forgotten
        await store.forget(ForgetOrder(at=order.at, message_ids=tuple(sorted(marks))))
        gone.message_ids.update(marks)
    return forgotten


def _counts(forgotten: Forgotten) -> dict[str, int]:
    return {
        "segments": len(forgotten.segments),
        "passages": forgotten.passages,
        "vectors": forgotten.vectors,
        "facts": len(forgotten.facts),
        "ledger pieces": forgotten.pieces,
        "jobs": forgotten.jobs,
        "session states changed": forgotten.session_states,
        "compactions": forgotten.compactions,
    }


def _unreached(spools: Sequence[Spool], gone: Gone) -> list[str]:
    lines = damaged_parts(spools)
    if gone.unread:
        lines.append(f"{gone.unread} spooled batches that another version of Recollect wrote")
    return lines


def _version() -> str:
    try:
        return metadata.version("recollect")
    except metadata.PackageNotFoundError:
        return "not installed"
