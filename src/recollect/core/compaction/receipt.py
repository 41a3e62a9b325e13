"""Checks a summary, writes its receipt, and compares two summaries. A probe (an exact name or
value) is "recallable" only if a search for the sentence around it, without the probe itself, finds
it. A probe that would be lost is added to the summary as a quote (pinned)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import islice
from typing import Final, Literal, TypeAlias

from recollect.core.compaction.ask import (
    IDENTIFIERS_HEADING,
    REQUIRED_HEADINGS,
    defuse,
    is_compact_command,
)
from recollect.core.compaction.probe import (
    WORDED,
    contains,
    contains_literally,
    content_words,
    take_turns,
    without_texts,
)
from recollect.core.formats.summaries import PINNED_HEADING, PINNED_NOTE
from recollect.core.rules.noise import strip_channel_prefix
from recollect.core.rules.text import (
    excerpt_around,
    one_line,
    sentence_spans,
    without_recalled_blocks,
)
from recollect.core.search.identifiers import identifiers_in
from recollect.core.search.tokenize import tokenize
from recollect.core.values.compaction import Probe, ProbeFinding, Receipt, Standing
from recollect.core.values.history import Entry
from recollect.core.values.message import Text, text_of
from recollect.core.values.reason import Cause, Reason
from recollect.errors import RecollectError

MAX_IDENTIFIERS: Final = 12
"""As in OpenClaw: identifiers of the newest messages that a summary must contain."""
LAST_MESSAGES: Final = 10
"""As in OpenClaw: messages whose identifiers are checked."""
MIN_SHARED_WORDS: Final = 2
"""As in OpenClaw: words that the summary must share with the newest request."""
_LONG_ASK_WORDS: Final = 3
"""As in OpenClaw: in a shorter request, one shared word is enough."""
_ASK_CHARS: Final = 2000
"""Not measured; bounds the time. A request is stated first or last, not inside a pasted log."""

Change: TypeAlias = Literal["dropped", "new", "kept"]
_LINE_CHARS: Final = 200
"""Not measured; a pinned quote states one detail."""
RECALLS_AT_ONCE: Final = 4
"""Not measured; bounds the load on a store that other sessions share."""
RECALL_SECONDS: Final = 5.0
"""Not measured; a search that takes longer would use up `ALL_RECALLS_SECONDS` with a few
details."""
ALL_RECALLS_SECONDS: Final = 75.0
"""Not measured; with a slow store, all searches together end before `compaction.deadline_seconds`.
A limit of 60 searches instead left 46% of the missing details unchecked, of which 4% were lost."""
_MAX_FAILURES: Final = 4
"""Not measured; a store that failed so often is down, and each attempt may wait for its
deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """What a summary lacks; empty if it passed the check."""

    sections: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = field(default=(), repr=False)
    ask: str = field(default="", repr=False)

    @property
    def passed(self) -> bool:
        return self.faults == 0

    @property
    def faults(self) -> int:
        return len(self.sections) + len(self.identifiers) + bool(self.ask)

    @property
    def said(self) -> str:
        """The gaps as numbers and headings, without message content."""
        parts = [heading.lstrip("# ") for heading in self.sections]
        if self.identifiers:
            parts.append(f"{len(self.identifiers)} identifiers")
        if self.ask:
            parts.append("the latest ask")
        return ", ".join(parts)

    def missing(self) -> tuple[str, ...]:
        """What the model is asked to add, one line per gap."""
        lines = [f"the heading {heading}" for heading in self.sections]
        lines += [f"letter by letter: {name}" for name in self.identifiers]
        if self.ask:
            lines.append(f"the user's last question: {self.ask}")
        return tuple(lines)


def audit(summary: str, entries: Sequence[Entry]) -> AuditResult:
    """Check that a summary of `entries` contains what it must."""
    lines = [line for line in summary.splitlines() if line.lstrip().startswith(("#", "**"))]
    present_headings = {line.strip("#*: ").casefold() for line in lines}
    sections = tuple(
        heading
        for heading in REQUIRED_HEADINGS
        if heading.lstrip("# ").casefold() not in present_headings
        and heading != IDENTIFIERS_HEADING
    )
    folded_summary = summary.casefold()
    lacking = [name for name in _last_identifiers(entries) if name.casefold() not in folded_summary]
    ask = latest_ask(entries)
    return AuditResult(
        sections=sections,
        identifiers=tuple(lacking),
        ask="" if _speaks_of(summary, ask) else " ".join(ask.split())[:300],
    )


def latest_ask(entries: Sequence[Entry]) -> str:
    """Return the user's last message that is not a command."""
    for entry in reversed(entries):
        if entry.role == "user" and not entry.message.summary:
            words = _user_words(entry).strip()
            if words:
                return words
    return ""


