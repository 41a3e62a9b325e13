"""Turns as Anthropic Messages, spelled the many ways clients spell them."""

from typing import Any

from tests.conversations.script import Part, Turn, flag

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
"""One pixel."""
SUMMARY = (
    "The conversation history before this point was compacted into the following summary:"
    "\n\n<summary>\n{}\n</summary>"
)
_SPELLINGS = ("tool_use", "toolUse", "toolCall", "functionCall")
_SERVER_TOOLS = (
    ("server_tool_use", "web_search", "web_search_tool_result"),
    ("server_tool_use", "web_fetch", "web_fetch_tool_result"),
    ("server_tool_use", "code_execution", "code_execution_tool_result"),
    ("server_tool_use", "bash_code_execution", "bash_code_execution_tool_result"),
    ("server_tool_use", "text_editor_code_execution", "text_editor_code_execution_tool_result"),
    ("server_tool_use", "tool_search_tool_regex", "tool_search_tool_result"),
    ("server_tool_use", "advisor", "advisor_tool_result"),
    ("mcp_tool_use", "echo", "mcp_tool_result"),
)
_EMPTY: tuple[Any, ...] = ("", [], None)
_MOST_MARKS = 4
_MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
_WORDS = {"type": "text", "text": "The ferry leaves at nine."}
_SOURCES: tuple[dict[str, Any], ...] = (
    {"type": "text", "media_type": "text/plain", "data": "The ferry leaves at nine."},
    {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQK"},
    {"type": "url", "url": "https://x.test/timetable.pdf"},
    {"type": "file", "file_id": "file_011"},
    {"type": "content", "content": [_WORDS, {**_WORDS, "text": "It returns at six."}]},
    {"type": "content", "content": "The ferry leaves at nine."},
)
_CITED = {"type": "char_location", "cited_text": "at nine", "document_index": 0}
_CITATIONS = {**_CITED, "document_title": None, "start_char_index": 17, "end_char_index": 24}
_PROVIDED: tuple[dict[str, Any], ...] = (
    {"type": "compaction", "content": "They talked about ferries.", "encrypted_content": "E"},
    {"type": "compaction", "content": None},
    {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}, "trigger": None},
    {"type": "mcp_tool_listing", "mcp_server_name": "s", "tools": [{"name": "echo"}]},
)
_FOUND: dict[str, Any] = {
    "web_search_tool_result": [
        {
            "type": "web_search_result",
            "url": "https://x.test",
            "title": "t",
            "encrypted_content": "E",
        }
    ],
    "web_fetch_tool_result": {
        "type": "web_fetch_result",
        "url": "https://x.test",
        "content": {"type": "document", "source": _SOURCES[0]},
    },
    "code_execution_tool_result": {
        "type": "encrypted_code_execution_result",
        "encrypted_stdout": "E",
        "stderr": "",
        "return_code": 0,
        "content": [],
    },
    "bash_code_execution_tool_result": {
        "type": "bash_code_execution_result",
        "stdout": "9 ferries",
        "stderr": "",
        "return_code": 0,
        "content": [],
    },
    "tool_search_tool_result": {
        "type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": "read"}],
    },
    "advisor_tool_result": {"type": "advisor_result", "text": "Take the ferry."},
    "mcp_tool_result": [_WORDS],
}
# What clients send in the place of an object, a name, and of thinking that they cannot send again.
_INPUTS: tuple[Any, ...] = (None, "", '{"path":"a.py"}', "{broken", [], 5)
_NAMES: tuple[Any, ...] = ("", None, "db.query", "<function=read>", "x" * 140)
_THOUGHTS: tuple[dict[str, Any], ...] = (
    {},
    {"signature": None},
    {"signature": ""},
    {"signature": "S==", "thinking": None},
    {"signature": "S==", **_MARK},
    {"signature": "S==", "cache_control": None},
    {"signature": 5},
)


def write(turns: list[Turn], header: int, *, tidy: bool) -> dict[str, Any]:
    """A request body; `tidy` keeps to spellings the API accepts."""
    marks = [0]
    body = _frame(header, marks)
    if not tidy and flag(header, 19, 6):
        marks[0] = -8  # more marks than the provider takes
    if not tidy and flag(header, 20, 8):
        body["model"] = "kimi-k3"  # served in this format, but not Claude
    messages: list[dict[str, Any]] = []
    for turn in turns:
        messages += _messages(turn, marks, tidy=tidy or turn.neat)
    return {**body, "messages": messages}


