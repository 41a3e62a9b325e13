"""Codex rollouts: runs of model items, compactions, rollbacks, usage."""

import json
from typing import Any

from recollect.core.formats.transcripts import read_transcript
from recollect.core.values.model import Usage
from recollect.core.values.transcript import RecordedSession


def line(kind: str, payload: Any) -> str:
    fields = {"timestamp": "2026-01-01T00:00:00.000Z", "type": kind, "payload": payload}
    return json.dumps(fields)


def said(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def item(payload: dict[str, Any]) -> str:
    return line("response_item", payload)


def call(call_id: str) -> str:
    return item({"type": "function_call", "name": "sh", "arguments": "{}", "call_id": call_id})


def output(call_id: str) -> str:
    return item({"type": "function_call_output", "call_id": call_id, "output": "ok"})


def event(kind: str, **more: Any) -> str:
    return line("event_msg", {"type": kind, **more})


def count(whole: int, total: int) -> str:
    last = {"input_tokens": whole, "cached_input_tokens": whole // 2, "output_tokens": 5}
    totals = {"total_tokens": total}
    info = {
        "last_token_usage": last, "total_token_usage": totals, "model_context_window": 258400,
    }  # fmt: skip
    return event("token_count", info=info)


META = line(
    "session_meta",
    {
        "id": "sid", "cli_version": "0.128.0", "base_instructions": {"text": "You are Codex."},
        "dynamic_tools": [{"name": "look", "inputSchema": {}}],
    },
)  # fmt: skip


def read(*lines: str) -> RecordedSession:
    return read_transcript("\n".join((META, *lines)).encode())


def test_a_call_is_a_run_of_what_the_model_wrote() -> None:
    transcript = read(
        line("turn_context", {"model": "gpt-5.5"}),
        item(said("developer", "rules")),
        item(said("user", "hi")),
        event("user_message", message="hi"),
        item({"type": "reasoning", "summary": [], "encrypted_content": "x"}),
        item(said("assistant", "looking")),
        call("c1"),
        call("c2"),
        count(1000, 1005),
        output("c1"),
        output("c2"),
        item(said("assistant", "done")),
        count(1200, 2210),
    )
    assert transcript.kind == "codex"
    assert transcript.format == "openai-responses"
    assert [tuple(r.shown) for r in transcript.requests] == [(0, 1), tuple(range(8))]
    assert [r.answered for r in transcript.requests] == [(2, 3, 4, 5), (8,)]
    assert [r.usage for r in transcript.requests] == [
        Usage(input_tokens=1000, output_tokens=5, cache_read_tokens=500),
        Usage(input_tokens=1200, output_tokens=5, cache_read_tokens=600),
    ]
    assert transcript.model == "gpt-5.5"
    assert transcript.window_tokens == 258400
    assert transcript.system == "You are Codex."
    assert json.loads(transcript.tools or "") == [{"name": "look", "inputSchema": {}}]
    assert (transcript.session_id, transcript.version) == ("sid", "0.128.0")


def test_items_are_the_payloads_bytes() -> None:
    payload = '{"type" : "message","role":"user",  "content":[]}'
    data = '{"timestamp":"2026-01-01T00:00:00Z","type":"response_item","payload":' + payload + "}"
    assert read(data).items[0].raw == payload.encode()


def test_a_compaction_replaces_the_whole_history() -> None:
    transcript = read(
        item(said("user", "old")),
        item(said("assistant", "old answer")),
        count(100, 105),
        line(
            "compacted",
            {
                "message": "",
                "replacement_history": [
                    said("user", "old"),
                    {"type": "compaction", "encrypted_content": "e"},
                ],
            },
        ),
        count(0, 105),
        item(said("assistant", "going on")),
        count(50, 160),
    )
    last = transcript.requests[-1]
    assert [json.loads(transcript.items[at].raw)["type"] for at in last.shown] == [
        "message",
        "compaction",
    ]
    assert transcript.compactions == 1
    assert [r.usage.input_tokens for r in transcript.requests if r.usage] == [100, 50]
    assert len(transcript.requests) == 2
    assert not any(it.derived for it in transcript.items)


def test_without_a_replacement_history_user_messages_and_the_summary_remain() -> None:
    transcript = read(
        item(said("user", "first")),
        item(said("assistant", "answer")),
        line("compacted", {"message": "what happened"}),
        item(said("user", "next")),
        item(said("assistant", "end")),
    )
    shown = [json.loads(transcript.items[at].raw) for at in transcript.requests[-1].shown]
    texts = [message["content"][0]["text"] for message in shown]
    assert texts == ["first", "what happened", "next"]
    assert transcript.items[transcript.requests[-1].shown[1]].derived


def test_a_rollback_takes_the_turns_it_undoes_out_of_the_history() -> None:
    transcript = read(
        item(said("user", "one")),
        event("user_message", message="one"),
        item(said("assistant", "two")),
        item(said("user", "mistake")),
        event("user_message", message="mistake"),
        item(said("assistant", "three")),
        event("thread_rolled_back", num_turns=1),
        item(said("user", "better")),
        event("user_message", message="better"),
        item(said("assistant", "four")),
    )
    assert [tuple(r.shown) for r in transcript.requests] == [(0,), (0, 1, 2), (0, 1, 4)]


def test_undo_points_are_not_items_and_a_line_without_payload_is_told() -> None:
    transcript = read(
        item({"type": "ghost_snapshot", "ghost_commit": {}}),
        item(said("user", "one")),
        '{"timestamp":"2026-01-01T00:00:00Z","type":"response_item","payload":7}',
    )
    assert len(transcript.items) == 1
    assert transcript.passed_over == ("line 4: a line without a payload",)
