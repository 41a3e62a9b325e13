"""Decides whether a model's answer can stand for what it was given.

Owns what is no summary: nothing, a refusal, noise, the material or the earlier summary given back,
one line over and over, more words than there were. Must never mend an answer beyond its wrapping.
Always pure; reasons never quote the answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from recollect.compaction.render import defuse
from recollect.rules.text import quote_labels
from recollect.values.model import Answer
from recollect.values.reason import Cause, Reason

_THOUGHT: Final = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_FENCED: Final = re.compile(r"\A```[a-z]{0,12}\n(.*?)\n?```\Z", re.DOTALL)
_WRAPPED: Final = re.compile(r"\A<((?:previous-)?summary|notes)>(.*)</\1>\Z", re.DOTALL)
_REFUSAL: Final = re.compile(
    r"\A\W{0,3}(?:i(?:'|’)?m (?:very |so )?(?:sorry|unable|afraid)|sorry[,.]|i am (?:sorry|unable)"
    r"|i (?:can ?not|can(?:'|’)t|won(?:'|’)t|will not|must decline)|as an ai\b|unfortunately, i"
    r"|抱歉|对不起|我无法|申し訳)",
    re.IGNORECASE,
)
LEAST_TOKENS: Final = 200
"""The required headings alone take about half of it: no answer is too long for a piece of a few
words by that. Whether the whole compaction reduces is held against the view at the end."""
_REFUSAL_CHARS: Final = 600
"""A longer answer that begins so has something to say."""
_LABEL: Final = re.compile(
    r"^\[(?:User|Assistant(?: thinking| tool calls)?|Tool result)\]:", re.MULTILINE
)
_ECHO_CHARS: Final = 80
_LOOP_LINES: Final = 6
_LEAST_LETTERS: Final = 0.25
"""Of what is no white space; a list of paths and hashes has over half."""
_LEAST_FOCUS_WORDS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """An answer that may stand."""

    text: str = field(repr=False)
    cut_off: bool = False
    """It ended because there was no room for more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """An answer that may not, or none, and why; what follows from it."""

    reason: Reason
    terminal: bool = False
    """Nothing that could be tried would help."""
    overflow: bool = False
    limit_tokens: int | None = None
    """The window that the provider named."""


def accept(
    answer: Answer,
    material: str,
    *,
    count_tokens: Callable[[str], int],
    previous: str = "",
    focus: str = "",
) -> Accepted | Rejected:
    """Hold an answer against the material (conversation or partial summaries) it summarises."""
    text = _unwrapped(answer.text)
    if answer.stop == "refusal" or (len(text) < _REFUSAL_CHARS and _REFUSAL.match(text)):
        return Rejected(reason=Reason(Cause.REFUSED))
    if not text:
        return Rejected(reason=Reason(Cause.ANSWER_EMPTY))
    if previous and text == _unwrapped(previous):
        return Rejected(reason=Reason(Cause.ANSWER_UNCHANGED))
    if (fault := _noise(text)) is not None:
        return Rejected(reason=Reason(fault))
    if _echoes(text, material):
        return Rejected(reason=Reason(Cause.ANSWER_ECHOES))
    given = count_tokens(material) + (count_tokens(previous) if previous else 0)
    if count_tokens(text) >= max(given, LEAST_TOKENS):
        return Rejected(reason=Reason(Cause.ANSWER_TOO_LONG))
    text = _without_focus(text, focus, material)
    if not text:
        return Rejected(reason=Reason(Cause.ANSWER_ONLY_FOCUS))
    return Accepted(text=quote_labels(defuse(text)), cut_off=answer.stop == "length")


def _unwrapped(text: str) -> str:
    bare = _THOUGHT.sub("", text).strip()
    if fenced := _FENCED.match(bare):
        bare = fenced[1].strip()
    if wrapped := _WRAPPED.match(bare):
        bare = wrapped[2].strip()
    return bare


def _noise(text: str) -> Cause | None:
    visible = [sign for sign in text[:20_000] if not sign.isspace()]
    if sum(map(str.isalpha, visible)) < _LEAST_LETTERS * len(visible):
        return Cause.ANSWER_NO_LETTERS
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if line.strip("-* .").casefold() not in {"none", "n/a"}]
    if len(said) >= _LOOP_LINES and len(set(said)) < len(said) / 2:
        return Cause.ANSWER_REPEATS
    if _loops(text):
        return Cause.ANSWER_REPEATS
    return None


def _loops(text: str) -> bool:
    """Whether one stretch of words makes up half of a text without lines."""
    words = text.split()
    if len(words) < 40:
        return False
    runs = Counter(tuple(words[at : at + 5]) for at in range(len(words) - 4))
    return runs.most_common(1)[0][1] * 5 > len(words) / 2


def _echoes(text: str, material: str) -> bool:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(_LABEL.findall(text)) * 2 > len(lines):
        return True
    # of partial summaries one may well be all there is to say
    return len(text) >= _ECHO_CHARS and text in material and bool(_LABEL.search(material))


def _without_focus(text: str, focus: str, material: str) -> str:
    """The text without lines that repeat what `/compact` was told: it would be done again."""
    told = " ".join(focus.split()).casefold()
    if len(told.split()) < _LEAST_FOCUS_WORDS or told in " ".join(material.split()).casefold():
        return text
    kept = [line for line in text.splitlines() if told not in " ".join(line.split()).casefold()]
    return "\n".join(kept).strip()
