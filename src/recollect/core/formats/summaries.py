"""Marks of a summary: those of other clients, and the tags of our own.

A block that code appended is removed from the end only, because the text before it may mention the
same tags.
"""

from __future__ import annotations

import re
from typing import Final, get_args

from recollect.core.values.compaction import ProbeKind
from recollect.core.values.message import Other, Part, Role, Text

PI_OPENING = (
    "The conversation history before this point was compacted into the following summary:"
    "\n\n<summary>\n"
)
PI_CLOSING = "\n</summary>"
PI_BRANCH_OPENING = (
    "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n"
)
PI_BRANCH_CLOSING = "</summary>"

NAMES_TAG: Final = "exact-names"
"""Around the names that code listed behind a summary; summaries of earlier versions hold it."""
LINES_TAG: Final = "earlier-lines"
READ_TAG: Final = "read-files"
MODIFIED_TAG: Final = "modified-files"
RULES_TAG: Final = "workspace-critical-rules"
OWN_TAGS: Final = (
    "summary",
    READ_TAG,
    MODIFIED_TAG,
    RULES_TAG,
    NAMES_TAG,
    LINES_TAG,
    "recalled-context",
    "conversation",
    "previous-summary",
    "partial-summary",
    "focus",
)
"""Text between these tags was written by code: no other text may hold them."""

PINNED_HEADING: Final = "## Pinned by Recollect"
PINNED_NOTE: Final = "Quoted from before the cut, word for word; for reference:"
PINNED_LINE: Final = re.compile(rf"^- (?:{'|'.join(get_args(ProbeKind))}): ", re.MULTILINE)
"""How a quote begins: with what kind of thing it is there for."""
_PINNED: Final = f"{PINNED_HEADING}\n{PINNED_NOTE}\n"

_OPENINGS = (
    PI_OPENING[:70],
    PI_BRANCH_OPENING[:60],
    "This session is being continued from a previous conversation",  # Claude Code
    "Another language model started to solve this problem",  # Codex
)
SUMMARY_ITEMS = frozenset({"compaction", "compaction_summary", "context_compaction"})


def is_summary(role: Role, parts: tuple[Part, ...]) -> bool:
    """Whether a message of these parts is a client's summary of others."""
    first = parts[0] if parts else None
    if isinstance(first, Text):
        return role == "user" and first.text.startswith(_OPENINGS)
    return isinstance(first, Other) and first.kind in SUMMARY_ITEMS


def without_names(summary: str) -> str:
    """A summary without its appended list of names: a name alone says nothing."""
    text, pinned = part_pinned(summary)
    text = without_block(text, NAMES_TAG)
    return f"{text}\n\n{pinned}" if text and pinned else text or pinned


def part_pinned(summary: str) -> tuple[str, str]:
    """A summary's text, and the section of quotes that code appended, if there is one."""
    at = summary.rfind(_PINNED)
    if at < 0 or summary[at - 1 : at] not in ("", "\n"):
        return summary, ""
    quotes = summary[at + len(_PINNED) :].rstrip().split("\n")
    if not all(map(PINNED_LINE.match, quotes)):
        return summary, ""
    return summary[:at].rstrip(), summary[at:].rstrip()


def without_block(text: str, tag: str) -> str:
    """The text without the block of this tag at its very end; as it is where it ends otherwise."""
    closed = text.rstrip()
    if not closed.endswith(f"\n</{tag}>"):
        return text
    # the last one: what the block holds was defused, what stands before it may speak of the tag
    at = closed.rfind(f"<{tag}>\n")
    if at < 0 or closed[at - 1 : at] not in ("", "\n"):
        return text
    return closed[:at].rstrip()
