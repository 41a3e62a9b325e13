"""The tools that an agent has unless its host gives others."""

from __future__ import annotations

from recollect.agent.tools.confine import ToolScope
from recollect.agent.tools.files import edit_tool, read_tool, write_tool
from recollect.agent.tools.outcome import Tool
from recollect.agent.tools.shell import bash_tool


def default_tools(ground: ToolScope) -> tuple[Tool, ...]:
    """read, write, edit and bash, bound to a workspace."""
    return (read_tool(ground), write_tool(ground), edit_tool(ground), bash_tool(ground))
