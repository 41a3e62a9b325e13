"""Holds a statement against what is known: it is new, says more, says otherwise, or is known.

Owns the order of the work: code decides where it can tell what both statements are about; only
where it cannot, and something known shares a word, a model is asked, once about all statements that
are open (`open_question`, `ask`); then the guards of `reconciling.guards` bind either decision.
Must never remove a fact, and never let a less trusted statement hide a better trusted one. Always
holds: whatever the model answers or does not answer, there is a result, and its reason says who
decided.

What may not replace a fact is kept beside it ("add"), with its own trust, because a user wants to
know that a tool saw another port than the one they named; which of the two to believe is plain
from the trust that the block shows. Only where the known fact is the user's own will (a
preference, a decision, a rule) and the statement comes from a tool, it is "refused": a tool's
text has no say in what the user wants, and beside it the statement would read as an instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from recollect.errors import ModelError
from recollect.facts.corrections import followed
from recollect.facts.history import gain_source, held_at, new_fact, place, remaining_fact
from recollect.facts.parts import Remainder, parts_of, remainder
from recollect.facts.questions import (
    MOST_CANDIDATES,
    Opinion,
    ReconcileQuestion,
    fitting,
    read_opinions,
    reconcile_prompt,
)
from recollect.facts.sameness import (
    Named,
    Operation,
    content_words,
    is_users_word,
    may_be_same,
    may_replace,
    named,
    named_words,
    near,
    rank,
    same_name,
    same_property,
    same_words,
    values_of,
)
from recollect.facts.tokens import cut
from recollect.ports import Model
from recollect.rules.tokens import spent_tokens
from recollect.values.fact import Change, Fact, FactDraft, fact_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a statement follows what is known, before any guard."""

    operation: Operation
    fact: Fact | None = field(default=None, repr=False)
    """Which fact it follows or repeats; None where it follows none."""
    certain: bool = False
    """Code can tell: nobody else is asked."""
    reason: str


def decide(draft: FactDraft, about: Named, known: Sequence[Fact]) -> Verdict:
    """What the rules say of a statement, given the facts that held when it was said."""
    for fact in known:
        if same_words(draft.content, fact.content):
            if rank(fact.trust) >= rank(draft.trust):
                return Verdict(operation="none", fact=fact, certain=True, reason="said before")
            reason = "said before by a less trusted source"
            return Verdict(operation="update", fact=fact, certain=True, reason=reason)
    names = [(fact, named(fact)) for fact in known]
    same = [(fact, name) for fact, name in names if same_name(about, name)]
    certain = [(fact, name) for fact, name in same if about.certain and name.certain]
    if certain:
        return _of_same(draft, about, certain)
    likely = [(fact, name) for fact, name in same if near(draft.content, fact.content)]
    if len(likely) == 1 and not values_of(draft.content) <= values_of(likely[0][0].content):
        reason = "the same subject and attribute by name, and enough of the same words"
        return Verdict(operation="supersede", fact=likely[0][0], reason=reason)
    return (
        _of_a_part(draft, about, known)
        or _replacing(draft, about, names)
        or _correcting(draft, known)
        or _by_hand(draft, known)
        or _nothing_known()
    )


def _nothing_known() -> Verdict:
    return Verdict(operation="add", reason="nothing known has this subject and attribute")


def _of_same(draft: FactDraft, about: Named, same: Sequence[tuple[Fact, Named]]) -> Verdict:
    """Among facts of the same name: the same value, the same in more detail, or another one."""
    for fact, name in same:
        ours, theirs = set(about.value.split()), set(name.value.split())
        if not ours <= theirs and not (theirs and theirs < ours):
            continue
        if rank(fact.trust) > rank(draft.trust):
            return Verdict(
                operation="none", fact=fact, certain=True, reason="known, better trusted"
            )
        if rank(fact.trust) < rank(draft.trust):
            reason = "known from a less trusted source"
            return Verdict(operation="update", fact=fact, certain=True, reason=reason)
        if theirs < ours or _more_detailed(draft.content, fact.content):
            reason = "the same value in more detail"
            return Verdict(operation="update", fact=fact, certain=True, reason=reason)
        return Verdict(operation="none", fact=fact, certain=True, reason="the same value is known")
    reason = "another value of the same subject and attribute"
    return Verdict(operation="supersede", fact=same[0][0], certain=True, reason=reason)


