"""What becomes of a turn whose reply did not come: which trouble it is, and what is told.

Pure; `steps` acts on it. For a request that did not fit, the engine learns the window and
compacts, preparing again shortens what is too long, and the request goes out once more. Never a
second retry, never a reset: when it fails again the history is as it was, and the error says what
can be done. What a provider refuses for another reason is not tried again at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.agent.events import Compacted, FailureKind
from recollect.errors import ModelOverflow, ModelRefused, ModelUnavailable, RecollectError
from recollect.values.model import Overflow

UNSAID = Overflow(pattern_name="unsaid")
"""A provider refused for size and said nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a reply did not come."""

    kind: FailureKind
    reason: str
    overflow: Overflow | None = field(default=None, repr=False)


def trouble_of(error: RecollectError) -> Trouble:
    """What an error means for the turn."""
    if isinstance(error, ModelOverflow):
        said = error.overflow
        overflow = said if isinstance(said, Overflow) else UNSAID
        return Trouble(kind="overflow", reason=str(error), overflow=overflow)
    if isinstance(error, ModelRefused):
        return Trouble(kind="refused", reason=str(error))
    if isinstance(error, ModelUnavailable):
        return Trouble(kind="unavailable", reason=str(error))
    return Trouble(kind="model", reason=str(error))


def silent_trouble(overflow: Overflow) -> Trouble:
    """A reply that came although its request did not fit."""
    reason = f"the request was larger than the window ({overflow.pattern_name})"
    return Trouble(kind="overflow", reason=reason, overflow=overflow)


def gave_up(trouble: Trouble, made: Compacted | None) -> str:
    """What the user is told when a turn could not be finished."""
    if trouble.kind == "overflow":
        why = "" if made is None else f" Compaction: {made.result.reason}."
        return (
            f"The request still does not fit the model's window.{why} Nothing was lost: the "
            "conversation is as it was. Try /compact with what matters, a model with a larger "
            "window, or /new for a fresh session."
        )
    if trouble.kind == "refused":
        return f"The provider refused the request: {trouble.reason}"
    return f"The model did not answer: {trouble.reason}"
