"""The page of a redaction says what is in clear still, and counts as people do."""

from __future__ import annotations

import pytest

from recollect.core.upkeep.certificates import (
    RedactionResult,
    headline,
)


def found(*, applied: bool, secrets: int, left: int = 0, unread: int = 0) -> RedactionResult:
    done = RedactionResult(applied=applied, left=left, unread=unread, cannot=["MEMORY.md holds 1"])
    if secrets:
        done.count("facts", {"github-token": secrets})
    return done


@pytest.mark.parametrize(
    ("done", "line"),
    [
        (found(applied=True, secrets=1), "1 secret masked"),
        (found(applied=False, secrets=2), "2 secrets found, nothing was changed"),
        (found(applied=True, secrets=0), "No unmasked secret was found"),
        (found(applied=True, secrets=0, left=1), "1 left unmasked: see below"),
        (found(applied=True, secrets=2, left=3), "2 secrets masked; 3 more left unmasked"),
        (found(applied=True, secrets=0, unread=1), "No secret was found in what could be read"),
    ],
)
def test_the_headline(done: RedactionResult, line: str) -> None:
    assert headline(done).startswith(line)
