"""What a provider said when a request did not fit its context window.

Owns one value. It must never decide anything: recognising is the providers' part, recovering
the engine's. What always holds: a number is there only if the provider named it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class LimitDoubt(Enum):
    """Why a limit that an error names is not taken for the model's window."""

    BELOW_FLOOR = "smaller than the window of any model that is served"
    WIDER = "larger than the request that was refused"
    ECHOED = "the words that name it stand in the request itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """A request was too large, as told by an error message or by the usage of a reply."""

    pattern_name: str
    """The row of the table that recognised it, for reports."""
    provider: str | None = None
    """Whose wording it is; None where several share it. Not necessarily who was asked."""
    limit_tokens: int | None = None
    """The window or input limit that was exceeded: worth remembering for this model."""
    requested_tokens: int | None = None
    """What was held against the limit, room for the reply included where the provider adds it."""
    output_tokens: int | None = None
    """The part of `requested_tokens` that was room for the reply: asking for less may do."""
    limit_words: str = field(default="", repr=False, compare=False)
    """The words that name the limit, to tell a provider's own from an echo of the request."""
