"""The operations of the API. A success is answered only after the data is in the store. If storing
fails, the answer is a problem, and the client may retry. Stored answers contain no content."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import msgspec

from recollect.core.boundary import Failure, attempted
from recollect.core.engine.ledger import ReleasedTo
from recollect.core.engine.rebuild import NotRebuilt, rebuild_request
from recollect.core.formats.codec import is_message
from recollect.core.upkeep.certificates import certificate_json, seal
from recollect.core.upkeep.forget import delete_space, find_targets
from recollect.core.upkeep.forget import forget as forget_all
from recollect.core.values.fact import Fact
from recollect.core.values.reason import Cause
from recollect.core.values.report import Report, StageLine
from recollect.core.values.segment import SegmentId, StoredSegment
from recollect.core.values.tenant import PERIOD_SECONDS, AuditRecord, tenant_space
from recollect.core.values.upkeep import Certificate, ForgetOrder
from recollect.hosts.http import in_thread_if_large
from recollect.hosts.inspect.sessions import read_receipts
from recollect.hosts.service import models as m
from recollect.hosts.service.problems import Problem, ProblemKind
from recollect.hosts.service.requests import Call
from recollect.system.telemetry import count

AnswerT = TypeVar("AnswerT", bound=m.ApiAnswer)
ItemT = TypeVar("ItemT")

MOST_EVENTS: Final = 200_000  # not measured; bounds the work on one reply
LOG: Final = logging.getLogger("recollect")
_BEFORE_FACTS: Final = (-1e18, "")
"""A time and an id that sort before those of every fact."""
_NOTE_AGAIN_SECONDS: Final = (0.1, 0.5)
_NO_MODEL: Final = (
    "this service has no model for summaries: views are trimmed; ask its operator (models.provider)"
)


def _require_stored(archived_to: ReleasedTo | None) -> Any:
    if archived_to == "stale":
        raise Problem(
            ProblemKind.STALE,
            "another request of this session was stored first: repeat this one, nothing is stored "
            "twice",
            retry_after=1.0,
        )
    if archived_to is not None and archived_to != "store":
        raise Problem(
            ProblemKind.UNAVAILABLE,
            "the data is not in the store yet: try again, nothing is stored twice",
            retry_after=1.0,
        )
    return archived_to


def _require_loaded(lines: Iterable[StageLine]) -> None:
    """Raise a Problem if the session was not loaded, because turns would be numbered from 1."""
    causes = {reason.cause for line in lines for reason in line.reasons if line.stage == "load"}
    if Cause.SESSION_NOT_LOADED in causes:
        raise Problem(
            ProblemKind.UNAVAILABLE,
            "the session could not be read: try again, nothing is stored twice",
            retry_after=1.0,
        )


def _object(raw: msgspec.Raw) -> bytes:
    text = bytes(raw).strip()
    if not text.startswith(b"{"):
        raise Problem(ProblemKind.INVALID, "expected a JSON object of a provider's wire format")
    return text


async def prepare(call: Call) -> m.PreparedAnswer:
    """Prepare a request: valid, within its window, with relevant memories."""
    body, session = cast(m.PrepareBody, call.body), call.session
    request = _object(body.request)
    async with call.memory() as memory, memory.session(session):
        engine = memory.engine
        context = await engine.prepare(
            session, request, format=body.format, betas=body.betas, window_tokens=body.window_tokens
        )
        _require_loaded(context.report.failures)
        count("recall", outcome=_recall_outcome(context.report))
        archived_to = _require_stored(await engine.parts.sessions.release(session, call.seconds))
        lines = context.report.lines
        is_read = not any(line.stage == "read" and line.outcome == "failed" for line in lines)
    call.tokens += context.report.tokens_after
    return m.PreparedAnswer(
        wire_request=msgspec.Raw(context.request),
        # `report` is None if the request could not be read and is sent unchanged.
        turn=context.report.turn if is_read else None,
        archived=archived_to if is_read else None,
        tokens_before=context.report.tokens_before,
        tokens_after=context.report.tokens_after,
        compacted=context.compaction is not None and context.compaction.compacted,
        report=await in_thread_if_large(len(request), context.report.to_dict),
    )


def _recall_outcome(report: Report) -> str:
    if report.recalled:
        return "recalled"
    failed = any(line.stage == "recall" for line in report.failures)
    asked = any(line.stage == "recall" and line.outcome == "done" for line in report.lines)
    return "failed" if failed else "nothing" if asked else "not-asked"


async def observe(call: Call) -> m.ObservedAnswer:
    """Store the model's reply to a turn, and learn the window's use from its token usage."""
    body, session = cast(m.ObserveBody, call.body), call.session
    raw = bytes(body.reply).strip()
    if raw[:1] not in (b"{", b"["):
        raise Problem(ProblemKind.INVALID, "expected a provider's reply, or its stream's events")
    reply = raw if raw.startswith(b"{") else await in_thread_if_large(len(raw), _events, raw)
    async with call.memory() as memory, memory.session(session):
        engine = memory.engine
        observation = await engine.observe(session, reply, turn=body.turn)
        _require_loaded(observation.failures)
        unknown_turns = [line for line in observation.failures if line.cause is Cause.NO_SUCH_TURN]
        if unknown_turns:
            raise Problem(ProblemKind.INVALID, f"turn: {unknown_turns[0].said}")
        _require_stored(await engine.parts.sessions.release(session, call.seconds))
        archived_to = _require_stored(observation.archived)  # None: no part of the reply is stored
    call.tokens += 0 if observation.usage is None else observation.usage.output_tokens
    fields = observation.to_dict()
    return copy_fields(
        m.ObservedAnswer,
        observation,
        archived=archived_to,
        usage=fields["usage"],
        failures=fields["failures"],
    )


def _events(raw: bytes) -> list[Any]:
    raws = msgspec.json.decode(raw, type=list[msgspec.Raw])
    if len(raws) > MOST_EVENTS:
        raise Problem(ProblemKind.INVALID, f"a stream must have at most {MOST_EVENTS:,} events")
    return [msgspec.json.decode(event) for event in raws]


async def ingest(call: Call) -> m.IngestedAnswer:
    """Store messages that do not pass through `prepare`."""
    body = cast(m.IngestBody, call.body)
    raws = [_object(raw) for raw in body.messages]
    empty = [number for number, raw in enumerate(raws) if not is_message(raw)]
    if empty:
        raise Problem(
            ProblemKind.INVALID,
            f"messages[{empty[0]}] has neither a known role nor content: send messages in a "
            "provider's wire format",
        )
    async with call.memory() as memory:
        result = await memory.engine.ingest(
            call.session, raws, format=body.format, batch=body.batch, said_at=body.said_at
        )
    call.tokens += result.tokens
    return copy_fields(m.IngestedAnswer, result)


async def compact(call: Call) -> m.CompactedAnswer:
    """Replace a session's older messages with a summary now."""
    body, session = cast(m.CompactBody, call.body), call.session
    async with call.memory() as memory, memory.session(session):
        engine = memory.engine
        result = await engine.compact(
            session,
            _object(body.request),
            instructions=body.instructions,
            format=body.format,
            window_tokens=body.window_tokens,
        )
        _require_stored(await engine.parts.sessions.release(session, call.seconds))
    return copy_fields(
        m.CompactedAnswer,
        result,
        cause=result.reason.cause.name.lower(),
        reason=_NO_MODEL if result.reason.cause is Cause.NO_MODEL else str(result.reason),
    )


