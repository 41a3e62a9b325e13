"""Versions of a statement: which facts state the same property, what held when, what replaced it.

Owns the name of a property, who may replace whom, and chains of versions. Must never hide a gap: if
a version was forgotten, the chain continues after it and shows the gap. Pure; no answer depends on
the order of the facts given. Facts from OpenClaw's files name what superseded them but not when;
they held until that was said.

Trust: a speaker may replace what is trusted as much or less. The assistant may also replace what
the user said of the world (it changed the port), never what the user prefers or decided. Tools, and
what they fetched, replace nothing of higher trust. Only a person replaces what is pinned.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from recollect.core.rules.trust import is_below
from recollect.core.search.tokenize import tokenize
from recollect.core.values.fact import Change, Fact, FactDraft, FactId, fact_id
from recollect.core.values.segment import SegmentId, Trust

FIRST_SOURCES: Final = 4
LAST_SOURCES: Final = 12
"""How many of the messages that say the same a fact names: enough to show where it came from and
that it still holds, and an end for what a program says every minute."""

_STATED: Final = re.compile(
    r"(?P<left>.{1,300}?(?:\s|(?<=[\u3400-\u9fff])|[=:：]))"
    r"(?P<value>`[^`\n]{1,80}`|[^\s,;，；。`]{1,120})"
    r"(?:\s?(?:%|percent|[kmgt]i?b|ms|s|sec(?:ond)?s?|min(?:ute)?s?|h|hours?|days?|weeks?|times|utc"
    r"|秒|分钟|小时|天|点|次))?",
    re.IGNORECASE | re.DOTALL,
)
_EXACT: Final = re.compile(r"\d|\w[/@_]\w|://|^[~/`]|\w\.\w|\w-\w+-\w")
"""A number, a path, a host, an identifier."""
_NAMED: Final = re.compile(r"(?:\b(?:is|are|be|called|named)\s+|[=:：是为]\s?)$", re.IGNORECASE)
_ONLY_ONE: Final = re.compile(
    r"\b(?:favou?rite|preferred|default|current|main|primary)\b.*\b(?:is|are)\s+$",
    re.IGNORECASE | re.DOTALL,
)
_INDEFINITE: Final = re.compile(
    r"(?:an?|one|another|some|this|that|it|there|i|he|she|they)\b", re.IGNORECASE
)
_ADVERBS: Final = re.compile(r"\b(?:from now on|now|again|please|instead)\b", re.IGNORECASE)
_ARTICLES: Final = re.compile(r"\b(?:the|our|my|of)\b|的", re.IGNORECASE)
_LINKS: Final = re.compile(
    r"\b(?:is|are|was|be|been|will|should|called|named|set|changed?|moved?|increased|reduced|bumped"
    r"|listens?|runs?|uses?|lives?|to|at|on|in|from)\b|[=:：]"
    r"|(?:现在)?(?:改成|改为|改到|换成|换到|升级到|升到|设为|设置为|变成|是|为)",
    re.IGNORECASE,
)
_SIGNS: Final = re.compile(r"[^\W_]+|[./_-](?=\w)")
_FILLERS: Final = re.compile(r"\b(?:a|an|the|please|now|that|currently|just)\b|[的了吧]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """What a statement gives a value, and the value; all empty if code cannot tell."""

    subject: str = field(default="", repr=False)
    attribute: str = ""
    value: str = field(default="", repr=False)


def name_property(content: str) -> Property:
    """Name what a statement gives a value: "the staging API listens on port 8443".

    Only a statement that ends in an exact value is named, or one that says what something is
    called. Two statements of one name are about the same thing; a missed name costs nothing, since
    both statements are kept.
    """
    text = _ADVERBS.sub(" ", content).strip(" \t\n.!。！")
    match = _STATED.fullmatch(text)
    if match is None or _INDEFINITE.match(match["left"]):
        return Property()
    left, value = match["left"], match["value"]
    is_name = value[:1].isupper() and _NAMED.search(left) is not None
    if not (_EXACT.search(value) or is_name or _ONLY_ONE.search(left)) or not _LINKS.search(left):
        return Property()
    words = _SIGNS.findall(_LINKS.sub(" ", _ARTICLES.sub(" ", left)).casefold())
    if not words:
        return Property()
    return Property(
        subject=" ".join(sorted(set(words))), attribute="value", value=value.casefold().strip("`")
    )


def same_property(one: Fact | FactDraft, other: Fact | FactDraft) -> bool:
    """Whether two statements are about the same property of the same thing, by its name."""
    pair = (one.subject, one.attribute)
    if all(pair) and pair == (other.subject, other.attribute):
        return True
    named = name_property(one.content).subject
    return bool(named) and named == name_property(other.content).subject


def same_words(text: str, other: str) -> bool:
    """Whether two statements are the same but for articles, case and punctuation."""
    return _plain(text) == _plain(other)


def _plain(text: str) -> list[str]:
    return _SIGNS.findall(_FILLERS.sub(" ", text.casefold()))


def may_replace(old: Fact, *, by: Trust) -> bool:
    """Whether what is said with this trust may take the place of a fact."""
    if old.pinned:
        return False
    return not is_below(by, old.trust) or (by == "medium" and not is_users_word(old))


def is_users_word(old: Fact) -> bool:
    """Whether only the user may change it: the user's own preference or decision."""
    return old.trust == "high" and old.type in ("preference", "decision")


