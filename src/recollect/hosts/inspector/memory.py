"""The pages of a memory: search, facts, forgetting, redaction and health. Each action first shows
its effect."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse, Response

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
from recollect.hosts.inspect.searching import fact_book, search_memory
from recollect.hosts.inspect.turns import shown_text
from recollect.hosts.inspector.access import policy
from recollect.hosts.inspector.removal import (
    RemovalPlace,
    forget_planned,
    plan_forgetting,
    redact_stored,
    standing_limits,
)
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
MOST_HITS: Final = 20
MOST_FACTS: Final = 500
MOST_TARGETS: Final = 100
MOST_JOBS: Final = 50
_QUOTE_CHARS: Final = 320
_FORGET_FIELDS: Final = ("segment", "forget_session", "matching", "older_days", "fact")


async def search(view: PageView) -> Response:
    """Search the messages of one memory, or of all, with their scores."""
    every = view.space in ("", "*")
    spaces, asked = await view.spaces(), view.given("q").strip()
    searched, found = spaces if every else [view.space], {}
    most = max(3, MOST_HITS // max(1, len(searched)))
    for space in searched if asked else ():
        async with view.open(space) as opened:
            found[space] = await search_memory(
                opened.store, opened.settings, opened.space, asked, limit=MOST_HITS, session=None
            )
    # scores compare only within one memory
    hits: dict[str, dict[str, list[tuple[StoredSegment, Hit]]]] = {}
    for space, one in found.items():
        for stored, hit in one.hits:
            text = stored.segment.text[hit.passage.start : hit.passage.end]
            hits.setdefault(space, {}).setdefault(text, []).append((stored, hit))
    return view.render(
        "memory.html",
        spaces=spaces,
        every=every,
        asked=asked,
        hits={space: list(same.items())[:most] for space, same in hits.items()},
        facts=[(space, fact) for space, one in found.items() for fact in one.facts[:most]],
        verdict="" if every or not asked else found[view.space].verdict,
    )


async def facts(view: PageView) -> Response:
    """List the facts of a memory."""
    spaces, past, words = await view.spaces(), bool(view.given("past")), view.given("q").strip()
    found = []
    if spaces:
        async with view.open() as opened:
            book = fact_book(opened.store, opened.settings)
            found = list(await book.list(FactFilter(superseded=past, search=words)))
    return view.render(
        "facts.html",
        spaces=spaces,
        found=found[:MOST_FACTS],
        total=len(found),
        past=past,
        words=words,
    )


async def fact(view: PageView) -> Response:
    """Show a fact, its source messages, its versions, and the actions on it."""
    async with view.open() as opened:
        book = fact_book(opened.store, opened.settings)
        why, history = await book.why(view.given("id")), await book.history(view.given("id"))
    return view.render(
        "fact.html",
        fact=why.fact,
        rests_on=why.rests_on,
        sources=[(one.stored and one.stored.segment, _quote(one)) for one in why.sources],
        versions=list(reversed(history.versions)),
    )


def _quote(source: FactSource) -> str:
    if source.stored is None:
        return "This message is no longer stored."
    text = source.stored.segment.text
    spans = [text[max(0, one.start - 100) : one.end + 100] for one in source.spans] or [text]
    return " … ".join(shown_text(one, _QUOTE_CHARS) for one in spans)


async def write_fact(view: PageView) -> Response:
    """Add or correct a fact, pin it, or end its validity."""
    id_, text, act = view.given("id"), view.given("text").strip(), view.given("act")
    async with view.open() as opened:
        book = fact_book(opened.store, opened.settings)
        if act == "expire":
            await book.expire(id_)
        elif act:
            await (book.pin(id_) if act == "pin" else book.unpin(id_))
        else:
            written = await (book.edit((await book.find(id_)).id, text) if id_ else book.add(text))
            if written.fact is None or written.outcome == "refused":
                back = (view.link("facts", space=view.space), "Facts")
                said = shown_text(written.reason)
                return view.notice("The fact was not written", said, 400, back=back)
            id_ = written.fact.id
    return RedirectResponse(view.link("fact", space=view.space, id=id_), 303, policy(view.nonce))


async def forget(view: PageView) -> Response:
    """Show what a request to forget would remove."""
    spaces, plan, said = await view.spaces(), None, []
    if any(view.given(name) for name in _FORGET_FIELDS):
        async with view.open() as opened:
            plan = await plan_forgetting(_place(opened), await _order(view, opened), look=True)
        said = [
            *(one.segment for one in plan.targets.stored_segments),
            *plan.targets.spooled_segments,
        ]
    return view.render(
        "forget.html",
        spaces=spaces,
        given={name: view.given(name) for name in _FORGET_FIELDS},
        plan=plan,
        rows=said[:MOST_TARGETS],
        more=max(0, len(said) - MOST_TARGETS),
        facts=plan.targets.facts[:MOST_TARGETS] if plan else (),
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
            return view.notice("Not forgotten", text, 409, back=back)
        certificate = await forget_planned(place, plan)
    await view.visitor.spaces.note("messages forgotten", view.space)
    block = plain_block(certificate_text(certificate, standing=standing_limits()))
    text = "This is the certificate. It contains no message content. Copy it to keep it."
    back = (view.link("", space=view.space), "Sessions")
    return view.notice("Forgotten", text, back=back, block=block)


def _place(opened: OpenSpace) -> RemovalPlace:
    return RemovalPlace(
        store=opened.store, space=opened.space, spools=opened.spools, has_files=opened.has_files
    )


async def _order(view: PageView, opened: OpenSpace) -> ForgetOrder:
    from recollect.adapters.session.clean_files import resolve_sessions

    order = ForgetOrder(at=time.time())
    if id_ := view.given("fact"):
        return await fact_book(opened.store, opened.settings).order_to_forget(
            [id_], versions=bool(view.given("versions"))
        )
    if id_ := view.given("segment"):
        order = replace(order, segments=(SegmentId(id_),))
    if name := view.given("forget_session"):
        named = resolve_sessions(opened.space, [name]) if opened.has_files else (name,)
        order = replace(order, sessions=named)
    if text := view.given("matching").strip():
        order = replace(order, matching=text)
    if asked := view.given("older_days").strip():
        age = read_age(f"{asked}d" if asked.isdecimal() else asked if asked[-1].isalpha() else "")
        if not age:
            raise RecollectError(f"Older than {plain_line(asked)!r}: give days such as 90, or 12h")
        # rounded, so that preview and confirmed request have the same time
        order = replace(order, said_before=time.time() // 3600 * 3600 - age)
    return order


async def redact(view: PageView) -> Response:
    """Count the secrets in stored data, without changing anything."""
    spaces = await view.spaces()
    report = await _redacted(view, apply=False) if view.given("look") else None
    return view.render(
        "redact.html",
        spaces=spaces,
        pii=bool(view.given("pii")),
        pattern=view.given("pattern"),
        secrets=None if report is None else report.result.secrets,
        block="" if report is None else plain_block(redaction_text(report)),
    )


async def redact_now(view: PageView) -> Response:
    """Mask the secrets, and show the report."""
    report = await _redacted(view, apply=True)
    await view.visitor.spaces.note("secrets masked", view.space)
    left = report.result.in_clear
    title = f"{left:,} secrets remain unmasked" if left else "Masked"
    back = (view.link("redact", space=view.space), "Redact")
    text = "Masked text is gone from the store. The rest of each message stays."
    return view.notice(title, text, back=back, block=plain_block(redaction_text(report)))


async def _redacted(view: PageView, *, apply: bool) -> RedactionReport:
    own = compile_patterns((view.given("pattern"),)) if view.given("pattern") else ()
    async with view.open() as opened:
        rules = opened.settings.redaction
        masks = Masks(pii=bool(view.given("pii")) or rules.pii, patterns=own)
        return await redact_stored(_place(opened), masks, rules, apply=apply)


async def health(view: PageView) -> Response:
    """Show the checks of the installation, and the jobs, spool and sizes of a memory."""
    spaces = await view.spaces()
    checks: list[Check] = []
    if view.visitor.spaces.is_own_machine:
        checks = await asyncio.to_thread(lambda: check_machine(load_settings()))
    names = ("stats", "queue", "jobs", "uses", "spool", "problems")
    found: dict[str, object] = dict.fromkeys(names)
    if view.space:
        async with view.open() as opened:
            store = opened.store
            found |= {
                "stats": await store.stats(),
                "queue": await store.queue(day=day_of(time.time())),
                "jobs": await store.jobs(limit=MOST_JOBS),
                "uses": await store.model_use(),
                "spool": opened.spool,
            }
            if view.given("check"):
                found["problems"] = (await store.check()).problems
    return view.render("health.html", spaces=spaces, checks=checks, **found)


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
