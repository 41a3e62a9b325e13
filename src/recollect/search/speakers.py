"""Who speaks: the name that a message begins with, and the names a question holds.

Chats between people, and channels that put a name before what is said, begin a message with
`Name:`. The passages of such a message are indexed by a word of their own, `by=name`, so that a
question that names a speaker finds what that speaker said. Must never take more than the first
line's beginning for a name, nor a label ("Note: …", "The plan: …"). What always holds: a name is
one to three words, of which the first and the last are capitalised, and a colon.
"""

from __future__ import annotations

import re
from typing import Final

_SPEAKER: Final = re.compile(
    r"\s*(?P<name>[^\W\d_][\w'’.\-]{0,30}(?: [^\W\d_][\w'’.\-]{0,30}){0,2})\s?[:：]\s"
)
# What stands before a colon and says nothing of who speaks.
_LABEL_LINES: Final = """
note notes nb ps todo fixme hint tip fyi update edit important attention warning error info
debug question answer example task goal plan step context summary result results output
input issue bug fix problem solution reminder subject re fw fwd from to cc date time title
the this that here it my your our what why how when where who
user assistant system developer tool human
traceback expected actual steps options option request response usage password token secret key
login username email url host port path file files command code version status
"""
_FAILURE: Final = re.compile(r"\w*(?:Error|Exception|Warning|Failure)")
_LABELS: Final = frozenset(_LABEL_LINES.split())
_WORDS: Final = re.compile(r"[\w'’.\-]+")
_MARK: Final = "by="
_MOST_ASKED: Final = 16
SPEAKS_FROM: Final = 3
"""Messages that begin with a name before it is taken for a speaker's."""


def speaker_of(text: str) -> str:
    """The name that a message begins with; empty where it begins with none."""
    found = _SPEAKER.match(text)
    if found is None:
        return ""
    words = found["name"].split()
    named = words[0][0].isupper() and words[-1][0].isupper()
    label = words[-1].lower() in _LABELS or words[0].lower() in _LABELS
    return found["name"] if named and not label and not _FAILURE.fullmatch(words[0]) else ""


def speaker_word(name: str) -> str:
    """What a speaker's passages are asked for by."""
    return _MARK + name.lower()


def speaker_words(name: str) -> tuple[str, ...]:
    """What a speaker's passages are indexed by: the whole name, and the first of several."""
    return tuple(dict.fromkeys((speaker_word(name), speaker_word(name.split()[0]))))


def speaker_words_asked(question: str) -> tuple[str, ...]:
    """What to ask for who is named in a question."""
    return tuple(map(speaker_word, speaker_names_asked(question)))


def speaker_names_asked(question: str) -> tuple[str, ...]:
    """Who may be named in a question: every capitalised word, and pairs of them."""
    names: list[str] = []
    before = ""
    for found in _WORDS.finditer(question):
        word = found[0].rstrip(".").removesuffix("'s").removesuffix("’s").removesuffix("'")
        if word[:1].isupper():
            names.append(word)
            if before:
                names.append(f"{before} {word}")
            before = word
        else:
            before = ""
    return tuple(dict.fromkeys(names))[:_MOST_ASKED]
