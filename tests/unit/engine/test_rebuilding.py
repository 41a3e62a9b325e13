"""Requests of past turns from the ledger: byte for byte, and marked where that cannot be."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from recollect import open_memory
from recollect.adapters.wiring import open_store
from recollect.core.engine.rebuild import GONE, NotRebuilt, Rebuilt, rebuild_request
from recollect.core.values.upkeep import ForgetOrder

LONG = "cargo and crane and winch over the quay " * 40
TOOLS = [{"name": "read", "description": "reads “it”", "input_schema": {"type": "object"}}]


def request(turns: int, first: str = "Begin with the harbour.") -> dict[str, Any]:
    held: list[dict[str, Any]] = [{"role": "user", "content": f"{first} {LONG}"}]
    for n in range(turns):
        held += [
            {"role": "assistant", "content": f"step {n}: née 港 {LONG}"},
            {"role": "user", "content": f"and then number {n}?"},
        ]
    return {
        "model": "claude-x",
        "max_tokens": 100,
        "system": "Be brief.",
        "temperature": 0.5,
        "messages": held,
        "tools": TOOLS,
    }


async def rebuilt(file: Path, number: int) -> Rebuilt | NotRebuilt:
    store = await open_store(str(file), space="default")
    try:
        return await rebuild_request(store, "s", number)
    finally:
        await store.close()


async def sent(file: Path, requests: list[Any], **more: Any) -> list[Any]:
    done = []
    async with open_memory(store=file, window_tokens=16_000, **more) as memory:
        for one in requests:
            done.append((await memory.prepare("s", one)).request)
            await memory.settle(60)  # what waits in the spool makes the next turn wait there, too
    return done


async def test_what_was_masked_is_said_to_be(tmp_path: Path) -> None:
    secret = "AKIA" + "Q3EXAMPLEKEY7XYZ"
    body = json.dumps(request(1, f"Use aws_access_key_id={secret} for it.")).encode()
    (out,) = await sent(tmp_path / "m.db", [body])
    assert secret.encode() in out
    found = await rebuilt(tmp_path / "m.db", 1)
    assert isinstance(found, Rebuilt)
    assert not found.exact
    assert found.redacted == ("message 1 of 3",)
    assert secret.encode() not in found.body
    assert json.loads(found.body)["messages"][1:] == json.loads(out)["messages"][1:]


async def test_what_was_forgotten_stands_as_a_mark(tmp_path: Path) -> None:
    body = json.dumps(request(2, "My name is Zanzibar.")).encode()
    (out,) = await sent(tmp_path / "m.db", [body])
    store = await open_store(str(tmp_path / "m.db"), space="default")
    await store.forget(ForgetOrder(at=2e9, matching="Zanzibar"))
    await store.close()
    found = await rebuilt(tmp_path / "m.db", 1)
    assert isinstance(found, Rebuilt)
    assert not found.exact
    assert found.missing == ("message 1 of 5",)
    told = json.loads(found.body)
    assert told["messages"][0] == json.loads(GONE)
    assert told["messages"][1:] == json.loads(out)["messages"][1:]


async def test_outcomes_of_which_a_record_is_gone_are_said_to_be_missing(tmp_path: Path) -> None:
    file = tmp_path / "m.db"
    # Each is over the limit again, so that more is left out, however late recall is. After a
    # turn that waited in the spool, as on a busy machine, the next rests on nothing.
    await sent(file, [request(n) for n in (40, 60, 80, 100)])
    turns = [await rebuilt(file, number) for number in range(1, 5)]
    whole = max(
        (turn for turn in turns if isinstance(turn, Rebuilt)),
        key=lambda turn: len(turn.record.outcomes),
    )
    assert len(whole.record.outcomes) > 1
    with sqlite3.connect(file) as db:
        db.execute("DELETE FROM piece WHERE hash = ?", (whole.record.outcomes[0],))
    db.close()
    left = await rebuilt(file, whole.record.number)
    assert isinstance(left, Rebuilt)
    assert (left.missing, left.body) == (("outcomes",), whole.body)
    assert left.report is not None
    assert whole.report is not None
    assert json.loads(whole.report)["fates"]
    assert not json.loads(left.report)["fates"]


async def test_forgetting_a_text_removes_a_torn_piece_that_may_hold_it(tmp_path: Path) -> None:
    file = tmp_path / "m.db"
    await sent(file, [request(2)])
    with sqlite3.connect(file) as db:
        (name, body), *_ = db.execute(
            "SELECT hash, body FROM piece ORDER BY length(body) DESC"
        ).fetchall()
        db.execute("UPDATE piece SET body = ? WHERE hash = ?", (body[:-6], name))
    store = await open_store(str(file), space="default")
    try:
        await store.forget(ForgetOrder(at=1.0, matching="winch over the quay"))
    finally:
        await store.close()
    held = db.execute("SELECT count(*) FROM piece WHERE hash = ?", (name,)).fetchone()
    db.close()
    assert held == (0,)
