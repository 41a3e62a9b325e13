"""LangGraph's store as it is installed, over a memory: what its own store answers, ours does."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect import BlockingEngine, open_blocking_memory
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import StoreError
from recollect_bench.postgres_server import PostgresServer

pytest.importorskip("langgraph")

from langgraph.store.base import InvalidNamespaceError, PutOp
from langgraph.store.memory import InMemoryStore

from recollect.frameworks.langgraph import RecollectStore

ADA, ADAM, ALL = ("users", "ada"), ("users", "adam"), ("users",)
TOKEN = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"


class Clock:
    """A second passes whenever it is looked at."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0

    def now(self) -> float:
        self.time += 1.0
        return self.time


def opened(where: Path | str, **settings: Any) -> BlockingEngine:
    """On SQLite in this folder, or on the server of this address."""
    chosen = {"recall.embedder": "none", "jobs.in_process": False, **settings}
    store = where / "m.db" if isinstance(where, Path) else where
    return open_blocking_memory(store=store, clock=Clock(), settings=chosen)


@pytest.fixture(params=["sqlite", "postgres"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    if request.param == "sqlite":
        return tmp_path
    server: PostgresServer = request.getfixturevalue("server")
    return asyncio.run(server.migrated_database()).app_url


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[BlockingEngine]:
    with opened(tmp_path) as memory:
        yield memory


def values(found: Any) -> list[tuple[Any, ...]]:
    return sorted((item.namespace, item.key, repr(item.value)) for item in found)


def test_it_answers_as_langgraphs_own_store_does(memory: BlockingEngine) -> None:
    ours, theirs = RecollectStore(memory), InMemoryStore()
    puts: list[tuple[tuple[str, ...], str, dict[str, Any]]] = [
        (ADA, "likes", {"text": "pizza", "stars": 4, "tags": ["food", {"of": "Naples"}]}),
        (ADA, "works", {"text": "at the harbour", "stars": 2, "open": True}),
        (ADAM, "likes", {"text": "pizza", "stars": 5}),
        (ALL, "count", {"stars": None, "deep": {"a": {"b": 1}, "c": 2}}),
        (("teams", "blue", "v1"), "likes", {"text": "ropes", "stars": 4.5}),
        (("teams", "red", "v1"), "likes", {"text": "sails", "stars": 1}),
    ]
    for store in (ours, theirs):
        for namespace, key, value in puts:
            store.put(namespace, key, value)
        store.put(ADA, "works", {"text": "at the quay", "stars": 3})
        store.put(ADAM, "gone", {"text": "soon"})
        store.delete(ADAM, "gone")
        store.delete(ADAM, "never was there")
    for namespace, key, _ in [*puts, (ADAM, "gone", {}), (ALL, "likes", {})]:
        got = [store.get(namespace, key) for store in (ours, theirs)]
        mine, other = (None if item is None else item.value for item in got)
        assert mine == other, (namespace, key)
    for prefix in ((), ALL, ADA, ADAM, ("use",), ("teams",), ("teams", "blue"), ("nobody",)):
        assert values(ours.search(prefix)) == values(theirs.search(prefix)), prefix
    filters: list[dict[str, Any]] = [
        {"text": "pizza"}, {"stars": 4}, {"stars": {"$ne": 4}}, {"stars": {"$eq": 5}},
        {"deep": {"a": {"b": 1}}}, {"deep": {"a": {"b": 2}}}, {"missing": None},
        {"tags": ["food", {"of": "Naples"}]}, {"tags": ["food"]}, {"text": "pizza", "stars": 5},
    ]  # fmt: skip
    for wanted in filters:
        found = [values(store.search((), filter=wanted)) for store in (ours, theirs)]
        assert found[0] == found[1], wanted
    for wanted in [{"stars": {"$gt": 2, "$lt": 5}}, {"stars": {"$gte": 4}}, {"stars": {"$lte": 3}}]:
        found = [values(store.search(ADA, filter=wanted)) for store in (ours, theirs)]
        assert found[0] == found[1], wanted
    assert len(ours.search((), filter={"stars": {"$gte": 0}})) == 5, "None is less than nothing"
    for asked in [
        {}, {"prefix": ALL}, {"suffix": ("v1",)}, {"prefix": ("teams", "*")}, {"max_depth": 1},
        {"prefix": ("*", "blue")}, {"limit": 2}, {"limit": 2, "offset": 3}, {"suffix": ("*", "v1")},
        {"prefix": ("teams",), "suffix": ("ada",)}, {"max_depth": 2, "suffix": ("v1",)},
    ]:  # fmt: skip
        listed = [store.list_namespaces(**asked) for store in (ours, theirs)]  # type: ignore[arg-type]
        assert listed[0] == listed[1], asked


def test_values_come_back_exactly_and_outlast_the_process(anywhere: Path | str) -> None:
    value = {
        "text": 'a "quoted" line\nand\tanother \\ one, \u0000 and \u2028, 港口, 🚢',
        "half": "\ud83d",
        "numbers": [0, -0.0, 1.5e-9, 2**70, True, None],
        "": {"deep": [[], {}, [{"x": "  "}]]},
    }
    with opened(anywhere) as memory:
        store = RecollectStore(memory)
        store.put(ADA, "k.e/y\n\ud83d ", value)
        store.put(ADA, "empty", {})
        first = store.get(ADA, "k.e/y\n\ud83d ")
        assert first is not None
        assert first.value == value
        store.put(ADA, "k.e/y\n\ud83d ", {"now": "another"})
        store.put(ADA, "k.e/y\n\ud83d ", value)  # it was withdrawn, not forgotten
    with opened(anywhere) as memory:
        store = RecollectStore(memory)
        again = store.get(ADA, "k.e/y\n\ud83d ")
        assert again is not None
        assert again.value == value
        assert again.key == first.key
        assert again.created_at == first.created_at
        assert again.updated_at > first.updated_at
        assert [item.key for item in store.search(ADA)] == [first.key, "empty"], "newest first"
        assert store.search(ADA)[1].value == {}
        assert _asked(memory, lambda kept: kept.stats()).segments == 2, "a segment for each item"
        assert _asked(memory, lambda kept: kept.check()).problems == ()
        store.delete(ADA, first.key)
        store.delete(ADA, "empty")
        assert store.list_namespaces() == []
        store.put(ADA, "empty", {})
        assert store.list_namespaces() == [ADA]


def test_a_query_finds_the_best_and_stays_in_its_namespaces(memory: BlockingEngine) -> None:
    store = RecollectStore(memory)
    for number in range(60):  # crowd: they would answer better, and are somebody else's
        store.put(ADAM, f"crane {number}", {"text": "The red crane stands at quay nine."})
    store.put(ADA, "boat", {"text": "Ada's boat is called Heron.", "kind": "boat"})
    store.put(ADA, "crane", {"text": "Ada saw a red crane once.\nIt flew away.", "kind": "bird"})
    store.put(("users", "ada", "notes"), "pier", {"text": "The crane at the pier is old."})
    found = store.search(ADA, query="red crane")
    assert [item.key for item in found] == ["crane", "pier", "boat"]
    scores = [item.score for item in found]
    assert scores[0] is not None
    assert scores[1] is not None
    assert scores[0] > scores[1]
    assert scores[2] is None, "it holds none of these words"
    assert [item.key for item in store.search(ADA, query="crane", limit=1, offset=1)] == ["crane"]
    assert [item.key for item in store.search(ADA, query="crane", filter={"kind": "boat"})] == [
        "boat"
    ]
    assert all(item.namespace == ADAM for item in store.search(ADAM, query="Heron", limit=99))
    store.put(ADA, "hidden", {"text": "A crane of gold."}, index=False)
    store.put(ADA, "title", {"title": "A gull", "text": "A golden crane."}, index=["title"])
    scored = {item.key for item in store.search(ADA, query="crane") if item.score is not None}
    assert scored == {"crane", "pier"}
    assert store.search(ADA, query="gull")[0].key == "title"


def test_no_conversation_sees_items_and_no_fact_is_made(memory: BlockingEngine) -> None:
    store = RecollectStore(memory)
    store.put(ADA, "crane", {"text": "From now on, always use the red crane at quay nine."})
    memory.settle(jobs=True)
    assert memory.search("red crane quay nine", session="a chat").empty
    assert memory.facts().list() == ()
    assert not memory.search("red crane quay nine").empty, "the space as a whole has it"


def test_secrets_are_masked_on_disk(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        store = RecollectStore(memory)
        store.put(ADA, "key", {"note": f"the token is {TOKEN}", "password": "Zx9!longer-secret"})
        kept = store.get(ADA, "key")
        assert kept is not None
        assert "the token is" in kept.value["note"]
        assert TOKEN not in str(kept.value)
        assert "Zx9!longer-secret" not in str(kept.value)
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert TOKEN.encode() not in file.read_bytes(), file.name
            assert b"Zx9!longer-secret" not in file.read_bytes(), file.name


def test_what_cannot_be_done_is_refused_before_anything_changes(memory: BlockingEngine) -> None:
    store = RecollectStore(memory)
    with pytest.raises(NotImplementedError):
        store.put(ADA, "key", {"a": 1}, ttl=5)
    with pytest.raises(NotImplementedError, match="do not expire"):
        store.batch([PutOp(ADA, "fine", {"a": 1}), PutOp(ADA, "key", {"a": 1}, ttl=5)])
    for namespace in [(), ("a.b",), ("",), ("\ud83d",)]:
        with pytest.raises(InvalidNamespaceError):
            store.batch([PutOp(namespace, "key", {"a": 1})])
    with pytest.raises(TypeError):
        store.batch([PutOp(ADA, "fine", {"a": 1}), PutOp(ADA, "key", {"a": object()})])
    with pytest.raises(ValueError, match="JSON"):
        store.put(ADA, "key", {"a": float("nan")})
    with pytest.raises(ValueError, match=r"\$in"):
        store.put(ADA, "other", {"a": 1})
        store.search(ADA, filter={"a": {"$in": [1]}})
    assert [item.key for item in store.search(())] == ["other"]
    memory.close()
    with pytest.raises(RuntimeError):
        store.put(ADA, "key", {"a": 1})


def test_what_was_forgotten_stays_forgotten(memory: BlockingEngine) -> None:
    store = RecollectStore(memory)
    store.put(ADA, "crane", {"text": "red"})
    segment = _asked(memory, lambda kept: kept.page())[0].segment
    _asked(memory, lambda kept: kept.forget(ForgetOrder(at=1.0, segments=(segment.id,))))
    assert store.get(ADA, "crane") is None
    store.put(ADA, "crane", {"text": "blue"})
    with pytest.raises(StoreError, match="forgotten"):
        store.put(ADA, "crane", {"text": "red"})
    kept = store.get(ADA, "crane")
    assert kept is not None
    assert kept.value == {"text": "blue"}, "what stood there stays"
    _asked(memory, lambda kept: kept.forget(ForgetOrder(at=1.0, sessions=(segment.session,))))
    assert store.search(()) == []
    store.put(ADA, "crane", {"text": "green"})
    assert [item.value for item in store.search(ADA)] == [{"text": "green"}]


def test_an_update_that_breaks_off_loses_neither_value(
    memory: BlockingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RecollectStore(memory)
    store.put(ADA, "crane", {"text": "red"})

    async def fails(*_: Any, **__: Any) -> int:
        raise StoreError("the disk is full")

    kept = type(_asked(memory, _itself))
    with monkeypatch.context() as broken:
        broken.setattr(kept, "withdraw", fails)
        with pytest.raises(StoreError):
            store.put(ADA, "crane", {"text": "blue"})
    assert [item.value for item in store.search(ADA, query="red")] == [{"text": "blue"}]
    store.put(ADA, "crane", {"text": "green"})
    assert [item.value for item in store.search(ADA)] == [{"text": "green"}]
    assert _asked(memory, lambda kept: kept.stats()).segments == 1


def _asked(memory: BlockingEngine, question: Any) -> Any:
    return memory.submit(memory.engine.parts.store.call(question)).result()


async def _itself(store: Any) -> Any:
    return store
