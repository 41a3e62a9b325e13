"""Statements that give a property a value: ports, limits, versions, places, schedules, names.

Owns which value of a statement is meant, and which property it belongs to. Must never guess
between two values: it says nothing instead. Always holds: values that are not the one meant
stay with the subject, so "node 3" and "node 4" are two things.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from recollect.facts.subjects.subject import UNTOLD, Subject, implied, name_of
from recollect.facts.subjects.values import Kind, Token, cut
from recollect.facts.subjects.words import FILLER, PROPERTIES, listed

_LINK_BEFORE: Final = re.compile(
    r"(?:\b(?:is|are|be|to|at|on|of|as|in|under|port|version|than|limit|for"
    r"|after)(?:\s+(?:now|only|just))?"
    r"|[=:≤<]|[是为到成至用在于多限听])[\s`\"']*$",
    re.IGNORECASE,
)
_LINK: Final = re.compile(
    (
        r"\s(?:is|are|was|be|to|as|called|named)(?:\s+now)?\s|\s?[=:]\s?|(?:改|换|调|变"
        r"|设)?[是为成到叫用]"
    ),
    re.IGNORECASE,
)
_LISTENS: Final = re.compile(
    r"\b(?:listen|bind|expos|run|serv|reachable|available|answer)\w*\b.*\bon\b"
    r"|\b(?:is|are|moved)\s(?:\w+\s)?(?:on|to)\b|监听|跑在|运行在",
    re.IGNORECASE,
)
_PLACED: Final = re.compile(
    r"\b(?:is|are|be|lives?|located|stored|kept|sits?|found|moved?|goes|go|put|saved|written|"
    r"points?|served|set|to|use)\b|[=:]|[在是放存到成为]",
    re.IGNORECASE,
)
_PLACE_WORDS: Final = listed(
    """
    published served available reachable accessible hosted
    url path endpoint route address host hostname link ip domain location file uri
    """
)
_TECHNOLOGIES: Final = listed(
    """
    python node java go go-language rust ruby php postgresql mysql redis mongodb react
    vue angular django flask rails spring kotlin swift typescript ubuntu debian alpine
    kubernetes docker terraform elasticsearch kafka rabbitmq nginx next.js gradle maven
    webpack vite jdk .net dotnet fastapi pydantic numpy pandas pytorch cuda npm pnpm yarn
    helm sqlite clang gcc cmake
    """
)
_SOME: Final = re.compile(r"\bthere (?:is|are)\b|有一?个", re.IGNORECASE)
_CANNOT_TELL: Final = Subject()
"""A property with several values: no other way of reading is tried."""
_PLAIN_PAST: Final = re.compile(r"(?<!ne)ed$")
_PAST_ALLOWED: Final = listed(
    """
    published served moved changed scheduled planned deployed
    located stored raised limited shared embedded distributed
    dedicated hosted managed rescheduled feed speed unused cached replicated
    """
)
_OF_A_NOUN: Final = re.compile(
    r"\s(?!at\b|on\b|in\b|and\b|from\b|(?:mon|tues|wednes|thurs|fri|satur|sun)day)[a-z]",
    re.IGNORECASE,
)
"""The weekly sync is one thing, the daily sync is another; neither is when it takes place."""
_SETTING: Final = re.compile(r"^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$|^[a-z]\w*(?:[._][a-z]\w*)+$|^`.+`$")
_LASTS: Final = re.compile(r"\b(?:lasts?|takes?)\b|持续|需要", re.IGNORECASE)
_SCHEDULE_KINDS: Final[tuple[Kind, ...]] = ("weekday", "time", "often", "date")


def property_of(text: str) -> Subject:
    """The property that a clause gives a value, by its noun, its verb, or the value's kind."""
    tokens = cut(text)
    for find in (_by_setting, _by_noun, _by_length, _by_version, _by_port, _by_place, _by_schedule):
        found = find(text, tokens)
        if found is _CANNOT_TELL:
            return UNTOLD
        if found != UNTOLD:
            return found
    return UNTOLD


def _by_noun(text: str, tokens: Sequence[Token]) -> Subject:
    words = {token.text: token for token in tokens if token.kind == "word"}
    for name, kinds in PROPERTIES:
        if name not in words:
            continue
        values = [token for token in tokens if token.kind in kinds.split()]
        value = _meant(text, values, words[name])
        if value is None and values:
            return _CANNOT_TELL
        if value is not None:
            left = [token for token in tokens if token is not value and token.text != name]
            return Subject(
                subject=name_of(left, leave_out=FILLER | implied(value)),
                attribute=name,
                value=value.text,
            )
        if "name" in kinds.split():
            return _named(text, tokens, words[name])
    return UNTOLD


def _meant(text: str, values: Sequence[Token], noun: Token) -> Token | None:
    """The value that is stated: the only one, the only one after a link, or before the noun."""
    linked = [value for value in values if _LINK_BEFORE.search(text[: value.start])]
    if len(linked) != 1:
        linked = [value for value in values if text[value.end : noun.start].strip("`") == " "]
    if len(values) == 1:
        return values[0]
    return linked[0] if len(linked) == 1 else None


