"""Transcripts that grow as those of Claude Code and Codex do."""

import json
import uuid
from pathlib import Path
from typing import Any


class ClaudeTranscript:
    """A session file that grows as Claude Code's does."""

    def __init__(self, folder: Path) -> None:
        self.session_id = str(uuid.uuid4())
        self.path = folder / f"{self.session_id}.jsonl"
        self._last: str | None = None

    def line(self, **fields: Any) -> None:
        own = str(uuid.uuid4())
        line = {
            "parentUuid": self._last,
            "isSidechain": False,
            "sessionId": self.session_id,
            "version": "2.1.325",
            "uuid": own,
            "timestamp": "2026-11-17T01:00:00.000Z",
            **fields,
        }
        self._last = own
        with self.path.open("a") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def user(self, text: str) -> None:
        self.line(type="user", message={"role": "user", "content": text})

    def reply(self, text: str) -> None:
        message = {
            "id": f"msg_{uuid.uuid4().hex[:12]}",
            "role": "assistant",
            "model": "claude-opus-5-5",
            "content": [{"type": "text", "text": text}],
            "usage": {"input_tokens": 5, "output_tokens": 5},
        }
        self.line(type="assistant", message=message)

    def call(self, call_id: str, command: str) -> None:
        block = {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": command}}
        message = {"id": f"msg_{call_id}", "role": "assistant", "content": [block]}
        self.line(type="assistant", message=message)

    def result(self, call_id: str, text: str) -> None:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        self.line(type="user", message={"role": "user", "content": [block]})

    def handed(self, text: str) -> None:
        self.line(
            type="attachment", attachment={"type": "hook_additional_context", "content": [text]}
        )

    @property
    def last(self) -> str:
        assert self._last is not None
        return self._last

    def compacted(
        self,
        keeping: tuple[str, str] | None = None,
        *,
        summary: str = "",
        tokens: tuple[int, int] = (0, 0),
    ) -> None:
        """Up to now, but for the messages between these two."""
        text_of_summary, summary = summary, str(uuid.uuid4())
        kept: dict[str, Any] = {"trigger": "auto", "preTokens": tokens[0], "postTokens": tokens[1]}
        if keeping is not None:
            kept["preservedSegment"] = {
                "headUuid": keeping[0], "anchorUuid": summary, "tailUuid": keeping[1]
            }  # fmt: skip
        self.line(type="system", subtype="compact_boundary", parentUuid=None, compactMetadata=kept)
        text = (
            "This session is being continued from a previous conversation that ran out of "
            "context. The summary below covers it.\n\nSummary:\n"
            f"{text_of_summary or f'Summary {summary[:8]}: modules cleaned.'}\n\n"
            "Continue the conversation from where it left off without asking the user anything."
        )
        self.line(
            type="user",
            uuid=summary,
            isCompactSummary=True,
            message={"role": "user", "content": text},
        )
        self._last = summary


class CodexRollout:
    """A rollout that grows as Codex's does."""

    def __init__(self, folder: Path) -> None:
        self.session_id = str(uuid.uuid4())
        self.path = folder / f"rollout-{self.session_id}.jsonl"
        self.meta()

    def meta(self, **fields: Any) -> None:
        own = {"id": self.session_id, "cli_version": "0.166.0", **fields}
        self._write("session_meta", own)

    def _write(self, kind: str, payload: dict[str, Any]) -> None:
        line = {"timestamp": "2026-11-17T01:00:00.000Z", "type": kind, "payload": payload}
        with self.path.open("a") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def user(self, text: str) -> None:
        self._message("user", "input_text", text)

    def reply(self, text: str) -> None:
        self._message("assistant", "output_text", text)

    def _message(self, role: str, kind: str, text: str) -> None:
        content = [{"type": kind, "text": text}]
        self._write("response_item", {"type": "message", "role": role, "content": content})

    def handed(self, text: str) -> None:
        self._message("developer", "input_text", text)

    def call(self, call_id: str, command: str) -> None:
        arguments = json.dumps({"cmd": command})
        call = {"type": "function_call", "call_id": call_id, "name": "exec_command"}
        self._write("response_item", {**call, "arguments": arguments})
        result = {"type": "function_call_output", "call_id": call_id, "output": "ok"}
        self._write("response_item", result)

    def compacted(
        self, kept: tuple[str, ...] = ("Summary: modules were cleaned up.",), encrypted: str = ""
    ) -> None:
        history: list[dict[str, Any]] = [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
            for text in kept
        ]
        if encrypted:
            history.append({"type": "compaction", "encrypted_content": encrypted})
        self._write("compacted", {"message": "", "replacement_history": history})
