"""Says what a compaction does to what was known: in the summary, recallable, or lost.

Owns the proof of "recallable": memory is asked by the sentence around a probe, the probe itself
masked, and what it returns has to hold the probe. Must never call something recallable that was
not recalled just now: what could not be asked is lost, or pinned, and a note says why. What
always holds: every probe has one finding; at most `MOST_RECALLS` questions are asked, four at a
time; what is pinned stands in the summary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import Final

from recollect.compaction.holds import holds, says_something, without
from recollect.compaction.pin import Pinned, pin
from recollect.errors import RecollectError
from recollect.values.compaction import Probe, ProbeFinding, Receipt, Standing

MOST_RECALLS: Final = 60
"""Ours: half as many as there are probes. Each is a search, and one sentence holds several."""
RECALLS_AT_ONCE: Final = 4
RECALL_SECONDS: Final = 5.0
_MOST_FAILURES: Final = 4
"""So many questions without an answer, and memory is not asked again: it is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptResult:
    """The receipt, and the section to be added to the summary."""

    receipt: Receipt
    pinned: str = field(default="", repr=False)
    """Empty where nothing had to be pinned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What memory is asked, for the probes of one sentence."""

    query: str = field(repr=False)
    probes: tuple[Probe, ...] = field(repr=False)


async def receipt(
    probes: Sequence[Probe],
    summary: str,
    *,
    recall: Callable[[str], Awaitable[str]],
    pin_tokens: int,
    count_tokens: Callable[[str], int],
    most_recalls: int = MOST_RECALLS,
    recall_seconds: float = RECALL_SECONDS,
) -> ReceiptResult:
    """What becomes of these probes, the most important first, under this summary."""
    missing = [probe for probe in probes if not holds(summary, probe)]
    questions = list(_questions(missing))
    asked = await _asked(questions[:most_recalls], recall, recall_seconds)
    # What the user laid down is pinned also where memory has it: no turn asks for a rule.
    laid_down = _by_turns([probe for probe in missing if probe.stands])
    lost = [probe for probe in missing if not probe.stands and probe not in asked.recalled]
    pinned = pin([*laid_down, *lost], most_tokens=pin_tokens, count_tokens=count_tokens)
    return ReceiptResult(
        receipt=Receipt(
            findings=_findings(probes, frozenset(missing), asked.recalled, pinned),
            pinned_tokens=pinned.tokens,
            notes=_notes(asked, questions[most_recalls:]),
        ),
        pinned=pinned.text,
    )


def _by_turns(probes: Sequence[Probe]) -> list[Probe]:
    """Kind by kind in turn, so that none takes all the room."""
    kinds: dict[str, list[Probe]] = {}
    for probe in probes:
        kinds.setdefault(probe.kind, []).append(probe)
    return [one for row in zip_longest(*kinds.values()) for one in row if one is not None]


def _questions(missing: Sequence[Probe]) -> Iterator[_Question]:
    """One question for each sentence, all its probes masked; where that leaves nothing to ask
    by, one for each of them; where that leaves nothing either, none."""
    by_sentence: dict[str, list[Probe]] = {}
    for probe in missing:
        by_sentence.setdefault(probe.sentence, []).append(probe)
    for sentence, held in by_sentence.items():
        query = without(sentence, tuple(probe.text for probe in held))
        if says_something(query):
            yield _Question(query=query, probes=tuple(held))
        elif len(held) > 1:
            for probe in held:
                query = without(sentence, (probe.text,))
                if says_something(query):
                    yield _Question(query=query, probes=(probe,))


@dataclass(slots=True)
class _Asked:
    """What memory answered so far."""

    recalled: set[Probe] = field(default_factory=set, repr=False)
    failures: list[str] = field(default_factory=list)
    unasked: int = 0


async def _asked(
    questions: Sequence[_Question], recall: Callable[[str], Awaitable[str]], seconds: float
) -> _Asked:
    asked = _Asked()
    waiting = iter(questions)

    async def work() -> None:
        for question in waiting:
            if len(asked.failures) >= _MOST_FAILURES:
                asked.unasked += 1
                continue
            try:
                async with asyncio.timeout(seconds):
                    text = await recall(question.query)
            except TimeoutError:
                asked.failures.append(f"no answer within {seconds:g} s")
            except (RecollectError, OSError) as error:
                asked.failures.append(str(error) or type(error).__name__)
            else:
                asked.recalled.update(probe for probe in question.probes if holds(text, probe))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(RECALLS_AT_ONCE, len(questions))):
            group.create_task(work())
    return asked


def _findings(
    probes: Sequence[Probe], missing: frozenset[Probe], recalled: set[Probe], pinned: Pinned
) -> tuple[ProbeFinding, ...]:
    def finding(probe: Probe) -> ProbeFinding:
        standing: Standing = "lost"
        if probe not in missing or probe in pinned.probes:
            standing = "in summary"
        elif probe in recalled:
            standing = "recallable"
        return ProbeFinding(probe=probe, standing=standing, pinned=probe in pinned.probes)

    return tuple(map(finding, probes))


def _notes(asked: _Asked, over: Sequence[_Question]) -> tuple[str, ...]:
    notes = []
    if asked.failures:
        reasons = "; ".join(islice(dict.fromkeys(asked.failures), 3))
        count = len(asked.failures) + asked.unasked
        notes.append(f"{count} of the questions to memory could not be checked: {reasons}")
    if over:
        probes = sum(len(question.probes) for question in over)
        notes.append(f"{probes} probes were not asked of memory: there were too many")
    return tuple(notes)