def _more_detailed(new: str, old: str) -> bool:
    ours, theirs = set(content_words(new)), set(content_words(old))
    return theirs < ours and len(ours) >= len(theirs) + 2


def _of_a_part(draft: FactDraft, about: Named, known: Sequence[Fact]) -> Verdict | None:
    """ "We use Redis 8": the one fact of several values that gives the same another value."""
    facts = [
        fact
        for fact in known
        if about.certain and any(same_name(about, named) for named in _named_parts(fact))
    ]
    if len(facts) != 1:
        return None
    if any(
        about.value == named.value and same_name(about, named) for named in _named_parts(facts[0])
    ):
        if rank(facts[0].trust) < rank(draft.trust):
            return None  # said now by somebody who is trusted more: that is kept, too
        reason = "the same value is known"
        return Verdict(operation="none", fact=facts[0], certain=True, reason=reason)
    reason = "another value of the same subject and attribute"
    return Verdict(operation="supersede", fact=facts[0], certain=True, reason=reason)


def _named_parts(fact: Fact) -> list[Named]:
    parts = parts_of(fact.content)
    return [named_words(part.text, fact.type) for part in parts] if len(parts) > 1 else []


def _by_hand(draft: FactDraft, known: Sequence[Fact]) -> Verdict | None:
    """What a person writes down replaces what gives the same thing another value of a kind."""
    if draft.made_by != "user":
        return None
    facts = [fact for fact in known if same_property(draft.content, fact.content)]
    if not facts:
        return None
    reason = "another value of what the same words name"
    return Verdict(operation="supersede", fact=facts[0], certain=True, reason=reason)


def _replacing(
    draft: FactDraft, about: Named, names: Sequence[tuple[Fact, Named]]
) -> Verdict | None:
    """ "9000, not 8000": the one fact that says 8000 of something this can be about."""
    replaced = {token.text for token in cut(draft.replaces)}
    if not replaced:
        return None
    facts = [
        fact
        for fact, name in names
        if _compatible(draft, about, fact, name)
        and replaced <= (set(name.value.split()) or {token.text for token in cut(fact.content)})
    ]
    if len(facts) != 1:
        return None
    reason = "it names the value that it replaces"
    return Verdict(operation="supersede", fact=facts[0], certain=True, reason=reason)


def _compatible(draft: FactDraft, about: Named, fact: Fact, name: Named) -> bool:
    if about.attribute and name.attribute and about.attribute != name.attribute:
        return False
    if not about.subject:
        return draft.session is not None and fact.session == draft.session
    ours, theirs = set(about.subject.split()), set(name.subject.split())
    if not theirs:
        return near(draft.content, fact.content)
    return ours <= theirs or theirs <= ours


def _correcting(draft: FactDraft, known: Sequence[Fact]) -> Verdict | None:
    """ "Sorry, it is 9000": what the session makes plain."""
    found = followed(draft, known)
    if found is None:
        return None
    return Verdict(operation="supersede", fact=found.fact, certain=True, reason=found.reason)


_UNTRUSTED: Final = frozenset({"low", "outside"})


