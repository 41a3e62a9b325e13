"""What may replace what, and what is near enough to be about the same: decided by code alone.

Owns the guards that hold for rules and for models. Must never let a statement hide one that is
trusted more. Always holds: whether one fact closes another depends on the two of them and not on
the order in which they arrived, unless they were said at the same time.

Trust: who is trusted as much may replace. The assistant may also replace what the user said of
the world (it changed the port), never what the user prefers, decided or forbade. Tools and what
they fetched replace nothing of higher trust. Nobody but a person replaces what is pinned.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from recollect.facts.subjects import Subject, name_subject
from recollect.facts.tokens import FILLER, Token, cut
from recollect.rules.trust import TRUST_ORDER
from recollect.search.tokenize import tokenize
from recollect.values.fact import Fact, FactDraft, FactType
from recollect.values.segment import Trust

Operation: TypeAlias = Literal["add", "update", "supersede", "none", "refused"]
"""What became of a statement."""

_RANKS: Final = {trust: place for place, trust in enumerate(reversed(TRUST_ORDER))}
_LEAST_SHARED: Final = 2
_LEAST_SHARE: Final = 0.7
_CORRECTING_SHARE: Final = 0.5
"""How many words, values aside, two statements must share where code has no name for one of them:
two, and this share of the longer one; less where the speaker said it is a correction. Words
alone cannot tell a correction from a look-alike: a model that always says "supersede" joins 70 of
123 corrections and 3 of 95 look-alikes at this share, 87 and 12 at 0.6
(test_reconcile_model.py)."""
_STATED: Final = re.compile(
    r"(?P<left>[^=:：]{1,200}?)(?:\s(?:is|are|will be|should be)(?: now)?(?: called| named"
    r"| set to)?\s|\s?[=:：]\s?|(?:现在)?(?:是|为|改成|改为))(?P<value>\S{1,80}(?:\s\S{1,40})?)",
    re.IGNORECASE,
)
_INDEFINITE: Final = re.compile(
    r"(?:an?|one|another|some|this|that|these|those|it|there|he|she|they|what|who)\b", re.IGNORECASE
)
_ONLY_ONE: Final = frozenset(
    {
        *("favourite", "favorite", "preferred", "default", "usual"),
        *("current", "latest", "main", "primary", "only", "official"),
    }
)
""" "My favourite colour is teal": there is one, so that any other word replaces it."""
_ARTICLES: Final = re.compile(r"\b(?:a|an|the|please|now|that|currently|just)\b|[的了吧]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a statement is about, and how sure that is."""

    subject: str = field(default="", repr=False)
    attribute: str = field(default="", repr=False)
    value: str = field(default="", repr=False)
    certain: bool = False
    """Named by code, so that whoever has the same name is about the same."""

    @property
    def told(self) -> bool:
        """Whether it has a name at all."""
        return bool(self.subject and self.attribute)


def named(statement: Fact | FactDraft) -> Named:
    """By code where it can tell; by what the statement carries elsewhere, which is a hint.

    A correction carries the name of what it followed, and that is as good as one by code: "make
    that 9000" is about the port of the staging API.
    """
    subject = name_subject(statement.content, statement.type)
    if isinstance(statement, Fact) and _inherited(statement, subject):
        value = subject.value or _only_value(statement.content)
        return Named(
            subject=statement.subject, attribute=statement.attribute, value=value, certain=True
        )
    if subject.told:
        return Named(
            subject=subject.subject, attribute=subject.attribute, value=subject.value, certain=True
        )
    return Named(
        subject=statement.subject or subject.subject,
        attribute=statement.attribute or subject.attribute,
        value=subject.value,
    )


def named_words(content: str, type: FactType) -> Named:  # noqa: A002
    """What words are about, by code alone."""
    subject = name_subject(content, type)
    return Named(
        subject=subject.subject,
        attribute=subject.attribute,
        value=subject.value,
        certain=subject.told,
    )


def _inherited(fact: Fact, subject: Subject) -> bool:
    if fact.made_by != "rules" or fact.change is None or not (fact.subject and fact.attribute):
        return False
    if not subject.told:
        return True
    return subject.attribute == fact.attribute and set(subject.subject.split()) < set(
        fact.subject.split()
    )


def _only_value(content: str) -> str:
    values = [text for _, text in values_of(content)]
    return values[0] if len(values) == 1 else ""


def same_name(one: Named, other: Named) -> bool:
    """Whether two statements are about the same property of the same thing."""
    return one.told and (one.subject, one.attribute) == (other.subject, other.attribute)


