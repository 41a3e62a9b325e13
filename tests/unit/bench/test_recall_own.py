"""The user's own transcripts as a measure of recall: references, replay, and honest baselines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from recollect.bench import recall
from recollect.bench.command import bench
from recollect.bench.recall.own import GrowingMemory
from recollect.bench.recall.own_session import OwnSession, own_sessions
from recollect.bench.recall.references import LAST_MESSAGES, identifiers_of
from recollect.errors import RecollectError

FILLER = "We talk about the weather and the garden and what grows there in spring. " * 40
"""About 700 tokens."""


def transcript(folder: Path, messages: list[tuple[str, str]], name: str = "session") -> Path:
    file = folder / f"{name}.json"
    file.write_text(
        json.dumps([{"role": role, "content": text} for role, text in messages]), encoding="utf-8"
    )
    return file


def talk(*, filler: int) -> list[tuple[str, str]]:
    said = [
        ("user", "The webhook lives in src/payment/webhook_router.ts and fails with ECONNREFUSED."),
        ("assistant", "I see. I will look at handleStripeEvent there."),
    ]
    for number in range(filler):
        said += [("user", f"Round {number}. {FILLER}"), ("assistant", f"Indeed {number}. {FILLER}")]
    return [
        *said,
        ("user", "Please fix the webhook in src/payment/webhook_router.ts now."),
        ("assistant", "I changed handleStripeEvent so that it retries."),
    ]


def sessions(paths: list[Path]) -> list[OwnSession]:
    found, unread = own_sessions(paths, most=None)
    assert not unread
    return found


def test_identifiers_are_names_not_words() -> None:
    text = (
        "See https://example.org/a/b, ./src/main.py, commit 3f2a9c1d, ECONNREFUSED, ABC-1234, "
        "handleStripeEvent, max_retry_count, PaymentRouter and 1234567. Plain words do not count."
    )
    assert identifiers_of(text) == [
        "https://example.org/a/b",
        "./src/main.py",
        "3f2a9c1d",
        "ECONNREFUSED",
        "ABC-1234",
        "handleStripeEvent",
        "max_retry_count",
        "PaymentRouter",
        "1234567",
    ]
    assert identifiers_of("The weather is nice; we met in May 2023.") == []


def test_only_what_left_the_view_is_a_reference(tmp_path: Path) -> None:
    (session,) = sessions([transcript(tmp_path, talk(filler=24))])
    named = {session.segments[one.place].segment.role: one for one in session.references}
    assert named["user"].identifiers == ("src/payment/webhook_router.ts",)
    assert named["assistant"].identifiers == ("handleStripeEvent",)
    for one in session.references:
        before = session.segments[one.view_from : one.place]
        assert sum(entry.tokens for entry in session.entries[one.view_from : one.place]) > 15_000
        assert len(before) > LAST_MESSAGES
        for name in one.identifiers:
            assert not any(name in new.segment.text for new in before)
    (short,) = sessions([transcript(tmp_path, talk(filler=3), "short")])
    assert short.references == (), "the view still shows it"


def test_a_replay_asks_the_real_stage_and_counts_what_it_brings_back(tmp_path: Path) -> None:
    file = transcript(tmp_path, talk(filler=24))
    args = ["recall", "--set", "own", "--paths", str(file), "--embedder", "hash", "--json"]
    done = CliRunner().invoke(bench, args, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    figures = result["figures"]
    assert figures["references"] == 2
    assert figures["found.user"] == 1.0, "the user names it"
    assert result["baselines"]["bm25.found.user"] == 1.0
    assert result["baselines"]["recency.found"] == 0.0
    assert set(result["baselines"]) >= {"bm25.found", "recency.found", "random.found"}
    assert "webhook" not in done.stdout, "nothing that was said is printed"


def test_memory_grows_to_the_view_and_ranks_by_words(tmp_path: Path) -> None:
    (session,) = sessions([transcript(tmp_path, talk(filler=24))])
    memory = GrowingMemory()
    memory.grow(session, 2)
    first = memory.rankings("webhook_router", seed="1")
    assert [passage.order[1] for passage in first["recency"]] == [1, 0]
    assert [passage.order[1] for passage in first["bm25"]] == [0]
    memory.grow(session, 10)
    memory.grow(session, 4)
    grown = memory.rankings("webhook_router", seed="1")
    assert grown["recency"][0].order[1] == 9
    assert sorted(p.order for p in grown["random"]) == sorted(p.order for p in grown["recency"])
    assert grown["random"] == memory.rankings("anything", seed="1")["random"]


def test_what_is_needed_and_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecollectError, match=r"--set own needs --paths.*\.claude"):
        recall.run(sets=["own"])
    with pytest.raises(RecollectError, match="there is no"):
        recall.run(sets=["own"], paths=[str(tmp_path / "nowhere")])
    short = transcript(tmp_path, talk(filler=1))
    with pytest.raises(RecollectError, match="give longer ones"):
        recall.run(sets=["own"], paths=[str(short)])
    with pytest.raises(RecollectError, match="leave --set own out"):
        recall.run(sets=["own"], paths=[str(short)], compare="sqlite,sqlite")
