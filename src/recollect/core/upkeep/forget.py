"""Forget: remove messages everywhere, and certify it without content. Tombstones are written first,
so that nothing restores a message. Then bodies that a pattern matches are masked, and spools are
cleaned. After a crash, forget again to finish."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import Final, Protocol, runtime_checkable

from recollect.core.ports import Spool, Store
from recollect.core.upkeep.certificates import digest_of, seal
from recollect.core.upkeep.masks import Masks
from recollect.core.upkeep.matching import (
    ForgetSet,
    ForgetTargets,
    TextMatcher,
    compiled,
    content_meant,
    damaged_parts,
    every_body,
    facts_meant,
    readable_state,
    said_again,
    stored_meant,
)
from recollect.core.upkeep.redact import mask_body
from recollect.core.values.fact import Fact, FactId, fact_identity, still_supported
from recollect.core.values.message import MessageId
from recollect.core.values.segment import Segment, SegmentId
from recollect.core.values.upkeep import (
    BodyKind,
    Certificate,
    ForgetOrder,
    ForgetScope,
    Forgotten,
    NewBody,
    RewriteOrder,
    Stats,
    StoredBody,
)
from recollect.errors import FormatError

_LEFT: Final = (
    "{:,} records that the pattern matches in ledger, jobs and states, in their ids and keys "
    "perhaps: forget once more, or by session"
)
_TORN: Final = (
    "{:,} torn records in which the pattern cannot be looked for: forget a text, which removes them"
)

COVERS: Final = (
    "the archive: segments, passages, the index of words, vectors",
    "facts that have no other source, and facts that contain the requested text",
    "digests that rest on any of them, or on a fact that was named",
    "the ledger: pieces of requests that quote them",
    "jobs that quote them",
    "session states: shortened results, recalled blocks and cuts that may quote them",
    "compactions that replaced them: summaries and receipts",
    "the spool of this machine",
    "a history that is sent again: tombstones keep it out of the archive",
)
CANNOT: Final = (
    "backups, archived logs and replicas of the database that were made before",
    "spools of other machines, until the store receives them and refuses forgotten messages",
    "what model providers logged or cached",
    "the client's own history and files",
)

CANNOT_SPACE: Final = (
    "backups, archived logs and replicas of the database that were made before",
    "spools of other machines: if they are written later, they create a new space",
    "what model providers logged or cached",
    "the client's own history and files: sent again, that makes a new space",
)
COVERS_SPACE: Final = (
    "the archive: segments, passages, the index of words, vectors, facts and digests",
    "sessions, summaries, receipts, the ledger, jobs, tombstones and counts",
)
UNTIL_REWRITTEN: Final = (
    "pages of the database's files, until they are used again or `recollect memory scrub` ran"
)


async def forget_in_bodies(store: Store, order: ForgetOrder) -> Forgotten:
    """Mask matches of the order's pattern in a store's bodies. The store itself removes the
    rest."""
    if order.pattern is None:
        return Forgotten()
    matcher = TextMatcher(ForgetOrder(at=order.at, pattern=order.pattern))
    masks = Masks(patterns=(compiled(order.pattern),))
    counts: Counter[BodyKind] = Counter()
    pieces: list[MessageId] = []
    left = torn = 0
    bodies = [one async for one in every_body(store) if one.torn or matcher.in_bytes(_plain(one))]
    for body in bodies:
        if body.torn:
            torn += 1
            continue
        new = masked_or_none(body, masks)
        if new is None:
            left += 1
            continue
        done = await store.rewrite(RewriteOrder(at=order.at, bodies=(new,)))
        counts[body.kind] += done.bodies
        left += not done.bodies or matcher.in_bytes(_plain(replace(body, body=new.body)))
        # The system prompt is in every request, and would return after this one has expired.
        if body.kind == "pieces":
            pieces.append(MessageId(body.id))
    if pieces:
        await store.forget(ForgetOrder(at=order.at, message_ids=tuple(pieces)))
    return Forgotten(
        pieces=counts["pieces"],
        jobs=counts["jobs"] + counts["job reasons"],
        session_states=counts["states"],
        compactions=counts["compactions"],
        cannot=(
            *([_LEFT.format(left)] if left else ()),
            *([_TORN.format(torn)] if torn else ()),
        ),
    )


async def held_meant(store: Store, order: ForgetOrder) -> int:
    """Count the bodies that contain the order's text or match its pattern. For a text, unreadable
    bodies count too."""
    matcher = TextMatcher(order)
    if not matcher:
        return 0
    return sum(
        [
            order.matching is not None if body.torn else matcher.in_bytes(_plain(body))
            async for body in every_body(store)
        ]
    )


def masked_or_none(stored: StoredBody, masks: Masks) -> NewBody | None:
    """Return the masked body; None if nothing else remains."""
    try:
        body = mask_body(stored.kind, stored.body, masks, Counter())
    except FormatError:
        return None
    if body == stored.body:
        return None
    return NewBody(kind=stored.kind, id=stored.id, was=stored.body, body=body)


def _plain(body: StoredBody) -> bytes:
    return readable_state(body.body) if body.kind == "states" else body.body


async def forget(
    store: Store,
    spools: Sequence[Spool],
    order: ForgetOrder,
    *,
    now: float,
) -> Certificate:
    """Forget what the order selects."""
    gone = _gone(order)
    for spool in spools:  # the store does not know sessions that are only in a spool
        await spool.rewrite(gone.look_at)
    named = await _resolved(store, order, gone)
    forgotten = await _forget_in_store(store, named, gone)
    counts = Counter(_counts(forgotten))
    cannot = list(forgotten.cannot)
    in_bodies = await forget_in_bodies(store, order)
    counts.update(_counts(in_bodies))
    cannot += in_bodies.cannot
    counts.update(await _forget_spooled(store, spools, order, gone))
    lines = (*cannot, *_unreached(spools, gone), *CANNOT)
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
            cannot=tuple(dict.fromkeys(lines)),
        )
    )


@runtime_checkable
class DeletesItself(Protocol):
    """A store that can remove its whole space."""

    @property
    def space(self) -> str:
        """The space's name."""

    async def stats(self) -> Stats:
        """Count the contents of the space."""

    async def delete(self) -> Mapping[str, int]:
        """Remove everything. Return the number of rows by kind."""


