"""Answers that are meant for nobody: NO_REPLY alone is never shown, nor where it ends a reply.

Works on a stream: words are held back for as long as they could still become the token, then they
are let through, or never. Always holds: what is let through, joined, is what `shown_of` the whole
reply gives, however it was cut into pieces. A sentence about the word is a sentence.
"""

from __future__ import annotations

NO_REPLY = "NO_REPLY"
"""The word by which OpenClaw's agents say that there is nothing to say."""
_SENTENCE_ENDS = ".!?…"


class SilentFilter:
    """Holds a streamed reply back while it is not clear whether anybody is to see it."""

    def __init__(self) -> None:
        self._held = ""
        self._before = ""
        self._said_something = False
        self.silent = False
        """The reply is for nobody; known at its end."""

    def feed(self, text: str) -> str:
        """What of the words so far may be shown now."""
        seen = self._before + self._held + text
        at = max(len(self._before), _undecided_from(seen, begun=bool(self._before)))
        shown, self._held = seen[len(self._before) : at], seen[at:]
        self._before = seen[at - 1 : at]  # all that what follows depends on
        self._said_something |= bool(shown.strip())
        return shown

    def finish(self) -> str:
        """What was held back at the reply's end."""
        held, self._held = self._held, ""
        if _token_from(held, whole=True) == len(held):
            return held
        self.silent = not self._said_something
        return ""


def shown_of(text: str) -> str:
    """What of a whole reply is for somebody."""
    filtered = SilentFilter()
    return filtered.feed(text) + filtered.finish()


def is_silent(text: str) -> bool:
    """Whether a whole reply is for nobody: the token, and at most punctuation behind it."""
    filtered = SilentFilter()
    filtered.feed(text)
    filtered.finish()
    return filtered.silent


def _undecided_from(seen: str, *, begun: bool) -> int:
    """Where the end begins that may be a token, or become one; with the space before it.

    `begun`: the first character was shown before and only tells what the rest stands behind.
    """
    at = len(seen)
    while True:
        start = _token_from(seen[:at], whole=at < len(seen))
        before = len(seen[:start].rstrip())
        space = seen[before:start]
        stands_alone = (
            (before == 0 and not begun)
            or "\n" in space
            or (space != "" and seen[before - 1 : before] in _SENTENCE_ENDS)
        )
        if start == at or not stands_alone:
            return before if start == at == len(seen) else at
        at = before


def _token_from(seen: str, *, whole: bool) -> int:
    """Where a last word begins that is the token, or (unless `whole`) may become it; else the
    end."""
    end = len(seen)
    while end and not _is_of_word(seen[end - 1]):
        end -= 1
    start = end
    while start and _is_of_word(seen[start - 1]):
        start -= 1
    word = seen[start:end]
    if word == NO_REPLY:
        return start
    unfinished = not whole and word != "" and end == len(seen) and NO_REPLY.startswith(word)
    return start if unfinished else len(seen)


def _is_of_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"
