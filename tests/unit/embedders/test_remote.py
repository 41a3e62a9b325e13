"""A remote embedder asks as each provider wants it, and trusts no answer."""

import asyncio
import logging
import math
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pytest
from tests.unit.embedders.provider_server import Answer, Asked, serve

from recollect.adapters.embedders import remote
from recollect.adapters.embedders.remote import RemoteEmbedder
from recollect.core.ports import Embedder
from recollect.errors import EmbedderError

KEY = "sk-very-secret-0123456789"
SECRET_TEXT = "the treasure lies below the old oak"
T = TypeVar("T")


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "VOYAGE_API_KEY"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setattr(remote, "_TIMEOUT_SECONDS", 5.0)
    monkeypatch.setattr(remote, "_TRIES", 3)


def vector_of(text: str, dimensions: int = 4) -> list[float]:
    """Tells texts apart, and is of no particular length."""
    seed = sum(map(ord, text))
    return [float(seed % (at + 5) + 1) for at in range(dimensions)]


def openai(asked: Asked) -> Answer:
    items = [
        {"index": at, "embedding": vector_of(text)} for at, text in enumerate(asked.body["input"])
    ]
    return Answer({"data": items[::-1]})  # out of order, as the wire allows


def embedder_at(url: str, **changes: Any) -> RemoteEmbedder:
    given = {"key_variable": "OPENAI_API_KEY", **changes}
    dimensions = given.pop("dimensions", 0)
    embedder = RemoteEmbedder("openai", base_url=url, **given)
    embedder._dimensions = dimensions
    return embedder


def run(embedder: RemoteEmbedder, work: Callable[[], Awaitable[T]]) -> T:
    async def whole() -> T:
        try:
            return await work()
        finally:
            await embedder.close()

    return asyncio.run(whole())


def embedded(embedder: RemoteEmbedder, texts: Sequence[str]) -> Sequence[bytes]:
    return run(embedder, lambda: embedder.embed(texts))


def refused(embedder: RemoteEmbedder, texts: Sequence[str] = (SECRET_TEXT,)) -> str:
    """The error's line; neither it nor its trace tells a key or a text."""
    with pytest.raises(EmbedderError) as caught:
        embedded(embedder, texts)
    whole = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert KEY not in whole
    assert SECRET_TEXT not in whole
    assert caught.value.__context__ is None
    return str(caught.value)


def test_vectors_come_in_order_with_length_one() -> None:
    texts = ["one", "two", "three and more"]
    with serve(openai) as server:
        embedder: Embedder = embedder_at(server.url, model="small")
        assert not embedder.ready
        vectors = embedded(embedder, texts)  # type: ignore[arg-type]
    assert embedder.ready
    assert embedder.dimensions == 4
    assert embedder.name.startswith("remote:openai:small@")
    assert embedder.kind == "remote"
    for text, values in zip(texts, vectors, strict=True):
        wanted = np.array(vector_of(text))
        got = np.frombuffer(values, "<f4")
        assert math.isclose(float(np.linalg.norm(got)), 1.0, abs_tol=1e-6)
        assert np.allclose(got, wanted / np.linalg.norm(wanted), atol=1e-6)
    asked = server.asked[-1]
    assert asked.path == "/embeddings"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {"model": "small", "input": texts}


def test_the_name_tells_servers_apart_but_not_how_they_are_spelled() -> None:
    """A model of that name may be another one there: vectors of the two must not be mixed."""

    def named(url: str | None) -> str:
        return RemoteEmbedder("openai", model="small", base_url=url).name

    assert named(None) == named("https://api.openai.com/v1/") == "remote:openai:small"
    one, other = named("http://127.0.0.1:1/v1"), named("http://127.0.0.1:2/v1")
    assert len({one, other, named(None)}) == 3
    assert one == named("http://127.0.0.1:1/v1/") == named(f"http://me:{KEY}@127.0.0.1:1/v1")


