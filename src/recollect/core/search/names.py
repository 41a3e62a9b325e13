"""Finds names in questions and of speakers, and detects German. An unknown name is evidence that
memory has no answer. Passages that begin with a speaker (`Name: …`) are indexed with the word
`by=name`. A label such as "Note:" is not a speaker."""

from __future__ import annotations

import re
from typing import Final

from recollect.core.search.dates import MONTH_NUMBERS, WEEKDAYS
from recollect.core.search.tokenize import STOP_WORDS, tokenize

_WORDS: Final = re.compile(r"[^\W_]+(?:['’.\-][^\W_]+)*")
_SENTENCE_ENDS: Final = re.compile(r"[.!?:;\n\"“(]\s*$|^\s*$")
_MONTHS: Final = frozenset(MONTH_NUMBERS)
_WEEKDAYS: Final = frozenset((*WEEKDAYS, *(name[:3] for name in WEEKDAYS), "tues", "thur", "thurs"))
_NO_NAMES: Final = _MONTHS | _WEEKDAYS | STOP_WORDS | {"today", "yesterday", "tomorrow"}
# Words that name days or months only if capitalized: "the sun sat on the mon".
_DOUBTFUL: Final = frozenset({"may", "march", "mar", "jan", "dec", "sun", "sat", "mon", "wed"})
_SHOUTED_INNER: Final = 3
_TITLED_WORDS, _TITLED_SHARE = 6, 0.6
"""In a text of at least this many words, with more than this share capitalized, capitals mark no
names."""
# German function words that English lacks. Only lower case counts: names may begin with them.
_GERMAN: Final = re.compile(
    r"\b(?:das|dem|ein|ist|sind|sollst|nicht|und|oder|wir|ihr|ich|wird|werden|wurden?|haben?"
    r"|eine[mnrs]?|keine?[mnrs]?|auf|für|über|nach|vom|zum|zur|beim|bei|mit|seit|aus|unsere?[mnrs]?"
    r"|meine?[mnrs]?|deine?[mnrs]?|kommt|kostet|gibt|heißt|läuft|liegt|steht|geht|macht|muss|soll|kann"
    r"|darf|noch|schon|nur|aber|wenn|weil|dass"
    r"|[Hh]ast|[Bb]ist|[Kk]annst|[Ww]illst|[Mm]usst|[Dd]arfst|[Ww]eißt|[Mm]achst|[Bb]rauchst"
    r"|[Ww]elche[mnrs]?|[Ww]er|[Ww]em|[Ww]ann|[Ww]arum|wen|wie|wo)\b"
)
# German function words that English or French has too. One of them alone proves nothing.
_ALSO_GERMAN: Final = re.compile(r"\b(?:der|die|den|des|du|was|hat|war|im|es|er|sie|von)\b", re.I)
_ASKS_IN_GERMAN: Final = re.compile(
    r"\W*(?:Wann|Wer|Wem|Welche[mnrs]?|Warum|Wieso|Weshalb|Wieviele?|Wo(?:her|hin|mit|für|bei|gegen"
    r"|ran|rum))\s|\W*(?:Wie|Wo|Wen)\s+(?:[a-z]*[äöüß]|[a-z]+(?:t|en)\b)"
)
_GERMAN_WORDS: Final = 2
"""A text with this many different German words is German, where all nouns are capitalized."""
GERMAN_STOP_WORDS: Final = frozenset(
    tokenize(
        "der die das den dem des ein eine einen einem einer eines und oder aber wenn weil "
        "dass ob als wie was wer wen wem wo wann warum welche welcher welches welchen welchem "
        "ich du er sie es wir ihr mich dich sich uns euch mir dir ihm ihn ihnen mein meine "
        "meinem meinen meiner dein deine sein seine unser unsere unserem unseren unserer euer "
        "ist sind war waren bin bist wird werden wurde wurden hat haben hatte hatten habe "
        "kann können soll sollen muss müssen darf dürfen will nicht kein keine auch noch "
        "schon nur so da dort hier in im an am auf aus bei beim mit nach von vom vor zu zum "
        "zur für über unter um durch gegen ohne bis seit viel viele gibt mal doch denn "
        "wieso weshalb wieviel woher wohin womit wofür wogegen heißt heisst kostet läuft liegt "
        "steht geht macht nehmen nimmt sollst "
    )
)
"""Common German words, which queries omit. The index contains them."""
_LEAST_LETTERS: Final = 2  # a single letter is no name
_YEAR: Final = re.compile(r"(?:19|20)\d\d")
_DAY: Final = re.compile(r"(?:[12]?\d|3[01])(?:st|nd|rd|th)?")


