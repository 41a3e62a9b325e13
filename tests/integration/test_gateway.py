"""The gateway between real HTTP clients and a scripted provider, both sides recorded."""

import gzip
import json
import sqlite3
import threading
from typing import Any

import pytest
from click.testing import CliRunner
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
from tests.harness.model_server import ModelServer
from tests.harness.waiting import assert_not_delayed, seconds_of, wait_until

from recollect.adapters.wiring.stores import installation_secret
from recollect.cli import main
from recollect.core.engine import Engine
from recollect.core.values.model import Usage
from recollect.hosts.gateway.caller import caller_mark
from recollect.hosts.gateway.running import BackgroundGateway
from recollect.testing.scripted_model import Fails, Says


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
            f"other:{caller_mark((), installation_secret(None))}:mine",
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


COPILOT = {"user_agent": "OpenAI/JS 5.20.1", "x_stainless_helper_method": "stream"}
SUMMARIZE = "Please create a detailed summary of the conversation so far."


@pytest.mark.parametrize(
    ("wire", "fields", "headers", "text", "is_side_request"),
    [
        ("openai-chat", {}, {"x_interaction_type": "conversation-compaction"}, "Go on.", True),
        ("anthropic", {}, {"x_interaction_type": "conversation-compaction"}, "Go on.", True),
        ("openai-chat", {"tool_choice": "none"}, {}, SUMMARIZE, True),
        ("openai-responses", {"tool_choice": "none"}, {}, SUMMARIZE, True),
        ("anthropic", {"tool_choice": {"type": "none"}}, {}, SUMMARIZE, True),
        ("openai-chat", {"tool_choice": "none"}, {}, "Go on.", False),
        ("openai-chat", {"tool_choice": "none"}, {}, f'He said "{SUMMARIZE}"', False),
        ("openai-chat", {"tool_choice": "auto"}, {}, SUMMARIZE, False),
        ("openai-chat", {}, {"x_interaction_type": "conversation-user"}, SUMMARIZE, False),
        ("openai-chat", {}, {"x_interaction_type": "conversation-subagent"}, "Go on.", False),
    ],
)
def test_a_clients_own_compaction_is_no_turn_of_the_conversation(
    wire: str, fields: Any, headers: Any, text: str, is_side_request: bool
) -> None:
    says = Says(text="Aye.", usage=Usage(input_tokens=9, output_tokens=1))
    body = json.loads(body_of(wire, ["hello", "Aye.", text])) | {"tools": TOOLS} | fields
    with ModelServer(lambda _: says) as server, gateway(server) as running:
        assert ask(running.url, PATHS[wire], body, **COPILOT, **headers).status == 200
        (record,) = records(running, 1)
        assert (record["turn"] is None) == is_side_request
        assert record["kind"].startswith("the client compacts") == is_side_request
        sent = json.loads(server.asked[0].content)
        assert sent["tools"] == TOOLS


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
    monkeypatch.setattr("recollect.hosts.gateway.server.CHECK_INTERVAL_SECONDS", 0.2)
    says = Says(text="Next.", usage=Usage(input_tokens=80, output_tokens=8))
    freed = threading.Event()
    with ModelServer(lambda _: says) as server, gateway(server) as running:

        def ask_often() -> None:
            for _ in range(5):
                reply = ask(running.url, PATHS["anthropic"], turn(["hello", "Next.", "on"]))
                assert reply.status == 200

        usual = seconds_of(ask_often)
        running.gateway.memories.loop.call_soon_threadsafe(freed.wait)
        assert_not_delayed(ask_often, usual_seconds=usual)
        freed.set()
        wait_until(lambda: not running.gateway.memories.is_stuck)
        assert ask(running.url, PATHS["anthropic"], turn(["hello", "Next.", "on"])).status == 200
        ways = [record["handling"] for record in records(running, 11)]
    assert ways[5:10] == ["without memory"] * 5
    assert "without memory" not in [*ways[:5], ways[10]]


def test_a_gateway_whose_memories_are_stuck_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("recollect.hosts.memories.STUCK_SECONDS", 0.3)
    freed = threading.Event()
    with ModelServer(lambda _: Says(text="Next.")) as server:
        with gateway(server) as running:
            running.gateway.memories.loop.call_soon_threadsafe(freed.wait)
        freed.set()  # only now: stopping did not wait for it
    assert "has not stopped" not in caplog.text


def test_what_is_too_large_or_no_json_is_answered_for_what_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("recollect.hosts.gateway.server.MOST_BODY_BYTES", 10_000)
    says = Fails(status=400, body={"error": {"message": "not JSON"}})
    with ModelServer(lambda _: says) as server, gateway(server) as running:
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
    with BackgroundGateway(settings, notify=told.append) as running:
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
