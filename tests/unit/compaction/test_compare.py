"""The diff of two summaries: what was dropped, what is new."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recollect.core.compaction.receipt import compare

BEFORE = "## Goal\nShip the gateway.\n\n## Decisions\n1. Use PostgreSQL.\n2. Keep port 8443.\n"
AFTER = "## Goal\nShip the gateway.\n\n## Decisions\n- Keep port 8443.\n- Drop the spool.\n"


def test_what_was_dropped_and_what_is_new() -> None:
    told = [(one.change, one.text) for one in compare(BEFORE, AFTER) if one.change != "kept"]
    assert told == [("dropped", "Use PostgreSQL."), ("new", "Drop the spool.")]


def test_a_point_that_only_moved_is_no_change() -> None:
    moved = "- Keep port 8443.\n- Use PostgreSQL.\n"
    kept = "- Use PostgreSQL.\n- Keep port 8443.\n"
    assert {one.change for one in compare(kept, moved)} == {"kept"}


@given(st.text(max_size=200), st.text(max_size=200))
def test_nothing_of_the_newer_one_is_left_out(before: str, after: str) -> None:
    shown = [one.text for one in compare(before, after) if one.change != "dropped"]
    assert shown == [one.text for one in compare("", after)]
    assert {one.change for one in compare(after, after)} <= {"kept"}
