"""Recognises standing instructions: what the user wants from now on, not only now.

"Always answer in metric units" bears on questions that share no word with it, so no search for
words or meaning finds it. Messages of this kind are marked when they are indexed, always come as
candidates, and are lifted. Must never mark what was said in passing: it takes a short message that
begins as an order and says that it is to last. English and Chinese. What always holds: the same
message is marked or not, in any process.
"""

from __future__ import annotations

import re
from typing import Final

STANDING_WORD: Final = "is=standing"
"""What passages of standing instructions are indexed by."""
_MOST_CHARS: Final = 300

_LASTING: Final = re.compile(
    r"\b(?:always|never|from\ (?:now|here)\ on|going\ forward|in\ (?:the\ )?future"
    r"|(?:whenever|every\ time|each\ time|any\ ?time|when|if)\ i\ (?:ask|say|tell|mention|want"
    r"|request|talk|write|send|give|share|need|use)\b"
    r"|don'?t\ (?:ever|forget)|keep\ in\ mind|remember\ (?:to|that))"
    r"|以后|从现在起|今后|总是|永远|每次|一律|务必",
    re.IGNORECASE | re.VERBOSE,
)
_ORDER: Final = re.compile(
    r"\W*(?:(?:please|also|and|so|ok(?:ay)?)\b\W*)*(?:(?:always|never|from\ (?:now|here)\ on"
    r"|going\ forward|in\ (?:the\ )?future|whenever|when\ i|if\ i|every\ time|each\ time|make\ sure"
    r"|be\ sure|don'?t|do\ not|remember|keep|use|include|format|provide|avoid|mention|give|answer"
    r"|reply|respond|write|call)\b|请|以后|从现在起|今后|每次|不要|务必|记住|一律)",
    re.IGNORECASE | re.VERBOSE,
)


def is_standing(text: str) -> bool:
    """Whether a user's message asks for something that is to last."""
    return (
        len(text) <= _MOST_CHARS
        and not text.rstrip().endswith(("?", "？"))
        and _LASTING.search(text) is not None
        and _ORDER.match(text) is not None
    )
