"""Masking secrets in text before it is written anywhere (design.md, promise 10).

Owns `redact`: the union of what the rules find (known token formats, secrets known by their
place, secrets known by their name, personal data on request), each replaced by a mask that
names its rule. Never keeps a secret, or a part of one, in its result. Always pure,
deterministic, linear in the text, and idempotent: what was masked stays as it is.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recollect.rules.personal_data import find_personal_data
from recollect.rules.secret_assignments import find_assigned
from recollect.rules.secret_contexts import Found, find_in_context
from recollect.rules.secret_tokens import find_tokens
from recollect.rules.secret_values import MASK, MASK_OPENING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LEAST_SECRET_CHARS = 8
_LEAD_CHARS = 64
_DOTTED_CAPITAL_I = "\u0130"  # the one character whose lower case is longer than itself


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactedSpan:
    """One masked stretch of the original text, and what stands there now."""

    rule: str
    start: int
    end: int
    replacement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """The text with its secrets masked, and where they were in the original."""

    text: str
    spans: tuple[RedactedSpan, ...] = ()


def redact(text: str, *, pii: bool = False) -> Redaction:
    """Mask every secret in the text; with `pii` also e-mail, phone and card numbers."""
    if len(text) < _LEAST_SECRET_CHARS:
        return Redaction(text=text)
    found = [candidate for candidate in _find(text, pii=pii) if candidate.end > candidate.start]
    if not found:
        return Redaction(text=text)
    if MASK_OPENING in text:
        found = _away_from_masks(text, found)
    spans = _merge(found)
    pieces: list[str] = []
    done = 0
    for span in spans:
        pieces += (text[done : span.start], span.replacement)
        done = span.end
    pieces.append(text[done:])
    return Redaction(text="".join(pieces), spans=tuple(spans))


def _find(text: str, *, pii: bool) -> Iterator[Found]:
    lowered = text.replace(_DOTTED_CAPITAL_I, "I").lower()
    for rule, start, end in find_tokens(text):
        # A run of token characters reaches over these, so what stands before them was read too.
        lead = text[max(0, start - _LEAD_CHARS) : start]
        yield Found(rule, start, end, start - len(lead) + len(lead.rstrip(".~+/-")), end)
    yield from find_in_context(text, lowered)
    yield from find_assigned(text, lowered)
    if pii:
        yield from find_personal_data(text)


def _away_from_masks(text: str, found: list[Found]) -> list[Found]:
    """Drop what touches an earlier mask: its neighbours were read with the secret in place."""
    masks = [match.span() for match in MASK.finditer(text)]
    ends = [end for _, end in masks]
    kept: list[Found] = []
    for candidate in found:
        following = bisect_right(ends, candidate.first - 1)
        if following == len(masks) or masks[following][0] > candidate.last:
            kept.append(candidate)
    return kept


def _merge(found: list[Found]) -> list[RedactedSpan]:
    """Overlapping findings become one span under the name of the widest of them."""
    found.sort(key=lambda candidate: (candidate.start, -candidate.end))
    spans: list[RedactedSpan] = []
    for candidate in found:
        rule, start, end = candidate.rule, candidate.start, candidate.end
        if spans and start < spans[-1].end:
            last = spans.pop()
            rule, start, end = last.rule, last.start, max(end, last.end)
        spans.append(
            RedactedSpan(rule=rule, start=start, end=end, replacement=f"{MASK_OPENING}{rule}]")
        )
    return spans
