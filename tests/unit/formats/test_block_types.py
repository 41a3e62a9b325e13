"""Every type of the table stands in a valid conversation that passes as it came."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conversations.strategies import valid_bodies
from tests.harness.faithful import unfaithful
from tests.sizes import at_size
from tests.unit.compaction.histories import entries_of

from recollect.core.compaction.cut import bound_spans
from recollect.core.engine import Engine, Session
from recollect.core.formats.anthropic import BLOCK_TYPES as ANTHROPIC_TYPES
from recollect.core.formats.blocks import BlockType, call_type, other_types, result_type
from recollect.core.formats.codec import CODECS
from recollect.core.formats.openai_responses import BLOCK_TYPES as RESPONSES_TYPES
from recollect.core.values.model import FormatName
from recollect.system.config import build
from recollect.testing.provider_rules import violations

LARGE = build({"window_tokens": 5_000_000})
SMALL = build({"window_tokens": 4_000})
CHAT_TYPES = (
    *other_types("user", "text", "image_url", "input_audio", "file"),
    *other_types("assistant", "refusal", "audio"),
    call_type("function", "client", "id"),
    call_type("custom", "client", "id"),
    result_type("tool", "client", ("function", "custom"), "tool_call_id", "tool"),
    call_type("function_call", "client", "name"),
    result_type("function", "client", ("function_call",), "name", "tool"),
)
TYPES: dict[FormatName, tuple[BlockType, ...]] = {
    "openai-responses": RESPONSES_TYPES,
    "anthropic": ANTHROPIC_TYPES,
    "openai-chat": CHAT_TYPES,
}
ROWS = [(name, row) for name, rows in TYPES.items() for row in rows]
IDS = [f"{name}:{row.name}" for name, row in ROWS]
SERVER_TOOLS = {
    "web_search_tool_result": "web_search",
    "web_fetch_tool_result": "web_fetch",
    "code_execution_tool_result": "code_execution",
    "bash_code_execution_tool_result": "bash_code_execution",
    "text_editor_code_execution_tool_result": "text_editor_code_execution",
    "tool_search_tool_result": "tool_search_tool_bm25",
    "advisor_tool_result": "advisor",
}
PLAIN: dict[str, dict[str, Any]] = {
    "text": {"text": "hello"},
    "image": {"source": {"type": "url", "url": "https://x.test/a.png"}},
    "document": {"source": {"type": "text", "media_type": "text/plain", "data": "words"}},
    "search_result": {"source": "s", "title": "t", "content": [{"type": "text", "text": "w"}]},
    "container_upload": {"file_id": "file_1"},
    "mid_conv_system": {"content": [{"type": "text", "text": "be brief"}]},
    "thinking": {"thinking": "hm", "signature": "S=="},
    "redacted_thinking": {"data": "E"},
    "compaction": {"content": "what was said", "encrypted_content": "E"},
    "fallback": {"from": {"model": "a"}, "to": {"model": "b"}},
    "mcp_tool_listing": {"mcp_server_name": "s", "tools": []},
    "tool_addition": {"tool": {"type": "tool_reference", "name": "f"}},
    "tool_removal": {"tool": {"type": "tool_reference", "name": "f"}},
    "refusal": {"refusal": "no"},
    "image_url": {"image_url": {"url": "https://x.test/a.png"}},
    "input_audio": {"input_audio": {"data": "aGk=", "format": "wav"}},
    "file": {"file": {"file_id": "file_1"}},
}
ITEM: dict[str, dict[str, Any]] = {
    "reasoning": {"id": "rs_1", "summary": [], "encrypted_content": "E"},
    "compaction_trigger": {},
    "item_reference": {"id": "msg_1"},
    "agent_message": {"author": "a", "recipient": "b", "content": []},
    "additional_tools": {"role": "developer", "tools": []},
    "configuration_update": {"configuration": {}},
    "function_call": {"name": "f", "arguments": "{}"},
    "custom_tool_call": {"name": "f", "input": "x"},
    "local_shell_call": {"id": "lsh_1", "status": "completed", "action": {"type": "exec"}},
    "shell_call": {"action": {"commands": ["ls"]}},
    "apply_patch_call": {"status": "completed", "operation": {"type": "delete_file"}},
    "computer_call": {"id": "cu_1", "status": "completed", "action": {"type": "click"}},
    "tool_search_call": {"execution": "client", "arguments": {}},
    "function_call_output": {"output": "done"},
    "custom_tool_call_output": {"output": "done"},
    "local_shell_call_output": {"output": "done"},
    "shell_call_output": {"output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit"}}]},
    "apply_patch_call_output": {"status": "completed"},
    "computer_call_output": {"output": {"type": "computer_screenshot", "image_url": "https://x"}},
    "tool_search_output": {"execution": "client", "tools": []},
}


def user(content: Any = "go on") -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": [*blocks, {"type": "text", "text": "Done."}]}


def anthropic(row: BlockType) -> list[dict[str, Any]]:
    """A conversation around one block type."""
    block = {"type": row.name, **PLAIN.get(row.name, {})}
    if row.pair == "neither":
        said = [block, {"type": "text", "text": "see"}]
        return [user(said), assistant()] if row.said_by == "user" else [user(), assistant(block)]
    if row.run_by == "client":
        call: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": "t1", "content": "done"}
        return [user(), {"role": "assistant", "content": [call]}, user([result]), assistant()]
    if row.name.startswith("mcp"):
        call = {"type": "mcp_tool_use", "id": "m1", "name": "f", "server_name": "s", "input": {}}
        result = {"type": "mcp_tool_result", "tool_use_id": "m1", "content": [], "is_error": False}
        return [user(), assistant(call, result)]
    name = SERVER_TOOLS.get(row.name, "web_search")
    result = {"type": row.name, "tool_use_id": "srvtoolu_1", "content": {"type": "x", "n": 1}}
    if row.pair == "call":
        result["type"] = "web_search_tool_result"
    call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": name, "input": {}}
    return [user(), assistant(call, result)]


def programmatic(*, open_end: bool = False) -> list[dict[str, Any]]:
    """Code that calls a tool twice before it ends."""
    code = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {}}
    messages = [user("count them")]
    for at in (1, 2):
        caller = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
        call: dict[str, Any] = {
            "type": "tool_use",
            "id": f"t{at}",
            "name": "f",
            "input": {},
            "caller": caller,
        }
        content = [code, call] if at == 1 else [call]
        messages.append({"role": "assistant", "content": content})
        messages.append(user([{"type": "tool_result", "tool_use_id": f"t{at}", "content": "7"}]))
    result = {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": {}}
    return messages if open_end else [*messages, assistant(result), user("thanks")]


def responses(row: BlockType) -> list[dict[str, Any]]:
    said = {"type": "message", "role": "assistant", "content": "Done."}
    rows = {one.name: one for one in RESPONSES_TYPES}
    names = [row.name]
    if row.pair == "call":
        names.append(next(r.name for r in rows.values() if row.name in r.answers))
    elif row.answers:
        names.insert(0, row.answers[0])
    items = []
    for name in names:
        item = {"type": name, **ITEM.get(name, {})}
        if rows[name].id_field:
            item[rows[name].id_field] = "x_1"
        items.append(item)
    if row.name == "message":
        return [user(), said]
    if row.name == "compaction_trigger":
        return [user(), said, *items]
    return [user(), *items, said]


def chat(row: BlockType) -> list[dict[str, Any]]:
    if row.pair == "neither":
        block = {"type": row.name, **PLAIN.get(row.name, {})}
        if row.name == "audio":
            return [user(), {"role": "assistant", "content": None, "audio": {"id": "a"}}, user()]
        said = [block, {"type": "text", "text": "see"}]
        return [{"role": row.said_by, "content": said}, user()][
            :: 1 if row.said_by == "user" else -1
        ]
    if "function_call" in (row.name, *row.answers):
        called = {"name": "f", "arguments": "{}"}
        return [
            user(),
            {"role": "assistant", "content": None, "function_call": called},
            {"role": "function", "name": "f", "content": "done"},
        ]
    kind = row.name if row.name in ("function", "custom") else "function"
    fields = {"name": "f", "arguments" if kind == "function" else "input": "{}"}
    return [
        user(),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": kind, kind: fields}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]


def conversation(format_name: FormatName, row: BlockType) -> list[dict[str, Any]]:
    made = {"anthropic": anthropic, "openai-responses": responses, "openai-chat": chat}
    messages = made[format_name](row)
    if messages[-1].get("type") != "compaction_trigger":
        messages.append(user("And now?"))
    return messages


def body_of(format_name: FormatName, messages: list[dict[str, Any]]) -> dict[str, Any]:
    field = "input" if format_name == "openai-responses" else "messages"
    return {"model": "m", "max_tokens": 100, field: messages}


def prepared(settings_: Any, given_: Any, format_name: FormatName) -> Any:
    return asyncio.run(Engine(settings_).prepare(Session("s"), given_, format=format_name)).request


def assert_passes(format_name: FormatName, messages: list[dict[str, Any]]) -> None:
    body = body_of(format_name, messages)
    assert violations(format_name, body) == []
    raw = json.dumps(body).encode()
    assert prepared(LARGE, raw, format_name) is raw
    assert prepared(LARGE, body, format_name) is body


@pytest.mark.parametrize(("format_name", "row"), ROWS, ids=IDS)
def test_every_type_passes_as_it_came(format_name: FormatName, row: BlockType) -> None:
    assert_passes(format_name, conversation(format_name, row))


@pytest.mark.parametrize("open_end", [False, True])
def test_code_that_calls_tools_passes_as_it_came(open_end: bool) -> None:
    assert_passes("anthropic", programmatic(open_end=open_end))


def test_a_paused_turn_passes_as_it_came() -> None:
    call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    assert_passes("anthropic", [user(), {"role": "assistant", "content": [call]}])


def test_tools_that_the_server_searched_pass_as_they_came() -> None:
    search: dict[str, Any] = {
        "type": "tool_search_call",
        "execution": "server",
        "call_id": None,
        "arguments": {},
    }
    found: dict[str, Any] = {
        "type": "tool_search_output",
        "execution": "server",
        "call_id": None,
        "tools": [],
    }
    assert_passes("openai-responses", [user(), search, found, user("And?")])


PAIRS = [(name, row) for name, row in ROWS if row.pair == "result"]
LATER = [
    ("anthropic", programmatic()[:-1]),
    *((name, conversation(name, row)[:-1]) for name, row in PAIRS),
]


@pytest.mark.parametrize(("format_name", "messages"), LATER, ids=lambda one: str(one)[:60])
def test_pairs_leave_view_together(format_name: FormatName, messages: list[dict[str, Any]]) -> None:
    """Trimmed to a small window, whatever is left is valid, and no half of a pair is left."""
    for size in at_size(ci=(60, 450), full=(60, 200, 320, 450)):
        filler = [
            turn
            for at in range(14)
            for turn in (
                user(f"{at} harbour crane " * size),
                {"role": "assistant", "content": f"{at} the crane moves cargo " * size},
            )
        ]
        messy = [*filler[:4], *messages, *filler[4:], user("And now?")]
        body = body_of(format_name, messy)
        out = prepared(SMALL, body, format_name)
        assert violations(format_name, out) == []
        assert unfaithful(format_name, body, out) == []
        shown = json.dumps(out)
        alone = [json.dumps(part)[1:-1] for message in messages[1:] for part in _parts(message)]
        kept = [part in shown for part in alone]
        assert all(kept) or not any(kept), kept


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks of calls and results, or the item itself."""
    content = message.get("content")
    if isinstance(content, list):
        return [block for block in content if block["type"] != "text"]
    return [message] if message.get("role") not in ("user", "assistant") else []