async def delete_space(
    store: DeletesItself,
    *,
    named: str,
    now: float,
    let_go: Callable[[], Awaitable[None]] | None = None,
) -> Certificate:
    """Delete a space and its contents, called `named`. `let_go` removes its name from a list.
    Batches that were written before that are removed afterwards."""
    engine = (await store.stats()).engine
    counts = Counter(await store.delete())
    if let_go is not None:
        await let_go()
        counts.update(await store.delete())
    return certify_deletion(named, counts, engine=engine, now=now)


def certify_deletion(
    named: str, counts: Mapping[str, int], *, engine: str, now: float, in_database: bool = True
) -> Certificate:
    """Make the certificate of a deleted space. The files of a database keep its pages for a
    while."""
    return seal(
        Certificate(
            at=now,
            space=named,
            engine=engine,
            version=_version(),
            asked=ForgetScope(whole_space=True),
            counts=dict(counts),
            covers=COVERS_SPACE,
            cannot=(UNTIL_REWRITTEN, *CANNOT_SPACE) if in_database else CANNOT_SPACE,
        )
    )


async def _forget_spooled(
    store: Store, spools: Sequence[Spool], order: ForgetOrder, gone: ForgetSet
) -> Counter[str]:
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


async def find_meant(store: Store, spools: Sequence[Spool], order: ForgetOrder) -> ForgetTargets:
    """Find what `forget` would remove. Nothing is changed."""
    stored = tuple([segment async for segment in stored_meant(store, order)])
    goes, twins = await said_again(store, order, stored)
    stored += goes
    known = {segment.segment.id for segment in stored}
    facts = {fact.id: fact for fact in await facts_meant(store, order)}
    gone = _gone(order)
    said = (segment.segment for segment in stored)
    gone.message_ids.update(segment.message_id for segment in said if content_meant(order, segment))
    spooled: dict[SegmentId, Segment] = {}
    waiting: dict[FactId, Fact] = {}

    def look(record: bytes) -> bytes:
        batch = gone.read(record)
        if batch is not None:
            spooled.update(
                (segment.id, segment) for segment in gone.note(batch) if segment.id not in known
            )
            waiting.update((fact.id, fact) for fact in batch.facts)
        return record

    for spool in spools:
        await spool.rewrite(look)
    facts.update((fact.id, fact) for fact in waiting.values() if fact.id in gone.facts)
    every = [*await store.facts(superseded=True), *waiting.values()]
    for fact in every if known or spooled else ():
        if still_supported(fact, known | spooled.keys(), twins) is None:
            facts.setdefault(fact.id, fact)
    return ForgetTargets(
        stored=stored,
        spooled=tuple(spooled.values()),
        facts=tuple(facts.values()),
        records=await held_meant(store, order),
    )


def _gone(order: ForgetOrder) -> ForgetSet:
    return ForgetSet(
        order=order,
        message_ids={*order.message_ids, *map(fact_identity, order.facts)},
        segments=set(order.segments),
        facts=set(order.facts),
    )


async def _resolved(store: Store, order: ForgetOrder, gone: ForgetSet) -> ForgetOrder:
    for fact in await facts_meant(store, replace(order, facts=tuple(gone.facts))):
        gone.facts.add(fact.id)
        gone.message_ids.add(fact_identity(fact.id))
    named = replace(order, pattern=None, facts=tuple(sorted(gone.facts)))
    if not TextMatcher(order):
        return named
    by_text = replace(order, sessions=(), said_before=None, said_after=None)
    segment_ids = [segment.segment.id async for segment in stored_meant(store, by_text)]
    return replace(named, segments=tuple(dict.fromkeys((*order.segments, *segment_ids))))


async def _forget_in_store(store: Store, order: ForgetOrder, gone: ForgetSet) -> Forgotten:
    forgotten = await store.forget(
        replace(order, message_ids=tuple(sorted({*order.message_ids, *gone.message_ids})))
    )
    gone.message_ids.update(forgotten.message_ids)
    gone.segments.update(forgotten.segments)
    gone.facts.update(forgotten.facts)
    marks = set(map(fact_identity, forgotten.facts)) - gone.message_ids
    if marks:  # marks of facts that rested on it, so that look-ups report that it was forgotten
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


def _unreached(spools: Sequence[Spool], gone: ForgetSet) -> list[str]:
    lines = damaged_parts(spools)
    if gone.unread:
        lines.append(f"{gone.unread} spooled batches that another version of Recollect wrote")
    return lines


def _version() -> str:
    try:
        return metadata.version("recollect")
    except metadata.PackageNotFoundError:
        return "not installed"
