"""Forgets messages: removes them everywhere, and makes a certificate without content. Tombstones
are written first, so that no message is stored again. Matches of a pattern in other records are
masked next, and spools are cleaned. After a crash, repeat `forget` to complete it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import Final, Protocol, runtime_checkable

from recollect.core.ports import Spool, Store, read_bodies
from recollect.core.rules.patterns import TextPattern
from recollect.core.upkeep.certificates import digest_of, seal
from recollect.core.upkeep.masks import Masks
from recollect.core.upkeep.matching import (
    ForgetSet,
    ForgetTargets,
    OrderMatcher,
    covered_facts,
    covered_segments,
    decode_state,
    describe_damage,
    find_copies,
)
from recollect.core.upkeep.redact import mask_body
from recollect.core.upkeep.searching_thread import select_in_thread
from recollect.core.values.fact import fact_identity, still_supported
from recollect.core.values.message import MessageId
from recollect.core.values.upkeep import (
    BODY_KINDS,
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
    "{:,} records in ledger, jobs and session states still match the pattern, perhaps in their "
    "ids or keys: forget again, or forget the session"
)
_TORN: Final = (
    "{:,} damaged records that a pattern cannot be searched for: forget with --matching, which "
    "removes them"
)

COVERS: Final = (
    "the archive: segments, passages, the index of words, vectors",
    "facts that have no other source, and facts that contain the requested text",
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
    "the archive: segments, passages, the index of words, vectors and facts",
    "sessions, summaries, receipts, the ledger, jobs, tombstones and counts",
)
UNTIL_REWRITTEN: Final = (
    "pages of the database's files, until they are used again or `recollect memory scrub` ran"
)


async def forget_in_bodies(store: Store, order: ForgetOrder) -> Forgotten:
    """Mask matches of the order's pattern in records that the store does not remove."""
    if order.pattern is None:
        return Forgotten()
    matcher = OrderMatcher(ForgetOrder(at=order.at, pattern=order.pattern))
    masks = Masks(patterns=(TextPattern(order.pattern),))
    counts: Counter[BodyKind] = Counter()
    pieces: list[MessageId] = []
    left = torn = 0
    for body in [one async for one in _covered_bodies(store, matcher)]:
        if body.torn:
            torn += 1
            continue
        try:
            masked = mask_body(body.kind, body.body, masks, Counter())
        except FormatError:
            masked = body.body
        if masked == body.body:
            left += 1
            continue
        new = NewBody(kind=body.kind, id=body.id, was=body.body, body=masked)
        done = await store.rewrite(RewriteOrder(at=order.at, bodies=(new,)))
        counts[body.kind] += done.bodies
        left += not done.bodies or matcher.in_bytes(_searchable(replace(body, body=masked)))
        # The system prompt is in every request, so it would be stored again.
        if body.kind == "pieces":
            pieces.append(MessageId(body.id))
    if pieces:
        await store.forget(ForgetOrder(at=order.at, message_ids=tuple(pieces)))
    return Forgotten(
        pieces=counts["pieces"],
        jobs=counts["jobs"] + counts["job reasons"],
        session_states=counts["states"],
        compactions=counts["compactions"],
        cannot=(*([_LEFT.format(left)] if left else ()), *([_TORN.format(torn)] if torn else ())),
    )


async def _covered_bodies(store: Store, matcher: OrderMatcher) -> AsyncIterator[StoredBody]:
    """Yield the records that match, and damaged ones, which may."""

    def covers(body: StoredBody) -> bool:
        return body.torn or matcher.in_bytes(_searchable(body))

    for kind in BODY_KINDS:
        async for page in read_bodies(store, kind):
            for body in await select_in_thread(covers, page):
                yield body


def _searchable(body: StoredBody) -> bytes:
    return decode_state(body.body) if body.kind == "states" else body.body


async def forget(
    store: Store, spools: Sequence[Spool], order: ForgetOrder, *, now: float
) -> Certificate:
    """Forget what the order selects."""
    gone = ForgetSet.of(order)
    for spool in spools:  # the store does not know sessions that exist only in a spool
        await spool.rewrite(gone.look_at)
    named = await _resolve_order(store, order, gone)
    forgotten = await _forget_in_store(store, named, gone)
    counts = Counter(_counts(forgotten))
    cannot = list(forgotten.cannot)
    in_bodies = await forget_in_bodies(store, order)
    counts.update(_counts(in_bodies))
    cannot += in_bodies.cannot
    counts.update(await _forget_spooled(store, spools, order, gone))
    cannot += describe_damage(spools)
    if gone.unread:
        cannot.append(f"{gone.unread} spooled batches that another version of Recollect wrote")
    return seal(
        Certificate(
            at=now,
            space=store.space,
            engine=(await store.stats()).engine,
            version=_version(),
            asked=_scope_of(order),
            counts=dict(counts),
            identities_digest=digest_of(gone.message_ids),
            covers=COVERS,
            cannot=tuple(dict.fromkeys((*cannot, *CANNOT))),
        )
    )


