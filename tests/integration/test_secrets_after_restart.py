"""A secret that was labelled before a restart stays off the disk when it is repeated bare after it.

What a session masked is kept in no file, so a new process has to read it from the history that the
client sends again."""

import asyncio
from pathlib import Path

import pytest
from tests.disk import bytes_of
from tests.integration.long_talk import SESSION, WORDS, Talk, opened, scribe

SECRET = "vK8q2Zt7Lm4XwB9r"


@pytest.mark.parametrize("ledger", [True, False])
@pytest.mark.parametrize("repeats", [1, 400])
def test_a_password_repeated_bare_after_a_restart_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeats: int, *, ledger: bool
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path))
    talk = Talk()

    async def run(asked: str) -> None:
        settings = {"ledger__enabled": ledger, "window_tokens": 64_000}
        async with opened(tmp_path / "m.db", scribe(), **settings) as memory:
            await memory.prepare(SESSION, talk.body(asked))
        talk.ask(asked)

    asyncio.run(run(f"DB_PASSWORD={SECRET}"))
    talk.answer(f"Noted. {WORDS * repeats}")
    asyncio.run(run("which crane is free?"))
    talk.answer("The north one.")
    asyncio.run(run(f"then try {SECRET} there"))
    files = [path for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    assert any(b"then try" in bytes_of(path) for path in files)
    assert [path.name for path in files if SECRET.encode() in bytes_of(path)] == []
