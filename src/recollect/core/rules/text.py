"""Text for storage: cleans it, splits it into sentences, and writes a message as text.
`segment_text` writes a message in reading order, without base64, signatures or recalled blocks. The
model's thinking is stored between marks, but not indexed."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from recollect.core.rules.trust import tool_of
from recollect.core.values.message import (
    CallId,
    Image,
    Message,
    Other,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from recollect.core.values.recall import BLOCK_CLOSING, BLOCK_OPENING

REPLACEMENT = "\ufffd"

_UNHOLDABLE = re.compile("[\x00\ud800-\udfff]")
_LINE_BREAKS = re.compile("(\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029])")
"""Every line ending that `str.splitlines` recognizes."""
_LABEL = re.compile(
    r"\[ ?(?:user|human|customer|assistant(?: thinking| tool calls?)?|model|ai|system|developer"
    r"|(?:tool|function)(?: calls?| results?| outputs?| response)?|earlier summary|summary) ?\]",
    re.IGNORECASE,
)
_LABEL_CHARS = 80  # longer than any speaker's label; bounds the work per line
_OPENING = "【〔〖［⟦❲⁅﹝⦗「『"
_CLOSING = "】〕〗］⟧❳⁆﹞⦘」』"
_BRACKETS = str.maketrans(_OPENING + _CLOSING, "[" * len(_OPENING) + "]" * len(_CLOSING))
QUOTED = "> "
"""Prefix of a line that looks like a speaker's label, so that it reads as a quotation."""


def clean_text(text: str) -> str:
    """Replace each character that no store accepts by a replacement character."""
    if text.isascii():
        return text.replace("\x00", REPLACEMENT) if "\x00" in text else text
    return _UNHOLDABLE.sub(REPLACEMENT, text)


def quote_labels(text: str) -> str:
    """Put `QUOTED` before every line that begins like a speaker's label, also if the label has
    other brackets, letter widths, spaces or invisible characters."""
    lines = _LINE_BREAKS.split(text)
    quoted_lines = [QUOTED + line if _is_labelled(line) else line for line in lines]
    return text if quoted_lines == lines else "".join(quoted_lines)


def _is_labelled(line: str) -> bool:
    head = line.lstrip()[:_LABEL_CHARS]
    if not head.isascii():
        folded_head = unicodedata.normalize("NFKC", head.translate(_BRACKETS)).translate(_BRACKETS)
        head = "".join(c for c in folded_head if unicodedata.category(c) not in ("Cf", "Mn", "Cc"))
    return "]" in head and _LABEL.match(" ".join(head.split())) is not None


SENTENCE_CHARS: Final = 300
"""Maximum length of a stored sentence."""

_LINES: Final = re.compile(r"\S(?:[^\n]*\S)?")
# A punctuation mark ends a sentence only before white space, so that paths and numbers are not
# split.
_ENDS: Final = re.compile(
    r"(?<=[.!?…])\s+(?=[\"'“‘(\[*_`]?[^\Wa-z])|(?<=[!?…])\s+|(?<=[。！？])\s*(?=\S)"
)
# Same as `_ENDS`, but also before a small letter.
_CHAT_ENDS: Final = re.compile(r"\.\s+(?=[a-z`\"'(])|;\s+|；\s*(?=\S)")
_ABBREVIATION_CHARS: Final = 12
_ABBREVIATION: Final = re.compile(
    r"\b(?:e\.g|i\.e|etc|vs|approx|incl|resp|nr|mr|mrs|ms|dr|st|ca|cf|fig|min|max|ver|a\.m|p\.m"
    r"|[a-z])\.\s+$",
    re.IGNORECASE,
)
# Abbreviations before a name or a number. A dot after them does not end the sentence.
_TITLE: Final = re.compile(
    r"\b(?<!\d )(?:(?:mr|mrs|ms|mx|dr|prof|st|sen|gov|gen|col|capt|lt|sgt|rev|hon|mt|nr|fig|vs|ca"
    r"|cf|approx|e\.\ ?g|i\.\ ?e|bzw|z\.\ ?b|d\.\ ?h|u\.\ ?a|hr|fr|inkl|evtl)"
    r"|(?<!in )(?<!plan )(?<!part )(?<!type )(?<!team )(?<!class )(?<!option )(?<!vitamin )(?-i:"
    r"[A-HJ-Z]))\.$",
    re.IGNORECASE,
)
_LIST_MARK: Final = re.compile(r"(?:[-*+•>#]+|\d{1,3}[.)])\s+")


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    for line in _LINES.finditer(text):
        start, end = line.span()
        mark = _LIST_MARK.match(text, start, end)  # the dot of "1." does not end a sentence
        for gap in _ENDS.finditer(text, mark.end() if mark else start, end):
            before = max(start, gap.start() - _ABBREVIATION_CHARS)
            if _TITLE.search(text[before : gap.start()]):
                continue
            if start < gap.start():
                yield start, gap.start()
            start = gap.end()
        if start < end:
            yield start, end


