"""Turns as OpenAI Chat Completions messages, and as the hosts that copy them accept them."""

import json
from typing import Any

from tests.conversations.script import Part, Turn, flag
from tests.conversations.write_anthropic import PNG, SUMMARY

_EMPTY: tuple[Any, ...] = (None, "", [])
_IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}


def write(turns: list[Turn], header: int, *, tidy: bool) -> dict[str, Any]:
    """A request body; `tidy` keeps to spellings the API accepts."""
    body: dict[str, Any] = {"model": "gpt-4.1"}
    messages: list[dict[str, Any]] = []
    if flag(header, 0, 2):
        role = "developer" if flag(header, 1, 3) else "system"
        messages.append({"role": role, "content": "You are terse."})
    if flag(header, 3, 2):
        function = {"name": "read", "parameters": {"type": "object"}}
        body["tools"] = [{"type": "function", "function": function}]
    if flag(header, 7, 5):
        body.update(stream=True, temperature=0.2, x_client={"build": 1.5})
    for turn in turns:
        messages += _messages(turn, tidy=tidy or turn.neat)
    return {**body, "messages": messages}


def _messages(turn: Turn, *, tidy: bool) -> list[dict[str, Any]]:
    bits = turn.bits
    match turn.role:
        case "results":
            return [_tool(part, bits) for part in turn.parts]
        case "legacy-call":
            _, _, name, args = turn.parts[0]
            legacy = {"name": name, "arguments": json.dumps(args)}
            return [{"role": "assistant", "content": None, "function_call": legacy}]
        case "legacy-result":
            _, _, name, words, *_ = turn.parts[0]
            return [{"role": "function", "name": name, "content": words}]
        case "assistant":
            return [_assistant(turn, tidy=tidy)]
        case "summary":
            return [{"role": "user", "content": SUMMARY.format(turn.parts[0][1])}]
        case "system":
            role = "developer" if flag(bits, 9, 3) else "system"
            return [{"role": role, "content": turn.parts[0][1]}]
        case _:
            return [_user(turn, tidy=tidy)]


def _user(turn: Turn, *, tidy: bool) -> dict[str, Any]:
    bits = turn.bits
    parts = [piece for part in turn.parts for piece in _pieces(part)]
    if not parts:
        content: Any = _EMPTY[bits % 3]
    elif len(parts) == 1 and parts[0]["type"] == "text" and not flag(bits, 2, 2):
        content = parts[0]["text"]
    else:
        content = parts
        if not tidy and flag(bits, 10, 16):
            content.append((5, {"type": "text", "text": None}, {"type": "text"}, {})[bits % 4])
        elif flag(bits, 16, 6):  # OpenRouter and LiteLLM pass Anthropic's marks through
            parts[-1]["cache_control"] = {"type": "ephemeral"}
    message = {"role": "user", "content": content}
    if flag(bits, 18, 10):
        message.update(name="ana", x_note={"kept": None})
    return message


def _pieces(part: Part) -> list[dict[str, Any]]:
    match part:
        case ("text", words):
            return [{"type": "text", "text": words}]
        case ("image",):
            return [dict(_IMAGE)]
        case ("file", number):
            whole = {"filename": "ferries.txt", "file_data": "data:text/plain;base64,RmVycmllcy4="}
            return [{"type": "file", "file": whole if int(str(number)) % 2 else {"file_id": "f_1"}}]
        case ("hits", number):
            return [{"type": "text", "text": f"[{number}] The ferry leaves at nine."}]
        case ("speech", _):
            return [{"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}]
        case ("unknown", number):
            return [{"type": "hologram", "payload": {"n": number, "deep": [None, 1.0]}}]
        case _:
            return []


def _assistant(turn: Turn, *, tidy: bool) -> dict[str, Any]:
    bits = turn.bits
    message: dict[str, Any] = {"role": "assistant"}
    calls: list[Any] = [_call(part, bits, tidy=tidy) for part in turn.parts if part[0] == "call"]
    parts = [piece for part in turn.parts for piece in _pieces(part)]
    if not parts:
        message["content"] = None if calls else _EMPTY[bits % 3]
    elif len(parts) == 1 and parts[0]["type"] == "text" and not flag(bits, 2, 3):
        message["content"] = parts[0]["text"]
    else:
        message["content"] = parts
    if calls:
        message["tool_calls"] = calls
        if message["content"] is None and flag(bits, 19, 3):
            del message["content"]
    elif not tidy and flag(bits, 17, 14):
        message["tool_calls"] = []
    elif flag(bits, 21, 14):
        message.update(content=None, refusal="I cannot help with that.")
    elif flag(bits, 22, 14):
        message.update(content=None, audio={"id": f"audio_{bits:x}"})
    elif flag(bits, 24, 9) and isinstance(message["content"], list):
        message["content"].append({"type": "refusal", "refusal": "I cannot help with that."})
    if not tidy and flag(bits, 23, 6):  # as SDKs write a reply with all of its fields
        message.setdefault("tool_calls", None)
        message |= {"function_call": None, "refusal": message.get("refusal"), "annotations": []}
    elif not tidy and calls and flag(bits, 18, 12):
        calls.insert(bits % (len(calls) + 1), None)
    for part in turn.parts:
        if part[0] == "thinking":
            message["reasoning_content"] = part[1]
    return message


def _call(part: Part, bits: int, *, tidy: bool) -> dict[str, Any]:
    _, identity, name, args, *_ = part
    if flag(bits, 23, 10):
        custom = {"name": name, "input": json.dumps(args, ensure_ascii=False)}
        return {"id": identity, "type": "custom", "custom": custom}
    if not tidy and flag(bits, 15, 12):
        return {"id": identity, "function": {"name": name, "arguments": json.dumps(args)}}
    packed: Any = args if not tidy and flag(bits, 17, 20) else json.dumps(args)
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": packed}}


def _tool(part: Part, bits: int) -> dict[str, Any]:
    _, identity, name, words, _, pictured = part
    content: Any = words
    if pictured:
        content = [{"type": "text", "text": words}, dict(_IMAGE)]
    elif flag(bits, 12, 3):
        content = [{"type": "text", "text": words}]
    message = {"role": "tool", "tool_call_id": identity, "content": content}
    if flag(bits, 14, 4):
        message["name"] = name
    return message
