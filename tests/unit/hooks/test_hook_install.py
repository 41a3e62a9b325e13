"""Our hooks in settings that people wrote: everything else stays, and goes back byte for byte."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click import Command
from click.testing import CliRunner

from recollect.cli.install import install, uninstall
from recollect.errors import RecollectError
from recollect.hosts.gateway.agents import read_configuration as value_of
from recollect.hosts.hooks.install import (
    HookEndpoint,
    carry_out,
    hook_entries,
    installed_at,
    is_ours,
    openclaw_plugin,
    outdated_hooks,
    plan_install,
    plan_uninstall,
    settings_file,
)
from recollect.hosts.hooks.transcript_file import AgentName

ENDPOINT = HookEndpoint(
    command="/opt/bin/recollect-hook", url="http://127.0.0.1:8377", token="t0ken-of-the-daemon"
)
OTHER = {"hooks": [{"type": "command", "command": "notify-send done"}]}
SAMPLES = (
    "{}",
    "{}\n",
    "{\n}\n",
    "{ }",
    "\ufeff{}\n",
    '{"model":"opus"}',
    '{"model": "opus",}',
    '{\n  "model": "opus"\n}\n',
    '{\n  "model": "opus",\n}\n',
    '{\n\t"model": "opus"\n}',
    '{\r\n    "model": "opus",\r\n    "env": {"A": "1"}\r\n}\r\n',
    '// mine\n{\n  "model": "opus" // the large one\n}\n',
    '/* a */ {\n  /* b */ "model": /* c */ "opus" /* d */\n} // e',
    '{"hooks":{}}',
    '{"hooks": {}, "z": [1, 2, {"hooks": 3}]}',
    '{"hooks":{"Stop":[]}}',
    '{"hooks":{"Stop":[ ]}}',
    '{"hooks":{"Stop":[\n]}}',
    json.dumps({"hooks": {"Stop": [OTHER]}}),
    json.dumps({"hooks": {"Stop": [OTHER]}}, indent=4),
    json.dumps({"hooks": {"Stop": [OTHER, OTHER], "SessionStart": [OTHER]}}, indent=2) + "\n",
    json.dumps({"hooks": {"PreToolUse": [{"matcher": "Bash", **OTHER}]}}, indent="\t"),
    '{"hooks": {"Stop": [{"hooks": [{"type":"command","command":"x"}]},],},}\n',
    '{\n "a": "// no comment",\n "b": "/* none */", "c": "\\"}{"\n}\n',
    '{\n "ü": "grüße, 你好 \\u00e9",\n "hooks": {"Stop": []}\n}\n',
    '{"permissions":{"allow":["Bash(recollect hook:*)"]},"hooks":{"Stop":[{"hooks":[]}]}}',
    '{\n\n\n  "model"   :   "opus"\n\n\n}\n\n\n',
    '{"a":null,"b":true,"c":-1.5e3,"hooks":{"SessionStart":[{"matcher":"compact","hooks":[]}]}}',
    """{
  "hooks": {
    // ours come below
    "Stop": [
      // first
      {"hooks": []} // one
      // last
    ]
  }
}
""",
    """{
  "hooks": {
    "UserPromptSubmit": [{"hooks": [{"type": "http", "url": "http://x/"}]}]
  }
}
""",
    "{\n  'model': 1\n}".replace("'", '"') + "\n\n// end",
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    return tmp_path


def put_in(path: Path, agent: AgentName = "claude-code") -> Any:
    carry_out(plan_install(agent, path, ENDPOINT))
    return value_of(path.read_text())


def test_there_are_thirty_samples() -> None:
    assert len(set(SAMPLES)) >= 30


@pytest.mark.parametrize("sample", SAMPLES)
def test_settings_survive_byte_for_byte(home: Path, sample: str) -> None:
    path = home / "settings.json"
    path.write_bytes(sample.encode())
    path.chmod(0o640)
    before = value_of(sample)
    installed = put_in(path)
    for event, entries in hook_entries("claude-code", ENDPOINT).items():
        assert installed["hooks"][event][-1:] == entries
        assert installed["hooks"][event][:-1] == before.get("hooks", {}).get(event, [])
    assert {**installed, "hooks": 0} == {**before, "hooks": 0}
    assert path.stat().st_mode & 0o777 == 0o600, "it holds a token"
    twice = put_in(path)
    assert twice == installed, "installed again it is there once"
    carry_out(plan_uninstall("claude-code", path))
    assert path.read_bytes() == sample.encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert not list((home / "home" / "hooks").glob("*"))


@pytest.mark.parametrize("sample", SAMPLES)
def test_what_others_change_meanwhile_stays(home: Path, sample: str) -> None:
    path = home / "settings.json"
    path.write_bytes(sample.encode())
    put_in(path)
    path.write_bytes(path.read_bytes() + b"\n// changed\n")
    carry_out(plan_uninstall("claude-code", path))
    assert path.read_bytes() == sample.encode() + b"\n// changed\n"


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("sample", SAMPLES)
def test_written_anew_by_others_our_entries_go_and_nothing_else(
    home: Path,
    sample: str,
    first: bool,
) -> None:
    path = home / "settings.json"
    path.write_bytes(sample.encode())
    installed, added = put_in(path), {"theme": "dark"}
    path.write_text(json.dumps(added | installed if first else installed | added, indent=8))
    carry_out(plan_uninstall("claude-code", path))
    assert json.loads(path.read_text()) == value_of(sample) | added


def changed(home: Path, sample: str, old: str, new: str) -> str:
    """What is left of settings that were changed by hand between install and uninstall."""
    path = home / "settings.json"
    path.write_text(sample)
    put_in(path)
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    carry_out(plan_uninstall("claude-code", path))
    return path.read_text()


def test_what_is_written_above_ours_leaves_no_comma_behind(home: Path) -> None:
    left = changed(home, "{}\n", '  "hooks": {\n', '  "model": "opus",\n  "hooks": {\n')
    assert left == '{\n  "model": "opus"\n}\n'
    stop = '{\n  "hooks": {\n    "Stop": []\n  }\n}\n'
    mine = f"\n      {json.dumps(OTHER)}"
    left = changed(home, stop, '"Stop": [', f'"Stop": [{mine},')
    assert left == stop.replace("[", f"[{mine}\n    ")


@pytest.mark.parametrize("line_end", ["\n", ""])
@pytest.mark.parametrize("comment", ["// mine", "/* mine */"])
def test_a_comment_beside_ours_stays(home: Path, comment: str, line_end: str) -> None:
    sample = f'{{"hooks": {{"Stop": [{json.dumps(OTHER)}{line_end}]}}}}'
    shown = json.dumps(OTHER)
    left = changed(home, sample, f"{shown},\n", f"{shown}, {comment}\n")
    assert comment in left
    assert value_of(left) == value_of(sample)
    left = changed(home, "{}", '"Stop": [\n', f'"Stop": [ {comment}\n')
    assert comment in left
    assert value_of(left) == {"hooks": {"Stop": []}}


@pytest.mark.parametrize("behind", [", // ours", " /* ours */,", " // ours\n ,"])
def test_among_other_entries_ours_goes_with_one_comma(home: Path, behind: str) -> None:
    path = home / "settings.json"
    path.write_text("{}")
    (ours,) = put_in(path)["hooks"]["Stop"]
    mine, entry = json.dumps(OTHER), json.dumps(ours)
    lists = (
        f"[\n{mine}, // before\n{entry}{behind}\n{mine}]",
        f"[{entry}{behind}\n{mine}, {mine}]",
        f"[{mine}, {mine}, // before\n{entry}{behind}\n]",
        f"[{entry}, {mine}, {mine}, {entry}]",
    )
    for text in lists:
        path.write_text(f'{{"hooks": {{"Stop": {text}}}}}')
        carry_out(plan_uninstall("claude-code", path, ENDPOINT.token))
        left = path.read_text()
        assert value_of(left) == {"hooks": {"Stop": [OTHER, OTHER]}}, text
        assert re.findall("before|ours", left) == re.findall("before|ours", text)


def test_hooks_of_others_that_look_like_ours_stay(home: Path) -> None:
    path = home / "settings.json"
    theirs = [
        {"type": "command", "command": "~/hooks/claude-code"},
        {"type": "command", "command": "/opt/my-recollect hook claude-code"},
        {"type": "http", "url": "http://127.0.0.1:9999/hooks/claude-code"},
        {
            "type": "http",
            "url": f"{ENDPOINT.url}/hooks/claude-code",
            "headers": {"authorization": "Bearer their-own"},
        },
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
    assert is_ours({"hooks": [{"type": "command", "command": command}]}, ())


def test_with_a_new_token_the_hooks_of_the_old_one_go(home: Path) -> None:
    path = home / "settings.json"
    path.write_text("{}\n")
    put_in(path)
    path.write_text(path.read_text() + "\n")
    new = replace(ENDPOINT, token="another-token")
    carry_out(plan_install("claude-code", path, new))
    assert "another-token" in path.read_text()
    assert ENDPOINT.token not in path.read_text()
    assert json.loads(path.read_text())["hooks"] == hook_entries("claude-code", new)


def test_a_mode_that_the_user_chose_since_stays(home: Path) -> None:
    path = home / "settings.json"
    path.write_text("{}\n")
    path.chmod(0o644)
    put_in(path)
    path.chmod(0o660)
    carry_out(plan_uninstall("claude-code", path))
    assert path.stat().st_mode & 0o777 == 0o660


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


def test_git_passes_over_the_file_with_the_token(home: Path) -> None:
    def git(*words: str, folder: Path = home) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", *words]
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        return done.stdout

    git("init", "repository")
    repository = home / "repository"
    (repository / "a [1]").mkdir()
    git("commit", "--allow-empty", "-m", "first", folder=repository)
    git("worktree", "add", "../tree", folder=repository)
    exclude = repository / ".git" / "info" / "exclude"
    was = exclude.read_text() if exclude.exists() else None
    for folder in (repository, repository / "a [1]", home / "tree"):
        path = settings_file("claude-code", "project", folder)
        put_in(path)
        put_in(path)
        assert git("status", "--porcelain", "--untracked-files=all", folder=folder) == ""
        carry_out(plan_uninstall("claude-code", path))
        assert (exclude.read_text() if exclude.exists() else None) == was


def test_hooks_that_ask_with_another_token_are_told(home: Path) -> None:
    path = home / "settings.json"
    assert outdated_hooks(ENDPOINT.url, ENDPOINT.token) == []
    put_in(path)
    put_in(home / "hooks.json", "codex")  # commands bring no token
    assert outdated_hooks(ENDPOINT.url, ENDPOINT.token) == []
    assert outdated_hooks(ENDPOINT.url, "new") == [("claude-code", str(path))]
    assert outdated_hooks("http://127.0.0.1:1", ENDPOINT.token) == [("claude-code", str(path))]


@pytest.mark.parametrize("agent", ["claude-code", "codex"])
def test_a_file_that_was_not_there_is_gone_again(home: Path, agent: AgentName) -> None:
    path = settings_file(agent, "project", home)
    installed = put_in(path, agent)
    assert path.stat().st_mode & 0o777 == 0o600, "it holds a token"
    assert "SessionStart" in installed["hooks"]
    carry_out(plan_uninstall(agent, path))
    assert not path.exists()
    assert not path.parent.exists()


def test_a_dry_run_shows_the_change_without_the_token(home: Path) -> None:
    path = home / "settings.json"
    path.write_text('{\n  "model": "opus"\n}\n')
    plan = plan_install("claude-code", path, ENDPOINT)
    assert '+    "SessionStart"' in plan.diff() or '+  "hooks"' in plan.diff()
    assert "t0ken" not in plan.diff()
    assert path.read_text() == '{\n  "model": "opus"\n}\n'


@pytest.mark.parametrize(
    "text", ["[]", '{"hooks": []}', '{"hooks": {"Stop": {}}}', "{", "nonsense"]
)
def test_what_cannot_be_read_is_left_alone(home: Path, text: str) -> None:
    path = home / "settings.json"
    path.write_text(text)
    with pytest.raises(RecollectError, match="nothing was changed"):
        plan_install("claude-code", path, ENDPOINT)
    assert path.read_text() == text


@pytest.mark.parametrize("text", ["", "\n", " \r\n"])
def test_an_empty_file_is_no_settings_yet(home: Path, text: str) -> None:
    path = home / "settings.json"
    path.write_bytes(text.encode())
    assert "SessionStart" in put_in(path)["hooks"]
    carry_out(plan_uninstall("claude-code", path))
    assert path.read_bytes() == text.encode()


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


def test_hooks_by_command_send_nothing_to_a_port(home: Path, project: Path) -> None:
    """Whoever takes the daemon's port while it is away is told nothing, and no token is there."""
    path = project / ".claude" / "settings.local.json"
    assert '"type": "http"' in (run(install, "claude-code", "--project"), path.read_text())[1]
    run(install, "claude-code", "--project", "--commands")
    entries = json.loads(path.read_text())["hooks"]
    assert set(entries) == set(hook_entries("claude-code", ENDPOINT))
    hooks = [hook for event in entries.values() for entry in event for hook in entry["hooks"]]
    assert {hook["type"] for hook in hooks} == {"command"}
    assert "Bearer" not in path.read_text() and "127.0.0.1" not in path.read_text()
    run(uninstall, "claude-code", "--project")
    assert not path.exists()


