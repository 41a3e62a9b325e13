"""Requests that schemathesis makes from a description of the gateway's routes: no 5xx of ours.

`python -m tools.gateway_schema`; `pip install schemathesis` first, which brings much with
it and so is no dependency. Behind the gateway stands a provider that answers 200 to everything it
is asked, so that any other status is the gateway's own.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.harness.model_server import ModelServer

from recollect.testing.scripted_model import Fails
from tools.clients.lab import GatewayProcess

CHECKS: Final = "not_a_server_error"
SECONDS: Final = 120
_TEXT: Final = {"type": "string"}
_ROLE: Final = {"enum": ["user", "assistant", "system", "developer", "tool"]}
_PARTS: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {
                "enum": [
                    "text",
                    "input_text",
                    "output_text",
                    "image",
                    "thinking",
                    "tool_use",
                    "tool_result",
                    "refusal",
                    "input_image",
                ]
            },
            "text": _TEXT,
            "id": _TEXT,
            "name": _TEXT,
            "input": {"type": "object"},
            "tool_use_id": _TEXT,
            "thinking": _TEXT,
            "signature": _TEXT,
            "content": {"anyOf": [_TEXT, {"type": "array"}]},
            "cache_control": {"type": "object"},
        },
    },
}
_CONTENT: Final = {"anyOf": [_TEXT, _PARTS, {"type": "null"}]}
_CALL: Final = {
    "type": "object",
    "properties": {
        "id": _TEXT,
        "type": {"enum": ["function"]},
        "function": {"type": "object", "properties": {"name": _TEXT, "arguments": _TEXT}},
    },
}
_MESSAGE: Final = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": _ROLE,
        "content": _CONTENT,
        "tool_calls": {"type": "array", "items": _CALL},
        "tool_call_id": _TEXT,
    },
}
_ITEM: Final = {
    "type": "object",
    "properties": {
        "type": {
            "enum": [
                "message",
                "function_call",
                "function_call_output",
                "reasoning",
                "compaction",
                "item_reference",
            ]
        },
        "role": _ROLE,
        "content": _CONTENT,
        "id": _TEXT,
        "call_id": _TEXT,
        "name": _TEXT,
        "arguments": _TEXT,
        "output": _CONTENT,
        "summary": _PARTS,
        "encrypted_content": _TEXT,
    },
}
_HEADERS: Final = (
    "x-recollect-session",
    "x-recollect-space",
    "x-claude-code-session-id",
    "x-claude-code-agent-id",
    "x-session-id",
    "thread-id",
    "x-codex-turn-metadata",
    "anthropic-beta",
    "user-agent",
)


def _request(**properties: Any) -> dict[str, Any]:
    """A route of a provider's, whose body has these fields and any others."""
    fields = {
        "model": _TEXT,
        "stream": {"type": "boolean"},
        "max_tokens": {"type": "integer"},
        "tools": {"type": "array", "items": {"type": "object"}},
        "metadata": {"type": "object"},
        **properties,
    }
    schema = {"type": "object", "required": ["model", *properties], "properties": fields}
    return {
        "post": {
            "parameters": [
                {"name": name, "in": "header", "required": False, "schema": _TEXT}
                for name in _HEADERS
            ]
            + [{"name": "beta", "in": "query", "required": False, "schema": _TEXT}],
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
            "responses": {"200": {"description": "the provider's"}},
        }
    }


def _page(*parameters: dict[str, Any]) -> dict[str, Any]:
    return {"get": {"parameters": list(parameters), "responses": {"200": {"description": "ours"}}}}


_MESSAGES: Final = {"type": "array", "items": _MESSAGE}
DESCRIPTION: Final[dict[str, Any]] = {
    "openapi": "3.0.3",
    "info": {"title": "The gateway", "version": "1"},
    "paths": {
        "/v1/messages": _request(messages=_MESSAGES, system=_CONTENT),
        "/v1/messages/count_tokens": _request(messages=_MESSAGES),
        "/v1/chat/completions": _request(messages=_MESSAGES),
        "/v1/responses": _request(
            input={"anyOf": [_TEXT, {"type": "array", "items": _ITEM}]},
            instructions=_TEXT,
            prompt_cache_key=_TEXT,
        ),
        "/v1/models": _page(),
        "/v1/files": _page({"name": "limit", "in": "query", "schema": _TEXT}),
        "/recollect/health": _page(),
        # not /recollect/activity: it never ends where it is not told follow=0
        "/recollect/reports/{session}": _page(
            {"name": "session", "in": "path", "required": True, "schema": _TEXT}
        ),
    },
}


def main(arguments: Sequence[str]) -> int:
    """Run it; its own status, or 2 where it is not installed."""
    parser = argparse.ArgumentParser(prog="python -m tools.gateway_schema")
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    program = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    if program is None:
        sys.stderr.write("no schemathesis: pip install schemathesis\n")
        return 2
    says = Fails(status=200, body={"id": "x", "content": [], "choices": [], "output": []})
    pages: dict[str, Any] = {"/v1/models": {"data": []}}
    with (
        tempfile.TemporaryDirectory(prefix="recollect-schema-") as name,
        ModelServer(lambda _: says, pages=pages) as server,
    ):
        folder = Path(name)
        file = folder / "gateway.json"
        file.write_text(json.dumps(DESCRIPTION), encoding="utf-8")
        gateway = GatewayProcess(folder / "gateway", server.url, **{"recall.embedder": "none"})
        try:
            return subprocess.run(
                [
                    program,
                    "run",
                    str(file),
                    "--url",
                    gateway.url,
                    "--checks",
                    CHECKS,
                    "--max-time",
                    str(options.seconds),
                    "--seed",
                    str(options.seed),
                    "--phases",
                    "examples,coverage,fuzzing",
                    "--continue-on-failure",
                    "--request-timeout",
                    "30",
                    "--no-color",
                ],
                cwd=folder,
                check=False,
            ).returncode
        finally:
            gateway.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
