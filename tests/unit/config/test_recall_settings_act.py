"""Settings of recall change what they say: a turn on a real store, a test per key.

Where a search needs vectors, a server on this machine makes them: it knows what a text is about
by the words that the tests give it, so that words and meaning can be set against each other.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from tests.unit.embedders.provider_server import Answer, Asked, Server, serve

from recollect import Engine, open_memory
from recollect.adapters.embedders.local import static_package
from recollect.adapters.wiring import open_store
from recollect.core.ports import Store
from recollect.core.values.edit import Insert
from recollect.errors import EmbedderError, MissingExtra, SettingsError

ACTS: dict[str, Callable[[Path, pytest.MonkeyPatch], None]] = {}

START = 1_800_000_000.0
DAY = 86_400.0
BY_WORDS = {"recall.embedder": "none", "jobs.in_process": False}
EVERY = {"recall.every_turn": True}

HARBOUR = (
    "the green crane stands at the north quay",
    "the crane at the north quay is green",
    "at the south quay the crane is red",
    "every crane and every quay has a number",
    "the north wind shakes any crane at a quay",
    "the keeper of the lighthouse paints boats",
)
LOST = "which crane stands at the north quay?"


def acts(key: str) -> Callable[[Callable[[Path, pytest.MonkeyPatch], None]], None]:
    def register(test: Callable[[Path, pytest.MonkeyPatch], None]) -> None:
        assert key not in ACTS
        ACTS[key] = test

    return register


class Clock:
    def __init__(self, seconds: float = START) -> None:
        self.seconds = seconds

    def now(self) -> float:
        return self.seconds


def said(*texts: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    held = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    return {"model": "claude-x", "max_tokens": 10, "messages": held}


@dataclass(frozen=True)
class Turn:
    """What memory put back, and what the report says of it."""

    block: str
    said: str

    @property
    def lines(self) -> list[str]:
        """The recalled passages, as they stand in the block."""
        if "<detail>" not in self.block:
            return []
        detail = self.block.split("<detail>\n")[1].split("\n</detail>")[0]
        return [line for line in detail.split("\n") if not line.startswith("[")]


async def remember(
    file: Path, texts: Sequence[str], *, session: str = "s", at: float = START
) -> None:
    """Somebody talks, and the talk leaves the view: the next request does not resend it."""
    memory = open_memory(store=file, settings=BY_WORDS, clock=Clock(at))
    await memory.prepare(session, said(*texts))
    await memory.close()


async def turn(memory: Engine, question: str, session: str = "s") -> Turn:
    context = await memory.prepare(session, said(question))
    assert context.report.failures == ()
    told = [line.said for line in context.report.lines if line.stage == "recall"]
    blocks = [edit.text for edit in context.edits if isinstance(edit, Insert)]
    return Turn(block="".join(blocks), said="".join(told))


def asked_by_words(
    tmp: Path, settings: Mapping[str, Any], question: str = LOST, texts: Sequence[str] = HARBOUR
) -> Turn:
    """A question to a memory of its own, without vectors."""

    async def run() -> Turn:
        file = new_file(tmp)
        await remember(file, texts)
        return await ask_once(file, {**BY_WORDS, **settings}, question)

    return asyncio.run(run())


async def ask_once(file: Path, settings: Mapping[str, Any], question: str) -> Turn:
    memory = open_memory(store=file, settings=settings, clock=Clock(START + 60))
    try:
        return await turn(memory, question)
    finally:
        await memory.close()


def new_file(tmp: Path) -> Path:
    return tmp / f"{len(list(tmp.iterdir()))}.db"


async def with_vectors(
    file: Path, settings: Mapping[str, Any], question: str | None = None
) -> tuple[Turn, dict[str, int]]:
    """Open a memory, wait for its vectors and its model, ask; and whose vectors there are."""
    memory = open_memory(store=file, settings=settings, clock=Clock(START + 60))
    store = await open_store(str(file), space="default")
    try:
        until = time.monotonic() + 30
        tried = 0
        while True:
            tried += 1
            probed = await turn(memory, "is anybody there already?", session=f"probe {tried}")
            made = dict((await store.stats()).vectors)
            left = await _left(store, made)
            if made and not left and "left out" not in probed.said:
                break
            assert time.monotonic() < until, f"{probed.said}; {made}, {left}"
            await asyncio.sleep(0.02)
        found = Turn(block="", said="") if question is None else await turn(memory, question)
        return found, made
    finally:
        await store.close()
        await memory.close()


async def _left(store: Store, made: Mapping[str, int]) -> int:
    """How many of the remembered passages wait for a vector; the probes do not count."""
    waiting = [text for name in made for text in await store.unembedded(name, limit=100)]
    return sum("anybody" not in one.text for one in waiting)


# Words alone are enough for these.


@acts("recall.method")
def _(tmp: Path, _patch: pytest.MonkeyPatch) -> None:
    ours = asked_by_words(tmp, {})
    theirs = asked_by_words(tmp, {"recall.method": "openclaw"})
    assert f"[2027-01-15 08:00 user] {HARBOUR[0]}" in theirs.block.splitlines()
    assert not any(line.startswith("[") and HARBOUR[0] in line for line in ours.lines)


@acts("index.eviction_days")
def _(tmp: Path, _patch: pytest.MonkeyPatch) -> None:
    async def run(days: int | None) -> Turn:
        file = new_file(tmp)
        await remember(file, HARBOUR, at=START - 30 * DAY)
        settings = {**BY_WORDS, "recall.method": "openclaw", "index.eviction_days": days}
        return await ask_once(file, settings, LOST)

    assert HARBOUR[0] in asyncio.run(run(40)).block
    assert asyncio.run(run(20)).block == ""


@acts("index.max_segments")
def _(tmp: Path, _patch: pytest.MonkeyPatch) -> None:
    method = {"recall.method": "openclaw"}
    assert HARBOUR[0] in asked_by_words(tmp, method).block
    assert HARBOUR[0] not in asked_by_words(tmp, {**method, "index.max_segments": 1}).block


@acts("recall.decay_per_day")
def _(tmp: Path, _patch: pytest.MonkeyPatch) -> None:
    old, young = "the ferry to the island leaves at noon", "the ferry has a new funnel"

    async def run(decay: float) -> list[str]:
        file = new_file(tmp)
        await remember(file, [old], at=START - 30 * DAY)
        await remember(file, [young])
        settings = {**BY_WORDS, **EVERY, "recall.max_results": 1, "recall.decay_per_day": decay}
        found = await ask_once(file, settings, "when does the ferry leave for the island?")
        return found.lines

    assert asyncio.run(run(1.0)) == [f"user: {old}"]
    assert asyncio.run(run(0.9)) == [f"user: {young}"]


# A server makes the vectors.

MEANINGS = ("boat", "vessel"), ("tower", "spire"), ("bread", "loaf")
BY_NAME = "vessel papers are in the drawer of Anna"
BY_MEANING = "a boat for six is moored at the pier"
OTHERS = ("the spire was struck by lightning", "a loaf costs two coins")
ASKED = "which papers does Anna have for the boat?"
"""Words point at what Anna keeps; the server is told that meaning points elsewhere."""


def meaning(text: str, dimensions: int = 8) -> list[float]:
    """A direction of its own for every text, and one that is shared for what it is about."""
    noise = blake2b(text.encode(), digest_size=dimensions).digest()
    vector = [byte / 2_550 - 0.05 for byte in noise]
    if text in (ASKED, BY_MEANING):
        vector[0] += 1.0
    for at, words in enumerate(MEANINGS, start=1):
        if text not in (ASKED, BY_MEANING) and any(word in text for word in words):
            vector[at] += 1.0
    return vector


def embeddings(asked: Asked) -> Answer:
    """Answer in OpenAI's wire format."""
    dimensions = asked.body.get("dimensions", 8)
    items = [
        {"index": at, "embedding": meaning(text, dimensions)}
        for at, text in enumerate(asked.body["input"])
    ]
    return Answer({"data": items})