def test_a_providers_key_goes_to_no_other_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEIR_KEY", "their-key")
    with serve(openai) as server:
        embedded(embedder_at(server.url, dimensions=4, key_variable=None), ["a"])
        embedded(embedder_at(server.url, dimensions=4, key_variable="THEIR_KEY"), ["a"])
    unnamed, named = server.asked
    assert not any(KEY in value for value in unnamed.headers.values())
    assert "authorization" not in unnamed.headers
    assert named.headers["authorization"] == "Bearer their-key"
    with serve(lambda asked: Answer({}, 401)) as server:
        said = refused(embedder_at(server.url, dimensions=4, key_variable=None))
    assert "recall.remote.key_variable" in said


def test_batches_stay_within_count_and_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_BATCH_TEXTS", 7)
    monkeypatch.setattr(remote, "_BATCH_CHARS", 20_000)
    texts = [f"text {number} " + "x" * (number * 100) for number in range(60)]
    with serve(openai) as server:
        embedder = embedder_at(server.url, dimensions=4)
        vectors = embedded(embedder, texts)
    for asked in server.asked:
        assert len(asked.body["input"]) <= 7
        assert sum(map(len, asked.body["input"])) <= 20_000
    assert sum(len(asked.body["input"]) for asked in server.asked) == len(texts)
    for text, values in zip(texts, vectors, strict=True):
        wanted = np.array(vector_of(text))
        assert np.allclose(np.frombuffer(values, "<f4"), wanted / np.linalg.norm(wanted))


def test_a_question_does_not_wait_behind_passages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_BATCH_TEXTS", 1)
    monkeypatch.setattr(remote, "_AT_ONCE", 1)
    held = threading.Event()

    def answer(asked: Asked) -> Answer:
        if asked.body["input"] != ["q"]:
            held.wait(20)
        return openai(asked)

    with serve(answer) as server:
        embedder = embedder_at(server.url, dimensions=4)

        async def both() -> None:
            passages = asyncio.ensure_future(embedder.embed(["a", "b", "c"]))
            await asyncio.sleep(0.2)
            async with asyncio.timeout(5):
                await embedder.embed_questions(["q"])
            held.set()
            await passages

        run(embedder, both)
    assert [asked.body["input"] for asked in server.asked] == [["a"], ["q"], ["b"], ["c"]]


def test_long_texts_are_cut_and_that_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with serve(openai) as server:
        embedder = embedder_at(server.url, dimensions=4)
        embedded(embedder, ["x" * 8_001, "y" * 8_000])
        embedded(embedder, ["z" * 8_001])
    assert server.asked[0].body["input"] == ["x" * 8_000, "y" * 8_000]
    lines = [one.getMessage() for one in caplog.records if one.name == "recollect.embedders"]
    assert len(lines) == 1 and "8000 characters" in lines[0]


@pytest.mark.parametrize(
    "first",
    [
        Answer({"error": {}}, 429, {"Retry-After": "0.2"}),
        Answer({}, 429, {"retry-after-ms": "200"}),
        Answer(b"<html>bad gateway</html>", 502),
        Answer({}, 503),
    ],
    ids=["seconds", "milliseconds", "gateway", "unavailable"],
)
def test_what_passes_is_tried_again(first: Answer) -> None:
    answers = iter([first])
    with serve(lambda asked: next(answers, None) or openai(asked)) as server:
        started = time.monotonic()
        assert len(embedded(embedder_at(server.url, dimensions=4), ["a"])) == 1
    assert len(server.asked) == 2
    if first.status == 429:
        assert time.monotonic() - started >= 0.2


def test_a_long_wait_is_told_instead_of_waited_for() -> None:
    with serve(lambda asked: Answer({}, 429, {"Retry-After": "3600"})) as server:
        said = refused(embedder_at(server.url, dimensions=4))
    assert len(server.asked) == 1
    assert "3600 s" in said


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        *((400, "dimensions"), (401, "OPENAI_API_KEY"), (403, "OPENAI_API_KEY")),
        *((404, "model's name"), (307, "base URL"), (413, "of this size, or so many")),
    ],
)
def test_what_cannot_pass_is_told_at_once_and_quotes_nothing(status: int, advice: str) -> None:
    def answer(asked: Asked) -> Answer:
        quoted = f"bad key {asked.headers['authorization']} for {asked.body['input']}"
        headers = {"Location": server.url + "/elsewhere"} if status == 307 else {}
        return Answer({"error": {"message": quoted, "code": quoted}}, status, headers)

    with serve(answer) as server:
        said = refused(embedder_at(server.url, dimensions=4))
    assert len(server.asked) == 1
    assert f"openai answered {status}" in said
    assert advice in said