@runtime_checkable
class DeletesItself(Protocol):
    """A store that can delete its whole space."""

    @property
    def space(self) -> str:
        """Name of the space."""

    async def stats(self) -> Stats:
        """Count the contents of the space."""

    async def delete(self) -> Mapping[str, int]:
        """Delete everything. Return the number of rows by kind."""


async def delete_space(
    store: DeletesItself,
    *,
    named: str,
    now: float,
    let_go: Callable[[], Awaitable[None]] | None = None,
) -> Certificate:
    """Delete a space and all its contents. The certificate calls the space `named`. `let_go`
    removes the name from a list of spaces. Batches written until then are deleted too."""
    engine = (await store.stats()).engine
    counts = Counter(await store.delete())
    if let_go is not None:
        await let_go()
        counts.update(await store.delete())
    return certify_deletion(named, counts, engine=engine, now=now)


def certify_deletion(
    named: str, counts: Mapping[str, int], *, engine: str, now: float, in_database: bool = True
) -> Certificate:
    """Make the certificate of a deleted space. Database files keep deleted pages for some time."""
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


def _scope_of(order: ForgetOrder) -> ForgetScope:
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


async def find_targets(store: Store, spools: Sequence[Spool], order: ForgetOrder) -> ForgetTargets:
    """Find what `forget` would remove. For a text, unreadable records count too."""
    stored = await covered_segments(store, order)
    copies, twins = await find_copies(store, order, stored)
    stored += copies
    gone = ForgetSet.of(order)
    segments = [one.segment for one in stored]
    by_content = await select_in_thread(gone.matcher.covers_content, segments)
    gone.message_ids.update(segment.message_id for segment in by_content)
    for spool in spools:
        await spool.rewrite(gone.look_at)
    known = {one.segment.id for one in stored}
    spooled = {id_: one for id_, one in gone.spooled.items() if id_ not in known}
    facts = {fact.id: fact for fact in await covered_facts(store, order)}
    facts.update((id_, gone.spooled_facts[id_]) for id_ in gone.facts & gone.spooled_facts.keys())
    if removed := known | spooled.keys():
        for fact in (*await store.facts(superseded=True), *gone.spooled_facts.values()):
            if still_supported(fact, removed, twins) is None:
                facts.setdefault(fact.id, fact)
    matcher = gone.matcher
    records = 0
    if matcher:
        async for body in _covered_bodies(store, matcher):
            records += not body.torn or order.matching is not None
    return ForgetTargets(
        stored=tuple(stored),
        spooled=tuple(spooled.values()),
        facts=tuple(facts.values()),
        records=records,
    )


async def _resolve_order(store: Store, order: ForgetOrder, gone: ForgetSet) -> ForgetOrder:
    for fact in await covered_facts(store, replace(order, facts=tuple(gone.facts))):
        gone.facts.add(fact.id)
        gone.message_ids.add(fact_identity(fact.id))
    named = replace(order, pattern=None, facts=tuple(sorted(gone.facts)))
    if not OrderMatcher(order):
        return named
    by_text = replace(order, sessions=(), said_before=None, said_after=None)
    segment_ids = [one.segment.id for one in await covered_segments(store, by_text)]
    return replace(named, segments=tuple(dict.fromkeys((*order.segments, *segment_ids))))


async def _forget_in_store(store: Store, order: ForgetOrder, gone: ForgetSet) -> Forgotten:
    forgotten = await store.forget(
        replace(order, message_ids=tuple(sorted({*order.message_ids, *gone.message_ids})))
    )
    gone.message_ids.update(forgotten.message_ids)
    gone.segments.update(forgotten.segments)
    gone.facts.update(forgotten.facts)
    marks = set(map(fact_identity, forgotten.facts)) - gone.message_ids
    if marks:  # also write tombstones for removed facts, so that queries report them as forgotten
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


def _version() -> str:
    try:
        return metadata.version("recollect")
    except metadata.PackageNotFoundError:
        return "not installed"
