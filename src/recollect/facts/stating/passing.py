"""Finds statements that hold for this turn only: orders, and states of the moment.

Owns the words of what the next minutes end ("is failing", "still need to") and of orders for the
turn ("look into", "don't read the full file"). Must never take a standing rule for an order, nor a
value or a choice that stands beside one. What always holds: works on one folded sentence; pure,
linear.
"""

from __future__ import annotations

import re
from typing import Final

from recollect.values.fact import FactType

_LASTING: Final = re.compile(
    r"\b(?:always|never|from now on|every|each|whenever|must|prefer|in general|by default|rule"
    r"|remember|keep in mind|for the record|any ?more|going forward|in future|in the future"
    r"|decided|agreed|going with|let's go with|i (?:like|hate|want))\b"
    r"|以后|一律|必须|务必|永远|总是|每|记住|决定"
)
_NOT_LASTING: Final = re.compile(r"\bthis plan must\b|\bthat should never happen\b")
_ORDERED: Final[frozenset[FactType]] = frozenset({"preference", "task_state", "implementation"})
"""What an order for the turn is taken for; a value or a choice beside one is still one."""
_ORDER: Final = re.compile(
    r"(?:^|[,;.!—–-]\s*|\b(?:and|then|please|so|but) )"
    r"(?:(?:now|just|also|please|first|then|go|and) )*"
    r"(?:look (?:into|at|up)|check|read|re-?read|see|find|fix|remo(?:ve|ev)|delete|open|try|revert"
    r"|undo|redo|investigate|continue|commit (?:it|this|that)|have a look|take a look|search|grep"
    r"|write (?:it|this|that|the plan)|pick up|rewrite|rerun|re-run|do (?:it|that|this))\b"
)
_ONLY_NOW: Final = re.compile(
    r"\b(?:if you need to|if necessary|for now|this time|in this (?:turn|session|message|answer)"
    r"|(?:don't|do not) read the|this plan (?:must|should)|before you (?:do|start)"
    r"|while you(?:'re| are| were)(?: at it| working)|you find in|that should never happen)\b"
)
_OPEN: Final = re.compile(
    r"\b(?:we|i|you) (?:still |just |also |now )*(?:need|have|want)(?: you)? to "
    r"(?!know|use|keep|avoid|support|stay|be\b|have\b)\w+(?!.*\b(?:by|before|until|till) \w)"
)
"""What is asked for now; what has a date by which it has to be done stays open."""
_EDIT: Final = re.compile(
    r"^(?:please |now |also |just |and )*(?:(?:don't|do not) (?:modify|change|replace|remove|delete"
    r"|rename|refactor|rewrite|edit|move|log|paginate|touch) (?:the |in )?(?:this\b|that\b|`|\w+_\w"
    r"|\w+\(\))|(?:remove|delete|fix|undo|revert|rename|add|rewrite|refactor)\b)"
)
"""What is to be done to the code on the table; a standing rule says so ("never remove ...")."""

_CHECKED: Final = (
    r"\b(?:is|are|was|were|keeps?|still) (?:\w+ )?(?:failing|erroring|not working|running now"
    r"|passing)\b|\b(?:now|all|still) (?:pass(?:es|ed)?|works?|builds?|compiles?)\b"
    r"|\b(?:tests?|checks?|build|lint|suite|pass|mypy|ruff|pytest) (?:\w+ )?(?:pass(?:es|ed)?"
    r"|is green|are green|succeed(?:s|ed)?|is clean|all passed|completed)\b"
    r"|\b(?:all|both) (?:passed|completed)\b|\bis (?:now |still )?wrong\b"
    r"|\bnot (?:retrieved|loaded|checked|verified) yet\b"
)
_ABOUT_TO: Final = (
    r"\bi(?:'m| am) (?:now |going to |about to |\w+ing\b|\w+-\w+ing\b)|\bi(?:'ll| will)\b"
    r"|\blet me\b|\bstill (?:need|have|has|want)s? to\b|\bi still need\b"
    r"|\bbefore i (?:move|go|start|continue)\b|\bnext,? i\b|\bi (?:just )?(?:opened|ran|looked)\b"
    r"|\bwe(?:'ll| will| need to| have to| should| can| could|'re going to)\b"
    r"|^(?:我(?:先|来|去|再|马上|接下来)|接下来|让我)"
)
_ADVISED: Final = (
    r"\b(?:you can|you could|you may|you should|you'll|you need)\b|\bno need (?:for|to)\b"
    r"|\bshould (?:now |be )?(?:work|fix|be able|fixed)\b|\bthere(?:'s| is) a better\b"
    r"|\b(?:wait|try|if you)\b.{0,30}\b(?:again|want|like|prefer)\b"
)
_FLEETING: Final = r"\bstays? in pending\b|(?<!\w)/(?:tmp|var/folders|private/tmp)/"
_MOMENT: Final = re.compile("|".join((_CHECKED, _ABOUT_TO, _ADVISED, _FLEETING)))


def passing(low: str, type: FactType, *, by_user: bool) -> str:  # noqa: A002
    """Why a folded sentence holds for the moment only; empty where it may last."""
    if not by_user:
        return "a state of the moment" if _MOMENT.search(low) else ""
    if type == "decision" or (_LASTING.search(low) and not _NOT_LASTING.search(low)):
        return ""
    ordered = (_ORDER, _ONLY_NOW, _OPEN) if type in _ORDERED else ()
    if any(one.search(low) for one in (_EDIT, *ordered)):
        return "an order for this turn"
    return ""
