"""Forms that providers refuse are repaired and reported, and everything else stays as it came."""

import asyncio
import json
from typing import Any

import pytest

from recollect.core.engine import Context, Engine, Session
from recollect.core.values.model import FormatName
from recollect.core.values.reason import Cause
from recollect.system.config import build
from recollect.testing.provider_rules import violations

Body = dict[str, Any]
HI = {"role": "user", "content": "hi"}
MARK: Body = {"cache_control": {"type": "ephemeral"}}
SIGNED: Body = {"type": "thinking", "thinking": "hm", "signature": "S=="}
WORDS: Body = {"type": "text", "text": "fine"}
PDF: Body = {"type": "document", "source": {"type": "file", "file_id": "f"}}
HIT: Body = {"type": "search_result", "source": "s", "title": "t", "content": [WORDS]}
GONE: list[Any] = []


def prepare(
    name: FormatName,
    body: Body | bytes,
    session: Session | None = None,
    engine: Engine | None = None,
) -> Context:
    engine = engine or Engine(build({"window_tokens": 200_000}))
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return asyncio.run(engine.prepare(session or Session("s"), raw, format=name))


def causes(context: Context) -> set[Cause]:
    return {repair.reason.cause for repair in context.report.view.repairs}


def sent(context: Context) -> list[Any]:
    body = json.loads(context.request)
    messages = body.get("messages", body.get("input"))
    assert isinstance(messages, list)
    return messages


def answer(*blocks: Any, model: str = "claude-opus-5", **more: Any) -> Body:
    return {"model": model, "messages": [HI, {"role": "assistant", "content": list(blocks)}, HI]}


def called(**fields: Any) -> Body:
    call = {"type": "tool_use", "id": "a", "name": "read", "input": {}, **fields}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "done"}
    answered = {"role": "user", "content": [result]}
    return {"messages": [HI, {"role": "assistant", "content": [call]}, answered]}


def resulted(content: Any) -> Body:
    body = called()
    body["messages"][2]["content"][0]["content"] = content
    return body


ANSWERS: list[tuple[str, list[Any], list[Any], Cause]] = [
    ("a mark", [{**SIGNED, **MARK}, WORDS], [SIGNED, WORDS], Cause.FIELDS_REWRITTEN),
    (
        "a mark that is null",
        [{**SIGNED, "cache_control": None}, WORDS],
        [SIGNED, WORDS],
        Cause.FIELDS_REWRITTEN,
    ),
    (
        "a mark on sealed thinking",
        [{"type": "redacted_thinking", "data": "E", **MARK}, WORDS],
        [{"type": "redacted_thinking", "data": "E"}, WORDS],
        Cause.FIELDS_REWRITTEN,
    ),
    *(
        (
            f"the signature {signature!r}",
            [{**SIGNED, "signature": signature}, WORDS],
            [WORDS],
            Cause.THINKING_UNSIGNED,
        )
        for signature in (None, "", 5)
    ),
    (
        "no signature",
        [{"type": "thinking", "thinking": "hm"}, WORDS],
        [WORDS],
        Cause.THINKING_UNSIGNED,
    ),
    ("no text", [{**SIGNED, "thinking": None}, WORDS], [WORDS], Cause.THINKING_UNSIGNED),
    ("no data", [{"type": "redacted_thinking"}, WORDS], [WORDS], Cause.THINKING_UNSIGNED),
    ("a document", [PDF, WORDS], [WORDS], Cause.MISPLACED_PART),
    ("a search result", [HIT, WORDS], [WORDS], Cause.MISPLACED_PART),
    (
        "an upload",
        [{"type": "container_upload", "file_id": "f"}, WORDS],
        [WORDS],
        Cause.MISPLACED_PART,
    ),
    (
        "an empty summary",
        [{"type": "compaction", "content": ""}, WORDS],
        [WORDS],
        Cause.PART_EMPTY,
    ),
    ("a text that is null", [{"type": "text", "text": None}, WORDS], [WORDS], Cause.PART_EMPTY),
    ("a number", [5, WORDS], [WORDS], Cause.PART_EMPTY),
    ("a block without a type", [{"text": "x"}, WORDS], [WORDS], Cause.PART_EMPTY),
]


