"""What the ledger keeps of a turn's outcomes: only what changed, readable from few records."""

import asyncio
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recollect import Settings
from recollect.adapters.wiring import open_store
from recollect.core.engine import Engine
from recollect.core.engine.ledger import FinishedTurn, LastRecord, RecordedOutcomes, record_turn
from recollect.core.engine.rebuild import Rebuilt, rebuild_request
from recollect.core.formats.json_text import encode
from recollect.core.formats.request import split_request
from recollect.core.formats.turn_records import (
    OutcomeChanges,
    combine_outcomes,
    read_outcomes,
    sort_outcomes,
    write_outcomes,
)
from recollect.core.rules.message_redaction import TextMask
from recollect.core.values.batch import Batch, LedgerPiece, PieceHash, TurnRecord
from recollect.core.values.edit import Edit, LeaveOut
from recollect.core.values.history import Entry, SessionState, View
from recollect.core.values.message import EntryKey, Message, MessageId, Text
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.report import Report, StageLine
from recollect.system.config.settings import Redaction

WORDS = "cargo and crane and winch over the quay "


def talk(turns: int) -> dict[str, Any]:
    held: list[dict[str, Any]] = [{"role": "user", "content": f"Begin. {WORDS * 30}"}]
    for n in range(turns):
        held += [
            {"role": "assistant", "content": f"step {n}: {WORDS * 30}"},
            {"role": "user", "content": f"and then number {n}?"},
        ]
    return {"model": "m", "max_tokens": 100, "messages": held}


def prepared(turns: int) -> Report:
    engine = Engine(Settings(window_tokens=4_000))
    return asyncio.run(engine.prepare("s", talk(turns))).report


def entry(at: int) -> Entry:
    message = Message(role="user", parts=(Text(text=str(at)),), raw=b"{}")
    return Entry(
        key=EntryKey(f"{at:032x}"),
        id=MessageId(f"{at:032x}"),
        message=message,
        tokens=at,
        role="user",
        raw=b"{}",
    )


def as_listed(report: Report) -> list[Any]:
    return [fate for fate in report.fates() if fate.fate != "kept"]


def test_every_turn_of_a_session_that_changes_its_mind_is_read_from_few_records() -> None:
    """1,000 turns; messages leave and come back, some turns change nothing, branches go back, and
    now and then another process goes on from what is stored."""
    drawn = random.Random(11)
    report = prepared(1)
    entries: tuple[Entry, ...] = ()
    edits: tuple[Edit, ...] = ()
    chain = RecordedOutcomes()
    bodies: dict[PieceHash, bytes] = {}
    wanted: list[tuple[tuple[PieceHash, ...], list[Any]]] = []

    def name(changes: OutcomeChanges) -> PieceHash:
        body = write_outcomes(changes, lambda reason: reason)
        named = PieceHash(f"{hash(body) & (1 << 63) - 1:032x}")
        bodies[named] = body
        return named

    for turn in range(1_000):
        if entries and drawn.random() < 0.02:
            entries = entries[: drawn.randrange(1, len(entries) + 1)]
            keys = {one.key for one in entries}
            edits = tuple(edit for edit in edits if edit.anchor in keys)
        entries += (entry(10_000 * turn), entry(10_000 * turn + 1))
        if drawn.random() < 0.3:
            left = {edit.anchor for edit in edits}
            edits += tuple(
                LeaveOut(
                    anchor=one.key,
                    part=None,
                    stage="trim",
                    reason=Reason(Cause.LEAST_RELEVANT, score=drawn.randrange(9) / 8),
                    turn=turn,
                )
                for one in drawn.sample(entries, min(4, len(entries)))
                if one.key not in left
            )
        elif drawn.random() < 0.1:
            edits = tuple(edit for edit in edits if drawn.random() < 0.8)
        left = {edit.anchor for edit in edits}
        rows = tuple(one for one in entries if one.key not in left)
        report = replace(
            report, entries=entries, edits=edits, view=View(rows=rows, tokens=0), turn=turn
        )
        if drawn.random() < 0.05:
            chain = RecordedOutcomes()  # another process
        chain = chain.record(report, name)
        wanted.append((chain.names, as_listed(report)))
    for names, fates in wanted:
        assert len(names) <= 7
        assert sort_outcomes(combine_outcomes(read_outcomes(bodies[one]) for one in names)) == fates


