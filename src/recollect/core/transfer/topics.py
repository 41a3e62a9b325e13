"""Topics and entities of a message for `segments.jsonl`, by rules for English and Chinese.

They are computed when a memory is exported, because no search of Recollect uses them. The text is
masked already, and a mask is never an entity."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from importlib.resources import files
from typing import Final

from recollect.core.search.identifiers import shapes_in

_HEAD_CHARS: Final = 5_000
"""Only so much of a message is read: a longer one is mostly output. Not measured."""
_LONG_CHARS: Final = 600
"""A longer message mentions much in passing, so a topic needs two words. Not measured."""
_MAX_TOPICS: Final = 8
"""Not measured; bounds a line of an export."""
_MAX_ENTITIES: Final = 16
"""Not measured; bounds a line of an export."""
_MAX_ENTITY_CHARS: Final = 120
"""Not measured; a longer one is a quotation, not a name."""
_ENGLISH_WORDS: Final = re.compile(r"[a-z][a-z0-9]{1,20}(?:-[a-z]{2,10})?", re.ASCII)
_QUOTED: Final = re.compile(
    r"`([^`\s][^`\n]{0,60})`|[「『《【“]([^「」『』《》【】“”\n]{1,40})[」』》】”]"
)
_PROPER: Final = re.compile(
    r"(?<![\w.])[A-Z][a-z]{1,20}(?: (?:[A-Z][a-z]{1,20}|[A-Z]\.)){1,3}"
    r"|(?<=[a-z,;] )[A-Z][A-Za-z]{2,20}\b"
)
_HANDLE: Final = re.compile(
    r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}|(?<!\w)@[A-Za-z][\w-]{1,38}"
)
_DAY_OR_MONTH: Final = re.compile(
    "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|January|February|March|April|May|June|July"
    "|August|September|October|November|December"
)
_MASK: Final = "REDACTED"


@cache
def _topic_by_word() -> dict[str, str]:
    text = files(__package__).joinpath("topics.txt").read_text("utf-8")
    lines = [line.partition(":") for line in text.splitlines() if not line.startswith("#")]
    return {word: topic for topic, _, words in lines for word in words.split()}


@cache
def _chinese_words() -> re.Pattern[str]:
    words = sorted((word for word in _topic_by_word() if not word.isascii()), key=len, reverse=True)
    return re.compile("|".join(words))


def topics_of(text: str) -> list[str]:
    """Return the topics of a text, those with the most different words first."""
    text, topic_by_word = text[:_HEAD_CHARS], _topic_by_word()
    words = {*_ENGLISH_WORDS.findall(text.lower()), *_chinese_words().findall(text)}
    counts = Counter(topic_by_word[word] for word in words & topic_by_word.keys())
    least = 2 if len(text) > _LONG_CHARS else 1
    ranked_topics = sorted((-count, topic) for topic, count in counts.items() if count >= least)
    return [topic for _, topic in ranked_topics[:_MAX_TOPICS]]


def entities_of(text: str) -> list[str]:
    """Return what a text names, the most often named first: identifiers, quoted names, people."""
    text = text[:_HEAD_CHARS]
    name_counts = Counter(shapes_in(text))
    name_counts.update((match[1] or match[2]).strip() for match in _QUOTED.finditer(text))
    name_counts.update(name for name in _PROPER.findall(text) if not _DAY_OR_MONTH.fullmatch(name))
    name_counts.update(_HANDLE.findall(text))
    names = [
        name for name in name_counts if 1 < len(name) <= _MAX_ENTITY_CHARS and _MASK not in name
    ]
    return sorted(names, key=lambda name: -name_counts[name])[:_MAX_ENTITIES]