def statement_spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the positions of the statements in a span: sentences, which in a chat may begin with a
    small letter or end with a semicolon."""
    for first, last in sentence_spans(text[start:end]):
        offset, stop = start + first, start + last
        mark = _LIST_MARK.match(text, offset, stop)
        for gap in _CHAT_ENDS.finditer(text, mark.end() if mark else offset, stop):
            if gap[0][0] == "." and _ABBREVIATION.search(
                text, max(offset, gap.start() - _ABBREVIATION_CHARS), gap.end()
            ):
                continue
            cut = gap.start() + 1
            if offset < cut:
                yield offset, cut
            offset = gap.end()
        if offset < stop:
            yield offset, stop


def one_line(text: str) -> str:
    """Put a text on one line, without a leading list marker."""
    line = " ".join(text.split())
    mark = _LIST_MARK.match(line)
    return line[mark.end() :] if mark else line


def excerpt_around(text: str, offset: int, length: int, max_chars: int = SENTENCE_CHARS) -> str:
    """Return at most `most` characters around a span of the text, cut between words."""
    if len(text) <= max_chars:
        return text
    room = max(max_chars - length, 0)
    start = max(0, min(offset - room // 2, len(text) - max_chars))
    end = min(len(text), start + max_chars)
    if 0 < start <= offset:
        space = text.find(" ", start, offset)
        start = space + 1 if space >= 0 else start
    if offset + length <= end < len(text):
        space = text.rfind(" ", offset + length, end)
        end = space if space >= 0 else end
    return text[start:end]


def clipped_sentences(text: str, max_chars: int) -> str:
    """Return the first sentences of a text that fit, or else the start of the first one."""
    text = " ".join(text.split())
    if len(text) <= max_chars:
        return text
    fitting = max((end for _, end in sentence_spans(text) if end <= max_chars), default=0)
    return text[:fitting] or f"{text[: max_chars - 2].rpartition(' ')[0]} …"


THINKING_OPENING = "[thinking]\n"
THINKING_CLOSING = "\n[/thinking]"
ERROR_MARK = "[error] "
BROKEN_OFF_MARK = "[broken off]"
"""Text at the end of a message that the model did not finish, because of a stop or an error."""
_CALLS = re.compile(r"(?:^|\n)[\w.:-]{1,128}\(.*", re.DOTALL)
"""Calls at the end of a message, as `segment_text` writes them."""
LEAST_REPEATED_SHARE = 0.9
"""A client may drop a space or the last half of a word. A message that lacks more is stored next to
the one that broke off, so that no words are lost. Not measured."""
UNKNOWN_TOOL = "unknown"
"""Tool name in the text of a result whose call is unknown."""

_ANY_TAG = r"[ \t]{0,20}<recalled-context\b[^>\n]{0,200}>"
_ANY_BLOCK = re.compile(f"^{_ANY_TAG}|{re.escape(BLOCK_OPENING)}", re.MULTILINE)
_OWN_BLOCK = re.compile(f"^{re.escape(BLOCK_OPENING)}", re.MULTILINE)
_NEXT_BLOCK = re.compile(rf"\s*+{_ANY_TAG}")
# Fields that contain words, in blocks that Recollect does not interpret: documents, searches,
# refusals, transcripts.
_WORDY_FIELDS = frozenset(
    {
        "text",
        "title",
        "content",
        "url",
        "query",
        "context",
        "refusal",
        "transcript",
        "code",
        "command",
    }
    | {"stdout", "stderr", "logs", "output", "arguments", "name", "filename", "error"}
)
_BASE64 = re.compile(r"(?:data:[^,]{0,200},)?[A-Za-z0-9+/_-]{200,}={0,2}")
_MOST_DEPTH = 16  # not measured; bounds recursion into nested results


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentText:
    """Stored form of a message."""

    text: str = field(repr=False)
    role: Role
    """The role of the author. A tool's result has the tool's role, even inside a user message."""
    tool: str | None
    says_something: bool
    only_recalled: bool = False
    """True if the message contained only a recalled block."""


def segment_text(message: Message, tool_names: Mapping[CallId, str] | None = None) -> SegmentText:
    """Write a message as text. `tool_names` maps known call ids to their tools."""
    pieces: list[str] = []
    tool: str | None = None
    says = stripped = False
    for part in message.parts:
        piece, has_words, recalled = _write_part(part, message.role)
        stripped |= recalled
        if piece:
            pieces.append(piece)
            says |= has_words
        if tool is None:
            tool = _tool(part, tool_names)
    if pieces and message.ending != "complete":
        pieces.append(BROKEN_OFF_MARK)
    results = bool(message.parts) and all(isinstance(part, ToolResult) for part in message.parts)
    return SegmentText(
        text="\n".join(pieces),
        role="tool" if results else message.role,
        tool=tool,
        says_something=says,
        only_recalled=stripped and not pieces,
    )


def without_recalled_blocks(text: str, *, any_spelling: bool) -> str:
    """Remove recalled blocks: with `any_spelling`, from every similar tag at the start of a line to
    its closing tag or the end; otherwise only between Recollect's exact tags, because tools and
    models may quote files that mention the tags."""
    if "<recalled-context" not in text:
        return text
    kept_pieces: list[str] = []
    offset = 0
    opening = _ANY_BLOCK if any_spelling else _OWN_BLOCK
    while True:
        following = _NEXT_BLOCK.match(text, offset) if kept_pieces else None
        opening_match = following or opening.search(text, offset)
        if opening_match is None:
            break
        end = text.find(BLOCK_CLOSING, opening_match.end())
        if end < 0 and not (
            any_spelling and (following or _begins_line(text, opening_match.start()))
        ):
            break
        kept_pieces.append(text[offset : opening_match.start()].lstrip("\n").rstrip())
        offset = len(text) if end < 0 else end + len(BLOCK_CLOSING)
    if not kept_pieces:
        return text
    kept_pieces.append(text[offset:].lstrip("\n"))
    return "\n\n".join(piece for piece in kept_pieces if piece.strip())


def _begins_line(text: str, offset: int) -> bool:
    return text[:offset].rstrip(" \t")[-1:] in ("", "\n")


def without_thinking(text: str) -> str:
    return without_spans(text, thinking_spans(text))


def repeats_broken(broken_text: str, text: str) -> bool:
    """Return whether `text` is what a client made of a message that broke off: its beginning, or
    all of it and more. Thinking, calls and white space do not count."""
    if not broken_text.endswith(BROKEN_OFF_MARK):
        return False
    broken_words, client_words = (
        "".join(_CALLS.sub("", without_thinking(version.removesuffix(BROKEN_OFF_MARK))).split())
        for version in (broken_text, text)
    )
    shorter = min(broken_words, client_words, key=len)
    long_enough = len(shorter) >= LEAST_REPEATED_SHARE * len(broken_words)
    return (
        bool(shorter)
        and long_enough
        and broken_words[: len(shorter)] == client_words[: len(shorter)]
    )


def without_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Remove these spans, which are in order and do not overlap."""
    pieces: list[str] = []
    offset = 0
    for start, end in spans:
        pieces.append(text[offset:start])
        offset = end
    return "".join(pieces) + text[offset:]


