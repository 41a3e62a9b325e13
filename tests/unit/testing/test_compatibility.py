"""What `just compatibility` says of agents that send or write what no reader of ours knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tools import compatibility
from tools.clients.hop import HttpExchange
from tools.clients.lab import Lab, LabError
from tools.compatibility import (
    Checked,
    check,
    exit_code,
    told,
    unknown_events,
    unknown_in_claude_code,
    unknown_in_codex,
    unknown_in_hook,
    unknown_in_pi,
    unknown_in_request,
)


def sent(path: str, body: dict[str, Any], **headers: str) -> HttpExchange:
    return HttpExchange(
        method="POST",
        target=path,
        headers=headers,
        body=json.dumps(body).encode(),
        status=200,
        reply_headers={},
        reply=b"",
    )


def lines(*rows: dict[str, Any]) -> bytes:
    return b"\n".join(json.dumps(row).encode() for row in rows)


def named(found: Any) -> set[tuple[str, str]]:
    return {(kind, name) for kind, name, _ in found}


def test_what_is_new_in_a_request_is_told_by_name() -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "smell"}]},
        {"role": "oracle", "content": "y"},
    ]
    body = {"model": "m", "max_tokens": 1, "messages": messages, "mood": "calm"}
    betas = {"anthropic-beta": "claude-code-20250219,telepathy-2027-01-01"}
    assert named(unknown_in_request(sent("/v1/messages?beta=true", body, **betas))) == {
        ("block type", "smell"),
        ("role", "oracle"),
        ("request field", "mood"),
        ("beta", "telepathy-2027-01-01"),
    }
    item = {"type": "dream_call", "call_id": "c"}
    part = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}
    responses = sent("/v1/responses", {"model": "m", "input": [part, item], "stream": True})
    assert named(unknown_in_request(responses)) == {("item type", "dream_call")}
    chat = sent("/v1/chat/completions", {"model": "m", "messages": [{"role": "user"}]})
    assert named(unknown_in_request(chat)) == set()


def test_what_is_new_in_hooks_is_told_by_name() -> None:
    payload = {"hook_event_name": "Stop", "session_id": "s", "cwd": "/x", "karma": 3}
    assert named(unknown_in_hook("claude-code", payload)) == {("hook field", "karma")}
    assert named(unknown_in_hook("codex", {"hook_event_name": "Nap"})) == {("hook event", "Nap")}
    claude = b'x.object({hook_event_name:y.literal("Stop")}),z({hook_event_name:y.literal("Nap")})'
    assert named(unknown_events("claude-code", claude)) == {("hook event", "Nap")}
    codex = b'"hook_event_name": {\n      "const": "Nap",'
    assert named(unknown_events("codex", codex)) == {("hook event", "Nap")}


def test_what_is_new_in_transcripts_is_told_by_name() -> None:
    claude = lines(
        {"type": "user", "message": {"role": "user", "content": "x"}},
        {"type": "aura"},
        {"type": "attachment", "attachment": {"type": "weather"}},
        {"type": "system", "subtype": "sigh"},
    )
    assert named(unknown_in_claude_code(claude)) == {
        ("transcript line", "aura"),
        ("attachment", "weather"),
        ("system line", "sigh"),
    }
    codex = lines(
        {"type": "aura", "payload": {}},
        {"type": "event_msg", "payload": {"type": "sneeze"}},
        {"type": "response_item", "payload": {"type": "dream_call"}},
    )
    assert named(unknown_in_codex(codex)) == {
        ("transcript line", "aura"),
        ("event", "sneeze"),
        ("item type", "dream_call"),
    }
    message = {"role": "ghost", "content": [{"type": "smell"}]}
    pi = lines({"type": "session", "id": "s"}, {"type": "message", "message": message})
    assert named(unknown_in_pi(pi)) == {("role", "ghost"), ("block type", "smell")}


def test_what_could_not_be_checked_does_not_count_as_fine() -> None:
    fine = Checked(agent="pi", version="1", requests=3)
    missing = Checked(agent="codex", problem="npm could not install it")
    new = Checked(agent="claude", version="9", requests=1)
    new.add([("role", "oracle", "POST /v1/messages message 3")])
    assert exit_code([fine]) == 0
    assert exit_code([fine, missing]) == 2
    assert exit_code([missing, new]) == 1
    assert told(missing) == "codex: not checked: npm could not install it"
    assert "unknown role 'oracle', first seen in POST /v1/messages message 3" in told(new)
    assert told(new).startswith("claude 9: 1 requests")


def test_an_agent_that_does_not_install_or_run_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_lab: Lab, _name: str, package: str) -> None:
        raise LabError(f"npm could not install {package}: no such version")

    monkeypatch.setattr(Lab, "install_as", refuse)
    (tmp_path / "node24" / "node_modules").mkdir(parents=True)
    checked = check(Lab(folder=tmp_path), "pi", "some-agent@latest")
    assert checked.problem == "npm could not install some-agent@latest: no such version"

    monkeypatch.setattr(Lab, "install_as", lambda *_: None)
    monkeypatch.setattr(Lab, "version", lambda *_: "7.0")
    silent = {"pi": lambda *_: None}
    monkeypatch.setattr(compatibility, "VISITS", silent)
    checked = check(Lab(folder=tmp_path), "pi", "some-agent@latest")
    assert (checked.version, checked.problem) == ("7.0", "did not run: it sent no request")
