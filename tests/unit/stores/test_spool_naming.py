"""One store has one spool, however it is spelled; two stores never share one."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from recollect.adapters.stores import spool as spool_module
from recollect.adapters.stores.postgres.driver import server_name
from recollect.adapters.wiring import open_spool


@pytest.fixture(autouse=True)
def _no_server_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)


async def waits(url: str) -> int:
    spool = await open_spool(url, space="alice")
    try:
        return (await spool.state()).waiting
    finally:
        await spool.close()


async def put(url: str) -> None:
    spool = await open_spool(url, space="alice")
    await spool.append(b"a record")
    await spool.close()


def test_a_file_has_one_spool_by_whatever_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "real"
    (real / "x").mkdir(parents=True)
    (tmp_path / "link").symlink_to(real)
    monkeypatch.chdir(real)
    asyncio.run(put("m.db"))
    for spelled in (
        *(str(real / "m.db"), "./m.db", "x/../m.db", str(tmp_path / "link" / "m.db")),
        *("sqlite:///m.db", f"sqlite:///{tmp_path}/link/m.db"),
    ):
        assert asyncio.run(waits(spelled)) == 1, spelled
    assert asyncio.run(waits("x/m.db")) == 0


@pytest.mark.parametrize(
    "spelled",
    [
        *("postgresql://db/memory", "postgres://db/memory", "postgresql://db:5432/memory"),
        *("postgresql://DB/memory", "postgresql://app:secret@db/memory"),
        "postgresql://db/memory?sslmode=require&application_name=a",
        *("postgresql:///memory?host=db", "postgresql://db?dbname=memory"),
        *("postgresql://memory@db", "postgresql://app:secret%zz@db/memory"),
        "postgresql://app:secret@db/memory?pgbouncer=true",
    ],
)
def test_a_database_has_one_name(spelled: str) -> None:
    assert server_name(spelled) == server_name("postgresql://db/memory")


def test_other_databases_have_other_names(tmp_path: Path) -> None:
    urls = [
        "postgresql://db/memory",
        "postgresql://db:5433/memory",
        "postgresql://db/memory?port=5434",
        "postgresql://db/other",
        "postgresql://elsewhere/memory",
        "postgresql:///memory",
        f"postgresql:///memory?host={tmp_path}",
        f"postgresql:///memory?host={tmp_path.parent}",
        "postgresql://db/memory?hostaddr=10.0.0.7",
        "postgresql://db/memory?service=blue",
        "postgresql://db,other:5433/memory",
        "postgresql://[::1]/memory",
    ]
    assert len({server_name(url) for url in urls}) == len(urls)


def test_sockets_and_the_environment_are_read_as_libpq_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    by_link = f"postgresql://%2F{str(tmp_path / 'link')[1:].replace('/', '%2F')}/memory"
    by_path = f"postgresql:///memory?host={tmp_path / 'real'}/"
    assert server_name(by_link) == server_name(by_path)
    named = server_name("postgresql://db:5433/memory")
    for name, value in {"PGHOST": "db", "PGPORT": "5433", "PGDATABASE": "memory"}.items():
        monkeypatch.setenv(name, value)
    assert server_name("postgresql://") == named
    monkeypatch.setenv("PGHOST", "other")
    assert server_name("postgresql://db:5433/memory") == named


async def test_opening_a_spool_on_a_slow_disk_does_not_stop_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slowly(*_: object) -> None:
        time.sleep(0.4)

    monkeypatch.setattr(spool_module, "replace_damaged", slowly)
    ticks = 0
    opening = asyncio.create_task(open_spool(None, space="alice"))
    while not opening.done():
        await asyncio.sleep(0.01)
        ticks += 1
    await opening.result().close()
    assert ticks > 5