def thinking_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Return the positions of the model's thinking in its message, including the marks."""
    spans: list[tuple[int, int]] = []
    offset = 0
    while (start := text.find(THINKING_OPENING, offset)) >= 0:
        end = text.find(THINKING_CLOSING, start + len(THINKING_OPENING) - 1)
        if end < 0:
            break
        offset = end + len(THINKING_CLOSING)
        if start == 0 or text[start - 1] == "\n":
            spans.append((start, offset))
    return tuple(spans)


def _write_part(part: Part, role: Role) -> tuple[str, bool, bool]:
    if isinstance(part, Text):
        text = without_recalled_blocks(part.text, any_spelling=role in ("user", "system"))
        return text, bool(text.strip()), text is not part.text
    if isinstance(part, ToolCall):
        return f"{part.name}({part.arguments})", True, False
    if isinstance(part, ToolResult):
        return _result(part)
    if isinstance(part, Thinking):
        text = f"{THINKING_OPENING}{part.text}{THINKING_CLOSING}" if part.text.strip() else ""
        return text, False, False
    if isinstance(part, Image):
        return _image(part), False, False
    words = "\n".join(_words_of(part))
    placeholder = f"[{part.kind}, {_size(len(part.payload))}]"
    return (f"{placeholder} {words}", True, False) if words else (placeholder, False, False)


