"""The redaction bench counts honestly, and our rules reach what the issue asks of them."""

import os
from pathlib import Path

import pytest

from recollect_bench import redaction
from recollect_bench.data import DataNotFoundError
from recollect_bench.redaction import redact_by_openclaw
from recollect_bench.redaction_data import load_corpora, load_kinds

_DATA = Path(os.environ["RECOLLECT_DATA"])
needs_data = pytest.mark.skipif(
    not (_DATA / "secrets").is_dir(), reason="RECOLLECT_DATA holds no secrets/"
)


def test_a_part_of_a_secret_counts_as_surviving() -> None:
    assert redaction.is_masked("key=[REDACTED]", ["abcdefghijklmnop"])
    assert not redaction.is_masked("key=abcdefgh[REDACTED]", ["abcdefghijklmnop"])
    assert not redaction.is_masked("key=hunter", ["hunter"])
    assert not redaction.is_masked("one [REDACTED] secondsecret", ["firstsecret", "secondsecret"])


def test_openclaws_patterns_behave_as_noted() -> None:
    sha = "da39a3ee5e6b4b0d3255bfef95601890afd80709"
    assert redact_by_openclaw(f"commit {sha}") == "commit [REDACTED_HEX]"
    assert redact_by_openclaw("OPENAI_API_KEY=sk-abcdefghijklmnop1234") == (
        "OPENAI_API_KEY=sk-abcdefghijklmnop1234"
    )


def test_missing_data_say_how_to_name_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RECOLLECT_DATA", str(tmp_path))
    with pytest.raises(DataNotFoundError, match="set RECOLLECT_DATA"):
        load_corpora()


@needs_data
def test_our_rules_reach_the_targets() -> None:
    corpora = load_corpora()
    marks = redaction._secret_marks(corpora.examples)
    measured = redaction._measure(
        redaction._ours, corpora, marks, timed=corpora.transcript_texts[::10], timed_runs=1
    )
    assert measured.true_masked >= 0.95
    assert measured.false_touched <= 0.03
    assert measured.clean_touched == 0


def test_kinds_are_filled_anew_from_their_seed_and_hold_no_secret() -> None:
    kind = next(kind for kind in load_kinds("tune") if not kind.lookalike)
    assert kind.fill(1) == kind.fill(1)
    text, secrets = kind.fill(1)
    assert kind.fill(2)[0] != text
    assert all(secret in text and secret not in kind.template for secret in secrets)


def test_the_kinds_that_the_rules_were_written_for_are_masked() -> None:
    figures = redaction.kind_figures(("tune",))
    assert figures["kinds_masked_tune"] >= 0.98
    assert figures["lookalikes_touched_tune"] <= 0.02
