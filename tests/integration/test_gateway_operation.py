"""Keys, limits, restarts and commands of a running gateway, over real HTTP."""

import asyncio
import gzip
import http.client
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.harness.gateway import PATHS, ask, body_of, gateway, history, records, settings_for, turn
from tests.harness.model_server import Asked, ModelServer, Step
from tests.harness.waiting import wait_until

from recollect.cli import main
from recollect.core.values.model import Usage
from recollect.hosts.gateway.running import BackgroundGateway
from recollect.system.places import data_home
from recollect.testing.scripted_model import Fails, Says

KEY = "sk-ant-api03-" + "Zk3pQ9" * 14
TOOLS = [{"name": "Bash", "description": "runs", "input_schema": {"type": "object"}}]
CLAUDE = {"user_agent": "claude-cli/2.1.325 (external, cli)", "x_app": "cli"}


def test_every_request_brings_the_token_on_loopback_too(monkeypatch: pytest.MonkeyPatch) -> None:
    body = body_of("anthropic", ["hello"])
    with ModelServer(lambda _: Says(text="Aye.")) as server:
        for variable in ("", "let-me-in"):
            monkeypatch.setenv("RECOLLECT_GATEWAY_TOKEN", variable)
            with gateway(server) as running:
                token = running.url.partition("/~")[2]
                assert (token == "let-me-in") == bool(variable)
                for wrong in (running.address, f"{running.address}/~no"):
                    for path in (*PATHS.values(), "/v1/models", "/recollect/activity?follow=0"):
                        assert ask(wrong, path, body).status == 401
                    refused = ask(wrong, PATHS["anthropic"], body, x_recollect_token="no")
                    assert "`recollect gateway`" in refused.json["error"]["message"]
                assert ask(running.address, "/recollect/health", method="GET").json == {"ok": True}
                asked = len(server.asked)
                for url, header in (
                    (running.url, {}),
                    (running.address, {"x_recollect_token": token}),
                ):
                    assert ask(url, PATHS["anthropic"], body, **header).status == 200
                shown = json.dumps(records(running, 2))
            assert token not in shown
            for one in server.asked[asked:]:
                assert one.path == PATHS["anthropic"]
                assert "x-recollect-token" not in one.headers


def test_a_key_goes_to_its_own_provider_or_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "recollect.hosts.gateway.credentials.PROVIDER_HOSTS",
        re.compile(r"(?P<anthropic>127\.0\.0\.1)|(?P<openai>localhost)"),
    )
    pages: dict[str, Any] = {"/v1/models": {"data": []}}
    with ModelServer([], pages=pages) as one, ModelServer([], pages=pages) as other:
        upstreams = {
            "gateway.upstream.anthropic": one.url,
            "gateway.upstream.openai": other.url.replace("127.0.0.1", "localhost") + "/v1",
        }
        with gateway(one, **upstreams) as running:
            for key, server in ((KEY, one), ("sk-proj-abc", other), ("sk-ours", other)):
                ask(running.url, "/v1/models", method="GET", authorization=f"Bearer {key}")
                assert server.asked[-1].headers["authorization"] == f"Bearer {key}"
            asked = len(one.asked), len(other.asked)
            wrong = (
                (PATHS["openai-chat"], {"authorization": f"Bearer {KEY}"}),
                (PATHS["anthropic"], {"x_api_key": "sk-proj-abc"}),
                ("/v1/messages/batches", {"authorization": "Bearer sk-proj-abc"}),
            )
            for path, header in wrong:
                assert ask(running.url, path, body_of("anthropic", ["hi"]), **header).status == 400
            assert (len(one.asked), len(other.asked)) == asked


def test_a_key_in_a_path_is_not_shown() -> None:
    with ModelServer([]) as server, gateway(server) as running:
        ask(running.url, f"/v1/keys/{KEY}/models/claude-sonnet-4-5-20250929", method="GET")
        (record,) = records(running, 1)
        assert record["path"] == "/v1/keys/…/models/claude-sonnet-4-5-20250929"
        assert KEY not in json.dumps(record)
        assert KEY in server.asked[-1].path