@contextmanager
def remote(**changes: Any) -> Iterator[tuple[Server, dict[str, Any]]]:
    """A server, and the settings by which it is asked."""
    with serve(embeddings) as server:
        settings = {
            **EVERY,
            "recall.embedder": "remote",
            "recall.remote.provider": "openai",
            "recall.remote.model": "tiny",
            "recall.remote.base_url": server.url,
        }
        yield server, {**settings, **changes}


def first_of(tmp: Path, **changes: Any) -> str:
    """What stands first where words and meaning differ."""

    async def run(settings: Mapping[str, Any]) -> str:
        file = new_file(tmp)
        for number, text in enumerate((BY_NAME, BY_MEANING, *OTHERS)):
            await remember(file, [text], at=START - number)
        found, _ = await with_vectors(file, {**settings, "recall.max_results": 1}, ASKED)
        (line,) = found.lines
        return line.removeprefix("user: ")

    with remote(**changes) as (_, settings):
        return asyncio.run(run(settings))


def weighed(tmp: Path, vector: float, text: float) -> str:
    return first_of(
        tmp, **{"recall.hybrid.vector_weight": vector, "recall.hybrid.text_weight": text}
    )


@acts("recall.hybrid.vector_weight")
def _(tmp: Path, _patch: pytest.MonkeyPatch) -> None:
    assert weighed(tmp, 0.02, 0.2) == BY_NAME
    assert weighed(tmp, 1.0, 0.2) == BY_MEANING


