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
    text: str, *, pii: bool = False, known: Collection[str] = (), judged: JudgedTexts | None = None
) -> tuple[str, dict[str, None]]:
    """Mask JSON text. Also return the masked secrets that can be recognized without a label."""
    of_json = is_json(text.encode("utf-8", "surrogatepass"))
    looked_for = dict.fromkeys(known)
    for _ in range(_MOST_PASSES):  # a mask changes the context of the text around it, so repeat
        if of_json:
            spans = _json_spans(text, pii=pii, known=looked_for, judged=judged)
        else:
            spans = redact(text, pii=pii, known=looked_for, judged=judged).spans
        if not spans:
            break
        looked_for.update(secrets_in(text, spans))
        text = splice(text, spans)
    return text, looked_for


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
    text: str, *, pii: bool, known: Collection[str], judged: JudgedTexts | None
) -> Sequence[RedactedSpan]:
    """Find the spans to mask. Each is inside one JSON string and splits no escape."""
    # also search the whole text, because secrets in nested JSON are between escaped escapes
    written = _SPACE_ESCAPES.sub(_as_space, text)
    in_place = redact(written, pii=pii, known=known, judged=judged).spans
    ends = [span.end for span in in_place]
    spans: list[RedactedSpan] = []
    read: dict[str, Sequence[RedactedSpan]] = {}  # a cache: reports repeat strings
    for string in _STRING.finditer(text):
        at, written = string.start("inside"), string["inside"]
        if len(written) < _LEAST_STRING_CHARS:
            continue
        beside = bisect_right(ends, at)
        own: list[RedactedSpan] = []
        is_data = _BASE64.fullmatch(written) is not None
        while beside < len(in_place) and in_place[beside].start < at + len(written):
            if not is_data or in_place[beside].rule.startswith(_BY_NAME):
                own.append(_within(in_place[beside], at, written))
            beside += 1
        if not is_data:
            if written not in read:
                read[written] = _decoded_spans(written, pii=pii, judged=judged)
            own += [
                replace(span, start=span.start + at, end=span.end + at) for span in read[written]
            ]
        spans += _merged(own)
    return spans


def _within(span: RedactedSpan, at: int, written: str) -> RedactedSpan:
    """Cut the span to the JSON string `written` (at `at`), without splitting an escape."""
    start, end = max(span.start - at, 0), min(span.end - at, len(written))
    if "\\" in written:
        first, last = _escape_over(written, start), _escape_over(written, end)
        start = start if first is None else first.start()
        end = end if last is None else last.end()
    return replace(span, start=at + start, end=at + end)


def _escape_over(written: str, at: int) -> re.Match[str] | None:
    begin = max(0, at - _ESCAPE_CHARS)
    # Go back to the start of a run of backslashes: no escape spans it.
    while begin > 0 and written[begin - 1] == "\\":
        begin -= 1
    for escape in _ESCAPE.finditer(written, begin):
        if escape.end() > at:
            return escape if escape.start() < at else None
    return None


def _decoded_spans(
    written: str, *, pii: bool, judged: JudgedTexts | None
) -> Sequence[RedactedSpan]:
    if "\\" not in written:
        if _BESIDE.search(written) is None:
            return ()  # a single word gives the same result in any context
        return redact(written, pii=pii, judged=judged).spans
    decoded, _ = scanstring(f'{written}"', 0, False)
    spans = redact(decoded, pii=pii, judged=judged).spans
    if not spans:
        return ()
    shifts = _shifts(written)
    return [
        replace(span, start=_written_at(span.start, shifts), end=_written_at(span.end, shifts))
        for span in spans
    ]


def _shifts(written: str) -> list[tuple[int, int]]:
    """Return for each escape the position after it in the decoded text, and how many characters
    longer the JSON text is up to there."""
    shifts: list[tuple[int, int]] = []
    longer = 0
    for escape in _ESCAPE.finditer(written):
        longer += escape.end() - escape.start() - 1
        shifts.append((escape.end() - longer, longer))
    return shifts


def _written_at(decoded_at: int, shifts: list[tuple[int, int]]) -> int:
    before = bisect_right(shifts, (decoded_at, len(shifts) * 12))
    return decoded_at + (shifts[before - 1][1] if before else 0)


def _merged(spans: list[RedactedSpan]) -> list[RedactedSpan]:
    spans.sort(key=lambda span: (span.start, -span.end))
    merged: list[RedactedSpan] = []
    for span in spans:
        if span.end <= span.start:
            continue
        if merged and span.start < merged[-1].end:
            merged[-1] = replace(merged[-1], end=max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


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
        done = redact(text, pii=self.settings.pii, known=tuple(self.secrets), judged=self.judged)
        if done.spans:
            self.masked += len(done.spans)
            self._remember(secrets_in(text, done.spans))
        return done.text

    def json(self, text: str) -> str:
        """Mask JSON for storage. Invalid JSON is masked as text."""
        if not self.settings.enabled or not text:
            return text
        changed, found = redact_json_text(
            text, pii=self.settings.pii, known=tuple(self.secrets), judged=self.judged
        )
        self._remember(found)
        return changed

    def body(self, raw: bytes) -> tuple[bytes, bool]:
        """Mask a JSON body for storage. Also return true if nothing was masked."""
        text = raw.decode("utf-8", "surrogateescape")
        changed = self.json(text)
        if changed is text:
            return raw, True
        return changed.encode("utf-8", "surrogateescape"), False

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
        masked = tuple([_masked(entry, mask) for entry in masked])
        if len(mask.secrets) == known:
            break
    return masked


def _masked(entry: Entry, mask: TextMask) -> Entry:
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
            for other in self._keys_by_core[core]:
                if other == key:
                    break
                if other in unmasked:
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
