"""The pages of a memory: search, facts, forgetting, redaction and health. Each action first shows
its effect."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse, Response

from recollect.adapters.session.removal import (
    forget_planned,
    plan_forgetting,
    redact_stored,
    standing_limits,
)
from recollect.core.facts.history import FactFilter
from recollect.core.rules.patterns import compile_patterns
from recollect.core.upkeep.certificates import certificate_text, redaction_text
from recollect.core.upkeep.jobs import day_of
from recollect.core.upkeep.masks import Masks
from recollect.core.values.segment import SegmentId
from recollect.core.values.tenant import KeyScope
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import RecollectError
from recollect.hosts.inspect.checks import Check, check_machine
from recollect.hosts.inspect.searching import search_memory
from recollect.hosts.inspect.turns import format_excerpt
from recollect.hosts.inspector.access import policy
from recollect.system.config import load_settings
from recollect.system.config.fields import read_age
from recollect.system.plain_text import plain_block, plain_line

if TYPE_CHECKING:
    from recollect.core.facts.history import FactSource
    from recollect.core.upkeep.certificates import RedactionReport
    from recollect.core.values.recall import Hit
    from recollect.core.values.segment import StoredSegment
    from recollect.hosts.inspector.spaces import OpenSpace
    from recollect.hosts.inspector.view import Page, PageView

# Not measured: lengths of lists that a person can still read, and a browser shows at once.
MAX_HITS: Final = 20
MAX_FACTS: Final = 500
MAX_TARGETS: Final = 100
MAX_JOBS: Final = 50
_QUOTE_CHARS: Final = 320
_FORGET_FIELDS: Final = ("segment", "forget_session", "matching", "older_days", "fact")


async def search(view: PageView) -> Response:
    """Search the messages of one memory, or of all, with their scores."""
    searches_all = view.space in ("", "*")
    spaces, query = await view.spaces(), view.parameter("q").strip()
    searched_spaces, results_by_space = spaces if searches_all else [view.space], {}
    max_hits = max(3, MAX_HITS // max(1, len(searched_spaces)))
    for space in searched_spaces if query else ():
        async with view.open(space) as opened_space:
            store, settings, name = opened_space.store, opened_space.settings, opened_space.space
            results_by_space[space] = await search_memory(
                store, settings, name, query, limit=MAX_HITS, session=None
            )
    # scores compare only within one memory
    hits: dict[str, dict[str, list[tuple[StoredSegment, Hit]]]] = {}
    for space, search_result in results_by_space.items():
        for stored_segment, hit in search_result.hits:
            text = stored_segment.segment.text[hit.passage.start : hit.passage.end]
            hits.setdefault(space, {}).setdefault(text, []).append((stored_segment, hit))
    return view.render(
        "memory.html",
        spaces=spaces,
        every=searches_all,
        asked=query,
        hits={space: list(hits_by_text.items())[:max_hits] for space, hits_by_text in hits.items()},
        facts=[
            (space, fact)
            for space, search_result in results_by_space.items()
            for fact in search_result.facts[:max_hits]
        ],
        verdict="" if searches_all or not query else results_by_space[view.space].verdict,
    )


async def facts(view: PageView) -> Response:
    """List the facts of a memory."""
    spaces, found_facts = await view.spaces(), []
    past, words = bool(view.parameter("past")), view.parameter("q").strip()
    if spaces:
        async with view.open() as opened_space:
            fact_filter = FactFilter(superseded=past, search=words)
            found_facts = list(await opened_space.facts.list(fact_filter))
    return view.render(
        "facts.html",
        spaces=spaces,
        found=found_facts[:MAX_FACTS],
        total=len(found_facts),
        past=past,
        words=words,
    )


async def fact(view: PageView) -> Response:
    """Show a fact, its source messages, its versions, and the actions on it."""
    async with view.open() as opened_space:
        book = opened_space.facts
        fact_why = await book.why(view.parameter("id"))
        history = await book.history(view.parameter("id"))
    return view.render(
        "fact.html",
        fact=fact_why.fact,
        rests_on=fact_why.rests_on,
        sources=[
            (source.stored and source.stored.segment, _quote(source)) for source in fact_why.sources
        ],
        versions=list(reversed(history.versions)),
    )


def _quote(source: FactSource) -> str:
    if source.stored is None:
        return "This message is no longer stored."
    text = source.stored.segment.text
    spans = [text[max(0, span.start - 100) : span.end + 100] for span in source.spans] or [text]
    return " … ".join(format_excerpt(text, _QUOTE_CHARS) for text in spans)


async def write_fact(view: PageView) -> Response:
    """Add or correct a fact, pin it, or end its validity."""
    id_, text, act = view.parameter("id"), view.parameter("text").strip(), view.parameter("act")
    async with view.open() as opened_space:
        book = opened_space.facts
        if act == "expire":
            await book.expire(id_)
        elif act:
            await (book.pin(id_) if act == "pin" else book.unpin(id_))
        else:
            result = await (book.edit((await book.find(id_)).id, text) if id_ else book.add(text))
            if result.fact is None or result.outcome == "refused":
                back = (view.link("facts", space=view.space), "Facts")
                problem = format_excerpt(result.reason)
                return view.notice("The fact was not written", problem, 400, back=back)
            id_ = result.fact.id
    return RedirectResponse(view.link("fact", space=view.space, id=id_), 303, policy(view.nonce))


async def forget(view: PageView) -> Response:
    """Show what a request to forget would remove."""
    spaces, plan, segments = await view.spaces(), None, []
    if any(view.parameter(name) for name in _FORGET_FIELDS):
        async with view.open() as opened_space:
            plan = await plan_forgetting(opened_space, await _order(view, opened_space), look=True)
        segments = [
            *(target.segment for target in plan.targets.stored_segments),
            *plan.targets.spooled_segments,
        ]
    return view.render(
        "forget.html",
        spaces=spaces,
        given={name: view.parameter(name) for name in _FORGET_FIELDS},
        plan=plan,
        rows=segments[:MAX_TARGETS],
        more=max(0, len(segments) - MAX_TARGETS),
        facts=plan.targets.facts[:MAX_TARGETS] if plan else (),
    )


async def forget_now(view: PageView) -> Response:
    """Forget what the preview showed, and show the certificate."""
    async with view.open() as opened_space:
        plan = await plan_forgetting(opened_space, await _order(view, opened_space), look=True)
        if plan.said != view.parameter("expected"):
            fields = {name: view.parameter(name) for name in _FORGET_FIELDS}
            back = (view.link("forget", space=view.space, **fields), "Look at the preview again")
            text = "What would be forgotten has changed since the preview: nothing was forgotten."
            return view.notice("Not forgotten", text, 409, back=back)
        certificate = await forget_planned(opened_space, plan)
    await view.visitor.spaces.note("messages forgotten", view.space)
    block = plain_block(certificate_text(certificate, standing=standing_limits()))
    text = "This is the certificate. It contains no message content. Copy it to keep it."
    back = (view.link("", space=view.space), "Sessions")
    return view.notice("Forgotten", text, back=back, block=block)


async def _order(view: PageView, opened_space: OpenSpace) -> ForgetOrder:
    from recollect.adapters.session.clean_files import resolve_sessions

    order = ForgetOrder(at=time.time())
    if id_ := view.parameter("fact"):
        versions = bool(view.parameter("versions"))
        return await opened_space.facts.order_to_forget([id_], versions=versions)
    if id_ := view.parameter("segment"):
        order = replace(order, segments=(SegmentId(id_),))
    if name := view.parameter("forget_session"):
        has_files = opened_space.has_files
        sessions = resolve_sessions(opened_space.space, [name]) if has_files else (name,)
        order = replace(order, sessions=sessions)
    if text := view.parameter("matching").strip():
        order = replace(order, matching=text)
    if age_text := view.parameter("older_days").strip():
        age_text += "d" * age_text.isdecimal()
        age = read_age(age_text) if age_text[-1].isalpha() else None
        if not age:
            text = plain_line(view.parameter("older_days"))
            raise RecollectError(f"Older than {text!r}: give days such as 90, or 12h")
        # rounded, so that preview and confirmed request have the same time
        order = replace(order, said_before=time.time() // 3600 * 3600 - age)
    return order


async def redact(view: PageView) -> Response:
    """Count the secrets in stored data, without changing anything."""
    spaces = await view.spaces()
    report = await _redact_memory(view, apply=False) if view.parameter("look") else None
    return view.render(
        "redact.html",
        spaces=spaces,
        pii=bool(view.parameter("pii")),
        pattern=view.parameter("pattern"),
        secrets=None if report is None else report.result.secrets,
        block="" if report is None else plain_block(redaction_text(report)),
    )


async def redact_now(view: PageView) -> Response:
    """Mask the secrets, and show the report."""
    report = await _redact_memory(view, apply=True)
    await view.visitor.spaces.note("secrets masked", view.space)
    unmasked_count = report.result.in_clear
    title = f"{unmasked_count:,} secrets remain unmasked" if unmasked_count else "Masked"
    back = (view.link("redact", space=view.space), "Redact")
    text = "Masked text is gone from the store. The rest of each message stays."
    return view.notice(title, text, back=back, block=plain_block(redaction_text(report)))


async def _redact_memory(view: PageView, *, apply: bool) -> RedactionReport:
    own_patterns = (
        compile_patterns((view.parameter("pattern"),)) if view.parameter("pattern") else ()
    )
    async with view.open() as opened_space:
        rules = opened_space.settings.redaction
        masks = Masks(pii=bool(view.parameter("pii")) or rules.pii, patterns=own_patterns)
        return await redact_stored(opened_space, masks, rules, apply=apply)


async def health(view: PageView) -> Response:
    """Show the checks of the installation, and the jobs, spool and sizes of a memory."""
    spaces = await view.spaces()
    checks: list[Check] = []
    if view.visitor.spaces.is_own_machine:
        checks = await asyncio.to_thread(lambda: check_machine(load_settings()))
    names = ("stats", "queue", "jobs", "uses", "spool", "problems")
    values: dict[str, object] = dict.fromkeys(names)
    if view.space:
        async with view.open() as opened_space:
            store = opened_space.store
            values |= {
                "stats": await store.stats(),
                "queue": await store.queue(day=day_of(time.time())),
                "jobs": await store.jobs(limit=MAX_JOBS),
                "uses": await store.model_use(),
                "spool": opened_space.spool,
            }
            if view.parameter("check"):
                values["problems"] = (await store.check()).problems
    return view.render("health.html", spaces=spaces, checks=checks, **values)


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
