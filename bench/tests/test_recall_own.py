"""The user's own transcripts as a measure of recall: references, replay, and honest baselines."""

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from recollect.adapters.embedders.local import HashEmbedder
from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.values.recall import EmbedderKind, Recalled, RecallRequest
from recollect.errors import RecollectError
from recollect_bench import recall
from recollect_bench.command import bench
from recollect_bench.recall import embedders
from recollect_bench.recall.judge import LAST_MESSAGES, identifiers_of
from recollect_bench.recall.own import OwnSession, own_sessions

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
        *("https://example.org/a/b", "./src/main.py", "3f2a9c1d", "ECONNREFUSED", "ABC-1234"),
        *("handleStripeEvent", "max_retry_count", "PaymentRouter", "1234567"),
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


class SlowHash:
    """Stands for a model whose vectors are worth keeping."""

    name = "slow:384"
    kind: EmbedderKind = "onnx"
    dimensions = HashEmbedder.dimensions
    ready = True

    async def load(self) -> None:
        """Nothing to load."""

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        return await HashEmbedder().embed(texts)


def test_nothing_of_a_transcript_stays_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("temporary", "cache"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(embedders, "cache_file", lambda: tmp_path / "cache" / "vectors.db")
    monkeypatch.setattr(embedders, "_embedder", lambda _: SlowHash())
    file = transcript(tmp_path, talk(filler=24))
    result = recall.run(sets=["own"], paths=[str(file)], embedder="onnx")
    assert result.sets[0].embedder == "minilm"
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [file]

    async def another_run() -> None:
        async with embedders.opened_embedders("minilm", cached=True) as opened:
            await opened[0].embed(["a text of a published set"])

    asyncio.run(another_run())
    assert (tmp_path / "cache" / "vectors.db").is_file(), "elsewhere vectors are kept"


def test_a_reply_is_asked_about_before_it_is_stored(tmp_path: Path) -> None:
    file = transcript(tmp_path, talk(filler=24))
    stored: list[tuple[str, str]] = []

    async def watching(request: RecallRequest, *, archive: SQLiteStore, **_: object) -> Recalled:
        (last,) = await archive.page(descending=True, limit=1)
        stored.append((request.newest, last.segment.text))
        assert request.asking == last.segment.key, "the user's message asks"
        return Recalled()

    recall.run(sets=["own"], paths=[str(file)], embedder="none", stage=watching)  # type: ignore[arg-type]
    newest = "Please fix the webhook in src/payment/webhook_router.ts now."
    assert stored == [(newest, newest)] * 4, "for the user's message and for the reply to it"


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
