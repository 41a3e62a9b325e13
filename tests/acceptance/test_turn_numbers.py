"""Turns are counted alike by reports, `explain`, receipts and `replay`, whatever lies between."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.recollect_cli import Recollect, environment
from tests.acceptance.test_receipt_cli import SETTINGS, summary
from tests.harness.forked_cli import run_forked

from recollect import open_memory
from recollect.testing.scripted_model import ScriptedModel

SECRET = "AKIA" + "IOSFODNN7EXAMPLX"
ASKS = ["look at the parser, please", f"deploy it with {SECRET} then", "and now the docs"]


def rounds(question: int) -> list[dict[str, Any]]:
    """A question that takes two rounds of tools, and its answer: three requests."""
    made: list[dict[str, Any]] = [{"role": "user", "content": ASKS[question]}]
    for number in range(2):
        call = {"type": "tool_use", "id": f"c{question}{number}", "name": "read", "input": {}}
        rows = f"row {question} {number} of a long table\n" * 60
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": rows}
        made += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return [*made, {"role": "assistant", "content": f"answer {question}"}]


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, Any], list[Any]]:
    """Three questions with tools, a compaction and its undo between them; what was sent."""
    folder = tmp_path_factory.mktemp("turns")
    sent: dict[int, Any] = {}
    history: list[Any] = []

    async def run() -> None:
        model = ScriptedModel([summary("drop"), summary("keep")] * 4)
        file = folder / "memory.db"
        async with open_memory(store=file, settings=SETTINGS, model=model) as memory:
            for question in range(len(ASKS)):
                for message in rounds(question):
                    if message["role"] == "assistant":
                        body = {"model": "m", "max_tokens": 9, "messages": list(history)}
                        context = await memory.prepare("work", body)
                        sent[context.report.turn] = context.request
                        await memory.observe("work", {"usage": {"input_tokens": 900}, **message})
                    history.append(message)
                if question == 0:
                    done = await memory.compact("work")
                    assert done.compacted, done.reason
                    assert (await memory.undo("work")).undone is not None
                    await memory.flushed("work")
                if question == 1:
                    assert (await memory.compact("work")).compacted

    asyncio.run(run())
    return folder, sent, history


def test_every_number_is_the_same_everywhere(
    talked: tuple[Path, dict[int, Any], list[Any]], tmp_path: Path
) -> None:
    folder, sent, history = talked
    recollect = Recollect(folder)
    assert list(sent) == list(range(1, 10)), "one for every request, none for what lies between"
    for turn in (1, 4, 9):
        told = recollect.json("replay", "work", "--turn", str(turn))
        assert (told["turn"], told["request"]) == (turn, _masked(sent[turn]))
        assert told["report"]["turn"] == turn
    file = tmp_path / "talk.json"
    file.write_text(json.dumps(history))
    done = run_forked(
        ["explain", str(file), "--json"],
        stdin=b"",
        env=environment(tmp_path),
        cwd=tmp_path,
        timeout=300,
    )
    assert json.loads(done.stdout)["turns"] == 9
    receipts = [recollect.json("receipt", "work", "--number", n)["turn"] for n in ("1", "2")]
    assert receipts == [4, 7], "before which turn each was made"


def test_turns_are_listed_by_what_user_said(talked: tuple[Path, dict[int, Any], list[Any]]) -> None:
    recollect = Recollect(talked[0])
    shown = recollect.text("replay", "work", "--list").splitlines()
    assert [line.split()[0] for line in shown] == ["1-3", "4-6", "7-9"]
    assert shown[0].endswith(ASKS[0])
    assert SECRET not in "".join(shown)
    turns = recollect.json("replay", "work", "--list")["turns"]
    assert [(one["turn"], one["said"]) for one in turns][6:] == [(n, ASKS[2]) for n in (7, 8, 9)]
    done = recollect.run("replay", "work", "--turn", "12")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().splitlines()[:3] == shown
    assert "turn 12 is not in the ledger" in done.stderr.decode().splitlines()[-1]


def _masked(request: Any) -> Any:
    from recollect.core.rules.redaction import redact

    return json.loads(redact(json.dumps(request)).text)
