"""The gateway between real HTTP clients and a scripted provider, both sides recorded."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.harness.gateway import (
    PATHS,
    ask,
    body_of,
    connect,
    gateway,
    history,
    leave_in_mid_stream,
    records,
    settings_for,
    turn,
)
from tests.harness.model_server import Asked, ModelServer, Step
from tests.harness.waiting import wait_until

from recollect.adapters.wiring.stores import installation_secret
from recollect.cli import main
from recollect.core.engine import Engine
from recollect.core.values.model import Usage
from recollect.hosts.gateway.caller import credential_mark
from recollect.hosts.gateway.running import BackgroundGateway
from recollect.system.places import data_home
from recollect.testing.scripted_model import Fails, Says

KEY = "sk-ant-api03-" + "Zk3pQ9" * 14


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", list(PATHS))
def test_what_needs_no_shaping_passes_byte_for_byte(wire: str, stream: bool) -> None:
    says = Says(text="Good day, harbour master.", usage=Usage(input_tokens=9, output_tokens=5))
    body = body_of(wire, ["Who keeps the light?"], stream=stream)
    with ModelServer([says, says]) as server, gateway(server) as running:
        direct = ask(server.url, PATHS[wire], body)
        through = ask(running.url, f"{PATHS[wire]}?beta=true", body, anthropic_beta="x-1,y-2")
        server.check()
        sent = server.asked[1]
        assert sent.content == body
        assert sent.path == f"{PATHS[wire]}?beta=true"
        assert sent.headers["anthropic-beta"] == "x-1,y-2"
        assert "x-recollect-report" in through.headers
        assert through.status == direct.status
        assert through.body == direct.body
        own = {"x-recollect-report", "transfer-encoding", "content-length"}
        assert through.headers.keys() - own == direct.headers.keys() - own


def test_paths_it_does_not_know_pass_through_untouched() -> None:
    pages = {"/v1/models": {"data": [{"id": "m"}]}, "/v1/files?limit=2": {"data": []}}
    with ModelServer([], pages=pages) as server, gateway(server) as running:
        assert ask(running.url, "/v1/models", method="GET").json == pages["/v1/models"]
        assert ask(running.url, "/v1/files?limit=2", method="GET").json == {"data": []}
        assert ask(running.url, "/v1/none", method="GET").status == 404


def test_websocket_upgrades_are_declined_at_once() -> None:
    with ModelServer([]) as server, gateway(server) as running:
        reply = ask(
            running.url, "/v1/responses", method="GET", upgrade="websocket", connection="Upgrade"
        )
        assert reply.status == 426
        assert not server.asked


@pytest.mark.parametrize("status", [400, 401, 429, 500, 529])
def test_errors_come_through_as_sent(status: int) -> None:
    fails = Fails(
        status=status,
        body={"type": "error", "error": {"type": "x_error", "message": "as it is"}},
        headers={"retry-after": "7", "request-id": "req_1"},
    )
    with ModelServer([fails]) as server, gateway(server) as running:
        reply = ask(running.url, PATHS["anthropic"], body_of("anthropic", ["hello there"]))
        assert (reply.status, reply.json) == (status, fails.body)
        assert (reply.headers["retry-after"], reply.headers["request-id"]) == ("7", "req_1")


@pytest.mark.parametrize("wire", list(PATHS))
def test_an_error_in_mid_stream_comes_through(wire: str) -> None:
    says = Says(text="One two three.", fail_after_events=3)
    body = body_of(wire, ["count"], stream=True)
    with ModelServer([says, says]) as server, gateway(server) as running:
        assert ask(server.url, PATHS[wire], body).body == ask(running.url, PATHS[wire], body).body


@pytest.mark.parametrize("wire", list(PATHS))
def test_a_client_that_goes_away_ends_the_request_at_the_provider(wire: str) -> None:
    says = Says(text="One two three four.", hang_after_events=2)
    with ModelServer([says]) as server, gateway(server) as running:
        leave_in_mid_stream(running, wire)
        assert server.wait_until_hung_up()
        assert records(running, 1)[0]["outcome"] == "the client disconnected"


def test_a_client_that_goes_away_before_the_first_byte_ends_it_too() -> None:
    with (
        ModelServer([Says(text="late", hang_after_events=0)]) as server,
        gateway(server) as running,
    ):
        connection, prefix = connect(running.url)
        body = body_of("anthropic", ["wait for it"])
        connection.request("POST", prefix + PATHS["anthropic"], body)
        wait_until(lambda: server.asked)
        connection.close()
        assert server.wait_until_hung_up()


@pytest.mark.parametrize("wire", list(PATHS))
@pytest.mark.parametrize("manner", ["error", "inside"])
def test_an_overflow_is_recovered_and_the_client_sees_an_answer(wire: str, manner: Any) -> None:
    """The window is assumed far too large; the provider's own words teach it."""
    says = Says(text="Next is module 41.", usage=Usage(input_tokens=8_000, output_tokens=8))
    body = body_of(wire, history(40), stream=manner == "inside")
    with (
        ModelServer(lambda _: says, window_tokens=12_000, overflow=manner) as server,
        gateway(server) as running,
    ):
        reply = ask(running.url, PATHS[wire], body)
        assert reply.status == 200
        assert b"Next is module 41." in reply.body or b'"Next' in reply.body
        assert len(server.asked[-1].content) // 4 <= 12_000 < len(server.asked[0].content) // 4
        (record,) = records(running, 1)
        assert record["overflows"] >= 1
        assert record["handling"] == "shaped"