def _user_words(entry: Entry) -> str:
    texts = [
        without_recalled_blocks(part.text, any_spelling=True)
        for part in entry.parts
        if isinstance(part, Text)
    ]
    return "\n".join(strip_channel_prefix(text) for text in texts if not is_compact_command(text))


def _last_identifiers(entries: Sequence[Entry]) -> list[str]:
    found: dict[str, None] = {}
    for entry in reversed(entries[-LAST_MESSAGES:]):
        asks = entry.role == "user" and not entry.message.summary
        text = _user_words(entry) if asks else text_of(entry.message)
        if entry.role != "system":
            found.update(dict.fromkeys(identifiers_in(text).values()))
    return list(found)[:MAX_IDENTIFIERS]


def _speaks_of(summary: str, ask: str) -> bool:
    if len(ask) > 2 * _ASK_CHARS:
        ask = f"{ask[:_ASK_CHARS]} {ask[-_ASK_CHARS:]}"
    ask_words = content_words(ask)
    min_shared = MIN_SHARED_WORDS if len(ask_words) >= _LONG_ASK_WORDS else min(1, len(ask_words))
    return len(ask_words & set(tokenize(summary))) >= min_shared


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """One sentence of two summaries, and whether it was kept, added or dropped."""

    change: Change
    text: str = field(repr=False)


def compare(previous_summary: str, summary: str) -> tuple[DiffLine, ...]:
    """Return the sentences of both summaries in the newer one's order. A dropped sentence is listed
    at its old position."""
    before, after = _sentences(previous_summary), _sentences(summary)
    folded_before, folded_after = list(map(_fold, before)), list(map(_fold, after))
    lines: list[DiffLine] = []
    # there are at most a few hundred sentences, so an exact comparison is fast enough
    matcher = SequenceMatcher(None, folded_before, folded_after, autojunk=False)
    for _, from_before, to_before, from_after, to_after in matcher.get_opcodes():
        lines += [
            DiffLine(change="dropped", text=text)
            for text in before[from_before:to_before]
            if _fold(text) not in folded_after
        ]
        lines += [
            DiffLine(change="kept" if _fold(text) in folded_before else "new", text=text)
            for text in after[from_after:to_after]
        ]
    return tuple(lines)


def _sentences(text: str) -> list[str]:
    found = (one_line(text[start:end]) for start, end in sentence_spans(text))
    return [sentence for sentence in found if sentence]


def _fold(sentence: str) -> str:
    return sentence.strip("*_`. ").casefold()


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedQuotes:
    """The section of quotes to add to a summary."""

    text: str = field(default="", repr=False)
    probes: frozenset[Probe] = field(default=frozenset(), repr=False)
    tokens: int = 0


def pin(
    lost_probes: Sequence[Probe], *, most_tokens: int, count_tokens: Callable[[str], int]
) -> PinnedQuotes:
    """Quote these probes in order, until the limit is reached."""
    lines: list[str] = []
    used = count_tokens(f"{PINNED_HEADING}\n{PINNED_NOTE}\n")
    for probe in lost_probes:
        if any(contains_literally(line, probe) for line in lines):
            continue
        line = _write_line(probe)
        tokens = count_tokens(f"{line}\n")
        if contains_literally(line, probe) and used + tokens <= most_tokens:
            lines.append(line)
            used += tokens
    if not lines:
        return PinnedQuotes()
    text = "\n".join([PINNED_HEADING, PINNED_NOTE, *lines])
    standing = frozenset(
        probe for probe in lost_probes if any(contains_literally(line, probe) for line in lines)
    )
    return PinnedQuotes(text=text, probes=standing, tokens=count_tokens(text))


def _write_line(probe: Probe) -> str:
    is_whole = probe.kind in WORDED or probe.kind == "command"
    text = " ".join((probe.text if is_whole else probe.sentence).split())
    offset = max(text.find(probe.text), 0)
    quote = excerpt_around(text, offset, len(probe.text), max(_LINE_CHARS, len(probe.text)))
    return f"- {probe.kind}: {defuse(quote)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptResult:
    """The receipt, and the section of quotes to add to the summary."""

    receipt: Receipt
    pinned_text: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    query: str = field(repr=False)
    probes: tuple[Probe, ...] = field(repr=False)


