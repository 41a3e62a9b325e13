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


def write(turns: list[Turn], header: int, *, tidy: bool) -> dict[str, Any]:
    """A request body; `tidy` keeps to spellings the API accepts."""
    marks = [0]
    body = _frame(header, marks)
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
    return block["type"] == "tool_use" or bool(str(block.get("text", "")).strip())


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
        content += [_image()] if pictured else []
    block = {"type": "tool_result", "tool_use_id": identity, "content": content}
    if words == "" and flag(bits, 14, 2):
        del block["content"]
    if is_error:
        block["is_error"] = True
    return block


def _server(kind: str, identity: object, name: str, given: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "id": identity, "name": name, "input": given}


def _image() -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


def _blocks(part: Part, bits: int, *, tidy: bool) -> list[dict[str, Any]]:
    match part:
        case ("text", words):
            return [{"type": "text", "text": words}]
        case ("image",):
            return [_image()]
        case ("thinking", words, signature):
            signed = {} if signature is None and not tidy else {"signature": signature or "S=="}
            return [{"type": "thinking", "thinking": words, **signed}]
        case ("redacted", data):
            return [{"type": "redacted_thinking", "data": data}]
        case ("call", identity, name, args, *program):
            spelling = "tool_use" if tidy or not flag(bits, 17, 32) else _SPELLINGS[bits % 4]
            made: dict[str, Any] = {"type": spelling, "id": identity, "name": name, "input": args}
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
            return [{"type": result, "tool_use_id": identity, "content": []}]
        case ("unknown", number):
            return [{"type": "hologram", "payload": {"n": number, "deep": [None, 1.0]}}]
        case (kind, identity):
            call, name, result = _SERVER_TOOLS[(bits >> 2) % len(_SERVER_TOOLS)]
            made = _server(call, identity, name, {})
            hit = {"type": "text", "text": "found"}
            found = {"type": result, "tool_use_id": identity, "content": [hit]}
            return [made, found] if kind == "search" else [(made, found)[bits & 1]]
        case _:
            raise AssertionError(part)
