"""Facts for users: list, add, correct, pin, forget and trace them. Texts are redacted before they
are stored. An id prefix is enough to name a fact. Only forgetting removes a replaced fact."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from typing import Final, TypeVar, get_args

from recollect.core.facts.history import (
    FactFilter,
    FactHistory,
    FactPinned,
    FactSource,
    FactWhy,
    FactWritten,
    Reconciled,
    as_of,
    close_fact,
    fact_history,
    name_property,
    other_value,
    same_words,
    settle,
)
from recollect.core.ports import Clock, Spool, Store
from recollect.core.rules.redaction import redact
from recollect.core.rules.text import clean_text
from recollect.core.rules.trust import lowest_trust
from recollect.core.search.tokenize import tokenize
from recollect.core.upkeep.forget import forget as forget_all
from recollect.core.values.batch import EMBED_JOB, Batch, NewJob
from recollect.core.values.fact import (
    EvidenceSpan,
    Fact,
    FactDraft,
    FactId,
    FactType,
    MadeBy,
    fact_identity,
)
from recollect.core.values.recall import FactQuery
from recollect.core.values.segment import SegmentId, StoredSegment, Trust
from recollect.core.values.upkeep import Certificate, ForgetOrder
from recollect.errors import RecollectError, StaleFacts, StoreError
from recollect.system.config import Settings

_MOST_NAMED: Final = 5  # not measured; keeps the error short
MOST_CHARS: Final = 2_000  # not measured; longer texts are notes
_ID_BYTES: Final = 12  # 96 bits: ids stay short enough to type
_TYPE_WORDS: Final[tuple[tuple[FactType, str], ...]] = (
    ("decision", r"\b(?:decided|decision|chose|agreed)\b"),
    ("preference", r"\b(?:i|i'm|me|always|never|please)\b|^\W*(?:keep|only|do not|don.t)\b"),
    ("decision", r"^\W*(?:use|adopt|drop|switch|migrate|move|ship)\b"),
    ("preference", r"\bmy\b"),
    (
        "task_state",
        (
            r"\b(?:todo|not yet|still (?:to|has|have|needs?|missing|open)|pending|blocked"
            r"|unfinished|in progress|finished|completed|waiting for)\b|\bdone\W*$"
        ),
    ),
    (
        "issue",
        (
            r"\b(?:bugs?|errors?|crash\w*|fail(?:s|ed|ing|ures?)?|broken|breaks|leaks?|flaky|wrong"
            r"|regression|outage|(?:do|does|is|are)(?: not|n't) work\w*)\b"
        ),
    ),
    ("decision", r"\b(?:instead of|rather than|replaces|go(?:ing)? with)\b"),
    (
        "architecture",
        (
            r"\b(?:architecture|event[- ](?:driven|bus)|micro-?services?|monolith|layers?|layered"
            r"|hexagonal|talks? to|(?:api|message) (?:gateway|queue|broker)|services)\b"
        ),
    ),
    (
        "implementation",
        (
            r"\b(?:endpoint|function|class|method|module|table|handler|route"
            r"|(?:stored|lives?|implemented|handled|written) (?:in|by|as|with))\b|\s/\w+|\w\(\)"
        ),
    ),
)
"""Words that show a type. The first type that matches is used."""


def format_id(id: str) -> str:  # noqa: A002
    """Format an id for an error message, with control characters escaped."""
    return id if id.isprintable() else repr(id)[1:-1]


def _source(id: SegmentId, fact: Fact, stored: StoredSegment | None) -> FactSource:  # noqa: A002
    if stored is None:
        return FactSource(id=id, stored=None)
    spans = [span for span in fact.evidence if span.segment == id]
    size = len(stored.segment.text)
    within = [span for span in spans if 0 <= span.start < span.end <= size]
    return FactSource(
        id=id,
        stored=stored,
        spans=tuple(sorted(within, key=lambda span: (span.start, span.end))),
        lost_spans=len(spans) - len(within),
    )


def _matches(fact: Fact, asked: FactFilter, words: frozenset[str]) -> bool:
    return (
        (not asked.types or fact.type in asked.types)
        and (not asked.trusts or fact.trust in asked.trusts)
        and (not asked.made_by or fact.made_by in asked.made_by)
        and (asked.session is None or fact.session == asked.session)
        and (
            asked.search.casefold() in fact.content.casefold()
            or (bool(words) and words <= {*tokenize(f"{fact.content} {fact.subject}")})
        )
    )


WRITER_CANDIDATES: Final = 50  # not measured; bounds the facts compared
_ATTEMPTS: Final = 5  # not measured; each loss means another writer won

Done = TypeVar("Done")


async def retry_if_stale(write: Callable[[], Awaitable[Done]]) -> Done:
    """Call `write`, and repeat it if another process wrote facts while it read and decided."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(StaleFacts):
            return await write()
    return await write()


