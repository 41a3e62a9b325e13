"""Our hooks in settings that people wrote: everything else stays, and goes back byte for byte."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click import Command
from click.testing import CliRunner

from recollect.cli.install import install, uninstall
from recollect.errors import RecollectError
from recollect.hosts.hooks.install import (
    carry_out,
    hook_entries,
    installed_at,
    is_ours,
    openclaw_plugin,
    plan_install,
    plan_uninstall,
    settings_file,
)
from recollect.hosts.hooks.transcript_file import AgentName

COMMAND = "/opt/bin/recollect-hook"
OTHER = {"hooks": [{"type": "command", "command": "notify-send done"}]}
SAMPLES = (
    "{}",
    "{ }\n",
    "\ufeff{}\n",
    '{"model":"opus"}',
    '{\n\t"model": "opus"\n}',
    '{\r\n    "model": "opus",\r\n    "env": {"A": "1"}\r\n}\r\n',
    '{"hooks":{}}',
    '{"hooks": {}, "z": [1, 2, {"hooks": 3}]}',
    '{"hooks":{"PreToolUse":[ ]}}',
    json.dumps({"hooks": {"Stop": [OTHER]}}),
    json.dumps({"hooks": {"Stop": [OTHER, OTHER], "SessionStart": [OTHER]}}, indent=4) + "\n",
    json.dumps({"hooks": {"PreToolUse": [{"matcher": "Bash", **OTHER}]}}, indent="\t"),
    '{\n "ü": "grüße, 你好 \\u00e9",\n "hooks": {"PreCompact": [{"hooks":[]}]}\n}\n',
    '{"permissions":{"allow":["Bash(recollect hook:*)"]},"hooks":{"Stop":[{"hooks":[]}]}}',
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    return tmp_path


def put_in(path: Path, agent: AgentName = "claude-code") -> Any:
    carry_out(plan_install(agent, path, COMMAND))
    return json.loads(path.read_text())


@pytest.mark.parametrize("sample", SAMPLES)
def test_settings_survive_byte_for_byte(home: Path, sample: str) -> None:
    path = home / "settings.json"
    path.write_bytes(sample.encode())
    path.chmod(0o640)
    before = json.loads(sample.removeprefix("\ufeff"))
    installed = put_in(path)
    for event, entries in hook_entries("claude-code", COMMAND).items():
        assert installed["hooks"][event][-1:] == entries
        assert installed["hooks"][event][:-1] == before.get("hooks", {}).get(event, [])
    assert {**installed, "hooks": 0} == {**before, "hooks": 0}
    assert put_in(path) == installed, "installed again it is there once"
    carry_out(plan_uninstall("claude-code", path))
    assert path.read_bytes() == sample.encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert not list((home / "home" / "hooks").glob("*"))


@pytest.mark.parametrize("sample", SAMPLES)
def test_changed_by_others_our_entries_go_and_nothing_else(home: Path, sample: str) -> None:
    path = home / "settings.json"
    path.write_bytes(sample.encode())
    path.write_text(json.dumps(put_in(path) | {"theme": "dark"}, indent=8))
    carry_out(plan_uninstall("claude-code", path))
    left = json.loads(path.read_text())
    before = json.loads(sample.removeprefix("\ufeff"))
    if not before.get("hooks", True):  # an empty table goes with ours
        del before["hooks"]
    assert left == before | {"theme": "dark"}


def test_hooks_of_others_that_look_like_ours_stay(home: Path) -> None:
    path = home / "settings.json"
    theirs = [
        {"type": "command", "command": "~/hooks/claude-code"},
        {"type": "command", "command": "/opt/my-recollect hook claude-code"},
        {"type": "http", "url": "http://127.0.0.1:9999/hooks/claude-code"},
    ]
    before = {"hooks": {"Stop": [{"hooks": [one]} for one in theirs]}}
    path.write_text(json.dumps(before))
    assert put_in(path)["hooks"]["Stop"][:-1] == before["hooks"]["Stop"]
    path.write_text(path.read_text() + "\n")
    carry_out(plan_uninstall("claude-code", path))
    assert json.loads(path.read_text()) == before


@pytest.mark.parametrize(
    "command",
    [
        "/opt/bin/recollect-hook codex",
        "recollect-hook claude-code",
        "'/opt/my tools/recollect-hook' claude-code",
        "/usr/bin/python3 -m recollect hook codex",
        "recollect hook claude-code",
    ],
)
def test_every_command_of_ours_is_known(command: str) -> None:
    assert is_ours({"hooks": [{"type": "command", "command": command}]})


def test_a_project_cannot_have_other_files_written_to(home: Path) -> None:
    precious = home / "precious.json"
    precious.write_text("{}")
    project = home / "project"
    (project / ".claude").mkdir(parents=True)
    path = settings_file("claude-code", "project", project)
    (project / ".claude" / ".settings.local.json.recollect").symlink_to(precious)
    put_in(path)
    assert precious.read_text() == "{}"
    carry_out(plan_uninstall("claude-code", path))
    path.symlink_to(precious)
    with pytest.raises(RecollectError, match="leads out of the project"):
        settings_file("claude-code", "project", project)


@pytest.mark.parametrize("agent", ["claude-code", "codex"])
def test_a_file_that_was_not_there_is_gone_again(home: Path, agent: AgentName) -> None:
    path = settings_file(agent, "project", home)
    installed = put_in(path, agent)
    assert "SessionStart" in installed["hooks"]
    carry_out(plan_uninstall(agent, path))
    assert not path.exists()
    assert not path.parent.exists()


@pytest.mark.parametrize(
    "text", ["[]", '{"hooks": []}', '{"hooks": {"Stop": {}}}', "{", "nonsense", '{"a": 1} // mine']
)
def test_what_cannot_be_read_is_left_alone(home: Path, text: str) -> None:
    path = home / "settings.json"
    path.write_text(text)
    with pytest.raises(RecollectError, match="nothing was changed"):
        plan_install("claude-code", path, COMMAND)
    assert path.read_text() == text


def test_a_link_stays_a_link(home: Path) -> None:
    real = home / "dotfiles.json"
    real.write_text("{}\n")
    path = home / "settings.json"
    path.symlink_to(real)
    put_in(path)
    assert path.is_symlink()
    carry_out(plan_uninstall("claude-code", path))
    assert real.read_text() == "{}\n"


def test_codex_gets_commands_whose_text_never_changes(home: Path) -> None:
    installed = put_in(home / "hooks.json", "codex")
    commands = {
        hook["command"]
        for entries in installed["hooks"].values()
        for entry in entries
        for hook in entry["hooks"]
    }
    assert commands == {"/opt/bin/recollect-hook codex"}


# The commands


def test_openclaws_plugin_is_put_in_place_and_taken_out(home: Path) -> None:
    """From what is installed: all that it imports is there, and nothing is left behind."""
    assert "Would put OpenClaw's plugin into" in run(install, "openclaw", "--dry-run")
    assert not openclaw_plugin().exists()
    told = run(install, "openclaw")
    assert f"openclaw plugins install --link {openclaw_plugin()}" in told
    assert "already" in run(install, "openclaw")
    for file in openclaw_plugin().glob("*.ts"):
        for name in re.findall(r'from "\./([^"]+)"', file.read_text()):
            assert (openclaw_plugin() / name).is_file(), name
    assert (openclaw_plugin() / "openclaw.plugin.json").is_file()
    (openclaw_plugin() / "index.ts").write_text("of an earlier version")
    assert json.loads(run(install, "openclaw", "--json"))["changed"] is True
    assert "Removed " in run(uninstall, "openclaw")
    assert not openclaw_plugin().exists()
    assert "There is no plugin" in run(uninstall, "openclaw")
    with pytest.raises(RecollectError, match="leave --project out"):
        run(install, "openclaw", "--project")


def test_the_wheel_holds_every_file_of_openclaws_plugin() -> None:
    root = Path(__file__).parents[3]
    built = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    shipped = built["targets"]["wheel"]["force-include"]
    wanted = {
        f"plugins/openclaw/{path.name}"
        for path in (root / "plugins" / "openclaw").iterdir()
        if path.suffix in (".ts", ".json") and path.name not in ("openclaw.d.ts", "tsconfig.json")
    }
    assert set(shipped) == wanted
    assert all(shipped[name] == f"recollect/{name}" for name in wanted)


def run(command: Command, *words: str) -> str:
    done = CliRunner().invoke(command, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def project(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = home / "project"
    (project / "below").mkdir(parents=True)
    (project / "recollect.toml").touch()
    monkeypatch.chdir(project / "below")
    return project


def test_a_dry_run_writes_nothing_at_all(home: Path, project: Path) -> None:
    shown = run(install, "claude-code", "--project", "--dry-run")
    assert "+" in shown and "SessionStart" in shown
    assert not (home / "home").exists()
    assert not (project / ".claude").exists()


def test_without_a_record_commands_tell_ours(home: Path, project: Path) -> None:
    path = project / ".claude" / "settings.local.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"hooks": {"Stop": [OTHER]}}))
    run(install, "claude-code", "--project")
    for record in (home / "home" / "hooks").iterdir():
        record.unlink()
    assert "recollect daemon stop" in run(uninstall, "claude-code", "--project")
    assert json.loads(path.read_text()) == {"hooks": {"Stop": [OTHER]}}


def test_installing_again_does_not_move_since_when(home: Path) -> None:
    path = home / "settings.json"
    put_in(path)
    (record,) = (home / "home" / "hooks").glob("*")
    record.write_text(json.dumps({**json.loads(record.read_text()), "installed_at": 7.0}))
    put_in(path)
    assert installed_at("claude-code") == 7.0