def test_untouched_messages_keep_their_bytes_when_others_are_left_out() -> None:
    texts = history(60)
    body = body_of("anthropic", texts)
    rows = [row.strip() for row in body.split(b'"messages": [')[1].rsplit(b"]", 1)[0].split(b" , ")]
    says = Says(text="Next.", usage=Usage(input_tokens=8_000, output_tokens=8))
    with ModelServer(lambda _: says) as server, gateway(server, window_tokens=16_000) as running:
        assert ask(running.url, PATHS["anthropic"], body).status == 200
        sent = server.asked[0].content
        assert len(sent) < len(body) / 2
        assert body.startswith(sent.split(b'"messages": [')[0])
        went = sent.split(b'"messages": [')[1].rsplit(b"]", 1)[0]
        kept = [row for row in rows if row in went]
        assert kept[-6:] == rows[-6:], "the newest six never leave"
        shown = [json.dumps(row) for row in json.loads(sent)["messages"]]
        noted = [row for row in shown if "earlier messages left out here" in row]
        assert noted
        assert len(shown) == len(kept) + len(noted), "every other message is as it came"


TOOLS = [{"name": "Bash", "description": "runs", "input_schema": {"type": "object"}}]
CLAUDE = {"user_agent": "claude-cli/2.1.325 (external, cli)", "x_app": "cli"}


CLAUDE_ID = "3f1c9a52-7d40-4a5e-9b1f-2f6f0c8f4d11"
CODEX_ID = "0199a213-81c0-7800-8aa1-bbab2a035a53"


def test_a_session_is_what_the_client_says_and_a_subagent_is_another() -> None:
    says = Says(text="Aye.", usage=Usage(input_tokens=9, output_tokens=1))
    claude = {**CLAUDE, "x_claude_code_session_id": CLAUDE_ID}
    with ModelServer(lambda _: says) as server, gateway(server) as running:
        request = turn(["hello"], tools=TOOLS)
        ask(running.url, PATHS["anthropic"], request, **claude)
        ask(running.url, PATHS["anthropic"], request, **claude, x_claude_code_agent_id="a7")
        user = json.dumps({"session_id": CLAUDE_ID})
        ask(running.url, PATHS["anthropic"], {**request, "metadata": {"user_id": user}}, **CLAUDE)
        ask(running.url, PATHS["anthropic"], request, x_recollect_session="mine")
        codex = {"user_agent": "codex_exec/0.166.0", "thread_id": CODEX_ID, "session_id": "s1"}
        body = {"model": "g", "input": [{"role": "user", "content": "hi"}], "tools": TOOLS}
        ask(
            running.url,
            PATHS["openai-responses"],
            body,
            **{"user_agent": codex["user_agent"], "thread-id": CODEX_ID},
        )
        named = [record["session"] for record in records(running, 5)]
        assert named == [
            CLAUDE_ID,
            f"{CLAUDE_ID}/a7",
            CLAUDE_ID,
            f"other:{credential_mark({}, installation_secret())}:mine",
            CODEX_ID,
        ]


