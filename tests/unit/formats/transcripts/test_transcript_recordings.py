"""The real recordings, checked against counts taken from them by other means."""

import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from recollect.core.formats.transcripts import read_transcript
from recollect.core.values.transcript import RecordedSession
from recollect_bench.cost.data import tau_runs

ROOT = Path(__file__).parents[4]
DATA = Path(os.environ.get("RECOLLECT_DATA", ROOT / "../shared/data")) / "transcripts"
pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="the recordings are not here; RECOLLECT_DATA names their folder"
)


def packed(name: str) -> bytes:
    return (DATA / name).read_bytes()


def lines(name: str) -> list[dict[str, Any]]:
    text = gzip.decompress(packed(name)).decode()
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def items(transcript: RecordedSession) -> list[Any]:
    return [json.loads(item.raw) for item in transcript.items]


@pytest.mark.parametrize(
    ("name", "unanswered"), [("pi_before-compaction", 6), ("pi_large-session", 18)]
)
def test_pi_sessions(name: str, unanswered: int) -> None:
    name = f"{name}.jsonl.gz"
    entries = lines(name)
    transcript = read_transcript(packed(name))
    assert (transcript.kind, transcript.version) == ("pi", "1")
    assert transcript.passed_over == ()
    messages = [entry["message"] for entry in entries if entry["type"] == "message"]
    own = [item for item in transcript.items if not item.derived]
    assert [json.loads(item.raw) for item in own] == messages
    assert len(transcript.requests) == sum(m["role"] == "assistant" for m in messages)
    calls = {
        block["id"]
        for message in items(transcript)
        if message["role"] == "assistant"
        for block in message["content"]
        if block["type"] == "toolCall"
    }
    answered = {m["toolCallId"] for m in items(transcript) if m["role"] == "toolResult"}
    assert len(calls - answered) == unanswered
    spent = [
        sum(m["usage"][key] for key in ("input", "cacheRead", "cacheWrite"))
        for m in messages
        if m["role"] == "assistant"
    ]
    reported = [r.usage.input_tokens if r.usage else 0 for r in transcript.requests]
    assert reported == spent


@pytest.mark.parametrize("name", ["pi_before-compaction", "pi_large-session"])
def test_item_bytes_stand_in_the_file_as_they_are(name: str) -> None:
    whole = gzip.decompress(packed(f"{name}.jsonl.gz")).split(b"\n")
    for item in read_transcript(packed(f"{name}.jsonl.gz")).items:
        if not item.derived:
            assert item.raw in whole[item.line - 1]


def test_pi_compactions_show_summary_kept_and_new_as_a_replay_by_hand_does() -> None:
    name = "pi_before-compaction.jsonl.gz"
    entries = lines(name)
    transcript = read_transcript(packed(name))
    assert transcript.compactions == sum(entry["type"] == "compaction" for entry in entries)
    histories = []
    cut, summary = 0, None
    for at, entry in enumerate(entries):
        if entry["type"] == "compaction":
            cut, summary = entry["firstKeptEntryIndex"], entry["summary"]
        elif entry["type"] == "message" and entry["message"]["role"] == "assistant":
            past = [e["message"] for e in entries[cut:at] if e["type"] == "message"]
            histories.append((summary, past))
    assert len(histories) == len(transcript.requests)
    read = items(transcript)
    for (summary, past), request in zip(histories, transcript.requests, strict=True):
        shown = [read[at] for at in request.shown]
        if summary is not None:
            assert summary in shown.pop(0)["content"][0]["text"]
        assert shown == past


@pytest.mark.parametrize("name", ["codex_session", "codex_session_patches"])
def test_codex_rollouts_have_a_call_for_every_count_of_tokens(name: str) -> None:
    name = f"{name}.jsonl.gz"
    entries = lines(name)
    transcript = read_transcript(packed(name))
    assert transcript.kind == "codex"
    assert transcript.passed_over == ()
    spent: list[tuple[Any, int]] = []
    for entry in entries:
        info = entry["payload"].get("info") if entry["type"] == "event_msg" else None
        if info and info["last_token_usage"]["input_tokens"] and (
            not spent or spent[-1][0] != info["total_token_usage"]
        ):  # fmt: skip
            spent.append((info["total_token_usage"], info["last_token_usage"]["input_tokens"]))
    reported = [request.usage.input_tokens for request in transcript.requests if request.usage]
    assert reported == [tokens for _, tokens in spent]
    assert len(transcript.requests) == len(reported)
    replaced = [e["payload"]["replacement_history"] for e in entries if e["type"] == "compacted"]
    assert transcript.compactions == len(replaced)
    recorded = sum(entry["type"] == "response_item" for entry in entries)
    assert len(transcript.items) == recorded + sum(map(len, replaced))
    assert not any(item.derived for item in transcript.items)
    assert transcript.window_tokens == 258400


def test_codex_history_after_a_compaction_is_the_replacement() -> None:
    name = "codex_session_patches.jsonl.gz"
    entries = lines(name)
    transcript = read_transcript(packed(name))
    read = items(transcript)
    history: list[Any] = []
    at_item: list[list[Any]] = []
    for entry in entries:
        if entry["type"] == "compacted":
            history = list(entry["payload"]["replacement_history"])
            at_item += [[]] * len(history)
        elif entry["type"] == "response_item":
            at_item.append(list(history))
            history.append(entry["payload"])
    for request in transcript.requests:
        assert [read[at] for at in request.shown] == at_item[request.answered[0]]


def test_tau_bench_runs() -> None:
    name = "taubench_gpt-4o-airline.json.gz"
    runs = json.loads(gzip.decompress(packed(name)))
    transcripts = tau_runs(packed(name))
    assert len(transcripts) == len(runs) == 200
    for run, transcript in zip(runs, transcripts, strict=True):
        assert (transcript.kind, transcript.format) == ("messages", "openai-chat")
        assert items(transcript) == run["traj"]
        roles = Counter(message["role"] for message in run["traj"])
        assert len(transcript.requests) == roles["assistant"]
        assert not any(item.derived for item in transcript.items)
        for request in transcript.requests:
            assert tuple(request.shown) == tuple(range(request.answered[0]))
