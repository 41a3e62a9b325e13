"""LangGraph: a store of values under keys, backed by a memory.

store = RecollectStore(memory) graph = builder.compile(checkpointer=checkpointer, store=store)

Each item is one stored message, in a session named after its namespace. Items are masked, searched,
forgotten and backed up like other messages. If memory fails, the store raises."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from recollect.core.blocking import BlockingEngine
from recollect.core.engine.items import ItemPlace, ItemStore, Namespace, NewItem, StoredItem
from recollect.core.values.segment import SegmentId
from recollect.errors import MissingExtra

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        InvalidNamespaceError,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        get_text_at_path,
        validate_op_namespace,
    )
except ImportError as _error:
    raise MissingExtra(feature="the store for LangGraph", extra="langchain") from _error

SESSION_PREFIX: Final = "langgraph:"
"""Names of sessions that hold items begin with this prefix; the namespace's labels follow."""
_WHOLE: Final = "$"


class RecollectStore(BaseStore):
    """A LangGraph `BaseStore` backed by a memory, for threads, blocking and asynchronous code."""

    __slots__ = ("_items", "_memory")

    def __init__(self, memory: BlockingEngine) -> None:
        if not isinstance(memory, BlockingEngine):
            raise TypeError(
                "the memory of a store must come from `recollect.open_blocking_memory()`, which "
                f"serves blocking and asynchronous code; it is a {type(memory).__name__}"
            )
        self._memory = memory
        self._items = ItemStore(memory.engine, SESSION_PREFIX)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations as LangGraph's own stores do: reads see the state before the batch, and
        the last value written per key is stored."""
        return self._memory.submit(self._run(_check(ops))).result()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations as `batch` does, in asynchronous code."""
        return await asyncio.wrap_future(self._memory.submit(self._run(_check(ops))))

    async def _run(self, ops: Sequence[Op]) -> list[Result]:
        puts = [op for op in ops if isinstance(op, PutOp)]
        gets = [(op.namespace, op.key) for op in ops if isinstance(op, GetOp)]
        got = await self._items.get(gets) if gets else {}
        results = [await self._read(op, got) for op in ops]
        last = {(op.namespace, op.key): op for op in puts}
        new_items = [_new_item(op, op.value) for op in last.values() if op.value is not None]
        deleted_places = {place: None for place, op in last.items() if op.value is None}
        if last:
            await self._items.put(new_items, deleted_places)
        return results

    async def _read(self, op: Op, got: Mapping[ItemPlace, StoredItem]) -> Result:
        if isinstance(op, GetOp):
            item = got.get((op.namespace, op.key))
            return None if item is None else Item(**_fields(item))
        if isinstance(op, SearchOp):
            return await self._search(op)
        if isinstance(op, ListNamespacesOp):
            return _list_namespaces(op, await self._items.namespaces())
        return None

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        prefix = op.namespace_prefix
        items = await self._items.list_under(prefix)
        if op.filter:
            items = [item for item in items if _matches(item.value, op.filter)]
        scores: Mapping[SegmentId, float] = {}
        if op.query and items:
            scores = await self._items.scores(op.query, prefix, limit=op.offset + op.limit)
            items.sort(key=lambda item: -scores.get(item.segment, float("-inf")))
        page_items = items[op.offset : op.offset + op.limit]
        return [SearchItem(**_fields(item), score=scores.get(item.segment)) for item in page_items]


def _check(ops: Iterable[Op]) -> list[Op]:
    checked_ops = list(ops)
    for op in checked_ops:
        if not isinstance(op, GetOp | SearchOp | PutOp | ListNamespacesOp):
            raise TypeError(f"a store has no operation of the type {type(op).__name__}")
        validate_op_namespace(op)
        if isinstance(op, PutOp):
            _check_put(op)
    return checked_ops


def _check_put(op: PutOp) -> None:
    if op.ttl is not None:
        raise NotImplementedError(
            "items of this store do not expire: put them without a `ttl`, and delete them"
        )
    if not op.namespace:
        raise InvalidNamespaceError("the namespace of an item must have at least one label")
    try:
        ".".join(op.namespace).encode()
    except UnicodeEncodeError:
        raise InvalidNamespaceError(
            "a label is not valid Unicode: it contains an unpaired surrogate"
        ) from None


def _new_item(op: PutOp, value: Mapping[str, Any]) -> NewItem:
    return NewItem(namespace=op.namespace, key=op.key, value=value, text=_search_text(op, value))


def _search_text(op: PutOp, value: Mapping[str, Any]) -> str | None:
    if op.index is False:
        return None
    if op.index is None or _WHOLE in op.index:
        return "\n".join(_lines(value))
    return "\n".join(text for path in op.index for text in get_text_at_path(value, path))


def _lines(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _lines(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _lines(inner, name)
    elif value is not None:
        yield f"{name}: {value}"


def _fields(item: StoredItem) -> dict[str, Any]:
    return {
        "namespace": item.namespace,
        "key": item.key,
        "value": item.value,
        "created_at": datetime.fromtimestamp(item.created_at, UTC),
        "updated_at": datetime.fromtimestamp(item.updated_at, UTC),
    }


def _list_namespaces(op: ListNamespacesOp, namespaces: Sequence[Namespace]) -> list[Namespace]:
    conditions = op.match_conditions or ()
    fitting = {
        namespace[: op.max_depth]
        for namespace in namespaces
        if all(_fits(namespace, c) for c in conditions)
    }
    return sorted(fitting)[op.offset : op.offset + op.limit]


def _fits(namespace: Namespace, condition: MatchCondition) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    start = 0 if condition.match_type == "prefix" else len(namespace) - len(path)
    part = namespace[start : start + len(path)]
    return all(
        expected_label in ("*", label) for expected_label, label in zip(path, part, strict=True)
    )


def _matches(value: Any, filter_value: Any) -> bool:
    """Return True if a value matches a filter, as in LangGraph's own stores. A value that cannot be
    compared does not match, although some of LangGraph's stores raise an error."""
    if isinstance(filter_value, list | tuple):
        return (
            isinstance(value, list)
            and len(value) == len(filter_value)
            and all(
                _matches(value_item, filter_item)
                for value_item, filter_item in zip(value, filter_value, strict=True)
            )
        )
    if not isinstance(filter_value, Mapping):
        return bool(value == filter_value)
    if any(name.startswith("$") for name in filter_value):
        return all(_compare(value, name, operand) for name, operand in filter_value.items())
    if not isinstance(value, Mapping):
        return False
    return all(_matches(value.get(name), inner) for name, inner in filter_value.items())


def _compare(value: Any, operator: str, other: Any) -> bool:
    if operator in ("$eq", "$ne"):
        return bool(value == other) is (operator == "$eq")
    if operator not in ("$gt", "$gte", "$lt", "$lte"):
        raise ValueError(f"filters do not support the operator {operator!r}")
    try:
        value_number, other_number = float(value), float(other)
    except (TypeError, ValueError):
        return False
    if operator in ("$gt", "$gte"):
        return value_number > other_number or (operator == "$gte" and value_number == other_number)
    return value_number < other_number or (operator == "$lte" and value_number == other_number)
