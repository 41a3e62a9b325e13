"""Every rule of the independent validator: one body that passes, one that breaks that rule alone.

The wordings and sources of the rules stand in `recollect.testing.provider_rules`.
"""

import copy
from typing import Any

import pytest

from recollect.testing.provider_rules import FORMAT_NAMES, violations

Body = dict[str, Any]


def said(*messages: Any, **more: Any) -> Body:
    return {**more, "messages": list(messages)}


def items(*given: Any, **more: Any) -> Body:
    return {**more, "input": list(given)}


# --- Anthropic ------------------------------------------------------------------------------------
def user(*blocks: Any) -> Body:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> Body:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str = "hello", **more: Any) -> Body:
    return {"type": "text", "text": words, **more}


def call(identity: str = "toolu_1", spelling: str = "tool_use") -> Body:
    return {"type": spelling, "id": identity, "name": "read", "input": {"path": "a.py"}}


def result(identity: str = "toolu_1", content: Any = "done") -> Body:
    return {"type": "tool_result", "tool_use_id": identity, "content": content}


def thinking(**more: Any) -> Body:
    return {"type": "thinking", "thinking": "hm", "signature": "EqQB", **more}


def search(identity: str = "srvtoolu_1") -> Body:
    return {"type": "server_tool_use", "id": identity, "name": "web_search", "input": {}}


def found(identity: str = "srvtoolu_1") -> Body:
    return {"type": "web_search_tool_result", "tool_use_id": identity, "content": []}


MARK: Body = {"cache_control": {"type": "ephemeral"}}
CLAUDE: Body = {"model": "us.anthropic.claude-sonnet-4-5-v1:0"}
DOCUMENT: Body = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "words"},
}
FOUND: Body = {"type": "search_result", "source": "s", "title": "t", "content": [text()]}
UPLOAD: Body = {"type": "container_upload", "file_id": "file_1"}
IMAGE: Body = {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}
REFERENCE: Body = {"type": "tool_reference", "tool_name": "read"}
COMPACTION: Body = {"type": "compaction", "content": "what was said"}
EMPTIES: tuple[Any, ...] = ("", [], None)
NOT_OBJECTS: tuple[Any, ...] = (None, "", '{"path": "a.py"}', [], 5)
NOT_TEXTS: tuple[Any, ...] = (None, {}, 5)
NO_CALLS: tuple[Any, ...] = ([], None)
HI = {"role": "user", "content": "hi"}
THINKING_ON = {"thinking": {"type": "enabled", "budget_tokens": 1024}}

SYSTEM_INSIDE = {"betas": ["per-turn-control-2026-03-05"]}
SYSTEM = {"role": "system", "content": [text()], "output_config": {"effort": "low"}}

ANTHROPIC_VALID: dict[str, Body] = {
    "one string": said(HI),
    "a call and its result": said(HI, assistant(text(), call()), user(result(), text())),
    "parallel calls, results in another order": said(
        HI, assistant(call("a"), call("b")), user(result("b"), result("a"))
    ),
    "a result without content": said(
        HI, assistant(call()), user({"type": "tool_result", "tool_use_id": "toolu_1"})
    ),
    "thinking kept before a call": said(
        HI, assistant(thinking(), call()), user(result()), **THINKING_ON
    ),
    "thinking without a signature, as other hosts send it": said(
        HI, assistant({"type": "thinking", "thinking": "hm"}, text()), HI, model="kimi-k3"
    ),
    "signed thinking whose text the provider omitted": said(
        HI, assistant(thinking(thinking=""), text()), HI, **CLAUDE
    ),
    "files and search results of the user": said(user(DOCUMENT, FOUND, UPLOAD, IMAGE)),
    "files and search results in a result": said(
        HI, assistant(call()), user(result(content=[DOCUMENT, FOUND, IMAGE, REFERENCE]))
    ),
    "a summary of the provider, and one that failed": said(
        HI, assistant(COMPACTION, {**COMPACTION, "content": None}, text()), HI
    ),
    "a mark that is null": said(user(text(cache_control=None))),
    "three marks and one of the whole request": said(user(*[text(**MARK)] * 3), **MARK),
    "thinking as the last block of an answer that is not the last": said(
        HI, assistant(thinking()), HI
    ),
    "a prefill": said(HI, {"role": "assistant", "content": "Sure:"}),
    "a prefill after thinking, thinking enabled": said(
        HI, assistant(thinking(), text()), **THINKING_ON
    ),
    "a server tool and its result": said(HI, assistant(search(), found(), text()), HI),
    "a paused server tool at the end": said(HI, assistant(text(), search())),
    "four cache marks": said(user(text(**MARK), text(**MARK), text(**MARK)), system=[text(**MARK)]),
    "system messages between the turns, under their beta": said(
        HI, SYSTEM, assistant(call()), user(result()), {**SYSTEM, "content": []}, **SYSTEM_INSIDE
    ),
    "an unknown block": said(user({"type": "hologram", "data": ""})),
    "an id used again, each answered": said(
        HI, assistant(call()), user(result()), assistant(call()), user(result())
    ),
}

