"""What a wire format demands of a conversation, as data that pairing works from."""

from __future__ import annotations

from dataclasses import dataclass

from recollect.values.request import FormatName


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRules:
    """The shape a provider accepts; sources in notes on each codec."""

    format: FormatName
    alternates: bool
    """User and assistant take turns, and a user begins."""
    results_share_a_message: bool
    """Results are the first parts of the user message after the calls, not messages."""
    results_adjacent: bool
    """Results stand right behind the message that called."""
    refuses_blank_text: bool
    thinking_leads: bool = False
    """A reasoning item must be followed by the item that it led to."""
    ids_unique: bool = False
    """A call id stands once in the whole request, and holds plain characters only."""
    provider_calls_answered: bool = False
    """A call of a tool that the provider runs needs its result, unless it is still at work."""
    stand_in_variants: frozenset[str] | None = None
    """Kinds of call a text result can answer; None for all."""
