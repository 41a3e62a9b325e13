"""A streamed reply that breaks off is stored once, in whichever form the client sends it again."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from recollect import Engine, open_memory
from recollect.adapters.wiring import open_store
from recollect.core.rules.text import BROKEN_OFF_MARK

QUIET = {"jobs.in_process": False}
RECEIVED = "The parser reads tokens and builds "
WHOLE = f"{RECEIVED}a tree. Each node knows its place."
ASKED = {"role": "user", "content": "What does the parser do?"}
NEXT = {"role": "user", "content": "Please continue with that."}
CALL = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}


def stream(wire: str, text: str, *, thinking: str = "", call: bool = False) -> list[dict[str, Any]]:
    """The events of a reply up to the break."""
    if wire == "openai-chat":
        delta = {"role": "assistant", "content": text}
        return [{"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}]
    if wire == "openai-responses":
        item = {"type": "message", "id": "i1", "role": "assistant", "content": []}
        place = {"output_index": 0, "content_index": 0, "item_id": "i1"}
        part = {"type": "output_text", "text": ""}
        return [
            {"type": "response.created", "response": {"id": "r", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.content_part.added", **place, "part": part},
            {"type": "response.output_text.delta", **place, "delta": text},
        ]
    blocks: list[tuple[dict[str, Any], dict[str, Any]]] = []
    if thinking:
        begun = {"type": "thinking", "thinking": "", "signature": ""}
        blocks.append((begun, {"type": "thinking_delta", "thinking": thinking}))
    blocks.append(({"type": "text", "text": ""}, {"type": "text_delta", "text": text}))
    if call:
        blocks.append((CALL, {"type": "input_json_delta", "partial_json": '{"path": "/src/pa'}))
    message = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": []}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "usage": {"input_tokens": 3}}}
    ]
    for index, (block, delta) in enumerate(blocks):
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_delta", "index": index, "delta": delta},
        ]
    return events


def said(wire: str, text: str) -> dict[str, Any]:
    if wire == "openai-responses":
        content = [{"type": "output_text", "text": text}]
        return {"type": "message", "role": "assistant", "content": content}
    return {"role": "assistant", "content": text}


def request(wire: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    field = "input" if wire == "openai-responses" else "messages"
    return {"model": "claude-x", "max_tokens": 10, field: list(rows)}


async def assistant_texts(file: Path) -> list[str]:
    store = await open_store(str(file), space="default")
    segments = [stored.segment for stored in await store.page(limit=100)]
    problems = (await store.check()).problems
    await store.close()
    assert problems == ()
    return [segment.text for segment in segments if segment.role == "assistant"]


async def break_off(memory: Engine, wire: str, **begun: Any) -> None:
    await memory.prepare("s", request(wire, [ASKED]))
    observed = await memory.observe("s", stream(wire, RECEIVED, **begun))
    assert observed.broken_off


FORMS = {
    "unchanged": RECEIVED,
    "without a space": RECEIVED.rstrip(),
    "with a note": f"{RECEIVED.rstrip()}\n\n[Request interrupted by user]",
    "with dots": f"{RECEIVED.rstrip()}…",
    "wrapped": RECEIVED.replace(" reads", "\nreads"),
    "whole": WHOLE,
}


@pytest.mark.parametrize("wire", ["anthropic", "openai-chat", "openai-responses"])
@pytest.mark.parametrize("form", FORMS)
async def test_a_broken_reply_that_is_sent_again_is_stored_once(
    tmp_path: Path, form: str, wire: str
) -> None:
    async with open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[]) as memory:
        await break_off(memory, wire)
        await memory.prepare("s", request(wire, [ASKED, said(wire, FORMS[form]), NEXT]))
    (text,) = await assistant_texts(tmp_path / "m.db")
    assert text.removesuffix(BROKEN_OFF_MARK).strip() == FORMS[form].strip()


@pytest.mark.parametrize("begun", [{"thinking": "Let me look at it."}, {"call": True}])
async def test_what_the_client_leaves_out_of_a_broken_reply_is_no_second_message(
    tmp_path: Path, begun: dict[str, Any]
) -> None:
    async with open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[]) as memory:
        await break_off(memory, "anthropic", **begun)
        rows = [ASKED, said("anthropic", RECEIVED.rstrip()), NEXT]
        await memory.prepare("s", request("anthropic", rows))
    assert await assistant_texts(tmp_path / "m.db") == [RECEIVED.rstrip()]


async def test_a_repeated_request_whose_reply_is_whole_leaves_no_part(tmp_path: Path) -> None:
    async with open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[]) as memory:
        await break_off(memory, "anthropic")
        await memory.prepare("s", request("anthropic", [ASKED]))
        await memory.observe("s", stream("anthropic", f"{RECEIVED}a "))
        await memory.prepare("s", request("anthropic", [ASKED]))
        whole = {"role": "assistant", "content": [{"type": "text", "text": WHOLE}]}
        await memory.observe("s", whole)
    assert await assistant_texts(tmp_path / "m.db") == [WHOLE]


async def test_another_process_finds_the_broken_reply(tmp_path: Path) -> None:
    file = tmp_path / "m.db"
    async with open_memory(store=file, settings=QUIET, embedders=[]) as memory:
        await break_off(memory, "anthropic")
        await memory.settle()
    async with open_memory(store=file, settings=QUIET, embedders=[]) as memory:
        rows = [ASKED, said("anthropic", RECEIVED.rstrip()), NEXT]
        await memory.prepare("s", request("anthropic", rows))
    assert await assistant_texts(file) == [RECEIVED.rstrip()]


async def test_a_broken_reply_that_is_removed_can_come_back(tmp_path: Path) -> None:
    async with open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[]) as memory:
        await break_off(memory, "anthropic")
        for form in (RECEIVED.rstrip(), RECEIVED):
            await memory.prepare("s", request("anthropic", [ASKED, said("anthropic", form), NEXT]))
    assert RECEIVED in await assistant_texts(tmp_path / "m.db")


OTHERS = {
    "without its last words": "The parser reads tokens",
    "another reply": "It builds trees from tokens.",
    "a short beginning": "The",
    "a reply that begins alike": "The parser is a part of the compiler.",
}


@pytest.mark.parametrize("other", OTHERS)
async def test_another_reply_does_not_remove_the_broken_one(tmp_path: Path, other: str) -> None:
    async with open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[]) as memory:
        await break_off(memory, "anthropic")
        rows = [ASKED, said("anthropic", OTHERS[other]), NEXT]
        await memory.prepare("s", request("anthropic", rows))
    texts = await assistant_texts(tmp_path / "m.db")
    assert texts == [f"{RECEIVED}\n{BROKEN_OFF_MARK}", OTHERS[other]]


async def test_a_later_message_that_repeats_the_broken_one_does_not_remove_it(
    tmp_path: Path,
) -> None:
    async with open_memory(store=tmp_path / "m.db", settings=QUIET, embedders=[]) as memory:
        await break_off(memory, "anthropic")
        rows = [ASKED, said("anthropic", RECEIVED), NEXT]
        await memory.prepare("s", request("anthropic", rows))
        reply = {"role": "assistant", "content": [{"type": "text", "text": WHOLE}]}
        await memory.observe("s", reply)
    texts = await assistant_texts(tmp_path / "m.db")
    assert texts == [f"{RECEIVED}\n{BROKEN_OFF_MARK}", WHOLE]
