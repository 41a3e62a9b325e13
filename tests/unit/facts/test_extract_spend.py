"""What reading a page for facts may cost: calls, tokens, time of the loop, memory."""

from __future__ import annotations

import asyncio
import random
import time
import tracemalloc

import pytest
from tests.unit.facts.fact_segments import answered, claim, segment

from recollect.core.facts.claims import Claim, draft_claim
from recollect.core.facts.extract import MOST_CALLS, OVERLAP_TOKENS, Extracted, extract
from recollect.core.facts.reading import (
    COUNT_MARGIN,
    PROMPT_TOKENS,
    Piece,
    ReadingWindow,
    call_tokens,
    extraction_prompt,
    fitting_tokens,
    lines_of,
    windows,
)
from recollect.core.rules.tokens import count_text
from recollect.errors import ModelUnavailable
from recollect.testing.scripted_model import ScriptedModel

STATED = "Orders travel from the gateway of the shop into the ledger by way of some queue."
CLAIM = claim(STATED, STATED, "architecture")
FILLER = "The folder of the docs is in the repository of the team since spring. "
LONG = STATED + " " + FILLER * 1_500


def read(model: ScriptedModel, text: str = LONG, max_calls: int = MOST_CALLS) -> Extracted:
    return asyncio.run(
        extract(
            [segment("assistant", text)],
            (),
            model=model,
            max_output_tokens=600,
            now=1e9,
            max_calls=max_calls,
        )
    )


def test_a_model_is_asked_only_so_often_and_what_it_did_not_read_is_told() -> None:
    model = ScriptedModel(lambda prompt: answered([CLAIM] if STATED in prompt.text else []))
    found = read(model, max_calls=3)
    assert len(model.prompts) == 3
    assert [draft.content for draft in found.drafts if draft.made_by == "model"] == [STATED]
    assert found.left_out.startswith("the model read 3 of ")
    assert found.left_out in found.reason
    all_of_it = ScriptedModel(lambda _: answered([]))
    assert len(LONG) > 100_000
    assert "windows" in read(all_of_it).reason
    assert len(all_of_it.prompts) == MOST_CALLS
    assert read(ScriptedModel([answered([])]), STATED).left_out == ""


def test_a_model_that_fails_later_leaves_what_it_found_and_that_is_told() -> None:
    model = ScriptedModel([answered([CLAIM]), answered([]), ModelUnavailable("away")])
    found = read(model)
    model.check()
    assert [draft.content for draft in found.drafts if draft.made_by == "model"] == [STATED]
    assert found.spent_tokens > 0
    assert "the model read 2 of " in found.reason
    assert "then it failed (away)" in found.left_out
    with pytest.raises(ModelUnavailable):
        read(ScriptedModel([ModelUnavailable("away")]))


@pytest.mark.parametrize(
    "sentence", ["Use Redis. ", FILLER, "端口是 7020。", "The port of shop 17 is 9000; we use it. "]
)
@pytest.mark.parametrize("messages", [1, 120])
def test_a_prompt_takes_no_more_than_it_is_charged_for(sentence: str, messages: int) -> None:
    before = [segment("user", FILLER * 40)]
    cut = windows(
        [segment("user", sentence * (1_200 // messages), 1 + at) for at in range(messages)],
        tokens=2_000,
        overlap_tokens=OVERLAP_TOKENS,
        before=before,
    )
    assert len(cut) > 2
    for stretch in cut[:3]:
        prompt = extraction_prompt(stretch, lines_of(stretch), max_output_tokens=600)
        size = count_text(prompt.system) + count_text(prompt.text)
        assert size <= 2_000 + PROMPT_TOKENS
        assert size * COUNT_MARGIN + 600 <= call_tokens(2_000, 600)
    assert call_tokens(fitting_tokens(9_999, 4_096, 600), 600) <= 4_096


def test_others_need_not_wait_while_a_large_message_is_read() -> None:
    model = ScriptedModel(lambda _: answered([CLAIM]))
    started = time.thread_time()
    found = read(model, STATED + " " + FILLER * 3_000)
    assert found.asked
    # the loop's own thread: what it computes nobody else can use
    assert time.thread_time() - started < 0.25


def test_a_claim_about_a_long_message_is_held_against_its_own_part() -> None:
    text = FILLER * 15_000 + STATED + " " + FILLER * 15_000
    start = text.index(STATED)
    piece = Piece(
        segment=segment("assistant", text),
        start=start - 700,
        end=start + 700,
        shown="",
        text=text,
        tokens=0,
    )
    stretch = ReadingWindow(new=(piece,))
    said = Claim(line=9, quote=STATED, type="config", content=STATED, subject="", attribute="")
    started = time.thread_time()
    made = [draft_claim(said, stretch, lines_of(stretch)).draft for _ in range(12)]
    assert time.thread_time() - started < 0.5
    assert made[0] is not None
    (evidence,) = made[0].evidence
    assert (evidence.start, evidence.end) == (start, start + len(STATED))


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
