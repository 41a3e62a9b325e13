"""Takes a statement of several values apart: "we use Postgres 16 and Redis 7" states two.

A correction mostly speaks of one of them, and the others still hold. Owns where one part ends and
the next begins, which parts a correction speaks of, and what the statement says without them. Must
never add a word of its own: a part that leans on what stands before ("Redis 7") takes the words
that lead into the part before it ("we use"). What always holds: pure, in time linear in the
statement; a statement of one value has one part, itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from recollect.facts.sameness import content_words, values_of
from recollect.facts.tokens import GRAMMAR, Token, cut

_MOST_CHARS: Final = 400
"""A longer text is not taken apart: it is no short statement."""
_BREAK: Final = re.compile(
    r"[,;]?\s+(?:and|while|whereas)\s+(?:also\s+)?|\s*[；;]\s*|\s*(?:和|以及|、)\s*(?=[A-Za-z0-9])"
    r"|(?P<comma>[,，]\s+)",
    re.IGNORECASE,
)
"""Where parts can end; a comma ends one only in a list that goes on to an "and"."""
_RANGE: Final = re.compile(r"\b(?:between|both|either)\b[^,;]*$", re.IGNORECASE)
""" "Between 5 and 10 minutes" is one value."""
_ARTICLES: Final = frozenset({"a", "an", "the", "our", "my"})
_OWN_VERB: Final = re.compile(
    r"\s(?:is|are|was|were|has|have|uses?|runs?|listens?|lives?|goes|owns?|expires?)\s"
    r"|^(?:we|i|it|they)\s",
    re.IGNORECASE,
)
_NAMELESS: Final = GRAMMAR | {"decided", "agreed", "use", "remember", "note"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementPart:
    """One of the things that a statement says."""

    text: str = field(repr=False)
    """It alone, with the words that lead into it."""
    said: str = field(repr=False)
    """Its own words, as they stand in the statement."""
    joint: str = field(default="", repr=False)
    """What joins it to the part before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remainder:
    """What is left of a statement of which something was corrected."""

    text: str = field(default="", repr=False)
    """What still holds; empty where nothing does."""
    corrected: str = field(default="", repr=False)
    """The one part that no longer holds; empty where that is all of it, or several parts."""
    certain: bool = True
    """False where it cannot be told which of its values is meant, or the others stated alone."""


@lru_cache(maxsize=4096)  # the same facts are candidates again and again
def parts_of(statement: str) -> tuple[StatementPart, ...]:
    """The parts of a statement that give something a value or name it; one where they are one."""
    if len(statement) > _MOST_CHARS:
        return (StatementPart(text=statement, said=statement),)
    parts: list[StatementPart] = []
    for joint, text in _stating(statement):
        lead = _lead(parts[-1].text, text) if parts else ""
        parts.append(StatementPart(text=f"{lead}{text}", said=text, joint=joint))
    return tuple(parts)


def remainder(statement: str, correction: str, replaces: str = "") -> Remainder:
    """What a statement still says when a correction was made of it.

    `replaces` is the value that the correction says no longer holds, where it names it.
    """
    parts = parts_of(statement)
    if len(parts) < 2:
        return Remainder()
    meant = _meant(parts, correction, {token.text for token in cut(replaces)})
    if meant is None:
        return Remainder(certain=False)
    left = [part for at, part in enumerate(parts) if at not in meant]
    if not meant or not left:
        return Remainder()
    if len(cut(left[0].text)) < 2:
        return Remainder(certain=False)
    text = left[0].text + "".join(f"{part.joint}{part.said}" for part in left[1:])
    corrected = parts[meant[0]].text if len(meant) == 1 else ""
    return Remainder(text=text.rstrip(" ,;，；"), corrected=corrected)


def _stating(statement: str) -> Iterator[tuple[str, str]]:
    """What joins a part, and its words; what states nothing belongs to the part before."""
    breaks = list(_BREAK.finditer(statement))
    last = max((at for at, match in enumerate(breaks) if match["comma"] is None), default=-1)
    joint, start = "", 0
    ends = [match.start() for match in breaks[1:]] + [len(statement)]
    for match, end in zip(breaks[: last + 1], ends, strict=False):
        text, following = statement[start : match.start()], statement[match.end() : end]
        if _RANGE.search(text) or not (_states(text, start) and _states(following, match.end())):
            continue
        yield joint, text
        joint, start = match[0], match.end()
    yield joint, statement[start:]


def _states(text: str, start: int) -> bool:
    """Whether words give a value or a name; the capital that begins a sentence makes none."""
    return any(
        token.kind != "word" or (_is_name(token) and start + token.start > 0) for token in cut(text)
    )


def _is_name(token: Token) -> bool:
    return (
        token.kind == "word" and token.written[:1].isupper() and token.text not in _NAMELESS
    ) or token.kind == "name"


def _lead(before: str, text: str) -> str:
    """The words of the part before that lead into this one, too; none into a clause of its own."""
    tokens, ours = cut(before), cut(text)
    if not ours or _OWN_VERB.search(text):
        return ""
    first = ours[0]
    if first.text in _ARTICLES:
        alike = [token for token in tokens if token.text in _ARTICLES][:1]
    elif _is_name(first):
        alike = [token for token in tokens if _is_name(token) and token.start > 0][-1:]
    else:
        alike = [token for token in tokens if token.kind == first.kind != "word"][-1:]
    return before[: alike[0].start] if alike else ""


def _meant(
    parts: Sequence[StatementPart], correction: str, replaced: set[str]
) -> tuple[int, ...] | None:
    """The parts that a correction speaks of; none: of the whole; None: it cannot be told."""
    values = values_of(correction)
    words = set(content_words(correction))
    kinds = {kind for kind, _ in values}
    told = [{token.text for token in cut(part.said)} for part in parts]
    own = [set(content_words(part.said)) for part in parts]
    named = [
        bool(words & one.difference(*(own[:at] + own[at + 1 :]))) for at, one in enumerate(own)
    ]
    if all(named):
        return ()
    signs = (
        [bool(replaced) and replaced <= one for one in told],
        named,
        [bool(values & values_of(part.said)) for part in parts],
    )
    for sign in signs:
        if 0 < sum(sign) < len(parts):
            return tuple(at for at, meant in enumerate(sign) if meant)
    alike = [
        at for at, part in enumerate(parts) if kinds & {kind for kind, _ in values_of(part.said)}
    ]
    return None if len(alike) > 1 else tuple(alike)
