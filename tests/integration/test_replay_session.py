"""Replay: every turn of a long session is rebuilt from the ledger byte for byte.

A coding agent resends its whole history, 120 turns long (40 in CI): results are pruned, the past
is compacted on request and because the window is full, memory is recalled, a compaction is undone,
and another process goes on in the middle."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.sizes import at_size

from recollect import Engine, open_memory
from recollect.adapters.stores.sqlite.columns import pack_body, unpack_body
from recollect.adapters.wiring import open_store
from recollect.core.compaction.ask import REQUIRED_HEADINGS
from recollect.core.engine.rebuild import Rebuilt, rebuild_request
from recollect.core.values.edit import Cut, Insert, LeaveOut, Shorten
from recollect.testing.scripted_model import ScriptedModel

TURNS = at_size(ci=40, full=120)
COMPACTED_EVERY = at_size(ci=7, full=13)
UNDONE_AT = at_size(ci=27, full=83)
RESTARTED_AT = at_size(ci=16, full=50)
SETTINGS = {
    "window_tokens": at_size(ci=8_000, full=12_000),
    "recall.embedder": "none",
    "compaction.background": False,
    "compaction.keep_recent_tokens": at_size(ci=1_500, full=2_000),
}
PLACES = ("north quay", "old lighthouse", "cold store", "dry dock", "customs house")
TOOL = {"name": "read", "description": "reads a file", "input_schema": {"type": "object"}}


def asked(n: int) -> list[dict[str, Any]]:
    """What the user says in turn n; now and then about something long ago."""
    place = PLACES[n % len(PLACES)]
    text = f"Turn {n}: the {place} needs crane code {n * 7919 % 100_000:05d}; née 港, what next?"
    if n % 9 == 0 and n:
        text = f"Which crane code did the {PLACES[n % 5]} need in the beginning, in turn {n // 3}?"
    return [{"role": "user", "content": text}]


def answered(n: int) -> list[dict[str, Any]]:
    """What the model and its tools say then."""
    told: list[dict[str, Any]] = []
    if n % 3 == 0:
        call = {
            "type": "tool_use",
            "id": f"t{n}",
            "name": "read",
            "input": {"path": f"log/{n}.txt"},
        }
        lines = "\n".join(f"{n}:{line} crane moved over the quay" for line in range(20 + n % 30))
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": lines}
        told = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    words = f"Noted for turn {n}, the winch is ready. "
    if n >= RESTARTED_AT:  # what only a compaction can make room for
        words += f"The tide of turn {n} is told hour by hour. " * at_size(ci=12, full=4)
    return [*told, {"role": "assistant", "content": words}]


SAID = (
    "keep every crane of the harbour moving",
    "codes are written down turn by turn",
    "read the logs of the winches that are left",
    "nothing is lifted without its code",
    "the user asks for crane codes of the quay",
    "log/0.txt is the first log",
)


def summary(prompt: Any) -> str:
    lines = zip(REQUIRED_HEADINGS, SAID, strict=True)
    written = "\n".join(f"{heading}\n- {line}" for heading, line in lines)
    return f"{written}\n- of {len(prompt.text)} characters"


def as_body(request: dict[str, Any]) -> bytes:
    return json.dumps(request, indent=1).encode()


def as_mapping(request: dict[str, Any]) -> dict[str, Any]:
    return request


def bytes_of(sent: Any) -> bytes:
    if isinstance(sent, bytes):
        return sent
    return json.dumps(sent, separators=(",", ":"), ensure_ascii=False).encode()


class Talk:
    """A client that resends its own history, and what was sent of it."""

    def __init__(self, file: Path, spelled: Callable[[dict[str, Any]], Any]) -> None:
        self.file = file
        self.spelled = spelled
        self.history: list[dict[str, Any]] = []
        self.sent: dict[int, bytes] = {}
        self.told: dict[int, dict[str, Any]] = {}
        self.seen: set[type] = set()
        self.asked_for = self.filled = 0
        self.undone = False

    def opened(self) -> Engine:
        return open_memory(store=self.file, settings=SETTINGS, model=ScriptedModel(summary))

    def request(self) -> dict[str, Any]:
        return {
            "model": "claude-x",
            "max_tokens": 500,
            "system": "You look after a harbour.",
            "messages": list(self.history),
            "tools": [TOOL],
        }

    async def turn(self, memory: Engine, n: int) -> None:
        self.history += asked(n)
        given = self.spelled(self.request())
        if n == UNDONE_AT:
            assert (await memory.undo("s")).undone is not None
            self.undone = True
        context = await memory.prepare("s", given)
        self.filled += context.compaction is not None and context.compaction.compacted
        self.seen |= {type(edit) for edit in context.edits}
        self.sent[context.report.turn] = bytes_of(context.request)
        self.told[context.report.turn] = json.loads(json.dumps(context.report.to_dict()))
        told = answered(n)
        self.history += told
        await memory.observe("s", {**told[-1], "usage": {"input_tokens": 9_000}})
        if n % COMPACTED_EVERY == 0 and n:
            done = await memory.compact("s")
            assert done.ok, done.reason  # where the window was full just now, nothing is left to do
            self.asked_for += done.compacted


def assert_same(kept: dict[str, Any], told: dict[str, Any]) -> None:
    """The report of the ledger says what the caller was told when the request was prepared."""
    names = ("turn", "window_tokens", "limit_tokens", "tokens_before", "tokens_after", "lines")
    for name in names:
        assert kept[name] == told[name], name
    changed = [fate for fate in told["fates"] if fate["fate"] != "kept"]
    assert kept["fates"] == [{"entry": fate.pop("key"), **fate} for fate in changed]
    assert kept["recalled"] == [[one["segment"], one["score"]] for one in told["recalled"]]


@pytest.mark.parametrize(("spelled", "turns"), [(as_body, TURNS), (as_mapping, TURNS // 2)])
async def test_every_turn_of_a_long_session_is_rebuilt_byte_for_byte(
    tmp_path: Path, spelled: Callable[[dict[str, Any]], Any], turns: int
) -> None:
    talk = Talk(tmp_path / "m.db", spelled)
    async with talk.opened() as memory:
        for n in range(RESTARTED_AT):
            await talk.turn(memory, n)
    async with talk.opened() as memory:
        for n in range(RESTARTED_AT, turns):
            await talk.turn(memory, n)
    store = await open_store(str(talk.file), space="default")
    assert list(await store.turns("s")) == sorted(talk.sent)
    for number, body in talk.sent.items():
        found = await rebuild_request(store, "s", number)
        assert isinstance(found, Rebuilt)
        assert found.exact, (number, found.missing, found.redacted)
        assert found.body == body, number
        assert found.report is not None
        assert_same(json.loads(found.report), talk.told[number])
    await store.close()
    assert len(talk.sent) == turns
    assert talk.asked_for, "compacted on request"
    assert talk.filled, "and because the window was full"
    assert talk.undone is (turns > UNDONE_AT), "one of them was undone"
    assert {Cut, Insert} <= talk.seen
    assert talk.seen & {Shorten, LeaveOut}


CHANGES: dict[str, tuple[str, str]] = {
    "another word": ("message 1 of 3", "north quay"),
    "the system prompt": ("system prompt", "look after"),
    "the tools": ("tools", "reads a file"),
    "a parameter": ("parameters", "claude-x"),
}


@pytest.mark.parametrize("change", [*CHANGES, "a pattern that was forgotten"])
async def test_a_part_that_was_changed_is_not_called_exact(change: str, tmp_path: Path) -> None:
    """Whether somebody edits the file, or a command masks what is stored."""
    file = tmp_path / "m.db"
    messages = [
        {"role": "user", "content": "the boat lies at the north quay"},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "and the crane?"},
    ]
    request = {"model": "claude-x", "system": "You look after a harbour.", "tools": [TOOL]}
    body = json.dumps({**request, "messages": messages}).encode()
    async with open_memory(store=file, settings={"recall.embedder": "none"}) as memory:
        await memory.prepare("s", body)
        await memory.settle()
    part, words = CHANGES.get(change, ("tools", "reads a file"))
    if change in CHANGES:
        change_pieces(file, words)
    else:
        async with open_memory(store=file) as memory:
            await memory.forget(pattern="reads a f\\w+")
    store = await open_store(str(file), space="default")
    try:
        rebuilt = await rebuild_request(store, "s", 1)
        assert isinstance(rebuilt, Rebuilt)
        assert rebuilt.body != body
        assert not rebuilt.exact
        assert rebuilt.redacted == (part,)
    finally:
        await store.close()


def change_pieces(file: Path, words: str) -> None:
    with contextlib.closing(apsw.Connection(str(file))) as connection:
        rows = list(connection.execute("SELECT hash, body FROM piece"))
        for name, stored in rows:
            body = unpack_body(stored)
            other = body.replace(words.encode(), words.upper().encode())
            if other != body:
                given = (pack_body(other), name)
                connection.execute("UPDATE piece SET body = ? WHERE hash = ?", given)