def new_fact(draft: FactDraft, *, now: float) -> Fact:
    """The fact that a statement becomes, following nothing yet."""
    return Fact(
        id=fact_id(draft.evidence, draft.content),
        type=draft.type,
        content=draft.content,
        context=draft.context,
        at=draft.at,
        sources=_once((*(span.segment for span in draft.evidence), *draft.lineage)),
        trust=draft.trust,
        words=tuple(tokenize(draft.content)),
        recorded_at=now,
        subject=draft.subject,
        attribute=draft.attribute,
        evidence=draft.evidence,
        made_by=draft.made_by,
        session=draft.session,
        joint=draft.joint,
    )


def place(new: Fact, versions: Sequence[Fact], *, change: Change) -> tuple[Fact, ...]:
    """The new fact in its place among the versions, then the versions that it closes."""
    closed = tuple(
        closed_by(old, new)
        for old in versions
        if held_at(old, new.at) and may_replace(old, by=new.trust)
    )
    later = sorted(
        (old for old in versions if old.at > new.at and may_replace(new, by=old.trust)),
        key=lambda old: old.at,
    )
    if closed:
        new = replace(new, change=change)
    if later:
        new = replace(new, valid_to=later[0].at, superseded_by=later[0].id)
    else:
        new = _inherit_end(new, versions, {fact.id for fact in closed})
    return (new, *closed)


def closed_by(old: Fact, new: Fact) -> Fact:
    """A fact as it is kept once another one has replaced it: both go by one name."""
    named = old if old.subject else new
    return replace(
        old,
        valid_to=new.at,
        superseded_by=new.id,
        subject=named.subject,
        attribute=named.attribute,
    )


def gain_source(fact: Fact, draft: FactDraft) -> tuple[Fact, ...]:
    """A known fact with the statement as one more source; nothing if it may not gain one.

    A fact's trust is that of its least trusted source, so that a less trusted one would lower it.
    A joint fact needs all its sources, and one that people wrote needs none: neither gains any.
    Of what is said again and again the first and the last times are kept.
    """
    added = [span for span in draft.evidence if span.segment not in fact.sources]
    if fact.joint or draft.joint or not fact.sources or not added or draft.trust != fact.trust:
        return ()
    sources = _once((*fact.sources, *(span.segment for span in added)))
    if len(sources) > FIRST_SOURCES + LAST_SOURCES:
        sources = (*sources[:FIRST_SOURCES], *sources[-LAST_SOURCES:])
    evidence = tuple(span for span in (*fact.evidence, *added) if span.segment in sources)
    return (replace(fact, sources=sources, evidence=evidence),)