@pytest.mark.parametrize("agent", ["pi 1", "openclaw/1", "opencode/1", "codex_exec/1", "curl/8"])
def test_no_caller_joins_a_session_by_guessing_its_name(agent: str) -> None:
    """The client writes its own name and the session's: neither proves whose session it is."""
    says = Says(text="Aye.", usage=Usage(input_tokens=9, output_tokens=1))
    request = turn(["The vault code is 4711-0815."], tools=TOOLS)
    with ModelServer(lambda _: says) as server, gateway(server) as running:
        ask(running.url, PATHS["anthropic"], request, x_api_key="alice")
        ask(running.url, PATHS["anthropic"], request, x_api_key="alice", x_session_id="main")
        known = [record["session"] for record in records(running, 2)]
        for name in (*known, "main"):
            ask(
                running.url,
                PATHS["anthropic"],
                turn(["What was the vault code?"], tools=TOOLS),
                user_agent=agent,
                x_api_key="mallory",
                x_session_id=name,
            )
        joined = [record["session"] for record in records(running, 5)][2:]
        assert set(known).isdisjoint(joined)
        assert not any(b"4711-0815" in asked.content for asked in server.asked[2:])


def test_two_users_behind_one_key_with_the_same_refusal_stay_apart() -> None:
    """Each leaves its profile out of the next request; only the gateway's store has both."""
    refusal = "I am sorry, but I cannot answer this before I know more about your request."
    says = Says(text=refusal, usage=Usage(input_tokens=9, output_tokens=1))
    shared = "You talk to a user of the library."

    def asked_by(profile: str) -> dict[str, Any]:
        return {
            **turn([shared]),
            "messages": [{"role": "user", "content": text} for text in (shared, profile)],
        }

    with ModelServer(lambda _: says) as server:
        settings = settings_for(server)
        with BackgroundGateway(settings) as running:
            ask(running.url, PATHS["anthropic"], asked_by("My locker code is 4711-0815."))
            ask(running.url, PATHS["anthropic"], asked_by("I am Bo."))
            first = [record["session"] for record in records(running, 2)]
        with BackgroundGateway(settings) as running:
            following = turn([shared, refusal, "What is my locker code?"])
            ask(running.url, PATHS["anthropic"], following)
            assert records(running, 1)[0]["session"] not in first
            assert b"4711-0815" not in server.asked[-1].content


def test_side_requests_are_passed_on_and_not_kept() -> None:
    says = Says(text="A title", usage=Usage(input_tokens=9, output_tokens=1))
    claude = {**CLAUDE, "x_claude_code_session_id": "abc"}
    with ModelServer(lambda _: says) as server, gateway(server) as running:
        ask(running.url, PATHS["anthropic"], turn(["hello"], tools=TOOLS), **claude)
        ask(running.url, PATHS["anthropic"], turn(["write a title for: hello"]), **claude)
        ask(
            running.url,
            PATHS["anthropic"],
            {**turn(["quota"], tools=TOOLS), "max_tokens": 1},
            **claude,
        )
        summary = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nSummarise."
        ask(
            running.url, PATHS["anthropic"], turn(["hello", "Aye.", summary], tools=TOOLS), **claude
        )
        ask(
            running.url, PATHS["anthropic"], turn(["hello", "Aye.", "go on"], tools=TOOLS), **claude
        )
        found = records(running, 5)
        assert [record["turn"] for record in found if record["handling"] != "passed through"] == [
            1,
            2,
        ]
        assert len(server.asked) == 5
        kinds = [record["kind"].split(":")[0] for record in found]
        assert kinds[1:4] == [
            "a side request without tools",
            "a check by the client",
            "the client compacts its history itself",
        ]


LONG_REPLY = "The harbour master keeps the light, and the pilot keeps the log of it."


def test_a_conversation_without_a_key_is_recognised_by_the_reply_it_repeats() -> None:
    says = Says(text=LONG_REPLY, usage=Usage(input_tokens=9, output_tokens=1))
    with ModelServer(lambda _: says) as server, gateway(server) as running:

        def session(*messages: Any) -> str:
            body = {"model": "m", "max_tokens": 9, "messages": list(messages)}
            report = ask(running.url, PATHS["anthropic"], body).headers["x-recollect-report"]
            return report.rpartition("/")[0]

        def said(role: str, text: str, **mark: Any) -> dict[str, Any]:
            return {"role": role, "content": [{"type": "text", "text": text, **mark}]}

        marked = {"cache_control": {"type": "ephemeral"}}
        first = session(said("user", "hello", **marked))
        again = session(
            {"role": "user", "content": "hello"},
            said("assistant", f"{LONG_REPLY}\n"),
            said("user", "go on", **marked),
        )
        after = session(
            said("user", "hello"),
            {"role": "assistant", "content": f"{LONG_REPLY}\n"},
            said("user", "go on"),
            said("assistant", LONG_REPLY),
            said("user", "more"),
        )
        assert first == again == after
        other = session(said("user", "hello"), said("assistant", "No."), said("user", "why"))
        assert other != first
        fork = session(said("user", "hello"), said("assistant", LONG_REPLY), said("user", "no"))
        assert fork not in (first, other)


