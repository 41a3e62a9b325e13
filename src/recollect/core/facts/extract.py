"""Extracts facts from sessions with a model, and checks each claim in code. A claim becomes a fact
only if its quotation is in a new message and `support` finds the statement in it. A job's tokens
are reserved in the day's budget before the model is called. Facts of one session never replace
facts that another session recalls."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from recollect.core.facts.history import Operation, name_property, settle
from recollect.core.facts.reading import (
    CONTENT_CHARS,
    LINE_TOKENS,
    MOST_FACTS,
    WINDOW_TOKENS,
    Line,
    Page,
    call_tokens,
    extraction_prompt,
    fitting_tokens,
    line_count,
    read_page,
)
from recollect.core.facts.support import (
    BEFORE_CHARS,
    Proposed,
    admit,
    content_words,
    find_quote,
    is_anchored,
    is_supported,
    sentence_before,
    sentences,
    sentences_around,
    states_nothing,
)
from recollect.core.ports import Archive, Clock, Model
from recollect.core.rules.noise import is_noise
from recollect.core.rules.text import statement_spans
from recollect.core.rules.trust import TRUST_ORDER, is_below, lowest_trust
from recollect.core.search.tokenize import tokenize
from recollect.core.upkeep.jobs import GiveUp
from recollect.core.values.batch import EMBED_JOB, Batch, Lease, NewJob, extract_job
from recollect.core.values.fact import (
    EXTRACTED_TYPES,
    EvidenceSpan,
    ExtractedTo,
    Fact,
    FactDraft,
    FactId,
    FactType,
)
from recollect.core.values.model import Answer
from recollect.core.values.recall import FactQuery
from recollect.core.values.segment import Segment, StoredSegment
from recollect.errors import ModelError, ModelRefused
from recollect.system.config import Settings

_TEXTS: Final = ("quote", "type", "content", "subject", "attribute")
_MOST_OBJECTS: Final = 64  # above MOST_FACTS; bounds the parsing of an answer
_QUESTION_CHARS: Final = 2_000  # not measured; bounds the sentences compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """The facts that one model call found, and how many messages it read."""

    drafts: tuple[FactDraft, ...] = ()
    read: int = 0
    trouble: str = ""


async def extract(
    new_segments: Sequence[Segment],
    before: Sequence[Segment],
    *,
    model: Model,
    max_output_tokens: int,
    now: float,
    window_tokens: int = WINDOW_TOKENS,
    earlier_low: Sequence[Segment] = (),
    unseen_low: bool = False,
) -> Extracted:
    """Extract the facts that `new` states, as many messages as fit into one call. `before` is
    earlier context. Raise ModelError if the model fails or its answer is invalid. `earlier_low` are
    less trusted messages whose words a claim may repeat; with `unseen_low` there may be more."""
    tokens = fitting_tokens(window_tokens, model.window_tokens, max_output_tokens)
    # reading a page of large outputs takes seconds and would block other requests
    page = await asyncio.to_thread(read_page, new_segments, tokens=tokens, before=before)
    if not any(line.number for line in page.lines):
        return Extracted(read=page.read)
    answer = await model.ask(extraction_prompt(page, max_output_tokens=max_output_tokens))
    read = [_claim(value) for value in _objects_in(answer.text)]
    claims = [claim for claim in read if claim is not None]
    if not read and "[" not in answer.text and answer.stop != "refusal":
        raise ModelError(_trouble(answer, page) or "the model's answer was not JSON")
    segments_by_id = {segment.id: segment for segment in (*earlier_low, *before, *new_segments)}
    neighbor_segments = tuple(segments_by_id.values())
    drafts = await asyncio.to_thread(
        _admit, claims[:MOST_FACTS], page, neighbor_segments, unseen_low=unseen_low
    )
    return Extracted(
        drafts=tuple(draft if draft.at <= now else replace(draft, at=now) for draft in drafts),
        read=page.read,
        trouble=_trouble(answer, page),
    )


def _trouble(answer: Answer, page: Page) -> str:
    troubles = {
        "the model refused": answer.stop == "refusal",
        "the model's answer was cut off": answer.stop == "length",
        "a message is larger than the window, and was not read to its end": page.cut_off,
    }
    return "; ".join(text for text, holds in troubles.items() if holds)


def _admit(
    claims: Sequence[_Claim], page: Page, neighbor_segments: Sequence[Segment], *, unseen_low: bool
) -> list[FactDraft]:
    proposals = [_draft_claim(claim, page) for claim in claims]
    valid_proposals = [proposal for proposal in proposals if proposal is not None]
    drafts: list[FactDraft] = []
    for draft in admit(valid_proposals, neighbor_segments, unseen_low=unseen_low):
        if not any(_is_same(draft, earlier_draft) for earlier_draft in drafts):
            drafts.append(draft)
    return drafts


def _is_same(draft: FactDraft, other: FactDraft) -> bool:
    return draft.content.casefold() == other.content.casefold() and any(
        first_span.segment == second_span.segment
        and first_span.start < second_span.end
        and second_span.start < first_span.end
        for first_span in draft.evidence
        for second_span in other.evidence
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    line: int
    quote: str = field(repr=False)
    type: FactType
    content: str = field(repr=False)
    subject: str = field(repr=False)
    attribute: str = field(repr=False)


def _objects_in(text: str) -> Iterator[Mapping[str, Any]]:
    decoder = json.JSONDecoder()
    offset = text.find("[")
    for _ in range(_MOST_OBJECTS):
        offset = text.find("{", offset) if offset >= 0 else -1
        if offset < 0:
            return
        try:
            value, offset = decoder.raw_decode(text, offset)
        except (ValueError, RecursionError):
            offset += 1
            continue
        yield value


def _claim(values: Mapping[str, Any]) -> _Claim | None:
    line = values.get("line")
    texts = {name: values.get(name, "") for name in _TEXTS}
    if not isinstance(line, int) or not all(isinstance(text, str) for text in texts.values()):
        return None
    if texts["type"] not in EXTRACTED_TYPES or not texts["quote"] or not texts["content"]:
        return None
    return _Claim(
        line=line,
        quote=texts["quote"],
        type=cast(FactType, texts["type"]),
        content=" ".join(texts["content"].split()),
        subject=" ".join(texts["subject"].split()),
        attribute=" ".join(texts["attribute"].split()),
    )


def _draft_claim(claim: _Claim, page: Page) -> Proposed | None:
    """Return the draft of a fact for a claim; None if no new message supports it."""
    quoted_line = _find_quoted_line(claim, page)
    if quoted_line is None or quoted_line.piece not in page.new_pieces:
        return None
    is_tool = is_below(quoted_line.piece.segment.trust, "medium")  # `admit` limits these claims
    if not is_tool and all(map(states_nothing, sentences(quoted_line.text))):
        return None
    lines: tuple[Line, ...] = (quoted_line,)
    content = claim.content
    before = sentence_before(quoted_line.piece.text, quoted_line.start)
    if not is_supported(content, [quoted_line.text], context=before):
        question = _question(claim, page, quoted_line)
        if question is not None and is_supported(content, [question.text, quoted_line.text]):
            lines = (question, quoted_line)
        else:
            # A small model copies well and rephrases badly. So if its quotation contains every
            # exact value of its statement, the quotation becomes the statement.
            content = " ".join(claim.quote.split()).strip(" \"“”'`")
            if len(content) > CONTENT_CHARS or not is_anchored(claim.content, content):
                return None
            if not is_supported(content, [quoted_line.text]):
                return None
    return Proposed(draft=_draft(claim, content, lines), spans=tuple(line.text for line in lines))


def _find_quoted_line(claim: _Claim, page: Page) -> Line | None:
    """Find the sentences that the claim quotes: in the line that it names, else in all messages of
    the page, the least trusted first."""
    named_pieces = [line.piece for line in page.lines if line.number == claim.line != 0]
    other_pieces = sorted(
        (*page.new_pieces, *page.before), key=lambda piece: -TRUST_ORDER.index(piece.segment.trust)
    )
    for piece in (*named_pieces, *other_pieces):
        start, end = find_quote(claim.quote, piece.text, piece.end)
        if start < end:
            last = piece.end + BEFORE_CHARS
            first, last = sentences_around(piece.text, start, end, last=last)
            return Line(piece=piece, start=first, end=last)
    return None


def _question(claim: _Claim, page: Page, answer: Line) -> Line | None:
    """Return the sentence of the previous message that shares most words with the claim."""
    pieces = [*page.before, *page.new_pieces]
    spoken_pieces = [
        piece for piece in pieces[: pieces.index(answer.piece)] if piece.segment.role != "tool"
    ]
    if not spoken_pieces:
        return None
    piece, wanted_words = spoken_pieces[-1], content_words(claim.content)
    shared_counts = {
        span: len(wanted_words & content_words(piece.text[span[0] : span[1]]))
        for span in statement_spans(piece.text, max(0, piece.end - _QUESTION_CHARS), piece.end)
    }
    best = max(shared_counts, key=lambda span: (shared_counts[span], -span[0]), default=None)
    if best is None or not shared_counts[best]:
        return None
    return Line(piece=piece, start=best[0], end=best[1])


def _draft(claim: _Claim, content: str, lines: Sequence[Line]) -> FactDraft:
    segments = [line.piece.segment for line in lines]
    named_property = name_property(content)
    words = content_words(claim.subject)
    # the subject must be named in the statement itself
    subject = claim.subject.casefold() if words and words <= content_words(content) else ""
    context = " ".join(" ".join(line.text for line in lines).split())
    if context.casefold().strip(" .。") == content.casefold().strip(" .。"):
        context = ""
    return FactDraft(
        type=claim.type,
        content=content,
        context=context,
        at=max(segment.said_at for segment in segments),
        evidence=tuple(
            EvidenceSpan(segment=line.piece.segment.id, start=line.start, end=line.end)
            for line in lines
        ),
        trust=lowest_trust(segment.trust for segment in segments),
        made_by="model",
        session=segments[-1].session,
        subject=named_property.subject or subject,
        attribute=named_property.attribute
        if named_property.subject
        else claim.attribute.casefold() * bool(subject),
    )


CANDIDATES: Final = 12  # not measured; bounds the facts compared
PAGE_SEGMENTS: Final = 200  # not measured; more than fit one call
OVERLAP_SEGMENTS: Final = 12  # not measured; more than fit OVERLAP_TOKENS
LINEAGE_SEGMENTS: Final = 400  # not measured; bounds the search for copied words
ANSWER_TOKENS: Final = 3_000
"""Maximum length of the model's answer, which is reserved in the day's budget too."""
LEAST_ANSWER_TOKENS: Final = 1_000  # not measured; about ten facts
LEAST_WINDOW_SHARE: Final = 0.5
"""Share of a page. With fewer new tokens, extraction waits until the session is idle, or more
messages leave the request."""
LEAST_SPOKEN_CHARS: Final = 40  # not measured; shorter pages state nothing
_TOOL_CHARS_READ: Final = 1_200  # above what a page shows of one result
_SOURCES_OF_SPACE: Final = frozenset({"import", "hook", "note", "file"})
NO_SESSION: Final = ""
"""A name that no session has. A query for its facts returns only facts without a session."""
_OPERATIONS: Final = {
    "add": "facts added",
    "update": "facts told in more detail",
    "supersede": "facts replaced",
    "none": "known already",
    "refused": "refused",
}


async def decide(
    store: Archive,
    drafts: Sequence[FactDraft],
    *,
    session: str | None,
    whole_space: bool,
    now: float,
) -> tuple[dict[FactId, Fact], list[Operation]]:
    """Decide what each draft changes, in order. Return the facts to write, and the decisions.
    Drafts may change the facts of this session, or facts without a session if `session` is None.
    With `whole_space`, drafts may change every fact."""
    written: dict[FactId, Fact] = {}
    operations: list[Operation] = []
    session_scope = None if whole_space else session or NO_SESSION
    for draft in drafts:
        if not whole_space:
            draft = replace(draft, session=session)
        words = tuple(dict.fromkeys(tokenize(f"{draft.content} {draft.subject}")))
        query = FactQuery(words=words, limit=CANDIDATES, session=session_scope)
        found = [candidate.fact for candidate in (await store.fact_candidates(query)).facts]
        if draft.subject:
            found += await store.facts(superseded=True, subjects={draft.subject})
        known_facts = {fact.id: fact for fact in found if whole_space or fact.session == session}
        known_facts.update(
            (id_, fact)
            for id_, fact in written.items()
            if id_ in known_facts or not set(words).isdisjoint(fact.words)
        )
        decision = settle(draft, tuple(known_facts.values()), now=now)
        operations.append(decision.operation)
        written.update((fact.id, fact) for fact in decision.facts)
    return written, operations


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingNote:
    """What happened when messages were read for facts."""

    facts: int = 0
    summary: str = "no facts"
    trouble: str = ""

    def __str__(self) -> str:
        """Describe the result in one line for people."""
        return "; ".join(filter(None, [self.summary, self.trouble]))


Notify = Callable[[ReadingNote], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """Runs the extraction jobs of one space."""

    store: Archive
    settings: Settings
    clock: Clock
    model: Model
    embedders: tuple[str, ...] = ()
    max_attempts: int = 5
    notify: Notify = field(default=lambda _: None, repr=False)

    async def extract(self, lease: Lease) -> Batch:
        """Extract facts from the next messages of the session that the job names."""
        session, has_left = _session_of(lease)
        now = self.clock.now()
        if not has_left and (due := await self._idle_at(session, now)) > now:
            return Batch(at=now, jobs=(extract_job(session, run_at=due, left=False),))
        # read the revision first: facts are not written if content was forgotten or masked since
        revision = await self.store.facts_revision()
        after = await self.store.extracted_to(session)
        page = await self.store.page(after=after, limit=PAGE_SEGMENTS, session=session)
        if not page:
            return Batch(at=now)
        unread = sum(_read_tokens(stored_segment.segment) for stored_segment in page)
        window = self._window_tokens()
        too_little = len(page) < PAGE_SEGMENTS and unread < LEAST_WINDOW_SHARE * window
        if has_left and too_little:
            due = await self._idle_at(session, now)
            return Batch(at=now, jobs=(extract_job(session, run_at=max(due, now), left=False),))
        if not _worth_asking(page):
            return self._read_to(page, page, now)
        needed_tokens = call_tokens(min(unread, window), self._answer_tokens())
        day_tokens = self.settings.jobs.day_tokens
        if (
            day_tokens is not None and needed_tokens > day_tokens
        ):  # no day's budget would ever be enough
            self.notify(ReadingNote(trouble="one call costs more than jobs.day_tokens allows"))
            return Batch(at=now)
        # Tokens are reserved when a job is claimed, so queue it again with the higher cost.
        if needed_tokens > lease.cost_tokens:
            next_job = extract_job(session, run_at=now, left=has_left, cost_tokens=needed_tokens)
            return Batch(at=now, jobs=(next_job,))
        extraction = await self._ask(lease, page, after, now)
        new_segments = page[: extraction.read]
        # facts of imported messages and files belong to the whole space
        of_space = all(
            stored_segment.segment.source in _SOURCES_OF_SPACE for stored_segment in new_segments
        )
        written, operations = await decide(
            self.store,
            extraction.drafts,
            session=None if of_space else session,
            whole_space=self.settings.recall.scope == "space",
            now=now,
        )
        counts = Counter(operations)
        summary = ", ".join(f"{count} {_OPERATIONS[name]}" for name, count in counts.items())
        self.notify(
            ReadingNote(
                facts=counts["add"] + counts["update"] + counts["supersede"],
                summary=f"{summary or 'no facts'} from {len(new_segments)} messages",
                trouble=extraction.trouble,
            )
        )
        batch = self._read_to(new_segments, page, now)
        if not written:
            return batch
        embeds = [NewJob(kind=EMBED_JOB, key=name, run_at=now) for name in self.embedders]
        return replace(
            batch,
            facts=tuple(written.values()),
            jobs=(*batch.jobs, *embeds),
            facts_revision=revision,
        )

    def _read_to(
        self, read: Sequence[StoredSegment], page: Sequence[StoredSegment], now: float
    ) -> Batch:
        """Store up to which message a session was read, and queue a job if messages remain."""
        session = read[-1].segment.session
        has_more = len(read) < len(page) or len(page) == PAGE_SEGMENTS
        return Batch(
            at=now,
            extracted=(ExtractedTo(session=session, sequence=read[-1].sequence),),
            jobs=(extract_job(session, run_at=now, left=True),) if has_more else (),
        )

    async def _idle_at(self, session: str, now: float) -> float:
        newest = await self.store.page(limit=1, session=session, descending=True)
        if not newest or newest[0].segment.said_at > now:
            return 0.0
        return newest[0].segment.said_at + self.settings.facts.idle_seconds

    def _answer_tokens(self) -> int:
        window = self.model.window_tokens
        if window is None:
            return ANSWER_TOKENS
        return min(ANSWER_TOKENS, max(LEAST_ANSWER_TOKENS, window // 4))

    def _window_tokens(self) -> int:
        wanted_tokens = self.settings.facts.window_tokens
        return fitting_tokens(wanted_tokens, self.model.window_tokens, self._answer_tokens())

    async def _ask(
        self, lease: Lease, page: Sequence[StoredSegment], after: int, now: float
    ) -> Extracted:
        """Ask the model for the facts of the messages after this sequence number."""
        last: Sequence[StoredSegment] = ()
        if after:
            last = await self.store.page(
                after=after + 1,
                limit=LINEAGE_SEGMENTS,
                session=page[0].segment.session,
                descending=True,
            )
        earlier = [stored_segment.segment for stored_segment in reversed(last)]
        try:
            return await extract(
                [stored_segment.segment for stored_segment in page],
                earlier[-OVERLAP_SEGMENTS:],
                model=self.model,
                max_output_tokens=self._answer_tokens(),
                now=now,
                window_tokens=self.settings.facts.window_tokens,
                earlier_low=earlier[:-OVERLAP_SEGMENTS],
                unseen_low=len(last) == LINEAGE_SEGMENTS,
            )
        except ModelError as error:
            reason = f"the model returned no usable answer ({str(error) or type(error).__name__})"
            is_refusal = isinstance(error, ModelRefused)
            if is_refusal or lease.attempt >= self.max_attempts:
                self.notify(ReadingNote(trouble=reason))
            if is_refusal:
                raise GiveUp(reason) from error
            raise


def _session_of(lease: Lease) -> tuple[str, bool]:
    try:
        read = json.loads(lease.payload)
        return str(read["session"]), bool(read["left"])
    except (ValueError, KeyError, TypeError) as error:
        raise GiveUp("its payload names no session") from error


def _worth_asking(page: Sequence[StoredSegment]) -> bool:
    spoken_texts = (
        stored_segment.segment.text
        for stored_segment in page
        if stored_segment.segment.noise is None
        and stored_segment.segment.role in ("user", "assistant")
    )
    return sum(len(text) for text in spoken_texts if is_noise(text) is None) >= LEAST_SPOKEN_CHARS


def _read_tokens(segment: Segment) -> int:
    if segment.noise is not None:
        return 0
    if segment.role == "tool" or segment.tool is not None:
        return min(segment.tokens, _TOOL_CHARS_READ // 2)
    return segment.tokens + LINE_TOKENS * line_count(segment)
