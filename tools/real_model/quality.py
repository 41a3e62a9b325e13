"""How much of what was decided outlives a compaction: in the summary, and with recall.

Only the summaries come from the model; what the assistant says in between is fixed, so that a
slow model can be measured. A decision counts as there when the word that decides it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from recollect import open_memory
from recollect.adapters.providers.openai import OpenAIChatModel
from recollect.core.compaction.carry import strip_carried
from recollect.core.engine.engine import Engine
from recollect.core.formats.summaries import PINNED_HEADING
from recollect.core.values.compaction import CompactionResult
from recollect_bench.llama_server import LlamaServer
from tools.real_model.converse import CALL_SECONDS
from tools.real_model.script import notes_around

SESSION: Final = "quality"
SYSTEM: Final = "You are a helpful colleague."
REPLY: Final = "Understood."
TURN_TOKENS: Final = 200
SETTINGS: Final[dict[str, Any]] = {
    "compaction.deadline_seconds": 8 * CALL_SECONDS,
    "recall.deadline_seconds": 30.0,
    "store.read_seconds": 30.0,
    "store.write_seconds": 30.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Something that was settled, the word that it turns on, and how it is asked for."""

    word: str = field(repr=False)
    said: str = field(repr=False)
    asked: str = field(repr=False)


DECISIONS: Final = tuple(
    Decision(word=word, said=said, asked=asked)
    for word, said, asked in (
        (
            "zstandard",
            "We decided to compress the nightly backup with zstandard, because gzip was too slow.",
            "How is the nightly backup compressed?",
        ),
        (
            "tuesday",
            "We agreed that releases of the shop go out on Tuesday only.",
            "On which day do releases of the shop go out?",
        ),
        (
            "sqlite",
            "We chose SQLite for the price cache instead of a server.",
            "What keeps the price cache?",
        ),
        (
            "argon2",
            "Decision: new passwords are hashed with argon2.",
            "How are new passwords hashed?",
        ),
        (
            "oslo",
            "We will host the customer photos in Oslo for legal reasons.",
            "Where are the customer photos hosted?",
        ),
        (
            "quarterly",
            "We settled that suppliers are paid quarterly from now on.",
            "How often are suppliers paid?",
        ),
        (
            "protobuf",
            "We decided that the scanners speak protobuf to the gateway, not JSON.",
            "What do the scanners speak to the gateway?",
        ),
        (
            "feature-flag",
            "We agreed to hide the new checkout behind a feature-flag until spring.",
            "Behind what is the new checkout hidden?",
        ),
    )
)


@dataclass(slots=True, kw_only=True)
class Quality:
    """What was there after the last compaction."""

    model: str = ""
    decisions: int = 0
    in_body: int = 0
    """In the model's own words of the last summary."""
    in_summary: int = 0
    """In the summary as it is shown: with what code carries and pins."""
    with_recall: int = 0
    """In the request that goes out for a question about it."""
    compactions: list[CompactionResult] = field(default_factory=list, repr=False)
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Shares are fractions between 0 and 1."""
        of = max(1, self.decisions)
        ends = [one.convergence for one in self.compactions]
        return {
            "run": "real-model-quality",
            "figures": {
                "model": self.model,
                "decisions": self.decisions,
                "share_in_models_words": round(self.in_body / of, 3),
                "share_in_summary": round(self.in_summary / of, 3),
                "share_with_recall": round(self.with_recall / of, 3),
                **{f"compactions_{how}": ends.count(how) for how in sorted(set(ends))},
                "summary_calls": sum(one.spent.calls for one in self.compactions),
                "seconds": round(self.seconds, 1),
            },
            "notes": [note for one in self.compactions for note in (str(one.reason), *one.notes)],
        }


async def measure(
    server: LlamaServer, folder: Path, *, tokens: int, tell: Callable[[str], None]
) -> Quality:
    """Talk, compact, and look for every decision."""
    begun = time.monotonic()
    model = OpenAIChatModel(
        model=server.gguf.stem, base_url=server.base_url, deadline_seconds=CALL_SECONDS
    )
    found = Quality(model=model.name, decisions=len(DECISIONS))
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
    try:
        async with open_memory(
            store=folder / "memory.sqlite",
            settings={**SETTINGS, "window_tokens": server.window_tokens},
            model=model,
            compact_in_background=False,
        ) as engine:
            for number, text in enumerate(_said(server.count_tokens, tokens), start=1):
                messages.append({"role": "user", "content": text})
                await _prepared(engine, messages, found)
                messages.append({"role": "assistant", "content": REPLY})
                tell(f"message {number}: {len(found.compactions)} compactions")
            if not found.compactions:
                found.compactions.append(await engine.compact(SESSION, _request(messages)))
            await _look(engine, messages, found)
    finally:
        await model.close()
    found.seconds = time.monotonic() - begun
    return found


def _said(count_tokens: Callable[[str], int], tokens: int) -> list[str]:
    """Decisions one after the other, then notes until there are enough tokens."""
    count_tokens = cache(count_tokens)
    texts = [
        notes_around((one.said,), count_tokens, turn_tokens=TURN_TOKENS, seed=at)
        for at, one in enumerate(DECISIONS)
    ]
    while sum(map(count_tokens, texts)) < tokens:
        texts.append(notes_around((), count_tokens, turn_tokens=TURN_TOKENS, seed=len(texts)))
    return texts


async def _prepared(
    engine: Engine, messages: list[dict[str, Any]], found: Quality
) -> Mapping[str, Any]:
    context = await engine.prepare(SESSION, _request(messages))
    if context.compaction is not None:
        found.compactions.append(context.compaction)
    request: Mapping[str, Any] = context.request
    return request


async def _look(engine: Engine, messages: list[dict[str, Any]], found: Quality) -> None:
    made = [one.summary for one in found.compactions if one.compacted]
    summary = made[-1].casefold() if made else ""
    body = strip_carried(made[-1]).partition(PINNED_HEADING)[0].casefold() if made else ""
    for one in DECISIONS:
        found.in_body += one.word in body
        found.in_summary += one.word in summary
        # each question by itself: what one of them recalls must not answer the next
        asking = [*messages, {"role": "user", "content": one.asked}]
        request = await _prepared(engine, asking, found)
        shown = " ".join(str(message["content"]) for message in request["messages"])
        found.with_recall += one.word in shown.casefold()


def _request(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"model": "quality", "max_completion_tokens": 256, "messages": list(messages)}