async def receipt(
    probes: Sequence[Probe],
    summary: str,
    *,
    details: int,
    recall: Callable[[str], Awaitable[str]],
    pin_tokens: int,
    count_tokens: Callable[[str], int],
    returned_text: str = "",
    recall_seconds: float = RECALL_SECONDS,
    all_seconds: float = ALL_RECALLS_SECONDS,
) -> ReceiptResult:
    """Return the outcome of each probe for this summary, the most important first. `details` is the
    number of details that the probes were taken from. `returned_text` was added after the summary
    already: its details count as pinned."""
    missing = [probe for probe in probes if not contains(summary, probe)]
    returned = frozenset(probe for probe in missing if contains(returned_text, probe))
    missing = [probe for probe in missing if probe not in returned]
    answers = await _ask_memory(list(_questions(missing)), recall, recall_seconds, all_seconds)
    # The user's rules are pinned even if memory contains them, because no turn searches for a rule.
    rules = _take_turns([probe for probe in missing if probe.stands])
    other_probes = [
        probe for probe in missing if not probe.stands and probe not in answers.recalled
    ]
    # those that are known to be lost come first
    other_probes.sort(key=answers.unchecked.__contains__)
    pinned_quotes = pin([*rules, *other_probes], most_tokens=pin_tokens, count_tokens=count_tokens)
    return ReceiptResult(
        receipt=Receipt(
            findings=_findings(
                probes, frozenset(missing), answers, pinned=pinned_quotes.probes | returned
            ),
            details=details,
            pinned_tokens=pinned_quotes.tokens + count_tokens(returned_text),
            notes=tuple(_notes(answers)),
        ),
        pinned_text=pinned_quotes.text,
    )


def _take_turns(probes: Sequence[Probe]) -> list[Probe]:
    kinds: dict[str, list[Probe]] = {}
    for probe in probes:
        kinds.setdefault(probe.kind, []).append(probe)
    return take_turns(kinds.values())


def _questions(missing: Sequence[Probe]) -> Iterator[_Question]:
    by_sentence: dict[str, list[Probe]] = {}
    for probe in missing:
        by_sentence.setdefault(probe.sentence, []).append(probe)
    for sentence, probes in by_sentence.items():
        query = without_texts(sentence, tuple(probe.text for probe in probes))
        if content_words(query):
            yield _Question(query=query, probes=tuple(probes))
        elif len(probes) > 1:
            for probe in probes:
                query = without_texts(sentence, (probe.text,))
                if content_words(query):
                    yield _Question(query=query, probes=(probe,))


@dataclass(slots=True)
class _MemoryAnswers:
    recalled: set[Probe] = field(default_factory=set, repr=False)
    unchecked: set[Probe] = field(default_factory=set, repr=False)
    """Probes of searches that failed or did not run."""
    failures: list[str] = field(default_factory=list)
    unasked: int = 0
    late: int = 0
    """Probes whose searches did not run because the time was used up."""


async def _ask_memory(
    questions: Sequence[_Question],
    recall: Callable[[str], Awaitable[str]],
    seconds: float,
    all_seconds: float,
) -> _MemoryAnswers:
    answers = _MemoryAnswers()
    waiting = iter(questions)
    end = time.monotonic() + all_seconds

    async def work() -> None:
        for question in waiting:
            answers.unchecked.update(question.probes)
            if len(answers.failures) >= _MAX_FAILURES:
                answers.unasked += 1
                continue
            if time.monotonic() > end:
                answers.late += len(question.probes)
                continue
            try:
                async with asyncio.timeout(seconds):
                    text = await recall(question.query)
            except TimeoutError:
                answers.failures.append(f"no answer within {seconds:g} s")
            except (RecollectError, OSError) as error:
                answers.failures.append(str(error) or type(error).__name__)
            else:
                answers.unchecked.difference_update(question.probes)
                answers.recalled.update(probe for probe in question.probes if contains(text, probe))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(RECALLS_AT_ONCE, len(questions))):
            group.create_task(work())
    return answers


def _findings(
    probes: Sequence[Probe],
    missing: frozenset[Probe],
    answers: _MemoryAnswers,
    *,
    pinned: frozenset[Probe],
) -> tuple[ProbeFinding, ...]:
    """Return the outcomes that are known: not those of searches that gave no answer."""
    findings: list[ProbeFinding] = []
    for probe in probes:
        standing: Standing = "recallable" if probe in answers.recalled else "lost"
        if probe not in missing or probe in pinned:
            standing = "in summary"
        if probe not in answers.unchecked or probe in pinned:
            findings.append(ProbeFinding(probe=probe, standing=standing, pinned=probe in pinned))
    return tuple(findings)


def _notes(answers: _MemoryAnswers) -> Iterator[str]:
    if answers.failures:
        errors = "; ".join(islice(dict.fromkeys(answers.failures), 3))
        questions = len(answers.failures) + answers.unasked
        yield str(Reason(Cause.PROBES_UNCHECKED, questions=questions, errors=errors))
    if answers.late:
        yield str(Reason(Cause.PROBES_UNASKED, probes=answers.late))
