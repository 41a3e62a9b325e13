"""The codec of each wire format, by name."""

from __future__ import annotations

from typing import Protocol

from recollect.formats.anthropic import AnthropicCodec
from recollect.formats.openai_chat import OpenAIChatCodec
from recollect.formats.openai_responses import OpenAIResponsesCodec
from recollect.formats.pi import PiCodec
from recollect.values.message import Message
from recollect.values.request import FormatName
from recollect.values.slot import Slot
from recollect.values.wire import WireRules


class Codec(Protocol):
    """Reads one message of a wire format, and writes rows that are not as they came."""

    @property
    def rules(self) -> WireRules:
        """What the format demands."""
        ...

    def read(self, raw: bytes) -> Message:
        """Read one message; lenient, never raises on JSON it does not understand."""
        ...

    def compose(self, slot: Slot) -> bytes:
        """Write one row; deterministic: the same slot gives the same bytes."""
        ...


CODECS: dict[FormatName, Codec] = {
    "anthropic": AnthropicCodec(),
    "openai-chat": OpenAIChatCodec(),
    "openai-responses": OpenAIResponsesCodec(),
    "pi": PiCodec(),
}
