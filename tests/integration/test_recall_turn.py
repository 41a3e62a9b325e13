"""Recall as a turn sees it: through the engine, on a store in a file."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.config.test_recall_settings_act import (
    BY_WORDS,
    HARBOUR,
    START,
    Clock,
    ask_once,
    remember,
    said,
    turn,
)

from recollect import open_memory
from recollect.adapters.wiring import open_store
from recollect.core.values.edit import Insert
from recollect.core.values.model import FormatName
from recollect.testing.provider_rules import violations

QUESTION = "how much cargo does the red crane lift, and who paints it?"


async def test_a_question_is_not_what_the_view_shows(tmp_path: Path) -> None:
    """It is kept before memory is asked, and nothing answers it as well as it does itself."""
    await remember(tmp_path / "m.db", HARBOUR)
    found = await ask_once(tmp_path / "m.db", BY_WORDS, QUESTION)
    assert "certainty" in found.said
    assert any("the crane is red" in line for line in found.lines)
    assert not any(QUESTION in line for line in found.lines)


REMINDER = "You have used 10% of your context."
CARGO = "the red crane lifts forty tons of cargo, and Olga paints it"


def _asked_before_system_messages(wire: str, kind: str) -> dict[str, Any]:
    """A request of a wire whose question is followed by system messages, as some agents send it;
    in mid-turn what was asked for is followed by a tool's result, too."""
    if wire == "openai-responses":
        rows: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
        if kind == "mid-turn":
            rows += [{"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}]
            rows += [{"type": "function_call_output", "call_id": "c1", "output": "calm"}]
        rows += [{"role": "developer", "content": REMINDER}] * 2
        return {"model": "gpt-5", "input": rows}
    rows = [{"role": "user", "content": QUESTION}]
    reminders = [{"role": "system", "content": REMINDER}] * 2
    if wire == "openai-chat":
        if kind == "mid-turn":
            function = {"name": "look", "arguments": "{}"}
            call = {"id": "c1", "type": "function", "function": function}
            rows += [{"role": "assistant", "content": None, "tool_calls": [call]}]
            rows += [{"role": "tool", "tool_call_id": "c1", "content": "calm"}]
        return {"model": "gpt-4o", "messages": [*rows, *reminders]}
    if kind == "mid-turn":
        use = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "c1", "content": "calm"}
        rows += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    request = {"model": "claude-x", "max_tokens": 10, "messages": [*rows, *reminders]}
    return request | {"betas": ["mid-conversation-system-2026-01-01"]}


@pytest.mark.parametrize("wire", ["anthropic", "openai-chat", "openai-responses"])
@pytest.mark.parametrize("kind", ["first", "mid-turn"])
async def test_a_request_that_ends_with_system_messages_recalls(
    tmp_path: Path, wire: FormatName, kind: str
) -> None:
    """Claude Code ends its first request, and the first after a compaction, with them."""
    request = _asked_before_system_messages(wire, kind)
    await remember(tmp_path / "m.db", (*HARBOUR, CARGO))
    settings = {**BY_WORDS, "recall.every_turn": kind == "mid-turn"}
    memory = open_memory(store=tmp_path / "m.db", settings=settings, clock=Clock())
    context = await memory.prepare("s", request, format=wire)
    await memory.close()
    (block,) = [edit for edit in context.edits if isinstance(edit, Insert)]
    assert CARGO in block.text
    sent = str(context.request)
    assert (sent.index(CARGO) < sent.index(QUESTION)) == (kind == "first")
    assert sent.count(REMINDER) == 2
    assert violations(wire, context.request) == []


def _documented(module: str, number: int) -> list[dict[str, Any]]:
    """An order that an agent carried out with a tool."""
    function = {"name": "read", "arguments": f'{{"path": "{module}.py"}}'}
    call = {"id": f"c{number}", "type": "function", "function": function}
    printed = f"import {module}_base\nimport datetime\ndef open_{module}(): ..."
    return [
        {"role": "user", "content": DOCUMENT.format(module)},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": printed},
        {"role": "assistant", "content": f"I documented the public functions of {module}.py."},
    ]


DOCUMENT = "Please document the public functions, arguments and exceptions of the {} module."
GAUGE = "The tide gauge of the east basin reports in feet."


@pytest.mark.parametrize(
    ("newest", "recalled"),
    [
        (DOCUMENT.format("crane"), False),
        ("sounds good, please continue", False),
        ("What does tide_table.py import?", False),
        ("Convert the report of the tide gauge of the east basin.", True),
    ],
)
async def test_work_brings_what_the_user_stated_and_no_earlier_work(
    tmp_path: Path, newest: str, recalled: bool
) -> None:
    held = said(*[text for at in range(60) for text in (f"barge {at} is in hall {at}", "noted")])
    modules = ("harbour", "lighthouse", "crane", "quay", "ferry", "cargo", "winch", "buoy")
    work = [row for at, module in enumerate(modules) for row in _documented(module, at)]
    rows = [*held["messages"], *work, {"role": "user", "content": GAUGE}]
    settings = {**BY_WORDS, "recall.standing_tokens": 0}
    async with open_memory(store=tmp_path / "m.db", settings=settings) as memory:
        await memory.prepare("s", {"model": "gpt-4o", "messages": rows})
        await memory.settle()
        asked = [{"role": "user", "content": newest}]
        context = await memory.prepare("s", {"model": "gpt-4o", "messages": asked})
    blocks = [edit.text for edit in context.edits if isinstance(edit, Insert)]
    assert [GAUGE in block for block in blocks] == [True] * recalled


LISTED = (
    "src/harbour/tide_table.py", "docs/winch-manual.md", "berth_plan.csv", "load_manifest()",
    "HARBOUR_TOKEN", "E4711", "crane.config.max_load", "infra/quay/main.tf",
)  # fmt: skip
KEEP = "We keep {} out of every release because the harbour office prints it."


@pytest.mark.parametrize("stated", [False, True])
@pytest.mark.parametrize("listed", LISTED)
async def test_an_order_that_names_what_a_tool_listed_recalls_only_statements(
    tmp_path: Path, listed: str, stated: bool
) -> None:
    """An agent lists files every day, so a listing in memory is no reason for a block."""
    printed = "\n".join(f"-rw-r--r-- 1 olga {at} {name}" for at, name in enumerate(LISTED))
    call = {"id": "c1", "type": "function", "function": {"name": "list", "arguments": "{}"}}
    rows = [
        *said(*[text for at in range(60) for text in (f"barge {at} is in hall {at}", "noted")])[
            "messages"
        ],
        {"role": "user", "content": "Please list the folder."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": printed},
        {"role": "assistant", "content": f"The folder has {len(LISTED)} files, {listed} too."},
        *[{"role": "user", "content": KEEP.format(listed)}] * stated,
    ]
    settings = {**BY_WORDS, "recall.standing_tokens": 0}
    async with open_memory(store=tmp_path / "m.db", settings=settings) as memory:
        await memory.prepare("s", {"model": "gpt-4o", "messages": rows})
        await memory.settle()
        order = f"Rename the second heading of {listed} and run the linter."
        asked = [{"role": "user", "content": order}]
        context = await memory.prepare("s", {"model": "gpt-4o", "messages": asked})
    blocks = [edit.text for edit in context.edits if isinstance(edit, Insert)]
    assert [KEEP.format(listed) in block for block in blocks] == [True] * stated
    assert not any("olga" in block for block in blocks)


async def test_a_turn_recalls_the_memory_files_of_its_workspace(tmp_path: Path) -> None:
    """Beside what its own session said, by default; and not what was said in another one."""
    workspace = tmp_path / "work"
    (workspace / "memory").mkdir(parents=True)
    (workspace / "MEMORY.md").write_text(
        "# Garden\nRoses need water.\n\n# Harbour\nThe red crane lifts forty tons of cargo.\n"
    )
    (workspace / "memory" / "2026-11-15.md").write_text("Olga paints the red crane in spring.\n")
    elsewhere = ("the red crane lifts no cargo in winter", "and nobody paints it")
    await remember(tmp_path / "m.db", elsewhere, session="another")
    await remember(tmp_path / "m.db", HARBOUR)
    clock = Clock(START + 60)
    memory = open_memory(
        store=tmp_path / "m.db", settings=BY_WORDS, workspace=workspace, clock=clock
    )
    store = await open_store(str(tmp_path / "m.db"), space="default")
    await memory.prepare("warming up", said("good morning"))
    until = asyncio.get_running_loop().time() + 20
    while sum(one.session.startswith("file:") for one in await store.sessions()) < 2:
        assert asyncio.get_running_loop().time() < until
        await asyncio.sleep(0.02)
    found = await turn(memory, QUESTION)
    await store.close()
    await memory.close()
    shown = " ".join(found.block.split())
    assert "MEMORY.md:4: Harbour The red crane lifts forty tons of cargo." in shown
    assert "memory/2026-11-15.md:1: Olga paints the red crane in spring." in shown
    assert any(HARBOUR[2] in line for line in found.lines)
    assert not any("winter" in line for line in found.lines)


SUBJECTS = ("indexer", "gateway", "scheduler", "archive")
PORTS = ("4711", "4822", "4933", "5044")
NOTES = "\n".join(
    f"The {name} was moved to port {port} by Marta on the day of the {name} review. "
    + f"Nobody objected to what she did with it, part {port[0]}. " * 7
    for name, port in zip(SUBJECTS, PORTS, strict=True)
)
"""One message of four passages, one on each subject."""


@pytest.mark.parametrize("pause", [0.0, 1200.0])
@pytest.mark.parametrize(("spare", "full"), [(120, True), (180, True), (900, False)])
async def test_a_full_view_makes_room_for_what_is_asked(
    tmp_path: Path, spare: int, full: bool, pause: float
) -> None:
    """Silence would read as if memory held nothing. A pause is an edit batch of its own."""
    pasted = "so much was said of this and that "
    await remember(tmp_path / "m.db", (NOTES, "noted, all of it", *HARBOUR))
    clock = Clock()
    memory = open_memory(
        store=tmp_path / "m.db", settings=BY_WORDS, window_tokens=8_000, clock=clock
    )
    question = "which port has the indexer?"

    def filled(times: int) -> dict[str, Any]:
        return said("hello", *["fine", pasted * times] * 9, "fine", question)

    few, many = [
        (await memory.prepare(f"measured {n}", filled(n))).report.tokens_after for n in (4, 8)
    ]
    limit = (await memory.prepare("measured 4", filled(4))).report.limit_tokens
    times = 4 + int((limit - spare - few) / ((many - few) / 4))
    if pause:
        held = filled(times)
        await memory.prepare("s", held | {"messages": held["messages"][:-2]})
        clock.seconds += pause
    context = await memory.prepare("s", filled(times))
    await memory.close()
    report = context.report
    assert (report.moment is not None and report.moment.kind == "room") is full
    assert PORTS[SUBJECTS.index("indexer")] in str(context.request), "it answers, full or not"
    assert report.tokens_after <= report.limit_tokens


async def test_a_value_that_was_corrected_is_marked_where_it_is_quoted(tmp_path: Path) -> None:
    old, new = (
        "The API port is 8000, behind the proxy.",
        "Correction: the API port is 9000, not 8000.",
    )
    work = "sweep the quay, coil the ropes and write down how many barges lie there, " * 12
    settings = {"recall.embedder": "none", "recall.standing_tokens": 0}
    async with open_memory(
        store=tmp_path / "m.db", settings=settings, window_tokens=6_000
    ) as memory:
        held = ["We look after a harbour.", "fine", old, "noted", new, "noted"]
        for number in range(24):
            held += [f"round {number}: {work}", "done"]
            await memory.prepare("s", said(*held[:-1]))
        await memory.settle(20.0, jobs=True)
        context = await memory.prepare("s", said(*held, "which API port is it?"))
    (block,) = [edit.text for edit in context.edits if isinstance(edit, Insert)]
    assert f"{old} [replaced since: {new}]" in block
    assert f"{new} [" not in block


async def test_an_old_value_in_view_keeps_no_correction_from_being_recalled(
    tmp_path: Path,
) -> None:
    settings = {**BY_WORDS, "recall.scope": "space", "recall.standing_tokens": 0}
    answer = "The green crane stands at the north quay."
    later = "Actually the blue crane stands at the north quay now."
    notes = [f"note {at}: barge {at} carries grain, rope and tar for hall {at}" for at in range(30)]
    filler = [text for note in notes for text in (note, "noted")][:-1]
    clock = Clock()
    async with open_memory(store=tmp_path / "m.db", settings=settings, clock=clock) as memory:
        await memory.prepare("filler", said(*filler))
        await memory.prepare("s", said(answer))
        await memory.settle()
        clock.seconds += 3_600
        await memory.prepare("two", said(later))
        await memory.settle()
        clock.seconds += 3_600
        asked = said(answer, "noted", "which crane stands at the north quay?")
        context = await memory.prepare("s", asked)
    assert later in str(context.request)


@pytest.mark.parametrize("pause", [30.0, 700.0])
async def test_a_follow_up_is_asked_with_what_it_leans_on(tmp_path: Path, pause: float) -> None:
    """Ten minutes later as well, when the provider's cache is gone and the block with it."""
    told = "The indexer was moved to port 4711, since the old one collided with the proxy of Marta."
    clock = Clock()
    settings = {**BY_WORDS, "recall.standing_tokens": 0}
    memory = open_memory(
        store=tmp_path / "m.db", settings=settings, window_tokens=6_000, clock=clock
    )
    talk = ["We look after a harbour.", "fine", told, "noted"]
    for number in range(30):
        talk += [f"round {number}: " + "sweep the quay and coil the ropes " * 20, "done"]
        await memory.prepare("s", said(*talk[:-1]))
    talk += ["which port has the indexer?", "It has 4711."]
    await memory.prepare("s", said(*talk[:-1]))
    clock.seconds += pause
    context = await memory.prepare("s", said(*talk, "and why?"))
    await memory.close()
    assert "collided with the proxy" in str(context.request)


async def test_what_a_block_held_that_makes_room_for_its_answer_is_recalled_again(
    tmp_path: Path,
) -> None:
    """Blocks take their share of the view and no more: the one that goes may be what is asked."""
    letters = "abcdefghijklmnopqrstuvwx"
    names = [f"{one}{one}ox-{SUBJECTS[at % 4]}" for at, one in enumerate(letters)]
    told = [
        f"The {name} was moved to port {4000 + 7 * at} by Marta. "
        + f"She wrote down what the {name} needs and why, part {at}. " * 12
        for at, name in enumerate(names)
    ]
    await remember(tmp_path / "m.db", (*[one for text in told for one in (text, "noted")],))
    settings = {**BY_WORDS, "recall.standing_tokens": 0}
    memory = open_memory(
        store=tmp_path / "m.db", settings=settings, window_tokens=8_000, clock=Clock()
    )
    talk: list[str] = []
    turns = []
    for at in [*range(len(names)), *range(len(names))]:
        talk.append(f"which port has the {names[at]}, and what did Marta write of it?")
        turns.append((4000 + 7 * at, await memory.prepare("s", said(*talk))))
        talk.append("I look it up")
    await memory.close()
    assert any(c.report.moment is not None and c.report.moment.kind == "room" for _, c in turns)
    missed = [port for port, context in turns if f"port {port}" not in str(context.request)]
    assert missed == []
