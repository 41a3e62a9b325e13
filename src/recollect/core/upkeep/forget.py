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
    decode_state,
    describe_damage,
    find_copies,
    find_covered_facts,
    find_covered_segments,
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
    "messages that a running program has received and not stored yet: forget them later",
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
    for body in [body async for body in _find_covered_bodies(store, matcher)]:
        if body.torn:
            torn += 1
            continue
        try:
            masked_body = mask_body(body.kind, body.body, masks, Counter())
        except FormatError:
            masked_body = body.body
        if masked_body == body.body:
            left += 1
            continue
        new_body = NewBody(kind=body.kind, id=body.id, was=body.body, body=masked_body)
        result = await store.rewrite(RewriteOrder(at=order.at, bodies=(new_body,)))
        counts[body.kind] += result.bodies
        left += not result.bodies or matcher.in_bytes(_searchable(replace(body, body=masked_body)))
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


async def _find_covered_bodies(store: Store, matcher: OrderMatcher) -> AsyncIterator[StoredBody]:
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
    forget_set = ForgetSet.of(order)
    for spool in spools:  # the store does not know sessions that exist only in a spool
        await spool.rewrite(forget_set.look_at)
    resolved_order = await _resolve_order(store, order, forget_set)
    result = await _forget_in_store(store, resolved_order, forget_set)
    counts = Counter(_count_removed(result))
    cannot = list(result.cannot)
    in_bodies = await forget_in_bodies(store, order)
    counts.update(_count_removed(in_bodies))
    cannot += in_bodies.cannot
    counts.update(await _forget_spooled(store, spools, order, forget_set))
    cannot += describe_damage(spools)
    if forget_set.unread:
        cannot.append(
            f"{forget_set.unread} spooled batches that another version of Recollect wrote"
        )
    return seal(
        Certificate(
            at=now,
            space=store.space,
            engine=(await store.stats()).engine,
            version=package_version(),
            asked=_scope_of(order),
            counts=dict(counts),
            identities_digest=digest_of(forget_set.message_ids),
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
    name: str,
    now: float,
    let_go: Callable[[], Awaitable[None]] | None = None,
) -> Certificate:
    """Delete a space and all its contents. The certificate calls the space `name`. `let_go`
    removes the name from a list of spaces. Batches written until then are deleted too."""
    engine = (await store.stats()).engine
    counts = Counter(await store.delete())
    if let_go is not None:
        await let_go()
        counts.update(await store.delete())
    return certify_deletion(name, counts, engine=engine, now=now)


def certify_deletion(
    name: str, counts: Mapping[str, int], *, engine: str, now: float, in_database: bool = True
) -> Certificate:
    """Make the certificate of a deleted space. Database files keep deleted pages for some time."""
    return seal(
        Certificate(
            at=now,
            space=name,
            engine=engine,
            version=package_version(),
            asked=ForgetScope(whole_space=True),
            counts=dict(counts),
            covers=COVERS_SPACE,
            cannot=(UNTIL_REWRITTEN, *CANNOT_SPACE) if in_database else CANNOT_SPACE,
        )
    )


async def _forget_spooled(
    store: Store, spools: Sequence[Spool], order: ForgetOrder, forget_set: ForgetSet
) -> Counter[str]:
    known_ids = set(forget_set.message_ids)
    counts: Counter[str] = Counter()
    for spool in spools:
        counts["spooled batches changed"] += await spool.rewrite(forget_set.remove)
    if forget_set.message_ids != known_ids:
        late = ForgetOrder(
            at=order.at,
            message_ids=tuple(sorted(forget_set.message_ids - known_ids)),
            facts=tuple(sorted(forget_set.facts)),
        )
        counts.update(_count_removed(await _forget_in_store(store, late, forget_set)))
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
    stored_segments = await find_covered_segments(store, order)
    copies, twins = await find_copies(store, order, stored_segments)
    stored_segments += copies
    forget_set = ForgetSet.of(order)
    segments = [s.segment for s in stored_segments]
    by_content = await select_in_thread(forget_set.matcher.covers_content, segments)
    forget_set.message_ids.update(segment.message_id for segment in by_content)
    for spool in spools:
        await spool.rewrite(forget_set.look_at)
    known_ids = {s.segment.id for s in stored_segments}
    spooled_segments = {
        id_: segment for id_, segment in forget_set.spooled.items() if id_ not in known_ids
    }
    facts = {fact.id: fact for fact in await find_covered_facts(store, order)}
    facts.update(
        (id_, forget_set.spooled_facts[id_])
        for id_ in forget_set.facts & forget_set.spooled_facts.keys()
    )
    if removed_ids := known_ids | spooled_segments.keys():
        for fact in (*await store.facts(superseded=True), *forget_set.spooled_facts.values()):
            if still_supported(fact, removed_ids, twins) is None:
                facts.setdefault(fact.id, fact)
    matcher = forget_set.matcher
    records = 0
    if matcher:
        async for body in _find_covered_bodies(store, matcher):
            records += not body.torn or order.matching is not None
    return ForgetTargets(
        stored_segments=tuple(stored_segments),
        spooled_segments=tuple(spooled_segments.values()),
        facts=tuple(facts.values()),
        records=records,
    )


async def _resolve_order(store: Store, order: ForgetOrder, forget_set: ForgetSet) -> ForgetOrder:
    for fact in await find_covered_facts(store, replace(order, facts=tuple(forget_set.facts))):
        forget_set.facts.add(fact.id)
        forget_set.message_ids.add(fact_identity(fact.id))
    resolved_order = replace(order, pattern=None, facts=tuple(sorted(forget_set.facts)))
    if not OrderMatcher(order):
        return resolved_order
    by_text = replace(order, sessions=(), said_before=None, said_after=None)
    segment_ids = [s.segment.id for s in await find_covered_segments(store, by_text)]
    return replace(resolved_order, segments=tuple(dict.fromkeys((*order.segments, *segment_ids))))


async def _forget_in_store(store: Store, order: ForgetOrder, forget_set: ForgetSet) -> Forgotten:
    result = await store.forget(
        replace(order, message_ids=tuple(sorted({*order.message_ids, *forget_set.message_ids})))
    )
    forget_set.message_ids.update(result.message_ids)
    forget_set.segments.update(result.segments)
    forget_set.facts.update(result.facts)
    marks = set(map(fact_identity, result.facts)) - forget_set.message_ids
    if marks:  # also write tombstones for removed facts, so that queries report them as forgotten
        await store.forget(ForgetOrder(at=order.at, message_ids=tuple(sorted(marks))))
        forget_set.message_ids.update(marks)
    return result


def _count_removed(result: Forgotten) -> dict[str, int]:
    return {
        "segments": len(result.segments),
        "passages": result.passages,
        "vectors": result.vectors,
        "facts": len(result.facts),
        "ledger pieces": result.pieces,
        "jobs": result.jobs,
        "session states changed": result.session_states,
        "compactions": result.compactions,
    }


def package_version() -> str:
    """Return the version of Recollect, which certificates state."""
    try:
        return metadata.version("recollect")
    except metadata.PackageNotFoundError:
        return "not installed"