@pytest.mark.parametrize(("format_name", "messages"), LATER, ids=lambda one: str(one)[:60])
def test_no_cut_parts_a_pair(format_name: FormatName, messages: list[dict[str, Any]]) -> None:
    entries = entries_of(messages, format_name)
    places = [at for at, message in enumerate(messages) if _parts(message)]
    spans = bound_spans(entries, CODECS[format_name].rules)
    assert any(first <= places[0] and places[-1] <= last for first, last in spans)


_NAMES = st.from_regex(r"[a-z]{3,9}_(call|output|tool_use|tool_result|block)", fullmatch=True)
_UNKNOWN = st.fixed_dictionaries(
    {"type": _NAMES.map(lambda name: f"future_{name}")},
    optional={
        "id": st.sampled_from(["call_000", "call_001", "u1"]),
        "call_id": st.sampled_from(["call_000", "call_001", "u2"]),
        "tool_use_id": st.sampled_from(["call_000", "call_001", "srvtoolu_1"]),
        "output": st.text(max_size=5),
    },
)


@pytest.mark.parametrize("format_name", ["anthropic", "openai-responses"])
def test_a_type_that_nobody_knows_passes_as_it_came(format_name: FormatName) -> None:
    @settings(max_examples=at_size(ci=30, full=150))
    @given(valid_bodies(format_name), st.lists(st.tuples(_UNKNOWN, st.integers(0, 99)), min_size=1))
    def check(body: dict[str, Any], unknown: list[tuple[dict[str, Any], int]]) -> None:
        field = "input" if format_name == "openai-responses" else "messages"
        messages = body[field]
        if not isinstance(messages, list):
            return
        for block, at in unknown:
            if format_name == "openai-responses":
                messages.insert(_not_behind_reasoning(messages, at), block)
                continue
            spoken = [m for m in messages if m["role"] == "assistant" and _is_list(m)]
            if spoken:
                spoken[at % len(spoken)]["content"].insert(0, block)
        assume_valid = violations(format_name, body)
        if assume_valid:
            return
        raw = json.dumps(body).encode()
        assert prepared(LARGE, raw, format_name) is raw

    check()


def _is_list(message: dict[str, Any]) -> bool:
    return isinstance(message["content"], list)


def _not_behind_reasoning(items: list[dict[str, Any]], at: int) -> int:
    return at % len(items) if items[at % len(items) - 1].get("type") != "reasoning" else 0