def _result(part: ToolResult) -> tuple[str, bool, bool]:
    # The messages that a memory tool quotes are stored already.
    if part.recalls is not None:
        return "", False, True
    pieces: list[str] = []
    says = recalled = False
    for inner in part.content:
        text, has_words, stripped = _write_part(inner, "tool")
        recalled |= stripped
        if text:
            pieces.append(text)
            says |= has_words
    mark = ERROR_MARK if part.is_error else ""
    return mark + "\n".join(pieces), says or part.is_error, recalled


def _image(image: Image) -> str:
    if image.data is not None:
        return f"[image {image.media_type or 'of unknown type'}, {_size(len(image.data) * 3 // 4)}]"
    if image.address:
        return f"[image at {image.address[:500]}]"
    return "[image]"


def _words_of(part: Other) -> Iterator[str]:
    try:
        value = json.loads(part.payload)
    except (ValueError, RecursionError):
        return
    if isinstance(value, str):  # the text of a refusal is a plain string
        yield value
        return
    yield from _strings(value, "", 0)


def _strings(value: Any, name: str, depth: int) -> Iterator[str]:
    if depth > _MOST_DEPTH:
        return
    if isinstance(value, str):
        if name in _WORDY_FIELDS and value.strip() and _BASE64.match(value) is None:
            yield value
    elif isinstance(value, dict):
        is_text = value.get("type") == "text"  # a document that is given as text
        for key, inner in value.items():
            yield from _strings(inner, "text" if is_text and key == "data" else key, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner, name, depth + 1)


def _tool(part: Part, tool_names: Mapping[CallId, str] | None) -> str | None:
    if isinstance(part, ToolResult):
        return tool_of(part, tool_names or {}) or UNKNOWN_TOOL
    return part.name or UNKNOWN_TOOL if isinstance(part, ToolCall) else None


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} bytes"
    if count < 1024 * 1024:
        return f"{count / 1024:.0f} KB"
    return f"{count / 1024 / 1024:.1f} MB"