def test_keys_reach_the_provider_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path))
    says = Says(text="Aye.", usage=Usage(input_tokens=9, output_tokens=1))
    steps: list[Step] = [says, Fails(status=500), Says(text="x", cut_after_events=2), says]
    with ModelServer(steps) as server, gateway(server) as running:
        for stream in (False, False, True, False):
            body = body_of("anthropic", ["hello"], stream=stream)
            try:
                ask(
                    running.url,
                    PATHS["anthropic"],
                    body,
                    x_api_key=KEY,
                    authorization=f"Bearer {KEY}",
                )
            except http.client.IncompleteRead:
                assert stream
        assert server.asked[0].headers["x-api-key"] == KEY
        shown = json.dumps(records(running, 4))
    assert KEY not in shown
    assert KEY not in caplog.text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_counting_tokens_answers_for_what_would_be_sent() -> None:
    says = Says(text="Next.", usage=Usage(input_tokens=8_000, output_tokens=8))
    counts: list[int] = []

    def answer(asked: Asked) -> Step:
        if asked.path.endswith("count_tokens"):
            counts.append(len(asked.content) // 4)
            return Fails(status=200, body={"input_tokens": counts[-1]})
        return says

    claude = {**CLAUDE, "x_claude_code_session_id": "abc"}
    with ModelServer(answer, pages={}) as server, gateway(server, window_tokens=16_000) as running:
        request = turn(history(60), tools=TOOLS)
        ask(running.url, PATHS["anthropic"], request, **claude)
        sent = len(server.asked[0].content) // 4
        del request["max_tokens"]
        ask(running.url, f"{PATHS['anthropic']}/count_tokens", request, **claude)
        counted = len(server.asked[1].content) // 4
        assert abs(counted - sent) < sent * 0.05


def test_planted_facts_come_back_through_the_gateway() -> None:
    """A client that resends everything; what has left the window is recalled when asked for."""
    says = Says(text="Noted.", usage=None)
    texts = ["Remember: the crane's access code is QX-4417."]
    for at in range(60):
        texts += ["Noted.", f"Read module {at}. " + f"word{at} " * 150]
    texts += ["Noted.", "What is the crane's access code?"]
    with ModelServer(lambda _: says) as server, gateway(server, window_tokens=16_000) as running:
        for end in range(1, len(texts) + 1, 2):
            assert (
                ask(
                    running.url, PATHS["anthropic"], turn(texts[:end]), x_recollect_session="s"
                ).status
                == 200
            )
        asked = server.asked[-1].content.decode()
        assert "QX-4417" in asked
        last = records(running, 62)[-1]
        assert last["handling"] == "shaped"
        assert last["tokens_sent"] < last["tokens_came"]


def test_many_streams_at_once_do_not_wait_for_one_another() -> None:
    """The provider answers none of them before all of them have reached it."""
    says = Says(text="word " * 200, piece_bytes=64)
    body = body_of("openai-chat", ["hello"], stream=True)
    with ModelServer(lambda _: says) as server, gateway(server) as running:
        expected = ask(server.url, PATHS["openai-chat"], body).body
        ask(running.url, PATHS["openai-chat"], body)  # the first opens the memory
        server.holds = lambda _: True

        def one(number: int) -> bytes:
            named = {"x_recollect_session": str(number)}
            return ask(running.url, PATHS["openai-chat"], body, **named).body

        with ThreadPoolExecutor(20) as clients:
            replies = clients.map(one, range(20))
            wait_until(lambda: len(server.asked) == 22)
            server.release()
            assert list(replies) == [expected] * 20


def test_tail_finds_the_gateways_that_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their ports are: by their files, and by the folder they were started in."""
    says = Says(text="Aye.", usage=Usage(input_tokens=9, output_tokens=1))

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments])

    def told(running: BackgroundGateway, name: str) -> None:
        ask(running.url, PATHS["anthropic"], turn(["hello"]), x_recollect_session=name)
        records(running, 1)

    for name in ("one", "other"):
        (tmp_path / name / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "one")
    with ModelServer(lambda _: says) as server, gateway(server) as first:
        token = first.url.partition("/~")[2]
        told(first, "mine")
        shown = run("tail", "--once")
        assert "mine" in shown.output and token not in shown.output
        assert json.loads(run("tail", "--once", "--json").output)["usage"]["input_tokens"] == 9
        monkeypatch.chdir(tmp_path / "other")
        with gateway(server) as second:
            told(second, "yours")
            assert "yours" in run("tail", "--once").output
            assert "mine" in run("tail", "--once", "--url", first.address).output
            monkeypatch.chdir(tmp_path)
            which = run("tail", "--once")
            assert (which.exit_code, second.address in which.output) == (2, True)
            assert token not in which.output
        folder = data_home() / "gateway" / "running"
        (file,) = folder.iterdir()
        assert (file.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
        ended = json.loads(file.read_text()) | {"pid": 2**22 + 1, "address": "http://127.0.0.1:1"}
        (folder / "old.json").write_text(json.dumps(ended))
        assert "mine" in run("tail", "--once").output
        assert [one.name for one in folder.iterdir()] == [file.name]
    away = run("tail", "--once")
    assert (away.exit_code, "recollect gateway" in away.output) == (2, True)
    gone = run("tail", "--once", "--url", first.address)
    assert (gone.exit_code, "no gateway answers" in gone.output) == (2, True)


def test_a_conversation_without_a_key_goes_on_after_a_restart() -> None:
    says = Says(text="Aye.", usage=Usage(input_tokens=9, output_tokens=1))
    with ModelServer(lambda _: says) as server:

        def session(running: BackgroundGateway, texts: list[str], key: str = "k1") -> str:
            reply = ask(running.url, PATHS["anthropic"], turn(texts), x_api_key=key)
            records(running, 1)
            return reply.headers["x-recollect-report"].rpartition("/")[0]

        told = ["hello", "Aye.", "the mast is oak"]
        asked = [*told, "Aye.", "and the keel?"]
        with gateway(server) as running:
            first = session(running, told)
        with gateway(server) as running:
            stranger = session(running, asked, key="k2")
            again = session(running, asked)
            fork = session(running, [*told, "Aye.", "and the sail?"])
            other = session(running, ["hello"])
        assert again == first
        assert len({first, stranger, fork, other}) == 4


def test_memories_that_are_unused_for_long_are_closed_and_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("recollect.hosts.memories.MOST_OPEN", 3)
    monkeypatch.setattr("recollect.hosts.memories.IDLE_SECONDS", 0.0)
    says = Says(text="Aye.", usage=Usage(input_tokens=9, output_tokens=1))
    with ModelServer(lambda _: says) as server, gateway(server) as running:
        for space in "abcdefa":
            headers = {"x_recollect_space": space, "x_recollect_session": "s"}
            assert ask(running.url, PATHS["anthropic"], turn(["hello"]), **headers).status == 200
        assert len(running.gateway.shaper.spaces.open_memories()) <= 4
        turns = [record["turn"] for record in records(running, 7)]
        assert turns == [1, 1, 1, 1, 1, 1, 2]


def test_a_provider_that_holds_the_replys_ceiling_against_the_window_is_served() -> None:
    """A ceiling of 128,000 in a window of 200,000 leaves 72,000 to the request."""
    says = Says(text="Next.", usage=None)

    def answer(asked: Asked) -> Step:
        tokens = len(asked.content) // 4
        if tokens + 128_000 <= 200_000:
            return says
        message = (
            f"input length and `max_tokens` exceed context limit: {tokens} + 128000 > 200000, "
            "decrease input length or `max_tokens` and try again"
        )
        error = {"type": "invalid_request_error", "message": message}
        return Fails(status=400, body={"type": "error", "error": error})

    request = {**turn(history(200, words=80)), "max_tokens": 128_000}
    with ModelServer(answer) as server, gateway(server, window_tokens=200_000) as running:
        reply = ask(running.url, PATHS["anthropic"], request)
        assert reply.status == 200
        assert len(server.asked[0].content) // 4 > 72_000
        assert records(running, 1)[0]["overflows"] == 1


def test_a_provider_that_stays_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.hosts.gateway.upstream.SILENCE_SECONDS", 0.3)
    says = Says(text="late", hang_after_events=0)
    with ModelServer(lambda _: says) as server, gateway(server) as running:
        reply = ask(running.url, PATHS["openai-chat"], body_of("openai-chat", ["hello"]))
        assert (reply.status, "cannot be reached" in reply.body.decode()) == (502, True)


def test_no_more_requests_at_once_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.hosts.gateway.server.MOST_REQUESTS", 1)
    body = body_of("anthropic", ["hello"])
    with (
        ModelServer(lambda _: Says(text="slow")) as server,
        gateway(server) as running,
        ThreadPoolExecutor(1) as clients,
    ):
        server.holds = lambda _: True
        first = clients.submit(ask, running.url, PATHS["anthropic"], body)
        wait_until(lambda: server.asked)
        refused = ask(running.url, PATHS["anthropic"], body)
        server.release()
        assert first.result().status == 200
        assert (refused.status, refused.json["error"]["type"]) == (429, "rate_limit_error")


@pytest.mark.parametrize("by_folder", [True, False])
def test_a_folder_that_the_client_names_has_a_space_of_its_own(*, by_folder: bool) -> None:
    says = Says(text="Aye.", usage=Usage(input_tokens=9, output_tokens=1))
    told = json.dumps({"workspaces": {"/tmp/ship": {}}, "request_kind": "turn"})
    body = {"model": "g", "input": [{"role": "user", "content": "hi"}], "tools": TOOLS}
    with (
        ModelServer(lambda _: says) as server,
        gateway(server, **{"gateway.by_folder": by_folder, "gateway.space": "mine"}) as running,
    ):
        headers = {"user_agent": "codex_exec/0.166.0", "x_codex_turn_metadata": told}
        ask(running.url, PATHS["openai-responses"], body, **headers)
        assert records(running, 1)[0]["space"] == ("/tmp/ship" if by_folder else "mine")


@pytest.mark.parametrize("wire", list(PATHS))
@pytest.mark.parametrize(("day_tokens", "summarized"), [(1_000_000, True), (100, False)])
def test_the_clients_own_model_summarises_when_the_user_says_so(
    wire: str, day_tokens: int, *, summarized: bool
) -> None:
    """With the key of the request that fills the window, and no more than allowed a day."""
    asked_for: list[dict[str, str]] = []

    def answer(asked: Asked) -> Step:
        if b"What is next?" not in asked.content[-200:]:
            asked_for.append(dict(asked.headers))
            done = len(asked_for)
            return Says(
                text=f"## Goal\nThe modules are looked at, one after the other; {done} done."
            )
        return Says(text="Next.", usage=Usage(input_tokens=9_000, output_tokens=8))

    changes = {
        "gateway.summaries": "client",
        "jobs.day_tokens": day_tokens,
        "window_tokens": 16_000,
    }
    with ModelServer(answer) as server, gateway(server, **changes) as running:
        body = body_of(wire, history(40))
        key = KEY.removeprefix("sk-ant-")
        reply = ask(running.url, PATHS[wire], body, x_api_key=key, x_recollect_session="s")
        assert reply.status == 200
        sent = server.asked[-1].content
        assert (b"The modules are looked at" in sent) == summarized
        assert bool(asked_for) == summarized
        assert all(headers["x-api-key"] == key for headers in asked_for)
        assert len(sent) // 4 < 16_000


def test_pages_in_a_browser_are_refused() -> None:
    """They reach every port of this machine, by other names of it too, but know no token."""
    with ModelServer(lambda _: Says(text="Aye.")) as server, gateway(server) as running:
        body = body_of("anthropic", ["hello"])
        for name, value in (("origin", "https://evil.example"), ("origin", "null"), ("host", "x")):
            page = {name: value}
            assert ask(running.address, PATHS["anthropic"], body, **page).status == 401
            activity = ask(running.address, "/recollect/activity", b"", **page)
            assert activity.status == 401
        assert not server.asked


def test_passwords_of_the_machine_do_not_reach_the_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("default login me password hunter2hunter2\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    with ModelServer(lambda _: Says(text="Aye.")) as server, gateway(server) as running:
        body = body_of("anthropic", ["hello"])
        assert ask(running.url, PATHS["anthropic"], body, x_api_key=KEY).status == 200
        assert "authorization" not in server.asked[0].headers
        assert ask(running.url, PATHS["anthropic"], body, authorization="Bearer x").status == 200
        assert server.asked[1].headers["authorization"] == "Bearer x"


def test_an_overflow_is_recovered_without_memory_too() -> None:
    says = Says(text="Next.", usage=Usage(input_tokens=8_000, output_tokens=8))
    with (
        ModelServer(lambda _: says, window_tokens=12_000) as server,
        BackgroundGateway(settings_for(server), open_engine=_cannot_open) as running,
    ):
        assert ask(running.url, PATHS["anthropic"], body_of("anthropic", history(40))).status == 200
        record = records(running, 1)[-1]
        assert (record["handling"], record["overflows"]) == ("without memory", 1)


@pytest.mark.parametrize("wire", list(PATHS))
def test_newest_messages_that_do_not_fit_together_are_answered(wire: str) -> None:
    """Memory keeps the last six; where the provider takes no three of them, fewer go out."""
    says = Says(text="Next.", usage=Usage(input_tokens=3_000, output_tokens=8))
    with (
        ModelServer(lambda _: says, window_tokens=4_000) as server,
        gateway(server, window_tokens=4_000) as running,
    ):
        texts: list[str] = []
        for number in range(5):
            texts.append(f"This is log {number}. " + f"step {number} took 5 ms " * 330)
            reply = ask(
                running.url, PATHS[wire], body_of(wire, texts), x_recollect_session="pasted"
            )
            assert reply.status == 200, reply.body
            assert texts[-1].encode() in server.asked[-1].content
            texts.append("Next.")


def _cannot_open(space: str) -> Any:
    raise OSError(f"no memory for {space}")


def test_a_reply_to_a_request_that_was_overtaken_is_not_kept_behind_another() -> None:
    """Two requests of one session at once: the first is answered last."""

    def is_first(asked: Asked) -> bool:
        return b"first question" in asked.content and b"second" not in asked.content

    def answer(asked: Asked) -> Step:
        return Says(text=f"answer to the {'first' if is_first(asked) else 'second'}")

    with (
        ModelServer(answer) as server,
        gateway(server) as running,
        ThreadPoolExecutor(1) as clients,
    ):
        server.holds = is_first
        named = {"x_recollect_session": "s"}
        path = PATHS["anthropic"]
        first = clients.submit(ask, running.url, path, turn(["first question"]), **named)
        wait_until(lambda: server.asked)
        ask(running.url, path, turn(["second question, another one"]), **named)
        server.release()
        first.result()
        records(running, 2)
        (memory,) = running.gateway.shaper.spaces.open_memories()
        work = memory.engine.settle()
        asyncio.run_coroutine_threadsafe(work, running.gateway.memories.loop).result(60)
    found = CliRunner().invoke(main, ["memory", "search", "answer", "--space", "default", "--json"])
    passages = [hit["passage"] for hit in json.loads(found.output)["hits"]]
    assert "answer to the second" in passages
    assert "answer to the first" not in passages


def test_a_small_body_that_unpacks_to_very_much_is_not_unpacked() -> None:
    packed = gzip.compress(b" " * 120_000_000)
    with ModelServer(lambda _: Fails(status=400)) as server, gateway(server) as running:
        ask(running.url, PATHS["openai-responses"], packed, content_encoding="gzip")
        assert server.asked[0].content == packed
        assert records(running, 1)[0]["kind"] == "a request that cannot be read"
