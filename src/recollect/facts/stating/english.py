"""Knows how English states a thing plainly, and in which order its ways are tried.

Owns that order, and what only a user may say: a model's "always …" is advice, its "let's …" a
proposal, its "the issue is …" the step that it is at. Must never decide what is doubtful
(`doubt`) or what was said at all (`spoken`). What always holds: a trigger lies
in its sentence; the surest way comes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from recollect.facts.stating.elliptic import CHOSEN, VALUED
from recollect.facts.stating.english_orders import (
    DECIDED,
    DECIDED_BY_MODEL,
    LAID_DOWN,
    REMEMBER,
    REMEMBER_TASK,
    SAYS_SOMETHING,
)
from recollect.facts.stating.english_states import (
    BUILT,
    BUILT_BY_MODEL,
    CAUSE,
    DEFECT,
    DEFECT_OF_NOTHING,
    PLACE,
    STATE,
    STATE_BY_MODEL,
    STATE_OF_NOTHING,
    STRUCTURE,
)
from recollect.facts.stating.english_values import (
    CORRECTION,
    POINTING_SUBJECT,
    STATED_VALUE,
    VALUE_OF_NOTHING,
)
from recollect.facts.stating.rule import Rule, Stated, all_stated

if TYPE_CHECKING:
    from collections.abc import Iterator


_RULES: Final = (
    Rule(
        manner="remember",
        type="config",
        pattern=REMEMBER,
        unless=REMEMBER_TASK,
        then=SAYS_SOMETHING,
    ),
    Rule(manner="defect", type="issue", pattern=CAUSE),
    Rule(manner="decided", type="decision", pattern=DECIDED),
    Rule(manner="laid_down", type="preference", pattern=LAID_DOWN),
    Rule(manner="value", type="config", pattern=VALUED),
    Rule(manner="decided", type="decision", pattern=CHOSEN),
    Rule(manner="value", type="config", pattern=CORRECTION),
    Rule(manner="state", type="task_state", pattern=STATE, unless=STATE_OF_NOTHING),
    Rule(manner="defect", type="issue", pattern=DEFECT, unless=DEFECT_OF_NOTHING),
    Rule(
        manner="value",
        type="config",
        pattern=STATED_VALUE,
        unless=VALUE_OF_NOTHING,
        named=POINTING_SUBJECT,
    ),
    Rule(manner="structure", type="architecture", pattern=STRUCTURE, named=POINTING_SUBJECT),
    Rule(manner="built", type="implementation", pattern=BUILT, needs=PLACE),
)
_OF_MODELS: Final = (
    Rule(manner="defect", type="issue", pattern=CAUSE),
    Rule(manner="decided", type="decision", pattern=DECIDED_BY_MODEL),
    Rule(manner="built", type="implementation", pattern=BUILT_BY_MODEL, needs=PLACE),
    Rule(manner="state", type="task_state", pattern=STATE_BY_MODEL, unless=STATE_OF_NOTHING),
)


def english(sentence: str, *, by_user: bool) -> Iterator[Stated]:
    """What a folded sentence states plainly, as far as English goes; the surest first."""
    return all_stated(_RULES if by_user else _OF_MODELS, sentence)
