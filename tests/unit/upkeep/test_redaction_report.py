"""The page of a redaction says what is in clear still, and counts as people do."""

from __future__ import annotations

import pytest

from recollect.core.upkeep.certificates import (
    CANNOT,
    RedactionReport,
    RedactionResult,
    headline,
    joined,
    redaction_text,
)


def found(*, applied: bool, secrets: int, left: int = 0, unread: int = 0) -> RedactionResult:
    kinds = {"facts": {"github-token": secrets}} if secrets else {}
    changed = {"facts": 1} if secrets else {}
    cannot = ("MEMORY.md holds 1", *CANNOT)
    done = RedactionResult(
        applied=applied, kinds=kinds, changed=changed, sessions={}, cannot=cannot
    )
    return joined(
        done, kinds={}, changed={}, sessions={}, cannot=(), left=left, unread=unread
    )  # fmt: skip


@pytest.mark.parametrize(
    ("done", "line"),
    [
        (found(applied=True, secrets=1), "1 secret masked"),
        (found(applied=False, secrets=2), "2 secrets found, nothing was changed"),
        (found(applied=True, secrets=0), "No secret stands in clear"),
        (found(applied=True, secrets=0, left=1), "1 stands in clear where it is not masked"),
        (found(applied=True, secrets=2, left=3), "2 secrets masked; 3 more stand in clear"),
        (found(applied=True, secrets=0, unread=1), "No secret was found in what could be read"),
    ],
)
def test_the_headline(done: RedactionResult, line: str) -> None:
    assert headline(done).startswith(line)


def test_the_short_page_leaves_out_what_is_always_so() -> None:
    done = found(applied=True, secrets=1, left=1)
    report = RedactionReport(at=1.0, space="s", engine="e", version="1", done=done)
    short, whole = (redaction_text(report, plain=str, whole=whole) for whole in (False, True))
    assert "1 fact: 1 github-token" in short
    assert "MEMORY.md holds 1" in short
    assert CANNOT[0] not in short
    assert "This covers" not in short
    assert CANNOT[0] in whole
    assert "This covers" in whole
