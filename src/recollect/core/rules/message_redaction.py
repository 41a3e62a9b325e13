"""Masks secrets in JSON and in messages before they are stored. A JSON string is decoded before it
is searched, because an escape can hide a secret, and searched together with its key, because a name
can announce a secret. Keys, ids and order do not change. Masking a second time changes nothing. The
time is linear."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Collection, Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from json.decoder import scanstring  # type: ignore[attr-defined]

import msgspec

from recollect.core.rules.redaction import (
    MOST_KNOWN_SECRETS,
    JudgedTexts,
    RedactedSpan,
    recognisable_secrets,
    redact,
    secrets_in,
    splice,
)
from recollect.core.rules.text import segment_text
from recollect.core.values.history import Entry
from recollect.core.values.message import (
    EntryKey,
    Image,
    Message,
    Other,
    Part,
    Text,
    Thinking,
    ToolCall,
)
from recollect.system.config.settings import Redaction

_STRING = re.compile(r'"(?P<inside>[^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
# Escapes that decode to one character: a surrogate pair, one UTF-16 unit, a letter.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL
)
_ESCAPE_CHARS = 32
"""An escape that spans a position begins at most this many characters before it."""
# Images and files contain no secrets, but random text that looks like one.
_BASE64 = re.compile(r"(?:data:[\w.+/-]{1,80};base64,)?[A-Za-z0-9+/_-]{1024,}+={0,2}")
_BESIDE = re.compile(r"[\s=:]")
_BY_NAME = "assigned-"
_LEAST_STRING_CHARS = 4  # minimum length of a password with a label; without a label it is eight
_MOST_PASSES = 4
_SPACE_ESCAPES = re.compile(r"(\\+)([nrt])")
"""Newlines and tabs as JSON writes them, also in nested JSON."""
_VALID = msgspec.json.Decoder(msgspec.Raw)


def redact_json(raw: bytes, *, pii: bool = False) -> tuple[bytes, bool]:
    """Return the JSON with its secrets masked, and true if it contained none."""
    return TextMask(Redaction(pii=pii)).body(raw)


def redact_json_text(
    text: str,
    *,
    pii: bool = False,
    known_secrets: Collection[str] = (),
    judged_texts: JudgedTexts | None = None,
) -> tuple[str, dict[str, None]]:
    """Mask JSON text. Also return the masked secrets that can be recognized without a label."""
    of_json = is_json(text.encode("utf-8", "surrogatepass"))
    searched_secrets = dict.fromkeys(known_secrets)
    for _ in range(_MOST_PASSES):  # a mask changes the context of the text around it, so repeat
        if of_json:
            spans = _json_spans(
                text, pii=pii, known_secrets=searched_secrets, judged_texts=judged_texts
            )
        else:
            spans = redact(
                text, pii=pii, known_secrets=searched_secrets, judged_texts=judged_texts
            ).spans
        if not spans:
            break
        searched_secrets.update(secrets_in(text, spans))
        text = splice(text, spans)
    return text, searched_secrets


def is_json(raw: bytes) -> bool:
    try:
        _VALID.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        try:
            json.loads(raw)
        except (ValueError, RecursionError):
            return False
    return True


def _as_space(escape: re.Match[str]) -> str:
    return " " * len(escape[1]) + ("\t" if escape[2] == "t" else "\n")


def _json_spans(
    text: str, *, pii: bool, known_secrets: Collection[str], judged_texts: JudgedTexts | None
) -> Sequence[RedactedSpan]:
    """Find the spans to mask. Each is inside one JSON string and splits no escape."""
    # also search the whole text, because secrets in nested JSON are between escaped escapes
    escaped_text = _SPACE_ESCAPES.sub(_as_space, text)
    in_place = redact(
        escaped_text, pii=pii, known_secrets=known_secrets, judged_texts=judged_texts
    ).spans
    ends = [span.end for span in in_place]
    spans: list[RedactedSpan] = []
    read: dict[str, Sequence[RedactedSpan]] = {}  # a cache: reports repeat strings
    for string in _STRING.finditer(text):
        offset, escaped_text = string.start("inside"), string["inside"]
        if len(escaped_text) < _LEAST_STRING_CHARS:
            continue
        span_index = bisect_right(ends, offset)
        string_spans: list[RedactedSpan] = []
        is_data = _BASE64.fullmatch(escaped_text) is not None
        while span_index < len(in_place) and in_place[span_index].start < offset + len(
            escaped_text
        ):
            if not is_data or in_place[span_index].rule.startswith(_BY_NAME):
                string_spans.append(_cut_to_string(in_place[span_index], offset, escaped_text))
            span_index += 1
        if not is_data:
            if escaped_text not in read:
                read[escaped_text] = _spans_in_escaped(
                    escaped_text, pii=pii, judged_texts=judged_texts
                )
            string_spans += [
                replace(span, start=span.start + offset, end=span.end + offset)
                for span in read[escaped_text]
            ]
        spans += _merge_overlaps(string_spans)
    return spans


def _cut_to_string(span: RedactedSpan, offset: int, escaped_text: str) -> RedactedSpan:
    """Cut the span to the JSON string at `offset`, without splitting an escape."""
    start, end = max(span.start - offset, 0), min(span.end - offset, len(escaped_text))
    if "\\" in escaped_text:
        first, last = _escape_over(escaped_text, start), _escape_over(escaped_text, end)
        start = start if first is None else first.start()
        end = end if last is None else last.end()
    return replace(span, start=offset + start, end=offset + end)


def _escape_over(escaped_text: str, offset: int) -> re.Match[str] | None:
    begin = max(0, offset - _ESCAPE_CHARS)
    # Go back to the start of a run of backslashes: no escape spans it.
    while begin > 0 and escaped_text[begin - 1] == "\\":
        begin -= 1
    for escape in _ESCAPE.finditer(escaped_text, begin):
        if escape.end() > offset:
            return escape if escape.start() < offset else None
    return None


def _spans_in_escaped(
    escaped_text: str, *, pii: bool, judged_texts: JudgedTexts | None
) -> Sequence[RedactedSpan]:
    if "\\" not in escaped_text:
        if _BESIDE.search(escaped_text) is None:
            return ()  # a single word gives the same result in any context
        return redact(escaped_text, pii=pii, judged_texts=judged_texts).spans
    plain_text, _ = scanstring(f'{escaped_text}"', 0, False)
    spans = redact(plain_text, pii=pii, judged_texts=judged_texts).spans
    if not spans:
        return ()
    shifts = _shifts(escaped_text)
    return [
        replace(
            span, start=_escaped_offset(span.start, shifts), end=_escaped_offset(span.end, shifts)
        )
        for span in spans
    ]


def _shifts(escaped_text: str) -> list[tuple[int, int]]:
    """Return for each escape the position after it in the decoded text, and how many characters
    longer the JSON text is up to there."""
    shifts: list[tuple[int, int]] = []
    longer = 0
    for escape in _ESCAPE.finditer(escaped_text):
        longer += escape.end() - escape.start() - 1
        shifts.append((escape.end() - longer, longer))
    return shifts


def _escaped_offset(decoded_at: int, shifts: list[tuple[int, int]]) -> int:
    before = bisect_right(shifts, (decoded_at, len(shifts) * 12))
    return decoded_at + (shifts[before - 1][1] if before else 0)


def _merge_overlaps(spans: list[RedactedSpan]) -> list[RedactedSpan]:
    spans.sort(key=lambda span: (span.start, -span.end))
    joined_spans: list[RedactedSpan] = []
    for span in spans:
        if span.end <= span.start:
            continue
        if joined_spans and span.start < joined_spans[-1].end:
            joined_spans[-1] = replace(joined_spans[-1], end=max(joined_spans[-1].end, span.end))
        else:
            joined_spans.append(span)
    return joined_spans


_ENTRY_PASSES = 2
"""Number of passes. The second pass masks secrets in earlier messages that only a later message
shows to be secrets."""


@dataclass(slots=True)
class TextMask:
    """Masks texts, and remembers their secrets (never stored) to find them in later texts."""

    settings: Redaction
    secrets: dict[str, None] = field(default_factory=dict, repr=False)
    """The newest secrets that can be recognized without a label, shared by threads."""
    masked: int = 0
    judged: JudgedTexts | None = field(default=None, repr=False)

    def text(self, text: str) -> str:
        if not self.settings.enabled or not text:
            return text
        result = redact(
            text, pii=self.settings.pii, known_secrets=tuple(self.secrets), judged_texts=self.judged
        )
        if result.spans:
            self.masked += len(result.spans)
            self._remember(secrets_in(text, result.spans))
        return result.text

    def json(self, text: str) -> str:
        """Mask JSON for storage. Invalid JSON is masked as text."""
        if not self.settings.enabled or not text:
            return text
        masked_text, found = redact_json_text(
            text, pii=self.settings.pii, known_secrets=tuple(self.secrets), judged_texts=self.judged
        )
        self._remember(found)
        return masked_text

    def body(self, raw: bytes) -> tuple[bytes, bool]:
        """Mask a JSON body for storage. Also return true if nothing was masked."""
        text = raw.decode("utf-8", "surrogateescape")
        masked_text = self.json(text)
        if masked_text is text:
            return raw, True
        return masked_text.encode("utf-8", "surrogateescape"), False

    def message(self, message: Message) -> Message:
        """Mask the parts of a message and its JSON."""
        if not self.settings.enabled:
            return message
        if len(message.parts) > 1:  # a label may be in one part, and its secret in the next
            self.text(segment_text(message).text)
        parts = tuple([self._part(part) for part in message.parts])
        if parts == message.parts:
            return message
        return replace(message, parts=parts, raw=self.body(message.raw)[0])

    def _remember(self, found: dict[str, None]) -> None:
        self.secrets.update(found)
        for oldest in list(self.secrets)[: max(0, len(self.secrets) - MOST_KNOWN_SECRETS)]:
            self.secrets.pop(oldest, None)

    def _part(self, part: Part) -> Part:
        if isinstance(part, Text | Thinking):
            return replace(part, text=self.text(part.text))
        if isinstance(part, ToolCall):
            return replace(part, name=self.text(part.name), arguments=self.json(part.arguments))
        if isinstance(part, Image):
            return replace(part, address=self.text(part.address)) if part.address else part
        if isinstance(part, Other):
            return replace(part, payload=self.json(part.payload))
        content = tuple([self._part(inner) for inner in part.content])
        assert all(isinstance(inner, Text | Image | Other) for inner in content)
        return replace(part, content=content, name=part.name and self.text(part.name))  # type: ignore[arg-type]


def redact_entries(entries: Sequence[Entry], mask: TextMask) -> tuple[Entry, ...]:
    """Mask the messages of these entries. `mask` then finds their secrets in later texts."""
    masked = tuple(entries)
    for _ in range(_ENTRY_PASSES):
        known = len(mask.secrets)
        masked = tuple([_mask_entry(entry, mask) for entry in masked])
        if len(mask.secrets) == known:
            break
    return masked


def _mask_entry(entry: Entry, mask: TextMask) -> Entry:
    message = mask.message(entry.message)
    if message is entry.message:
        return entry
    return replace(entry, message=message, raw=message.raw)


_AROUND = re.compile(r"[\s\"'`]+")
_BETWEEN = re.compile(r"[\s\"'`=:;,()<>\[\]{}]+")


_CORE_CHARS = 8
"""Minimum length of a secret. So many characters from its middle identify a word."""


class RepeatedWords:
    """The words that could be secrets in messages that are not masked yet. A message that repeats a
    word of an earlier one waits for it, because only the earlier one may show by a label that the
    word is a secret. Each text is searched once, in linear time."""

    def __init__(self, messages: Mapping[EntryKey, Message]) -> None:
        texts = {key: segment_text(message).text for key, message in messages.items()}
        self._cores = {key: _cores_of(text) for key, text in texts.items()}
        self._keys_by_core: dict[str, list[EntryKey]] = {
            core: [] for cores in self._cores.values() for core in cores
        }
        for key, text in texts.items():
            for core in _find_cores(text, self._keys_by_core):
                self._keys_by_core[core].append(key)

    def knows(self, keys: AbstractSet[EntryKey]) -> bool:
        return keys <= self._cores.keys()

    def may_repeat(self, key: EntryKey, unmasked: Container[EntryKey]) -> bool:
        """Return whether an earlier message that is still unmasked may have a secret of this
        one."""
        for core in self._cores[key]:
            for earlier_key in self._keys_by_core[core]:
                if earlier_key == key:
                    break
                if earlier_key in unmasked:
                    return True
        return False


def _cores_of(text: str) -> set[str]:
    words = {*_AROUND.split(text), *_BETWEEN.split(text)}
    words.update([word.strip("()<>[]{}.,:;!?") for word in words])
    return {_core(word) for word in recognisable_secrets(words)}


def _core(word: str) -> str:
    offset = (len(word) - _CORE_CHARS) // 2
    return word[offset : offset + _CORE_CHARS]


def _find_cores(text: str, cores: Collection[str]) -> set[str]:
    found: set[str] = set()
    for chunk in {*_AROUND.split(text)} if cores else ():
        if chunk.isalpha() and chunk.islower():
            continue
        for offset in range(len(chunk) - _CORE_CHARS + 1):
            core = chunk[offset : offset + _CORE_CHARS]
            if core in cores:
                found.add(core)
    return found
