"""Marks of a summary: those of other clients, and Recollect's own tags. Appended blocks are removed
only from the end, because the text before them may mention the same tags."""

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
"""Tag of the names listed after a summary, in summaries of earlier versions."""
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
"""Tags of text that code writes. No other text may contain them."""

PINNED_HEADING: Final = "## Pinned by Recollect"
PINNED_NOTE: Final = "Quoted from before the cut, word for word; for reference:"
PINNED_LINE: Final = re.compile(rf"^- (?:{'|'.join(get_args(ProbeKind))}): ", re.MULTILINE)
"""First part of a quote: its kind."""
_PINNED: Final = f"{PINNED_HEADING}\n{PINNED_NOTE}\n"

_OPENINGS = (
    PI_OPENING[:70],
    PI_BRANCH_OPENING[:60],
    "This session is being continued from a previous conversation",  # Claude Code
    "Another language model started to solve this problem",  # Codex
)
SUMMARY_ITEMS = frozenset({"compaction", "compaction_summary", "context_compaction"})


def is_summary(role: Role, parts: tuple[Part, ...]) -> bool:
    """Return whether a message of these parts is a client's summary of others."""
    first = parts[0] if parts else None
    if isinstance(first, Text):
        return role == "user" and first.text.startswith(_OPENINGS)
    return isinstance(first, Other) and first.kind in SUMMARY_ITEMS


def without_names(summary: str) -> str:
    """Remove the appended list of names, because a name alone carries no information."""
    text, pinned = part_pinned(summary)
    text = without_block(text, NAMES_TAG)
    return f"{text}\n\n{pinned}" if text and pinned else text or pinned


def part_pinned(summary: str) -> tuple[str, str]:
    """Split a summary into its text and the appended section of quotes ("" if there is none)."""
    at = summary.rfind(_PINNED)
    if at < 0 or summary[at - 1 : at] not in ("", "\n"):
        return summary, ""
    quotes = summary[at + len(_PINNED) :].rstrip().split("\n")
    if not all(map(PINNED_LINE.match, quotes)):
        return summary, ""
    return summary[:at].rstrip(), summary[at:].rstrip()


def without_block(text: str, tag: str) -> str:
    """Remove the block of this tag from the very end of the text, if it is there."""
    closed = text.rstrip()
    if not closed.endswith(f"\n</{tag}>"):
        return text
    # the last one: tags inside the block are disabled, and the text before it may mention the tag
    at = closed.rfind(f"<{tag}>\n")
    if at < 0 or closed[at - 1 : at] not in ("", "\n"):
        return text
    return closed[:at].rstrip()
