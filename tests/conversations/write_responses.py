"""Turns as OpenAI Responses items."""

import json
from typing import Any

from tests.conversations.script import Part, Turn, flag
from tests.conversations.write_anthropic import PNG, SUMMARY

_EMPTY: tuple[Any, ...] = ("", [], None)
_OTHER_CALLS = (
    "custom_tool_call", "shell_call", "apply_patch_call", "local_shell_call", "computer_call",
)  # fmt: skip
_HOSTED: tuple[dict[str, Any], ...] = (
    {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
    {
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "open_page", "url": "https://x.test"},
    },
    {"type": "file_search_call", "status": "completed", "queries": ["q"]},
    {
        "type": "file_search_call",
        "status": "completed",
        "queries": ["q"],
        "results": [{"text": "Ferries.", "score": 0.5}],
    },
    {
        "type": "code_interpreter_call",
        "status": "completed",
        "code": "1",
        "container_id": "c",
        "outputs": [{"logs": "1"}],
    },
    {"type": "image_generation_call", "status": "completed", "result": "aGk="},
    {"type": "mcp_call", "name": "n", "arguments": "{}", "server_label": "s", "output": "o"},
    {"type": "additional_tools", "role": "developer", "tools": []},
    {"type": "configuration_update", "configuration": {}},
    {"type": "agent_message", "author": "a", "recipient": "b", "content": []},
    {"type": "mcp_list_tools", "server_label": "s", "tools": []},
    {"type": "tool_search_call", "execution": "server", "arguments": {}},
    {"type": "tool_search_output", "execution": "server", "tools": []},
    {"type": "compaction", "encrypted_content": "E"},
    {"type": "hologram_output", "call_id": "call_000", "payload": [None]},
)
_FILES: tuple[dict[str, Any], ...] = (
    {"file_id": "file_1"},
    {"filename": "ferries.txt", "file_data": "data:text/plain;base64,RmVycmllcy4="},
    {"file_url": "https://x.test/timetable.pdf"},
    {"file_id": "file_1", "prompt_cache_breakpoint": {"mode": "explicit"}},
)
_NAMES: tuple[Any, ...] = ("", None, "db.query", "<function=read>")
Kinds = dict[object, str]


def write(turns: list[Turn], header: int, *, tidy: bool) -> dict[str, Any]:
    """A request body; `tidy` keeps to spellings the API accepts."""
    body: dict[str, Any] = {"model": "gpt-5"}
    if flag(header, 0, 2):
        body["instructions"] = "You are terse."
    if flag(header, 3, 2):
        body["tools"] = [{"type": "function", "name": "read", "parameters": {"type": "object"}}]
    if flag(header, 5, 2):
        body.update(store=False, include=["reasoning.encrypted_content"])
    if flag(header, 7, 5):
        body.update(stream=True, x_client={"build": 1.5})
    if flag(header, 9, 8):
        body[("previous_response_id", "conversation")[header & 1]] = "resp_1"
    if flag(header, 12, 16) and turns and turns[-1].role == "user":
        words = [str(part[1]) for part in turns[-1].parts if part[0] == "text"]
        if "".join(words).strip():
            return {**body, "input": "\n".join(words)}
    items: list[dict[str, Any]] = []
    kinds: Kinds = {}
    for place, turn in enumerate(turns):
        items += _items(turn, place, kinds, tidy=tidy or turn.neat)
    return {**body, "input": items}


def _items(turn: Turn, place: int, kinds: Kinds, *, tidy: bool) -> list[dict[str, Any]]:
    bits = turn.bits
    if turn.role in ("results", "legacy-result"):
        return [_output(part, bits, kinds, tidy=tidy) for part in turn.parts]
    if turn.role in ("assistant", "legacy-call"):
        return _answer(turn, place, kinds, tidy=tidy)
    if turn.role in ("summary", "bash"):
        return [{"role": "user", "content": SUMMARY.format(turn.parts[0][1])}]
    role = turn.role
    if role == "system" and flag(bits, 9, 2):
        role = "developer"
    text_type = "input_text"
    if not tidy and flag(bits, 14, 8):
        text_type = ("text", "output_text")[bits & 1]
    parts: list[Any] = [piece for part in turn.parts for piece in _pieces(part, text_type)]
    if not tidy and flag(bits, 10, 16):
        parts.append((5, {"type": "input_text", "text": None}, {})[bits % 3])
    content: Any = parts
    if not parts:
        content = _EMPTY[bits % 3]
    elif len(parts) == 1 and not flag(bits, 2, 2) and turn.parts and turn.parts[0][0] == "text":
        content = parts[0]["text"]
    item = {"type": "message", "role": role, "content": content}
    if flag(bits, 19, 2):
        del item["type"]
    if flag(bits, 18, 12):
        item["x_note"] = {"kept": None}
    return [item]