def test_a_turn_of_codex_whose_tools_stand_in_its_input_is_kept() -> None:
    """As Codex 0.166 sends it to its newest models."""
    told = json.dumps({"request_kind": "turn", "workspaces": {"/tmp/ship": {}}})
    tools = {"type": "additional_tools", "role": "developer", "tools": [{"type": "function"}]}
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    headers = {"user_agent": "codex_exec/0.166.0", "thread_id": "t", "x_codex_turn_metadata": told}
    with ModelServer(lambda _: Says(text="Aye.")) as server, gateway(server) as running:
        body = {"model": "gpt-6.1", "input": [tools, said]}
        assert ask(running.url, PATHS["openai-responses"], body, **headers).status == 200
        (record,) = records(running, 1)
    assert (record["kind"], record["turn"]) == ("a turn of the conversation", 1)
    assert json.loads(server.asked[0].content)["input"][0] == tools


def test_a_prompt_larger_than_the_window_leaves_the_conversation_room_and_is_told() -> None:
    says = Says(text="Next.", usage=Usage(input_tokens=19_000, output_tokens=8))
    with (
        ModelServer(lambda _: says) as server,
        gateway(server, **{"window_tokens": 24_000, "tokens.calibrate": False}) as running,
    ):
        texts = ["the beacon is called Ostrava", *history(60)[1:], "what is the beacon called?"]
        body = turn(texts, system="Work carefully with all of it. " * 4_000)
        headers = {"x_recollect_session": "s"}
        for end in (31, 61):
            assert (
                ask(
                    running.url,
                    PATHS["anthropic"],
                    turn(texts[:end], system=body["system"]),
                    **headers,
                ).status
                == 200
            )
        record = records(running, 2)[-1]
    assert "set window_tokens" in " ".join(record["done"])
    assert not record["failed"]  # nothing is over its limit


def test_whatever_goes_wrong_in_opening_a_memory_the_provider_answers() -> None:
    def broken(space: str) -> Engine:
        raise sqlite3.OperationalError(f"no {space}")

    says = Says(text="Next.", usage=Usage(input_tokens=80, output_tokens=8))
    with (
        ModelServer(lambda _: says) as server,
        BackgroundGateway(settings_for(server), open_engine=broken) as running,
    ):
        assert ask(running.url, PATHS["anthropic"], turn(["hello"])).status == 200
        (record,) = records(running, 1)
        assert (record["handling"], record["why"]) == (
            "without memory",
            "its memory cannot be opened",
        )
        assert record["usage"]["input_tokens"] == 80


def test_memories_that_are_stuck_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.hosts.memories.STUCK_SECONDS", 0.3)
    monkeypatch.setattr("recollect.hosts.gateway.server.ASKED_AGAIN_SECONDS", 0.2)
    says = Says(text="Next.", usage=Usage(input_tokens=80, output_tokens=8))
    freed = threading.Event()
    with ModelServer(lambda _: says) as server, gateway(server) as running:
        assert ask(running.url, PATHS["anthropic"], turn(["hello"])).status == 200
        running.gateway.memories.loop.call_soon_threadsafe(freed.wait)
        for _ in range(5):  # answered while the memories wait for `freed`
            assert (
                ask(running.url, PATHS["anthropic"], turn(["hello", "Next.", "on"])).status == 200
            )
        freed.set()
        wait_until(lambda: not running.gateway.memories.is_stuck)
        assert ask(running.url, PATHS["anthropic"], turn(["hello", "Next.", "on"])).status == 200
        ways = [record["handling"] for record in records(running, 7)]
    assert ways[1:6] == ["without memory"] * 5
    assert ways[6] != "without memory"


def test_a_gateway_whose_memories_are_stuck_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.hosts.memories.STUCK_SECONDS", 0.3)
    freed = threading.Event()
    with ModelServer(lambda _: Says(text="Next.")) as server:
        with gateway(server) as running:
            running.gateway.memories.loop.call_soon_threadsafe(freed.wait)
        freed.set()  # only now: stopping did not wait for it


