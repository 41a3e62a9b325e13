"""A model that fails in any way while it summarises: history intact, no false success.

Through the real engine, a real adapter and a real HTTP server on this machine; then, over any
sequence of faults, through the summarising stage alone.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
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


def body(turns: int = 36) -> bytes:
    messages: list[dict[str, Any]] = []
    for n in range(turns):
        messages.append({"role": "user", "content": f"Question {n}: {WORDS * 8}"})
        messages.append({"role": "assistant", "content": f"Answer {n}: {WORDS * 8}"})
    messages.append({"role": "user", "content": "And how do readers wait for the stream?"})
    return json.dumps({"model": "m", "max_tokens": 500, "messages": messages}).encode()


@dataclass
class Outcome:
    done: CompactionResult
    before: bytes
    after: bytes
    edits_before: Any
    edits_after: Any


def compacted(server: ModelServer, window: int = WINDOW, seconds: float = 20.0) -> Outcome:
    """Prepare, compact, prepare again: what went out before and after."""

    async def run() -> Outcome:
        model = AnthropicModel(
            model="scripted",
            base_url=server.url,
            deadline_seconds=seconds,
            window_tokens=window,
            retries=Retries(times=0),
        )
        engine = Engine(
            build({"window_tokens": 20_000, "compaction.keep_recent_tokens": 1_000}),
            model=model,
            compact_in_background=False,
        )
        session = Session("s")
        first = await engine.prepare(session, body(), format="anthropic")
        edits = session.state.edits
        done = await engine.compact(session)
        again = await engine.prepare(session, body(), format="anthropic")
        await model.close()
        return Outcome(
            done=done,
            before=first.request,
            after=again.request,
            edits_before=edits,
            edits_after=session.state.edits,
        )

    return asyncio.run(run())


def failed_cleanly(outcome: Outcome, server: ModelServer) -> CompactionResult:
    done = outcome.done
    assert done.convergence == "failed"
    assert not done.compacted
    assert done.summary == ""
    assert str(done.reason)
    assert 0 < len(server.asked) <= done.spent.calls <= done.spent.max_calls
    assert outcome.edits_after == outcome.edits_before
    assert outcome.after == outcome.before
    return done


FAULTS: dict[str, tuple[Says | Fails, str]] = {
    "timeout": (Says(hang_after_events=0), "unavailable"),
    "500": (Fails(status=500), "unavailable"),
    "overloaded": (Fails(status=529), "unavailable"),
    "wrong key": (Fails(status=401), "refused the call"),
    "empty text": (Says(text=""), "empty"),
    "blank text": (Says(text=" \n "), "empty"),
    "refusal in words": (Says(text=SAID), "refused to summarize"),
    "refusal": (Says(text="", stop="refusal"), "refused to summarize"),
    "garbage": (Says(text="0x0000 !!!! #### 1111 ,,,,"), "letter"),
    "loop": (Says(text=LOOP), "repeated"),
    "longer than its input": (Says(text=LONG), "longer"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_stays_leaves_the_history_as_it_is(fault: str) -> None:
    step, why = FAULTS[fault]
    seconds = 0.5 if fault == "timeout" else 20.0
    with ModelServer(lambda asked: step) as server:
        done = failed_cleanly(compacted(server, seconds=seconds), server)
    assert why in str(done.reason)
    assert SAID not in str(done.reason)


def test_the_conversation_given_back_is_no_summary() -> None:
    def echo(asked: Asked) -> Says:
        text = asked.body["messages"][-1]["content"]
        told = text if isinstance(text, str) else text[-1]["text"]
        return Says(text=told.partition("<conversation>")[2][:2_000])

    with ModelServer(echo) as server:
        failed_cleanly(compacted(server), server)


@pytest.mark.parametrize("fault", ["500", "empty text", "refusal in words", "garbage", "loop"])
def test_a_fault_that_passes_costs_one_call_and_no_history(fault: str) -> None:
    asked: list[int] = []

    def answer(_: Asked) -> Says | Fails:
        asked.append(1)
        return FAULTS[fault][0] if len(asked) == 2 else Says(text=good_summary(f"no{len(asked)}"))

    with ModelServer(answer) as server:
        outcome = compacted(server)
    assert outcome.done.convergence == "reduced"
    assert outcome.done.spent.calls == len(asked) <= outcome.done.spent.max_calls
    assert "Question 35" in outcome.after.decode()


def test_a_call_that_overflows_is_made_smaller_by_the_limit_it_names() -> None:
    count = 0

    def answer(_: Asked) -> Says:
        nonlocal count
        count += 1
        return Says(text=good_summary(f"no{count}"))

    with ModelServer(answer, window_tokens=4_000) as server:
        outcome = compacted(server, window=16_000)
    done = outcome.done
    assert done.convergence == "reduced"
    assert any("4,000 tokens" in note for note in done.notes)
    assert len(server.asked) == done.spent.calls <= done.spent.max_calls


def test_a_call_that_always_overflows_fails() -> None:
    with ModelServer(window_tokens=10) as server:
        done = failed_cleanly(compacted(server), server)
    assert "did not fit" in str(done.reason)


def test_a_bad_key_is_not_tried_twice() -> None:
    with ModelServer(lambda asked: Fails(status=401)) as server:
        assert failed_cleanly(compacted(server), server).spent.calls == 1


def test_a_model_that_is_away_is_asked_once_more() -> None:
    with ModelServer(lambda asked: Fails(status=500)) as server:
        assert failed_cleanly(compacted(server), server).spent.calls == 2


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