def rank(trust: Trust) -> int:
    """How much a trust is worth; more is more."""
    return _RANKS[trust]


def may_replace(old: Fact, *, by: Trust) -> bool:
    """Whether what is said with this trust may take the place of a fact."""
    if old.pinned:
        return False
    if rank(by) >= rank(old.trust):
        return True
    return by == "medium" and not is_users_word(old)


def is_users_word(old: Fact) -> bool:
    """Whether it is for the user alone to change: a preference, a decision, a rule."""
    return old.trust == "high" and (
        _is_will(old.type) or name_subject(old.content, old.type).attribute == "rule"
    )


def _is_will(type: FactType) -> bool:  # noqa: A002
    return type in {"preference", "decision"}


def same_words(text: str, other: str) -> bool:
    """Whether two statements are the same but for articles, case and punctuation."""
    return _plain(text) == _plain(other)


def _plain(text: str) -> list[str]:
    return re.findall(r"[^\W_]+|[./_-](?=\w)", _ARTICLES.sub(" ", text.casefold()))


def content_words(text: str) -> tuple[str, ...]:
    """What a statement is made of, beside its values and what says nothing, in its order."""
    words: dict[str, None] = {}
    for token in cut(text):
        if token.kind in {"word", "name"} and token.text not in FILLER:
            stems = tokenize(token.written) if token.written.isascii() else ()
            words.setdefault(stems[0] if stems else token.text)
    return tuple(words)


def values_of(text: str) -> frozenset[tuple[str, str]]:
    """The values that stand in a statement, with their kinds."""
    return frozenset(
        (token.kind, token.text) for token in cut(text) if token.kind not in {"word", "name"}
    )


def near(text: str, other: str, *, share: float = _LEAST_SHARE) -> bool:
    """Whether two statements share enough words, in one order, to be about the same."""
    left, right = content_words(text), content_words(other)
    shared = [word for word in left if word in right]
    return (
        len(shared) >= max(_LEAST_SHARED, share * max(len(left), len(right)))
        and [word for word in right if word in left] == shared
    )


def same_property(text: str, other: str) -> bool:
    """Whether two statements give one thing two values of a kind, in the same words.

    "The codename is Falcon", "the codename is Eagle": for what a person writes down, where code
    has no name for the property. What has several ("the service is slow", "the service is in Go")
    is told by the kinds of the values: only exact ones are compared, and words only of what is
    said to be one.
    """
    ours, theirs = _stated(text), _stated(other)
    return ours is not None and theirs is not None and ours[:2] == theirs[:2] and ours != theirs


def _stated(content: str) -> tuple[tuple[str, ...], str, str] | None:
    """What has a value, the value's kind, and the value; None for any other form."""
    match = _STATED.fullmatch(content.strip(" .!。"))
    if match is None or _INDEFINITE.match(match["left"]):
        return None
    left = tuple(token.text for token in cut(match["left"]) if token.text not in FILLER)
    tokens = cut(match["value"])
    if not left or not tokens or len(tokens) > 2:
        return None
    kind = _kind_of(match["value"], tokens)
    if not kind and len(tokens) == 1 and _ONLY_ONE.intersection(left):
        kind = "word"
    return (left, kind, " ".join(token.text for token in tokens)) if kind else None


def _kind_of(value: str, tokens: Sequence[Token]) -> str:
    """Of what kind an exact value is: a number, a path, a name …; empty for plain words."""
    if len(tokens) == 1 and tokens[0].kind != "word":
        return "number" if tokens[0].kind == "version" else tokens[0].kind
    if any(sign.isdigit() for sign in value):
        return "name" if len(tokens) == 1 else ""
    proper = all(token.kind == "word" and token.written[:1].isupper() for token in tokens)
    return "name" if proper or value[:1] in "\"“「'" else ""


def may_be_same(draft: FactDraft, about: Named, fact: Fact, known: Named) -> bool:
    """Whether a model may say that a statement follows a fact.

    Where code has names for both, they must be one name. A correction may also leave out or add
    words: "the API's port", said of what was "the staging API's port". Where code has no name for
    one of them, they must be near.
    """
    if about.certain and known.certain:
        if same_name(about, known):
            return True
        ours, theirs = set(about.subject.split()), set(known.subject.split())
        return (
            draft.corrects
            and about.attribute == known.attribute
            and (ours <= theirs or theirs <= ours)
        )
    share = _CORRECTING_SHARE if draft.corrects or draft.replaces else _LEAST_SHARE
    return draft.type == fact.type and near(draft.content, fact.content, share=share)
