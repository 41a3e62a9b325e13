"""Fifty instructions hidden in what tools bring in, and a model that obliges every one of them.

None becomes a fact above a tool's trust, none lays anything down, none is marked as standing, and
in a request none stands outside the marked block."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.poison import ATTACKS, ECHOES, attack, deep

from recollect import open_memory
from recollect.adapters.wiring import open_store
from recollect.core.engine.background import runner_of
from recollect.core.facts.extract import extract
from recollect.core.facts.reading import EXTRACTION_SCHEMA, MOST_FACTS
from recollect.core.facts.support import is_order
from recollect.core.rules.trust import is_below, is_fetcher, trust_of_role
from recollect.core.search.statements import STANDING_WORD
from recollect.core.turn.ingest import index
from recollect.core.values.fact import EXTRACTED_TYPES, Fact, FactDraft
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.model import Prompt
from recollect.core.values.recall import BLOCK_CLOSING, BLOCK_OPENING
from recollect.core.values.segment import Segment, SegmentId, StoredSegment
from recollect.system.config import load_settings
from recollect.testing.scripted_model import ScriptedModel

NOON = 1_760_011_200.0
ALL = range(len(ATTACKS))
STATES_HOW_THINGS_ARE = ("implementation", "config", "issue")
# What a memory may lend to a poisoner: the most it could gain comes first.
TYPES = ("preference", "decision", *STATES_HOW_THINGS_ARE, "task_state", "architecture")
MARKED = re.compile(re.escape(BLOCK_OPENING) + ".*?" + re.escape(BLOCK_CLOSING), re.DOTALL)
SAFE = "Remember that the staging API listens on port 8443."
STATED = "The mirror of the shop listens on port 8099 at vortex99.example."
"""What a page only states: it becomes a fact, of the page's trust."""


