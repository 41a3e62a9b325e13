"""Reads a question: its words, whom and when it asks about, and whose words it wants.

Owns what is taken out of a question before anything is looked up. It must never look at memory.
What always holds: `words` are the tokenizer's own, each once, in the order of the question;
`marks` are asked of the store beside them and never count as words of the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from recollect.search.dates import Window, windows_asked
from recollect.search.speakers import speaker_words_asked
from recollect.search.standing import STANDING_WORD
from recollect.search.tokenize import tokenize
from recollect.values.recalled import RecallRequest

# Whoever asks for what the assistant said does not want the user's own words lifted over it.
_ASKS_ASSISTANT: Final = re.compile(
    r"""\b(?:did|had|have)\ you\ (?:\w+\ )?(?:recommend|suggest|mention|advise|provide
        |give|gave|list|explain|propose|describe|say|said|tell|told|write|wrote|recommended|suggested
        |mentioned|provided)
    |\byou\ (?:had\ |have\ |previously\ |just\ )?(?:said|told|suggest|suggested
        |recommend|recommended|mentioned|advise|advised|provided|gave|listed|explained|proposed|described|wrote)\b
    |\byour\ (?:suggestion|recommendation|advice|answer|response|explanation|list|reply|proposal
        |previous|earlier|last)
    |\bremind\ me\b
    |\b(?:previous|earlier|last)\ (?:chat|conversation|discussion|answer)
    |\bwalk\ me\ through\ how\ you
    |你(?:之前|刚才|上次|曾)?(?:说|建议|推荐|提到|给)""",
    re.IGNORECASE | re.VERBOSE,
)
_END_WORDS: Final = 64
"""Of a pasted text its first and its last words say what it is about."""
_MOST_MARKS: Final = 24
_END_CHARS: Final = 4_000
"""What is read of either end of a pasted text: what is asked stands before it or behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question as it was read."""

    words: tuple[str, ...] = field(repr=False)
    speakers: tuple[str, ...] = field(default=(), repr=False)
    """What passages are indexed by whose speaker is named."""
    windows: tuple[Window, ...] = ()
    asks_assistant: bool = False
    length: int = 0
    """Its number of words, repeats included."""
    text: str = field(default="", repr=False)

    @property
    def marks(self) -> tuple[str, ...]:
        """What is asked of the store beside the words."""
        dates = [word for window in self.windows for word in window.words]
        return tuple(dict.fromkeys([STANDING_WORD, *self.speakers, *dates]))[:_MOST_MARKS]


def question_text(request: RecallRequest) -> str:
    """What a turn asks by: its newest message; ungated, with those before it."""
    text = request.newest if request.gated and request.newest else request.query
    if len(text) <= 2 * _END_CHARS:
        return text
    return f"{text[:_END_CHARS]}\n{text[-_END_CHARS:]}"


def read_question(text: str, *, asked_at: float) -> Question:
    """What a question asks for."""
    words = tokenize(text)
    return Question(
        words=_ends(tuple(dict.fromkeys(words))),
        length=len(words),
        speakers=speaker_words_asked(text),
        windows=windows_asked(text, asked_at=asked_at),
        asks_assistant=_ASKS_ASSISTANT.search(text) is not None,
        text=text,
    )


def _ends(words: tuple[str, ...]) -> tuple[str, ...]:
    return words if len(words) <= 2 * _END_WORDS else words[:_END_WORDS] + words[-_END_WORDS:]
