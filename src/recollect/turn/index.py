"""Index a segment: the passages it is found by, from nothing but the segment as it is stored.

So that what is written on arrival and what is indexed anew later are the same. Beside its words
a passage is indexed by who speaks, by the days it speaks of (`by=caroline`, `on=2023-05-07`) and
by whether it is an instruction that is to last (`is=standing`):
"last Sunday" means a day only beside the day it was said. Every passage
is a span of the stored text, behind the channel's prefix and beside thinking. All of them are
found by their words. Of a long tool result only head, tail and what looks like an error get a
vector (design.md 7): logs are looked for by their words, and vectors cost a model's time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from recollect.rules.noise import strip_channel_prefix
from recollect.rules.segment_text import thinking_spans
from recollect.search.dates import days_meant
from recollect.search.passages import Passage, split_passages
from recollect.search.speakers import speaker_of, speaker_words
from recollect.search.standing import STANDING_WORD, is_standing
from recollect.search.tokenize import tokenize
from recollect.values.segment import NewPassage, Segment

HEAD_PASSAGES = 2
TAIL_PASSAGES = 2
MOST_ERROR_PASSAGES = 8
"""Between head and tail; a log of nothing but errors says the same in the first of them."""

_ERROR = re.compile(
    r"(?i:\b(?:error|exception|traceback|fatal|panic|failed|failure|fails|denied|refused"
    r"|not found|no such file|cannot|undefined|unhandled|segfault|abort(?:ed)?|timed out"
    r"|exit (?:code|status):? [1-9])\b)|\b[A-Z]\w{0,60}(?:Error|Exception)\b"
    r"|错误|失败|异常|报错|超时|拒绝|找不到"
)
# In a call's JSON a line end is written as a backslash and a letter, which would join words.
_ESCAPE = re.compile(r'\\[\\nrtbf"/]')


def index(segment: Segment) -> tuple[NewPassage, ...]:
    """The passages of a segment, in order; none where it is noise."""
    if segment.noise is not None:
        return ()
    text = segment.text
    passages = list(_passages(segment))
    is_call = segment.role == "assistant" and segment.tool is not None
    readable = _ESCAPE.sub(_unescaped, text) if is_call and "\\" in text else text
    embedded = _embedded(segment, passages)
    marks = _marks(segment, passages)
    dated = segment.tool is None
    return tuple(
        [
            NewPassage(
                start=passage.start,
                end=passage.end,
                words=(
                    *tokenize(readable[passage.start : passage.end]),
                    *marks,
                    *(days_meant(passage.text, segment.said_at) if dated else ()),
                ),
                embedded=wanted,
            )
            for passage, wanted in zip(passages, embedded, strict=True)
        ]
    )


def _marks(segment: Segment, passages: list[Passage]) -> tuple[str, ...]:
    """What all passages of a user's message are indexed by: its speaker, and whether it lasts."""
    if segment.role != "user" or segment.tool is not None or not passages:
        return ()
    said = passages[0].text
    name = speaker_of(said)
    standing = (STANDING_WORD,) if len(passages) == 1 and is_standing(said) else ()
    return (*speaker_words(name), *standing) if name else standing


def _passages(segment: Segment) -> Iterator[Passage]:
    text = segment.text
    at = 0
    if segment.role == "user" and segment.tool is None:
        at = len(text) - len(strip_channel_prefix(text))
    if segment.role == "assistant":
        for start, end in thinking_spans(text):
            yield from _between(text, at, start)
            at = end
    yield from _between(text, at, len(text))


def _between(text: str, start: int, end: int) -> Iterator[Passage]:
    if start == 0 and end == len(text):
        yield from split_passages(text)
        return
    for passage in split_passages(text[start:end]):
        yield Passage(start=start + passage.start, end=start + passage.end, text=passage.text)


def _unescaped(escape: re.Match[str]) -> str:
    """As many characters as before, so that spans stay; a backslash itself is kept."""
    return escape[0] if escape[0] == "\\\\" else "  "


def _embedded(segment: Segment, passages: list[Passage]) -> list[bool]:
    is_result = segment.tool is not None and segment.role != "assistant"
    count = len(passages)
    if not is_result or count <= HEAD_PASSAGES + TAIL_PASSAGES:
        return [True] * count
    embedded = [True] * HEAD_PASSAGES + [False] * (count - HEAD_PASSAGES)
    embedded[-TAIL_PASSAGES:] = [True] * TAIL_PASSAGES
    errors = 0
    for at in range(HEAD_PASSAGES, count - TAIL_PASSAGES):
        if _ERROR.search(passages[at].text):
            embedded[at] = True
            errors += 1
            if errors == MOST_ERROR_PASSAGES:
                break
    return embedded