MODEL_AWAY: Final = "the model could not be asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """What became of a statement, and what is to be written for it."""

    operation: Operation
    written: tuple[Fact, ...] = field(default=(), repr=False)
    """The new fact first, where there is one, then every known fact that changed, then what still
    holds of one that stated several values."""
    reason: str
    spent_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinions:
    """What a model said to the questions it was asked, in their order."""

    given: tuple[Opinion, ...] = field(default=(), repr=False)
    spent_tokens: int = 0


async def reconcile(
    draft: FactDraft,
    candidates: Sequence[Fact],
    *,
    model: Model | None,
    now: float,
    history: Sequence[Fact] = (),
) -> Reconciled:
    """Decide how one statement follows what is known, as `settle` does; ask a model if need be."""
    question = None if model is None else open_question(draft, candidates, history)
    if model is None or question is None:
        return settle(draft, candidates, now=now, history=history)
    asked = await ask([question], model)
    settled = settle(draft, candidates, now=now, history=history, opinion=asked.given[0])
    return replace(settled, spent_tokens=asked.spent_tokens)


def open_question(
    draft: FactDraft, candidates: Sequence[Fact], history: Sequence[Fact] = ()
) -> ReconcileQuestion | None:
    """What to ask a model about a statement; None where code can tell, or nothing is alike."""
    known = _known(draft, candidates, history)
    if known is None:
        return None
    then = _held_then(draft, known)
    if decide(draft, named(draft), then).certain:
        return None
    shown = _worth_showing(draft, then)
    return ReconcileQuestion(draft=draft, shown=tuple(shown)) if shown else None


async def ask(questions: Sequence[ReconcileQuestion], model: Model) -> Opinions:
    """What the model says to all of them, in one call; what does not fit it has no opinion on."""
    asked = fitting(questions)
    prompt = reconcile_prompt(asked)
    try:
        answer = await model.ask(prompt)
    except ModelError:
        away = (Opinion(unusable=MODEL_AWAY),) * len(questions)
        return Opinions(given=away, spent_tokens=spent_tokens(prompt))
    left = [Opinion(unusable="too much for one question")] * (len(questions) - len(asked))
    return Opinions(
        given=(*read_opinions(answer, asked), *left), spent_tokens=spent_tokens(prompt, answer)
    )


def settle(
    draft: FactDraft,
    candidates: Sequence[Fact],
    *,
    now: float,
    history: Sequence[Fact] = (),
    opinion: Opinion | None = None,
) -> Reconciled:
    """Decide how a statement follows what is known.

    `candidates` are current facts that may be about the same. `history` are all versions, closed
    ones too, of the draft's subject and attribute: with them a statement that arrives late finds
    its place in the past. `opinion` is what a model said to its `open_question`.
    """
    known = _known(draft, candidates, history)
    if known is None:
        return Reconciled(operation="none", reason="recorded already")
    about = named(draft)
    then = _held_then(draft, known)
    verdict = decide(draft, about, then)
    if opinion is not None and not verdict.certain:
        verdict = _in_the_light_of(opinion, draft, about, then, verdict)
    return _carry_out(draft, about, known, verdict, now=now)


def _known(
    draft: FactDraft, candidates: Sequence[Fact], history: Sequence[Fact]
) -> list[Fact] | None:
    """What it is held against; None where it is recorded already."""
    known = list({fact.id: fact for fact in (*history, *candidates)}.values())
    known = [fact for fact in known if fact.type != "digest"]
    recorded = fact_id(draft.evidence, draft.content)
    return None if any(fact.id == recorded for fact in known) else known


def _held_then(draft: FactDraft, known: Sequence[Fact]) -> list[Fact]:
    return sorted((fact for fact in known if held_at(fact, draft.at)), key=_newest_first)


def _newest_first(fact: Fact) -> tuple[float, float, str]:
    return (-fact.at, -(fact.recorded_at or 0.0), fact.id)


def _in_the_light_of(
    opinion: Opinion, draft: FactDraft, about: Named, then: Sequence[Fact], ruled: Verdict
) -> Verdict:
    """What the model says, as far as the guards let it; else what the rules say."""
    if opinion.unusable:
        return _by_rules(ruled, opinion.unusable)
    if opinion.fact is None:
        return Verdict(operation="add", reason="the model finds nothing like it known")
    fact = next((other for other in then if other.id == opinion.fact.id), None)
    if fact is None:
        return _by_rules(ruled, "the model named a fact that holds no more")
    if not may_be_same(draft, about, fact, named(fact)):
        return _by_rules(ruled, "the model named a fact about something else")
    if opinion.operation == "none" and not _says_no_more(draft, fact):
        return _by_rules(ruled, "the model would have lost a value")
    reason = f"the model's decision: {opinion.operation}"
    return Verdict(operation=opinion.operation, fact=fact, reason=reason)


def _by_rules(ruled: Verdict, why: str) -> Verdict:
    return replace(ruled, reason=f"{why}, so by rules: {ruled.reason}")


def _worth_showing(draft: FactDraft, then: Sequence[Fact]) -> list[Fact]:
    words = set(content_words(draft.content))
    shared = {fact.id: len(words.intersection(content_words(fact.content))) for fact in then}
    facts = [fact for fact in then if shared[fact.id]]
    return sorted(facts, key=lambda fact: (-shared[fact.id], *_newest_first(fact)))[
        :MOST_CANDIDATES
    ]


def _says_no_more(draft: FactDraft, fact: Fact) -> bool:
    """Whether a fact holds every value of a statement and all of its words but one."""
    missing = set(content_words(draft.content)).difference(content_words(fact.content))
    return len(missing) <= 1 and values_of(draft.content) <= values_of(fact.content)


def _carry_out(
    draft: FactDraft, about: Named, known: Sequence[Fact], verdict: Verdict, *, now: float
) -> Reconciled:
    followed = verdict.fact
    if verdict.operation == "none" and followed is not None:
        written = gain_source(followed, draft)
        return Reconciled(operation="none", written=written, reason=verdict.reason)
    if followed is None and (later := _same_words_later(draft, about, known)) is not None:
        written = gain_source(later, draft)
        return Reconciled(operation="none", written=written, reason="said again later")
    left = Remainder() if followed is None else _left_of(followed, draft, verdict)
    reason = verdict.reason
    if not left.certain:
        followed, reason = None, "it corrects one of several values, and does not say which"
    if followed is not None and _leaves_out(about, name := _corrected(followed, left)):
        about = replace(about, subject=name.subject, attribute=name.attribute)
    versions = [
        fact
        for fact in known
        if _is_version(fact, about, followed)
        or (draft.made_by == "user" and same_property(draft.content, fact.content))
    ]
    barred = [
        fact
        for fact in versions
        if held_at(fact, draft.at) and not may_replace(fact, by=draft.trust)
    ]
    if draft.trust in _UNTRUSTED and any(is_users_word(fact) for fact in barred):
        return Reconciled(operation="refused", reason="a tool has no say in what the user wants")
    change: Change = "update" if verdict.operation == "update" else "supersede"
    new, *closed = place(new_fact(draft, about, now=now), versions, change=change)
    if barred:
        reason += "; kept beside a fact that it may not replace"
    if new.superseded_by is not None:
        reason += "; said before what is known, so it is history"
    rest = [
        remaining_fact(followed, left.text, at=draft.at, now=now)
        for old in closed
        if left.text and followed is not None and old.id == followed.id
    ]
    return Reconciled(
        operation=change if closed else "add", written=(new, *closed, *rest), reason=reason
    )


def _left_of(fact: Fact, draft: FactDraft, verdict: Verdict) -> Remainder:
    """What a fact of several values still says when one of them is replaced."""
    if verdict.operation != "supersede":
        return Remainder()
    return remainder(fact.content, draft.content, draft.replaces)


def _corrected(fact: Fact, left: Remainder) -> Named:
    """The name of what is replaced: a whole fact, or the one part of it that is corrected."""
    if not left.corrected:
        return named(fact)
    return named_words(left.corrected, fact.type)


def _leaves_out(about: Named, name: Named) -> bool:
    """Whether a statement says less of what it is about than the fact that it follows."""
    if not about.told:
        return True
    return about.attribute == name.attribute and set(about.subject.split()) < set(
        name.subject.split()
    )


def _same_words_later(draft: FactDraft, about: Named, known: Sequence[Fact]) -> Fact | None:
    """A statement that nobody can place in a chain, heard after it was heard again."""
    if about.certain:
        return None
    same = (fact for fact in known if same_words(draft.content, fact.content))
    return next((fact for fact in same if fact.at > draft.at), None)


def _is_version(fact: Fact, about: Named, followed: Fact | None) -> bool:
    if followed is not None and fact.id == followed.id:
        return True
    name = named(fact)
    return about.certain and name.certain and same_name(about, name)
