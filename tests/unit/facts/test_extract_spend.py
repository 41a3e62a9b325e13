"""What reading a page for facts may cost: calls, tokens, time of the loop, memory."""

from __future__ import annotations

import asyncio
import random
import time
import tracemalloc

import pytest
from tests.unit.facts.fact_segments import answered, claim, segment

from recollect.core.facts.extract import extract
from recollect.core.facts.reading import (
    COUNT_MARGIN,
    PROMPT_TOKENS,
    call_tokens,
    extraction_prompt,
    fitting_tokens,
    read_page,
)
from recollect.core.rules.tokens import count_text
from recollect.testing.scripted_model import ScriptedModel

STATED = "Orders travel from the gateway of the shop into the ledger by way of some queue."
CLAIM = claim(STATED, STATED, "architecture")
FILLER = "The folder of the docs is in the repository of the team since spring. "


@pytest.mark.parametrize(
    "sentence", ["Use Redis. ", FILLER, "端口是 7020。", "The port of shop 17 is 9000; we use it. "]
)
@pytest.mark.parametrize("messages", [1, 120])
def test_a_prompt_takes_no_more_than_it_is_charged_for(sentence: str, messages: int) -> None:
    before = [segment("user", FILLER * 40)]
    said = [segment("user", sentence * (1_200 // messages), 1 + at) for at in range(messages)]
    page = read_page(said, tokens=2_000, before=before)
    prompt = extraction_prompt(page, max_output_tokens=600)
    size = count_text(prompt.system) + count_text(prompt.text)
    assert size <= 2_000 + PROMPT_TOKENS
    assert size * COUNT_MARGIN + 600 <= call_tokens(2_000, 600)
    assert call_tokens(fitting_tokens(9_999, 4_096, 600), 600) <= 4_096


def test_others_need_not_wait_while_a_large_message_is_read() -> None:
    model = ScriptedModel(lambda _: answered([CLAIM]))
    started = time.thread_time()
    said = [segment("assistant", STATED + " " + FILLER * 3_000)]
    found = asyncio.run(extract(said, (), model=model, max_output_tokens=600, now=1e9))
    assert found.asked
    # the loop's own thread: what it computes nobody else can use
    assert time.thread_time() - started < 0.25


def test_nothing_of_what_was_read_stays_in_memory() -> None:
    drawn = random.Random(6)
    page = " ".join(f"w{drawn.getrandbits(60):x}" for _ in range(20_000))
    said = segment("assistant", STATED, 1)

    def once(text: str) -> None:
        tool = segment("tool", text, trust="outside")
        model = ScriptedModel([answered([CLAIM])])
        assert asyncio.run(
            extract([tool, said], (), model=model, max_output_tokens=9, now=1e9)
        ).drafts

    once(page)  # what is loaded once stays
    tracemalloc.start()
    try:
        once(page + " more")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < len(page)
