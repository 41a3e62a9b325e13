"""One session, arriving by every way there is, stands in the archive once."""

import asyncio
import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conversations.resends import blocks_to_strings, move_cache_marks, strings_to_blocks
from tools.crash.places import Place, Site, site
from tools.crash.verify import read_segments

from recollect.adapters.wiring import open_memory, open_spool
from recollect.core.engine.archive import DurableArchive
from recollect.core.formats.transcripts import read_transcript
from recollect.core.ports import Spool
from recollect.core.rules.identity import space_secret
from recollect.core.rules.tokens import Weigher
from recollect.core.transfer.transcripts import ImportCounts, ImportRules, import_transcript
from recollect.core.values.batch import Batch
from recollect.system.config import Settings

SESSION = "one-session"
EXCHANGES = 9
MARK = re.compile(r"\b(?:question|look|result|answer|summary|noted)-[\w-]+")


@pytest.fixture(scope="module", params=["sqlite", "pg18"])
def stores(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Site]:
    with site(request.param, tmp_path_factory.mktemp(request.param)) as found:
        yield found


@pytest.fixture
def place(stores: Site) -> Place:
    return stores.place()


def history(exchanges: int) -> list[dict[str, Any]]:
    """What a coding agent's session looks like: questions, calls, results, answers."""
    messages: list[dict[str, Any]] = []
    for number in range(exchanges):
        call = f"toolu_{number:04}"
        question = f"question-{number} what does the build of part {number} say"
        look = {"type": "text", "text": f"look-{number} I will run the build of that part."}
        use = {"type": "tool_use", "id": call, "name": "bash", "input": {"command": "make"}}
        said = f"result-{number} all {number} objects are up to date"
        result = {"type": "tool_result", "tool_use_id": call, "content": said}
        answer = f"answer-{number} the build of part {number} is up to date"
        messages += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": [look, use]},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": answer},
        ]
    return messages


def request(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"model": "claude-sonnet-4-5", "max_tokens": 1000, "messages": messages}


async def say(place: Place, bodies: list[dict[str, Any]]) -> None:
    """One process: an engine of its own that sends these requests."""
    async with open_memory(store=place.location, space=place.space) as memory:
        for body in bodies:
            await memory.prepare(SESSION, body)
    await drain(place)


async def converse(place: Place, messages: list[dict[str, Any]]) -> None:
    """As a client does it: each answer is observed, and comes back in the next request."""
    async with open_memory(store=place.location, space=place.space) as memory:
        for at, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            await memory.prepare(SESSION, request(messages[:at]))
            content = message["content"]
            if isinstance(content, str):
                content = [{"type": "text", "text": content}]
            usage = {"input_tokens": 10, "output_tokens": 10}
            reply = {"id": f"msg_{at}", "type": "message", "role": "assistant", "usage": usage}
            observed = await memory.observe(SESSION, {**reply, "content": content})
            assert observed.archived in ("store", "spool")
    await drain(place)


async def drain(place: Place) -> None:
    """A store that was slow for a moment gets what waits in the spool."""

    async def waiting() -> Spool:
        return await open_spool(place.location, space=place.space)

    archive = DurableArchive(place.open, waiting)
    await archive.write(Batch(at=time.time()))
    assert await archive.settle(30.0) == 0
    await archive.close()


async def bring_in(place: Place, messages: list[dict[str, Any]]) -> ImportCounts:
    """`recollect import` of the session's recording."""
    lines = "\n".join(json.dumps(message) for message in messages)
    store = await place.open()
    try:
        return await import_transcript(
            store,
            read_transcript(lines.encode()),
            session=SESSION,
            file="recording.jsonl",
            file_said_at=time.time(),
            rules=ImportRules(
                secret=space_secret(place.space),
                redaction=Settings().redaction,
                weigher=Weigher(),
                now=time.time(),
            ),
        )
    finally:
        await store.close()


