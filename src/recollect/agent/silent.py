"""Answers that are meant for nobody: a reply that begins with NO_REPLY is never shown.

Works on a stream: words are held back for as long as they could still become NO_REPLY, then
either all of them are let through or none ever is. Always holds: what is let through, joined,
is the reply or nothing.
"""

from __future__ import annotations

NO_REPLY = "NO_REPLY"
"""The word by which OpenClaw's agents say that there is nothing to say."""


class SilentFilter:
    """Holds a streamed reply back until it is clear whether anybody is to see it."""

    def __init__(self) -> None:
        self._held = ""
        self._open = False
        self.silent = False
        """The reply is for nobody."""

    def feed(self, text: str) -> str:
        """What of the words so far may be shown now."""
        if self._open:
            return text
        if self.silent:
            return ""
        self._held += text
        said = self._held.lstrip()
        if len(said) <= len(NO_REPLY) and NO_REPLY.startswith(said):
            return ""  # undecided
        if is_silent(said):
            self.silent = True
            self._held = ""
            return ""
        return self._let_go()

    def finish(self) -> str:
        """What was held back at the reply's end."""
        if self._open or self.silent:
            return ""
        if is_silent(self._held):
            self.silent = True
            return ""
        return self._let_go()

    def _let_go(self) -> str:
        held, self._held, self._open = self._held, "", True
        return held


def is_silent(text: str) -> bool:
    """Whether a whole reply, or what has come of it, is for nobody."""
    said = text.lstrip()
    if not said.startswith(NO_REPLY):
        return False
    after = said[len(NO_REPLY) :][:1]
    return not (after.isalnum() or after == "_")