def is_german(text: str) -> bool:
    """Return whether a text is German, by its function words."""
    if _ASKS_IN_GERMAN.match(text):
        return True
    words = set(_GERMAN.findall(text))
    all_words = words | set(_ALSO_GERMAN.findall(text))
    return bool(words) and len(all_words) + ("ß" in text) >= _GERMAN_WORDS


def names_in(question: str) -> tuple[tuple[str, ...], ...]:
    words = list(_WORDS.finditer(question))
    inner = [match for match in words if not _begins_sentence(question, match)]
    capitalized_words = [match for match in inner if match[0][:1].isupper()]
    shouted = len(inner) >= _SHOUTED_INNER and len(capitalized_words) == len(inner)
    titled = len(words) >= _TITLED_WORDS and len(capitalized_words) > _TITLED_SHARE * len(words)
    if shouted or titled or is_german(question):
        return ()
    names: list[tuple[str, ...]] = []
    for match in capitalized_words:
        word = match[0].removesuffix("'s").removesuffix("’s")
        # acronyms such as "DB" and "API" are not names
        if len(word) < _LEAST_LETTERS or word.isupper() or word.lower() in _NO_NAMES:
            continue
        parts = tuple(dict.fromkeys(tokenize(word)))
        if parts:
            names.append(parts)
    return tuple(names)


def _begins_sentence(question: str, match: re.Match[str]) -> bool:
    return _SENTENCE_ENDS.search(question[max(0, match.start() - 4) : match.start()]) is not None


def date_words_in(question: str) -> frozenset[str]:
    """Return the words of a question that name a date. No message contains its own date."""
    words = [match[0] for match in _WORDS.finditer(question)]
    lowercase_words = [word.lower() for word in words]
    certain = [
        low not in _DOUBTFUL or (word[0].isupper() and not (index == 0 and low in ("may", "march")))
        for index, (word, low) in enumerate(zip(words, lowercase_words, strict=True))
    ]
    months = {
        index for index, low in enumerate(lowercase_words) if low in _MONTHS and certain[index]
    }
    found: set[str] = set()
    for index, low in enumerate(lowercase_words):
        is_weekday = low in _WEEKDAYS and certain[index]
        is_near_month = any(neighbor in months for neighbor in range(index - 2, index + 3))
        is_day = is_near_month and _DAY.fullmatch(low) is not None
        if index in months or is_weekday or is_day or _YEAR.fullmatch(low):
            found.update(tokenize(low))
    return frozenset(found)


_SPEAKER: Final = re.compile(
    r"\s*(?P<name>[^\W\d_][\w'’.\-]{0,30}(?: [^\W\d_][\w'’.\-]{0,30}){0,2})\s?[:：]\s"
)
# Labels before a colon that are not names of speakers.
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
_SPEAKER_WORDS: Final = re.compile(r"[\w'’.\-]+")
_MARK: Final = "by="
_MOST_ASKED: Final = 16  # not measured; bounds the query
SPEAKS_FROM: Final = 3
"""Number of messages that must begin with a name before it counts as a speaker's."""


def speaker_of(text: str) -> str:
    """Return the speaker's name at the beginning of a message, or ""."""
    match = _SPEAKER.match(text)
    if match is None:
        return ""
    words = match["name"].split()
    is_capitalized = words[0][0].isupper() and words[-1][0].isupper()
    label = words[-1].lower() in _LABELS or words[0].lower() in _LABELS
    return (
        match["name"] if is_capitalized and not label and not _FAILURE.fullmatch(words[0]) else ""
    )


def speaker_word(name: str) -> str:
    return _MARK + name.lower()


def speaker_words(name: str) -> tuple[str, ...]:
    """Return the index words of a speaker's passages, for the whole name and for its first word."""
    return tuple(dict.fromkeys((speaker_word(name), speaker_word(name.split()[0]))))


def speaker_words_asked(question: str) -> tuple[str, ...]:
    """Return the index words of the speakers that a question names."""
    return tuple(map(speaker_word, speaker_names_asked(question)))


def speaker_names_asked(question: str) -> tuple[str, ...]:
    """Return the possible names in a question: capitalized words, and adjacent pairs of them."""
    names: list[str] = []
    before = ""
    for match in _SPEAKER_WORDS.finditer(question):
        word = match[0].rstrip(".").removesuffix("'s").removesuffix("’s").removesuffix("'")
        if word[:1].isupper():
            names.append(word)
            if before:
                names.append(f"{before} {word}")
            before = word
        else:
            before = ""
    return tuple(dict.fromkeys(names))[:_MOST_ASKED]
