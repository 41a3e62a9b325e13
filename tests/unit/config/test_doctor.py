"""`recollect doctor`: the table and the JSON say the same, and bad settings end with 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.trusted_settings import write_trusted

from recollect.cli.doctor import doctor
from recollect.system.config import known_keys
from recollect.system.config.load import PRESETS


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(doctor, arguments)


def test_the_table_shows_values_sources_and_deviations() -> None:
    Path("recollect.toml").write_text("[compaction]\nreserveTokens = 9000\n")
    result = run()
    assert result.exit_code == 0
    line = next(one for one in result.stdout.splitlines() if "reserve_tokens " in one)
    assert line.split() == ["●", "reserve_tokens", "9000", "recollect.toml", "16384", "16384"]
    assert f"{len(known_keys())} settings, 1 not at their default" in result.stdout
    assert "!" not in result.stdout


def test_every_key_is_in_the_table_and_no_line_is_too_wide() -> None:
    result = run()
    for path in known_keys():
        assert path.partition(".")[2] in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_every_deviation_says_its_source_the_default_and_openclaws_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RECOLLECT_TRIM__PROTECT_MESSAGES", "9")
    write_trusted('preset = "openclaw"\nindex.eviction_days = 30\n')
    Path("openclaw.json").write_text(
        "{agents: {defaults: {compaction: {model: 1, keepRecentTokens: 5000},"
        " memoryContext: {autoRecallMinScore: 0.8}}}}"
    )
    shown = json.loads(run("--json", "--openclaw", "openclaw.json").stdout)
    settings = {key: row for key, row in shown["settings"].items() if row["deviates"]}
    told = {
        key: (row["value"], row["source_kind"], row["default"], row["openclaw"])
        for key, row in settings.items()
    }
    assert told["trim.protect_messages"] == (9, "environment", 6, 6)
    assert told["index.eviction_days"] == (30, "file", None, 90)
    assert told["compaction.keep_recent_tokens"] == (5000, "openclaw", 20_000, 20_000)
    assert told["recall.min_score"] == (0.8, "openclaw", None, 0.7)
    assert told["recall.decay_per_day"] == (0.995, "preset", 1.0, 0.995)
    for key, value in PRESETS["openclaw"].items():
        assert settings[key]["openclaw"] == value
        assert key in told
    assert shown["presets"]["openclaw"]["recall.embedder"] == "hash"
    assert any("compaction.model" in one["message"] for one in shown["notices"])


def test_json_has_every_key_and_the_notices() -> None:
    Path("mine.toml").write_text('facts.idle_seconds = 60\npruning.ttl = "90s"\n')
    result = run("--json", "--config", "mine.toml")
    shown = json.loads(result.stdout)
    assert set(shown["settings"]) == set(known_keys())
    assert shown["settings"]["pruning.ttl"] == {
        "value": 90.0,
        "source": "mine.toml: pruning.ttl",
        "source_kind": "file",
        "default": 300.0,
        "is_default": False,
        "openclaw": 300.0,
        "deviates": True,
    }
    assert shown["notices"] == []


def test_notices_stand_below_the_table() -> None:
    Path("openclaw.json").write_text('{agents: {defaults: {compaction: {model: "m"}}}}')
    result = run("--openclaw", "openclaw.json")
    _, _, below = result.stdout.partition("settings, ")
    assert "agents.defaults.compaction.model" in below
    assert "without effect" in below


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("recall.hardcaptokens = 1", "did you mean recall.hard_cap_tokens?"),
        ("window_tokens = 0", "window_tokens must be a whole number of at least 1"),
        ("window_tokens = ", "line 1"),
    ],
)
def test_bad_settings_end_with_2_and_one_line_that_says_what_to_do(text: str, says: str) -> None:
    write_trusted(text)
    for arguments in ((), ("--json",)):
        result = run(*arguments)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert len(result.stderr.splitlines()) == 1
        assert says in result.stderr


def test_a_password_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://app:hunter2@db/x?password=hunter2"
    monkeypatch.setenv("RECOLLECT_STORE__URL", url)
    assert "hunter2" not in run().stdout
    assert "postgresql://app:" in run("--json").stdout
    assert "hunter2" not in run("--json").stdout
