"""The cost bench bills and counts as the study does, on conversations small enough to reckon."""

import asyncio
import json
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner

from recollect.core.formats.summaries import PI_OPENING
from recollect.core.formats.transcripts import read_transcripts
from recollect.core.values.recall import BLOCK_CLOSING, BLOCK_OPENING
from recollect_bench.command import bench
from recollect_bench.cost.data import (
    Conversation,
    Naming,
    conversation,
)
from recollect_bench.cost.gateway import as_served, replay_gateway
from recollect_bench.cost.result import OPENCLAW, OURS, PLAIN, CostResult, Replay, misses, summed_up
from recollect_bench.cost.strategies import (
    SUMMARY_TOKENS,
    SYSTEM_TOKENS,
    Meter,
    Tally,
    replay_engine,
    replay_plain,
    settings_of,
)


def _chat(*said: tuple[str, str]) -> bytes:
    return json.dumps([{"role": role, "content": text} for role, text in said]).encode()


def _conversation(*said: tuple[str, str]) -> Conversation:
    return conversation("small", read_transcripts(_chat(*said)))


def _row(role: str, text: str) -> bytes:
    return json.dumps({"role": role, "content": text}).encode()


def _long_talk(rounds: int) -> Conversation:
    """Every round names a file of its own; each tenth comes back to one of the first."""
    said: list[tuple[str, str]] = []
    for at in range(rounds):
        again = f" and again src/part_{at % 7}/first_{at % 7}.py" if at % 10 == 9 else ""
        said.append(("user", f"please look into src/part_{at}/first_{at}.py{again} " + "x y " * 60))
        said.append(("assistant", f"handleRequest{at} is defined there. " + "so it is " * 60))
    return _conversation(*said)


def test_what_was_named_long_ago_is_a_reference_and_what_was_named_just_now_is_none() -> None:
    filler = [("user", "go on"), ("assistant", "done"), ("user", "go on"), ("assistant", "done")]
    held = _conversation(
        ("user", "open src/alpha.py"),
        ("assistant", "it defines parseHeader"),
        *filler,
        ("user", "what of src/alpha.py?"),
        ("assistant", "parseHeader is in src/alpha.py"),
    )
    assert [moment.row for moment in held.moments] == [1, 3, 5, 7]
    names = [target.names for target in held.moments[-1].targets]
    # the reply names src/alpha.py too, but the message before it just did
    assert names == [("alpha.py", "src/alpha.py"), ("parseHeader",)]


def test_names_are_identifiers_and_not_words_or_the_words_of_tools() -> None:
    text = (
        "see https://example.org/a/b, src/app/main.py and parse_header( of AgentSession, commit "
        "3f2a9bc, order 1234567, ENOENT, TS2345, ZFA04Y; plainly called(), reservation_id"
    )
    found = Naming({"reservation_id"}).names_in(text)
    assert {
        *("https://example.org/a/b", "src/app/main.py", "main.py", "parse_header", "AgentSession"),
        *("3f2a9bc", "1234567", "ENOENT", "TS2345", "ZFA04Y"),
    } <= found
    assert not {"called", "plainly", "reservation_id", "commit"} & found


def test_the_common_beginning_is_read_and_the_rest_written() -> None:
    held = _conversation(("user", "a" * 400), ("assistant", "b" * 400), ("user", "c" * 400))
    meter = Meter(held)
    moment = held.moments[0]
    first, second, third = (meter.row(row.raw) for row in held.rows)
    assert first.tokens == 104
    meter.sent([first], moment)
    assert meter.tally.cost == pytest.approx(1.25 * (SYSTEM_TOKENS + 104))
    meter.sent([first, second, third], moment)
    assert meter.tally.cost == pytest.approx(
        1.25 * (SYSTEM_TOKENS + 104) + 0.1 * (SYSTEM_TOKENS + 104) + 1.25 * 208
    )
    assert meter.tally.breaks == 0
    meter.sent([second, third], moment)  # the first row went: nothing behind it is cached
    assert meter.tally.breaks == 1
    assert meter.tally.read_tokens == (SYSTEM_TOKENS + 104) + SYSTEM_TOKENS
    before = meter.tally.cost
    meter.asked(10_000)
    assert meter.tally.cost - before == pytest.approx(10_000 + 5 * SUMMARY_TOKENS)


def test_what_a_message_itself_says_does_not_count_as_kept() -> None:
    held = _conversation(
        ("user", "open src/alpha.py"),
        *[("assistant", "done"), ("user", "go on")] * 3,
        ("assistant", "done"),
        ("user", "what of src/alpha.py?"),
        ("assistant", "nothing"),
    )
    moment = held.moments[-1]
    rows = [row.raw for row in held.rows[: moment.row]]

    def measured(*raws: bytes) -> Tally:
        meter = Meter(held)
        meter.sent([meter.row(raw) for raw in raws], moment)
        return meter.tally

    whole = measured(*rows)
    assert (whole.references, whole.present, whole.left) == (2, 2, 0)
    cut = measured(*rows[1:])
    assert (cut.references, cut.present, cut.left, cut.recovered) == (2, 0, 2, 0)
    summary = _row("user", f"{PI_OPENING}src/alpha.py was opened\n</summary>")
    summarized = measured(summary, *rows[1:])
    assert (summarized.present, summarized.left, summarized.recovered) == (2, 2, 2)
    block = _row("user", f"{BLOCK_OPENING}\nuser: open src/alpha.py\n{BLOCK_CLOSING}")
    recalled = measured(*rows[1:-1], block, rows[-1])
    assert (recalled.present, recalled.left, recalled.recovered) == (2, 2, 2)


