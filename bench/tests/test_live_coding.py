"""What a request tells about a thing is told apart from what it only names."""

import json

import pytest

from recollect.core.formats.transcripts import read_transcripts
from recollect_bench.cost.data import Conversation, conversation
from recollect_bench.cost.strategies import Meter, Tally
from recollect_bench.live.coding import DEFAULT, ORACLE, PLAIN, figures_of, run_coding

TOLD = "parseHeader drops the charset when a semicolon is missing"


def _conversation(*said: tuple[str, str]) -> Conversation:
    held = [{"role": role, "content": text} for role, text in said]
    return conversation("small", read_transcripts(json.dumps(held).encode()))


def _asked_again() -> Conversation:
    return _conversation(
        ("user", "look at parseHeader, please"),
        ("assistant", f"I read it.\n{TOLD}.\nNothing else calls parseHeader."),
        *[("user", "go on"), ("assistant", "done")] * 3,
        ("user", "go on"),
        ("assistant", "so parseHeader has to keep the charset without a semicolon"),
    )


def _measured(held: Conversation, summary: str) -> Tally:
    meter = Meter(held)
    moment = held.moments[-1]
    raws = [row.raw for row in held.rows[2 : moment.row]]
    meter.sent([meter.summary_row(summary), *map(meter.row, raws)], moment)
    return meter.tally


def test_the_line_that_a_message_relies_on_is_the_one_that_shares_most_with_it() -> None:
    held = _asked_again()
    target = held.moments[-1].targets[-1]
    line = held.relied.of("parseHeader", target.row, target.end)
    assert line is not None
    assert line.text == f"{TOLD}."
    assert line.words == {"drops", "charset", "semicolon", "missing"}


def test_a_name_that_is_only_listed_is_there_and_not_useful() -> None:
    held = _asked_again()
    listed = _measured(held, "- parseHeader, keepAlive, readBody")
    assert (listed.left, listed.recovered, listed.relied) == (1, 1, 1)
    assert (listed.named, listed.useful) == (1, 0)
    told = _measured(held, f"- {TOLD}")
    assert (told.named, told.useful) == (1, 1)
    half = _measured(held, "- parseHeader: charset, semicolon")
    assert half.useful == 1
    less = _measured(held, "- parseHeader: charset")
    assert less.useful == 0


def test_words_far_from_the_name_or_in_two_places_do_not_tell_about_it() -> None:
    held = _asked_again()
    far = _measured(held, f"parseHeader {'and so it goes on ' * 30} drops charset semicolon")
    assert (far.named, far.useful) == (1, 0)
    gap = "x " * 400
    apart = _measured(held, f"parseHeader charset {gap} parseHeader semicolon")
    assert apart.useful == 0


def test_a_name_about_which_nothing_was_said_does_not_count() -> None:
    held = _conversation(
        ("user", "open parseHeader"),
        *[("assistant", "done"), ("user", "go on")] * 3,
        ("assistant", "parseHeader is fine now"),
    )
    meter = Meter(held)
    moment = held.moments[-1]
    meter.sent([meter.row(row.raw) for row in held.rows[1 : moment.row]], moment)
    assert (meter.tally.left, meter.tally.relied) == (1, 0)


@pytest.fixture(scope="module")
def long_session() -> Conversation:
    """Each file has its own fault, told once; every third round comes back to an early one."""
    said: list[tuple[str, str]] = []
    for at in range(60):
        early = at % 9
        again = (
            f" As for src/part_{early}.py: valve {early} leaks where gasket {early} is torn."
            if at % 3 == 2 and at > 20
            else ""
        )
        said.append(("user", "please go on with the next one " + "and on " * 80))
        fault = f"In src/part_{at}.py the leaking valve needs another gasket, torn ones fail."
        said.append(("assistant", f"{again}\n{fault}\n{'so it is ' * 80}"))
    return _conversation(*said)


def test_an_oracle_tells_more_than_plain_compaction(long_session: Conversation) -> None:
    rows = run_coding(windows=(16_000,), conversations=[long_session])
    by_who = {row.strategy: row for row in rows}
    assert set(by_who) == {PLAIN, DEFAULT, ORACLE}
    assert by_who[PLAIN].billed == 1.0
    assert by_who[PLAIN].references > 0
    assert (by_who[ORACLE].useful or 0) > (by_who[PLAIN].useful or 0)
    figures = figures_of(rows)
    assert figures["billed_16k.small"] == by_who[DEFAULT].billed