async def undo(call: Call) -> m.UndoneAnswer:
    """Restore the view from before the session's last compaction."""
    session = call.session
    async with call.memory() as memory, memory.session(session):
        result = await memory.engine.undo(session)
        _require_stored(await memory.engine.parts.sessions.release(session, call.seconds))
    return m.UndoneAnswer(undone=result.undone is not None, reason=str(result.reason))


async def search(call: Call) -> m.FoundAnswer:
    """Search memory: passages and facts, best first, within a token budget."""
    body = cast(m.SearchBody, call.body)
    async with call.memory() as memory:
        result = await memory.engine.search(
            body.query,
            session=body.session,
            budget_tokens=body.budget_tokens,
            said_after=body.said_after,
            said_before=body.said_before,
        )
        weigh = memory.engine.parts.weigher.text
        call.tokens += sum(weigh(hit.text) for hit in result.passages)
        call.tokens += sum(weigh(hit.text) for hit in result.facts)
    return m.FoundAnswer(
        passages=[
            copy_fields(m.FoundPassage, hit, said_at=hit.order[0]) for hit in result.passages
        ],
        facts=[copy_fields(m.FoundFact, hit) for hit in result.facts],
    )


async def sessions(call: Call) -> m.SessionsAnswer:
    """List the sessions of a space, by name."""
    async with call.store() as store:
        summaries = sorted(await store.sessions(), key=lambda summary: summary.session)
    page, cursor = _page_after(call, summaries, attrgetter("session"), "")
    items = [copy_fields(m.SessionItem, summary, messages=summary.segments) for summary in page]
    return m.SessionsAnswer(sessions=items, next=cursor)


