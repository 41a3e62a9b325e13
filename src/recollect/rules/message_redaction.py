"""Messages as they may be read for what is kept of them: names, probes, summaries, excerpts.

Owns `redact_entries`. A name that is taken from a message stands alone afterwards, without the
label that gave a secret away, so it has to be taken from the message as it is masked. What one
message masks is masked in all of them: a model repeats a password without saying that it is one.
Never changes keys, ids, order or the number of parts. Always pure, and linear in the messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from recollect.config.settings import Redaction
from recollect.rules.json_redaction import redact_json_text
from recollect.rules.redaction import MOST_KNOWN_SECRETS, redact, secrets_in
from recollect.rules.segment_text import segment_text
from recollect.values.history import Entry
from recollect.values.message import Image, Message, Other, Part, Text, Thinking, ToolCall

_MOST_PASSES = 2
"""The second masks in earlier messages what only a later one gives away."""


@dataclass(slots=True)
class TextMask:
    """Masks texts, and remembers what it masked for the texts that follow. Never stored."""

    settings: Redaction
    secrets: dict[str, None] = field(default_factory=dict, repr=False)
    """The newest of them, as far as they are known by themselves. Threads share it."""
    masked: int = 0
    """How many stretches of texts were masked."""

    def text(self, text: str) -> str:
        """The text as it may be kept."""
        if not self.settings.enabled or not text:
            return text
        done = redact(text, pii=self.settings.pii, known=tuple(self.secrets))
        if done.spans:
            self.masked += len(done.spans)
            self._remember(secrets_in(text, done.spans))
        return done.text

    def json(self, text: str) -> str:
        """JSON as it may be kept; what is none is taken for text."""
        if not self.settings.enabled or not text:
            return text
        changed, found = redact_json_text(text, pii=self.settings.pii, known=tuple(self.secrets))
        self._remember(found)
        return changed

    def body(self, raw: bytes) -> tuple[bytes, bool]:
        """A JSON body as it may be kept, and whether it is as it came."""
        text = raw.decode("utf-8", "surrogateescape")
        changed = self.json(text)
        return (
            (raw, True) if changed is text else (changed.encode("utf-8", "surrogateescape"), False)
        )

    def message(self, message: Message) -> Message:
        """The message with its parts masked, and its JSON likewise."""
        if not self.settings.enabled:
            return message
        if len(message.parts) > 1:  # a label may stand in one part, its secret in the next
            self.text(segment_text(message).text)
        parts = tuple([self._part(part) for part in message.parts])
        if parts == message.parts:
            return message
        return replace(message, parts=parts, raw=self.body(message.raw)[0])

    def _remember(self, found: dict[str, None]) -> None:
        self.secrets.update(found)
        for oldest in list(self.secrets)[: max(0, len(self.secrets) - MOST_KNOWN_SECRETS)]:
            self.secrets.pop(oldest, None)

    def _part(self, part: Part) -> Part:
        if isinstance(part, Text | Thinking):
            return replace(part, text=self.text(part.text))
        if isinstance(part, ToolCall):
            return replace(part, name=self.text(part.name), arguments=self.json(part.arguments))
        if isinstance(part, Image):
            return replace(part, address=self.text(part.address)) if part.address else part
        if isinstance(part, Other):
            return replace(part, payload=self.json(part.payload))
        content = tuple([self._part(inner) for inner in part.content])
        assert all(isinstance(inner, Text | Image | Other) for inner in content)
        return replace(part, content=content, name=part.name and self.text(part.name))  # type: ignore[arg-type]


def redact_entries(entries: Sequence[Entry], mask: TextMask) -> tuple[Entry, ...]:
    """The entries with their messages masked; `mask` knows all of their secrets afterwards."""
    masked = tuple(entries)
    for _ in range(_MOST_PASSES):
        known = len(mask.secrets)
        masked = tuple([_masked(entry, mask) for entry in masked])
        if len(mask.secrets) == known:
            break
    return masked


def _masked(entry: Entry, mask: TextMask) -> Entry:
    message = mask.message(entry.message)
    if message is entry.message:
        return entry
    return replace(entry, message=message, raw=message.raw)
