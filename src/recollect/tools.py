"""Memory tools: ready definitions in each wire format, and one handler that answers their calls.

    from recollect.tools import memory_tools

    tools = memory_tools(memory, session="my-session")
    request["tools"] = [*own_tools, *tools.definitions("anthropic")]
    answer = await tools.call(block.name, block.input)  # answer.text, answer.is_error

The terminal agent and the MCP server use these tools, and so can your own loop, in any wire format.
Each name is imported on first use, so listing the tools does not load the engine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recollect.hosts.tools.anthropic_memory import (
        AnthropicMemoryTool,
        BlockingAnthropicMemoryTool,
        anthropic_memory_tool,
    )
    from recollect.hosts.tools.arguments import ToolName
    from recollect.hosts.tools.handler import (
        BlockingMemoryTools,
        ForgetRequest,
        MemoryAnswer,
        MemoryTools,
        memory_tools,
    )

__all__ = [
    "AnthropicMemoryTool",
    "BlockingAnthropicMemoryTool",
    "BlockingMemoryTools",
    "ForgetRequest",
    "MemoryAnswer",
    "MemoryTools",
    "ToolName",
    "anthropic_memory_tool",
    "memory_tools",
]
_MODULES = {
    "AnthropicMemoryTool": "anthropic_memory",
    "BlockingAnthropicMemoryTool": "anthropic_memory",
    "ToolName": "arguments",
    "anthropic_memory_tool": "anthropic_memory",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"recollect.hosts.tools.{_MODULES.get(name, 'handler')}"), name)