ANTHROPIC_BROKEN: dict[str, list[tuple[str, Body]]] = {
    "messages-empty": [("messages", said()), ("messages", {})],
    "role-unknown": [("messages[1].role", said(HI, {**HI, "role": "system"}))],
    "first-not-user": [
        ("messages[0].role", said({"role": "assistant", "content": "hi"}, HI)),
        ("messages[0].role", said(SYSTEM, HI, **SYSTEM_INSIDE)),
    ],
    "system-not-behind-user": [
        ("messages[2].role", said(HI, assistant(text()), SYSTEM, HI, **SYSTEM_INSIDE))
    ],
    "roles-not-alternating": [("messages[1].role", said(HI, HI))],
    "content-empty": [
        *[("messages[0].content", said({"role": "user", "content": given})) for given in EMPTIES],
        ("messages[1].role", said(HI, {"role": "system", "content": []}, **SYSTEM_INSIDE)),
    ],
    "text-blank": [
        ("messages[0].content", said({"role": "user", "content": " \n"})),
        ("messages[0].content[1]", said(user(text(), text("")))),
        ("messages[0].content[1]", said(user(text(), text("\t ")))),
    ],
    "text-blank-in-result": [
        (
            "messages[2].content[0].content[0]",
            said(HI, assistant(call()), user(result(content=[text("")]))),
        )
    ],
    "block-in-wrong-role": [
        ("messages[0].content[0]", said(user(block))) for block in (call(), thinking())
    ]
    + [
        ("messages[1].content[0]", said(HI, assistant(block, text()), HI))
        for block in (DOCUMENT, FOUND, UPLOAD, IMAGE)
    ],
    "block-in-wrong-place": [
        (
            "messages[2].content[0].content[0]",
            said(HI, assistant(call()), user(result(content=[x]))),
        )
        for x in (call("b"), thinking(), result("b"), 5, {})
    ],
    "cache-mark-misplaced": [
        ("messages[1].content[0]", said(HI, assistant({**block, **mark}, text()), HI))
        for block in (
            thinking(),
            {"type": "redacted_thinking", "data": "E"},
            {"type": "fallback", "from": {}, "to": {}},
            {"type": "mcp_tool_listing", "mcp_server_name": "s", "tools": []},
        )
        for mark in (MARK, {"cache_control": None})
    ],
    "input-not-object": [
        (
            "messages[1].content[0]",
            said(HI, assistant({**call(), "input": given}), user(result())),
        )
        for given in NOT_OBJECTS
    ]
    + [
        ("messages[1].content[0]", said(HI, assistant({**search(), "input": "{}"}, found()), HI)),
    ],
    "tool-name-malformed": [
        ("messages[1].content[0]", said(HI, assistant({**call(), "name": name}), user(result())))
        for name in ("", None, "db.query", "x" * 129, "<function=read>")
    ],
    "result-malformed": [
        ("messages[2].content[0]", said(HI, assistant(call()), user(result(content=content))))
        for content in NOT_TEXTS
    ],
    "text-malformed": [
        ("messages[0].content[0]", said(user({"type": "text", **words}, text())))
        for words in ({"text": None}, {"text": 5})
    ],
    "compaction-empty": [
        ("messages[1].content[0]", said(HI, assistant({**COMPACTION, "content": ""}, text()), HI))
    ],
    "call-unanswered": [
        ("messages[1].content[0]", said(HI, assistant(call()))),
        ("messages[1].content[0]", said(HI, assistant(call()), HI)),
        ("messages[1].content[1]", said(HI, assistant(call("a"), call("b")), user(result("a")))),
        *[
            ("messages[1].content[0]", said(HI, assistant(call(spelling=spelling)), HI))
            for spelling in ("toolUse", "toolCall", "functionCall")
        ],
    ],
    "result-orphan": [
        ("messages[0].content[0]", said(user(result()))),
        ("messages[2].content[1]", said(HI, assistant(call()), user(result(), result("x")))),
    ],
    "result-duplicate": [
        ("messages[2].content[1]", said(HI, assistant(call()), user(result(), result())))
    ],
    "result-not-first": [
        ("messages[2].content[1]", said(HI, assistant(call()), user(text(), result())))
    ],
    "call-id-duplicate": [
        ("messages[1].content[1]", said(HI, assistant(call(), call()), user(result())))
    ],
    "call-id-malformed": [
        ("messages[1].content[0]", said(HI, assistant(call("edit:22")), user(result("edit:22"))))
    ],
    "thinking-malformed": [
        ("messages[1].content[0]", said(HI, assistant(block, text()), HI))
        for block in (
            {"type": "redacted_thinking"},
            {"type": "thinking", "signature": "EqQB"},
            thinking(thinking=None),
        )
    ]
    + [
        ("messages[1].content[0]", said(HI, assistant(block, text()), HI, **CLAUDE))
        for block in (
            {"type": "thinking", "thinking": "hm"},
            *(thinking(signature=given) for given in ("", None, 5)),
        )
    ],
    "final-thinking-last": [
        ("messages[1].content[1]", said(HI, assistant(text(), thinking()), **THINKING_ON))
    ],
    "final-thinking-disabled": [
        ("messages[1].content[0]", said(HI, assistant(thinking(), text())))
    ],
    "final-trailing-whitespace": [
        ("messages[1].content", said(HI, {"role": "assistant", "content": "Sure: "})),
        ("messages[1].content[0]", said(HI, assistant(text("Sure:\n")))),
    ],
    "server-result-orphan": [("messages[1].content[0]", said(HI, assistant(found(), text()), HI))],
    "server-call-unanswered": [
        ("messages[1].content[0]", said(HI, assistant(search(), text()), HI))
    ],
    "server-call-duplicate": [
        ("messages[1].content[1]", said(HI, assistant(search(), search(), found(), text()), HI))
    ],
    "server-result-duplicate": [
        ("messages[1].content[2]", said(HI, assistant(search(), found(), found(), text()), HI)),
        (
            "messages[3].content[0]",
            said(HI, assistant(search(), found()), HI, assistant(found(), text()), HI),
        ),
    ],
    "caller-missing": [
        (
            "messages[1].content[0]",
            said(
                HI,
                assistant({**call("a"), "caller": {"type": "x", "tool_id": "srv_9"}}),
                user(result("a")),
            ),
        )
    ],
    "cache-marks-over-four": [
        ("messages", said(user(*[text(**MARK)] * 4), system=[text(**MARK)])),
        ("messages", said(user(*[text(**MARK)] * 4), **MARK)),
        (
            "messages",
            said(HI, assistant(call()), user(*[{**result(content=[text(**MARK)] * 4), **MARK}])),
        ),
    ],
}

