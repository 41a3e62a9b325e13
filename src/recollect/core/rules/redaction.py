"""Masks secrets in text before it is written anywhere. Each mask names its rule. The functions are
deterministic, take linear time, and change nothing when applied twice. Mask a text before you quote
a part of it, because half of a secret may not look like one."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from recollect.core.rules import secret_commands, secret_names, secret_nearby, secret_rows
from recollect.core.rules.secret_formats import find_tokens
from recollect.core.rules.secret_table import SearchedText, SecretMatch, keywords_in
from recollect.core.rules.secret_values import (
    MASK,
    MASK_OPENING,
    is_name,
    is_reference,
    is_uuid,
    is_wordy,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator


_MAILBOX = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}\Z")
_DOMAIN = re.compile(r"@[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}\.){1,8}[A-Za-z]{2,24}\b", re.ASCII)
# Digits with single separators. A card has 13 to 19 digits (ISO/IEC 7812), an international phone
# number at most 15 after the plus (E.164).
_CARD = re.compile(r"(?<![\w.+-])\d(?:[ -]?\d){12,18}(?![\w-])(?!\.\d)", re.ASCII)
_PHONE = re.compile(
    r"(?<![\w.+/=-])(?:\+\d{1,3}[ .-]?(?:\(\d{1,4}\)[ .-]?)?(?:\d{1,4}[ .-]?){2,5}\d{2,4}"
    r"|\(\d{3}\) ?\d{3}[ .-]\d{4}|\d{3}[ .-]\d{3}[ .-]\d{4}|1[3-9]\d[ -]?\d{4}[ -]?\d{4})"
    r"(?![\w-])(?!\.\d)",
    re.ASCII,
)
_PHONE_DIGITS = range(8, 16)


def _find_personal_data(text: str) -> Iterator[SecretMatch]:
    offset = text.find("@")
    while offset >= 0:
        domain = _DOMAIN.match(text, offset)
        mailbox = _MAILBOX.search(text, max(0, offset - 64), offset)
        if domain is not None and mailbox is not None:
            start = mailbox.start()
            yield SecretMatch("email", start, domain.end(), start, domain.end())
        offset = text.find("@", offset + 1)
    for match in _CARD.finditer(text):
        if _passes_luhn(match.group()):
            yield SecretMatch("payment-card", *match.span(), *match.span())
    for match in _PHONE.finditer(text):
        if sum(c.isdigit() for c in match.group()) in _PHONE_DIGITS:
            yield SecretMatch("phone", *match.span(), *match.span())


def _passes_luhn(number: str) -> bool:
    """Check Luhn's checksum. A number of only zeros passes it, but is refused."""
    digits = [int(c) for c in number if c.isdigit()]
    doubled_digits = [d * 2 - 9 if d > 4 else d * 2 for d in digits[-2::-2]]
    return any(digits) and (sum(digits[-1::-2]) + sum(doubled_digits)) % 10 == 0


KNOWN_RULE = "known-secret"
_LEAST_SECRET_CHARS = 8
_LONG_SECRET_CHARS = 12
_LEAST_DISTINCT_CHARS = 6
_UNCERTAIN_RULES = words("told-code")
"""Rules that recognize a secret by its context only. The same text may be harmless elsewhere."""
_CLASSES = tuple(map(re.compile, ("[a-z]", "[A-Z]", "[0-9]", r"[^\w\s]")))
# Escapes and terminal colors. Their last letter or digit does not belong to the next word.
_ENDED = re.compile(r"(?:\\[nrtbf]|\\u[0-9a-fA-F]{4}|%[0-9a-fA-F]{2}|\x1b\[[0-9;]{0,8}m)\Z")
_MOST_ENDED_CHARS = 11
MOST_KNOWN_SECRETS = 512
"""Maximum number of earlier secrets that a text is searched for. Each secret takes one search."""
_ESCAPES = re.compile(r"\\[nrt\"\\/]|[\s\"']+")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactedSpan:
    """One masked span of the original text, and the mask in its place."""

    rule: str
    start: int
    end: int
    replacement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """The text with its secrets masked, and their positions in the original."""

    text: str
    spans: tuple[RedactedSpan, ...] = ()


