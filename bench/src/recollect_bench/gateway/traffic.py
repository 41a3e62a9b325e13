"""What the gateway bench sends, and the memory that it sends it past.

A coding agent's conversation as clients send it: the whole history again with every request, and a
few messages more. Generated from a seed, so that every target gets the same bytes. The memory holds
talk of other things: nothing in it answers an ordinary working turn, so the gate stays shut.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.adapters.wiring.models import choose_embedders
from recollect.core.values.segment import Vector, VectorSet
from recollect.system.config import load_settings
from recollect.system.places import file_name
from recollect_bench.gateway.servers import SLOW
from recollect_bench.store_data import ZIPF_SHIFT, vocabulary
from recollect_bench.turn_recall_data import Talk

WireMessage: TypeAlias = dict[str, Any]

SPACE: Final = "default"
PATH: Final = "/v1/messages"
TURNS_A_TASK: Final = 4
RESULT_WORDS: Final = 400
"""Of a tool's result: about 2 KB."""
LARGE_BYTES: Final = 900_000
SMALL_TURNS: Final = 3
"""Turns of a conversation of about 1 KB before the next one begins."""
_SYSTEM: Final = "You write code. " + "Keep to the style of what is there, and test it. " * 8
_TOOLS: Final = [{"name": "read", "description": "Read a file", "input_schema": {"type": "object"}}]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """One request of the traffic."""

    session: str
    body: bytes = field(repr=False)
    said: bool
    """Whether the user speaks in its last message; else a tool's result is last."""


class CodingTalk:
    """An agent at work: the user says something, then tools are called and answer, and so on.

    Words come by a Zipf-like law as in real sessions; every third word of the agent's names a file.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rng = np.random.default_rng(seed)
        self._vocabulary = vocabulary()
        weights = 1.0 / (np.arange(len(self._vocabulary)) + ZIPF_SHIFT)
        self._chances = np.cumsum(weights / weights.sum())
        self._calls = 0

    def said(self, words: int) -> WireMessage:
        """The user asks for the next piece of work."""
        return {"role": "user", "content": f"Now {self._words(words)}, please."}

    def called(self) -> WireMessage:
        """The agent calls a tool."""
        self._calls += 1
        path = f"src/{self._words(1)}/{self._words(1)}.py"
        words = self._words(14) + (f" in {path}" if self._calls % 3 == 0 else "")
        call = {"type": "tool_use", "id": self._call(), "name": "read", "input": {"path": path}}
        return {"role": "assistant", "content": [{"type": "text", "text": f"{words}."}, call]}

    def answered(self, words: int) -> WireMessage:
        """The tool's result."""
        result = {"type": "tool_result", "tool_use_id": self._call(), "content": self._lines(words)}
        return {"role": "user", "content": [result]}

    def done(self) -> WireMessage:
        """The agent tells what it did."""
        return {"role": "assistant", "content": [{"type": "text", "text": self._words(30)}]}

    def _call(self) -> str:
        return f"toolu_{self._seed:04d}{self._calls:08d}"

    def _words(self, count: int) -> str:
        drawn = np.searchsorted(self._chances, self._rng.random(count))
        return " ".join(self._vocabulary[rank] for rank in drawn)

    def _lines(self, words: int) -> str:
        return "\n".join(f"    {self._words(9)}" for _ in range(max(1, words // 9)))


def growing(size: int, count: int, *, seed: int) -> list[BenchRequest]:
    """One conversation of about `size` bytes in the middle of so many requests.

    Every fourth request ends with what the user says, the others with a tool's result.
    """
    talk = CodingTalk(seed)
    messages: list[WireMessage] = []
    sizes: list[int] = []
    ends: list[tuple[int, bool]] = []
    while len(ends) < count or sizes[-count // 2] < size:
        at = len(ends) % TURNS_A_TASK
        if at == 0:
            messages += [talk.done()] if messages else []
            messages.append(talk.said(18))
        else:
            messages += [talk.called(), talk.answered(RESULT_WORDS)]
        new = sum(len(json.dumps(message)) + 2 for message in messages[-2:])
        sizes.append(sum(sizes[-1:]) + new)
        ends.append((len(messages), at == 0))
    return [
        BenchRequest(session=f"large-{seed}", body=body_of(messages[:end]), said=said)
        for end, said in ends[-count:]
    ]


def short(count: int, *, seed: int) -> list[BenchRequest]:
    """Conversations of about 1 KB, a few turns each: one that the user begins, then tools."""
    requests: list[BenchRequest] = []
    while len(requests) < count:
        talk = CodingTalk(seed * 100_000 + len(requests))
        session = f"small-{seed}-{len(requests)}"
        messages = [talk.said(18)]
        requests.append(BenchRequest(session=session, body=body_of(messages), said=True))
        for _ in range(SMALL_TURNS - 1):
            messages += [talk.called(), talk.answered(9)]
            requests.append(BenchRequest(session=session, body=body_of(messages), said=False))
    return requests[:count]


def slow(number: int) -> BenchRequest:
    """A request whose reply is a slow stream."""
    text = f"Stream number {number}: {SLOW.decode()}. " + "Take your time. " * 40
    return BenchRequest(
        session=f"slow-{number}", body=body_of([{"role": "user", "content": text}]), said=True
    )


def body_of(messages: list[dict[str, Any]]) -> bytes:
    """A streamed Messages request."""
    return json.dumps(
        {
            "model": "claude-sonnet-4-5",
            "max_tokens": 1024,
            "stream": True,
            "system": _SYSTEM,
            "tools": _TOOLS,
            "messages": messages,
        }
    ).encode()


async def fill_memory(
    home: Path, passages: int, progress: Callable[[str], None], *, space: str = SPACE
) -> None:
    """Write a memory of so many passages, with vectors of the embedder that the gateway takes."""
    file = home / "spaces" / f"{file_name(space)}.db"
    file.parent.mkdir(parents=True)
    embedders = choose_embedders(load_settings(arguments={}).settings).used
    store = await SQLiteStore.open(file, space=space)
    try:
        for messages, batch in Talk().batches(passages):
            progress(f"writing {passages:,} passages: {messages:,} messages")
            named = [
                (new.segment.id, at, new.segment.text[passage.start : passage.end])
                for new in batch.segments
                for at, passage in enumerate(new.passages)
            ]
            vectors: list[VectorSet] = []
            for embedder in embedders:
                rows = await embedder.embed([text for _, _, text in named])
                vectors.append(
                    VectorSet(
                        embedder=embedder.name,
                        dimensions=embedder.dimensions,
                        vectors=tuple(
                            Vector(segment=segment, ordinal=ordinal, values=row)
                            for (segment, ordinal, _), row in zip(named, rows, strict=True)
                        ),
                    )
                )
            await store.write(replace(batch, vectors=tuple(vectors)))
    finally:
        await store.close()