def _pieces(part: Part, text_type: str) -> list[dict[str, Any]]:
    match part:
        case ("text", words):
            return [{"type": text_type, "text": words}]
        case ("file", number):
            file = _FILES[int(str(number)) % len(_FILES)]
            return [{"type": "input_file", **file}]
        case ("hits", number):
            return [{"type": text_type, "text": f"[{number}] The ferry leaves at nine."}]
        case ("image",):
            return [{"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}]
        case ("unknown", number):
            return [{"type": "hologram", "payload": {"n": number, "deep": [None, 1.0]}}]
        case _:
            return []


def _answer(turn: Turn, place: int, kinds: Kinds, *, tidy: bool) -> list[dict[str, Any]]:
    """Reasoning, then the message, then the calls, each an item of its own."""
    bits = turn.bits
    named = not flag(bits, 20, 3)
    serial = 999 if not tidy and flag(bits, 21, 10) else place
    items: list[dict[str, Any]] = []
    for index, part in enumerate(turn.parts):
        match part:
            case ("thinking", words, _) | ("redacted", words):
                item: dict[str, Any] = {"type": "reasoning", "summary": []}
                item["encrypted_content"] = f"gAAA{place}.{index}"
                if not tidy and flag(bits, 19, 10):
                    item["summary"] = None
                    if bits & 1:
                        del item["summary"]
                elif part[0] == "thinking":
                    item["summary"] = [{"type": "summary_text", "text": words}]
            case ("call", identity, name, args, *program):
                item = _call(identity, name, args, bits, kinds, tidy=tidy)
                if program:
                    item["caller"] = {"type": "program", "caller_id": program[0]}
            case ("program", identity):
                item = {"type": "program", "call_id": identity, "code": "", "fingerprint": "F"}
            case ("program-output", identity):
                item = {"type": "program_output", "call_id": identity, "result": "r"}
            case ("search" | "search-cut", _) | ("search-call" | "search-result", _, _):
                item = dict(_HOSTED[(bits >> 2) % len(_HOSTED)])
            case ("provider", _):
                items += _approved(bits, place, index)
                continue
            case _:
                text_type = "output_text"
                if not tidy and flag(bits, 14, 8):
                    text_type = ("text", "input_text")[bits & 1]
                pieces: Any = _pieces(part, text_type)
                if flag(bits, 2, 3) and part[0] == "text":
                    pieces = pieces[0]["text"]
                elif flag(bits, 24, 5):
                    pieces.append({"type": "refusal", "refusal": "I cannot help with that."})
                item = {"type": "message", "role": "assistant", "content": pieces}
        if named:
            item["id"] = f"{item['type'][:2]}_{serial}_{index}"
        items.append(item)
    if not tidy and items and flag(bits, 11, 8):  # one of them comes again
        items.insert(bits % (len(items) + 1), dict(items[(bits >> 3) % len(items)]))
    if not turn.parts:
        items.append({"role": "assistant", "content": _EMPTY[bits % 3]})
    return items


def _approved(bits: int, place: int, index: int) -> list[dict[str, Any]]:
    """A call of an MCP server that the user approved or refused."""
    asked = f"mcpr_{place}_{index}"
    approve = bool(bits & 1)
    call = {"name": "echo", "arguments": "{}", "server_label": "s"}
    items: list[dict[str, Any]] = [
        {"type": "mcp_approval_request", "id": asked, **call},
        {"type": "mcp_approval_response", "approval_request_id": asked, "approve": approve},
    ]
    if approve:
        ran = {"id": f"mcp_{place}_{index}", "approval_request_id": asked, "output": "o"}
        items.append({"type": "mcp_call", **ran, **call})
    return items


def _call(
    identity: object, name: object, args: object, bits: int, kinds: Kinds, *, tidy: bool
) -> dict[str, Any]:
    kind = _OTHER_CALLS[bits % 5] if flag(bits, 22, 5) else "function_call"
    kinds[identity] = kind
    item: dict[str, Any] = {"type": kind, "call_id": identity, "status": "completed"}
    match kind:
        case "function_call":
            loose = not tidy and flag(bits, 17, 24)
            if not tidy and flag(bits, 6, 20):
                name = _NAMES[bits % len(_NAMES)]
            item.update(name=name, arguments=args if loose else json.dumps(args))
        case "custom_tool_call":
            item.update(name=name, input=json.dumps(args, ensure_ascii=False))
        case "apply_patch_call":
            item["operation"] = {"type": "update_file", "path": "a.py", "diff": "@@\n-a\n+b"}
        case _:
            item["action"] = {"type": "exec", "command": ["ls"], "commands": ["ls"]}
    return item


def _output(part: Part, bits: int, kinds: Kinds, *, tidy: bool) -> dict[str, Any]:
    _, identity, _, words, _, pictured = part
    kind = kinds.get(identity, "function_call")
    item: dict[str, Any] = {"type": f"{kind}_output", "call_id": identity, "output": words}
    if kind == "local_shell_call" and flag(bits, 13, 2):
        item["type"] = "function_call_output"
    if kind == "computer_call" or (pictured and kind == "function_call"):
        picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}
        file = {"type": "input_file", **_FILES[bits % len(_FILES)]}
        item["output"] = [{"type": "input_text", "text": words}, (picture, file)[bits >> 3 & 1]]
        if kind == "computer_call":
            item["output"] = {**picture, "type": "computer_screenshot"}
    elif kind == "shell_call":
        outcome = {"type": "exit", "exit_code": 0}
        item["output"] = [{"stdout": words, "stderr": "", "outcome": outcome}]
    elif flag(bits, 12, 3) and item["type"] != "local_shell_call_output":
        item["output"] = [{"type": "input_text", "text": words}]
    elif not tidy and flag(bits, 18, 20) and kind == "function_call":
        item["output"] = {"words": words}
    if not tidy and flag(bits, 23, 20):
        del item[("output", "call_id")[bits >> 5 & 1]]
    return item
