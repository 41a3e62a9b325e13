"""Claude Code sessions: lines joined into API messages, chains, boundaries, sidechains."""

import json
from typing import Any

from recollect.core.formats.transcripts import read_transcript
from recollect.core.values.model import Usage
from recollect.core.values.transcript import RecordedSession


def line(kind: str, uuid: str, parent: str | None, message: Any = None, **more: Any) -> str:
    fields = {
        "parentUuid": parent, "isSidechain": False, "sessionId": "sess", "version": "2.0.1",
        "type": kind, "uuid": uuid, "timestamp": "2026-01-01T00:00:00.000Z", **more,
    }  # fmt: skip
    if message is not None:
        fields["message"] = message
    return json.dumps(fields, separators=(",", ":"))


def user(uuid: str, parent: str | None, content: Any, **more: Any) -> str:
    return line("user", uuid, parent, {"role": "user", "content": content}, **more)


def reply(uuid: str, parent: str | None, response: str, *blocks: Any, **more: Any) -> str:
    message = {
        "id": response, "type": "message", "role": "assistant",
        "model": more.pop("model", "claude-x"), "content": list(blocks), "stop_reason": None,
        "usage": {
            "input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 7,
            "output_tokens": more.pop("output", 5),
        },
    }  # fmt: skip
    return line("assistant", uuid, parent, message, **more)


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def call(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "Read", "input": {"file": call_id}}