async def receipts(call: Call) -> m.ReceiptsAnswer:
    """List the compactions of a session, oldest first."""
    async with call.store() as store:
        records = await store.compactions(call.session)
    page, cursor = _page_after(call, records, attrgetter("number"), 0)
    return m.ReceiptsAnswer(
        receipts=[copy_fields(m.ReceiptItem, record) for record in page], next=cursor
    )


async def receipt(call: Call) -> m.ReceiptAnswer:
    """Show what a compaction kept, what can be recalled, and what is lost."""
    async with call.store() as store:
        stored_receipts = await read_receipts(store, call.session)
    if call.number not in [record.number for record in stored_receipts.records]:
        raise Problem(ProblemKind.NOT_FOUND, "no compaction with this number is stored")
    compaction = stored_receipts.page(call.number).recorded
    return m.ReceiptAnswer(number=call.number, at=compaction.at, result=compaction.result.to_dict())


async def turns(call: Call) -> m.TurnsAnswer:
    """List the turns of a session that can be replayed."""
    async with call.store() as store:
        turn_numbers = await store.turns(call.session)
    page, cursor = _page_after(call, turn_numbers, int, 0)
    return m.TurnsAnswer(turns=page, next=cursor)


async def replay(call: Call) -> m.ReplayAnswer:
    """Rebuild a past request, and name its redacted, forgotten and expired parts."""
    async with call.store() as store:
        rebuilt_request = await rebuild_request(store, call.session, call.number)
    if isinstance(rebuilt_request, NotRebuilt):
        raise Problem(ProblemKind.NOT_FOUND, rebuilt_request.reason)
    return m.ReplayAnswer(
        turn=rebuilt_request.record.number,
        exact=rebuilt_request.exact,
        missing=list(rebuilt_request.missing),
        redacted=list(rebuilt_request.redacted),
        wire_request=msgspec.Raw(rebuilt_request.body),
        report=None if rebuilt_request.report is None else json.loads(rebuilt_request.report),
    )


async def export(call: Call) -> m.ExportAnswer:
    """Export a space in pages: messages in order of arrival, then facts."""
    kind, *place = call.after(["segments", 0])
    if len(place) != (1 if kind == "segments" else 2):
        raise Problem(
            ProblemKind.BAD_REQUEST, "the cursor has an older version; start without a cursor"
        )
    limit = call.query.limit
    segments: Sequence[StoredSegment] = ()
    facts: list[Fact] = []
    cursor: str | None = None
    async with call.store() as store:
        if kind == "segments":
            segments = await store.page(after=place[0], limit=limit)
            full = len(segments) == limit
            behind = ["segments", segments[-1].sequence] if full else ["facts", *_BEFORE_FACTS]
            cursor = call.cursor(behind)
        else:
            stored_facts = await store.facts(superseded=True)
            later_facts = [item for item in stored_facts if [item.at, item.id] > place]
            facts, cursor = page_of(call, later_facts, lambda fact: ["facts", fact.at, fact.id])
    return m.ExportAnswer(
        segments=[
            copy_fields(m.SegmentItem, item.segment, sequence=item.sequence) for item in segments
        ],
        facts=[_fact_item(item) for item in facts],
        next=cursor,
    )


