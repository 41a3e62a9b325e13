"""The diff of two summaries: what was dropped, what is new."""

from __future__ import annotations

from recollect.core.compaction.receipt import compare

BEFORE = "## Goal\nShip the gateway.\n\n## Decisions\n1. Use PostgreSQL.\n2. Keep port 8443.\n"
AFTER = "## Goal\nShip the gateway.\n\n## Decisions\n- Keep port 8443.\n- Drop the spool.\n"


def test_what_was_dropped_and_what_is_new() -> None:
    told = [(one.change, one.text) for one in compare(BEFORE, AFTER) if one.change != "kept"]
    assert told == [("dropped", "Use PostgreSQL."), ("new", "Drop the spool.")]
