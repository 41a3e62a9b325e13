"""Tells a clerk's counter, where many customers speak, from the session of one user.

Owns what such a session looks like: the clerk asks for the number of an order or a reservation, and
the talk is of little else. There "my e-mail" is that of whoever stands there, and a later
customer's must never take its place. Must never take a developer's talk of users and orders for
one. What always holds: only the beginnings of messages are looked at; pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from recollect.values.segment import Segment

_ASKED_FOR: Final = re.compile(
    r"\byour (?:\w+ ){0,2}(?:user|customer|reservation|booking|order|confirmation|membership"
    r"|tracking|patient|member)(?:'s)? (?:id|number|code)\b"
    r"|\b(?:customer|airline|retail|support|service) agent\b"
    r"|请(?:您)?提供.{0,12}(?:订单|会员|预订|卡)号",
    re.IGNORECASE,
)
_SERVED: Final = re.compile(
    r"\b(?:reservation|booking|refund|membership|gift card|passenger|itinerary|certificate"
    r"|cancell?ation|baggage|checked bag|shipment|delivery|return label|warranty|exchange"
    r"|policy)s?\b|订单|退款|会员|退货|物流|预订",
    re.IGNORECASE,
)
_LEAST_SERVED: Final = 2
_MOST_CHARS: Final = 3_000
"""Of each message: a clerk asks in a few sentences, an operator's page says early whose it is."""
_CASE: Final = re.compile(
    r"\b(?:i|i'm|i've|i'd|i'll|my|me|mine|your|you|you're|we|our|let's|we'll)\b|我|您|你"
    r"|\bthe (?:\w+ )?(?:reason|total|reservation|passenger|departure|return|outbound|booking"
    r"|refund|fare|confirmation number|flights?|costs?|price|cancellation|order|payment"
    r"|gift cards?)\b|^use |^it's |\bfor this\b"
)


def of_a_case(low: str) -> bool:
    """Whether a folded sentence speaks of whoever is speaking, or of their affair."""
    return _CASE.search(low) is not None


def at_a_counter(before: Iterable[Segment]) -> bool:
    """Whether a clerk serves customers here, so that "my" is nobody's in particular."""
    asked = False
    served: set[str] = set()
    for one in before:
        if one.role in ("assistant", "system"):
            text = one.text[:_MOST_CHARS]
            asked = asked or _ASKED_FOR.search(text) is not None
            served.update(word.lower() for word in _SERVED.findall(text))
            if asked and len(served) >= _LEAST_SERVED:
                return True
    return False