@acts("recall.hybrid.text_weight")
def _(tmp: Path, _patch: pytest.MonkeyPatch) -> None:
    assert weighed(tmp, 0.2, 0.0) == BY_MEANING
    assert weighed(tmp, 0.2, 1.0) == BY_NAME


def embedded_by(tmp: Path, settings: Mapping[str, Any]) -> dict[str, int]:
    """Remember something, and tell whose vectors it got."""

    async def run() -> dict[str, int]:
        file = new_file(tmp)
        await remember(file, HARBOUR)
        _, made = await with_vectors(file, settings)
        return made

    return asyncio.run(run())


@acts("recall.remote.provider")
def _(tmp: Path, patch: pytest.MonkeyPatch) -> None:
    changes = {"recall.remote.provider": "voyage", "recall.remote.model": "tiny-2"}
    with remote(**changes) as (server, settings):
        settings["recall.remote.base_url"] = f"{server.url}/v7/"
        (name,) = embedded_by(tmp, settings)
        assert name.startswith("remote:voyage:tiny-2")
        assert {asked.path for asked in server.asked} == {"/v7/embeddings"}
        assert {asked.body["model"] for asked in server.asked} == {"tiny-2"}
        assert "document" in {asked.body["input_type"] for asked in server.asked}
    with pytest.raises(SettingsError, match="is not set"):
        open_memory(store=tmp / "none.db", settings={"recall.embedder": "remote"})


@acts("recall.remote.key_variable")
def _(tmp: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("OPENAI_API_KEY", "the-usual-one")
    patch.setenv("HARBOUR_KEY", "the-other-one")
    for changes, sent in (
        ({}, None),  # another server than the provider's gets no key that was not meant for it
        ({"recall.remote.key_variable": "HARBOUR_KEY"}, "Bearer the-other-one"),
    ):
        with remote(**changes) as (server, settings):
            assert embedded_by(tmp, settings)
            assert {asked.headers.get("authorization") for asked in server.asked} == {sent}


# Models on this machine make them.


@acts("recall.embedder")
def _(tmp: Path, _patch: pytest.MonkeyPatch) -> None:
    ferry, question = "the ferry crosses to the island", "how do ships traverse an ocean?"

    async def run(embedder: str) -> tuple[Turn, dict[str, int]]:
        file = new_file(tmp)
        await remember(file, [ferry])
        return await with_vectors(file, {**EVERY, "recall.embedder": embedder}, question)

    async def without() -> tuple[Turn, dict[str, int]]:
        file = new_file(tmp)
        await remember(file, [ferry])
        found = await ask_once(file, {**EVERY, "recall.embedder": "none"}, question)
        store = await open_store(str(file), space="default")
        made = dict((await store.stats()).vectors)
        await store.close()
        return found, made

    found, made = asyncio.run(without())
    assert (found.lines, made) == ([], {})
    _, made = asyncio.run(run("hash"))
    assert [name.partition(":")[0] for name in made] == ["hash"]
    try:
        static_package()
    except (MissingExtra, EmbedderError) as missing:
        pytest.skip(str(missing))
    found, made = asyncio.run(run("static"))
    assert [name.partition(":")[0] for name in made] == ["static"]
    assert f"user: {ferry}" in found.lines, "no word of the question stands in it"


@pytest.mark.parametrize("key", sorted(ACTS))
def test_the_key_changes_what_it_says(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "RECOLLECT_MODELS"):
        monkeypatch.delenv(name, raising=False)
    ACTS[key](tmp_path, monkeypatch)
