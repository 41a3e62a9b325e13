"""What `memory forget` says before it does anything, and where there is nothing to do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.store_contract import examples

from recollect.adapters.wiring import open_store
from recollect.cli import main
from recollect.core.values.batch import Batch


async def plant(url: str) -> None:
    store = await open_store(url, space="default")
    new = examples.conversation(["Nightfall begins.", "The tide is low."])
    first, second = examples.ids(new)
    facts = (
        examples.fact("rests", sources=[first]),
        examples.fact("digest", sources=[first, second], type="digest", joint=True),
    )
    await store.write(Batch(at=1.0, segments=new, facts=facts))
    await store.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    asyncio.run(plant(str(tmp_path / "m.db")))
    return str(tmp_path / "m.db")


@pytest.mark.parametrize("more", [(), ("--yes",)])
def test_where_nothing_matches_there_is_no_certificate(url: str, more: tuple[str, ...]) -> None:
    order = ["memory", "forget", "--pattern", "ACME", "--store", url, *more]
    done = CliRunner().invoke(main, order)
    assert done.exit_code == 1
    assert "Nothing that is stored matches" in done.output
    assert "Certificate" not in done.output


def test_what_rests_on_it_is_counted_before_and_the_certificate_is_short(url: str) -> None:
    order = ["memory", "forget", "--matching", "nightfall", "--store", url]
    asked = CliRunner().invoke(main, order)
    assert asked.exit_code == 2
    assert "1 message, 1 fact, 1 digest would be forgotten" in " ".join(asked.stderr.split())
    assert "Nightfall begins." in asked.stdout
    assert "The tide is low." not in asked.stdout
    done = CliRunner().invoke(main, [*order, "--yes"])
    assert done.exit_code == 0, done.output
    assert "1  segment\n" in done.output
    assert "2  facts\n" in done.output
    assert "This covers" not in done.output
    assert len(done.output.splitlines()) < 25