async def facts(call: Call) -> m.FactsAnswer:
    """List the facts of a space or a session, pinned ones first."""
    query = cast(m.FactsQuery, call.query)
    async with call.store() as store:
        facts = await store.facts(superseded=query.superseded)
    listed_facts = [
        fact for fact in facts if query.session is None or fact.session in (None, query.session)
    ]
    listed_facts.sort(key=_fact_place)
    page, cursor = _page_after(call, listed_facts, _fact_place, [False, *_BEFORE_FACTS])
    return m.FactsAnswer(facts=[_fact_item(fact) for fact in page], next=cursor)


def _fact_place(fact: Fact) -> list[Any]:
    return [not fact.pinned, fact.at, fact.id]


async def add_fact(call: Call) -> m.FactWrittenAnswer:
    """Add a new fact. A new fact replaces the stored fact that it corrects, if any."""
    body = cast(m.FactBody, call.body)
    if not body.content.strip():
        raise Problem(ProblemKind.INVALID, "content must not be empty")
    async with call.memory() as memory:
        book = await memory.engine.facts(body.session)
        result = await book.add(body.content, type=body.type, subject=body.subject)
        call.tokens += memory.engine.parts.weigher.text(body.content)
    if result.fact is None:
        raise Problem(ProblemKind.INVALID, result.reason)
    return m.FactWrittenAnswer(id=result.fact.id, outcome=result.outcome)


async def forget_fact(call: Call) -> m.CertificateAnswer:
    """Forget a fact permanently."""
    query = cast(m.FactForgetQuery, call.query)
    async with call.memory() as memory:
        store = await call.memories.store(call.tenant.id, call.space)
        if not await store.facts([cast(Any, call.path["fact"])], superseded=True):
            raise Problem(ProblemKind.NOT_FOUND, "no fact has this id")
        book = await memory.engine.facts()
        order = await book.order_to_forget(
            [call.path["fact"]], sources=query.sources, versions=query.versions
        )
        certificate = await book.forget(order)
    await _note(call, "fact forgotten", f"{call.space}: {call.path['fact']}")
    return _certify(call, certificate)


async def forget(call: Call) -> m.ForgottenAnswer:
    """Forget messages and everything that quotes them, or list what would be removed."""
    body = cast(m.ForgetBody, call.body)
    order = ForgetOrder(
        at=call.now,
        segments=tuple(SegmentId(segment_id) for segment_id in body.segments),
        sessions=tuple(body.sessions),
        said_before=body.said_before,
        said_after=body.said_after,
        matching=body.matching,
    )
    if not (order.segments or order.sessions or order.by_time or (order.matching or "").strip()):
        raise Problem(
            ProblemKind.INVALID,
            "name what to forget: segments, sessions, said_before, said_after or matching",
        )
    async with call.store() as store:
        if body.dry_run:
            targets = await find_targets(store, (), order)
            segments, facts = targets.stored_segments, targets.facts
            preview = m.ForgetPreview(
                segments=len(segments),
                segment_ids=[item.segment.id for item in segments[: m.MOST_PREVIEWED]],
                facts=len(facts),
                fact_ids=[item.id for item in facts[: m.MOST_PREVIEWED]],
                records=targets.records,
            )
            return m.ForgottenAnswer(certificate=None, preview=preview)
        certificate = await forget_all(store, (), order, now=call.now)
    await _note(call, "messages forgotten", call.space)
    return m.ForgottenAnswer(certificate=_certify(call, certificate).certificate, preview=None)


async def spaces(call: Call) -> m.SpacesAnswer:
    """List the tenant's spaces, by name."""
    records = await call.memories.records()
    space_records = await records.spaces(
        call.tenant.id, after=call.after(""), limit=call.query.limit + 1
    )
    page, cursor = page_of(call, space_records, attrgetter("name"))
    return m.SpacesAnswer(
        spaces=[copy_fields(m.SpaceItem, space_record) for space_record in page], next=cursor
    )


