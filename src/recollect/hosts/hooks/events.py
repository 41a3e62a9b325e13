"""The hooks that agents call, and the fields of each: what `just compatibility` holds them against.

`HookMemory` reads a few of these and passes the others by. An event, or a field, that is on no list
here is one that nobody has looked at yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from recollect.hosts.hooks.transcript_file import AgentName

_CLAUDE_COMMON: Final = frozenset(
    {"session_id", "transcript_path", "cwd", "hook_event_name", "permission_mode", "prompt_id"}
    | {"effort", "agent_id", "agent_type"}
)
_CODEX_COMMON: Final = frozenset(
    {"session_id", "transcript_path", "cwd", "hook_event_name", "permission_mode", "model"}
    | {"turn_id"}
)
_TOOL: Final = frozenset({"tool_name", "tool_input", "tool_use_id"})
_STOP: Final = frozenset({"stop_hook_active", "last_assistant_message"})
_RUNNING: Final = frozenset({"background_tasks", "session_crons"})
_CLAUDE_OTHER: Final = (
    "Notification",
    "PermissionRequest",
    "PermissionDenied",
    "PreModelSwitch",
    "PostModelSwitch",
    "Setup",
    "StopFailure",
    "TaskCreated",
    "TaskCompleted",
    "TeammateIdle",
    "Elicitation",
    "ElicitationResult",
    "ConfigChange",
    "WorktreeCreate",
    "WorktreeRemove",
    "CwdChanged",
    "FileChanged",
    "DirectoryAdded",
    "UserPromptExpansion",
)
"""Never asked for by us, and none was called in a run without a terminal."""

HOOK_EVENTS: Final[Mapping[AgentName, Mapping[str, frozenset[str]]]] = {
    "claude-code": {
        **dict.fromkeys(_CLAUDE_OTHER, _CLAUDE_COMMON),
        "SessionStart": _CLAUDE_COMMON
        | {"source", "model", "context_tokens", "seconds_since_last_response"}
        | {"prompt_cache_likely_expired", "estimated_cache_write_usd"},
        "UserPromptSubmit": _CLAUDE_COMMON | {"prompt"},
        "PreToolUse": _CLAUDE_COMMON | _TOOL,
        "PostToolUse": _CLAUDE_COMMON | _TOOL | {"tool_response", "duration_ms"},
        "PostToolUseFailure": _CLAUDE_COMMON | _TOOL | {"error", "is_interrupt", "duration_ms"},
        "PostToolBatch": _CLAUDE_COMMON | {"tool_calls"},
        "MessageDisplay": _CLAUDE_COMMON | {"turn_id", "message_id", "index", "delta", "final"},
        "Stop": _CLAUDE_COMMON | _STOP | _RUNNING,
        "SubagentStart": _CLAUDE_COMMON,
        "SubagentStop": _CLAUDE_COMMON | _STOP | _RUNNING | {"agent_transcript_path"},
        "PreCompact": _CLAUDE_COMMON | {"trigger", "custom_instructions"},
        "PostCompact": _CLAUDE_COMMON | {"trigger", "compact_summary"},
        "InstructionsLoaded": _CLAUDE_COMMON | {"file_path", "load_reason", "memory_type"},
        "SessionEnd": _CLAUDE_COMMON | {"reason"},
    },
    "codex": {
        "SessionStart": _CODEX_COMMON | {"source"},
        "UserPromptSubmit": _CODEX_COMMON | {"prompt"},
        "PreToolUse": _CODEX_COMMON | _TOOL,
        "PostToolUse": _CODEX_COMMON | _TOOL | {"tool_response"},
        "PermissionRequest": _CODEX_COMMON | _TOOL,
        "Stop": _CODEX_COMMON | _STOP,
        "SubagentStart": _CODEX_COMMON,
        "SubagentStop": _CODEX_COMMON | _STOP,
        "PreCompact": _CODEX_COMMON | {"trigger"},
        "PostCompact": _CODEX_COMMON | {"trigger"},
        "Interrupt": _CODEX_COMMON,
        "SessionEnd": _CODEX_COMMON | {"reason"},
    },
}
