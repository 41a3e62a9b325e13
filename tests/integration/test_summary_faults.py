"""A model that fails in any way while it summarises: history intact, no false success.

Through the real engine, a real adapter and a real HTTP server on this machine; then, over any
sequence of faults, through the summarising stage alone."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.harness.model_server import Asked, ModelServer
from tests.sizes import at_size
from tests.unit.compaction.worked import (
    RULES,
    WORDS,
    compaction,
    good_summary,
    long_history,
    plan_of,
)

from recollect.adapters.providers.anthropic import AnthropicModel
from recollect.core.compaction.summarize import Summarizer
from recollect.core.engine import Engine, Session
from recollect.core.values.compaction import CompactionResult, NoSummary, Summarized
from recollect.core.values.model import Answer, Overflow, Prompt
from recollect.errors import ModelError, ModelOverflow, ModelRefused, ModelUnavailable
from recollect.system.config import build
from recollect.system.http import Retries
from recollect.testing.scripted_model import Fails, Says, ScriptedModel

WINDOW = 12_000
SAID = "I cannot help with that."
LOOP = "- the parser streams\n" * 30
LONG = "".join(f"- reader{n} of part{n} waits{n}\n" for n in range(4_000))
FAULTS: dict[str, Says | Fails] = {
    "500": Fails(status=500),
    "empty text": Says(text=""),
    "refusal in words": Says(text=SAID),
    "garbage": Says(text="0x0000 !!!! #### 1111 ,,,,"),
    "loop": Says(text=LOOP),
}


def body(turns: int = 36) -> bytes:
    messages: list[dict[str, Any]] = []
    for n in range(turns):
        messages.append({"role": "user", "content": f"Question {n}: {WORDS * 8}"})
        messages.append({"role": "assistant", "content": f"Answer {n}: {WORDS * 8}"})
    messages.append({"role": "user", "content": "And how do readers wait for the stream?"})
    return json.dumps({"model": "m", "max_tokens": 500, "messages": messages}).encode()


async def compacted(server: ModelServer) -> tuple[CompactionResult, bytes, bytes]:
    """Prepare, compact, prepare again: the result, and what was sent before and after."""
    retries = Retries(times=0)
    model = AnthropicModel(
        model="scripted", base_url=server.url, window_tokens=WINDOW, retries=retries
    )
    settings = build({"window_tokens": 20_000, "compaction.keep_recent_tokens": 1_000})
    engine = Engine(settings, model=model, compact_in_background=False)
    session = Session("s")
    before = (await engine.prepare(session, body(), format="anthropic")).request
    done = await engine.compact(session)
    after = (await engine.prepare(session, body(), format="anthropic")).request
    await model.close()
    return done, before, after


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_that_passes_costs_one_call_and_no_history(fault: str) -> None:
    asked: list[int] = []

    def answer(_: Asked) -> Says | Fails:
        asked.append(1)
        return FAULTS[fault] if len(asked) == 2 else Says(text=good_summary(f"no{len(asked)}"))

    with ModelServer(answer) as server:
        done, _, after = await compacted(server)
    assert done.convergence == "reduced"
    assert done.spent.calls == len(asked) <= done.spent.max_calls
    assert "Question 35" in after.decode()


@pytest.mark.parametrize(
    ("status", "calls", "why"),
    [(401, 1, "refused the call"), (500, 2, "unavailable"), (529, 2, "unavailable")],
)
async def test_a_bad_key_is_not_tried_twice_and_a_model_that_is_away_once_more(
    status: int, calls: int, why: str
) -> None:
    with ModelServer(lambda _: Fails(status=status)) as server:
        done, before, after = await compacted(server)
    assert (done.convergence, done.summary) == ("failed", "")
    assert why in str(done.reason)
    assert len(server.asked) == done.spent.calls == calls
    assert after == before


Step = Callable[[Prompt, int], "str | Answer | ModelError"]
STEPS: dict[str, Step] = {
    "good": lambda prompt, n: good_summary(f"GOOD{n}"),
    "plain": lambda prompt, n: f"GOOD{n}: the parser streams, and readers wait.",
    "empty": lambda prompt, n: "",
    "refused": lambda prompt, n: SAID,
    "garbage": lambda prompt, n: "%%%% 000 ////",
    "loop": lambda prompt, n: LOOP,
    "long": lambda prompt, n: LONG,
    "echo": lambda prompt, n: prompt.text,
    "cut off": lambda prompt, n: Answer(text=f"## Goal\nGOOD{n} and", stop="length"),
    "away": lambda prompt, n: ModelUnavailable("away"),
    "bad": lambda prompt, n: ModelError("bad"),
    "never": lambda prompt, n: ModelRefused("never"),
    "overflow": lambda prompt, n: ModelOverflow("too large"),
    "limit": lambda prompt, n: ModelOverflow(
        "too large", Overflow(pattern_name="p", limit_tokens=6_000)
    ),
    "tiny": lambda prompt, n: ModelOverflow(
        "too large", Overflow(pattern_name="p", limit_tokens=400)
    ),
}


@settings(max_examples=at_size(ci=25, full=60))
@given(
    script=st.lists(st.sampled_from(["good", *STEPS]), min_size=1, max_size=12),
    last=st.sampled_from(sorted(STEPS)),
    turns=st.integers(1, 40),
    prefix=st.integers(0, 8),
    mode=st.sampled_from(["safeguard", "default"]),
    audit=st.booleans(),
    previous=st.booleans(),
)
def test_any_sequence_of_faults_ends_within_the_stated_bound(
    script: list[str], last: str, turns: int, prefix: int, mode: str, audit: bool, previous: bool
) -> None:
    asked: list[str] = []

    def answer(prompt: Prompt) -> Any:
        step = script[len(asked)] if len(asked) < len(script) else last
        asked.append(step)
        return STEPS[step](prompt, len(asked))

    model = ScriptedModel(answer)
    plan = plan_of(long_history(turns), long_history(prefix))
    made = Summarizer(model.ask, compaction(mode=mode, audit=audit), RULES, window_tokens=WINDOW)
    done = asyncio.run(made.summarize(plan, good_summary("OLD") if previous else ""))
    assert len(asked) == done.spent.calls <= done.spent.max_calls
    if isinstance(done, Summarized):
        assert "GOOD" in done.text
        assert SAID not in done.text
        assert "%%%%" not in done.text
    else:
        assert isinstance(done, NoSummary)
        assert set(asked) & (set(STEPS) - {"good", "plain"})
        if "never" in asked:
            assert asked[-1] == "never"
