"""`recollect chat` without a terminal: through a pipe, and for programs."""

import asyncio
import importlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.recollect_cli import PROGRAM, environment
from tests.harness.model_server import Asked, ModelServer

from recollect.adapters.session.files import SessionIndex, transcript_file
from recollect.adapters.session.transcript import read_session_file
from recollect.agent.chat.opening import ChatOrder, choose_settings, find_served_model
from recollect.agent.chat.plain import lines_from, lines_of, talk_json, talk_plain
from recollect.errors import MissingExtra, RecollectError, SettingsError
from recollect.hosts.inspect.sessions import sessions_of
from recollect.testing.scripted_model import Fails, Says, ScriptedCall

MODELS = {"/v1/models": {"data": [{"id": "scripted"}]}}


def order_for(server: ModelServer, workspace: Path, **given: Any) -> ChatOrder:
    settings = choose_settings(provider=server.url, model=None, window_tokens=32_000)
    return ChatOrder(workspace=workspace, settings=settings, **given)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def plain(order: ChatOrder, *texts: str) -> tuple[int, str, str]:
    out, notes = io.StringIO(), io.StringIO()
    code = asyncio.run(talk_plain(order, lines_from(texts), out, notes))
    return code, out.getvalue(), notes.getvalue()


def events(order: ChatOrder, *lines: str) -> tuple[int, list[dict[str, Any]]]:
    out = io.StringIO()
    code = asyncio.run(talk_json(order, lines_from(lines), out))
    return code, [json.loads(line) for line in out.getvalue().splitlines()]