def test_what_is_too_large_or_no_json_is_answered_for_what_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("recollect.hosts.gateway.server.MOST_BODY_BYTES", 10_000)
    says = Fails(status=400, body={"error": {"message": "not JSON"}})
    with (
        ModelServer(lambda _: says) as server,
        gateway(server) as running,
    ):
        assert ask(running.url, PATHS["openai-chat"], b"x" * 20_000).status == 413
        for body in (b"{not json", b"[]", b"", b'{"messages": 7}', b"\xff\xfe"):
            assert ask(running.url, PATHS["openai-chat"], body).status == 400
            assert server.asked[-1].content == body


def test_a_provider_that_is_away_is_told_once_and_once_that_it_is_back() -> None:
    with ModelServer([]) as server:
        settings = settings_for(server)
    host = server.url.removeprefix("http://")
    told: list[str] = []
    body = body_of("anthropic", ["hello"])
    with BackgroundGateway(settings, tell=told.append) as running:
        for path in (*PATHS.values(), "/v1/models"):
            assert ask(running.url, path, body).status == 502
        away = f"{host} cannot be reached (connection refused)"
        assert told == [f"the provider at {away}: requests are answered with 502 until it is back"]
        with ModelServer([Says(id="1", text="hi")] * 2, port=int(host.rpartition(":")[2])):
            assert [ask(running.url, PATHS["anthropic"], body).status for _ in range(2)] == [
                200
            ] * 2
    assert told[1:] == [f"the provider at {host} is back"]


@pytest.mark.parametrize("texts", [["hello"], ["hello", "hi", "what did we decide?"]])
@pytest.mark.parametrize("wire", list(PATHS))
def test_a_body_that_is_tried_again_goes_on_with_one_session(wire: str, texts: list[str]) -> None:
    with ModelServer([]) as server:
        settings = settings_for(server)
    body = body_of(wire, texts)
    for begun in (1, 2):  # no reply was received: after a restart it is a new session
        with BackgroundGateway(settings) as running:
            assert [ask(running.url, PATHS[wire], body).status for _ in range(3)] == [502] * 3
            assert len({record["session"] for record in records(running, 3)}) == 1
        listed = (
            CliRunner().invoke(main, ["memory", "sessions", "--space", "default", "--json"]).output
        )
        assert len(json.loads(listed)["sessions"]) == begun


def test_compressed_requests_are_read_and_sent_as_they_came() -> None:
    says = Says(text="Aye.", usage=Usage(input_tokens=9, output_tokens=1))
    body = gzip.compress(body_of("openai-responses", ["hello there"]))
    with ModelServer([says]) as server, gateway(server) as running:
        # the scripted server reads JSON, so it is asked for an error that needs none
        server._steps = [Fails(status=418)]
        ask(running.url, PATHS["openai-responses"], body, content_encoding="gzip")
        assert server.asked[0].content == body
        assert server.asked[0].headers["content-encoding"] == "gzip"
        assert records(running, 1)[0]["kind"] == "a turn of the conversation"


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
        "recollect.hosts.gateway.upstream._HOSTS", {"anthropic": "127.0.0.1", "openai": "127.0.0.1"}
    )
    pages: dict[str, Any] = {"/v1/models": {"data": []}}
    with ModelServer([], pages=pages) as one, ModelServer([], pages=pages) as other:
        upstreams = {
            "gateway.upstream.anthropic": one.url,
            "gateway.upstream.openai": f"{other.url}/v1",
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


def test_tail_and_explain_find_the_gateways_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        assert "sent unchanged" in run("explain", "mine", "--live").output
        none = run("explain", "yours", "--live")
        assert (none.exit_code, "recollect tail" in none.output) == (2, True)
        monkeypatch.chdir(tmp_path / "other")
        with gateway(server) as second:
            told(second, "yours")
            assert "yours" in run("tail", "--once").output
            assert "yours" in run("explain", "--live").output
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
    assert "`recollect tail --url URL`" in run("explain", "--live").output, "it has no --url"
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
        assert len(running.gateway.shaper.spaces.opened()) <= 4
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
    with (
        ModelServer(lambda _: says) as server,
        gateway(server) as running,
    ):
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
@pytest.mark.parametrize(("day_tokens", "summarised"), [(1_000_000, True), (100, False)])
def test_the_clients_own_model_summarises_when_the_user_says_so(
    wire: str, day_tokens: int, *, summarised: bool
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
        reply = ask(running.url, PATHS[wire], body, x_api_key=KEY, x_recollect_session="s")
        assert reply.status == 200
        sent = server.asked[-1].content
        assert (b"The modules are looked at" in sent) == summarised
        assert bool(asked_for) == summarised
        assert all(headers["x-api-key"] == KEY for headers in asked_for)
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
        (memory,) = running.gateway.shaper.spaces.opened()
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