def test_the_engine_is_replayed_through_its_store_the_same_each_time() -> None:
    held = _long_talk(45)
    once = asyncio.run(replay_engine(held, 16_000))
    again = asyncio.run(replay_engine(held, 16_000))
    assert once == again
    assert once.requests == len(held.moments)
    assert once.summaries >= 1
    assert once.most_tokens <= 12_000
    plain = replay_plain(held, 16_000)
    assert once.retention >= plain.retention


def test_through_the_gateway_the_same_is_sent_and_billed() -> None:
    held = as_served(_long_talk(30))
    offline = asyncio.run(replay_engine(held, 8_000))
    through = asyncio.run(replay_gateway(held, 8_000))
    assert offline.summaries >= 1
    assert (through.requests, through.summaries) == (offline.requests, offline.summaries)
    assert through.cost == pytest.approx(offline.cost, rel=0.02)
    assert through.retention == pytest.approx(offline.retention, abs=0.02)


def test_settings_of_the_bench_are_nobodys_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_RECALL__ENABLED", "false")
    made = settings_of("openclaw", 64_000)
    assert made.recall.every_turn
    assert made.recall.embedder == "hash"
    assert settings_of("recollect", 64_000).recall.embedder == "none"
    assert made.window_tokens == 64_000


def _result(cost: float, recovered: int) -> CostResult:
    def replay(strategy: str, tally: Tally, *, held_out: bool = False) -> Replay:
        return Replay(
            transcript="held" if held_out else "tuned",
            held_out=held_out,
            window_tokens=64_000,
            strategy=strategy,
            tally=tally,
        )

    def tally(cost: float, recovered: int) -> Tally:
        return Tally(
            cost=cost,
            requests=1,
            sent_tokens=10,
            references=20,
            present=10 + recovered,
            left=10,
            recovered=recovered,
            relied=8,
            named=recovered,
            useful=recovered // 2,
        )

    replays = [
        replay(PLAIN, tally(100.0, 3)),
        replay(OURS, tally(cost, recovered)),
        replay(OPENCLAW, tally(540.0, 2)),
        replay(PLAIN, tally(100.0, 3), held_out=True),
        replay(OURS, tally(900.0, 0), held_out=True),
    ]
    return summed_up(replays, ["a note"])


def test_figures_are_relative_pooled_without_what_is_held_out_and_held_to_thresholds() -> None:
    good = _result(105.0, 6)
    assert good.figures["cost_64k"] == pytest.approx(1.05)
    assert good.figures["recovered_64k"] == pytest.approx(0.6)
    assert good.figures["useful_64k"] == pytest.approx(3 / 8), "what is named is not yet told"
    assert good.figures["useful_64k.held"] == 0
    assert good.baselines["plain.useful_64k"] == pytest.approx(1 / 8)
    assert good.figures["cost_64k.held"] == pytest.approx(9.0)
    assert good.baselines["plain.cost_64k"] == 1.0
    assert good.baselines["openclaw.cost_64k"] == pytest.approx(5.4)
    told = misses(good)
    assert [line.split()[0] for line in told] == ["retention_64k.held"]
    bad = _result(120.0, 2)
    assert {line.split()[0] for line in misses(bad)} == {
        *("cost_64k", "recovered_64k", "retention_64k.tuned", "retention_64k.held")
    }
    assert math.isnan(good.value(OPENCLAW, "cost", 64_000, "held"))


def test_recordings_of_ones_own_are_replayed_and_nothing_of_them_is_printed(tmp_path: Path) -> None:
    said = [("user", "open src/secretive_name.py " + "word " * 300)]
    said += [("assistant", "done " * 300), ("user", "go on with it")] * 12
    file = tmp_path / "mine.json"
    file.write_bytes(_chat(*said, ("assistant", "it is in src/secretive_name.py")))
    picture = tmp_path / "cost.svg"
    run = CliRunner().invoke(
        bench, ["cost", "--quick", "--json", "--paths", str(file), "--svg", str(picture)]
    )
    assert run.exit_code == 0, run.output
    shown = json.loads(run.stdout)
    assert shown["bench"] == "cost"
    assert {"cost_32k", "retention_32k", "cost_32k.mine"} <= set(shown["figures"])
    assert {"plain.cost_32k", "openclaw.cost_32k"} <= set(shown["baselines"])
    assert "secretive_name" not in run.output
    assert "OpenClaw" in "".join(ElementTree.fromstring(picture.read_bytes()).itertext())
