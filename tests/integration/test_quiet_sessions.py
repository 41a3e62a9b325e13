"""Sessions in which nothing new happens: a correct summary says the same every time."""

from pathlib import Path
from typing import Any

import pytest
from tests.sizes import at_size

from recollect import open_memory
from recollect.core.values.model import Prompt
from recollect.testing.scripted_model import ScriptedModel

TURNS = at_size(ci=160, full=330)
WINDOW_TOKENS = at_size(ci=6_000, full=16_000)
SUMMARY = """## Goal
Watch the deployment and report problems.
## Decisions
none
## Progress
Regular checks of the services; all are healthy.
## Open TODOs
Keep checking the status of the services.
## Constraints/Rules
none
## Pending user asks
none
## Exact identifiers
none"""
HEALTHY = "All services are healthy. " * 12
QUIET: dict[str, Any] = {
    "the same words": lambda _: ("Check the status of the services again.", HEALTHY),
    "readings": lambda n: (
        "Check the services again.",
        f"All services are healthy, cpu at {n % 17}.{n % 7}%. " * 10,
    ),
    "thanks": lambda _: ("Thanks. Anything new?", "No, nothing new since the last check. " * 8),
}
NEWS = {
    "a decision": (
        "Decision: from now on we alert ops-night@quayside.example at port 9187.",
        "Ok.",
    ),
    "an order": ("Stop watching the east pump, it is broken.", "Noted."),
    "an alarm": (
        "Check the status of the services again.",
        "Alarm: pump pressure fell to 12 bar, shutting down the east line.",
    ),
    "a preference": ("Mail Ada instead of Grace about outages in the evening.", "Will do."),
}


def healthy(prompt: Prompt) -> str:
    return SUMMARY


async def talked(tmp_path: Path, talk: Any, model: ScriptedModel) -> tuple[Any, list[str]]:
    """The last turn's context, and every failure that a report names."""
    settings = {"window_tokens": WINDOW_TOKENS, "recall.embedder": "none"}
    failures: list[str] = []
    messages: list[dict[str, Any]] = []
    context: Any = None
    async with open_memory(store=tmp_path / "m.db", settings=settings, model=model) as memory:
        for turn in range(TURNS):
            question, answer = talk(turn)
            messages.append({"role": "user", "content": question})
            body = {"model": "claude-x", "max_tokens": 100, "messages": messages}
            context = await memory.prepare("s", body)
            failures += map(str, context.report.failures)
            messages.append({"role": "assistant", "content": answer})
            await memory.observe("s", messages[-1])
            await memory.settle()
    return context, failures


@pytest.mark.parametrize("kind", QUIET)
async def test_a_quiet_session_is_summarized_by_the_same_summary(tmp_path: Path, kind: str) -> None:
    model = ScriptedModel(healthy)
    context, failures = await talked(tmp_path, QUIET[kind], model)
    assert len(model.prompts) >= 2, "a later summary repeats the first one"
    assert failures == []
    assert "all are healthy" in str(context.request)
    kinds = {fate.fate for fate in context.report.fates()}
    assert "summarized" in kinds
    assert "left out" not in kinds, "every message that left the request is in the summary"


@pytest.mark.parametrize("kind", NEWS)
async def test_a_summary_that_ignores_news_is_refused(tmp_path: Path, kind: str) -> None:
    def talk(turn: int) -> tuple[str, str]:
        return NEWS[kind] if turn % 16 == 9 else QUIET["the same words"](turn)

    model = ScriptedModel(healthy)
    _, failures = await talked(tmp_path, talk, model)
    assert any("repeated the previous summary" in failure for failure in failures), failures
