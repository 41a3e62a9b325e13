"""Versions of a fact: the values of one property over time. Code decides which statement replaces
which fact. Old versions remain; forgotten ones leave a gap. A statement may replace facts with the
same or lower trust. The assistant may replace the user's statements about the world, not
preferences or decisions. Tools replace nothing of higher trust. Only a user replaces a pinned
fact."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from recollect.core.facts.support import content_words
from recollect.core.rules.trust import is_below
from recollect.core.search.tokenize import tokenize
from recollect.core.values.fact import (
    Change,
    EvidenceSpan,
    Fact,
    FactDraft,
    FactId,
    FactType,
    MadeBy,
    fact_id,
)
from recollect.core.values.segment import SegmentId, StoredSegment, Trust

WriteOutcome: TypeAlias = Literal["added", "replaced", "known", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactFilter:
    """Conditions that selected facts meet. Without any condition, all facts are selected."""

    types: tuple[FactType, ...] = ()
    """Select facts of one of these types; empty selects all."""
    trusts: tuple[Trust, ...] = ()
    """Select facts with one of these trusts; empty selects all."""
    made_by: tuple[MadeBy, ...] = ()
    """Select facts of one of these authors; empty selects all."""
    session: str | None = None
    """Session that the fact was extracted from."""
    as_of: float | None = None
    """Select facts that were valid at this time; None selects those that are valid now."""
    superseded: bool = False
    """True to include replaced facts."""
    search: str = field(default="", repr=False)
    """Select facts that contain all of these words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactWritten:
    """The result of adding a statement of the user."""

    outcome: WriteOutcome
    fact: Fact | None = None
    replaced: tuple[Fact, ...] = ()
    reason: str = ""
    masked: int = 0

    def __str__(self) -> str:
        """Return the outcome, the current fact, and the facts that it replaced, one per line."""
        lines = [f"{self.outcome}: {self.reason if self.fact is None else self.fact}"]
        lines += [f"in place of: {fact}" for fact in self.replaced]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactPinned:
    """The result of pinning or unpinning a fact."""

    fact: Fact
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FactVersion:
    """One version of a fact, or the gap of a forgotten version."""

    fact: Fact | None
    """The fact; None for a gap."""
    id: FactId | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactHistory:
    """The versions of a fact, oldest first."""

    versions: tuple[FactVersion, ...]

    @property
    def facts(self) -> tuple[Fact, ...]:
        return tuple(version.fact for version in self.versions if version.fact is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactSource:
    """A message that supports a fact, with the spans that state it."""

    id: SegmentId
    stored: StoredSegment | None
    """The message; None if it is no longer stored."""
    spans: tuple[EvidenceSpan, ...] = ()
    lost_spans: int = 0
    """Number of spans that the text lacks, because it has been redacted since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactWhy:
    """The messages that support a fact."""

    fact: Fact
    sources: tuple[FactSource, ...]
    rests_on: Fact | None = None
    """If a user rewrote the fact: the earlier version that these `sources` support."""


FIRST_SOURCES: Final = 4  # not measured; bounds a fact that is often repeated
LAST_SOURCES: Final = 12
"""Maximum number of messages that a fact names as its sources."""

_STATED: Final = re.compile(
    r"(?P<left>.{1,300}?(?:\s|(?<=[\u3400-\u9fff])|[=:：]))"
    r"(?P<value>`[^`\n]{1,80}`|[^\s,;，；。`]{1,120})"
    r"(?:\s?(?:%|percent|[kmgt]i?b|ms|s|sec(?:ond)?s?|min(?:ute)?s?|h|hours?|days?|weeks?|times|utc"
    r"|秒|分钟|小时|天|点|次))?",
    re.IGNORECASE | re.DOTALL,
)
_EXACT: Final = re.compile(r"\d|\w[/@_]\w|://|^[~/`]|\w\.\w|\w-\w+-\w")
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
    """A property that a statement is about, and its value; both empty if code cannot find them."""

    subject: str = field(default="", repr=False)
    attribute: str = ""
    value: str = field(default="", repr=False)


def name_property(content: str) -> Property:
    """Find the property in a statement that ends with an exact value, such as "the API listens on
    port 8443". Statements with the same property name are about the same property."""
    text = _ADVERBS.sub(" ", content).strip(" \t\n.!。！")
    match = _STATED.fullmatch(text)
    if match is None or _INDEFINITE.match(match["left"]):
        return Property()
    subject_text, value = match["left"], match["value"]
    is_name = value[:1].isupper() and _NAMED.search(subject_text) is not None
    if not (_EXACT.search(value) or is_name or _ONLY_ONE.search(subject_text)) or not _LINKS.search(
        subject_text
    ):
        return Property()
    words = _SIGNS.findall(_LINKS.sub(" ", _ARTICLES.sub(" ", subject_text)).casefold())
    if not words:
        return Property()
    return Property(
        subject=" ".join(sorted(set(words))), attribute="value", value=value.casefold().strip("`")
    )


def same_property(first: Fact | FactDraft, second: Fact | FactDraft) -> bool:
    """Return whether two statements are about the same property of the same subject."""
    pair = (first.subject, first.attribute)
    if all(pair) and pair == (second.subject, second.attribute):
        return True
    property_subject = name_property(first.content).subject
    return bool(property_subject) and property_subject == name_property(second.content).subject


def same_words(text: str, other: str) -> bool:
    """Return whether two statements differ only in articles, case and punctuation."""
    first, second = (_FILLERS.sub(" ", version.casefold()) for version in (text, other))
    return _SIGNS.findall(first) == _SIGNS.findall(second)


def may_replace(fact: Fact, *, by: Trust) -> bool:
    """Return whether a statement with this trust level may replace the fact."""
    if fact.pinned:
        return False
    return not is_below(by, fact.trust) or (by == "medium" and not is_users_word(fact))


def is_users_word(fact: Fact) -> bool:
    """Return whether only the user may change the fact: the user's own preference or decision."""
    return fact.trust == "high" and fact.type in ("preference", "decision")


def new_fact(draft: FactDraft, *, now: float) -> Fact:
    return Fact(
        id=fact_id(draft.evidence, draft.content),
        type=draft.type,
        content=draft.content,
        context=draft.context,
        at=draft.at,
        sources=tuple(dict.fromkeys((*(span.segment for span in draft.evidence), *draft.lineage))),
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


def place(new_fact: Fact, versions: Sequence[Fact], *, change: Change) -> tuple[Fact, ...]:
    """Return the new fact, valid until the next version, then the versions whose validity it
    ends."""
    ended_facts = tuple(
        close_fact(old_fact, new_fact)
        for old_fact in versions
        if is_valid_at(old_fact, new_fact.at) and may_replace(old_fact, by=new_fact.trust)
    )
    later_facts = [
        old_fact
        for old_fact in versions
        if old_fact.at > new_fact.at and may_replace(new_fact, by=old_fact.trust)
    ]
    next_fact = min(later_facts, key=lambda old_fact: old_fact.at, default=None)
    if ended_facts:
        new_fact = replace(new_fact, change=change)
    if next_fact is not None:
        new_fact = replace(new_fact, valid_to=next_fact.at, superseded_by=next_fact.id)
    else:
        new_fact = _inherit_end(new_fact, versions, {fact.id for fact in ended_facts})
    return (new_fact, *ended_facts)


def close_fact(old_fact: Fact, new_fact: Fact) -> Fact:
    """Return the old fact, replaced by the new one, with the same property name as the new one."""
    property_source = old_fact if old_fact.subject else new_fact
    return replace(
        old_fact,
        valid_to=new_fact.at,
        superseded_by=new_fact.id,
        subject=property_source.subject,
        attribute=property_source.attribute,
    )


def gain_source(fact: Fact, draft: FactDraft) -> tuple[Fact, ...]:
    """Add a statement as one more source of a fact. Return nothing if the source would lower the
    fact's trust, or if the fact is joint or written by a user."""
    new_spans = [span for span in draft.evidence if span.segment not in fact.sources]
    if fact.joint or draft.joint or not fact.sources or not new_spans or draft.trust != fact.trust:
        return ()
    sources = tuple(dict.fromkeys((*fact.sources, *(span.segment for span in new_spans))))
    if len(sources) > FIRST_SOURCES + LAST_SOURCES:
        sources = (*sources[:FIRST_SOURCES], *sources[-LAST_SOURCES:])
    evidence = tuple(span for span in (*fact.evidence, *new_spans) if span.segment in sources)
    return (replace(fact, sources=sources, evidence=evidence),)


def _inherit_end(new_fact: Fact, versions: Sequence[Fact], ended_ids: Collection[FactId]) -> Fact:
    version_ids = {old_fact.id for old_fact in versions}
    ends = [old_fact for old_fact in versions if old_fact.id in ended_ids]
    if not ends or any(
        old_fact.valid_to is None
        or old_fact.superseded_by is None
        or old_fact.superseded_by in version_ids
        for old_fact in ends
    ):
        return new_fact
    last = max(ends, key=lambda old_fact: old_fact.valid_to or 0.0)
    return replace(new_fact, valid_to=last.valid_to, superseded_by=last.superseded_by)


def as_of(facts: Sequence[Fact], moment: float) -> tuple[Fact, ...]:
    """Return the facts that were valid at this time, oldest first. Pass replaced facts too."""
    facts_by_id = {fact.id: fact for fact in facts}
    valid_facts = [fact for fact in facts if is_valid_at(fact, moment, facts_by_id)]
    return tuple(sorted(valid_facts, key=_order))


def fact_history(fact: Fact, facts: Sequence[Fact]) -> FactHistory:
    """Return all versions of a fact in `facts`, oldest first, with gaps for forgotten ones."""
    facts_by_id = {item.id: item for item in (*facts, fact)}
    versions = sorted((facts_by_id[id_] for id_ in _find_linked(facts_by_id, fact.id)), key=_order)
    successor_ids = {version.superseded_by for version in versions}
    shown_versions: list[FactVersion] = []
    for version in versions:
        after_gap = bool(shown_versions) and shown_versions[-1].fact is None
        if version.change is not None and version.id not in successor_ids and not after_gap:
            shown_versions.append(FactVersion(fact=None))
        shown_versions.append(FactVersion(fact=version, until=_end_of(version, facts_by_id)))
        if version.superseded_by is not None and version.superseded_by not in facts_by_id:
            shown_versions.append(FactVersion(fact=None, id=version.superseded_by))
    return FactHistory(versions=tuple(shown_versions))


def _order(fact: Fact) -> tuple[float, bool, float, str]:
    return (fact.at, fact.superseded_by is None, fact.recorded_at or 0.0, fact.id)


def is_valid_at(
    fact: Fact, moment: float, facts_by_id: Mapping[FactId, Fact] = MappingProxyType({})
) -> bool:
    """Return whether a fact was valid at this time, and False if its end is unknown. `known`
    contains the facts that replaced others."""
    end = _end_of(fact, facts_by_id)
    if end is None:
        return fact.at <= moment and fact.superseded_by is None
    return fact.at <= moment < end


def _end_of(fact: Fact, facts_by_id: Mapping[FactId, Fact]) -> float | None:
    if fact.valid_to is not None or fact.superseded_by is None:
        return fact.valid_to
    follower = facts_by_id.get(fact.superseded_by)
    return None if follower is None else max(follower.at, fact.at)


def _find_linked(facts_by_id: Mapping[FactId, Fact], id: FactId) -> set[FactId]:  # noqa: A002
    """Return the ids of all versions of a fact, across gaps by the name of their property."""
    by_link: dict[object, list[FactId]] = {}
    for fact in facts_by_id.values():
        for link in _links(fact):
            by_link.setdefault(link, []).append(fact.id)
    found: set[FactId] = set()
    waiting = [id]
    while waiting:
        next_id = waiting.pop()
        if next_id not in found:
            found.add(next_id)
            waiting += [
                linked_id for link in _links(facts_by_id[next_id]) for linked_id in by_link[link]
            ]
    return found


def _links(fact: Fact) -> list[object]:
    """Return the values by which `_linked` finds other versions of this fact."""
    name = (fact.subject, fact.attribute)
    return [fact.id, *filter(None, [fact.superseded_by]), *([name] if all(name) else [])]


Operation: TypeAlias = Literal["add", "update", "supersede", "none", "refused"]

_LEAST_SHARED: Final = 2  # not measured; one word in common is chance
_LEAST_SHARE: Final = 0.8
"""Two statements with the same property name must share at least two words, and this share of their
words without values."""
_TOKENS: Final = re.compile(r"[\w./:@-]+")
_VALUE: Final = re.compile(r"\d|\w[_/@:.-]\w|^[a-z]+[A-Z]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """What a statement changes, and the facts to write for it."""

    operation: Operation
    facts: tuple[Fact, ...] = field(default=(), repr=False)
    reason: str


def other_value(before: str, now: str) -> bool:
    """Return whether the two texts contain different numbers, identifiers or values."""
    if _values_of(before) != _values_of(now):
        return True
    first_value, second_value = name_property(before).value, name_property(now).value
    return bool(first_value and second_value) and first_value != second_value


def _values_of(text: str) -> set[str]:
    tokens = (token.rstrip(".:-") for token in _TOKENS.findall(text))
    return {token for token in tokens if _VALUE.search(token)}


def _words_beside_values(text: str) -> frozenset[str]:
    return content_words(
        _TOKENS.sub(lambda match: "" if _VALUE.search(match[0]) else match[0], text)
    )


def settle(draft: FactDraft, known_facts: Sequence[Fact], *, now: float) -> Reconciled:
    """Decide what a statement changes. `known` are current facts that may be about the same
    property, and all versions with the same subject."""
    unique = {fact.id: fact for fact in known_facts}
    if fact_id(draft.evidence, draft.content) in unique:
        return Reconciled(operation="none", reason="recorded already")
    facts = list(unique.values())
    operation, followed_fact, reason = _decide(draft, facts)
    if operation == "none" and followed_fact is not None:
        return Reconciled(operation="none", facts=gain_source(followed_fact, draft), reason=reason)
    change: Change = "update" if operation == "update" else "supersede"
    # all versions have the same property name
    if followed_fact is not None and followed_fact.subject:
        draft = replace(draft, subject=followed_fact.subject, attribute=followed_fact.attribute)
    value = name_property(draft.content).value
    versions = [
        fact
        for fact in facts
        if fact is followed_fact
        or (same_property(draft, fact) and (value or _has_same_words(draft, fact)))
    ]
    protected_facts = [
        fact
        for fact in versions
        if is_valid_at(fact, draft.at) and not may_replace(fact, by=draft.trust)
    ]
    if draft.trust in ("low", "outside") and any(is_users_word(fact) for fact in protected_facts):
        return Reconciled(
            operation="refused", reason="a tool's output must not replace the user's own statement"
        )
    new_version, *ended_facts = place(new_fact(draft, now=now), versions, change=change)
    if protected_facts:
        reason += "; kept next to a fact that is pinned or more trusted"
    if new_version.superseded_by is not None:
        reason += "; older than the current fact, so it is stored as its history"
    return Reconciled(
        operation=change if ended_facts else "add", facts=(new_version, *ended_facts), reason=reason
    )


def _decide(draft: FactDraft, known_facts: Sequence[Fact]) -> tuple[Operation, Fact | None, str]:
    """Return how to treat a statement, the fact that it concerns (valid at its time), and why."""
    facts = sorted(
        (fact for fact in known_facts if is_valid_at(fact, draft.at)),
        key=lambda fact: (-fact.at, -(fact.recorded_at or 0.0), fact.id),
    )
    own_property = name_property(draft.content)
    same_facts = [fact for fact in facts if same_property(draft, fact)]
    said = [fact for fact in facts if same_words(draft.content, fact.content)]
    said += [
        fact
        for fact in same_facts
        if own_property.value and own_property.value == name_property(fact.content).value
    ]
    if said and is_below(said[0].trust, draft.trust):
        return "update", said[0], "said before by a less trusted source"
    if said:
        return "none", said[0], "said before"
    if own_property.value and same_facts:
        return "supersede", same_facts[0], "another value of the same property"
    likely = [fact for fact in same_facts if _has_same_words(draft, fact)]
    if len(likely) == 1 and other_value(likely[0].content, draft.content):
        reason = "the same subject and attribute by name, and enough of the same words"
        return "supersede", likely[0], reason
    if not own_property.subject:
        for fact in known_facts:
            if fact.at > draft.at and same_words(draft.content, fact.content):
                return "none", fact, "said again later"
    return "add", None, "no stored fact is about the same property"


def _has_same_words(draft: FactDraft, fact: Fact) -> bool:
    draft_subject = name_property(draft.content).subject
    fact_subject = name_property(fact.content).subject
    if draft_subject and fact_subject:
        return draft_subject == fact_subject
    draft_words = _words_beside_values(draft.content)
    fact_words = _words_beside_values(fact.content)
    least = max(_LEAST_SHARED, _LEAST_SHARE * max(len(draft_words), len(fact_words)))
    return draft.type == fact.type and len(draft_words & fact_words) >= least