@pytest.mark.parametrize(("blocks", "kept", "cause"), [row[1:] for row in ANSWERS],
                         ids=[row[0] for row in ANSWERS])  # fmt: skip
def test_an_answer_that_anthropic_refuses(blocks: list[Any], kept: list[Any], cause: Cause) -> None:
    context = prepare("anthropic", answer(*blocks))
    assert sent(context) == [HI, {"role": "assistant", "content": kept}, HI]
    assert cause in causes(context)
    again = prepare("anthropic", context.request)
    assert again.request == context.request
    assert not causes(again)


@pytest.mark.parametrize("signature", [{}, {"signature": None}, {"signature": ""}])
def test_thinking_of_another_model_is_left_alone(signature: Body) -> None:
    """Servers of other models send none or their own form, and some require it back."""
    thought = {"type": "thinking", "thinking": "hm", **signature}
    body = answer(thought, WORDS, model="kimi-k3")
    assert prepare("anthropic", body).request == json.dumps(body).encode()


def test_a_session_that_changes_its_model_is_repaired_from_then_on() -> None:
    engine, session = Engine(build({"window_tokens": 200_000})), Session("s")
    thought = {"type": "thinking", "thinking": "hm"}
    before, after = answer(thought, WORDS, model="kimi-k3"), answer(thought, WORDS)
    assert sent(prepare("anthropic", before, session, engine)) == before["messages"]
    assert sent(prepare("anthropic", after, session, engine))[1]["content"] == [WORDS]
    assert sent(prepare("anthropic", before, session, engine)) == before["messages"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"input": None}, {"input": {}}),
        ({"input": ""}, {"input": {}}),
        ({"input": '{"path": "a.py"}'}, {"input": {"path": "a.py"}}),
        ({"input": "{broken"}, {"input": {"INVALID_JSON": "{broken"}}),
        ({"input": ["a"]}, {"input": {"INVALID_JSON": '["a"]'}}),
        ({"input": '"a"'}, {"input": {"INVALID_JSON": '"a"'}}),
        ({"name": "db.query"}, {"name": "db_query"}),
        ({"name": "x" * 200}, {"name": "unreadable_name"}),
    ],
)
def test_a_call_keeps_its_arguments_in_the_form_of_an_object(given: Body, kept: Body) -> None:
    context = prepare("anthropic", called(**given))
    call = sent(context)[1]["content"][0]
    assert {name: call[name] for name in kept} == kept
    assert causes(context) == {Cause.FIELDS_REWRITTEN}
    (repair,) = context.report.view.repairs
    assert str(repair.reason) == (
        f"rewritten in the form that the provider requires: {next(iter(given))}"
    )
    assert violations("anthropic", json.loads(context.request)) == []


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (None, ""),
        ({"rows": 2}, '{"rows":2}'),
        ([WORDS, 5, {}, SIGNED], [WORDS]),
        ([{"type": "text", "text": None}], ""),
        ([WORDS, PDF, HIT], [WORDS, PDF, HIT]),
    ],
)
def test_a_result_keeps_what_the_provider_accepts(content: Any, kept: Any) -> None:
    context = prepare("anthropic", resulted(content))
    assert sent(context)[2]["content"][0]["content"] == kept
    assert bool(causes(context)) == (content != kept)


def marked(*places: int, count: int = 8, **more: Any) -> Body:
    messages: list[Any] = []
    for place in range(count):
        block = {"type": "text", "text": f"message {place}", **(MARK if place in places else {})}
        messages.append({"role": ("user", "assistant")[place % 2], "content": [block]})
    return {"messages": messages[: count - 1 + count % 2], **more}


def marks_of(messages: list[Any]) -> list[int]:
    blocks = [message["content"][0] for message in messages]
    return [place for place, block in enumerate(blocks) if "cache_control" in block]


