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


def _source(id: SegmentId, fact: Fact, stored_segment: StoredSegment | None) -> FactSource:  # noqa: A002
    if stored_segment is None:
        return FactSource(id=id, stored=None)
    spans = [span for span in fact.evidence if span.segment == id]
    size = len(stored_segment.segment.text)
    inner_spans = [span for span in spans if 0 <= span.start < span.end <= size]
    return FactSource(
        id=id,
        stored=stored_segment,
        spans=tuple(sorted(inner_spans, key=lambda span: (span.start, span.end))),
        lost_spans=len(spans) - len(inner_spans),
    )


def _matches(fact: Fact, fact_filter: FactFilter, words: frozenset[str]) -> bool:
    return (
        (not fact_filter.types or fact.type in fact_filter.types)
        and (not fact_filter.trusts or fact.trust in fact_filter.trusts)
        and (not fact_filter.made_by or fact.made_by in fact_filter.made_by)
        and (fact_filter.session is None or fact.session == fact_filter.session)
        and (
            fact_filter.search.casefold() in fact.content.casefold()
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
    name_text = f"{fact.at!r}\0{fact.recorded_at!r}\0{fact.content}"
    digest = blake2b(
        name_text.encode("utf-8", "surrogatepass"), digest_size=_ID_BYTES, person=b"recollect-wrote"
    )
    return replace(fact, id=FactId(digest.hexdigest()))


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
        after_forgetting: Callable[[], None] = lambda: None,
        session: str | None = None,
        read_only: bool = False,
    ) -> None:
        """With `session`, only facts of this session and of no session are visible. `forget`
        awaits `before_forgetting`, also removes from `spools`, then calls `forgotten`."""
        self._read_only = read_only
        self._session = None if settings.recall.scope == "space" else session
        self._spools = tuple(spools)
        self._before_forgetting = before_forgetting
        self._after_forgetting = after_forgetting
        self._store = store
        self._settings = settings
        self._clock = clock
        self._embedders = tuple(embedders)

    async def list(self, asked: FactFilter | None = None) -> tuple[Fact, ...]:
        """Return the selected facts: pinned ones first, then by time."""
        asked = asked or FactFilter()
        for field_name, names, valid_names in (
            ("types", asked.types, get_args(FactType)),
            ("trusts", asked.trusts, get_args(Trust)),
            ("made_by", asked.made_by, get_args(MadeBy)),
        ):
            if wrong_names := [name for name in names if name not in valid_names]:
                raise RecollectError(
                    f"{field_name}: {wrong_names[0]!r} is not one of {', '.join(valid_names)}"
                )
        moment = asked.as_of
        facts = await self._store.facts(superseded=asked.superseded or moment is not None)
        if moment is not None and asked.superseded:
            facts = tuple(fact for fact in facts if fact.at <= moment)
        elif moment is not None:
            facts = as_of(facts, moment)
        words = frozenset(tokenize(asked.search))
        selection = [fact for fact in facts if self._reaches(fact) and _matches(fact, asked, words)]
        return tuple(sorted(selection, key=lambda fact: (not fact.pinned, fact.at, fact.id)))

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
        all_facts = await self._store.facts(superseded=True)
        folded_id = id.casefold()
        facts = [fact for fact in all_facts if fact.id.startswith(id)]
        facts = facts or [fact for fact in all_facts if fact.id.casefold().startswith(folded_id)]
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
        content, mask_count = self._clean(text)
        clean_subject = self._clean(subject)[0] if subject.strip() else ""
        subject_words = " ".join(clean_subject.casefold().split())
        now = self._clock.now()
        evidence: tuple[EvidenceSpan, ...] = ()
        if source is not None:
            stored_segments = await self._store.segments([source])
            segment = stored_segments[0].segment if stored_segments else None
            if segment is None or self._session not in (None, segment.session):
                raise RecollectError("the source message does not exist: search for its id")
            evidence = (EvidenceSpan(segment=segment.id, start=0, end=len(segment.text)),)
            trust = lowest_trust([trust, segment.trust])
        named_property = name_property(content)
        draft = FactDraft(
            type=type or _type_of(content, named_property.subject),
            content=content,
            at=now if at is None else min(at, now),
            evidence=evidence,
            trust=trust,
            made_by=made_by,
            session=self._session,
            subject=subject_words or named_property.subject,
            attribute=named_property.subject if subject_words else named_property.attribute,
        )
        result = await retry_if_stale(lambda: self._add(draft))
        return replace(result, masked=mask_count)

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
        content, mask_count = self._clean(text)
        result = await retry_if_stale(lambda: self._edit(fact.id, content, type))
        return replace(result, masked=mask_count)

    async def pin(self, id: str) -> FactPinned:  # noqa: A002
        """Show a fact first in recall, and protect it from being replaced by extraction."""
        return await self._pin(id, pinned=True)

    async def unpin(self, id: str) -> FactPinned:  # noqa: A002
        """Undo `pin`."""
        return await self._pin(id, pinned=False)

    async def expire(self, id: str) -> Fact:  # noqa: A002
        """End a fact's validity now. The fact stays in its history, but is not recalled."""

        def end_validity(fact: Fact) -> Fact:
            return replace(fact, valid_to=max(self._clock.now(), fact.at), pinned=False)

        return (await self._change(id, end_validity)).fact

    async def history(self, id: str) -> FactHistory:  # noqa: A002
        """Return the versions of a fact, oldest first. A forgotten version leaves a gap."""
        return fact_history(await self.find(id), await self._store.facts(superseded=True))

    async def why(self, id: str) -> FactWhy:  # noqa: A002
        """Return the messages that support a fact, and the spans that state it."""
        fact = await self.find(id)
        rests_on = None
        if not fact.sources:
            versions = reversed((await self.history(fact.id)).facts)
            earlier = (item for item in versions if item.id != fact.id and item.at <= fact.at)
            rests_on = next((item for item in earlier if item.sources), None)
        stating_fact = rests_on or fact
        segments_by_id = {
            item.segment.id: item for item in await self._store.segments(stating_fact.sources)
        }
        sources = tuple(
            _source(id_, stating_fact, segments_by_id.get(id_)) for id_ in stating_fact.sources
        )
        return FactWhy(fact=fact, sources=sources, rests_on=rests_on)

    async def order_to_forget(
        self, ids: Sequence[str], *, sources: bool = False, versions: bool = False
    ) -> ForgetOrder:
        """Return the order to forget these facts. `sources` adds their messages, `versions` their
        versions."""
        facts = {fact.id: fact for fact in [await self.find(item) for item in ids]}
        all_facts = await self._store.facts(superseded=True)
        if versions:
            for fact in tuple(facts.values()):
                facts.update((item.id, item) for item in fact_history(fact, all_facts).facts)
        whys = [await self.why(id_) for id_ in facts] if sources else []
        segments = [source.id for explanation in whys for source in explanation.sources]
        return ForgetOrder(
            at=self._clock.now(), facts=tuple(facts), segments=tuple(dict.fromkeys(segments))
        )

    async def forget(self, order: ForgetOrder) -> Certificate:
        """Forget permanently what an order from `order_to_forget` selects."""
        self._check_writable()
        if self._before_forgetting is not None:
            await self._before_forgetting(order)
        certificate = await forget_all(self._store, self._spools, order, now=self._clock.now())
        self._after_forgetting()
        return certificate

    def _clean(self, text: str) -> tuple[str, int]:
        statement = clean_text(text).strip()
        if not statement:
            raise RecollectError("the statement is empty; pass a text")
        if len(statement) > MOST_CHARS:
            raise RecollectError(
                f"a fact has at most {MOST_CHARS:,} characters; shorten the statement, or keep it "
                "as a note with `recollect memory add`"
            )
        settings = self._settings.redaction
        if not settings.enabled:
            return statement, 0
        masked_text = redact(statement, pii=settings.pii)
        return masked_text.text, len(masked_text.spans)

    async def _add(self, draft: FactDraft) -> FactWritten:
        revision = await self._store.facts_revision()
        words = tuple(dict.fromkeys(tokenize(f"{draft.content} {draft.subject}")))
        query = FactQuery(words=words, limit=WRITER_CANDIDATES, session=self._session)
        candidates = (await self._store.fact_candidates(query)).facts
        known_facts = [item.fact for item in candidates if self._reaches(item.fact)]
        for fact in known_facts:
            if same_words(fact.content, draft.content):
                # The user has confirmed the fact, so it becomes the user's own.
                if draft.made_by == "user" and fact.trust != "high":
                    return await self._edit(fact.id, draft.content, None)
                return FactWritten(outcome="known", fact=fact, reason="it is known already")
        pinned: set[FactId] = set()
        if draft.made_by == "user":  # only extraction is forbidden to change pinned facts
            pinned = {fact.id for fact in known_facts if fact.pinned}
            known_facts = [replace(fact, pinned=False) for fact in known_facts]
        if draft.subject:  # include old versions, because the statement may be about the past
            chain = await self._store.facts(superseded=True, subjects={draft.subject})
            older = [fact for fact in chain if not fact.current and self._reaches(fact)]
            known_facts = [*older, *known_facts]
        decision = settle(draft, known_facts, now=self._clock.now())
        if decision.operation == "none":
            name = (draft.subject, draft.attribute)
            current = [fact for fact in known_facts if fact.current]
            same = next((f for f in current if (f.subject, f.attribute) == name), None)
            return FactWritten(outcome="known", fact=same, reason=decision.reason)
        known_ids = {fact.id for fact in known_facts}
        return await self._write_decision(decision, known_ids, pinned, revision)

    async def _edit(self, id: FactId, content: str, type: FactType | None) -> FactWritten:  # noqa: A002
        """Write a version in the user's words, and end the previous one. If the words are the same,
        raise the fact's trust."""
        revision = await self._store.facts_revision()
        old_fact = await self._current(id)
        if (
            old_fact.content == content
            and type in (None, old_fact.type)
            and old_fact.trust == "high"
        ):
            return FactWritten(
                outcome="known", fact=old_fact, reason="the fact already has this statement"
            )
        new_fact = self._version(old_fact, content, type or old_fact.type)
        ended_fact = replace(close_fact(old_fact, new_fact), pinned=False)
        await self._write([new_fact, ended_fact], revision)
        return FactWritten(outcome="replaced", fact=new_fact, replaced=(ended_fact,))

    async def _pin(self, id: str, *, pinned: bool) -> FactPinned:  # noqa: A002
        return await self._change(id, lambda fact: replace(fact, pinned=pinned))

    async def _change(self, id: str, edit: Callable[[Fact], Fact]) -> FactPinned:  # noqa: A002
        self._check_writable()

        async def write() -> FactPinned:
            revision = await self._store.facts_revision()
            fact = await self._current(id)
            changed_fact = edit(fact)
            if changed_fact != fact:
                await self._write([changed_fact], revision)
            return FactPinned(fact=changed_fact, changed=changed_fact != fact)

        return await retry_if_stale(write)

    async def _write_decision(
        self, decision: Reconciled, known: set[FactId], pinned: set[FactId], revision: int
    ) -> FactWritten:
        new_fact = next((fact for fact in decision.facts if fact.id not in known), None)
        if new_fact is None or decision.operation == "refused":
            return FactWritten(outcome="refused", reason=decision.reason)
        closes_pinned = any(fact.id in pinned for fact in decision.facts if fact.id != new_fact.id)
        own_fact = replace(_with_own_id(new_fact), pinned=closes_pinned and new_fact.current)
        changed_facts = [
            replace(fact, superseded_by=own_fact.id) if fact.superseded_by == new_fact.id else fact
            for fact in decision.facts
            if fact.id != new_fact.id
        ]
        await self._write([own_fact, *changed_facts], revision)
        replaced_facts = tuple(fact for fact in changed_facts if fact.superseded_by == own_fact.id)
        return FactWritten(
            outcome="replaced" if replaced_facts else "added",
            fact=own_fact,
            replaced=replaced_facts,
            reason=decision.reason,
        )

    def _version(self, old_fact: Fact, content: str, type: FactType) -> Fact:  # noqa: A002
        now = self._clock.now()
        property_source = old_fact if old_fact.subject else name_property(content)
        return _with_own_id(
            replace(
                old_fact,
                type=type,
                content=content,
                context="",
                # Never before the version that it replaces, even if the clocks of two machines
                # differ.
                at=max(now, old_fact.at),
                recorded_at=now,
                words=tuple(tokenize(content)),
                subject=property_source.subject,
                attribute=property_source.attribute,
                sources=(),
                evidence=(),
                joint=False,
                foreign=None,
                trust="high",
                made_by="user",
                change="supersede" if other_value(old_fact.content, content) else "update",
            )
        )

    async def _current(self, id: str) -> Fact:  # noqa: A002
        fact = await self._find(id)
        if fact.current:
            return fact
        versions = fact_history(fact, await self._store.facts(superseded=True)).facts
        newest = next((version for version in reversed(versions) if version.current), None)
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
