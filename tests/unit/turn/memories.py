"""A memory as it is: a real store, filled by the real ingest, and vectors where a test has some."""

import json
import math
import struct
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.formats.codec import CODECS
from recollect.core.formats.recalled_block import write_block
from recollect.core.rules.tokens import Weigher, count_text
from recollect.core.turn.align import LastRequest, enter, read
from recollect.core.turn.ingest import ingest
from recollect.core.turn.query import ask, query, uses_tools
from recollect.core.turn.recall import recall
from recollect.core.values.batch import Batch
from recollect.core.values.edit import Edit
from recollect.core.values.history import Entry
from recollect.core.values.message import EntryKey
from recollect.core.values.recall import AskedVector, EmbedderKind, Recalled, RecallRequest, Scale
from recollect.core.values.segment import Source, Vector, VectorSet
from recollect.system.config import build
from recollect.system.config.settings import Recall, Redaction

NOW = 1_760_000_000.0
MINUTE = 60.0
DAY = 86_400.0
SCALE = Scale(mean=0.05, spread=0.08)
CONCEPTS: Mapping[str, int] = {
    **dict.fromkeys(("car", "vehicle", "automobile", "drive"), 0),
    **dict.fromkeys(("dog", "puppy", "hound", "pet"), 1),
    **dict.fromkeys(("food", "dinner", "meal", "eat"), 2),
}
"""What our small embedder understands: three things, by any of their words."""
DIMENSIONS = 4


def entries(
    messages: Sequence[Mapping[str, Any] | str], *, start: int = 0, name: str = "k"
) -> tuple[Entry, ...]:
    """Messages as a turn knows them; bare texts are the user's and the assistant's by turns."""
    spoken = [
        {"role": "assistant" if at % 2 else "user", "content": message}
        if isinstance(message, str)
        else message
        for at, message in enumerate(messages)
    ]
    raws = [json.dumps(message).encode() for message in spoken]
    done = read(raws, CODECS["anthropic"], b"k" * 32, Weigher(), LastRequest())
    return tuple(
        enter(one, EntryKey(f"{name}{start + at}")) for at, one in enumerate(done.new_readings)
    )


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def settings(**changed: Any) -> Recall:
    return build({f"recall.{key}": value for key, value in changed.items()}).recall


def meaning(text: str) -> bytes:
    """A vector of length one by the concepts that a text names; the last place is for none."""
    row = [0.0] * DIMENSIONS
    for word in text.lower().replace("?", " ").replace(".", " ").split():
        if word in CONCEPTS:
            row[CONCEPTS[word]] += 1.0
    row[-1] = 0.3
    length = math.sqrt(sum(one * one for one in row))
    return struct.pack(f"<{DIMENSIONS}f", *(one / length for one in row))


class Memory:
    """One space that can be filled and asked."""

    def __init__(self, store: SQLiteStore) -> None:
        self.store = store
        self.held: dict[str, list[Entry]] = {}

    async def remember(
        self,
        messages: Sequence[Mapping[str, Any] | str],
        *,
        session: str = "s",
        at: float = NOW - DAY,
        apart: float = MINUTE,
        source: Source = "request",
        origins: Mapping[EntryKey, str] | None = None,
    ) -> tuple[Entry, ...]:
        """Somebody says this, one message after the other."""
        before = self.held.setdefault(session, [])
        new = entries(messages, start=len(before))
        made = ingest(
            new,
            session=session,
            source=source,
            said_at={one.key: at + place * apart for place, one in enumerate(new)},
            redaction=Redaction(),
            now=NOW,
            origins=origins,
        )
        await self.store.write(Batch(at=NOW, segments=made.segments))
        before.extend(new)
        return new

    async def embed(self, name: str, embed: Callable[[str], bytes] = meaning) -> None:
        """Give every passage that has none a vector of this embedder."""
        waiting = await self.store.unembedded(name, limit=10_000)
        vectors = tuple(
            Vector(segment=one.segment, ordinal=one.ordinal, values=embed(one.text))
            for one in waiting
        )
        made = VectorSet(embedder=name, dimensions=len(vectors[0].values) // 4, vectors=vectors)
        await self.store.write(Batch(at=NOW, vectors=(made,)))

    def asks(
        self,
        view: Sequence[Entry],
        *,
        edits: Sequence[Edit] = (),
        session: str = "s",
        budget: int = 2_000,
        **more: Any,
    ) -> RecallRequest:
        """What a turn with this view asks of memory; the last user message is the question."""
        chosen = build({f"recall.{key}": value for key, value in more.items()})
        return ask(
            view, query(view), chosen.recall, edits=edits,
            among_tools=uses_tools(view), space="mine", session=session, now=NOW,
            budget_tokens=lambda _, **__: budget, count_tokens=count_text,
        )  # fmt: skip

    async def answer(
        self, request: RecallRequest, vectors: Sequence[AskedVector] = (), **changed: Any
    ) -> Recalled:
        return await recall(
            request, archive=self.store, vectors=vectors, settings=settings(**changed)
        )

    async def recall(self, question: str, *, vectors: Any = (), **more: Any) -> Recalled:
        """What a turn is given that shows nothing but its question."""
        view = entries([user(question)], name="q")
        return await self.answer(self.asks(view, **more), vectors, **_only_settings(more))


def _only_settings(more: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in more.items() if key not in ("session", "budget")}


def asked_by(question: str, name: str = "toy", kind: EmbedderKind = "onnx") -> AskedVector:
    return AskedVector(embedder=name, values=meaning(question), kind=kind, scale=SCALE)


def texts(recalled: Recalled) -> list[str]:
    """What was recalled, best first."""
    return [one.text for one in recalled.passages]


def block(recalled: Recalled) -> str:
    return write_block(recalled.facts, recalled.passages)


@asynccontextmanager
async def memory(folder: Path, space: str = "mine") -> AsyncIterator[Memory]:
    async with await SQLiteStore.open(folder / f"{space}.db", space=space) as store:
        yield Memory(store)