def recorded_bytes(turns: int) -> int:
    """What a session stores of its outcomes, if each turn leaves one more message out."""
    report, chain, written = prepared(1), RecordedOutcomes(), 0
    entries: tuple[Entry, ...] = ()
    edits: tuple[Edit, ...] = ()

    def name(changes: OutcomeChanges) -> PieceHash:
        nonlocal written
        body = write_outcomes(changes, lambda reason: reason)
        written += len(body)
        return PieceHash(f"{written:032x}")

    for turn in range(turns):
        entries += (entry(2 * turn), entry(2 * turn + 1))
        reason = Reason(Cause.LEAST_RELEVANT, score=turn % 97 / 97)
        edits += (
            LeaveOut(anchor=entries[turn].key, part=None, stage="trim", reason=reason, turn=turn),
        )
        view = View(rows=entries[turn + 1 :], tokens=0)
        report = replace(report, entries=entries, edits=edits, view=view, turn=turn)
        chain = chain.record(report, name)
    return written


def test_a_session_twice_as_long_stores_about_twice_as_much_of_its_outcomes() -> None:
    assert recorded_bytes(400) < 2.7 * recorded_bytes(200)


def test_nothing_that_a_message_says_is_in_what_is_kept_of_outcomes_and_reports() -> None:
    """By construction: codes, numbers and keys; a text of a reason is masked."""
    secret = "AKIA" + "Q3EXAMPLEKEY7XYZ"
    report = prepared(40)
    failed = Reason(Cause.ERROR, error=f"the store said aws_access_key_id={secret}")
    line = StageLine(stage="ingest", outcome="failed", reasons=(failed,), seconds=0.1)
    edit = replace(report.new_edits[0], reason=failed)
    report = replace(
        report, lines=(*report.lines, line), edits=(*report.edits, edit), new_edits=(edit,)
    )
    request = split_request(encode(talk(40)))
    mask = TextMask(Redaction())
    turn = FinishedTurn(
        request=request, report=report, state=SessionState(), now=1.0, as_it_came=False
    )
    recorded = record_turn(turn, LastRecord(), mask)
    kept = {piece.kind: piece for piece in recorded.pieces if piece.kind != "row"}
    outcomes = read_outcomes(kept["outcomes"].body)
    said = kept["report"].body.decode() + str(sort_outcomes(outcomes))
    assert "the store said" in said
    assert secret not in said
    assert "cargo" not in said
    for fate in sort_outcomes(outcomes):
        for reason in fate.reasons:
            texts = [value for value in reason.numbers.values() if isinstance(value, str)]
            assert all(text.isalpha() or "the store" in text for text in texts)


def earlier_report(report: Report, *, with_fates: bool) -> bytes:
    """As the first version wrote it; not to be changed."""
    fates: list[dict[str, Any]] = []
    for fate in report.fates() if with_fates else ():
        if fate.fate != "kept":
            record = fate.to_dict()
            fates.append({"entry": record.pop("key"), **record})
    return encode(
        {
            "turn": report.turn,
            "window_tokens": report.window_tokens,
            "limit_tokens": report.limit_tokens,
            "tokens_before": report.tokens_before,
            "tokens_after": report.tokens_after,
            "calibration_ratio": report.calibration_ratio,
            "moment": None if report.moment is None else report.moment.kind,
            "lines": [line.to_dict() for line in report.lines],
            "fates": fates,
            "recalled": [list(one) for one in report.recalled],
        }
    )


@pytest.mark.parametrize("turns", [40, 1])
def test_a_ledger_of_an_earlier_version_reads_as_before(tmp_path: Path, turns: int) -> None:
    report = prepared(turns)
    body = earlier_report(report, with_fates=bool(report.new_edits))
    pieces = [
        LedgerPiece(hash=PieceHash("1" * 32), kind="report", body=body),
        LedgerPiece(hash=PieceHash("2" * 32), kind="edits", body=b'{"new":[],"ended":[]}'),
        LedgerPiece(hash=PieceHash("3" * 32), kind="row", body=b'{"role":"user","content":"x"}'),
    ]
    record = TurnRecord(
        session="s",
        number=1,
        at=1.0,
        format="anthropic",
        report=pieces[0].hash,
        edits=pieces[1].hash,
        rows=(pieces[2].hash,),
    )

    async def run() -> None:
        store = await open_store(str(tmp_path / "m.db"), space="default")
        await store.write(Batch(at=1.0, pieces=tuple(pieces), turns=(record,)))
        found = await rebuild_request(store, "s", 1)
        await store.close()
        assert isinstance(found, Rebuilt)
        assert found.report is not None
        assert json.loads(found.report) == json.loads(body)

    asyncio.run(run())
