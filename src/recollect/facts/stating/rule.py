"""The shape of a rule that finds an explicit statement, and of what it found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from recollect.facts.stating.doubt import Manner
    from recollect.values.fact import FactType


MOST_SENTENCE_CHARS: Final = 600
"""Longer than any sentence that states one thing; what is longer was not typed. The patterns of the
rules are for sentences: over a text they would take time by the square of its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One way to state something plainly."""

    manner: Manner
    type: FactType
    pattern: re.Pattern[str] = field(repr=False)
    unless: re.Pattern[str] | None = field(default=None, repr=False)
    """Where this is found too, the words mean something else."""
    needs: re.Pattern[str] | None = field(default=None, repr=False)
    """What has to be found as well."""
    then: re.Pattern[str] | None = field(default=None, repr=False)
    """What has to follow what was found."""
    named: re.Pattern[str] | None = field(default=None, repr=False)
    """Where this begins the sentence, it does not say what it is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What a sentence states, and where the words stand that say so."""

    manner: Manner
    type: FactType
    trigger: tuple[int, int]


def all_stated(rules: Iterable[Rule], sentence: str) -> Iterator[Stated]:
    """What each rule that fits says of a folded sentence, in the rules' order."""
    sentence = sentence[:MOST_SENTENCE_CHARS]
    for rule in rules:
        found = rule.pattern.search(sentence)
        if found is None:
            continue
        if rule.unless is not None and rule.unless.search(sentence):
            continue
        if rule.needs is not None and not rule.needs.search(sentence):
            continue
        if rule.then is not None and not rule.then.search(sentence, found.end()):
            continue
        if rule.named is not None and rule.named.search(sentence):
            continue
        yield Stated(manner=rule.manner, type=rule.type, trigger=found.span())