def _with_own_id(fact: Fact) -> Fact:
    named = f"{fact.at!r}\0{fact.recorded_at!r}\0{fact.content}"
    hashed = blake2b(
        named.encode("utf-8", "surrogatepass"), digest_size=_ID_BYTES, person=b"recollect-wrote"
    )
    return replace(fact, id=FactId(hashed.hexdigest()))


def _type_of(content: str, subject: str) -> FactType:
    for type_, words in _TYPE_WORDS:
        if re.search(words, content, re.IGNORECASE):
            return type_
    return "config" if subject or re.search(r"\d", content) else "preference"


class FactBook:
    """The facts of one space, for users."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Clock,
        *,
        embedders: Sequence[str] = (),
        spools: Sequence[Spool] = (),
        before_forgetting: Callable[[ForgetOrder], Awaitable[None]] | None = None,
        forgotten: Callable[[], None] = lambda: None,
        session: str | None = None,
        read_only: bool = False,
    ) -> None:
        """With `session`, only facts of this session and of no session are visible. `forget`
        awaits `before_forgetting`, also removes from `spools`, then calls `forgotten`."""
        self._read_only = read_only
        self._session = None if settings.recall.scope == "space" else session
        self._spools = tuple(spools)
        self._before_forgetting = before_forgetting
        self._forgotten = forgotten
        self._store = store
        self._settings = settings
        self._clock = clock
        self._embedders = tuple(embedders)

    async def list(self, asked: FactFilter | None = None) -> tuple[Fact, ...]:
        """Return the selected facts: pinned ones first, then by time."""
        asked = asked or FactFilter()
        for what, names, known in (
            ("types", asked.types, get_args(FactType)),
            ("trusts", asked.trusts, get_args(Trust)),
            ("made_by", asked.made_by, get_args(MadeBy)),
        ):
            if unknown := [name for name in names if name not in known]:
                raise RecollectError(f"{what}: {unknown[0]!r} is not one of {', '.join(known)}")
        moment = asked.as_of
        facts = await self._store.facts(superseded=asked.superseded or moment is not None)
        if moment is not None and asked.superseded:
            facts = tuple(fact for fact in facts if fact.at <= moment)
        elif moment is not None:
            facts = as_of(facts, moment)
        words = frozenset(tokenize(asked.search))
        found = [one for one in facts if self._reaches(one) and _matches(one, asked, words)]
        return tuple(sorted(found, key=lambda fact: (not fact.pinned, fact.at, fact.id)))

    async def find(self, id: str) -> Fact:  # noqa: A002
        """Return the fact with this id, or with this prefix if no other id has it."""
        fact = await self._find(id)
        if not self._reaches(fact):
            raise RecollectError("that fact belongs to another session; `recollect facts` shows it")
        return fact

    async def _find(self, id: str) -> Fact:  # noqa: A002
        if not id:
            raise RecollectError("an id is missing; `recollect facts list` shows them")
        if exact := await self._store.facts([FactId(id)], superseded=True):
            return exact[0]
        every = await self._store.facts(superseded=True)
        folded = id.casefold()
        facts = [fact for fact in every if fact.id.startswith(id)]
        facts = facts or [fact for fact in every if fact.id.casefold().startswith(folded)]
        if len(facts) == 1:
            return facts[0]
        if facts:
            raise RecollectError(
                f"{len(facts)} facts have ids that begin with {id!r}; pass a longer prefix: "
                + ", ".join(format_id(fact.id) for fact in facts[:_MOST_NAMED])
            )
        forms = dict.fromkeys((id, id.lower()))
        if await self._store.tombstoned([fact_identity(FactId(form)) for form in forms]):
            raise RecollectError("that fact was forgotten, and nothing of it is stored")
        raise RecollectError(
            f"no fact's id begins with {id!r}; `recollect facts list --all` lists the ids"
        )

    def _check_writable(self) -> None:
        if self._read_only:
            raise StoreError("this memory is read-only: set ingest.enabled = true to change facts")

    def _reaches(self, fact: Fact) -> bool:
        return self._session is None or fact.session in (None, self._session)

    async def add(
        self,
        text: str,
        *,
        type: FactType | None = None,  # noqa: A002
        subject: str = "",
        at: float | None = None,
        made_by: MadeBy = "user",
        trust: Trust = "high",
        source: SegmentId | None = None,
    ) -> FactWritten:
        """Add a statement. A statement that corrects a fact replaces it; a known one changes
        nothing. The fact is valid from `at`, or from now. `source` is a message that supports the
        fact, which is then trusted no more than that message."""
        self._check_writable()
        content, masked = self._clean(text)
        about = " ".join(self._clean(subject)[0].casefold().split()) if subject.strip() else ""
        now = self._clock.now()
        evidence: tuple[EvidenceSpan, ...] = ()
        if source is not None:
            stored = await self._store.segments([source])
            if not stored or self._session not in (None, stored[0].segment.session):
                raise RecollectError("the source message does not exist: search for its id")
            said = stored[0].segment
            evidence = (EvidenceSpan(segment=said.id, start=0, end=len(said.text)),)
            trust = lowest_trust([trust, said.trust])
        named = name_property(content)
        draft = FactDraft(
            type=type or _type_of(content, named.subject),
            content=content,
            at=now if at is None else min(at, now),
            evidence=evidence,
            trust=trust,
            made_by=made_by,
            session=self._session,
            subject=about or named.subject,
            attribute=named.subject if about else named.attribute,
        )
        written = await retry_if_stale(lambda: self._add(draft))
        return replace(written, masked=masked)

    async def edit(
        self,
        id: str,  # noqa: A002
        text: str,
        *,
        type: FactType | None = None,  # noqa: A002
    ) -> FactWritten:
        """Replace a fact by a new version in the user's words, with the old one in its history."""
        self._check_writable()
        fact = await self.find(id)
        content, masked = self._clean(text)
        written = await retry_if_stale(lambda: self._edit(fact.id, content, type))
        return replace(written, masked=masked)

    async def pin(self, id: str) -> FactPinned:  # noqa: A002
        """Show a fact first in recall, and protect it from being replaced by extraction."""
        self._check_writable()
        return await retry_if_stale(lambda: self._pin(id, pinned=True))

    async def unpin(self, id: str) -> FactPinned:  # noqa: A002
        """Undo `pin`."""
        self._check_writable()
        return await retry_if_stale(lambda: self._pin(id, pinned=False))

    async def expire(self, id: str) -> Fact:  # noqa: A002
        """End a fact's validity now. The fact stays in its history, but is not recalled."""
        self._check_writable()
        return await retry_if_stale(lambda: self._expire(id))

    async def history(self, id: str) -> FactHistory:  # noqa: A002
        """Return the versions of a fact, oldest first. A forgotten version leaves a gap."""
        return fact_history(await self.find(id), await self._store.facts(superseded=True))

    async def why(self, id: str) -> FactWhy:  # noqa: A002
        """Return the messages that support a fact, and the spans that state it."""
        fact = await self.find(id)
        rests_on = None
        if not fact.sources:
            versions = reversed((await self.history(fact.id)).facts)
            earlier = (one for one in versions if one.id != fact.id and one.at <= fact.at)
            rests_on = next((one for one in earlier if one.sources), None)
        stated = rests_on or fact
        stored = {one.segment.id: one for one in await self._store.segments(stated.sources)}
        sources = tuple(_source(id_, stated, stored.get(id_)) for id_ in stated.sources)
        return FactWhy(fact=fact, sources=sources, rests_on=rests_on)

    async def order_to_forget(
        self, ids: Sequence[str], *, sources: bool = False, versions: bool = False
    ) -> ForgetOrder:
        """Return the order to forget these facts. `sources` adds their messages, `versions` their
        versions."""
        facts = {fact.id: fact for fact in [await self.find(other) for other in ids]}
        every = await self._store.facts(superseded=True)
        if versions:
            for fact in tuple(facts.values()):
                facts.update((other.id, other) for other in fact_history(fact, every).facts)
        whys = [await self.why(id_) for id_ in facts] if sources else []
        segments = [source.id for why in whys for source in why.sources]
        return ForgetOrder(
            at=self._clock.now(), facts=tuple(facts), segments=tuple(dict.fromkeys(segments))
        )

    async def forget(self, order: ForgetOrder) -> Certificate:
        """Forget permanently what an order from `order_to_forget` selects."""
        self._check_writable()
        if self._before_forgetting is not None:
            await self._before_forgetting(order)
        certificate = await forget_all(self._store, self._spools, order, now=self._clock.now())
        self._forgotten()
        return certificate

    def _clean(self, text: str) -> tuple[str, int]:
        said = clean_text(text).strip()
        if not said:
            raise RecollectError("the statement is empty; pass a text")
        if len(said) > MOST_CHARS:
            raise RecollectError(
                f"a fact has at most {MOST_CHARS:,} characters; shorten the statement, or keep it "
                "as a note with `recollect memory add`"
            )
        settings = self._settings.redaction
        if not settings.enabled:
            return said, 0
        masked = redact(said, pii=settings.pii)
        return masked.text, len(masked.spans)

    async def _add(self, draft: FactDraft) -> FactWritten:
        revision = await self._store.facts_revision()
        words = tuple(dict.fromkeys(tokenize(f"{draft.content} {draft.subject}")))
        query = FactQuery(words=words, limit=WRITER_CANDIDATES, session=self._session)
        found = [candidate.fact for candidate in (await self._store.fact_candidates(query)).facts]
        known = list(filter(self._reaches, found))
        for fact in known:
            if same_words(fact.content, draft.content):
                # The user has confirmed the fact, so it becomes the user's own.
                if draft.made_by == "user" and fact.trust != "high":
                    return await self._edit(fact.id, draft.content, None)
                return FactWritten(outcome="known", fact=fact, reason="it is known already")
        pinned: set[FactId] = set()
        if draft.made_by == "user":  # only extraction is forbidden to change pinned facts
            pinned = {fact.id for fact in known if fact.pinned}
            known = [replace(fact, pinned=False) for fact in known]
        if draft.subject:  # include old versions, because the statement may be about the past
            chain = await self._store.facts(superseded=True, subjects={draft.subject})
            known = [*(fact for fact in chain if not fact.current and self._reaches(fact)), *known]
        done = settle(draft, known, now=self._clock.now())
        if done.operation == "none":
            name = (draft.subject, draft.attribute)
            same = (one for one in known if one.current and (one.subject, one.attribute) == name)
            return FactWritten(outcome="known", fact=next(same, None), reason=done.reason)
        return await self._write_decision(done, {fact.id for fact in known}, pinned, revision)

    async def _edit(self, id: FactId, content: str, type: FactType | None) -> FactWritten:  # noqa: A002
        """Write a version in the user's words, and end the previous one. If the words are the same,
        raise the fact's trust."""
        revision = await self._store.facts_revision()
        old = await self._current(id)
        if old.content == content and type in (None, old.type) and old.trust == "high":
            return FactWritten(
                outcome="known", fact=old, reason="the fact already has this statement"
            )
        new = self._version(old, content, type or old.type)
        closed = replace(close_fact(old, new), pinned=False)
        await self._write([new, closed], revision)
        return FactWritten(outcome="replaced", fact=new, replaced=(closed,))

    async def _pin(self, id: str, *, pinned: bool) -> FactPinned:  # noqa: A002
        revision = await self._store.facts_revision()
        fact = await self._current(id)
        if fact.pinned == pinned:
            return FactPinned(fact=fact, changed=False)
        changed = replace(fact, pinned=pinned)
        await self._write([changed], revision)
        return FactPinned(fact=changed, changed=True)

    async def _expire(self, id: str) -> Fact:  # noqa: A002
        revision = await self._store.facts_revision()
        fact = await self._current(id)
        ended = replace(fact, valid_to=max(self._clock.now(), fact.at), pinned=False)
        await self._write([ended], revision)
        return ended

    async def _write_decision(
        self, done: Reconciled, known: set[FactId], pinned: set[FactId], revision: int
    ) -> FactWritten:
        fresh = next((fact for fact in done.written if fact.id not in known), None)
        if fresh is None or done.operation == "refused":
            return FactWritten(outcome="refused", reason=done.reason)
        closes_pinned = any(fact.id in pinned for fact in done.written if fact.id != fresh.id)
        own = replace(_with_own_id(fresh), pinned=closes_pinned and fresh.current)
        changed = [
            replace(fact, superseded_by=own.id) if fact.superseded_by == fresh.id else fact
            for fact in done.written
            if fact.id != fresh.id
        ]
        await self._write([own, *changed], revision)
        replaced = tuple(fact for fact in changed if fact.superseded_by == own.id)
        return FactWritten(
            outcome="replaced" if replaced else "added",
            fact=own,
            replaced=replaced,
            reason=done.reason,
        )

    def _version(self, old: Fact, content: str, type: FactType) -> Fact:  # noqa: A002
        now = self._clock.now()
        named = old if old.subject else name_property(content)
        return _with_own_id(
            replace(
                old,
                type=type,
                content=content,
                context="",
                # Never before the version that it replaces, even if the clocks of two machines
                # differ.
                at=max(now, old.at),
                recorded_at=now,
                words=tuple(tokenize(content)),
                subject=named.subject,
                attribute=named.attribute,
                sources=(),
                evidence=(),
                joint=False,
                foreign=None,
                trust="high",
                made_by="user",
                change="supersede" if other_value(old.content, content) else "update",
            )
        )

    async def _current(self, id: str) -> Fact:  # noqa: A002
        fact = await self._find(id)
        if fact.current:
            return fact
        versions = fact_history(fact, await self._store.facts(superseded=True)).facts
        newest = next((other for other in reversed(versions) if other.current), None)
        instead = "" if newest is None else f"; the current version is {format_id(newest.id)}"
        raise RecollectError(
            f"{format_id(fact.id)} is an earlier version and cannot be changed{instead}"
        )

    async def _write(self, facts: Sequence[Fact], revision: int) -> None:
        now = self._clock.now()
        jobs = tuple(NewJob(kind=EMBED_JOB, key=name, run_at=now) for name in self._embedders)
        await self._store.write(
            Batch(at=now, facts=tuple(facts), jobs=jobs, facts_revision=revision)
        )
