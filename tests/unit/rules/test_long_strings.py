"""Secrets in very long strings of JSON, and texts that are judged a second time."""

import json

from tests.harness.waiting import assert_linear, processor_seconds
from tests.sizes import at_size

from recollect.core.rules.message_redaction import TextMask, redact_json
from recollect.core.rules.redaction import JudgedTexts, redact
from recollect.system.config.settings import Redaction
from recollect_bench.redaction_data import load_kinds

FILLER = "The crane moves cargo over the quay while the tide comes in.\n" * 700
ALONE = "hQ7zP4mT9wK2xV8nB3"


def test_a_secret_in_the_middle_of_a_long_string_is_masked_as_in_its_own_text() -> None:
    """Counts only; every sixth kind, spelled with the escapes that JSON needs."""
    kinds = [kind for kind in load_kinds("tune") if not kind.lookalike][::6]
    missed = 0
    for kind in kinds:
        text, secrets = kind.fill(1)
        alone = redact(text).text
        raw = json.dumps({"content": f"{FILLER}\n\n{text}\n\n{FILLER}"}).encode()
        masked = json.loads(redact_json(raw)[0])["content"]
        missed += any(one in masked for one in secrets if one not in alone)
    assert len(kinds) > 20
    assert missed == 0


def test_a_secret_in_long_json_inside_json_is_masked_as_in_short_json() -> None:
    """Counts only; a tool's answer is often JSON in a string of the message's JSON."""

    def masked(text: str) -> str:
        raw = json.dumps({"content": json.dumps({"out": text})}).encode()
        inner: str = json.loads(redact_json(raw)[0])["content"]
        return inner

    kinds = [kind for kind in load_kinds("tune") if not kind.lookalike][:: at_size(ci=3, full=1)]
    around = FILLER[:20_000]
    missed = 0
    for kind in kinds:
        text, filled = kind.fill(1)
        secrets = [json.dumps(one)[1:-1] for one in filled]
        short, long = masked(f"\n{text}\n"), masked(f"{around}\n{text}\n{around}")
        missed += any(one in long for one in secrets if one not in short)
    assert len(kinds) > 40
    assert missed == 0


def test_a_message_of_two_million_characters_is_masked_in_linear_time() -> None:
    def mask(fillers: int) -> None:
        content = json.dumps({"out": FILLER * fillers + f"API_TOKEN={ALONE}q1"})
        assert ALONE.encode() not in redact_json(json.dumps({"content": content}).encode())[0]

    assert len(FILLER) * 48 > 2_000_000
    assert_linear(mask, 48)


def test_texts_that_were_judged_before_are_masked_alike_and_sooner() -> None:
    text = FILLER * 4 + f"export API_TOKEN={ALONE}q1\n" + FILLER
    judged = JudgedTexts()
    masked = redact(text).text
    assert TextMask(Redaction(), judged=judged).text(text) == masked

    def again() -> None:
        assert TextMask(Redaction(), judged=judged).text(text) == masked

    assert processor_seconds(again) < 0.5 * processor_seconds(lambda: redact(text))
    assert ALONE not in repr(judged.__dict__)


def test_masks_among_many_escapes_take_linear_time() -> None:
    def mask(lines: int) -> None:
        content = 'say "x"\n' * lines + f'API_TOKEN="{ALONE}"\n' * 40
        redact_json(json.dumps({"content": content}).encode())

    assert_linear(mask, 16_000)
