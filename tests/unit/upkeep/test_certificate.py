"""A certificate says what was done, shows when it was changed, and carries no content."""

import json
from dataclasses import replace

import pytest

from recollect.core.upkeep.certificates import (
    RedactionResult,
    certificate_json,
    certificate_text,
    digest_of,
    headline,
    seal,
)
from recollect.core.values.message import MessageId
from recollect.core.values.upkeep import Certificate, ForgetScope

SEALED = seal(
    Certificate(
        at=1_760_000_000.0,
        space="alice",
        engine="SQLite 3.50",
        version="0.3",
        asked=ForgetScope(segments=2, sessions=("monday",), said_before=1_750_000_000.0),
        counts={"segments": 1_234, "passages": 0},
        identities_digest=digest_of([MessageId("b"), MessageId("a")]),
        covers=("the archive",),
        cannot=("backups",),
    )
)


def test_a_change_to_it_changes_its_checksum() -> None:
    assert json.loads(json.dumps(certificate_json(SEALED)))["checksum"] == SEALED.checksum
    for changed in (replace(SEALED, counts={"segments": 1_235}), replace(SEALED, cannot=())):
        assert seal(changed).checksum != SEALED.checksum
    assert digest_of([MessageId("a"), MessageId("b")]) == SEALED.identities_digest


def test_the_page_for_people() -> None:
    page = certificate_text(SEALED)
    for line in (
        "space      alice",
        "when       2025-10-09 08:53:20 UTC",
        "asked      2 segments by id; session monday; all messages before 2025-06-15 15:06:40 UTC",
        "     1,234  segments",
        "  - backups",
        SEALED.checksum,
    ):
        assert line in page
    assert "passages" not in page, "what was not there is not listed"
    assert "nothing was stored of it" in certificate_text(replace(SEALED, counts={}))


def test_names_on_the_page_cannot_move_the_cursor_or_forge_a_line() -> None:
    evil = "monday\x1b[2J\nchecksum   0000"
    asked = ForgetScope(sessions=(evil,), matching=True)
    page = certificate_text(replace(SEALED, space=f"a\x1b]0;b\x07{evil}", asked=asked))
    assert "\x1b" not in page
    assert "\x07" not in page
    assert sum(line.startswith("checksum") for line in page.splitlines()) == 1
    assert "all messages that contain a text" in page


def test_the_short_page_tells_what_is_particular_and_counts_one_as_one() -> None:
    cannot = ("transcript a.jsonl, which an agent has open", "backups")
    one = replace(SEALED, counts={"segments": 1, "facts": 2}, cannot=cannot)
    page = certificate_text(one, standing=frozenset({"backups"}))
    assert "         1  segment\n" in page
    assert "         2  facts\n" in page
    assert "a.jsonl" in page
    assert "  - backups" not in page
    assert "This covers" not in page
    assert "--json lists it" in page
    assert one.checksum in page


def found(*, applied: bool, secrets: int, left: int = 0, unread: int = 0) -> RedactionResult:
    done = RedactionResult(
        applied=applied, unmasked=left, unread=unread, cannot=["MEMORY.md holds 1"]
    )
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
