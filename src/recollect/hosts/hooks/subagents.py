"""Hooks of subagents: a task gets what it needs before it starts, and its result is stored in a
session of its own, as the agent's words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from recollect.core.engine import Engine
from recollect.core.formats.blocks import texts_of
from recollect.core.formats.json_text import decode_outer
from recollect.core.rules.text import clipped_sentences, without_recalled_blocks
from recollect.core.turn.past_turns import SUBAGENT_SESSIONS
from recollect.hosts.hooks.brief import task_context
from recollect.hosts.hooks.install import TASK_TOOLS
from recollect.hosts.hooks.transcript_file import AgentName, read_whole

_TASK_CHARS: Final = 240
"""Start of the task that a stored result begins with. Not measured; tasks may be pages long."""
_MIN_RESULT_CHARS: Final = 40
"""Shorter results, such as "done", tell nothing. Not measured."""


async def updated_task(
    engine: Engine, session: str, payload: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the input of a tool that starts a subagent, with what its task needs; None if there is
    nothing to add."""
    given = payload.get("tool_input")
    task = given.get("prompt") if isinstance(given, dict) else None
    if payload.get("tool_name") not in TASK_TOOLS.split("|") or not isinstance(task, str):
        return None
    assert isinstance(given, dict)
    added = await task_context(engine, session, task)
    return {**given, "prompt": f"{task}\n\n{added}"} if added else None


async def keep_result(
    engine: Engine, agent: AgentName, payload: Mapping[str, Any], folder: Path | None
) -> None:
    """Store a subagent's result. The agent that writes Claude Code's summaries has no type."""
    result = str(payload.get("last_assistant_message") or "").strip()
    agent_id = str(payload.get("agent_id") or "")
    if not payload.get("agent_type") or not agent_id.isalnum() or len(result) < _MIN_RESULT_CHARS:
        return
    task = _task_in(agent, str(payload.get("agent_transcript_path") or ""), folder)
    text = f"Task of a subagent: {task}\n\n{result}" if task else result
    message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    await engine.ingest(f"{SUBAGENT_SESSIONS}{agent_id}", [message], format="anthropic")


def _task_in(agent: AgentName, path: str, folder: Path | None) -> str:
    """Return the start of the task in a subagent's transcript, which is below the folder of the
    parent's transcript."""
    if folder is None or not Path(path).is_relative_to(folder):
        return ""
    transcript = read_whole(agent, path)
    if transcript is None or not transcript.items:
        return ""
    message = decode_outer(transcript.items[0].raw)
    content = message.get("content") if isinstance(message, dict) else None
    texts = [content] if isinstance(content, str) else texts_of(content or ())
    return clipped_sentences(
        without_recalled_blocks("\n".join(texts), any_spelling=True).strip(), _TASK_CHARS
    )
