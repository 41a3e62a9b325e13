"""`FactBook` as a program uses it: concurrent writers, library values, folders of any facts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.adapters.wiring import open_store
from recollect.core.facts.book import FactBook
from recollect.core.facts.history import FactFilter
from recollect.core.ports import Store
from recollect.core.values.batch import Batch
from recollect.core.values.fact import FactType
from recollect.errors import RecollectError
from recollect.system.config import Settings


class Ticking:
    """A clock that never tells the same time twice."""

    def __init__(self) -> None:
        self.at = 1_767_571_200.0

    def now(self) -> float:
        self.at += 1.0
        return self.at


@asynccontextmanager
async def opened(tmp_path: Path) -> AsyncIterator[tuple[FactBook, Store]]:
    store = await open_store(str(tmp_path / "m.db"), space="default", create=True)
    try:
        yield FactBook(store, Settings(), Ticking()), store
    finally:
        await store.close()


async def test_writers_at_the_same_time_leave_one_current_fact(tmp_path: Path) -> None:
    async with opened(tmp_path) as (book, _):
        ports = [f"The server port is {port}" for port in range(8000, 8004)]
        await asyncio.gather(*(book.add(said, type="config") for said in ports))
        current = await book.list()
        assert len(current) == 1
        history = await book.history(current[0].id)
        assert sorted(one.content for one in history.facts) == ports
        assert all(one.superseded_by is not None for one in history.facts[:-1])


async def test_statements_have_words_and_an_end(tmp_path: Path) -> None:
    async with opened(tmp_path) as (book, _):
        for text in ("", "  \n "):
            with pytest.raises(RecollectError, match="statement is empty"):
                await book.add(text)
        with pytest.raises(RecollectError, match="at most 2,000 characters"):
            await book.add("x" * 2_001)
        assert await book.list() == ()


async def test_what_is_learnt_late_is_history(tmp_path: Path) -> None:
    async with opened(tmp_path) as (book, _):
        await book.add("The server port is 9000", type="config")
        late = await book.add("The server port is 8000", type="config", at=1_700_000_000.0)
        assert late.fact is not None
        assert late.fact.superseded_by is not None
        assert [one.content for one in await book.list()] == ["The server port is 9000"]
        then = await book.list(FactFilter(as_of=1_700_000_001.0))
        assert [one.content for one in then] == ["The server port is 8000"]


@pytest.mark.parametrize(
    ("known", "added", "replaces"),
    [
        ("the codename is Falcon.", "the codename is Eagle", True),
        ("the build number is 41.", "The build number is now 42", True),
        ("the checksum of module 9 is ab12cd34", "the checksum of module 9 is ff00cd34", True),
        ("my favourite colour is teal", "my favourite colour is red", True),
        ("The staging API listens on port 8443", "staging API port is 9000 now", True),
        ("the checksum of module 8 is ab12cd34", "the checksum of module 9 is ff00cd34", False),
        ("the service is slow", "the service is down", False),
        ("a maintainer is Alice", "a maintainer is Bob", False),
        ("the codename is Falcon", "the codename is secret", False),
    ],
)
async def test_what_a_person_writes_replaces_what_was_extracted_of_the_same(
    tmp_path: Path, known: str, added: str, replaces: bool
) -> None:
    async with opened(tmp_path) as (book, store):
        found = (await book.add(known)).fact
        assert found is not None
        extracted = replace(found, made_by="model", session="talk")
        revision = await store.facts_revision()
        await store.write(Batch(at=found.at, facts=(extracted,), facts_revision=revision))
        written = await book.add(added)
        assert written.outcome == ("replaced" if replaces else "added")
        assert (known in [one.content for one in await book.list()]) is not replaces


async def test_a_filter_takes_the_names_people_know_and_no_others(tmp_path: Path) -> None:
    async with opened(tmp_path) as (book, _):
        await book.add("The server port is 8000", type="config")
        for asked in (FactFilter(trusts=("high",)), FactFilter(trusts=("medium", "high"))):
            assert len(await book.list(asked)) == 1
        assert await book.list(FactFilter(trusts=("low",))) == ()
        for wrong in (
            FactFilter(trusts=("root",)),  # type: ignore[arg-type]
            FactFilter(types=("configs",)),  # type: ignore[arg-type]
            FactFilter(made_by=("me",)),  # type: ignore[arg-type]
        ):
            with pytest.raises(RecollectError, match="is not one of"):
                await book.list(wrong)


TYPES: dict[FactType, tuple[str, ...]] = {
    "decision": (
        "Use ClickHouse instead of Elasticsearch for logs",
        "Drop 32-bit builds",
        "We decided to use Postgres only for billing",
        "Use pnpm instead of npm in my repos",
    ),
    "implementation": (
        "The health check endpoint is /internal/live",
        "Discounts are computed by the function apply_rebates",
    ),
    "config": ("The broker of the test rig listens on port 61616", "Backups go to 10.4.0.17"),
    "issue": ("Checkout fails for cards without a postcode", "Timezone bug in the weekly report"),
    "task_state": ("Invoice archiving not yet started", "Accessibility review is in progress"),
    "architecture": ("An event bus connects the warehouses", "One monolith, no queue"),
    "preference": ("I prefer squash merges", "Never send mails on weekends", "Answer in French"),
}


async def test_a_statement_without_a_type_gets_that_of_its_words(tmp_path: Path) -> None:
    async with opened(tmp_path) as (book, _):
        for texts in TYPES.values():
            for text in texts:
                await book.add(text)
        added = {type_: set(texts) for type_, texts in TYPES.items()}
        assert {
            type_: {fact.content for fact in await book.list(FactFilter(types=(type_,)))}
            for type_ in TYPES
        } == added
        named = await book.add("Checkout fails on Sundays", type="decision")
        assert named.fact is not None
        assert named.fact.type == "decision"
