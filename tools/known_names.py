"""The names that agents used so far: hooks, request fields, betas, transcript lines.

`just compatibility` compares today's agents with these lists. The readers in `core/formats` read a
few of the names and pass the others by. A name that is on no list is one that nobody has checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from recollect.core.formats.anthropic import SYSTEM_INSIDE_BETAS
from recollect.core.values.model import FormatName
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

REQUEST_FIELDS: Final[Mapping[FormatName, frozenset[str]]] = {
    "anthropic": frozenset(
        {"model", "messages", "system", "tools", "tool_choice", "max_tokens", "metadata", "stream"}
        | {
            "stop_sequences",
            "temperature",
            "top_k",
            "top_p",
            "thinking",
            "service_tier",
            "container",
        }
        | {"context_management", "output_config", "output_format", "mcp_servers", "inference_geo"}
        | {"cache_control", "diagnostics", "fallbacks", "safeguards", "speed"}
    ),
    "openai-chat": frozenset(
        {
            "model",
            "messages",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "stream",
            "stream_options",
        }
        | {
            "max_tokens",
            "max_completion_tokens",
            "temperature",
            "top_p",
            "stop",
            "seed",
            "n",
            "user",
        }
        | {
            "store",
            "metadata",
            "reasoning_effort",
            "response_format",
            "prompt_cache_key",
            "logprobs",
        }
        | {"prompt_cache_retention", "service_tier", "verbosity", "functions", "function_call"}
    ),
    "openai-responses": frozenset(
        {"model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "stream"}
        | {"stream_options", "store", "include", "reasoning", "text", "metadata", "client_metadata"}
        | {"max_output_tokens", "max_tool_calls", "previous_response_id", "prompt_cache_key"}
        | {"prompt_cache_retention", "service_tier", "temperature", "top_p", "truncation", "user"}
        | {"conversation", "background", "context_management", "safety_identifier"}
    ),
}
"""Top-level fields that are read, or passed through knowingly."""
BETAS: Final = (
    *SYSTEM_INSIDE_BETAS,
    "claude-code-",
    "interleaved-thinking-",
    "context-management-",
    "advanced-tool-use-",
    "effort-",
    "redact-thinking-",
    "structured-outputs-",
    "thinking-token-count-",
    "token-counting-",
    "fallback-credit-",
    "thinking-display-updates-",
)
"""How betas begin whose requests are understood, without their dates."""

CHAT_BLOCK_TYPES: Final = frozenset(
    {"text", "image_url", "input_audio", "file", "refusal", "audio", "function", "custom", "tool"}
    | {"function_call"}
)
RESPONSES_CONTENT_TYPES: Final = frozenset(
    {"input_text", "output_text", "input_image", "input_file", "input_audio", "refusal"}
    | {"reasoning_text", "summary_text"}
)

CLAUDE_LINE_TYPES: Final = frozenset(
    {"user", "assistant", "system", "attachment", "progress", "summary", "file-history-snapshot"}
    | {"queue-operation", "last-prompt", "mode", "cost-state", "tools-used", "atis-latch"}
    | {"api-request", "api-request-blob", "api-request-shape"}
)
"""Types of lines; those that neither speak nor carry the chain are passed by."""
CLAUDE_ATTACHMENT_TYPES: Final = frozenset(
    {"environment", "model", "deferred_tools_delta", "agent_listing_delta", "skill_listing"}
    | {"session_context", "date", "remote_session_change", "prompt_snapshot", "task_status"}
    | {"queued_command"}
)
"""What Claude Code attaches by itself. No message of anybody's, but for `queued_command`."""
CLAUDE_SYSTEM_SUBTYPES: Final = frozenset({"compact_boundary", "stop_hook_summary"})

CODEX_EVENT_TYPES: Final = frozenset(
    {"token_count", "task_started", "user_message", "thread_rolled_back"}
    | {"task_complete", "item_completed", "thread_settings_applied"}
)
"""Events; those that say nothing of the history are passed by."""

PI_ROLES: Final = frozenset(
    {"system", "user", "assistant", "toolResult", "bashExecution", "custom", "hookMessage"}
    | {"branchSummary", "compactionSummary"}
)
PI_BLOCK_TYPES: Final = frozenset({"text", "thinking", "image", "toolCall"})
