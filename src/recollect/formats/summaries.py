"""How clients mark the text that stands for their past, so that it is never trimmed away.

The openings are literals of the clients' own; a message that begins so is a summary.
"""

from __future__ import annotations

from recollect.values.message import Other, Part, Role, Text

PI_OPENING = (
    "The conversation history before this point was compacted into the following summary:"
    "\n\n<summary>\n"
)
PI_CLOSING = "\n</summary>"
PI_BRANCH_OPENING = (
    "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n"
)
PI_BRANCH_CLOSING = "</summary>"

_OPENINGS = (
    PI_OPENING[:70],
    PI_BRANCH_OPENING[:60],
    "This session is being continued from a previous conversation",  # Claude Code
    "Another language model started to solve this problem",  # Codex
)
SUMMARY_ITEMS = frozenset({"compaction", "compaction_summary", "context_compaction"})


def is_summary(role: Role, parts: tuple[Part, ...]) -> bool:
    """Whether a message of these parts stands for others that a client has replaced."""
    first = parts[0] if parts else None
    if isinstance(first, Text):
        return role == "user" and first.text.startswith(_OPENINGS)
    return isinstance(first, Other) and first.kind in SUMMARY_ITEMS