async def delete(call: Call) -> m.CertificateAnswer:
    """Delete a space with its whole content."""
    records = await call.memories.records()
    await call.memories.require(call.tenant.id, call.space)
    await call.memories.drop(call.tenant.id, call.space)
    fleet = await call.memories.fleet()
    store = await fleet.space(tenant_space(call.tenant.id, call.space))
    actor = actor_of(call)
    let_go = partial(records.remove_space, call.tenant, call.space, actor=actor, at=call.now)
    certificate = await delete_space(store, name=call.space, now=call.now, let_go=let_go)
    return m.CertificateAnswer(certificate=certificate_json(certificate))


async def tenant(call: Call) -> m.TenantAnswer:
    """Show the key's tenant and scopes, and how much of its budgets and quotas the tenant uses."""
    records = await call.memories.records()
    budgets = []
    for budget in PERIOD_SECONDS:
        limit = call.tenant.limit(budget)
        used_amount = await records.total_spent(
            call.tenant.id, budget, call.memories.budgets.period(budget)
        )
        if budget == "requests per minute" and limit is not None:  # refused requests count too
            used_amount = min(used_amount, limit)
        renews = call.memories.budgets.renews_in(budget)
        budgets.append(
            m.BudgetItem(budget=budget, limit=limit, spent=used_amount, renews_in_seconds=renews)
        )
    return m.TenantAnswer(
        tenant=str(call.tenant.id),
        name=call.tenant.name,
        key=call.key.id,
        scopes=list(call.key.scopes),
        budgets=budgets,
        quotas=[
            m.QuotaItem(quota=name, limit=call.tenant.quota(name), used=size)
            for name, size in (await records.used(call.tenant.id)).items()
        ],
    )


async def audit(call: Call) -> m.AuditAnswer:
    """List administrative actions on the tenant, its keys and spaces, newest first."""
    page, cursor = await audit_page(call, call.tenant.id)
    return m.AuditAnswer(acts=[copy_fields(m.AuditItem, act) for act in page], next=cursor)


async def audit_page(call: Call, tenant: UUID | None) -> tuple[list[AuditRecord], str | None]:
    """Return a page of the log of a tenant, or of all tenants, and the cursor of the next."""
    records = await call.memories.records()
    logged_at, id_ = call.after([1e18, ""])
    acts = await records.log(tenant, before=(logged_at, id_), limit=call.query.limit + 1)
    return page_of(call, acts, attrgetter("at", "id"))


def page_of(
    call: Call, items: Sequence[ItemT], place: Callable[[ItemT], Any]
) -> tuple[list[ItemT], str | None]:
    """Return one page, and the cursor of the next, which begins after the last item's place."""
    page = list(items[: call.query.limit])
    return page, call.cursor(place(page[-1])) if len(items) > len(page) else None


def _page_after(
    call: Call, items: Iterable[ItemT], place: Callable[[ItemT], Any], start: Any
) -> tuple[list[ItemT], str | None]:
    """Return the page of all items that the cursor names, or the first one, as `page_of` does."""
    after = call.after(start)
    return page_of(call, [item for item in items if place(item) > after], place)


def copy_fields(kind: type[AnswerT], source: Any, **values: Any) -> AnswerT:
    copied_values = {
        name: getattr(source, name) for name in kind.__struct_fields__ if name not in values
    }
    return kind(**copied_values, **values)


def _fact_item(fact: Fact) -> m.FactItem:
    return copy_fields(m.FactItem, fact, sources=list(fact.sources))


def _certify(call: Call, certificate: Certificate) -> m.CertificateAnswer:
    return m.CertificateAnswer(
        certificate=certificate_json(seal(replace(certificate, space=call.space, checksum="")))
    )


def actor_of(call: Call) -> str:
    return f"key {call.key.id}"


async def _note(call: Call, act: str, subject: str) -> None:
    from recollect.adapters.stores.postgres.tenants import audit_record

    record = audit_record(call.tenant.id, actor_of(call), act, subject, call.now)

    async def write() -> None:
        await (await call.memories.records()).note(record)

    for seconds in (*_NOTE_AGAIN_SECONDS, None):
        result = await attempted(write())
        if not isinstance(result, Failure):
            return
        if seconds is None:  # the work is done, so return its certificate in any case
            LOG.error("%r is missing in the audit log of %s: %s", act, call.tenant.id, result.said)
        else:
            await asyncio.sleep(seconds)