# --- OpenAI Chat Completions ----------------------------------------------------------------------
MODEL_SAYS = {"role": "assistant", "content": "fine"}


def asks(*ids: str, **more: Any) -> Body:
    calls = [
        {"id": i, "type": "function", "function": {"name": "read", "arguments": "{}"}} for i in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


CALL: Body = {"id": "a", "type": "function", "function": {"name": "x", "arguments": "{}"}}


def tool(identity: str = "call_1") -> Body:
    return {"role": "tool", "tool_call_id": identity, "content": "done"}


LEGACY = {
    "role": "assistant",
    "content": None,
    "function_call": {"name": "read", "arguments": "{}"},
}
FUNCTION = {"role": "function", "name": "read", "content": "done"}

CHAT_VALID: dict[str, Body] = {
    "two users in a row, a system message between": said(
        HI, HI, {"role": "system", "content": ""}, MODEL_SAYS
    ),
    "calls answered in another order": said(asks("a", "b"), tool("b"), tool("a"), HI),
    "no content but a refusal": said(HI, {"role": "assistant", "refusal": "no"}),
    "the legacy pair": said(HI, LEGACY, FUNCTION, MODEL_SAYS),
    "a custom tool": said(
        asks("a", tool_calls=[{"id": "a", "type": "custom", "custom": {"name": "x", "input": ""}}]),
        tool("a"),
    ),
    "an id used again, each answered": said(asks("a"), tool("a"), asks("a"), tool("a")),
}

CHAT_BROKEN: dict[str, list[tuple[str, Body]]] = {
    "messages-empty": [("messages", said())],
    "role-unknown": [("messages[0].role", said({**HI, "role": "critic"}))],
    "content-missing": [
        ("messages[0].content", said({"role": "user", "content": None})),
        ("messages[0].content", said({"role": "assistant"})),
    ],
    "content-empty-list": [("messages[0].content", said({"role": "user", "content": []}))],
    "tool-calls-empty": [
        ("messages[0].tool_calls", said({**MODEL_SAYS, "tool_calls": calls})) for calls in NO_CALLS
    ],
    "arguments-not-string": [
        (
            "messages[0].tool_calls[0].function",
            said(
                asks(
                    "a",
                    tool_calls=[{**CALL, "function": {"name": "x", "arguments": {}}}],
                ),
                tool("a"),
            ),
        ),
        (
            "messages[0].function_call",
            said({**LEGACY, "function_call": {"name": "read", "arguments": {}}}, FUNCTION),
        ),
    ],
    "call-id-missing": [
        (
            "messages[0].tool_calls[0]",
            said(
                asks("", tool_calls=[{**CALL, "id": ""}]),
                tool(""),
            ),
        )
    ],
    "call-type-missing": [
        ("messages[0].tool_calls[0]", said(asks("a", tool_calls=[given]), *answers))
        for given, answers in (
            ({key: CALL[key] for key in ("id", "function")}, [tool("a")]),
            ({**CALL, "type": "custom"}, [tool("a")]),
            (None, []),
        )
    ],
    "text-malformed": [
        ("messages[0].content[0]", said({"role": "user", "content": [part]}))
        for part in ({"type": "text"}, {"type": "text", "text": None}, {}, None)
    ],
    "call-id-duplicate": [("messages[0].tool_calls[1]", said(asks("a", "a"), tool("a")))],
    "call-unanswered": [
        ("messages[0].tool_calls[0]", said(asks("a"))),
        ("messages[0].tool_calls[1]", said(asks("a", "b"), tool("a"), HI)),
    ],
    "result-orphan": [
        ("messages[1]", said(HI, tool())),
        ("messages[3]", said(asks("a"), tool("a"), HI, tool("a"))),
    ],
    "result-duplicate": [("messages[2]", said(asks("a"), tool("a"), tool("a")))],
    "function-call-unanswered": [
        ("messages[0].function_call", said(LEGACY, HI)),
        ("messages[0].function_call", said(LEGACY)),
    ],
    "function-orphan": [("messages[1]", said(HI, FUNCTION))],
}

# --- OpenAI Responses -----------------------------------------------------------------------------


def function_call(identity: str = "call_1", **more: Any) -> Body:
    return {"type": "function_call", "call_id": identity, "name": "x", "arguments": "{}", **more}


def output(identity: str = "call_1", kind: str = "function_call") -> Body:
    given: Any = {"shell_call": [], "computer_call": {}}.get(kind, "done")
    return {"type": f"{kind}_output", "call_id": identity, "output": given}


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}

