"""A conversation with a real model that outgrows its window: real overflows, real compactions.

llama.cpp serves SmolLM2 on 127.0.0.1. Its summaries are worth little: what holds is what code
holds. Without the weights or without xllamacpp these tests skip and say how to get them."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.harness.waiting import wait_until
from tests.sizes import FULL, at_size, only_in_full
from tools.real_model.converse import Run, converse
from tools.real_model.in_terminal import converse_in_terminal
from tools.real_model.script import plan_conversation
from tools.real_model.through_gateway import converse_through_gateway

from recollect.adapters.providers.openai import OpenAIChatModel
from recollect.core.facts.extract import Extracted, extract
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.segment import Segment, SegmentId
from recollect.errors import ModelError
from recollect_bench.llama_server import LlamaMissingError, LlamaServer, find_gguf

ROOT = Path(__file__).parents[2]
CI_WINDOW = 2_816
CI_TOKENS = 3_300
"""`just real-model` fills 4,096 many times over."""
THREADS = at_size(1, 2)
"""Beside other tests two would wait for each other, and spin while they do."""
CI_SETTINGS = {
    "recall.block_tokens": 200  # room for the questions without a second compaction
}
STARTER = """
import sys, time
from pathlib import Path
from recollect_bench.llama_server import LlamaServer
with LlamaServer(Path(sys.argv[1])) as server:
    print(server.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def weights() -> Path:
    pytest.importorskip("xllamacpp", reason="no llama.cpp: pip install xllamacpp")
    try:
        return find_gguf(ROOT)
    except LlamaMissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def server(weights: Path) -> Iterator[LlamaServer]:
    with LlamaServer(weights, window_tokens=CI_WINDOW, threads=THREADS) as running:
        yield running


@only_in_full
def test_conversation_outlasts_window_of_a_real_model(server: LlamaServer, tmp_path: Path) -> None:
    run = Run(server=server, folder=tmp_path, tokens=CI_TOKENS, settings=CI_SETTINGS)
    outcome = asyncio.run(converse(run))
    told = outcome.table()
    assert outcome.said_tokens >= CI_TOKENS, told
    assert outcome.failed_turns == 0, told
    assert outcome.watched.overflows == outcome.recovered >= 1, told
    assert outcome.ended("reduced") >= 1, told
    assert outcome.watched.pieces > outcome.turns, told  # it streamed
    assert outcome.places.count("nowhere") == 0, told
    # found although it had left: in the summary or recalled, not because it was still there
    assert outcome.places.count("kept") < len(outcome.places), told
    for one in outcome.compactions:
        assert one.spent.calls <= one.spent.max_calls, told


def test_a_conversation_through_the_gateway_stays_within_a_real_window(
    weights: Path, tmp_path: Path
) -> None:
    """The official client, which knows a base URL only; `just real-model --gateway` says more."""
    pytest.importorskip("openai")
    window_tokens = at_size(512, 4_096)
    with LlamaServer(weights, window_tokens=window_tokens, threads=THREADS) as server:
        talk = converse_through_gateway(
            server,
            tmp_path,
            tokens=at_size(560, 6_000),
            turn_tokens=at_size((160,), (500, 800, 650)),
            reply_tokens=at_size(4, 16),
        )
    assert talk.faults == [], talk


def test_chat_in_a_terminal_tells_what_a_real_model_was_sent(weights: Path, tmp_path: Path) -> None:
    """Each turn typed, and `/status` behind it; `just real-model --chat`: 60."""
    turns = at_size(4, 60)  # each takes four seconds of a processor
    with LlamaServer(weights, threads=THREADS) as server:
        talk = converse_in_terminal(
            server,
            tmp_path,
            turns=turns,
            turn_tokens=at_size(60, 160),
            reply_tokens=24,
            compacting=FULL,
        )
    assert talk.faults == [], talk
    assert talk.turns == turns


def test_the_server_ends_with_whoever_started_it(weights: Path) -> None:
    """Also where that was killed and could do nothing about it."""
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(weights)], stdout=subprocess.PIPE
    )
    assert starter.stdout is not None
    with starter, starter.stdout:
        server_pid = int(starter.stdout.readline())
        os.kill(server_pid, 0)
        starter.kill()
        starter.wait()
    try:
        wait_until(lambda: not _lives(server_pid))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server_pid, signal.SIGKILL)


def _lives(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_real_model_reads_for_facts_and_code_has_the_last_word(server: LlamaServer) -> None:
    """Its claims are junk: whatever is taken must stand in what was said."""
    said = "We decided to use PostgreSQL for the orders database. The API listens on port 8443."
    told = Segment(
        id=SegmentId("0" * 32),
        session="real",
        key=EntryKey("real"),
        message_id=MessageId("0" * 32),
        role="user",
        text=said,
        tokens=len(said) // 4,
        said_at=0.0,
        source="import",
        trust="high",
    )

    async def read() -> Extracted:
        model = OpenAIChatModel(model="smollm2", base_url=server.base_url)
        try:
            return await extract(
                [told], [], model=model, max_output_tokens=at_size(24, 160), now=told.said_at
            )
        finally:
            await model.close()

    try:
        found = asyncio.run(read())
    except ModelError as error:  # so small a model seldom writes JSON: then nothing is taken
        assert "JSON" in str(error) or "cut off" in str(error)
        return
    for draft in found.drafts:
        (span,) = draft.evidence
        assert said[span.start : span.end].strip()
        assert draft.trust == "high"


@pytest.mark.parametrize("tokens", [6_000, 30_000])
def test_no_question_of_the_script_holds_its_answer(tokens: int) -> None:
    turns = plan_conversation(tokens, lambda text: len(text) // 4, turn_tokens=(500, 900))
    asked = [one for turn in turns for one in turn.asks]
    exact = [one.exact for one in asked]
    assert len(set(exact)) == len(exact) >= 8
    for one in asked:
        holding = [turn for turn in turns if one.exact in turn.text]
        assert len(holding) == 1 and not holding[0].asks
        assert turns.index(holding[0]) < next(
            at for at, turn in enumerate(turns) if one in turn.asks
        )
    assert sum(len(turn.text) // 4 for turn in turns) >= tokens * 0.95