def redact(
    text: str,
    *,
    pii: bool = False,
    known_secrets: Collection[str] = (),
    judged_texts: JudgedTexts | None = None,
) -> Redacted:
    """Mask every secret in the text. With `pii`, also mask e-mail addresses, phone and card
    numbers. `known` are secrets that were masked elsewhere (`recognisable_secrets`). `judged` is a
    cache of findings."""
    if len(text) < _LEAST_SECRET_CHARS:
        return Redacted(text=text)
    findings = _matches(text, pii=pii) if judged_texts is None else judged_texts.find(text, pii=pii)
    matches = list(findings)
    if MASK_OPENING in text:
        matches = _away_from_masks(text, matches)
    if matches or known_secrets:
        certain = (match for match in matches if match.rule not in _UNCERTAIN_RULES)
        values = recognisable_secrets(text[match.start : match.end] for match in certain)
        matches += _find_repeated(
            text,
            values if not known_secrets else {**values, **dict.fromkeys(known_secrets)},
            matches,
        )
    if not matches:
        return Redacted(text=text)
    spans = tuple(_merge(matches))
    return Redacted(text=splice(text, spans), spans=spans)


def recognisable_secrets(secrets: Iterable[str]) -> dict[str, None]:
    """Select secrets that can be recognized without a label. A short secret, or one that looks like
    a word, number, path or version, may mean something else in other texts."""
    return dict.fromkeys(filter(_looks_random, dict.fromkeys(secrets)))


def _looks_random(secret: str) -> bool:
    if len(secret) < _LEAST_SECRET_CHARS or MASK_OPENING in secret:
        return False
    if len(set(secret)) < _LEAST_DISTINCT_CHARS or (secret.isalpha() and secret.islower()):
        return False
    kinds = sum(kind.search(secret) is not None for kind in _CLASSES)
    if kinds < 2 or (len(secret) < _LONG_SECRET_CHARS and kinds < 3):  # excludes digits alone
        return False
    if is_wordy(secret) or is_name(secret) or is_uuid(secret):
        return False
    return not is_reference(secret, quoted=True)


def secrets_in(text: str, spans: Iterable[RedactedSpan]) -> dict[str, None]:
    """Return the secrets in these spans that are recognizable without a label. Never store them."""
    masked_texts = [text[s.start : s.end] for s in spans if s.rule not in _UNCERTAIN_RULES]
    # in JSON a span includes whole escapes, so remove them
    return recognisable_secrets(
        [
            *masked_texts,
            *(text for masked_text in masked_texts for text in _ESCAPES.split(masked_text)),
        ]
    )


def splice(text: str, spans: Iterable[RedactedSpan]) -> str:
    """Replace the spans by their masks. The spans are in order."""
    pieces: list[str] = []
    done = 0
    for span in spans:
        pieces += (text[done : span.start], span.replacement)
        done = span.end
    pieces.append(text[done:])
    return "".join(pieces)


def _find_repeated(
    text: str, values: Iterable[str], matches: list[SecretMatch]
) -> list[SecretMatch]:
    taken_spans = sorted({(match.start, match.end) for match in matches})
    starts = [start for start, _ in taken_spans]
    counts = Counter([text[start:end] for start, end in taken_spans])
    repeats: list[SecretMatch] = []
    for value in sorted(values, key=lambda value_text: (-len(value_text), value_text))[
        :MOST_KNOWN_SECRETS
    ]:
        offset = text.find(value) if text.count(value) > counts[value] else -1
        while offset >= 0:
            end = offset + len(value)
            before = bisect_right(starts, offset) - 1
            free = before < 0 or taken_spans[before][1] < end
            if free and _stands_alone(text, offset, end):
                repeats.append(SecretMatch(KNOWN_RULE, offset, end, offset, end))
            offset = text.find(value, end)
    return repeats


