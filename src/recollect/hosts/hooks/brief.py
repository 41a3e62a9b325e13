"""What hooks add from the order of earlier sessions: the brief at a session's start, answers to
prompts about time and continuation, and what a subagent's task needs."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from recollect.core.engine import Engine
from recollect.core.engine.past import read_stored_past
from recollect.core.formats.recalled_block import recalled_items, write_block
from recollect.core.search.moments import moment_asked
from recollect.core.turn.brief import rules_block, write_brief, write_moment
from recollect.core.values.recall import RecalledPassage

TASK_TOKENS: Final = 200
"""Token limit of memories for a subagent's task, in addition to the rules."""
RULES_TOKENS: Final = 260
"""Token limit of the rules for a subagent."""
COMPACTED_TOKENS: Final = 150
"""Token limit of other sessions' rules after the agent's own compaction."""
_TASK_CHARS: Final = 600
"""The start of a task is searched for. Not measured; tasks begin with what they are about."""
_MAX_PASSAGES: Final = 4


async def session_brief(engine: Engine, session: str, folder: str) -> str:
    """Return the brief for a new session; empty if memory is empty."""
    past = await read_stored_past(engine.parts, without=session, folder=folder)
    return write_brief(past, zone=None, count_tokens=engine.parts.weigher.text)


async def standing_rules_block(engine: Engine, session: str) -> str:
    """Return the rules of other sessions that still hold, for an agent that has just compacted."""
    past = await read_stored_past(engine.parts, without="")  # this session may withdraw some
    own = {turn.said_at for turn in past.turns if turn.session == session}
    past = replace(past, rules=tuple(rule for rule in past.rules if rule.said_at not in own))
    return rules_block(past, engine.parts.weigher.text, COMPACTED_TOKENS)


async def moment_answer(
    engine: Engine, session: str, folder: str, prompt: str, *, has_window: bool
) -> str:
    """Return the answer to a prompt about time or continuation; empty for other prompts, and if the
    agent's window has what the prompt asks for."""
    moment = moment_asked(prompt, now=time.time(), zone=None)
    if moment is None or (has_window and moment.kind == "last"):
        return ""
    past = await read_stored_past(engine.parts, without=session, folder=folder)
    return write_moment(past, moment, zone=None)


async def task_context(engine: Engine, session: str, task: str) -> str:
    """Return what a subagent needs for its task: the user's rules, and memories of the task."""
    past = await read_stored_past(engine.parts, without="")
    rules = rules_block(past, engine.parts.weigher.text, RULES_TOKENS)
    recalled = await engine.search(task[:_TASK_CHARS], session=session, budget_tokens=TASK_TOKENS)
    told = recalled_items(rules)
    passages = [
        passage
        for passage in recalled.passages
        if _is_said(passage) and not any(item in passage.text for item in told)
    ]
    memories = write_block((), passages[:_MAX_PASSAGES]) if passages else ""
    return "\n".join(filter(None, (rules, memories)))


def _is_said(passage: RecalledPassage) -> bool:
    """Return whether a person or the model said it, and no tool."""
    return passage.role in ("user", "assistant") and passage.speaker in (None, "", passage.role)
