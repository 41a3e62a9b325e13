"""Recognizes summaries of other clients, and reads or removes the blocks that Recollect appends to
its own. Blocks are removed only at the end, because the text may mention the same tags."""

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
"""Tag of a list of names at the end of summaries of earlier versions."""
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
"""Tags that only code writes. In any other text, Recollect escapes these tags."""

PINNED_HEADING: Final = "## Pinned by Recollect"
PINNED_NOTE: Final = "Quoted from before the cut, word for word; for reference:"
PINNED_LINE: Final = re.compile(rf"^- (?:{'|'.join(get_args(ProbeKind))}): ", re.MULTILINE)
"""Beginning of a quoted line, which names the kind of quote."""
_PINNED: Final = f"{PINNED_HEADING}\n{PINNED_NOTE}\n"

_OPENINGS = (
    PI_OPENING[:70],
    PI_BRANCH_OPENING[:60],
    "This session is being continued from a previous conversation",  # Claude Code
    "Another language model started to solve this problem",  # Codex
)
SUMMARY_ITEMS = frozenset({"compaction", "compaction_summary", "context_compaction"})


def is_summary(role: Role, parts: tuple[Part, ...]) -> bool:
    """Return whether the message is a summary that a client wrote."""
    first = parts[0] if parts else None
    if isinstance(first, Text):
        return role == "user" and is_summary_text(first.text)
    return isinstance(first, Other) and first.kind in SUMMARY_ITEMS


def is_summary_text(text: str) -> bool:
    """Return whether the text is a summary that a client wrote."""
    return text.startswith(_OPENINGS)


def without_names(summary: str) -> str:
    """Remove the list of names from a summary, because a name alone carries no information."""
    text, quotes = part_pinned(summary)
    text = without_block(text, NAMES_TAG)
    return f"{text}\n\n{quotes}" if text and quotes else text or quotes


def part_pinned(summary: str) -> tuple[str, str]:
    """Split a summary into its text and the section of quotes at its end ("" if there is none)."""
    offset = summary.rfind(_PINNED)
    if offset < 0 or summary[offset - 1 : offset] not in ("", "\n"):
        return summary, ""
    quotes = summary[offset + len(_PINNED) :].rstrip().split("\n")
    if not all(map(PINNED_LINE.match, quotes)):
        return summary, ""
    return summary[:offset].rstrip(), summary[offset:].rstrip()


def without_block(text: str, tag: str) -> str:
    """Remove the block with this tag if the text ends with it."""
    body = text.rstrip()
    if not body.endswith(f"\n</{tag}>"):
        return text
    # the last one, because the text before the block may mention its tag
    offset = body.rfind(f"<{tag}>\n")
    if offset < 0 or body[offset - 1 : offset] not in ("", "\n"):
        return text
    return body[:offset].rstrip()