def _frame(header: int, marks: list[int]) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "claude-sonnet-4-5", "max_tokens": 1024}
    if flag(header, 0, 2):
        body["system"] = "You are terse."
    elif flag(header, 1, 3):
        marks[0] += 1
        cached = {"type": "text", "text": "You are terse.", "cache_control": {"type": "ephemeral"}}
        body["system"] = [cached]
    if flag(header, 3, 2):
        body["tools"] = [
            {"name": "read", "description": "Read.", "input_schema": {"type": "object"}}
        ]
    if flag(header, 5, 3):
        body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    if flag(header, 9, 6):
        marks[0] += 1
        body.update(_MARK)
    if flag(header, 7, 5):
        body.update(stream=True, metadata={"user_id": "u_1"}, x_client={"build": 1.5})
    return body


def _messages(turn: Turn, marks: list[int], *, tidy: bool) -> list[dict[str, Any]]:
    bits = turn.bits
    if turn.role in ("results", "legacy-result"):
        return _results(turn, marks, tidy=tidy)
    role = {"user": "user", "assistant": "assistant", "legacy-call": "assistant"}.get(turn.role)
    if role is None:
        return [_other(turn)]
    blocks = [block for part in turn.parts for block in _blocks(part, bits, tidy=tidy)]
    if not tidy and len(blocks) > 1 and flag(bits, 21, 10):  # one of them comes again
        blocks.insert(bits % (len(blocks) + 1), dict(blocks[(bits >> 3) % len(blocks)]))
    content: Any = blocks
    if not blocks:
        content = _EMPTY[bits % 3]
    elif len(blocks) == 1 and blocks[0]["type"] == "text" and not flag(bits, 2, 2):
        content = blocks[0]["text"]
    elif marks[0] < _MOST_MARKS and flag(bits, 16, 4) and _can_be_marked(blocks[-1]):
        marks[0] += 1
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
    message = {"role": role, "content": content}
    if flag(bits, 18, 12):
        message.update(id=f"msg_{bits:x}", x_note={"kept": None})
    return [message]


def _can_be_marked(block: dict[str, Any]) -> bool:
    if block["type"] in ("document", "search_result", "container_upload", "tool_use"):
        return True
    return bool(str(block.get("text", "")).strip())


def _other(turn: Turn) -> dict[str, Any]:
    """Summaries, shells and system notes, which this API has no role for."""
    words = str(turn.parts[0][1])
    if turn.role == "summary":
        return {"role": "user", "content": SUMMARY.format(words)}
    if turn.role == "system" and flag(turn.bits, 9, 3):
        return {"role": "system", "content": words}
    return {
        "role": "user",
        "content": [{"type": "text", "text": f"<{turn.role}>{words}</{turn.role}>"}],
    }


def _results(turn: Turn, marks: list[int], *, tidy: bool) -> list[dict[str, Any]]:
    bits = turn.bits
    blocks = [_result(part, bits, tidy=tidy) for part in turn.parts]
    if not blocks:
        return []
    if marks[0] < _MOST_MARKS and flag(bits, 16, 5):
        marks[0] += 1
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
    if not tidy and len(blocks) > 1 and flag(bits, 20, 6):
        return [{"role": "user", "content": [block]} for block in blocks]
    role = "assistant" if not tidy and flag(bits, 23, 20) else "user"
    note = {"type": "text", "text": "<system-reminder>Tests are red.</system-reminder>"}
    if not tidy and flag(bits, 22, 8):
        blocks.insert(0, note)
    elif flag(bits, 8, 5):
        blocks.append(note)
    return [{"role": role, "content": blocks}]


def _result(part: Part, bits: int, *, tidy: bool) -> dict[str, Any]:
    _, identity, _, words, is_error, pictured = part
    content: Any = words
    if pictured or (flag(bits, 12, 2) and not (tidy and not str(words).strip())):
        content = [{"type": "text", "text": words}] if str(words).strip() or not tidy else []
        content += [_image(), _file(bits), _hits(bits)][: 1 + bits % 3] if pictured else []
        content += [{"type": "tool_reference", "tool_name": "read"}] if flag(bits, 13, 6) else []
        if not tidy and flag(bits, 15, 12):
            content.append((None, 5, {"type": "thinking", "thinking": "hm"}, {})[bits % 4])
        for inner in content if not tidy and flag(bits, 16, 6) else ():
            if isinstance(inner, dict) and str(inner.get("text", "x")).strip():
                inner.update(_MARK)
    elif not tidy and flag(bits, 18, 30):
        content = (None, {"words": words}, 5)[bits % 3]
    block = {"type": "tool_result", "tool_use_id": identity, "content": content}
    if words == "" and flag(bits, 14, 2):
        del block["content"]
    if is_error:
        block["is_error"] = True
    return block