CACHED = [{"type": "text", "text": "Be terse.", **MARK}]


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (marked(0, 1, 2, 3), [0, 1, 2, 3]),
        (marked(0, 1, 2, 3, 4), [1, 2, 3, 4]),
        (marked(0, 1, 2, 3, 4, 5, 6), [3, 4, 5, 6]),
        (marked(0, 1, 2, 3, system=CACHED), [1, 2, 3]),
        (marked(0, 1, 2, system=CACHED), [0, 1, 2]),
        (marked(1, 2, 3, **MARK, system=CACHED), [2, 3]),
        (
            marked(0, 6, tools=[{"name": f"t{n}", "input_schema": {}, **MARK} for n in range(3)]),
            [6],
        ),
        (marked(0, 6, system=CACHED * 4), []),
    ],
)
def test_the_newest_four_marks_stay(body: Body, kept: list[int]) -> None:
    context = prepare("anthropic", body)
    assert marks_of(sent(context)) == kept
    assert violations("anthropic", json.loads(context.request)) == []
    assert (Cause.MARKS_OVER in causes(context)) == (marks_of(body["messages"]) != kept)


def test_marks_are_counted_in_results_and_anew_in_every_request() -> None:
    """Also after a request whose view the next one extends."""
    engine, session = Engine(build({"window_tokens": 200_000})), Session("s")
    body = resulted([{**WORDS, **MARK}] * 3)
    body["messages"][0] = {"role": "user", "content": [{**WORDS, **MARK}]}
    assert sent(prepare("anthropic", body, session, engine)) == body["messages"]
    more = [
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": [{**WORDS, **MARK}]},
    ]
    context = prepare("anthropic", {"messages": body["messages"] + more}, session, engine)
    assert sent(context)[0] == {"role": "user", "content": [WORDS]}
    assert context.request.count(b"cache_control") == 4
    without = [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    again = prepare("anthropic", {"messages": body["messages"] + without}, session, engine)
    assert sent(again)[0] == body["messages"][0], "the mark is back once there is room for it"


def call_item(call_id: str, kind: str = "function_call", **more: Any) -> Body:
    given = {"name": "f", "arguments": "{}", "input": ""}
    return {"type": kind, "call_id": call_id, **given, **more}


def output_item(call_id: str, kind: str = "function_call", output: Any = "done") -> Body:
    return {"type": f"{kind}_output", "call_id": call_id, "output": output}


CUSTOM = "custom_tool_call"
PAIRS: list[tuple[str, list[Any], list[str]]] = [
    (
        "once each",
        [call_item("a"), output_item("a"), call_item("b"), output_item("b")],
        ["a", "a", "b", "b"],
    ),
    (
        "twice",
        [call_item("a"), output_item("a"), call_item("a", arguments="[]"), output_item("a")],
        ["a", "a", "a_2", "a_2"],
    ),
    (
        "three times, a later call has the new id",
        [
            *(item for n in range(3) for item in (call_item("a", x=n), output_item("a"))),
            call_item("a_2"),
            output_item("a_2"),
        ],
        ["a", "a", "a_2", "a_2", "a_3", "a_3", "a_2_2", "a_2_2"],
    ),
    (
        "another kind of call",
        [call_item("a"), output_item("a"), call_item("a", CUSTOM), output_item("a", CUSTOM)],
        ["a", "a", "a_2", "a_2"],
    ),
    (
        "a shell answered as Codex does",
        [
            call_item("a"),
            output_item("a"),
            {"type": "local_shell_call", "call_id": "a", "action": {"type": "exec"}},
            output_item("a"),
        ],
        ["a", "a", "a_2", "a_2"],
    ),
    (
        "two kinds that wait with one id",
        [
            call_item("a"),
            {"type": "local_shell_call", "call_id": "a", "action": {"type": "exec"}},
            output_item("a"),
            output_item("a"),
        ],
        ["a", "a_2", "a", "a_2"],
    ),
    (
        "ids with a colon, outputs late",
        [
            call_item("f:0"),
            output_item("f:0"),
            call_item("f:0", arguments="[1]"),
            call_item("f:1"),
            output_item("f:1"),
            output_item("f:0"),
        ],
        ["f:0", "f:0", "f:0_2", "f:1", "f:1", "f:0_2"],
    ),
]


@pytest.mark.parametrize(("items", "ids"), [row[1:] for row in PAIRS], ids=[r[0] for r in PAIRS])
def test_a_call_id_is_used_once_in_a_request(items: list[Any], ids: list[str]) -> None:
    context = prepare("openai-responses", {"input": [HI, *items]})
    assert [item["call_id"] for item in sent(context)[1:]] == ids
    assert violations("openai-responses", json.loads(context.request)) == []
    assert (Cause.CALL_ID in causes(context)) == (len({*ids}) > len({i["call_id"] for i in items}))


@pytest.mark.parametrize(
    ("came", "kept"),
    [
        (
            {"role": "assistant", "content": [{"type": "input_text", "text": "x"}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
        ),
        (
            {"role": "developer", "content": [{"type": "text", "text": "x"}]},
            {"role": "developer", "content": [{"type": "input_text", "text": "x"}]},
        ),
        (
            {"role": "user", "content": [{"type": "output_text", "text": "x"}, {"type": "text"}]},
            {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
        ),
        (
            {"role": "assistant", "content": [{"type": "input_file", "file_id": "f"}, "x"]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
        ),
        ({"type": "reasoning", "id": "r"}, {"type": "reasoning", "id": "r", "summary": []}),
    ],
)
def test_items_that_the_responses_api_refuses(came: Body, kept: Body) -> None:
    items = [HI, came, {"role": "assistant", "content": "ok"}, HI]
    context = prepare("openai-responses", {"input": items})
    assert sent(context)[1] in (kept, {**kept, "role": "system"})
    assert causes(context)


@pytest.mark.parametrize("kind", ["shell_call", "computer_call"])
def test_an_output_in_no_known_form_goes_with_its_call(kind: str) -> None:
    """No text can stand for a screenshot or for the output of a shell."""
    call = {"type": kind, "call_id": "a", "action": {}, "pending_safety_checks": []}
    context = prepare("openai-responses", {"input": [HI, call, output_item("a", kind, None), HI]})
    assert sent(context) == [HI, HI]


@pytest.mark.parametrize(
    ("calls", "kept"),
    [
        (None, None),
        ([], None),
        ([None], None),
        ([{"id": "a", "function": {"name": "f", "arguments": "{}"}}], ["function"]),
        ([{"id": "a", "custom": {"name": "f", "input": ""}}], ["custom"]),
        ([{"id": "a", "type": None, "function": {"name": "f", "arguments": {}}}, 5], ["function"]),
    ],
)
def test_calls_of_a_chat(calls: Any, kept: list[str] | None) -> None:
    asked = {"role": "assistant", "content": "fine", "tool_calls": calls}
    answers = [{"role": "tool", "tool_call_id": "a", "content": "done"}] if kept else []
    context = prepare("openai-chat", {"messages": [HI, asked, *answers, HI]})
    made = sent(context)[1].get("tool_calls")
    assert (None if made is None else [call["type"] for call in made]) == kept
    assert violations("openai-chat", json.loads(context.request)) == []


@pytest.mark.parametrize("arguments", [None, "", "{}", [], "{broken", 5])
def test_calls_and_contents_of_pi(arguments: Any) -> None:
    call = {"type": "toolCall", "id": "a", "name": "f", "arguments": arguments}
    messages = [
        HI,
        {"role": "assistant", "content": [call], "stopReason": "toolUse"},
        {"role": "toolResult", "toolCallId": "a", "toolName": "f", "content": "done"},
        {"role": "assistant", "content": "fine", "stopReason": "stop"},
        {**HI, "content": [{"type": "text"}, WORDS]},
    ]
    out = sent(prepare("pi", {"messages": messages}))
    assert isinstance(out[1]["content"][0]["arguments"], dict)
    assert [message["content"] for message in out[2:]] == [
        [{"type": "text", "text": "done"}],
        [WORDS],
        [WORDS],
    ]