def _named(text: str, tokens: Sequence[Token], noun: Token) -> Subject:
    """ "The default branch is develop", "develop is the default branch"."""
    after = _LINK.search(text, noun.end)
    before = _LINK.search(text, 0, noun.start)
    if after is not None:
        value = [token for token in tokens if token.start >= after.end()]
        rest = [token for token in tokens if token.end <= after.start() and token is not noun]
    elif before is not None:
        value = [token for token in tokens if token.end <= before.start()]
        rest = [token for token in tokens if token.start >= before.end() and token is not noun]
    else:
        return UNTOLD
    said = [token.text for token in value if token.text not in FILLER]
    if not 1 <= len(said) <= 3:
        return UNTOLD
    return Subject(subject=name_of(rest), attribute=noun.text, value=" ".join(said))


def _by_setting(text: str, tokens: Sequence[Token]) -> Subject:
    """ "Set MAX_RETRIES to 5", "`pool.size` is 20"."""
    names = [token for token in tokens if _SETTING.match(token.written)]
    link = _LINK.search(text, names[0].end) if names else None
    if link is None or names[0].kind not in {"word", "name"}:
        return UNTOLD
    value = [token for token in tokens if token.start >= link.end() and token.text not in FILLER]
    left = [token for token in tokens if token.end <= link.start()]
    if len(value) != 1:
        return UNTOLD
    return Subject(subject=name_of(left), attribute="value", value=value[0].text)


def _by_length(text: str, tokens: Sequence[Token]) -> Subject:
    lengths = [token for token in tokens if token.kind == "duration"]
    if len(lengths) != 1 or not _LASTS.search(text):
        return UNTOLD
    left = [token for token in tokens if token is not lengths[0]]
    words = FILLER | {"last", "lasts"} | implied(lengths[0])
    return Subject(
        subject=name_of(left, leave_out=words), attribute="duration", value=lengths[0].text
    )


def _by_version(text: str, tokens: Sequence[Token]) -> Subject:
    for before, token in pairwise(tokens):
        numbered = token.kind == "version" or (
            token.kind == "number" and before.text in _TECHNOLOGIES
        )
        if not numbered or before.kind != "word":
            continue
        if re.search(r"\bfor\b", text[token.end :]):
            return UNTOLD
        left = [other for other in tokens if other is not token]
        return Subject(subject=name_of(left), attribute="version", value=token.text)
    return UNTOLD


def _by_port(text: str, tokens: Sequence[Token]) -> Subject:
    numbers = [
        token
        for token in tokens
        if token.kind == "number"
        and (":" in token.written or (token.text.isdigit() and 1000 <= int(token.text) <= 65535))
    ]
    if len(numbers) != 1 or not (":" in numbers[0].written or _LISTENS.search(text)):
        return UNTOLD
    if ":" not in numbers[0].written and not _LINK_BEFORE.search(text[: numbers[0].start]):
        return UNTOLD
    left = [token for token in tokens if token is not numbers[0]]
    return Subject(subject=name_of(left), attribute="port", value=numbers[0].text)


def _by_place(text: str, tokens: Sequence[Token]) -> Subject:
    places = [token for token in tokens if token.kind in {"path", "url", "host", "region"}]
    if (
        len(places) != 1
        or not _PLACED.search(text)
        or _tells_the_past(tokens)
        or _SOME.search(text)
    ):
        return UNTOLD
    left = [token for token in tokens if token is not places[0]]
    return Subject(
        subject=name_of(left, leave_out=FILLER | _PLACE_WORDS),
        attribute=places[0].kind,
        value=places[0].text,
    )


def _by_schedule(text: str, tokens: Sequence[Token]) -> Subject:
    whens = [
        token
        for token in tokens
        if token.kind in _SCHEDULE_KINDS
        and not (token.kind == "often" and _OF_A_NOUN.match(text, token.end))
    ]
    if not whens or _tells_the_past(tokens) or _is_entry(text, whens):
        return UNTOLD
    left = [token for token in tokens if token not in whens]
    value = " ".join(sorted(token.text for token in whens))
    subject = name_of(left, leave_out=FILLER | {"am", "pm", "day", "time"})
    attribute = "date" if all(token.kind == "date" for token in whens) else "schedule"
    return Subject(subject=subject, attribute=attribute, value=value)


def _is_entry(text: str, whens: Sequence[Token]) -> bool:
    """A line of a timetable, "9:00: break" or "9 to 10 break": there may be many of the kind."""
    times = [token for token in whens if token.kind == "time"]
    return len(times) > 1 or (text.isascii() and not text[: whens[0].start].strip(" *-#|"))


def _tells_the_past(tokens: Sequence[Token]) -> bool:
    """Whether something was done at a place or time, rather than is there or then."""
    return any(
        token.kind == "word"
        and _PLAIN_PAST.search(token.text)
        and token.text not in _PAST_ALLOWED
        and token.text not in FILLER
        for token in tokens
    )
