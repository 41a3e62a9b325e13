"""A statement that a person gives, made ready to be held against what is known.

Owns its words as they are stored (redacted, like everything that is), its type where nobody named
one, and its id. Pure. Never rests on a message: what people write is its own evidence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final

from recollect.core.facts.history import name_property
from recollect.core.rules.redaction import redact
from recollect.core.rules.text import clean_text
from recollect.core.values.fact import Fact, FactDraft, FactId, FactType, MadeBy
from recollect.core.values.segment import Trust
from recollect.errors import RecollectError
from recollect.system.config.settings import Redaction

MOST_CHARS: Final = 2_000
"""Facts are short: a block gives all of them together 30% of at most some thousand tokens."""
_ID_BYTES: Final = 12
_TELLS_TYPE: Final[tuple[tuple[FactType, re.Pattern[str]], ...]] = (
    (
        "preference",
        re.compile(
            r"\b(?:i|i'm|my|me|always|never|only|please)\b|^\W*(?:keep|do not|don.t)\b",
            re.IGNORECASE,
        ),
    ),
    (
        "task_state",
        re.compile(
            r"\b(?:todo|not yet|still (?:to|has|have|needs?|missing|open)|remaining|pending|blocked"
            r"|in progress|unfinished|finished|done|completed|waiting for)\b",
            re.IGNORECASE,
        ),
    ),
    (
        "issue",
        re.compile(
            r"\b(?:bugs?|errors?|crash\w*|fail(?:s|ed|ing|ures?)?|broken|breaks|leaks?|flaky|wrong"
            r"|duplicates|regression|outage|(?:do|does|is|are)(?: not|n't) work\w*)\b",
            re.IGNORECASE,
        ),
    ),
    (
        "decision",
        re.compile(
            r"^\W*(?:use|adopt|drop|switch|migrate|move|ship)\b"
            r"|\b(?:instead of|rather than|decided|decision|chose|agreed|replaces"
            r"|go(?:ing)? with)\b",
            re.IGNORECASE,
        ),
    ),
    (
        "architecture",
        re.compile(
            r"\b(?:architecture|event[- ](?:driven|bus)|micro-?services?|monolith|layers?|layered"
            r"|hexagonal|cqrs|pub/?sub|talks? to|single-page|replicas?|(?:api|message) (?:gateway"
            r"|queue|broker)|services)\b",
            re.IGNORECASE,
        ),
    ),
    (
        "implementation",
        re.compile(
            r"\b(?:endpoint|function|class|method|module|table|handler|route|generator"
            r"|(?:stored|lives?|implemented|handled|written) (?:in|by|as|with)|calls)\b"
            r"|\s/\w+|\w\(\)|\b\w+\.(?:py|[jt]sx?|rs|go|java|rb|c|h|cpp|sql|sh)\b",
            re.IGNORECASE,
        ),
    ),
    ("config", re.compile(r"\d|[A-Z]{2,}_[A-Z]|\w=\w")),
)
"""Words that tell the type of a statement; the first line that matches decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenStatement:
    """What a person wants to be known."""

    content: str = field(repr=False)
    type: FactType | None = None
    """None: its words tell it."""
    subject: str = field(default="", repr=False)
    at: float
    """Since when it holds."""
    made_by: MadeBy = "user"
    trust: Trust = "high"


def stored_words(text: str, settings: Redaction) -> tuple[str, int]:
    """A text as it may be written, and how many secrets were masked in it."""
    said = clean_text(text).strip()
    if not said:
        raise RecollectError("there is nothing in that statement; say what is to be known")
    if len(said) > MOST_CHARS:
        raise RecollectError(
            f"a fact has at most {MOST_CHARS:,} characters; shorten the statement, or keep it as a "
            "note with `recollect memory add`"
        )
    if not settings.enabled:
        return said, 0
    masked = redact(said, pii=settings.pii)
    return masked.text, len(masked.spans)


def draft_of(statement: WrittenStatement) -> FactDraft:
    """The statement as a draft, with its type and what it is about, as far as its words tell."""
    named = name_property(statement.content)
    return FactDraft(
        type=statement.type or _type_of(statement.content),
        content=statement.content,
        at=statement.at,
        evidence=(),
        trust=statement.trust,
        made_by=statement.made_by,
        subject=statement.subject or named.subject,
        attribute=named.subject if statement.subject else named.attribute,
    )


def with_own_id(fact: Fact) -> Fact:
    """The fact under an id of its own: said again later, the same words are another version."""
    named = f"{fact.at!r}\0{fact.recorded_at!r}\0{fact.content}"
    hashed = blake2b(
        named.encode("utf-8", "surrogatepass"), digest_size=_ID_BYTES, person=b"recollect-wrote"
    )
    return replace(fact, id=FactId(hashed.hexdigest()))


def _type_of(content: str) -> FactType:
    """The type of the first pattern that matches; else a property with a value is a setting, and
    anything else the writer's wish."""
    told = next((type_ for type_, tells in _TELLS_TYPE if tells.search(content)), None)
    if told is not None:
        return told
    return "config" if name_property(content).subject else "preference"