def _file(bits: int) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "document", "source": _SOURCES[bits % len(_SOURCES)]}
    if flag(bits, 4, 2):
        block.update(title="timetable.txt", context="uploaded", citations={"enabled": True})
    return block


def _hits(bits: int) -> dict[str, Any]:
    return {"type": "search_result", "source": f"doc-{bits % 9}", "title": "t", "content": [_WORDS]}


def _server(kind: str, identity: object, name: str, given: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "id": identity, "name": name, "input": given}


def _image() -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


def _blocks(part: Part, bits: int, *, tidy: bool) -> list[dict[str, Any]]:
    match part:
        case ("text", words):
            block = {"type": "text", "text": words}
            return [{**block, "citations": [_CITATIONS]} if flag(bits, 10, 9) else block]
        case ("file", number):
            upload = {"type": "container_upload", "file_id": "file_011"}
            return [upload if flag(int(str(number)), 0, 5) else _file(int(str(number)))]
        case ("hits", number):
            return [_hits(int(str(number)) + at) for at in range(1 + bits % 2)]
        case ("speech", _):
            return []  # this API takes none
        case ("provider", number):
            made_up = dict(_PROVIDED[int(str(number)) % len(_PROVIDED)])
            if not tidy and flag(bits, 8, 4):
                made_up.update(_MARK if made_up["type"] != "compaction" else {"content": ""})
            return [made_up]
        case ("image",):
            return [_image()]
        case ("thinking", words, signature):
            spelled: dict[str, Any]
            if tidy or (signature is not None and not flag(bits, 19, 6)):
                spelled = {"signature": signature or "S=="}
            else:
                spelled = _THOUGHTS[(bits >> 4) % len(_THOUGHTS)]
            return [{"type": "thinking", "thinking": words, **spelled}]
        case ("redacted", data):
            spelled = {"data": data}
            if not tidy and flag(bits, 19, 3):
                spelled = ({}, {"data": None}, {"data": data, **_MARK})[bits % 3]
            return [{"type": "redacted_thinking", **spelled}]
        case ("call", identity, name, args, *program):
            spelling = "tool_use" if tidy or not flag(bits, 17, 32) else _SPELLINGS[bits % 4]
            made: dict[str, Any] = {"type": spelling, "id": identity, "name": name, "input": args}
            if not tidy and flag(bits, 14, 8):
                made["input"] = _INPUTS[bits % len(_INPUTS)]
            if not tidy and flag(bits, 6, 20):
                made["name"] = _NAMES[bits % len(_NAMES)]
            if program:
                made["caller"] = {"type": "code_execution_20260120", "tool_id": program[0]}
            return [made]
        case ("program", identity):
            code = {"code": "await read({})"}
            return [_server("server_tool_use", identity, "code_execution", code)]
        case ("program-output", identity):
            return [{"type": "code_execution_tool_result", "tool_use_id": identity, "content": {}}]
        case ("search-call" | "search-result", identity, tool):
            call, name, result = _SERVER_TOOLS[int(str(tool)) % len(_SERVER_TOOLS)]
            if part[0] == "search-call":
                return [_server(call, identity, name, {})]
            return [{"type": result, "tool_use_id": identity, "content": _FOUND.get(result, [])}]
        case ("unknown", number):
            return [{"type": "hologram", "payload": {"n": number, "deep": [None, 1.0]}}]
        case (kind, identity):
            call, name, result = _SERVER_TOOLS[(bits >> 2) % len(_SERVER_TOOLS)]
            made = _server(call, identity, name, {})
            if not tidy and flag(bits, 12, 8):
                made["input"] = _INPUTS[bits % len(_INPUTS)]
            content = _FOUND.get(result, [_WORDS])
            found = {"type": result, "tool_use_id": identity, "content": content}
            return [made, found] if kind == "search" else [(made, found)[bits & 1]]
        case _:
            raise AssertionError(part)
