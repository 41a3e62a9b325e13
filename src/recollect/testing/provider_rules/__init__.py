"""What providers refuse, checked from the outside.

Owns: one function, `violations`, that reads a decoded request body as the provider's own validator
would and names every rule it breaks, and `unfaithful`, the rules that need the request as the
client sent it (signed thinking, reasoning and its item).
Never: imports the code it judges (pairing, codecs, stages), repairs anything, changes the body.
Always: an empty list means that no rule known to us refuses this body; each rule's docstring or
comment says where its wording comes from. Where hosts of one format differ, the strictest holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recollect.testing.provider_rules import anthropic, openai_chat, openai_responses, pi
from recollect.testing.provider_rules.violation import Violation, unfaithful

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["FORMAT_NAMES", "RULES", "Violation", "unfaithful", "violations"]

_CHECKS: Mapping[str, Callable[[Mapping[str, Any]], list[Violation]]] = {
    "openai-chat": openai_chat.check,
    "openai-responses": openai_responses.check,
    "pi": pi.check,
}
_REUSED_IDS: Mapping[str, Callable[[Mapping[str, Any]], list[Violation]]] = {
    "anthropic": anthropic.reused_ids,
    "openai-chat": openai_chat.reused_ids,
    "openai-responses": openai_responses.reused_ids,
    "pi": pi.reused_ids,
}

FORMAT_NAMES: tuple[str, ...] = tuple(_REUSED_IDS)
"""The formats we can judge."""

RULES: Mapping[str, tuple[str, ...]] = {
    "anthropic": anthropic.RULES,
    "openai-chat": openai_chat.RULES,
    "openai-responses": openai_responses.RULES,
    "pi": pi.RULES,
}
"""Every rule name `violations` can report, by format."""


def violations(
    format_name: str,
    body: Mapping[str, Any],
    *,
    ids_unique_across_messages: bool = False,
    betas: Iterable[str] = (),
) -> list[Violation]:
    """Name every rule of `format_name` that `body` breaks; empty when it would be accepted.

    By default a call id may be used again later in the conversation as long as each use is
    answered in its own place. Anthropic itself wants ids unique in the whole request
    (openclaw#4700, #43370; NeMo Switchyard#502): `ids_unique_across_messages` holds that too and
    reports it as `call-id-reused`; our own tests ask for it. `betas` are the beta features that the
    request's headers name: one of Anthropic's allows system messages between the turns.
    """
    if format_name not in FORMAT_NAMES:
        raise ValueError(f"{format_name!r} is none of {', '.join(FORMAT_NAMES)}")
    if format_name == "anthropic":
        found_violations = anthropic.check(body, betas)
    else:
        found_violations = _CHECKS[format_name](body)
    if ids_unique_across_messages:
        found_violations += _REUSED_IDS[format_name](body)
    return found_violations