def _stands_alone(text: str, start: int, end: int) -> bool:
    if text[end : end + 1].isalnum() and text[end - 1].isalnum():
        return False
    if not (text[start - 1 : start].isalnum() and text[start].isalnum()):
        return True
    return _ENDED.search(text, max(0, start - _MOST_ENDED_CHARS), start) is not None


_LEAST_REMEMBERED_CHARS = 128
_MOST_REMEMBERED = 256


class JudgedTexts:
    """Caches what was found in a session's last texts, by hash and without the texts. A message is
    searched when it is archived, and again when its request is recorded."""

    def __init__(self) -> None:
        self._found: dict[bytes, tuple[SecretMatch, ...]] = {}

    def find(self, text: str, *, pii: bool) -> tuple[SecretMatch, ...]:
        if len(text) < _LEAST_REMEMBERED_CHARS:
            return _matches(text, pii=pii)
        raw, person = text.encode("utf-8", "surrogatepass"), b"pii" if pii else b""
        name = blake2b(raw, digest_size=16, person=person).digest()
        matches = self._found.pop(name, None)
        if matches is None:
            matches = _matches(text, pii=pii)
        self._found[name] = matches  # move the entry to the newest position
        if len(self._found) > _MOST_REMEMBERED:
            with suppress(KeyError, RuntimeError):
                del self._found[next(iter(self._found))]
        return matches


# Order matters: if two rules find the same secret, the first rule names the mask. A text without
# these bits has nothing that the rules find.
_BY_PLACE = (
    (secret_rows.PLACE_BITS, secret_rows.find_in_place),
    (secret_names.NAME_BITS, secret_names.find_assigned),
)
_BY_LABEL = (
    (secret_commands.COMMAND_BITS, secret_commands.find_in_commands),
    (secret_rows.LABEL_BITS, secret_rows.find_by_label),
    (secret_names.MEMBER_BITS, secret_names.find_members),
    (secret_nearby.TOLD_BITS, secret_nearby.find_in_sentences),
    (secret_names.PAIR_BITS, secret_names.find_pairs),
    (secret_names.COLUMN_BITS, secret_names.find_columns),
    (secret_nearby.STEM_BITS, secret_nearby.find_nearby),
)


def _matches(text: str, *, pii: bool) -> tuple[SecretMatch, ...]:
    reading = SearchedText(text)
    matches = [*find_tokens(reading)]
    for bits, find in _BY_PLACE:
        if reading.found & bits:
            matches += find(reading)
    if MASK_OPENING in text:  # the name of a rule in a mask is not a label
        reading.found = keywords_in(MASK.sub(" ", text))
    for bits, find in _BY_LABEL:
        if reading.found & bits:
            matches += find(reading)
    if pii:
        matches += _find_personal_data(text)
    return tuple([match for match in matches if match.end > match.start])


def _away_from_masks(text: str, matches: list[SecretMatch]) -> list[SecretMatch]:
    """Drop findings that touch a mask in the text: the secret in them is masked already."""
    masks = [match.span() for match in MASK.finditer(text)]
    ends = [end for _, end in masks]
    kept_matches: list[SecretMatch] = []
    for candidate in matches:
        following = bisect_right(ends, candidate.first - 1)
        if following == len(masks) or masks[following][0] > candidate.last:
            kept_matches.append(candidate)
    return kept_matches


def _merge(matches: list[SecretMatch]) -> list[RedactedSpan]:
    matches.sort(key=lambda candidate: (candidate.start, -candidate.end))
    merged: list[tuple[str, int, int]] = []
    for rule, start, end, _, _ in matches:
        if merged and start < merged[-1][2]:
            rule, start, last = merged.pop()
            end = max(end, last)
        merged.append((rule, start, end))
    return [
        RedactedSpan(rule=rule, start=start, end=end, replacement=f"{MASK_OPENING}{rule}]")
        for rule, start, end in merged
    ]