async def stored(place: Place) -> Counter[str]:
    """How often each message stands in the archive, by the first word that marks it."""
    store = await place.open()
    try:
        segments = await read_segments(store)
        assert (await store.check()).problems == ()
    finally:
        await store.close()
    return Counter(MARK.findall(held.segment.text)[0] for held in segments)


def assert_once(place: Place, *expected: str, exchanges: int = EXCHANGES) -> None:
    found = asyncio.run(stored(place))
    assert [word for word, count in found.items() if count > 1] == []
    assert found.total() == 4 * exchanges + len(expected)
    assert set(expected) <= set(found)


def turns(up_to: int) -> list[dict[str, Any]]:
    """The requests of a session as it grows: one for each message of the user's side."""
    whole = history(up_to)
    ends = [at + 1 for at, message in enumerate(whole) if message["role"] == "user"]
    return [request(whole[:end]) for end in ends] + [request(whole)]


def rewritten(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cache marks moved at every turn, and strings that become blocks and strings again."""
    rng = random.Random(7)
    ways = (strings_to_blocks, blocks_to_strings)
    return [
        move_cache_marks("anthropic", ways[number % 2]("anthropic", body), rng)
        for number, body in enumerate(bodies)
    ]


def compacted() -> list[dict[str, Any]]:
    """After the client's own compaction: a summary, the last two exchanges, and a new one."""
    summary = {"role": "user", "content": "summary-of-the-session so far: parts 0 to 6 were built"}
    noted = {"role": "assistant", "content": "noted-the-summary and will go on from there"}
    return [summary, noted, *history(EXCHANGES)[-8:], *history(EXCHANGES + 1)[-4:]]


def test_moved_cache_marks_store_nothing_twice(place: Place) -> None:
    asyncio.run(say(place, rewritten(turns(EXCHANGES))))
    assert_once(place)


def test_a_reply_that_comes_back_in_the_next_request_is_stored_once(place: Place) -> None:
    asyncio.run(converse(place, history(EXCHANGES)))
    assert_once(place)
    asyncio.run(bring_in(place, history(EXCHANGES)))
    assert_once(place)


def test_another_process_goes_on_with_the_session(place: Place) -> None:
    bodies = turns(EXCHANGES)
    asyncio.run(say(place, bodies[:7]))
    asyncio.run(say(place, bodies[5:]))
    asyncio.run(say(place, rewritten(bodies[-3:])))
    assert_once(place)


def test_an_import_after_the_requests_adds_nothing(place: Place) -> None:
    asyncio.run(say(place, turns(EXCHANGES)))
    counts = asyncio.run(bring_in(place, history(EXCHANGES)))
    assert (counts.stored, counts.known) == (0, 4 * EXCHANGES)
    assert_once(place)


def test_requests_after_an_import_add_only_what_is_new(place: Place) -> None:
    asyncio.run(bring_in(place, history(EXCHANGES - 2)))
    asyncio.run(say(place, rewritten(turns(EXCHANGES)[-4:])))
    asyncio.run(bring_in(place, history(EXCHANGES)))
    assert_once(place)


def test_a_clients_own_compaction_stores_only_its_summary_and_what_is_new(place: Place) -> None:
    asyncio.run(say(place, [*turns(EXCHANGES), request(compacted())]))
    assert_once(place, "summary-of-the-session", "noted-the-summary", exchanges=EXCHANGES + 1)


def test_a_compaction_seen_by_another_process_stores_only_what_is_new(place: Place) -> None:
    asyncio.run(bring_in(place, history(EXCHANGES)))
    asyncio.run(say(place, [request(compacted()[:-3])]))
    asyncio.run(say(place, rewritten([request(compacted())])))
    asyncio.run(bring_in(place, history(EXCHANGES)))
    assert_once(place, "summary-of-the-session", "noted-the-summary", exchanges=EXCHANGES + 1)
