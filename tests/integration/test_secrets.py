"""Memories of this machine whose secret was lost, damaged or replaced: nothing is stored with other
ids in silence, and what was forgotten stays away."""

import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect import Engine, open_memory
from recollect.adapters.wiring import secrets as wired
from recollect.adapters.wiring import spool_state
from recollect.adapters.wiring.stores import installation_secret, open_store
from recollect.errors import WrongSecret
from recollect.system.places import installation_secret_file, spaces_folder
from recollect.tools import memory_tools

OURS, OTHER = "0c4e22" * 6, "5a1f07" * 6
VAULT, LATER = "The vault stands in room 7719, says Kestrel.", "Please run the parser's tests."
PLAIN: dict[str, Any] = {"recall.embedder": "none", "turn.deadline_seconds": 10}


def set_secret(monkeypatch: pytest.MonkeyPatch, secret: str | None) -> None:
    if secret is None:
        monkeypatch.delenv("RECOLLECT_SECRET", raising=False)
    else:
        monkeypatch.setenv("RECOLLECT_SECRET", secret)


def said(*texts: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    return {"model": "some-model", "max_tokens": 100, "messages": messages}


def memory_at(file: Path) -> Engine:
    return open_memory(store=file, settings=PLAIN)


async def stored_texts(file: Path) -> list[str]:
    store = await open_store(str(file), space="default")
    texts = [one.segment.text for one in await store.page(limit=1000)]
    await store.close()
    return texts


async def fill(file: Path, *, forgets: bool = True) -> None:
    async with memory_at(file) as memory:
        await memory.prepare("s", said(VAULT, "Noted.", LATER))
        await memory.settle()
        if forgets:
            await memory.forget(matching="vault")


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (OURS, OTHER),
        (OURS, None),
        (OURS, ""),
        (None, OURS),
        ("", OURS),
        (OURS, OURS[:-1]),
        (OURS, OURS.upper()),
        (OURS, f"{OURS}\n"),
        (OURS, f" {OURS}"),
        (f"{OURS}\n", OURS),
        ("of an earlier version", OURS),
    ],
)
async def test_a_file_refuses_to_be_written_with_another_secret(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: str | None,
    then: str | None,
) -> None:
    """Also a file of an earlier version, whose messages were stored without a secret."""
    file, is_old = tmp_path / "m.db", first == "of an earlier version"
    first = None if is_old else first
    set_secret(monkeypatch, first)
    await fill(file)
    if is_old:
        remove_mark(file)
    before = await stored_texts(file)
    set_secret(monkeypatch, then)
    with pytest.raises(WrongSecret, match="RECOLLECT_SECRET is"):
        await open_store(str(file), space="default", makes_ids=True)
    async with memory_at(file) as memory:
        context = await memory.prepare("s", said(VAULT, "Noted.", LATER))
        assert "RECOLLECT_SECRET" in str(context.report), "the turn says why nothing is stored"
        await memory.settle(1.0)
    assert await stored_texts(file) == before, "reading needs no secret"
    set_secret(monkeypatch, first)
    async with memory_at(file) as memory:  # what the wrong process spooled stays in the spool
        await memory.prepare("s", said(VAULT, "Noted.", LATER, "Done."))
        await memory.settle(1.0)
    assert sorted(await stored_texts(file)) == sorted([*before, "Done."])
    assert (await spool_state(str(file), space="default")).waiting > 0


def remove_mark(file: Path) -> None:
    """As an earlier version left the file."""
    with apsw.Connection(str(file)) as opened:
        opened.execute("DELETE FROM meta WHERE key = 'secret mark'")


@pytest.mark.parametrize(("first", "then"), [(OURS, OURS[:-1]), (OURS, OTHER), (OURS, None)])
async def test_a_file_of_an_earlier_version_refuses_another_secret_and_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, then: str | None
) -> None:
    file = tmp_path / "m.db"
    set_secret(monkeypatch, first)
    async with memory_at(file) as memory:
        await memory.prepare("s", said(VAULT, "Noted.", LATER, "Done."))
        await memory.settle()
    remove_mark(file)
    before = await stored_texts(file)
    set_secret(monkeypatch, then)
    for _ in range(2):
        async with memory_at(file) as memory:
            await memory.prepare("s", said(VAULT, "Noted.", LATER, "Done."))
            await memory.settle(1.0)
    assert await stored_texts(file) == before
    set_secret(monkeypatch, first)
    await (await open_store(str(file), space="default", makes_ids=True)).close()


