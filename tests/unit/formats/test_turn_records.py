"""Packed outcomes: their texts are found, masked and forgotten, and their codes never change."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

import pytest
from tests.store_contract import examples

from recollect.adapters.wiring import open_store
from recollect.core.formats.stored_records import SoughtText
from recollect.core.formats.turn_records import (
    KIND_CODES,
    ROLE_CODES,
    OutcomeChanges,
    read_outcomes,
    sort_outcomes,
    write_outcomes,
)
from recollect.core.ports import Store
from recollect.core.rules.patterns import TextPattern
from recollect.core.upkeep.forget import find_targets, forget
from recollect.core.upkeep.masks import Masks, strings_in
from recollect.core.upkeep.redact import redact
from recollect.core.values.batch import Batch, LedgerPiece, PieceHash
from recollect.core.values.message import EntryKey, Role
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.report import Fate, FateKind
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import FormatError

AT = 1_760_011_200.0
SAID = "no route to Marbella"
RECORDED = bytes.fromhex(
    "004f31789c7d8f3112823010454942e32d388a17f00c4ec06570c0acb309c3506a6d613017500c8ebd07b0e0"
    "6086d18ac257ecdf57fce29f0655ef52207193c6452266f712f6a61353b67a5c46ff6133e7338f7db9551b3d"
    "c68c0bee092b087fc4041f52c891c02d025ee606c88940df14ad8b18673d36eafc20901a95bed8ce0311d2e1"
    "1b2f8509616d203198ac24a55055d2daa742b3d64568daaecf6a73fc6d63935cb3e9be3f8248453d"
)
"""Written before codes had a table of their own."""


def fate(kind: FateKind, role: Role, place: int, *reasons: Reason) -> Fate:
    return Fate(
        fate=kind,
        role=role,
        reasons=reasons,
        key=EntryKey(f"{place:032x}"),
        place=place,
        tokens_before=9,
        tokens_after=3,
    )


def outcomes() -> OutcomeChanges:
    failed = Reason(Cause.ERROR, error=SAID)
    return OutcomeChanges(
        number=3,
        fates={
            0: fate("changed", "system", 0, failed),
            1: fate("left out", "user", 1, Reason(Cause.NOT_SHOWN)),
            2: fate("summarized", "tool", 2, Reason(Cause.CUT, number=1, cut="c")),
            4: fate("left out", "assistant", 4, Reason(Cause.NOT_SHOWN)),
        },
        kept=[3],
        own_outcomes=[],
    )


def packed(changes: OutcomeChanges | None = None) -> bytes:
    return write_outcomes(changes or outcomes(), lambda reason: reason)


def test_a_text_of_a_reason_is_found_and_masked() -> None:
    body = packed()
    assert SoughtText("MARBELLA").occurs_in(body)
    assert not SoughtText("Malaga").occurs_in(body)
    assert SAID in list(strings_in(body))
    masks = Masks(patterns=(TextPattern("Marbella"),))
    done = masks.json(body)
    assert done.kinds
    assert not SoughtText("Marbella").occurs_in(done.body)
    left = read_outcomes(done.body)
    assert list(left.fates) == [0, 1, 2, 4]
    assert "no route to" in str(sort_outcomes(left)[0].reasons[0].numbers)
    cut = packed(OutcomeChanges(cut=Reason(Cause.ERROR, error=SAID)))
    assert SoughtText("Marbella").occurs_in(cut)


def test_what_cannot_be_read_may_hold_any_text() -> None:
    assert SoughtText("Marbella").occurs_in(packed()[:-9])
    with pytest.raises(FormatError):
        Masks().json(packed()[:-9])


async def test_forgetting_a_text_removes_the_outcomes_that_hold_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        body = packed()
        piece = LedgerPiece(hash=PieceHash("0" * 32), kind="outcomes", body=body)
        await store.write(Batch(at=AT, pieces=(piece,)))
        order = ForgetOrder(at=AT, matching="Marbella")
        assert (await find_targets(store, [], order)).records == 1
        await forget(store, [], order, now=AT)
        assert not await store.bodies("pieces")


async def test_torn_records_are_counted_and_hide_none_behind_them(tmp_path: Path) -> None:
    """A page of nothing but torn pieces came back empty, and ended the walk."""
    async with opened(tmp_path) as store:
        pieces = tuple(examples.piece(f'{{"text": "{"tide " * 40}{n}"}}') for n in range(60))
        last = examples.piece('{"text": "the berth of Anna"}')
        last = LedgerPiece(hash=PieceHash("f" * 32), kind="row", body=last.body)
        await store.write(Batch(at=AT, pieces=(*pieces, last)))
        with sqlite3.connect(tmp_path / "space.db") as db:
            db.execute("UPDATE piece SET body = substr(body, 1, length(body) - 6) WHERE hash < 'f'")
            (torn,) = db.execute("SELECT count(*) FROM piece WHERE hash < 'f'").fetchone()
        db.close()
        assert torn > 50
        found = await redact(store, [], Masks(patterns=(TextPattern("berth"),)), now=AT, apply=True)
        assert found.unread == torn
        assert "berth" not in str([body.body for body in await store.bodies("pieces", limit=100)])
        done = await forget(store, [], ForgetOrder(at=AT, pattern="Zebra"), now=AT)
        assert any(f"{torn} damaged records" in line for line in done.cannot)
        await forget(store, [], ForgetOrder(at=AT, pattern="Anna"), now=AT)
        assert "Anna" not in str([body.body for body in await store.bodies("pieces", limit=100)])


def test_codes_are_those_of_every_earlier_version() -> None:
    assert KIND_CODES == {"kept": 0, "changed": 1, "left out": 2, "summarized": 3, "inserted": 4}
    assert ROLE_CODES == {"system": 0, "user": 1, "assistant": 2, "tool": 3}
    assert set(KIND_CODES) == set(get_args(FateKind))
    assert set(ROLE_CODES) == set(get_args(Role))
    assert read_outcomes(RECORDED) == outcomes()


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Store]:
    store = await open_store(str(folder / "space.db"), space="alice")
    try:
        yield store
    finally:
        await store.close()