def test_replies_are_all_that_goes_to_standard_output(workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\ntwo\n")
    read = ScriptedCall(id="c1", name="read", input={"path": "a.txt"})
    no = ScriptedCall(id="c2", name="read", input={"path": "b.txt"})
    first = Says(text="I look.", calls=(read, no))
    with ModelServer(
        [first, Says(text="It says one, two."), Says(text="Bye")], pages=MODELS
    ) as server:
        code, out, notes = plain(order_for(server, workspace), "what is in a.txt?", "", "bye")
        server.check()
    assert (code, out) == (0, "I look.\nIt says one, two.\nBye\n")
    read_line, failed_line, *status = notes.splitlines()
    assert re.fullmatch(r"\[1\] read a.txt — [23] lines, \d+ B", read_line)
    assert failed_line.startswith("[2] read b.txt — error: ")
    assert not failed_line.endswith(" B"), "a failure tells why, not its size"
    assert len(status) == 2
    assert all(re.fullmatch(r"[\d.]+k/32k \d+%  scripted", line) for line in status), status


def test_nothing_of_a_model_or_a_tool_reaches_the_terminal_as_a_control(workspace: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31mred\u202eback\rover"
    (workspace / "evil.txt").write_text(evil)
    call = ScriptedCall(id="c1", name=f"read{evil}", input={"path": f"evil.txt{evil}"})
    with ModelServer([Says(text=evil, calls=(call,)), Says(text="fine")], pages=MODELS) as server:
        _, out, notes = plain(order_for(server, workspace), "go", f"/memory search {evil}")
    for text in (out, notes):
        assert all(sign.isprintable() or sign in "\n\t" for sign in text), text
    assert "red" in out


def test_where_nobody_can_be_asked_nothing_is_forgotten(workspace: Path) -> None:
    store = ScriptedCall(id="c1", name="memory_store", input={"text": "The host is gull-7"})
    results: list[str] = []

    def answer(asked: Asked) -> Says:
        last = asked.body["messages"][-1]
        if last["role"] != "tool":
            return Says(calls=(store,))
        results.append(str(last["content"]))
        if len(results) > 1:
            return Says(text="done")
        ids = re.findall(r"\[([0-9a-f]{24})\]", results[0])
        return Says(calls=(ScriptedCall(id="c2", name="memory_forget", input={"ids": ids}),))

    with ModelServer(answer, pages=MODELS) as server:
        code, out, _ = plain(order_for(server, workspace), "forget the host")
        _, shown, _ = plain(order_for(server, workspace), "/memory show")
    assert (code, out) == (0, "done\n")
    assert "this client cannot ask one" in results[1]
    assert "gull-7" in shown


def test_a_failed_turn_is_told_and_is_the_exit_code(workspace: Path) -> None:
    with ModelServer([Fails(status=400)], pages=MODELS) as server:
        code, out, notes = plain(order_for(server, workspace), "hello")
    assert code == 1
    assert out == ""
    assert "refused" in notes


def test_every_event_is_a_line_of_json(workspace: Path) -> None:
    (workspace / "a.txt").write_text("x")
    read = ScriptedCall(id="c1", name="read", input={"path": "a.txt"})
    with ModelServer([Says(calls=(read,)), Says(text="done")], pages=MODELS) as server:
        code, found = events(order_for(server, workspace), '{"message": "look"}', "/status")
    assert code == 0
    assert [event["type"] for event in found] == [
        *("opened", "prepared", "replied", "call_began", "call_ended"),
        *("prepared", "said", "replied", "ended", "told", "ended"),
    ]
    assert found[0]["model"] == "scripted"
    assert found[1]["report"]["tokens_after"] > 0
    assert found[3]["arguments"] == {"path": "a.txt"}
    assert found[4]["text"].startswith("x")
    assert found[6]["text"] == "done"


def test_a_program_stops_a_turn_and_the_session_goes_on(workspace: Path) -> None:
    steps = [Says(text="a long reply", hang_after_events=1), Says(text="here again")]

    async def talk(server: ModelServer) -> list[dict[str, Any]]:
        out = io.StringIO()

        async def lines() -> AsyncIterator[str]:
            yield "begin"
            while not any(asked.wire for asked in server.asked):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            yield '{"abort": true, "message": "and now?"}'

        await talk_json(order_for(server, workspace), lines(), out)
        return [json.loads(line) for line in out.getvalue().splitlines()]

    with ModelServer(steps, pages=MODELS) as server:
        found = asyncio.run(talk(server))
    ends = [event["reason"] for event in found if event["type"] == "ended"]
    assert ends == ["aborted", "done"]
    said = [event["text"] for event in found if event["type"] == "said"]
    assert "".join(said).endswith("here again")


def test_an_abort_right_behind_its_message_is_not_lost(workspace: Path) -> None:
    with ModelServer([Says(text="here")], pages=MODELS) as server:
        code, found = events(
            order_for(server, workspace), "begin", "and more", '{"abort": true}', "go on"
        )
        said = [asked.body["messages"][-1]["content"] for asked in server.asked if asked.wire]
    assert code == 0
    ends = [event["reason"] for event in found if event["type"] == "ended"]
    assert ends == ["done"]
    assert said == ["go on"]


def test_lines_that_cannot_be_read_end_the_talk(workspace: Path) -> None:
    def broken() -> str:
        raise OSError("gone")

    async def talk(order: ChatOrder) -> None:
        await asyncio.wait_for(talk_json(order, lines_of(broken), io.StringIO()), 60)

    with ModelServer(pages=MODELS) as server, pytest.raises(RecollectError, match="gone"):
        asyncio.run(talk(order_for(server, workspace)))


def test_sessions_are_named_listed_resumed_and_begun_anew(workspace: Path) -> None:
    heard: list[int] = []

    def answer(asked: Asked) -> Says:
        heard.append(sum(one["role"] == "user" for one in asked.body["messages"]))
        return Says(text="yes")

    with ModelServer(answer, pages=MODELS) as server:
        plain(order_for(server, workspace), "one", "/name \x07Bakery")
        plain(order_for(server, workspace), "two")
        before = SessionIndex.of_space(str(workspace)).open("main").session_id
        plain(order_for(server, workspace, starts_new=True), "three")
        plain(order_for(server, workspace, key="side"), "four")
        plain(order_for(server, workspace, resume="Bakery"), "five")
    assert heard == [1, 2, 1, 1, 3]
    found = {"".join(one.keys[:1]): one for one in sessions_of(str(workspace))}
    assert list(found) == ["main", "side", ""]
    assert (found["main"].messages, found["side"].messages) == (6, 2)
    assert found["main"].session_id == before
    old = read_session_file(transcript_file(str(workspace), before)).entries
    assert "Bakery" in [entry.text("name") for entry in old]


def test_without_any_model_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("recollect.agent.chat.opening.LOCAL_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(SettingsError, match="ANTHROPIC_API_KEY"):
        choose_settings(provider=None, model=None, window_tokens=None)
    with pytest.raises(SettingsError, match="http://"):
        choose_settings(provider="nobody", model=None, window_tokens=None)


def test_what_is_named_counts_then_keys_then_a_server_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def models(**given: Any) -> tuple[Any, ...]:
        named: dict[str, Any] = {"provider": None, "model": None, "window_tokens": None, **given}
        found = choose_settings(**named).models
        return found.provider, found.main, found.base_url

    with ModelServer(pages=MODELS) as server:
        local = f"{server.url}/v1"
        monkeypatch.setattr("recollect.agent.chat.opening.LOCAL_URL", local)
        assert models() == ("openai-chat", "scripted", local)
        assert models(provider=server.url, model="other") == ("openai-chat", "other", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        assert models()[0] == "openai-responses"
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        assert models()[0] == "anthropic"
        assert models(provider="openai", model="gpt-x")[:2] == ("openai-responses", "gpt-x")
        file = tmp_path / "recollect.toml"
        file.write_text('[models]\nprovider = "openai-chat"\nmain = "mine"\n')
        monkeypatch.setenv("RECOLLECT_CONFIG", str(file))
        assert models() == ("openai-chat", "mine", None)
        assert find_served_model(f"{server.url}/elsewhere", seconds=1.0) is None


def test_a_pipe_gets_plain_text_by_itself(workspace: Path, tmp_path: Path) -> None:
    with ModelServer([Says(text="**Hi**"), Says(text="two")], pages=MODELS) as server:
        done = subprocess.run(
            [*PROGRAM, "chat", str(workspace), "--provider", server.url],
            input=b"hello\n\xff again\n",
            capture_output=True,
            env=environment(tmp_path),
            timeout=120,
            check=False,
        )
        asked = server.asked[-1].body
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b"**Hi**\ntwo\n"
    assert asked["messages"][-1]["content"] == "\ufffd again", "bytes that are no UTF-8"


def test_importing_the_command_loads_nothing_heavy() -> None:
    code = "import recollect.cli.chat, sys; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"numpy", "rich", "prompt_toolkit", "apsw"}


def test_without_the_extra_a_terminal_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "recollect.agent.chat.terminal", raising=False)
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    with pytest.raises(MissingExtra, match=r"recollect\[chat\]"):
        importlib.import_module("recollect.agent.chat.terminal")