RESPONSES_VALID: dict[str, Body] = {
    "a plain string": {"input": "hi"},
    "a call, a message, then its output": items(HI, function_call(), MODEL_SAYS, output()),
    "every kind of call": {
        "input": [
            item
            for kind in ("shell_call", "apply_patch_call", "computer_call", "local_shell_call")
            for item in ({"type": kind, "call_id": kind}, output(kind, kind))
        ]
        + [
            {"type": "custom_tool_call", "call_id": "c", "input": ""},
            output("c", "custom_tool_call"),
        ]
    },
    "Codex's local shell": items({"type": "local_shell_call", "call_id": "a"}, output("a")),
    "a local shell's output by id": items(
        {"type": "local_shell_call", "id": "lsh_1", "call_id": "a"},
        {"type": "local_shell_call_output", "id": "a", "output": "{}"},
    ),
    "a local shell call without a call id": items(
        {"type": "local_shell_call", "id": "lsh_1"}, output("lsh_1")
    ),
    "a patch answered by its status, a search by its tools, a search of the server": items(
        {"type": "apply_patch_call", "call_id": "p"},
        {"type": "apply_patch_call_output", "call_id": "p", "status": "completed"},
        {"type": "tool_search_call", "call_id": "s"},
        {"type": "tool_search_output", "call_id": "s", "tools": []},
        {"type": "tool_search_call", "call_id": None},
    ),
    "reasoning and its items": items(HI, THOUGHT, MODEL_SAYS),
    "reasoning before a search": items(HI, THOUGHT, {"type": "web_search_call", "id": "ws_1"}),
    "an output whose call the server holds": items(output(), previous_response_id="resp_1"),
    "an output whose call a conversation holds": items(output(), conversation="conv_1"),
    "an output behind a reference": items({"type": "item_reference", "id": "fc_1"}, output()),
    "nothing new": {"previous_response_id": "resp_1"},
    "files of the user, a refusal of the model": items(
        {"role": "user", "content": [{"type": "input_file", "file_id": "f"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    ),
}

RESPONSES_BROKEN: dict[str, list[tuple[str, Body]]] = {
    "input-empty": [("input", items()), ("input", {"input": ""}), ("input", {})],
    "role-unknown": [("input[0]", items({**HI, "role": "tool"}))],
    "content-missing": [("input[0]", items({"role": "assistant", "content": None}))],
    "arguments-not-string": [
        ("input[0]", items(function_call(arguments={}), output())),
        (
            "input[0]",
            items(
                {"type": "custom_tool_call", "call_id": "a", "input": {}},
                output("a", "custom_tool_call"),
            ),
        ),
    ],
    "output-malformed": [
        ("input[1]", items(function_call(), {**output(), "output": given})) for given in NOT_TEXTS
    ]
    + [
        ("input[1]", items({"type": kind, "call_id": "a"}, {**output("a", kind), "output": given}))
        for kind, given in (("shell_call", "done"), ("computer_call", None))
    ],
    "tool-name-malformed": [
        ("input[0]", items(function_call(name=name), output())) for name in ("", None, "db.query")
    ],
    "summary-missing": [
        ("input[0]", items({"type": "reasoning", "id": "rs_1", **summary}, MODEL_SAYS))
        for summary in ({}, {"summary": None})
    ],
    "content-type-wrong": [
        ("input[0].content[0]", items({"role": role, "content": [{"type": kind, "text": "x"}]}))
        for role, kind in (
            ("assistant", "input_text"),
            ("assistant", "text"),
            ("assistant", "input_file"),
            ("user", "output_text"),
            ("developer", "text"),
        )
    ],
    "text-malformed": [
        ("input[0].content[0]", items({"role": "user", "content": [part]}))
        for part in ({"type": "input_text"}, {"type": "input_text", "text": None}, None)
    ],
    "call-id-missing": [("input[0]", items(function_call("")))],
    "call-id-reused": [
        ("input[1]", items(function_call(), function_call(), output())),
        ("input[2]", items(function_call(), output(), function_call(), output())),
        (
            "input[2]",
            items(
                function_call(),
                output(),
                {"type": "custom_tool_call", "call_id": "call_1", "input": ""},
                output(kind="custom_tool_call"),
            ),
        ),
    ],
    "call-unanswered": [
        ("input[0]", items(function_call())),
        ("input[0]", items(function_call(), HI, previous_response_id="resp_1")),
    ],
    "result-orphan": [
        ("input[0]", items(output(), MODEL_SAYS)),
        ("input[0]", items(output(), function_call(), output())),
        ("input[0]", items(output("a", "custom_tool_call"))),
    ],
    "result-duplicate": [
        ("input[2]", items(function_call(), output(), output())),
        ("input[1]", items(output(), output(), conversation="c")),
    ],
    "reasoning-without-item": [
        ("input[1]", items(HI, THOUGHT)),
        ("input[0]", items(THOUGHT, HI)),
        ("input[1]", items(function_call(), THOUGHT, output())),
    ],
    "item-id-duplicate": [("input[2]", items(THOUGHT, MODEL_SAYS, THOUGHT, MODEL_SAYS))],
    "provider-result-orphan": [
        ("input[1]", items(HI, {"type": "program_output", "call_id": "p1", "result": ""})),
        ("input[1]", items(HI, {"type": "multi_agent_call_output", "call_id": "p1"})),
        ("input[1]", items(HI, {"type": "mcp_approval_response"})),
    ],
    "caller-missing": [
        (
            "input[1]",
            items(HI, function_call(caller={"type": "program", "caller_id": "p1"}), output()),
        )
    ],
}

# --- pi -------------------------------------------------------------------------------------------


def pi_answer(*blocks: Any, stop: str = "stop") -> Body:
    return {"role": "assistant", "content": list(blocks), "stopReason": stop}


def pi_call(identity: str = "t1") -> Body:
    return {"type": "toolCall", "id": identity, "name": "read", "arguments": {}}


def pi_result(identity: str = "t1") -> Body:
    return {"role": "toolResult", "toolCallId": identity, "toolName": "read", "content": [text()]}


PI_VALID: dict[str, Body] = {
    "a call and its result": said(HI, pi_answer(pi_call()), pi_result(), HI),
    "results in another order": said(
        pi_answer(pi_call("a"), pi_call("b")), pi_result("b"), pi_result("a")
    ),
    "its other roles": said(
        {"role": "compactionSummary", "summary": "s"},
        {"role": "branchSummary", "summary": "s"},
        {"role": "bashExecution", "command": "ls", "output": ""},
        {"role": "custom", "content": "note"},
    ),
    "thinking alone": said(HI, pi_answer({"type": "thinking", "thinking": "hm"})),
    "an id used again, each answered": said(
        pi_answer(pi_call()), pi_result(), pi_answer(pi_call()), pi_result()
    ),
}

PI_BROKEN: dict[str, list[tuple[str, Body]]] = {
    "messages-empty": [("messages", said())],
    "role-unknown": [("messages[0].role", said({**HI, "role": "hookMessage"}))],
    "assistant-aborted": [
        ("messages[1]", said(HI, pi_answer(text(), stop=stop))) for stop in ("error", "aborted")
    ],
    "assistant-empty": [
        ("messages[0]", said(pi_answer(*blocks)))
        for blocks in ([], [text(" ")], [{"type": "thinking", "thinking": ""}])
    ],
    "content-not-list": [
        ("messages[1]", said(HI, {**pi_answer(), "content": "fine"})),
        ("messages[1]", said(pi_answer(pi_call()), {**pi_result(), "content": "done"})),
    ],
    "input-not-object": [
        (
            "messages[0].content[0]",
            said(pi_answer({**pi_call(), "arguments": given}), pi_result()),
        )
        for given in NOT_OBJECTS
    ],
    "text-malformed": [
        ("messages[0].content[1]", said({"role": "user", "content": [text(), {"type": "text"}]}))
    ],
    "call-id-duplicate": [
        ("messages[0].content[1]", said(pi_answer(pi_call(), pi_call()), pi_result()))
    ],
    "call-unanswered": [
        ("messages[0].content[0]", said(pi_answer(pi_call()))),
        ("messages[0].content[1]", said(pi_answer(pi_call("a"), pi_call("b")), pi_result("a"), HI)),
    ],
    "result-orphan": [
        ("messages[0]", said(pi_result())),
        ("messages[3]", said(pi_answer(pi_call()), pi_result(), HI, pi_result())),
    ],
    "result-duplicate": [("messages[2]", said(pi_answer(pi_call()), pi_result(), pi_result()))],
}

VALID = {
    "anthropic": ANTHROPIC_VALID,
    "openai-chat": CHAT_VALID,
    "openai-responses": RESPONSES_VALID,
    "pi": PI_VALID,
}
BROKEN = {
    "anthropic": ANTHROPIC_BROKEN,
    "openai-chat": CHAT_BROKEN,
    "openai-responses": RESPONSES_BROKEN,
    "pi": PI_BROKEN,
}


@pytest.mark.parametrize(
    ("format_name", "case"), [(name, case) for name, cases in VALID.items() for case in cases]
)
def test_a_valid_body_passes(format_name: str, case: str) -> None:
    assert violations(format_name, VALID[format_name][case]) == []


@pytest.mark.parametrize(
    ("format_name", "rule", "index"),
    [
        (name, rule, index)
        for name, rules in BROKEN.items()
        for rule, cases in rules.items()
        for index in range(len(cases))
    ],
)
def test_a_broken_rule_is_named_with_its_place(format_name: str, rule: str, index: int) -> None:
    where, body = BROKEN[format_name][rule][index]
    before = copy.deepcopy(body)
    reported = violations(format_name, body)
    assert [(item.rule, item.where) for item in reported] == [(rule, where)]
    assert reported[0].sentence.endswith(".")
    assert body == before


@pytest.mark.parametrize("format_name", sorted({*FORMAT_NAMES} - {"openai-responses"}))
def test_an_id_used_again_is_refused_only_on_request(format_name: str) -> None:
    body = VALID[format_name]["an id used again, each answered"]
    assert violations(format_name, body) == []
    strict = violations(format_name, body, ids_unique_across_messages=True)
    assert [item.rule for item in strict] == ["call-id-reused"]


def test_a_displaced_result_breaks_both_directions() -> None:
    body = said(HI, assistant(call()), HI, MODEL_SAYS, user(result()))
    assert {item.rule for item in violations("anthropic", body)} == {
        "call-unanswered",
        "result-orphan",
    }


def test_betas_in_the_headers_count_as_those_in_the_body() -> None:
    body = said(HI, SYSTEM)
    assert [item.rule for item in violations("anthropic", body)] == ["role-unknown"]
    assert violations("anthropic", body, betas=SYSTEM_INSIDE["betas"]) == []


def test_an_unknown_format_is_an_error() -> None:
    with pytest.raises(ValueError, match="openai-chat"):
        violations("gemini", {})
