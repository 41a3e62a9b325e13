"""What holds for the ledger: pieces once, turns rebuilt, retention that tears nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recollect.ports import Store
from recollect.testing.store_contract.examples import SESSION, START, piece
from recollect.testing.store_contract.harness import Spaces
from recollect.values.batch import Batch, LedgerPiece, PieceHash, TurnRecord

_ROWS: Sequence[LedgerPiece] = tuple(piece(f"row {number}") for number in range(40))
_SYSTEM = piece("you are helpful", kind="system")
_TOOLS = piece("[]", kind="tools")


def _hashes(pieces: Sequence[LedgerPiece]) -> tuple[PieceHash, ...]:
    return tuple(one.hash for one in pieces)


def _turn(
    number: int, *, kept: int, rows: Sequence[LedgerPiece], session: str = SESSION, at: float = 0.0
) -> Batch:
    """A turn as the engine writes it, with the pieces it names."""
    report = piece(f"report {session} {number}", kind="report")
    record = TurnRecord(
        session=session,
        number=number,
        at=at or START + number,
        format="anthropic",
        model="m",
        system=_SYSTEM.hash,
        tools=_TOOLS.hash,
        report=report.hash,
        kept_rows=kept,
        rows=_hashes(rows),
    )
    return Batch(at=record.at, pieces=(_SYSTEM, _TOOLS, report, *rows), turns=(record,))


async def _rows(store: Store, number: int, session: str = SESSION) -> tuple[PieceHash, ...]:
    turn = await store.turn(session, number)
    assert turn is not None
    return turn.rows


async def pieces_are_stored_once(spaces: Spaces) -> None:
    """A piece that several turns name is stored once, and comes back byte by byte."""
    store = await spaces.open()
    binary = replace(piece("binary"), body=bytes(range(256)) * 500, exact=False)
    for number in range(1, 4):
        batch = _turn(number, kept=0, rows=_ROWS[:5])
        await store.write(replace(batch, pieces=(*batch.pieces, binary)))
    stats = await store.stats()
    assert (stats.turns, stats.pieces) == (3, 5 + 3 + 2 + 1)
    wanted = (*_ROWS[:5], _SYSTEM, binary)
    found = await store.pieces([*_hashes(wanted), PieceHash("0" * 32)])
    assert dict(found) == {one.hash: one for one in wanted}
    assert dict(await store.pieces([])) == {}


async def turns_are_rebuilt(spaces: Spaces) -> None:
    """A turn that only names what it added is rebuilt with all its rows, however far back."""
    store = await spaces.open()
    shown: list[Sequence[LedgerPiece]] = []
    plan = ((0, 0, 4), (4, 4, 7), (7, 7, 7), (5, 20, 24), (0, 30, 32), (2, 32, 40), (1, 8, 9))
    for number, (kept, first, last) in enumerate(plan, start=1):
        await store.write(_turn(number, kept=kept, rows=_ROWS[first:last]))
        shown.append((*(shown[-1][:kept] if shown else ()), *_ROWS[first:last]))
    await store.write(_turn(1, kept=0, rows=_ROWS[:1], session="another"))
    assert await store.turns(SESSION) == (1, 2, 3, 4, 5, 6, 7)
    for number, rows in enumerate(shown, start=1):
        assert await _rows(store, number) == _hashes(rows), number
    rebuilt = await store.turn(SESSION, 4)
    assert rebuilt is not None
    record = rebuilt.record
    assert (record.session, record.number, record.at) == (SESSION, 4, START + 4)
    assert (record.format, record.model, record.rest) == ("anthropic", "m", None)
    assert (record.system, record.tools) == (_SYSTEM.hash, _TOOLS.hash)
    assert await store.turn(SESSION, 8) is None
    assert await store.turn("unheard of", 1) is None
    assert await store.turns("unheard of") == ()


async def numbers_of_turns_may_have_gaps(spaces: Spaces) -> None:
    """A turn rests on the recorded one before it, whatever its number."""
    store = await spaces.open()
    await store.write(_turn(3, kept=0, rows=_ROWS[:3]))
    await store.write(_turn(10, kept=3, rows=_ROWS[3:5]))
    await store.write(_turn(200, kept=5, rows=_ROWS[5:6]))
    assert await store.turns(SESSION) == (3, 10, 200)
    assert await _rows(store, 200) == _hashes(_ROWS[:6])


async def expired_turns_hand_their_rows_on(spaces: Spaces) -> None:
    """Turns before a time go; a later one that rests on them keeps all its rows."""
    store = await spaces.open()
    for number in range(1, 11):
        rows = _ROWS[number * 2 - 2 : number * 2]
        await store.write(_turn(number, kept=(number - 1) * 2, rows=rows))
    assert await store.expire(before=START) == 0
    assert await store.expire(before=START + 4.5) == 4
    assert await store.turns(SESSION) == (5, 6, 7, 8, 9, 10)
    for number in range(5, 11):
        assert await _rows(store, number) == _hashes(_ROWS[: number * 2])
    assert await store.turn(SESSION, 4) is None
    assert await store.expire(before=START + 9.5) == 5
    assert await _rows(store, 10) == _hashes(_ROWS[:20])
    assert len(await store.pieces(_hashes(_ROWS[:20]))) == 20
    await store.write(_turn(11, kept=20, rows=_ROWS[20:21]))
    assert await _rows(store, 11) == _hashes(_ROWS[:21])


async def pieces_go_with_their_last_turn(spaces: Spaces) -> None:
    """Pieces that only expired turns named are gone; those another session names stay."""
    store = await spaces.open()
    await store.write(_turn(1, kept=0, rows=_ROWS[:6]))
    await store.write(_turn(2, kept=2, rows=_ROWS[6:8]))
    await store.write(_turn(1, kept=0, rows=_ROWS[4:5], session="other", at=START + 500))
    assert await store.expire(before=START + 1.5) == 1
    left = await store.pieces(_hashes(_ROWS[:8]))
    assert set(left) == set(_hashes((*_ROWS[:2], _ROWS[4], *_ROWS[6:8])))
    assert await store.expire(before=START + 400) == 1
    left = await store.pieces(_hashes((*_ROWS[:8], _SYSTEM, _TOOLS)))
    assert set(left) == {_ROWS[4].hash, _SYSTEM.hash, _TOOLS.hash}
    assert await store.expire(before=START + 900) == 1
    stats = await store.stats()
    assert (stats.turns, stats.pieces) == (0, 0)
    assert await store.expire(before=START + 900) == 0
