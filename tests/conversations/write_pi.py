"""Turns as pi and OpenClaw messages."""

from typing import Any

from tests.conversations.script import Part, Turn, flag
from tests.conversations.write_anthropic import PNG

_SPELLINGS = ("toolCall", "toolUse", "tool_use", "functionCall")
_ARGUMENTS: tuple[Any, ...] = (None, "", '{"path":"a.py"}', "{broken", [], 5)
_START_MS = 1_770_000_000_000


def write(turns: list[Turn], header: int, *, tidy: bool) -> dict[str, Any]:
    """What pi hands to a provider: `messages`, at times a prompt and tools."""
    body: dict[str, Any] = {}
    if flag(header, 0, 2):
        body["systemPrompt"] = "You are terse."
    if flag(header, 3, 2):
        body["tools"] = [{"name": "read", "description": "Read.", "parameters": {"type": "object"}}]
    messages: list[dict[str, Any]] = []
    for turn in turns:
        for message in _messages(turn, tidy=tidy or turn.neat):
            messages.append({**message, "timestamp": _START_MS + 1_000 * len(messages)})
    return {**body, "messages": messages}


def _messages(turn: Turn, *, tidy: bool) -> list[dict[str, Any]]:
    bits = turn.bits
    match turn.role:
        case "results" | "legacy-result":
            return [_result(part, bits, tidy=tidy or turn.neat) for part in turn.parts]
        case "assistant" | "legacy-call":
            return [_assistant(turn, tidy=tidy)]
        case "summary":
            if flag(bits, 9, 3):
                return [{"role": "branchSummary", "summary": turn.parts[0][1], "fromId": "root"}]
            return [
                {"role": "compactionSummary", "summary": turn.parts[0][1], "tokensBefore": 90000}
            ]
        case "bash":
            shell = {"command": "ls", "output": turn.parts[0][1], "exitCode": 0, "cancelled": False}
            return [{"role": "bashExecution", **shell, "truncated": False}]
        case "system":
            note = {"customType": "note", "display": True, "details": {"n": bits % 9}}
            return [{"role": "custom", "content": turn.parts[0][1], **note}]
        case _:
            return [_user(turn)]


def _user(turn: Turn) -> dict[str, Any]:
    blocks = [block for part in turn.parts for block in _blocks(part, turn.bits, tidy=True)]
    content: Any = blocks
    if not blocks:
        content = ("", [], "  ")[turn.bits % 3]
    elif len(blocks) == 1 and blocks[0]["type"] == "text" and not flag(turn.bits, 2, 2):
        content = blocks[0]["text"]
    return {"role": "user", "content": content}


def _assistant(turn: Turn, *, tidy: bool) -> dict[str, Any]:
    calls = any(part[0] == "call" for part in turn.parts)
    blocks = [block for part in turn.parts for block in _blocks(part, turn.bits, tidy=tidy)]
    if not tidy and flag(turn.bits, 10, 16):
        blocks.append(({"type": "text"}, {"type": "text", "text": None})[turn.bits & 1])
    only_text = len(blocks) == 1 and "text" in blocks[0]
    plain = not tidy and only_text and flag(turn.bits, 9, 8)
    message = {
        "role": "assistant",
        "content": blocks[0]["text"] if plain else blocks,
        "api": "anthropic-messages",
        "provider": "anthropic",
        "model": "claude-sonnet-4-5",
        "usage": {"input": 900, "output": 40, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 940},
        "stopReason": turn.stop or ("toolUse" if calls else "stop"),
    }
    if turn.stop:
        message["errorMessage"] = "Request was aborted."
    return message


def _blocks(part: Part, bits: int, *, tidy: bool) -> list[dict[str, Any]]:
    match part:
        case ("text", words):
            return [
                {
                    "type": "text",
                    "text": words,
                    **({"textSignature": "m"} if flag(bits, 24, 5) else {}),
                }
            ]
        case ("image",):
            return [{"type": "image", "data": PNG, "mimeType": "image/png"}]
        case ("thinking", words, signature):
            signed = {} if signature is None else {"thinkingSignature": signature}
            return [{"type": "thinking", "thinking": words, **signed}]
        case ("redacted", data):
            block = {"type": "thinking", "thinking": "", "redacted": True}
            return [{**block, "thinkingSignature": data}]
        case ("call", identity, name, args, *_):
            spelling = "toolCall" if tidy or not flag(bits, 17, 16) else _SPELLINGS[bits % 4]
            given = args
            if not tidy and flag(bits, 14, 8):
                given = _ARGUMENTS[bits % len(_ARGUMENTS)]
            return [{"type": spelling, "id": identity, "name": name, "arguments": given}]
        case ("hits", number):
            return [{"type": "text", "text": f"[{number}] The ferry leaves at nine."}]
        case ("unknown", number):
            return [{"type": "hologram", "payload": {"n": number, "deep": [None, 1.0]}}]
        case _:
            return []


def _result(part: Part, bits: int, *, tidy: bool) -> dict[str, Any]:
    _, identity, name, words, is_error, pictured = part
    content: Any = [{"type": "text", "text": words}]
    if not tidy and not pictured and flag(bits, 15, 9):
        content = words
    elif words == "" and flag(bits, 14, 2):
        content = []
    if pictured:
        content.append({"type": "image", "data": PNG, "mimeType": "image/png"})
    message = {"role": "toolResult", "toolCallId": identity, "toolName": name, "content": content}
    if flag(bits, 18, 4):
        message["details"] = {"diff": "@@"}
    return {**message, "isError": is_error}
