"""Masks stored texts: by the redaction rules, by the user's patterns, and copies of secrets that
were masked elsewhere. Masking twice changes nothing. JSON stays valid, and its keys do not
change."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from recollect.core.formats.turn_records import texts_of_outcomes, with_texts_of_outcomes
from recollect.core.rules.message_redaction import is_json, redact_json
from recollect.core.rules.patterns import TextPattern
from recollect.core.rules.redaction import RedactedSpan, recognisable_secrets, redact, splice
from recollect.core.rules.secret_values import MASK, MASK_OPENING
from recollect.errors import FormatError

OWN_KIND: Final = "own-pattern"
REMAINS_KIND: Final = "cut-secret"
COPIES_KIND: Final = "copied-secret"
_TOKEN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]', re.DOTALL)
_IS_KEY: Final = re.compile(r"\s*:")
_MAX_PASSES: Final = 8
"""Not measured; bounds patterns that match again what another mask left."""
_MAX_LEVELS: Final = 3
"""Depth of JSON inside JSON strings, as in the arguments of tool calls."""

MIN_CHARS: Final = 12
"""Not measured; shorter parts of a secret are ordinary words."""
_MAX_CUT_CHARS: Final = 2
"""Not measured; each further character adds two texts per secret to find."""
_MAX_SECRETS: Final = 500
"""Not measured; bounds the time per session that is full of secrets."""
_MAX_CHARS: Final = 400
"""Not measured; a key of several lines is found by its own format."""
_MAX_COPIES: Final = 2000
"""Not measured; bounds the time per message."""


class KnownTexts:
    """Finds known texts, the longest one at each place. A regular expression of all of them would
    try each at every character."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = frozenset(texts)
        self._head_chars = min(map(len, self._texts))
        lengths: dict[str, set[int]] = {}
        for text in self._texts:
            lengths.setdefault(text[: self._head_chars], set()).add(len(text))
        self._lengths_by_head = {
            head: sorted(head_lengths)[::-1] for head, head_lengths in lengths.items()
        }

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        start, head_chars = 0, self._head_chars
        while start + head_chars <= len(text):
            end = start + 1
            for length in self._lengths_by_head.get(text[start : start + head_chars], ()):
                if text[start : start + length] in self._texts:
                    end = start + length
                    yield start, end
                    break
            start = end


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedText:
    """A masked text, and the number of masks by kind."""

    text: str = field(repr=False)
    kinds: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[tuple[RedactedSpan, ...], ...] = ()
    """Masked spans per pass, as positions in the text before that pass."""

    def move_span(self, start: int, end: int) -> tuple[int, int]:
        """Return the new position of a span of the original text, or of the mask over it."""
        for spans in self.steps:
            start, end = _shift(start, spans, is_end=False), _shift(end, spans, is_end=True)
        return start, end

    def secrets_masked_in(self, original: str) -> Iterator[str]:
        """Return the masked secrets of the original text. Never store or show these secrets."""
        text = original
        for spans in self.steps:
            yield from (text[span.start : span.end] for span in spans)
            text = splice(text, spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedBytes:
    """Masked bytes, and the number of masks by kind."""

    body: bytes = field(repr=False)
    kinds: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Masks:
    """What to mask: secrets by the rules and, on request, personal data and the user's patterns."""

    pii: bool = False
    patterns: tuple[TextPattern, ...] = field(default=(), repr=False)
    copies: tuple[tuple[str, KnownTexts], ...] = field(default=(), repr=False)
    """Kinds and texts of copies of known secrets, made by `copies_of`."""

    def text(self, text: str) -> MaskedText:
        masked_text, steps = text, []
        for _ in range(_MAX_PASSES):
            spans = redact(masked_text, pii=self.pii).spans or tuple(self._own_spans(masked_text))
            if not spans:
                break
            masked_text = splice(masked_text, spans)
            steps.append(spans)
            if not self._own_patterns:  # a second pass is only needed after the user's patterns
                break
        return MaskedText(text=masked_text, kinds=new_masks(text, masked_text), steps=tuple(steps))

    def json(self, raw: bytes, *, leave: frozenset[str] = frozenset()) -> MaskedBytes:
        """Mask secrets in JSON, or in other bytes as text. The user's patterns are not applied to
        values under the keys in `leave`. Raise FormatError if a record cannot be read."""
        texts = texts_of_outcomes(raw)
        if texts is not None:
            masked_texts = self.json(texts, leave=leave)
            if masked_texts.body == texts:
                return MaskedBytes(body=raw)
            return MaskedBytes(
                body=with_texts_of_outcomes(raw, masked_texts.body), kinds=masked_texts.kinds
            )
        body, _ = redact_json(raw, pii=self.pii)
        for _ in range(_MAX_PASSES if self._own_patterns else 0):
            masked_body = self._mask_own_in_json(body, leave, _MAX_LEVELS)
            masked_body, _ = redact_json(masked_body, pii=self.pii)
            if masked_body == body:
                break
            body = masked_body
        if body == raw:
            return MaskedBytes(body=raw)
        return MaskedBytes(body=body, kinds=new_masks(_decode(raw), _decode(body)))

    def name(self, name: str) -> bool:
        """Return whether a name contains a secret. Names are never masked."""
        return bool(self.text(name).steps)

    @property
    def _own_patterns(self) -> tuple[tuple[str, TextPattern | KnownTexts], ...]:
        own_patterns = ((f"{OWN_KIND}-{n}", pattern) for n, pattern in enumerate(self.patterns, 1))
        return (*own_patterns, *self.copies)

    def left_in(self, raw: bytes) -> bool:
        """Return whether a pattern of the user still matches, in a key or in unchangeable text."""
        return bool(self.patterns) and any(
            any(True for _ in self._own_spans(text)) for text in strings_in(raw, keys=True)
        )

    def _own_spans(self, text: str) -> Iterator[RedactedSpan]:
        masks = [match.span() for match in MASK.finditer(text)]
        matches = [
            (start, -end, number, kind)
            for number, (kind, pattern) in enumerate(self._own_patterns)
            for span in pattern.spans(text)
            for start, end in _subtract(span, masks)
        ]
        done = 0
        for start, negative_end, _, kind in sorted(matches):
            first, end = max(start, done), -negative_end
            if first < end:
                mask = f"{MASK_OPENING}{kind}]"
                yield RedactedSpan(rule=kind, start=first, end=end, replacement=mask)
                done = end

    def _mask_own(self, text: str) -> str:
        for _ in range(_MAX_PASSES):
            spans = tuple(self._own_spans(text))
            if not spans:
                break
            text = splice(text, spans)
        return text

    def _mask_own_in_json(self, raw: bytes, leave: frozenset[str], levels: int) -> bytes:
        if not is_json(raw):
            return _encode(self._mask_own(_decode(raw)))

        def change(text: str) -> str:
            if levels > 1 and text.lstrip()[:1] in ("{", "[") and is_json(_encode(text)):
                text = _decode(self._mask_own_in_json(_encode(text), leave, levels - 1))
            return self._mask_own(text)

        text = _decode(raw)
        pieces: list[str] = []
        done = 0
        for match, string in _strings(text, leave=leave):
            new_string = change(string) if string else string
            if new_string != string:
                pieces += (text[done : match.start()], _json_string(new_string))
                done = match.end()
        return _encode("".join((*pieces, text[done:])))


def strings_in(raw: bytes, *, keys: bool = False, levels: int = _MAX_LEVELS) -> Iterator[str]:
    """Yield every text in JSON, also in JSON inside its strings. Bytes without JSON are one
    text."""
    with suppress(FormatError):
        raw = texts_of_outcomes(raw) or raw
    if not is_json(raw):
        yield _decode(raw)
        return
    for _, string in _strings(_decode(raw), keys=keys):
        if levels > 1 and string.lstrip()[:1] in ("{", "["):
            yield from strings_in(_encode(string), keys=keys, levels=levels - 1)
        yield string


def _strings(
    text: str, *, keys: bool = False, leave: frozenset[str] = frozenset()
) -> Iterator[tuple[re.Match[str], str]]:
    """Yield the strings of JSON with their matches, except values under the keys in `leave`."""
    leave_stack = [False]
    for match in _TOKEN.finditer(text):
        if match[0] in ("{", "["):
            leave_stack.append(match[0] == "[" and leave_stack[-1])
        elif match[0] in ("}", "]"):
            leave_stack.pop()
        else:
            string = json.loads(match[0], strict=False)
            is_key = _IS_KEY.match(text, match.end()) is not None
            if keys if is_key else not leave_stack[-1]:
                yield match, string
            if is_key:
                leave_stack[-1] = string in leave


def _json_string(text: str) -> str:
    json_text = json.dumps(text, ensure_ascii=False)
    try:
        json_text.encode()
    except UnicodeEncodeError:
        return json.dumps(text)
    return json_text


def _subtract(span: tuple[int, int], masks: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    start, end = span
    for first, last in masks:
        if last <= start or first >= end:
            continue
        if start < first:
            yield start, first
        start = last
    if start < end:
        yield start, end


def _shift(offset: int, spans: Sequence[RedactedSpan], *, is_end: bool) -> int:
    shift = 0
    for span in spans:
        if span.start >= offset:
            break
        if span.end <= offset:
            shift += len(span.replacement) - (span.end - span.start)
        else:
            return span.start + shift + (len(span.replacement) if is_end else 0)
    return offset + shift


def new_masks(before: str, after: str) -> Mapping[str, int]:
    """Count the masks by kind that the new text has and the old one lacks."""
    if before == after:
        return {}
    return Counter(_kinds(after)) - Counter(_kinds(before))


def _kinds(text: str) -> Iterator[str]:
    return (mask[0][len(MASK_OPENING) : -1] for mask in MASK.finditer(text))


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _encode(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate that does not encode a byte
        return text.encode("utf-8", "surrogatepass")


def copies_of(secrets: Collection[str]) -> tuple[tuple[str, KnownTexts], ...]:
    """Return texts to find copies of these secrets, without a label or with one or two
    characters missing at one end."""
    full_texts = [text for text in recognisable_secrets(secrets) if len(text) <= _MAX_CHARS]
    telling = {text for text in secrets if MIN_CHARS < len(text) <= _MAX_CHARS}
    longest = sorted(telling, key=_longest_first)[:_MAX_SECRETS]
    texts_by_kind = {
        COPIES_KIND: sorted(full_texts, key=_longest_first)[:_MAX_COPIES],
        REMAINS_KIND: sorted({cut for text in longest for cut in _cuts(text)}, key=_longest_first),
    }
    return tuple((kind, KnownTexts(texts)) for kind, texts in texts_by_kind.items() if texts)


def _longest_first(text: str) -> tuple[int, str]:
    return (-len(text), text)


def _cuts(secret: str) -> Iterator[str]:
    for cut in range(1, _MAX_CUT_CHARS + 1):
        for part in (secret[cut:], secret[:-cut]):
            # a part that ends with a space would match unrelated sentences
            if len(part) >= MIN_CHARS and part == part.strip():
                yield part