async def test_messages_of_a_wrong_secret_do_not_lock_out_the_right_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with one message cannot tell yet which secret is right."""
    file = tmp_path / "m.db"
    for secret, texts in ((OURS, [VAULT]), (OTHER, [VAULT]), (OTHER, [VAULT])):
        set_secret(monkeypatch, secret)
        async with memory_at(file) as memory:
            await memory.prepare("s", said(*texts))
            await memory.settle()
        remove_mark(file)
    set_secret(monkeypatch, OURS)
    await (await open_store(str(file), space="default", makes_ids=True)).close()


@pytest.mark.parametrize("secret", [OURS, None])
async def test_a_file_of_an_earlier_version_keeps_its_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str | None
) -> None:
    file = tmp_path / "m.db"
    set_secret(monkeypatch, secret)
    await fill(file)
    remove_mark(file)
    async with memory_at(file) as memory:
        await memory.prepare("s", said(VAULT, "Noted.", LATER, "Done."))
        assert not await memory.settle()
    assert sorted(await stored_texts(file)) == sorted(["Noted.", LATER, "Done."])
    set_secret(monkeypatch, OTHER)
    with pytest.raises(WrongSecret):
        await open_store(str(file), space="default", makes_ids=True)


async def test_a_file_whose_messages_cannot_tell_is_still_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every message has two parts: nobody knows with which secret they were stored."""
    set_secret(monkeypatch, OURS)
    file, request = tmp_path / "m.db", said("")
    parts = [{"type": "text", "text": text} for text in ("A reminder.", LATER)]
    request["messages"][0]["content"] = parts
    async with memory_at(file) as memory:
        await memory.prepare("s", request)
        assert not await memory.settle()
    remove_mark(file)
    for _ in range(2):
        async with memory_at(file) as memory:
            await memory.prepare("s", request)
            assert not await memory.settle()
    assert len(await stored_texts(file)) == 1


def remove(file: Path) -> None:
    file.unlink()


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:20])


def replace(file: Path) -> None:
    file.write_text(secrets.token_urlsafe(32))


@pytest.mark.parametrize("damage", [remove, truncate, replace])
async def test_a_secret_file_that_changed_is_said_once_and_brings_nothing_back(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None],
) -> None:
    """The answer of a memory tool quotes what was forgotten, and the client still has it."""
    set_secret(monkeypatch, None)
    file = tmp_path / "m.db"
    spaces_folder().mkdir(parents=True)
    async with memory_at(file) as memory:
        await memory.prepare("s", said(VAULT, "Noted.", LATER))
        await memory.settle()
        found = await memory_tools(memory).call("memory_search", {"query": "vault code Kestrel"})
        assert "7719" in found.text
        await memory.forget(matching="vault")
    installation_secret(None)
    assert "begins new sessions" not in caplog.text
    damage(installation_secret_file())
    caplog.set_level(logging.WARNING, "recollect")
    for _ in range(2):
        installation_secret(None)  # as a gateway does when it starts
    assert caplog.text.count("begins new sessions") == 1
    call = {"type": "tool_use", "id": "m1", "name": "memory_search", "input": {"query": "vault"}}
    answer = {"type": "tool_result", "tool_use_id": "m1", "content": found.text}
    request = said("What is the code?")
    request["messages"] += [
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [answer]},
        {"role": "assistant", "content": "It is in the answer."},
    ]
    async with memory_at(file) as memory:
        await memory.prepare("another session", request)
        assert not await memory.settle()
    texts = await stored_texts(file)
    assert "It is in the answer." in texts
    assert not any("7719" in text for text in texts)


@pytest.mark.parametrize("size", [0, 64, 128, 129])
def test_only_the_secret_of_a_record_opens_it(size: int) -> None:
    data = secrets.token_hex(size)[:size].encode()
    one, two = wired._wrap(data, OURS.encode()), wired._wrap(data, OTHER.encode())
    for spelled in (OURS, f"{OURS}\n", f" \t{OURS}\r\n"):
        assert wired._open([two, one], spelled.encode()) == data
    for wrong in ("", " \n", OURS[1:], OURS.upper()):
        assert wired._open([one, two], wrong.encode()) is None
    changed = bytearray(one)
    changed[secrets.randbelow(len(changed))] ^= 1
    assert wired._open([bytes(changed)], OURS.encode()) is None
    assert data not in one or size < 2
    assert len(one) == len(wired._wrap(b"", OURS.encode())) or size > 128


def test_no_secret_is_the_secret_of_an_empty_record() -> None:
    assert wired._wrap(b"", b"") == wired._wrap(b"", b"\n") == b""
    assert wired._open([b""], b"") == wired._open([b""], b"\n") == b""
    assert wired._open([b""], OURS.encode()) is None
    assert wired._open([], b"") is None