def test_a_server_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(remote, "_TRIES", 2)
    done = threading.Event()

    def answer(asked: Asked) -> Answer:
        done.wait(20)
        return openai(asked)

    with serve(answer) as server:
        started = time.monotonic()
        said = refused(embedder_at(server.url, dimensions=4))
        taken = time.monotonic() - started
        done.set()
    assert len(server.asked) == 2
    assert "did not answer within 0.2 s" in said
    assert taken < 10


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"data": []}, "number of vectors"),
        ({"data": [{"index": 0, "embedding": [1, 2, 3]}]}, "3 dimensions instead of 4"),
        ({"data": [{"index": 0, "embedding": [1, float("nan"), 3, 4]}]}, "zero or not finite"),
        ({"data": [{"index": 0, "embedding": [1, float("inf"), 3, 4]}]}, "zero or not finite"),
        ({"data": [{"index": 0, "embedding": [0, 0, 0, 0]}]}, "zero or not finite"),
        ({"data": [{"index": 0, "embedding": ["a", "b"]}]}, "as numbers"),
        ({"data": [{"index": 0, "embedding": "no base64!"}]}, "as numbers"),
        ({"data": [{"index": 3, "embedding": [1, 2, 3, 4]}]}, "which vector"),
        ({"data": [SECRET_TEXT]}, "expected form"),
        ([SECRET_TEXT], "number of vectors"),
        (SECRET_TEXT.encode(), "not JSON"),
    ],
    ids=range(11),
)
def test_a_wrong_answer_is_refused(body: Any, why: str) -> None:
    with serve(lambda asked: Answer(body)) as server:
        assert why in refused(embedder_at(server.url, dimensions=4))


def test_a_model_that_changes_behind_its_name_is_noticed() -> None:
    sizes = iter([4, 4, 5])

    def answer(asked: Asked) -> Answer:
        size = next(sizes)
        items = [
            {"index": at, "embedding": vector_of(text, size)}
            for at, text in enumerate(asked.body["input"])
        ]
        return Answer({"data": items})

    with serve(answer) as server:
        embedder = embedder_at(server.url, model="other")
        embedded(embedder, ["a"])
        assert "5 dimensions instead of 4" in refused(embedder)


def test_a_missing_key_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VOYAGE_API_KEY")
    with pytest.raises(EmbedderError, match="VOYAGE_API_KEY"):
        asyncio.run(RemoteEmbedder("voyage").load())
    with pytest.raises(EmbedderError, match="MY_OWN_KEY"):
        asyncio.run(RemoteEmbedder("gemini", key_variable="MY_OWN_KEY").load())
    monkeypatch.delenv("OPENAI_API_KEY")
    with serve(openai) as server:  # a server of one's own may need none
        embedded(embedder_at(server.url, dimensions=4), ["a"])
    assert "authorization" not in server.asked[0].headers


@pytest.mark.parametrize("ending", ["\u00e9", " b", "\x01"])
def test_a_key_that_cannot_be_sent_is_not_quoted(
    ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY + ending + KEY)
    with serve(openai) as server:
        assert "OPENAI_API_KEY" in refused(embedder_at(server.url, dimensions=4))
    assert server.asked == []


def test_logs_tell_neither_key_nor_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serve(openai) as server:
        embedder = embedder_at(server.url, dimensions=4)
        embedded(embedder, [SECRET_TEXT])
    assert caplog.records, "the driver logs; this test would say nothing otherwise"
    assert KEY not in caplog.text
    assert SECRET_TEXT not in caplog.text
    assert KEY not in repr(embedder)


def test_a_cancelled_call_lets_go() -> None:
    done = threading.Event()

    def answer(asked: Asked) -> Answer:
        done.wait(20)
        return openai(asked)

    with serve(answer) as server:
        embedder = embedder_at(server.url, dimensions=4)

        async def cut_short() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await embedder.embed(["a"])

        started = time.monotonic()
        run(embedder, cut_short)
        assert time.monotonic() - started < 5
        done.set()
