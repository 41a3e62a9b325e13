"""What parts weigh in tokens: the one place that turns messages into counts.

Text by the counter that is set, images by their size, and the few tokens each message and
call costs around its content. Estimates are before calibration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from recollect.config.settings import Counter
from recollect.rules.image_tokens import count_image
from recollect.rules.tokens import count_text, count_text_openclaw
from recollect.values.message import Image, Other, Part, Text, Thinking, ToolCall, ToolResult

MESSAGE_TOKENS = 4
"""Role and delimiters of one message; OpenAI's cookbook counts 3 to 4."""
CALL_TOKENS = 10
"""Id, name fields and delimiters around one tool call or result."""
SEALED_CHARS_A_TOKEN = 6
"""Encrypted reasoning is base64 of some encoding of the tokens it stands for."""
CARRIED_DATA_CHARS_A_TOKEN = 20
"""A document's base64 weighs far less than as text: providers read its pages."""
LONG_DATA_CHARS = 4096

CountText = Callable[[str], int]


class Weigher:
    """Counts parts with one text counter; stateless beyond that choice."""

    __slots__ = ("_count_text",)

    def __init__(
        self, counter: Counter = "script-aware", *, count: CountText | None = None
    ) -> None:
        chosen = count_text_openclaw if counter == "openclaw" else count_text
        self._count_text: CountText = count or chosen

    def message(self, parts: Iterable[Part]) -> int:
        """The estimate for one message of these parts."""
        return MESSAGE_TOKENS + sum([self.part(part) for part in parts])

    def text(self, text: str) -> int:
        """The estimate for bare text."""
        return self._count_text(text)

    def part(self, part: Part) -> int:
        """The estimate for one part."""
        if isinstance(part, Text):
            return self._count_text(part.text)
        if isinstance(part, ToolCall):
            return CALL_TOKENS + self._count_text(part.name) + self._count_text(part.arguments)
        if isinstance(part, ToolResult):
            return CALL_TOKENS + sum([self.part(inner) for inner in part.content])
        if isinstance(part, Thinking):
            return self._thinking(part)
        if isinstance(part, Image):
            return count_image(media_type=part.media_type, data=part.data)
        return self._carried(part)

    def _thinking(self, part: Thinking) -> int:
        if part.text:
            return self._count_text(part.text)
        return len(part.sealed or "") // SEALED_CHARS_A_TOKEN

    def _carried(self, part: Other) -> int:
        if len(part.payload) < LONG_DATA_CHARS or " " in part.payload[:LONG_DATA_CHARS]:
            return self._count_text(part.payload)
        return len(part.payload) // CARRIED_DATA_CHARS_A_TOKEN
