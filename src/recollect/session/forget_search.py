"""Whether an entry of a transcript says what is to be forgotten.

Owns how a text is found in it: any string that somebody said, and the text that the archive would
keep of it. Pure. Always holds: ids, names of models, images and signatures are not taken for
words; a short message is found where it is all that was said, never inside another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from recollect.formats.held_text import HeldText
from recollect.formats.json_spans import encode
from recollect.formats.pi import PiCodec
from recollect.formats.pi_session import PiEntry
from recollect.memory.masking.masks import strings_in
from recollect.memory.matching import compiled
from recollect.rules.redaction import redact
from recollect.rules.segment_text import segment_text, without_thinking
from recollect.session.forget_blank import said_in, said_in_message

LEAST_CHARS: Final = 12
"""A shorter text is forgotten where it is all that was said, not wherever it stands: "yes, do
it" is part of too much."""

_CODEC: Final = PiCodec()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeantEntries:
    """What is to go from a transcript; the ways add up."""

    matching: str | None = field(default=None, repr=False)
    """Whatever holds this text, case aside."""
    said: tuple[str, ...] = field(default=(), repr=False)
    """Texts of messages, as the archive kept them."""
    pattern: str | None = field(default=None, repr=False)
    """Whatever a part of which this regular expression matches."""
    before: float | None = None
    """Whatever was said before, in seconds; with `after`, between the two."""
    after: float | None = None
    """Whatever was said from then on, in seconds."""

    @property
    def nothing(self) -> bool:
        """Whether nothing at all is meant."""
        texts = self.matching is not None or self.pattern is not None or bool(self.said)
        return not texts and self.before is None and self.after is None


class EntrySearch:
    """What is looked for, made ready once; `said` are the messages, comparable."""

    def __init__(self, meant: MeantEntries) -> None:
        self._matching = HeldText(meant.matching) if meant.matching else None
        self._pattern = None if meant.pattern is None else compiled(meant.pattern)
        self._before = None if meant.before is None else round(meant.before * 1000)
        self._after = None if meant.after is None else round(meant.after * 1000)
        self.said = tuple(text for text in map(comparable, meant.said) if text)
        self._held = tuple([HeldText(one) for one in meant.said if len(one.strip()) >= LEAST_CHARS])

    def holds(self, text: str) -> bool:
        """Whether a string holds the text that is asked for."""
        if self._matching is not None and self._matching.stands_in(text):
            return True
        return self._pattern is not None and self._pattern.search(text) is not None

    @property
    def by_age_alone(self) -> bool:
        """Whether all before a moment goes, however old it is."""
        return self._before is not None and self._after is None

    def is_timely(self, milliseconds: int) -> bool:
        """Whether what was said then goes by its time."""
        if self._before is None and self._after is None:
            return False
        return (self._before is None or milliseconds < self._before) and (
            self._after is None or milliseconds >= self._after
        )

    def unread_line(self, line: bytes) -> bool:
        """Whether a line that is no entry holds a text that goes."""
        held = (*self._held, *(() if self._matching is None else (self._matching,)))
        if any(one.stands_in(line) for one in held):
            return True
        return self._pattern is not None and any(map(self.holds, strings_in(line, keys=True)))

    def entry(self, entry: PiEntry) -> bool:
        """Whether an entry goes by what it says."""
        strings = list(said_in(entry.value))
        if any(map(self.holds, strings)):
            return True
        text = text_of(entry)
        if text is None:
            return any(map(self._text_goes, strings))
        return self.holds(text) or self._text_goes(text, result=entry.role == "toolResult")

    def message(self, message: Mapping[str, Any]) -> bool:
        """Whether a message that a compaction carries goes."""
        at = message.get("timestamp")
        if isinstance(at, int | float) and at > 0 and self.is_timely(int(at)):
            return True
        text = _message_text(message)
        if any(map(self.holds, (*said_in_message(message), text))):
            return True
        return self._text_goes(text, result=message.get("role") == "toolResult")

    def _text_goes(self, text: str, *, result: bool = False) -> bool:
        if not self.said:
            return False
        forms = {comparable(text), comparable(without_thinking(text))}
        return any(_is_of(form, said, result=result) for form in forms for said in self.said)


def _is_of(text: str, said: str, *, result: bool) -> bool:
    """Whether a text is the one said or holds it; a result may also be a part of it, since
    results of several calls are one message for some providers."""
    if not text:
        return False
    if text == said or (len(said) >= LEAST_CHARS and said in text):
        return True
    return result and len(text) >= LEAST_CHARS and f"\n{text}\n" in f"\n{said}\n"


def comparable(text: str) -> str:
    """A text as it compares: archive and transcript mask secrets each in its own way."""
    return redact(text, pii=False).text.strip()


def text_of(entry: PiEntry) -> str | None:
    """What the archive would keep of an entry; None for what is no message."""
    if entry.message is not None:
        return _message_text(entry.message)
    if entry.kind == "custom_message":
        return _message_text({"role": "user", "content": entry.value.get("content")})
    return None


def _message_text(message: Mapping[str, Any]) -> str:
    return segment_text(_CODEC.read(encode(dict(message)))).text
