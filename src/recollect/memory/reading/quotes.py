"""Finds the words that a statement rests on in the message that said them.

Owns where a quotation stands and where its sentence begins and ends. Must never take similar words
for the same: white space, case, quotation marks and marks of emphasis aside, a quotation is there
letter by letter or it is not. What always holds: spans are of the text that was given. Pure, linear
in the text.
"""

from __future__ import annotations

from typing import Final

from recollect.rules.text import statement_spans

LEAST_WORD_CHARS: Final = 4
"""A shorter quotation stands in too many places to say where it came from."""
BEFORE_CHARS: Final = 600
"""As far back a sentence is looked for: twice as much as is kept of one (rules/sentences.py)."""
_BLOCK_CHARS: Final = 1_000
_SAME: Final = str.maketrans("“”„‘’，；：！？（）", '"""\'\',;:!?()', " \t\r\n\u00a0\u3000\u200b*`")
"""Signs that are the same in a quotation, and those that are passed over."""
_CUT_SHORT: Final = " .…\"'“”‘’`*"


def find_quote(quote: str, text: str, start: int = 0, end: int | None = None) -> tuple[int, int]:
    """Where a quotation stands in the text, within `start` and `end`; (0, 0) where it does not."""
    wanted = _plain(quote.strip(_CUT_SHORT))
    if len(wanted) + 2 * sum(not sign.isascii() for sign in wanted) < LEAST_WORD_CHARS:
        return (0, 0)
    end = len(text) if end is None else min(end, len(text))
    at = _plain(text[start:end]).find(wanted)
    if at < 0:
        return (0, 0)
    return (_place(text, start, end, at), _place(text, start, end, at + len(wanted) - 1) + 1)


def _plain(text: str) -> str:
    return text.translate(_SAME).casefold()


def _place(text: str, start: int, end: int, at: int) -> int:
    """Where the sign stands in a text that is number `at` of it when it is plain."""
    for block in range(start, end, _BLOCK_CHARS):
        size = len(_plain(text[block : min(block + _BLOCK_CHARS, end)]))
        if at >= size:
            at -= size
            continue
        for place in range(block, end):
            at -= len(_plain(text[place]))
            if at < 0:
                return place
    return end


def sentences_around(
    text: str, start: int, end: int, *, first: int = 0, last: int | None = None
) -> tuple[int, int]:
    """The span of the sentences that this span reaches into, looked for from `first` to `last`."""
    last = len(text) if last is None else min(last, len(text))
    reached = [
        (begin, stop)
        for begin, stop in statement_spans(text, max(first, 0), last)
        if begin < end and start < stop
    ]
    return (reached[0][0], reached[-1][1]) if reached else (start, end)


def sentence_before(text: str, start: int) -> str:
    """The sentence in front of the one that begins here; empty where there is none, and the end
    of a very long one."""
    spans = list(statement_spans(text, max(start - BEFORE_CHARS, 0), start))
    return text[spans[-1][0] : spans[-1][1]] if spans else ""


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order, none blank."""
    return [text[start:end] for start, end in statement_spans(text, 0, len(text))]
