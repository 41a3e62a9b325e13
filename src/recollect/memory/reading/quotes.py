"""Finds the words that a statement rests on in the message that said them.

Owns where a quotation stands and where its sentence begins and ends. Must never take similar words
for the same: white space, case, quotation marks and marks of emphasis aside, a quotation is there
letter by letter or it is not. What always holds: spans are of the text that was given. Pure, linear
in the text.
"""

from __future__ import annotations

from typing import Final

from recollect.rules.sentences import statement_spans

LEAST_WORD_CHARS: Final = 4
"""A shorter quotation stands in too many places to say where it came from."""
_PASSED_OVER: Final = frozenset(" \t\r\n\u00a0\u3000\u200b*`")
_SAME: Final = str.maketrans("“”„‘’，；：！？（）", '"""\'\',;:!?()')
_CUT_SHORT: Final = " .…\"'“”‘’`*"


def find_quote(quote: str, text: str, start: int = 0, end: int | None = None) -> tuple[int, int]:
    """Where a quotation stands in the text, within `start` and `end`; (0, 0) where it does not."""
    wanted = "".join(_plain(sign) for sign in quote.strip(_CUT_SHORT))
    if len(wanted) + 2 * sum(not sign.isascii() for sign in wanted) < LEAST_WORD_CHARS:
        return (0, 0)
    signs: list[str] = []
    places: list[int] = []
    for place in range(start, len(text) if end is None else end):
        for sign in _plain(text[place]):
            signs.append(sign)
            places.append(place)
    at = "".join(signs).find(wanted)
    return (0, 0) if at < 0 else (places[at], places[at + len(wanted) - 1] + 1)


def _plain(sign: str) -> str:
    return "" if sign in _PASSED_OVER else sign.translate(_SAME).casefold()


def sentences_around(text: str, start: int, end: int) -> tuple[int, int]:
    """The span of the sentences that this span reaches into."""
    reached = [
        (first, last)
        for first, last in statement_spans(text, 0, len(text))
        if first < end and start < last
    ]
    return (reached[0][0], reached[-1][1]) if reached else (start, end)


def sentence_before(text: str, start: int) -> str:
    """The sentence in front of the one that begins here; empty where there is none."""
    spans = list(statement_spans(text, 0, start))
    return text[spans[-1][0] : spans[-1][1]] if spans else ""


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order, none blank."""
    return [text[start:end] for start, end in statement_spans(text, 0, len(text))]
