"""Tells commands that were carried out already from what a user still asks for.

Owns which texts are a `/compact` command. What it said was used once, for the compaction that it
asked for; a model that reads it later would carry it out again (anthropics/claude-code#20370).
Must never take a question about the command for the command itself.
"""

from __future__ import annotations

import re
from typing import Final

CONSUMED_NOTE: Final = "[User ran /compact]"
"""What is read in its place: that it was run, never what it said."""
_COMMAND: Final = re.compile(r"\s*/compact(?:\s|:|$)", re.IGNORECASE)
_MARKED_UP: Final = "<command-name>/compact</command-name>"
"""How Claude Code writes a command down."""


def consumed(text: str) -> bool:
    """Whether a user's text is a `/compact` command."""
    return _COMMAND.match(text) is not None or _MARKED_UP in text