def result(call_id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": f"output of {call_id}"}


def read(*lines: str) -> RecordedSession:
    return read_transcript("\n".join(lines).encode())


def messages(transcript: RecordedSession, indexes: Any) -> list[Any]:
    return [json.loads(transcript.items[index].raw) for index in indexes]


def test_lines_of_one_response_are_one_message_and_its_usage_counts_once() -> None:
    transcript = read(
        user("u1", None, "hi"),
        reply("a1", "u1", "m1", {"type": "thinking", "thinking": "hm", "signature": "x"}, output=1),
        reply("a2", "a1", "m1", text("Reading."), output=1),
        reply("a3", "a2", "m1", call("t1"), output=9),
        user("r1", "a3", [result("t1")], toolUseResult={"big": "copy"}),
        reply("a4", "r1", "m2", text("Done.")),
    )
    assert transcript.kind == "claude-code"
    assert transcript.format == "anthropic"
    assert len(transcript.items) == 4
    first = json.loads(transcript.items[1].raw)
    assert [block["type"] for block in first["content"]] == ["thinking", "text", "tool_use"]
    assert first.keys() == {"role", "content"}
    assert transcript.items[1].derived
    assert [tuple(r.shown) for r in transcript.requests] == [(0,), (0, 1, 2)]
    assert transcript.requests[0].usage == Usage(
        input_tokens=50, output_tokens=9, cache_read_tokens=40, cache_write_tokens=7
    )
    assert transcript.session_id == "sess"
    assert transcript.model == "claude-x"
    assert transcript.passed_over == ()


def test_a_users_message_keeps_its_bytes() -> None:
    raw = '{"role" : "user","content":"caf\\u00e9 \u2028"}'
    data = line("user", "u1", None, "MESSAGE").replace('"MESSAGE"', raw)
    transcript = read(data, reply("a1", "u1", "m1", text("ok")))
    assert transcript.items[0].raw == raw.encode()
    assert not transcript.items[0].derived


def test_results_of_parallel_calls_are_one_message_wherever_their_lines_hang() -> None:
    transcript = read(
        user("u1", None, "read both"),
        reply("a1", "u1", "m1", call("t1")),
        reply("a2", "a1", "m1", call("t2")),
        reply("a3", "a2", "m1", call("t3")),
        user("r2", "a2", [result("t2")]),
        user("r1", "a1", [result("t1")]),
        user("r3", "a3", [result("t3")]),
        reply("a4", "r3", "m2", text("both read")),
        user("u2", "a4", "thanks"),
        reply("a5", "u2", "m3", text("welcome")),
    )
    shown = messages(transcript, transcript.requests[1].shown)
    assert [m["role"] for m in shown] == ["user", "assistant", "user"]
    assert [b["tool_use_id"] for b in shown[2]["content"]] == ["t2", "t1", "t3"]
    assert len(transcript.requests[2].shown) == 5
    assert len(transcript.requests) == 3


def test_a_result_that_comes_twice_does_not_end_up_twice_in_one_message() -> None:
    transcript = read(
        user("u1", None, "go"),
        reply("a1", "u1", "m1", call("t1")),
        user("r1", "a1", [result("t1")]),
        user("r1b", "a1", [result("t1")]),
        reply("a2", "r1b", "m2", text("done")),
    )
    shown = messages(transcript, transcript.requests[1].shown)
    assert [m["role"] for m in shown] == ["user", "assistant", "user"]
    assert len(shown[2]["content"]) == 1


def test_a_boundary_cuts_and_the_summary_is_an_ordinary_user_message() -> None:
    transcript = read(
        user("u1", None, "old question"),
        reply("a1", "u1", "m1", text("old answer")),
        line(
            "system", "b1", None, subtype="compact_boundary", logicalParentUuid="a1",
            compactMetadata={"trigger": "auto", "preTokens": 155000},
        ),
        user("s1", "b1", "This session is being continued.", isCompactSummary=True),
        user("u2", "s1", "new question"),
        reply("a2", "u2", "m2", text("new answer")),
    )  # fmt: skip
    assert transcript.compactions == 1
    assert [m["content"] for m in messages(transcript, transcript.requests[1].shown)] == [
        "This session is being continued.",
        "new question",
    ]
    assert len(transcript.items) == 5


def test_a_segment_the_compaction_preserved_stands_behind_its_anchor() -> None:
    segment = {"headUuid": "u2", "anchorUuid": "s1", "tailUuid": "a2"}
    transcript = read(
        user("u1", None, "one"),
        reply("a1", "u1", "m1", text("two")),
        user("u2", "a1", "three"),
        reply("a2", "u2", "m2", text("four")),
        line(
            "system", "b1", None, subtype="compact_boundary", logicalParentUuid="a2",
            compactMetadata={"trigger": "auto", "preservedSegment": segment},
        ),
        user("s1", "b1", "summary", isCompactSummary=True),
        user("u3", "s1", "five"),
        reply("a3", "u3", "m3", text("six")),
    )  # fmt: skip
    shown = messages(transcript, transcript.requests[-1].shown)
    assert [m["content"] for m in shown] == ["summary", "three", [text("four")], "five"]
    assert tuple(transcript.requests[1].shown) == (0, 1, 2)


def test_sidechains_meta_progress_and_system_lines_carry_the_chain_but_are_no_items() -> None:
    transcript = read(
        json.dumps({"type": "summary", "summary": "title", "leafUuid": "a1"}),
        json.dumps({"type": "file-history-snapshot", "messageId": "x", "snapshot": {}}),
        user("meta", None, "<caveat>", isMeta=True),
        line("system", "sys", "meta", subtype="informational", content="note"),
        user("u1", "sys", "hi"),
        line("progress", "p1", "u1", data={"type": "hook"}),
        user("side1", None, "subagent task", isSidechain=True),
        reply("side2", "side1", "ms", text("subagent answer"), isSidechain=True),
        reply("a1", "p1", "m1", text("hello")),
        reply("err", "a1", "e1", text("API Error"), model="<synthetic>", isApiErrorMessage=True),
        user("u2", "err", "again"),
        reply("a2", "u2", "m2", text("yes")),
    )
    assert [tuple(r.shown) for r in transcript.requests] == [(0,), (0, 1, 2)]
    assert [m["content"] for m in messages(transcript, (0, 2))] == ["hi", "again"]
    assert transcript.passed_over == ()


def test_a_subagents_own_file_is_read_as_its_conversation() -> None:
    transcript = read(
        user("u1", None, "task", isSidechain=True),
        reply("a1", "u1", "m1", text("done"), isSidechain=True),
    )
    assert len(transcript.items) == 2
    assert len(transcript.requests) == 1


def test_what_the_client_wrote_in_the_models_name_is_no_call() -> None:
    transcript = read(
        user("u1", None, "one"),
        reply("a1", "u1", "m1", text("No response requested."), model="<synthetic>"),
        user("u2", "a1", "two"),
        reply("a2", "u2", "m2", text("three")),
    )
    assert [tuple(r.shown) for r in transcript.requests] == [(0, 1, 2)]
    assert transcript.model == "claude-x"


def test_a_lost_parent_and_a_repeated_uuid_are_told() -> None:
    transcript = read(
        user("u1", None, "one"),
        user("u1", None, "one again"),
        user("u2", "gone", "two"),
        reply("a1", "u2", "m1", text("three")),
    )
    assert len(transcript.requests[0].shown) == 1
    assert any("line 2" in note for note in transcript.passed_over)
    assert any("'gone'" in note for note in transcript.passed_over)


def test_what_was_typed_while_the_agent_worked_is_the_users_message() -> None:
    def queued(uuid: str, parent: str, mode: str, prompt: Any) -> str:
        attachment = {"type": "queued_command", "prompt": prompt, "commandMode": mode}
        return line("attachment", uuid, parent, attachment=attachment)

    transcript = read(
        user("u1", None, "go"),
        reply("a1", "u1", "m1", call("c1")),
        user("u2", "a1", [result("c1")]),
        queued("q1", "u2", "prompt", "And call the queue Otter."),
        queued("q2", "q1", "task-notification", "<task-notification>done"),
        reply("a2", "q2", "m2", text("Otter it is.")),
    )
    shown = messages(transcript, transcript.requests[-1].shown)
    assert shown[-1] == {"role": "user", "content": "And call the queue Otter."}
    assert "task-notification" not in json.dumps(shown)
    assert transcript.items[-2].derived