def test_a_second_install_says_that_it_is_there_already(home: Path, project: Path) -> None:
    first, second = (run(install, "claude-code", "--project") for _ in range(2))
    assert "already" not in first
    assert "already" in second and len(second.splitlines()) == 1


def test_openclaws_plugin_is_put_in_place_and_taken_out(home: Path) -> None:
    """From what is installed: all that it imports is there, and nothing is left behind."""
    assert "would be put into" in run(install, "openclaw", "--dry-run")
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
    assert "is gone again" in run(uninstall, "openclaw")
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
    """A project whose author would like to have what its users say; its user stands in it."""
    project = home / "project"
    (project / "below").mkdir(parents=True)
    (project / "recollect.toml").write_text("[daemon]\nport = 4242\n")
    monkeypatch.chdir(project / "below")
    return project


def test_a_projects_settings_do_not_say_where_prompts_go(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    run(install, "claude-code", "--project")
    path = project / ".claude" / "settings.local.json"
    url = json.loads(path.read_text())["hooks"]["Stop"][0]["hooks"][0]["url"]
    assert ":4242/" not in url
    assert Path.cwd() == project


def test_a_project_is_meant_as_a_whole(project: Path) -> None:
    path = project / ".claude" / "settings.local.json"
    run(install, "claude-code", "--project")
    assert path.exists()
    assert [one.name for one in Path.cwd().iterdir()] == []
    run(uninstall, "claude-code", "--project")
    assert not path.exists()


def test_a_dry_run_writes_nothing_at_all(home: Path, project: Path) -> None:
    shown = run(install, "claude-code", "--project", "--dry-run")
    assert "+" in shown and "SessionStart" in shown
    assert not (home / "home").exists()
    assert not (project / ".claude").exists()


def test_without_what_was_written_down_the_daemons_token_tells_ours(
    home: Path, project: Path
) -> None:
    path = project / ".claude" / "settings.local.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"hooks": {"Stop": [OTHER]}}))
    run(install, "claude-code", "--project")
    for record in (home / "home" / "hooks").iterdir():
        record.unlink()
    run(uninstall, "claude-code", "--project")
    assert json.loads(path.read_text()) == {"hooks": {"Stop": [OTHER]}}


@pytest.mark.parametrize("former", [False, True])
def test_installing_again_does_not_move_since_when(home: Path, former: bool) -> None:
    """A record of an earlier version says it by the file's own time."""
    path = home / "settings.json"
    put_in(path)
    (record,) = (home / "home" / "hooks").glob("*")
    kept = json.loads(record.read_text())
    kept["installed_at"] = 7.0
    if former:
        del kept["installed_at"]
    record.write_text(json.dumps(kept))
    os.utime(record, (7, 7))
    put_in(path)
    assert installed_at("claude-code") == 7.0