def held_at(old: Fact, moment: float) -> bool:
    """Whether a fact held at this time; one that ended at an unknown time did not."""
    if old.at > moment:
        return False
    if old.valid_to is not None:
        return old.valid_to > moment
    return old.superseded_by is None


def _inherit_end(new: Fact, versions: Sequence[Fact], closed: Collection[FactId]) -> Fact:
    """Between a version and one that is not here to be seen: what ended the first ends this."""
    seen = {old.id for old in versions}
    ends = [old for old in versions if old.id in closed]
    if not ends or any(
        old.valid_to is None or old.superseded_by is None or old.superseded_by in seen
        for old in ends
    ):
        return new
    last = max(ends, key=lambda old: old.valid_to or 0.0)
    return replace(new, valid_to=last.valid_to, superseded_by=last.superseded_by)


def _once(ids: Iterable[SegmentId]) -> tuple[SegmentId, ...]:
    return tuple(dict.fromkeys(ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version in a chain."""

    fact: Fact = field(repr=False)
    until: float | None
    """Until when it held; None while it holds, and if that is unknown."""
    followed_by_gap: bool = False
    """What replaced it was forgotten or is not here: the next version is not its follower."""


def as_of(facts: Sequence[Fact], moment: float) -> tuple[Fact, ...]:
    """The facts that held at a moment, oldest first; give superseded ones too."""
    known = {fact.id: fact for fact in facts}
    holding = (fact for fact in known.values() if _holds_at(fact, moment, known))
    return tuple(sorted(holding, key=_order))


def versions(facts: Sequence[Fact], id: FactId) -> tuple[Version, ...]:  # noqa: A002
    """All versions of what a fact states, oldest first; empty if the fact is not here."""
    known = {fact.id: fact for fact in facts}
    if id not in known:
        return ()
    found_facts = sorted((known[fact_id] for fact_id in _linked(known, id)), key=_order)
    return tuple(
        Version(
            fact=fact,
            until=_end_of(fact, known),
            followed_by_gap=fact.superseded_by is not None and fact.superseded_by not in known,
        )
        for fact in found_facts
    )


def _order(fact: Fact) -> tuple[float, bool, float, str]:
    return (fact.at, fact.superseded_by is None, fact.recorded_at or 0.0, fact.id)


def _holds_at(fact: Fact, moment: float, known: Mapping[FactId, Fact]) -> bool:
    if fact.at > moment:
        return False
    end = _end_of(fact, known)
    if end is None:
        return fact.superseded_by is None
    return moment < end


def _end_of(fact: Fact, known: Mapping[FactId, Fact]) -> float | None:
    if fact.valid_to is not None or fact.superseded_by is None:
        return fact.valid_to
    follower = known.get(fact.superseded_by)
    return None if follower is None else max(follower.at, fact.at)


def _linked(known: Mapping[FactId, Fact], id: FactId) -> set[FactId]:  # noqa: A002
    """Whatever replaces or is replaced, in both directions; across a gap by the same name."""
    fact_ids: set[FactId] = set()
    waiting = [id]
    before: dict[FactId, list[FactId]] = {}
    same: dict[tuple[str, str], list[FactId]] = {}
    for fact in known.values():
        if fact.superseded_by is not None:
            before.setdefault(fact.superseded_by, []).append(fact.id)
        if fact.subject and fact.attribute:
            same.setdefault((fact.subject, fact.attribute), []).append(fact.id)
    while waiting:
        one = waiting.pop()
        if one in fact_ids:
            continue
        fact_ids.add(one)
        fact = known[one]
        if fact.superseded_by is not None:
            here = fact.superseded_by in known
            waiting.extend([fact.superseded_by] if here else before[fact.superseded_by])
        waiting.extend(before.get(one, ()))
        waiting.extend(same.get((fact.subject, fact.attribute), ()))
    return fact_ids
