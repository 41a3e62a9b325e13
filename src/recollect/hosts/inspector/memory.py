"""The pages of a memory: search, facts, forgetting, redaction and health. Each action first shows
what it would change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from recollect.core.search.tokenize import tokenize
from recollect.core.upkeep.certificates import certificate_text, redaction_text
from recollect.core.upkeep.masks import Masks, own_patterns
from recollect.core.values.segment import SPEAKERS, SegmentId
from recollect.core.values.tenant import KeyScope
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import RecollectError
from recollect.hosts.inspect.searching import (
    question_vectors,
    search_facts,
    search_messages,
    search_request,
)
from recollect.hosts.inspect.turns import shown_text
from recollect.hosts.inspector.removal import (
    RemovalPlace,
    forget_planned,
    plan_forgetting,
    redact_stored,
    standing_limits,
)
from recollect.system.plain_text import plain_block

if TYPE_CHECKING:
    from recollect.core.facts.book import FactBook
    from recollect.core.search.facts import RankedFact
    from recollect.core.upkeep.certificates import RedactionReport
    from recollect.core.values.batch import JobRecord
    from recollect.core.values.model import ModelUse
    from recollect.core.values.recall import Hit
    from recollect.core.values.segment import StoredSegment
    from recollect.hosts.inspect.checks import Check
    from recollect.hosts.inspector.spaces import OpenSpace
    from recollect.hosts.inspector.view import Page, PageView

MOST_HITS: Final = 20
MOST_TARGETS: Final = 100
MOST_JOBS: Final = 50
DAY_SECONDS: Final = 86_400.0
_QUOTE_CHARS: Final = 320
_FORGET_FIELDS: Final = ("segment", "forget_session", "matching", "older_days", "fact")


async def _spaces(view: PageView) -> list[str]:
    """Return the names of the memories, and choose one if none is named."""
    found = [one.space for one in await view.visitor.spaces.summaries() if one.space]
    if not view.space and found:
        view.form = {**view.form, "space": found[0]}
    return found


async def search(view: PageView) -> Response:
    """Search the messages of one memory, or of all, with their scores."""
    spaces, asked = await _spaces(view), view.given("q").strip()
    every = view.given("space") == "*" or not view.request.query_params.get("space")
    found: list[tuple[str, StoredSegment, Hit, str]] = []
    facts: list[tuple[str, RankedFact]] = []
    verdict = ""
    if asked and not tokenize(asked):
        raise RecollectError(f"{shown_text(asked)!r} has no words that can be searched")
    for space in (spaces if every else [view.space]) if asked else ():
        async with view.open(space) as opened:
            hits, ranked, verdict = await _searched(opened, asked)
            found += [(space, *one) for one in hits]
            facts += [(space, one) for one in ranked]
    found.sort(key=lambda one: one[2].score, reverse=True)
    return view.render(
        "memory.html",
        tab="Memory",
        spaces=spaces,
        every=every,
        asked=asked,
        hits=found[:MOST_HITS],
        facts=facts[:MOST_HITS],
        verdict=verdict if asked and not every else "",
        shown_text=shown_text,
    )


async def _searched(
    opened: OpenSpace, asked: str
) -> tuple[list[tuple[StoredSegment, Hit, str]], list[RankedFact], str]:
    store, settings = opened.store, opened.settings
    request = search_request(opened.space, asked, limit=MOST_HITS, session=None)
    vectors, _, _ = await question_vectors(store, settings, request)
    recalled = await search_messages(store, settings, request, vectors)
    facts = await search_facts(store, request, vectors)
    best: dict[SegmentId, Hit] = {}
    for hit in recalled.hits:
        best.setdefault(hit.passage.segment, hit)
    stored = await store.segments(list(best)[:MOST_HITS])
    hits = []
    for one in stored:
        hit = best[one.segment.id]
        text = one.segment.text[hit.passage.start : hit.passage.end]
        hits.append((one, hit, shown_text(text, _QUOTE_CHARS)))
    gate = recalled.gate
    verdict = ""
    if gate is not None:
        would = "would recall" if gate.open else "would recall nothing"
        verdict = f"In a new session, this question {would}: {gate.reason}."
    return hits, list(facts), verdict


def _book(opened: OpenSpace) -> FactBook:
    from recollect.adapters.wiring.models import choose_embedders
    from recollect.core.boundary import SystemClock
    from recollect.core.facts.book import FactBook

    names = [embedder.name for embedder in choose_embedders(opened.settings).used]
    return FactBook(opened.store, opened.settings, SystemClock(), embedders=names)


async def facts(view: PageView) -> Response:
    """List the facts of a memory."""
    from recollect.core.facts.history import FactFilter

    spaces = await _spaces(view)
    past, words = bool(view.given("past")), view.given("q").strip()
    found = []
    if spaces:
        async with view.open() as opened:
            found = list(await _book(opened).list(FactFilter(superseded=past, search=words)))
    return view.render(
        "facts.html",
        tab="Facts",
        spaces=spaces,
        found=found[:500],
        total=len(found),
        past=past,
        words=words,
        speakers=SPEAKERS,
    )


async def fact(view: PageView) -> Response:
    """Show a fact: the messages that say it, its versions, and what can be done with it."""
    async with view.open() as opened:
        book = _book(opened)
        why, history = await book.why(view.given("id")), await book.history(view.given("id"))
    sources = [
        (
            source.stored,
            [
                shown_text(
                    source.stored.segment.text[max(0, one.start - 100) : one.end + 100],
                    _QUOTE_CHARS,
                )
                for one in source.spans
            ]
            or [shown_text(source.stored.segment.text)]
            if source.stored is not None
            else [],
        )
        for source in why.sources
    ]
    return view.render(
        "fact.html",
        tab="Facts",
        fact=why.fact,
        rests_on=why.rests_on,
        sources=sources,
        versions=list(reversed(history.versions)),
        speakers=SPEAKERS,
    )


async def write_fact(view: PageView) -> Response:
    """Add or correct a fact, or pin it."""
    id_, text = view.given("id"), view.given("text").strip()
    async with view.open() as opened:
        book = _book(opened)
        if view.given("pin"):
            done = await (book.pin(id_) if view.given("pin") == "on" else book.unpin(id_))
            return view.go(view.link("fact", space=view.space, id=done.fact.id))
        written = await (book.edit((await book.find(id_)).id, text) if id_ else book.add(text))
    if written.fact is None or written.outcome == "refused":
        back = (view.link("facts", space=view.space), "Facts")
        return view.notice("The fact was not written", shown_text(written.reason), 400, back=back)
    return view.go(view.link("fact", space=view.space, id=written.fact.id))


async def forget(view: PageView) -> Response:
    """Show what a request to forget would remove."""
    spaces = await _spaces(view)
    asked = any(view.given(name) for name in _FORGET_FIELDS)
    values: dict[str, object] = {"plan": None, "rows": [], "facts": []}
    if asked:
        async with view.open() as opened:
            plan = await plan_forgetting(_place(opened), await _order(view, opened), look=True)
        said = [one.segment for one in plan.targets.stored] + list(plan.targets.spooled)
        values = {
            "plan": plan,
            "rows": [(one, shown_text(one.text)) for one in said[:MOST_TARGETS]],
            "more": max(0, len(said) - MOST_TARGETS),
            "facts": plan.targets.facts[:MOST_TARGETS],
            "cannot": [line for line in plan.cannot if line not in standing_limits()],
        }
    return view.render(
        "forget.html",
        tab="Forget",
        spaces=spaces,
        given={name: view.given(name) for name in _FORGET_FIELDS},
        **values,
    )


async def forget_now(view: PageView) -> Response:
    """Forget what the preview showed, and show the certificate."""
    async with view.open() as opened:
        place = _place(opened)
        plan = await plan_forgetting(place, await _order(view, opened), look=True)
        if plan.said != view.given("expected"):
            fields = {name: view.given(name) for name in _FORGET_FIELDS}
            back = (view.link("forget", space=view.space, **fields), "Look at the preview again")
            text = "What would be forgotten has changed since the preview: nothing was forgotten."
            return view.notice("Not forgotten", text, 409, back=back, tab="Forget")
        certificate = await forget_planned(place, plan)
    await view.visitor.spaces.note("messages forgotten", view.space)
    block = certificate_text(certificate, standing=standing_limits())
    text = "This is the certificate. It contains no message content. Copy it to keep it."
    back = (view.link("", space=view.space), "Sessions")
    return view.notice("Forgotten", text, back=back, block=plain_block(block), tab="Forget")


def _place(opened: OpenSpace) -> RemovalPlace:
    return RemovalPlace(
        store=opened.store,
        space=opened.space,
        spools=opened.spools,
        has_files=opened.has_files,
    )


async def _order(view: PageView, opened: OpenSpace) -> ForgetOrder:
    from recollect.adapters.session.clean_files import resolve_sessions

    order = ForgetOrder(at=time.time())
    if id_ := view.given("fact"):
        return await _book(opened).order_to_forget([id_], versions=bool(view.given("versions")))
    if id_ := view.given("segment"):
        order = replace(order, segments=(SegmentId(id_),))
    if name := view.given("forget_session"):
        named = resolve_sessions(opened.space, [name]) if opened.has_files else (name,)
        order = replace(order, sessions=named)
    if text := view.given("matching").strip():
        order = replace(order, matching=text)
    if days := view.number("older_days"):
        # rounded, so that the confirmed order is the one that was shown
        now = time.time() // 3600 * 3600
        order = replace(order, said_before=now - days * DAY_SECONDS)
    return order


async def redact(view: PageView) -> Response:
    """Look for secrets in stored data. Nothing changes."""
    spaces = await _spaces(view)
    report = None
    if view.given("look"):
        async with view.open() as opened:
            report = await _redacted(view, opened, apply=False)
    return view.render(
        "redact.html",
        tab="Redact",
        spaces=spaces,
        pii=bool(view.given("pii")),
        pattern=view.given("pattern"),
        secrets=None if report is None else report.done.secrets,
        block="" if report is None else plain_block(redaction_text(report)),
    )


async def redact_now(view: PageView) -> Response:
    """Mask the secrets, and show the report."""
    async with view.open() as opened:
        report = await _redacted(view, opened, apply=True)
    await view.visitor.spaces.note("secrets masked", view.space)
    left = report.done.in_clear
    title = f"{left:,} secrets remain unmasked" if left else "Masked"
    back = (view.link("redact", space=view.space), "Redact")
    text = "Masked text is gone from the store. The rest of each message stays."
    return view.notice(
        title, text, back=back, block=plain_block(redaction_text(report)), tab="Redact"
    )


async def _redacted(view: PageView, opened: OpenSpace, *, apply: bool) -> RedactionReport:
    rules = opened.settings.redaction
    own = own_patterns((view.given("pattern"),)) if view.given("pattern") else ()
    masks = Masks(pii=bool(view.given("pii")) or rules.pii, patterns=own)
    return await redact_stored(_place(opened), masks, rules, apply=apply)


async def health(view: PageView) -> Response:
    """Show the checks of the installation, and the jobs, spool and sizes of a memory."""
    from recollect.core.upkeep.jobs import day_of

    spaces = await _spaces(view)
    checks = await asyncio.to_thread(_checks) if view.visitor.spaces.is_own_machine else []
    stats = queue = problems = None
    jobs: Sequence[JobRecord] = ()
    uses: Sequence[ModelUse] = ()
    spool = None
    if view.space:
        async with view.open() as opened:
            store = opened.store
            stats, queue = await store.stats(), await store.queue(day=day_of(time.time()))
            jobs, uses = await store.jobs(limit=MOST_JOBS), await store.model_use()
            spool = opened.spool
            if view.given("check"):
                problems = (await store.check()).problems
    return view.render(
        "health.html",
        tab="Health",
        spaces=spaces,
        checks=checks,
        stats=stats,
        queue=queue,
        jobs=jobs,
        uses=uses,
        spool=spool,
        problems=problems,
    )


def _checks() -> list[Check]:
    """Check the installation without asking the network."""
    from recollect.hosts.inspect.checks import (
        check_data,
        check_embedder,
        check_permissions,
        check_settings,
    )
    from recollect.system.config import load_settings

    loaded = load_settings()
    return [
        *check_settings(loaded),
        check_data(),
        check_embedder(loaded.settings),
        check_permissions(loaded),
    ]


PAGES: Final[dict[str, Page]] = {
    "memory": search,
    "facts": facts,
    "fact": fact,
    "forget": forget,
    "redact": redact,
    "health": health,
}
ACTIONS: Final[dict[str, tuple[KeyScope, Page]]] = {
    "fact": ("write", write_fact),
    "forget": ("forget", forget_now),
    "redact": ("forget", redact_now),
}
