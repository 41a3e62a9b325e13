"""`recollect doctor`: settings as text and as JSON; bad settings end with 2."""

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.trusted_settings import write_trusted

from recollect.cli.doctor import doctor
from recollect.hosts.hooks.install import carry_out, plan_install, settings_file
from recollect.hosts.hooks.memory import HookMemory
from recollect.system.config import load_settings, setting_keys

pytestmark = pytest.mark.usefixtures("usual_deadlines")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(doctor, arguments)


def test_settings_are_listed_with_source_and_default_on_request() -> None:
    Path("recollect.toml").write_text("[compaction]\nreserveTokens = 9000\n")
    assert "reserve_tokens" not in run().stdout
    result = run("--settings")
    assert result.exit_code == 0
    assert result.stdout.startswith("✓ settings")
    line = next(one for one in result.stdout.splitlines() if "reserve_tokens " in one)
    assert line.startswith("● compaction.reserve_tokens = 9000   (")
    assert "recollect.toml: compaction.reserveTokens; default 16384)" in line
    assert f"{len(setting_keys())} settings, 1 changed" in result.stdout
    assert "!" not in result.stdout
    for path in setting_keys():
        assert f" {path} = " in result.stdout


def test_hooks_whose_program_is_gone_are_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claude Code then continues without memory, and only a line of its own log shows it."""
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    monkeypatch.chdir(project)
    assert "hooks: not installed" in run().stdout
    program = tmp_path / "venv with space" / "recollect-hook"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    path = settings_file("claude-code", "project", project)
    carry_out(plan_install("claude-code", path, shlex.quote(str(program))))
    assert f"✓ hooks: {path} runs {program}" in run().stdout
    program.unlink()
    result = run()
    assert result.exit_code == 1
    assert f"✗ hooks: {path} runs {program}, which does not exist" in result.stdout
    assert "→ recollect install claude-code --project" in result.stdout


def test_settings_that_hooks_override_are_named() -> None:
    hooks = HookMemory(load_settings().settings)
    recall = hooks._settings.recall
    assert (recall.sparing, recall.standing_tokens) == (True, 0)
    shown = run("--settings").stdout
    assert "Hooks always use recall.sparing = true and recall.standing_tokens = 0." in shown


def test_json_has_every_key_and_the_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.toml").write_text('facts.idle_seconds = 60\npruning.ttl = "90s"\n')
    monkeypatch.setenv("RECOLLECT_CONFIG", str(Path("mine.toml").absolute()))
    shown = json.loads(run("--json").stdout)
    assert set(shown["settings"]) == set(setting_keys())
    assert shown["settings"]["pruning.ttl"] == {
        "value": 90.0,
        "source": f"{Path('mine.toml').absolute()}: pruning.ttl",
        "source_kind": "file",
        "default": 300.0,
        "is_default": False,
    }
    assert shown["notices"] == []


def test_files_that_are_named_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.toml").write_text('store.url = "sqlite:///absent/mine.db"\n')
    plugin = "{config: {autoCapture: false}}"
    text = '{plugins: {slots: {memory: "memory-lancedb"}, entries: {"memory-lancedb": %s}}}'
    Path("openclaw.json").write_text(text % plugin)
    shown = json.loads(run("--config", "mine.toml", "--openclaw", "openclaw.json", "--json").stdout)
    assert shown["settings"]["store.url"]["source"] == "mine.toml: store.url"
    ingest = shown["settings"]["ingest.enabled"]
    assert (ingest["value"], ingest["source_kind"]) == (False, "openclaw")
    assert "memory-lancedb.config.autoCapture" in ingest["source"]
    (store,) = [check for check in shown["checks"] if check["name"] == "store"]
    assert "absent/mine.db" in store["said"], "the store of the named file is checked"
    assert run("--config", "no.toml").exit_code == 2


def test_notices_are_below_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("openclaw.json").write_text('{agents: {defaults: {compaction: {model: "m"}}}}')
    monkeypatch.setenv("RECOLLECT_CONFIG", str(Path("openclaw.json").absolute()))
    _, _, below = run("--settings").stdout.partition("settings, ")
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


def test_a_named_file_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_CONFIG", str(Path("absent.toml").absolute()))
    result = run()
    assert result.exit_code == 2
    assert "absent.toml" in result.stderr


def test_a_password_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://app:hunter2@db/x?password=hunter2"
    monkeypatch.setenv("RECOLLECT_STORE__URL", url)
    assert "hunter2" not in run("--settings").stdout
    assert "postgresql://app:" in run("--json").stdout
    assert "hunter2" not in run("--json").stdout
