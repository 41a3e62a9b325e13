"""What the user laid down stands in every request, whatever is asked, and keeps the cache."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from recollect import open_memory
from recollect.adapters.wiring.stores import open_store
from recollect.core.engine.session import Context
from recollect.core.formats.recalled_block import STANDING_NOTE
from recollect.core.values.edit import Insert
from recollect.core.values.model import Prompt
from recollect.core.values.recall import BLOCK_OPENING
from recollect.core.values.upkeep import ForgetOrder

SETTINGS = {"recall.embedder": "none", "window_tokens": 6_000, "recall.standing_tokens": 1_600}
LAID_DOWN = (
    "We agreed that the ledger database of staging listens on port 8471.",
    "Never push to main without a review by Hanneke Prins.",
)
WORK = "sweep the quay, coil the ropes and write down how many barges lie there, "


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def request(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"model": "gpt-4o", "messages": messages}


async def worked(memory: Any, held: list[dict[str, Any]], rounds: int) -> list[Context]:
    contexts = []
    for number in range(rounds):
        held += [assistant("done"), user(f"round {number}: {WORK * 12}")]
        contexts.append(await memory.prepare("s", request(list(held))))
    return contexts


def standing(context: Context) -> list[str]:
    edits = context.edits
    return [e.text for e in edits if isinstance(e, Insert) and e.stage == "stand"]


async def test_what_was_laid_down_outlives_the_message_that_said_it(tmp_path: Path) -> None:
    async with open_memory(store=tmp_path / "m.db", settings=SETTINGS) as memory:
        held = [user("We look after a harbour."), assistant("fine")]
        for text in LAID_DOWN:
            held += [user(text), assistant("noted")]
        held.append(user("now to work: " + WORK))
        contexts = await worked(memory, held, 40)
        for context in contexts[-3:]:
            shown = json.dumps(context.request)
            assert all(text in shown for text in LAID_DOWN)
            assert len(standing(context)) == 1
            assert context.report.tokens_after <= context.report.limit_tokens
        sent = [context.request["messages"] for context in contexts]
        kept = sum(before == now[: len(before)] for before, now in pairwise(sent))
        assert kept >= 0.75 * (len(contexts) - 1), "it changes only where other things change"
        assert "stand" in {line.stage for context in contexts for line in context.report.lines}


async def say_nothing(prompt: Prompt) -> str:
    """A summary of a model that kept nothing of what it read; never twice the same."""
    done = f"Something was done {len(prompt.text)} times."
    return f"## Goal\nWork goes on.\n\n## Progress\n{done}"


async def test_what_was_laid_down_outlives_a_compaction(tmp_path: Path) -> None:
    """A summary that does not say it stands for it no better than a note on trimmed messages."""
    further = tuple(f"We decided that basin {at} takes up to {40 + at} barges." for at in range(12))
    said = (*LAID_DOWN, *further)
    settings = {**SETTINGS, "window_tokens": 9_000}
    async with open_memory(store=tmp_path / "m.db", settings=settings, model=say_nothing) as memory:
        held = [user("We look after a harbour."), assistant("fine")]
        for text in said:
            held += [user(text), assistant("noted")]
        held.append(user("now to work: " + WORK))
        contexts = await worked(memory, held, 60)
        assert memory.session("s").state.compactions >= 2
        for context in contexts[-10:]:
            shown = json.dumps(context.request)
            assert [text for text in said if text not in shown] == []
            assert len(standing(context)) == 1
            assert context.report.tokens_after <= context.report.limit_tokens
        sent = [context.request["messages"] for context in contexts]
        kept = sum(before == now[: len(before)] for before, now in pairwise(sent))
        assert kept >= 0.9 * (len(contexts) - 1), "it changes only where other things change"


@pytest.mark.parametrize(
    "text",
    [
        "Don't restart the chiller without asking me.",
        "Please keep answers under ten lines.",
        "Update: the port of the ledger is 8471.",
        "In reports to me give temperatures in Celsius.",
        "The gateway token of the buoys rotates on Mondays.",
        "I don't eat fish.",
        "I'm vegetarian.",
    ],
)
async def test_rules_stand_however_they_are_worded(tmp_path: Path, text: str) -> None:
    settings = {"recall.embedder": "none", "window_tokens": 6_000}
    async with open_memory(store=tmp_path / "m.db", settings=settings) as memory:
        called = {"name": "look", "arguments": "{}"}
        call = {"id": "c1", "type": "function", "function": called}
        held = [user("We look after a harbour.")]
        held += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        held += [{"role": "tool", "tool_call_id": "c1", "content": "calm"}]
        held += [assistant("All is calm."), user(text)]
        context = (await worked(memory, held, 40))[-1]
        assert [text in block for block in standing(context)] == [True]


async def test_what_was_forgotten_never_stands_and_the_rest_does(tmp_path: Path) -> None:
    held = [user("We look after a harbour."), assistant("fine")]
    for text in LAID_DOWN:
        held += [user(text), assistant("noted")]
    async with open_memory(store=tmp_path / "m.db", settings=SETTINGS) as memory:
        context = (await worked(memory, held, 20))[-1]
        gone = next(one.id for one in context.report.entries if b"8471" in one.raw)
        await memory.settle()
    store = await open_store(str(tmp_path / "m.db"), space="default")
    await store.forget(ForgetOrder(at=2e9, message_ids=(gone,)))
    await store.close()
    async with open_memory(store=tmp_path / "m.db", settings=SETTINGS) as memory:
        for context in (await worked(memory, held, 20))[10:]:
            assert [LAID_DOWN[1] in block for block in standing(context)] == [True]
            assert "8471" not in json.dumps(context.request)


async def test_another_branch_does_not_stand(tmp_path: Path) -> None:
    async with open_memory(store=tmp_path / "m.db", settings=SETTINGS) as memory:
        begun = [user("We look after a harbour."), assistant("fine"), user("to work: " + WORK)]
        held = [*begun, assistant("ok"), user(LAID_DOWN[0])]
        assert standing((await worked(memory, held, 30))[-1])
        other = [*begun, assistant("ok"), user(LAID_DOWN[1])]
        for context in await worked(memory, other, 30):
            assert "8471" not in json.dumps(context.request)
            assert LAID_DOWN[1] in json.dumps(context.request)


async def test_what_is_known_for_a_secret_later_stands_no_longer(tmp_path: Path) -> None:
    secret = "hV7!pQ2#zL9rT4wX"
    async with open_memory(store=tmp_path / "m.db", settings=SETTINGS) as memory:
        held = [user("We look after a harbour."), assistant("fine")]
        held += [user(f"We agreed that the crane is called {secret} from now on.")]
        await worked(memory, held, 20)
        held += [assistant("ok"), user(f"The staging password is {secret} by the way.")]
        context = (await worked(memory, held, 25))[-1]
        assert standing(context)
        assert not any(secret in block for block in standing(context))


async def test_a_secret_does_not_stand(tmp_path: Path) -> None:
    secret = "hV7!pQ2#zL9rT4wX"
    async with open_memory(store=tmp_path / "m.db", settings=SETTINGS) as memory:
        told = f"We agreed that the staging password is {secret} from now on."
        held = [user("We look after a harbour."), assistant("fine"), user(told)]
        context = (await worked(memory, held, 40))[-1]
        assert standing(context)
        assert secret not in json.dumps(context.request)
    assert all(
        secret.encode() not in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()
    )


async def test_pinned_facts_stand_from_the_first_request_on(tmp_path: Path) -> None:
    async with open_memory(store=tmp_path / "m.db", settings=SETTINGS) as memory:
        book = await memory.facts()
        written = await book.add("Always answer in German.", type="preference")
        assert written.fact is not None
        await book.pin(written.fact.id)
        first = await memory.prepare("s", request([user("hello there")]))
        assert "Always answer in German." in json.dumps(first.request)
        held = [user("hello there")]
        for context in await worked(memory, held, 30):
            assert json.dumps(context.request).count("Always answer in German.") == 1


async def test_standing_block_that_comes_back_is_not_kept_as_something_said(tmp_path: Path) -> None:
    async with open_memory(store=tmp_path / "m.db", settings=SETTINGS) as memory:
        held = [user("We look after a harbour."), assistant("fine"), user(LAID_DOWN[0])]
        context = (await worked(memory, held, 40))[-1]
        echoed = [*context.request["messages"], assistant("ok"), user("go on, please")]
        assert BLOCK_OPENING in str(echoed)
        await memory.prepare("s", request(echoed))
        await memory.settle()
    store = await open_store(str(tmp_path / "m.db"), space="default")
    kept = [one.segment.text for one in await store.page(limit=1_000)]
    await store.close()
    assert LAID_DOWN[0] in kept
    assert not [text for text in kept if BLOCK_OPENING in text or STANDING_NOTE in text]


async def test_a_message_that_a_repair_hides_outdates_no_block(tmp_path: Path) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    failed = {"role": "tool", "tool_call_id": "call_1", "content": "Error: ENOENT: no such file"}
    elsewhere = {**failed, "content": "Error: EACCES: permission denied"}
    held = [
        user("hello"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        failed,
        failed,
        elsewhere,
    ]
    async with open_memory(store=tmp_path / "m.db", settings=SETTINGS) as memory:
        first = await memory.prepare("s", request(held))
        again = await memory.prepare("s", request(held))
    assert again.edits == first.edits
    assert all("ENOENT" not in block for block in standing(first)), "the view shows it"
