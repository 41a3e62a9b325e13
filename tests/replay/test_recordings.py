"""Real sessions, replayed request by request: nothing invalid, nothing raised.

Both pi transcripts, both Codex rollouts and all 200 tau-bench runs, at a window that is too small
for them; in full at three. The calls that were never
answered (6 and 18 in the pi transcripts) must be dealt with, and told.
"""

import asyncio
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.harness.faithful import unfaithful
from tests.sizes import at_size

from recollect.core.engine import Engine, Session
from recollect.core.formats.transcripts import read_transcripts
from recollect.core.rules.message_redaction import TextMask
from recollect.core.values.message import CallId
from recollect.core.values.model import FormatName
from recollect.core.values.transcript import RecordedSession
from recollect.system.config import build
from recollect.testing.provider_rules import violations
from recollect_bench.cost.data import tau_runs

WINDOWS = at_size(ci=(8_000,), full=(8_000, 32_000, 128_000))
PI = ("pi_before-compaction.jsonl.gz", "pi_large-session.jsonl.gz")
CODEX = ("codex_session.jsonl.gz", "codex_session_patches.jsonl.gz")
TAU = "taubench_gpt-4o-airline.json.gz"
UNANSWERED = {PI[0]: 6, PI[1]: 18}


@dataclass
class Replay:
    requests: int = 0
    invalid: list[Any] = field(default_factory=list)
    failures: list[Any] = field(default_factory=list)
    told_calls: set[CallId] = field(default_factory=set)
    over_limit: int = 0
    left_out: int = 0


def refused(format_name: FormatName, body: Any) -> list[Any]:
    """What the provider would refuse; Anthropic's ids held unique in the whole request."""
    strict = format_name == "anthropic"
    return violations(format_name, body, ids_unique_across_messages=strict)


def replay(transcript: RecordedSession, window: int) -> Replay:
    engine = Engine(build({"window_tokens": window}))
    session = Session("replay")
    done = Replay()
    key = b'"input":[' if transcript.format == "openai-responses" else b'"messages":['
    raws = [item.raw for item in transcript.items]
    for recorded in transcript.requests:
        shown = [raws[at] for at in recorded.shown]
        if not shown:
            continue
        body = b"{" + key + b",".join(shown) + b"]}"
        context = asyncio.run(engine.prepare(session, body, format=transcript.format))
        out = json.loads(context.request)
        done.requests += 1
        done.invalid += refused(transcript.format, out)
        done.invalid += unfaithful(transcript.format, json.loads(body), out)
        done.failures += [x for x in context.report.failures if x.stage != "check"]
        done.told_calls |= {r.call_id for r in context.report.repairs if r.call_id}
        done.over_limit += context.report.over_limit
        done.left_out += len(context.report.view.rows) < len(shown)
        if context.report.over_limit:
            (line,) = [x for x in context.report.lines if x.stage == "check"]
            assert "over the limit" in line.said
        if recorded.usage is not None:
            # recorded for the request as it came; what we sent is a share of it
            share = context.report.tokens_after / max(1, context.report.tokens_before)
            reply = {"usage": {"input_tokens": round(recorded.usage.input_tokens * share)}}
            asyncio.run(engine.observe(session, reply))
    return done


def load(path: Path) -> tuple[RecordedSession, ...]:
    return read_transcripts(path.read_bytes(), name=path.name)


def raw_unanswered(path: Path) -> set[str]:
    """Counted from the file itself, without our readers."""
    calls: set[str] = set()
    for line in gzip.decompress(path.read_bytes()).split(b"\n"):
        entry = json.loads(line) if line.strip() else {}
        message = entry.get("message", {})
        if message.get("role") == "assistant":
            calls |= {b["id"] for b in message["content"] if b["type"] == "toolCall"}
        calls.discard(message.get("toolCallId", ""))
    return calls


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", at_size(ci=[PI[0], *CODEX], full=[*PI, *CODEX]))
def test_a_coding_session(data: Path, name: str, window: int) -> None:
    path = data / "transcripts" / name
    (transcript,) = load(path)
    done = replay(transcript, window)
    assert done.requests == sum(1 for r in transcript.requests if r.shown)
    assert done.requests > 5
    assert done.invalid == []
    assert done.failures == []
    if name in UNANSWERED:
        unanswered = raw_unanswered(path)
        assert len(unanswered) == UNANSWERED[name]
        assert unanswered <= done.told_calls
    if window == 8_000:
        assert done.left_out > 0


def runs(data: Path) -> Iterator[RecordedSession]:
    yield from tau_runs((data / "transcripts" / TAU).read_bytes())


@pytest.mark.parametrize("window", WINDOWS)
def test_all_tau_bench_runs(data: Path, window: int) -> None:
    transcripts = list(runs(data))
    assert len(transcripts) == 200
    transcripts = transcripts[:: at_size(ci=5, full=1)]
    total = 0
    for transcript in transcripts:
        done = replay(transcript, window)
        assert done.invalid == []
        assert done.failures == []
        total += done.requests
    assert total == sum(len(t.requests) for t in transcripts)


@pytest.mark.parametrize("name", [*PI, *CODEX])
def test_what_is_kept_of_a_session_without_secrets_is_what_it_says(data: Path, name: str) -> None:
    """Code, plans and listings, in which what was masked once is masked wherever it stands."""
    mask = TextMask(build({}).redaction)
    for transcript in read_transcripts(gzip.decompress((data / "transcripts" / name).read_bytes())):
        for item in transcript.items:
            assert mask.body(item.raw) == (item.raw, True)
    assert not mask.secrets