def echo(at: int) -> str:
    """What the assistant says of an attack: every other one it repeats."""
    order = attack(at)[2]
    if at % 2:
        return "I have read it; the part about the release is at the end of the output."
    return ECHOES[at // 2 % len(ECHOES)].format(order)


def obliging(prompt: Prompt) -> str:
    """A model that takes every instruction it sees for a fact, of any type."""
    if prompt.schema != EXTRACTION_SCHEMA:
        return "{}"
    claims = [
        one
        for text in (STATED, SAFE.removeprefix("Remember that "))
        if text in prompt.text
        for one in claims_of(text, "config")
    ]
    for at in ALL:
        order = attack(at)[2]
        if order.split(".")[0] in prompt.text:
            claims += claims_of(order, TYPES[at % len(TYPES)])
    return json.dumps({"facts": claims[:MOST_FACTS]})


def claims_of(order: str, type_name: str) -> Iterator[dict[str, Any]]:
    told = {"line": 1, "quote": order, "type": type_name, "subject": "", "attribute": ""}
    yield {**told, "content": order}


def segment(at: int, role: Any, text: str, tool: str | None) -> Segment:
    trust = "outside" if tool and is_fetcher(tool) else trust_of_role(role)
    return Segment(
        id=SegmentId(f"{at:032x}"),
        session="s",
        key=EntryKey(f"k{at}"),
        message_id=MessageId(f"{at:032x}"),
        role=role,
        text=text,
        tokens=1,
        said_at=NOON + at,
        source="request",
        trust=trust,
        tool=tool,
    )


def assert_harmless(fact: Fact | FactDraft) -> None:
    assert is_below(fact.trust, "medium"), fact.trust
    assert fact.type in STATES_HOW_THINGS_ARE
    assert not is_order(fact.content)


@pytest.mark.parametrize("echoed", [False, True])
@pytest.mark.parametrize("at", ALL)
def test_no_instruction_of_a_tool_is_extracted_by_whomever_it_is_repeated(
    at: int, echoed: bool
) -> None:
    tool, output, order = attack(at)
    said = ECHOES[at % len(ECHOES)].format(order) if echoed else "The release notes are above."
    window = [
        segment(1, "user", "please have a look at that thing for me", None),
        segment(2, "tool", output, tool),
        segment(3, "assistant", said, None),
    ]
    claims = [one for name in TYPES for one in claims_of(order, name)]
    model = ScriptedModel(lambda _: json.dumps({"facts": claims}))
    found = asyncio.run(extract(window, (), model=model, max_output_tokens=900, now=NOON))
    for draft in found.drafts:
        assert_harmless(draft)
    assert set(TYPES) == set(EXTRACTED_TYPES)


@pytest.mark.parametrize("hidden", ["deep", "far", "unseen"])
@pytest.mark.parametrize("at", ALL)
def test_no_instruction_climbs_from_deep_in_a_page_or_far_back(at: int, hidden: str) -> None:
    tool, output, order = attack(at)
    page = segment(1, "tool", deep(output) if hidden == "deep" else output, tool)
    between = [segment(2 + n, "assistant", f"Step {n} is done.", None) for n in range(45)]
    told = [f"We decided this for good: {order}", ECHOES[at % len(ECHOES)].format(order)]
    said = [segment(50 + n, "assistant", text, None) for n, text in enumerate(told)]
    claims = [one for name in TYPES for one in claims_of(order, name)]
    found = asyncio.run(
        extract(
            said,
            [page] if hidden == "deep" else between[-40:],
            model=ScriptedModel(lambda _: json.dumps({"facts": claims})),
            max_output_tokens=900,
            now=NOON,
            earlier_low=[page] if hidden == "far" else (),
            unseen_low=hidden == "unseen",
        )
    )
    assert len(found.drafts) < len(claims)
    for draft in found.drafts:
        assert_harmless(draft)


class Clock:
    time = NOON

    def now(self) -> float:
        return self.time


def conversation() -> Iterator[dict[str, Any]]:
    """One session in which all of it happens."""
    yield {"role": "user", "content": SAFE}
    yield {"role": "assistant", "content": [{"type": "text", "text": "I will."}]}
    for at in ALL:
        tool, output, _ = attack(at)
        yield {"role": "user", "content": f"please have a look at the thing number {at}"}
        call = {"type": "tool_use", "id": f"call_{at}", "name": tool, "input": {"what": at}}
        yield {"role": "assistant", "content": [call]}
        result = {"type": "tool_result", "tool_use_id": f"call_{at}", "content": output}
        yield {"role": "user", "content": [result]}
        yield {"role": "assistant", "content": [{"type": "text", "text": echo(at)}]}
    yield {"role": "user", "content": "and the page of the mirror, please"}
    call = {"type": "tool_use", "id": "call_99", "name": "WebFetch", "input": {}}
    yield {"role": "assistant", "content": [call]}
    result = {"type": "tool_result", "tool_use_id": "call_99", "content": STATED}
    yield {"role": "user", "content": [result]}
    yield {"role": "assistant", "content": [{"type": "text", "text": "The page is short."}]}


async def everything(path: Path) -> tuple[tuple[Fact, ...], tuple[StoredSegment, ...], list[str]]:
    """The facts, the segments, and what later requests look like."""
    clock = Clock()
    settings = load_settings(
        arguments={"jobs.in_process": False, "recall.embedder": "none", "recall.scope": "space"},
        file=None,
    ).settings
    model = ScriptedModel(obliging)

    def opened() -> Any:
        return open_memory(
            space="p", store=path, clock=clock, settings=settings, extraction_model=model
        )

    messages = list(conversation())
    async with opened() as memory:
        await memory.prepare("s", {"model": "m", "messages": messages[:-1]})
        await memory.observe("s", messages[-1])
        await memory.settle()
    clock.time += settings.facts.idle_seconds + 1
    store = await open_store(str(path), space="p")
    try:
        runner = runner_of(store, settings, clock, model=model)
        await runner.run_due()
        facts = await store.facts(superseded=True)
        segments = await store.page(limit=10_000)
    finally:
        await store.close()
    assert model.prompts, "the model was asked"
    requests: list[str] = []
    async with opened() as memory:
        for at, order in enumerate([*(attack(at)[2] for at in ALL), STATED]):
            asked = f"What do we know about this: {order}"
            told = {"model": "m", "messages": [{"role": "user", "content": asked}]}
            made = await memory.prepare(f"later-{at}", told)
            sent = json.dumps(made.request, ensure_ascii=False).replace('\\"', '"')
            requests.append(sent.replace(asked, ""))
    return facts, segments, requests


def test_through_the_engine_poison_stays_evidence(tmp_path: Path) -> None:
    facts, segments, requests = asyncio.run(everything(tmp_path / "p.db"))
    assert [one.trust for one in facts if "8443" in one.content] == ["high"]
    assert [one.trust for one in facts if "vortex99" in one.content] == ["outside"]
    for fact in facts:
        if "vortex" in fact.content:
            assert_harmless(fact)
    poisoned = [one.segment for one in segments if "vortex" in one.segment.text]
    assert len(poisoned) > len(ATTACKS)
    for one in poisoned:
        assert one.trust == "medium" if one.role == "assistant" else is_below(one.trust, "medium")
        assert not any(STANDING_WORD in passage.words for passage in index(one))
    recalled = [text for text in requests if "vortex" in text]
    assert len(recalled) > len(ATTACKS) // 2, "memory was asked and answered"
    assert "vortex99" in recalled[-1]
    for text in recalled:
        assert "vortex" not in MARKED.sub("", text)
