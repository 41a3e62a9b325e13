"""What reading a page for facts may cost: calls, tokens, time of the loop, memory."""

import pytest
from tests.unit.facts.fact_segments import segment

from recollect.core.facts.reading import (
    COUNT_MARGIN,
    PROMPT_TOKENS,
    call_tokens,
    extraction_prompt,
    fitting_tokens,
    read_page,
)
from recollect.core.rules.tokens import count_text

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
