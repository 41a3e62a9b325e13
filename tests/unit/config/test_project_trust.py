"""What a project's recollect.toml may set, before and after the user trusts it."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.trusted_settings import write_trusted

from recollect.cli import main
from recollect.errors import SettingsError
from recollect.system.config import Settings, build, load_settings, setting_keys, value_of
from recollect.system.config.fields import ProjectRule, holds_text, read_value
from recollect.system.config.trust import ProjectFile, is_trusted, read_project_file, record_trust
from recollect.system.places import models_folders, trust_folder, user_settings_file

pytestmark = pytest.mark.usefixtures("usual_deadlines")

HARMFUL = '[store]\nurl = "postgresql://app@evil.test/x"\n'
TOOL_NAMES = {"pruning.tools.allow", "pruning.tools.deny"}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def store_url() -> str | None:
    return load_settings(environment={}).settings.store.url


def trust(*arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(main, ["trust", *arguments], input=given)


def test_every_setting_says_what_a_project_may_set() -> None:
    """A free text can be a server, a path, a model, a command or words to an agent."""
    of_the_machine = {"store", "models", "gateway", "serve", "telemetry", "daemon"}
    for path, key in setting_keys().items():
        assert isinstance(key.project, ProjectRule), path
        if holds_text(key.hint) and path not in TOOL_NAMES:
            assert key.project.values == (), path
        if path.split(".")[0] in of_the_machine:
            assert key.project.values == (), path
        for value in key.project.values or ():
            assert read_value(key.hint, value) == value, path


def other_value(path: str) -> Any:
    """A value that is not the default, as a file would spell it."""
    key = setting_keys()[path]
    candidates: list[Any] = [not key.default if isinstance(key.default, bool) else "x"]
    candidates += ["space", "remote", "openclaw", "after-system", "off", "default", "client"]
    candidates += ["json", "daily", "openai", "anthropic", "aggressive", 7, 5000, 0.25, ["x"]]
    candidates += [["sessions"], ["daily"]]
    for value in candidates:
        try:
            if read_value(key.hint, value) != key.default:
                build({path: read_value(key.hint, value)})
                return value
        except (ValueError, SettingsError):
            continue
    raise AssertionError(path)


def test_a_found_file_sets_a_key_as_declared_and_a_trusted_one_always() -> None:
    for path, key in setting_keys().items():
        value = other_value(path)
        canonical = read_value(key.hint, value)
        text = f"{path} = {json.dumps(value)}\n"
        Path("recollect.toml").write_text(text)
        found = load_settings(environment={})
        allowed = key.project.allows(canonical)
        assert value_of(found.settings, path) == (canonical if allowed else key.default), path
        assert (path in found.project_notice) is not allowed
        write_trusted(text)
        trusted = load_settings(environment={})
        assert value_of(trusted.settings, path) == canonical, path
        assert trusted.project_notice == ""


def test_a_project_may_narrow_and_protect_but_not_widen() -> None:
    own = user_settings_file()
    own.parent.mkdir(parents=True)
    own.write_text("[redaction]\nenabled = false\n")
    Path("recollect.toml").write_text(
        '[redaction]\nenabled = true\npii = true\n[recall]\nscope = "session"\n'
    )
    settings = load_settings(environment={}).settings
    assert (settings.redaction.enabled, settings.redaction.pii) == (True, True)
    assert settings.recall.scope == "session"
    own.write_text('window_tokens = 50000\n[recall]\nscope = "session"\n')
    for line, key in (
        ("redaction.enabled = false", "redaction.enabled"),
        ('recall.scope = "space"', "recall.scope"),
        ('recall.scope = "auto"', "recall.scope"),
        ("window_tokens = 3999", "window_tokens"),  # a model would summarise at every turn
    ):
        Path("recollect.toml").write_text(f"{line}\n")
        loaded = load_settings(environment={})
        assert loaded.settings.redaction.enabled
        assert loaded.settings.recall.scope == "session", line
        assert loaded.settings.window_tokens == 50_000
        assert key in loaded.project_notice


def test_the_users_own_file_the_environment_and_arguments_set_everything(project: Path) -> None:
    own = user_settings_file()
    own.parent.mkdir(parents=True)
    own.write_text('store.url = "mine.db"\nwindow_tokens = 5000\n')
    assert store_url() == "mine.db"
    (project / "recollect.toml").write_text(f"window_tokens = 6000\n{HARMFUL}")
    loaded = load_settings(environment={})
    assert (loaded.settings.store.url, loaded.settings.window_tokens) == ("mine.db", 6000)
    named = load_settings(environment={}, file=project / "recollect.toml").settings
    assert named.store.url == "postgresql://app@evil.test/x"
    assert load_settings(environment={}, folder=None).settings.window_tokens == 5000
    given = load_settings(environment={"RECOLLECT_STORE__URL": "variable.db"}).settings
    assert given.store.url == "variable.db"
    given = load_settings(environment={}, arguments={"store.url": "argument.db"}).settings
    assert given.store.url == "argument.db"


def test_a_preset_is_judged_as_all_else() -> None:
    Path("recollect.toml").write_text(f'preset = "openclaw"\nwindow_tokens = 7000\n{HARMFUL}')
    loaded = load_settings(environment={})
    assert loaded.settings == build({"window_tokens": 7000})
    assert "preset, store.url" in loaded.project_notice


def test_trust_shows_what_it_allows_and_asks_again_when_the_file_changes(project: Path) -> None:
    file = project / "recollect.toml"
    file.write_text(f"window_tokens = 6000\n{HARMFUL}")
    refused = trust("--json")
    assert refused.exit_code == 1
    shown = json.loads(refused.stdout)
    assert shown["trusted"] is False
    assert [one["key"] for one in shown["settings"]] == ["store.url"]
    assert trust().exit_code == 2  # nobody can be asked
    assert store_url() is None
    done = trust("--yes")
    assert done.exit_code == 0
    assert 'store.url = "postgresql://app@evil.test/x"' in done.stdout
    assert "window_tokens" not in done.stdout
    assert store_url() == "postgresql://app@evil.test/x"
    trusted = file.read_bytes()
    file.write_text(f"{HARMFUL}key = 'env:OTHER'\n")
    assert store_url() is None
    assert "changed" in trust("--list").stdout
    assert trust("--yes").exit_code == 0
    file.write_bytes(trusted)
    assert store_url() is None, "an earlier content is not trusted any more"
    assert trust("--yes").exit_code == 0
    assert json.loads(trust("--list", "--json").stdout) == {
        "files": [{"file": str(file), "state": "trusted"}]
    }
    assert trust("--revoke").exit_code == 0
    assert store_url() is None
    assert trust("--revoke").exit_code == 1
    assert json.loads(trust("--list", "--json").stdout) == {"files": []}


def test_trust_is_for_one_place(project: Path, tmp_path: Path) -> None:
    write_trusted(HARMFUL)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "recollect.toml").write_text(HARMFUL)
    assert load_settings(environment={}, folder=copy).settings.store.url is None
    (copy / "recollect.toml").unlink()
    os.link(project / "recollect.toml", copy / "recollect.toml")
    assert load_settings(environment={}, folder=copy).settings.store.url is None
    (tmp_path / "link").symlink_to(project, target_is_directory=True)
    linked = load_settings(environment={}, folder=tmp_path / "link")
    assert linked.settings.store.url is not None, "the same folder by another name"


def test_lines_are_shown_so_that_nothing_hides() -> None:
    hidden = "http://good.test/\u202egro.live\u202c\u001b[2K\rhttp://good.test"
    Path("recollect.toml").write_text(f"[models]\nbase_url = {json.dumps(hidden)}\n")
    shown = trust("--yes").stdout
    assert "\\u202e" in shown and "\\u001b" in shown
    assert shown.replace("\n", "").isprintable()


def test_a_long_value_hides_no_other_line() -> None:
    Path("recollect.toml").write_text(
        "gateway.port = 9\nredaction.enabled = false\n"
        f"index.extra_paths = {json.dumps([f'notes/{number}.md' for number in range(100)])}\n"
        f'models.main = "{"m" * 1_000}"\nmodels.base_url = "http://evil.test"\n'
    )
    head, *lines, _ = trust("--yes").stdout.splitlines()
    assert "5 settings" in head
    assert all(len(line) <= 200 for line in lines), lines
    keys = [line.split(" = ")[0].strip() for line in lines]
    assert set(keys[:3]) == {"index.extra_paths", "models.main", "models.base_url"}
    assert set(keys[3:]) == {"gateway.port", "redaction.enabled"}
    assert "(100 items)" in next(line for line in lines if "extra_paths" in line)


def linked(place: Path, elsewhere: Path) -> None:
    elsewhere.write_text("window_tokens = 1234\n")
    place.symlink_to(elsewhere)


def dangling(place: Path, elsewhere: Path) -> None:
    place.symlink_to(elsewhere)


def pipe(place: Path, elsewhere: Path) -> None:
    del elsewhere
    os.mkfifo(place)


def folder(place: Path, elsewhere: Path) -> None:
    del elsewhere
    place.mkdir()


def huge(place: Path, elsewhere: Path) -> None:
    del elsewhere
    with place.open("wb") as file:
        file.write(b"window_tokens = 1234\n")
        file.truncate(1 << 40)


def device(place: Path, elsewhere: Path) -> None:
    del elsewhere
    place.symlink_to("/dev/zero")


def long_line(place: Path, elsewhere: Path) -> None:
    """Python's parser takes 17 seconds and 2 GB for it."""
    del elsewhere
    place.write_text("a." * 32_000 + "a = 1\n")


@pytest.mark.parametrize("made", [linked, dangling, pipe, folder, huge, long_line, device])
def test_what_is_no_plain_file_is_not_read(
    project: Path, tmp_path: Path, made: Callable[[Path, Path], None]
) -> None:
    made(project / "recollect.toml", tmp_path / "elsewhere.toml")
    loaded = load_settings(environment={})
    assert loaded.settings == Settings()
    assert "is not read" in loaded.project_notice
    done = trust("--yes")
    assert (done.exit_code, "is not read" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 900 + "]" * 900,
        f"window_tokens = {'9' * 1_900}",
        f"pruning.ttl = {'9' * 1_900}",
        "a." * 990 + "a = 1",
        "\0",
        "unheard_of = 1",
        '"a\\u001b[2J\\u202e" = 1',
        "window_tokens =",
        'window_tokens = "wide"',
        "window_tokens = 6000\nwindowTokens = 6000",
        "agents = 1",
        "pruning.soft_trim.head_chars = 5000",  # each value fits, and they do not fit together
    ],
)
def test_a_broken_file_stops_nothing_until_it_is_trusted(text: str) -> None:
    own = user_settings_file()
    own.parent.mkdir(parents=True)
    own.write_text("window_tokens = 50000\n")
    Path("recollect.toml").write_text(text)
    loaded = load_settings(environment={})
    assert loaded.settings.window_tokens == 50_000
    assert "recollect.toml is ignored: " in loaded.project_notice
    assert loaded.project_notice.isprintable() and len(loaded.project_notice) < 600
    command_line = CliRunner()
    assert "is ignored" in command_line.invoke(main, ["doctor"]).stdout
    write_trusted(text)
    assert command_line.invoke(main, ["doctor"]).exit_code == 2
    for named in (None, Path("recollect.toml")):
        with pytest.raises(SettingsError):
            load_settings(environment={}, file=named)


@pytest.mark.parametrize("variable", ["RECOLLECT_HOME", "RECOLLECT_CONFIG", "RECOLLECT_MODELS"])
def test_a_variable_names_no_file_of_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """A clone could bring a file of that name."""
    Path(".recollect").mkdir()
    Path(".recollect/recollect.toml").write_text(HARMFUL)
    value = ".recollect/recollect.toml" if variable == "RECOLLECT_CONFIG" else ".recollect"
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=f"{variable} must be an absolute path") as problem:
        models_folders() if variable == "RECOLLECT_MODELS" else load_settings()
    assert str(Path(value).absolute()) in str(problem.value), "what to type"
    monkeypatch.setenv("HOME", str(Path.cwd()))
    monkeypatch.setenv(variable, f"~/{value}")
    assert Path(".recollect").absolute() in models_folders() or load_settings().settings.store.url
    monkeypatch.delenv(variable)
    named = load_settings(file=Path(".recollect/recollect.toml"))
    assert named.settings.store.url, "the user typed it"


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can be somebody else"
)
def test_a_home_that_may_not_be_entered_holds_no_settings(tmp_path: Path) -> None:
    """Started as another user with the first one's HOME, as `su` without a dash does."""
    home = tmp_path / "closed"
    (home / "config" / "recollect").mkdir(parents=True)
    home.chmod(0o700)
    code = (
        "from recollect.system.config import Settings, load_settings\n"
        "assert load_settings().settings == Settings()\n"
    )
    variables = {**os.environ, "XDG_CONFIG_HOME": str(home / "config"), "HOME": str(home)}
    variables = {k: v for k, v in variables.items() if not k.startswith("RECOLLECT_")}
    somebody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    done = subprocess.run(
        [*somebody, sys.executable, "-c", code],
        env=variables,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_bytes_that_are_hashed_are_the_bytes_that_are_parsed(project: Path) -> None:
    """A file that changes after it was read is trusted as it was read."""
    file = project / "recollect.toml"
    file.write_text("window_tokens = 6000\n")
    found = read_project_file(project)
    assert isinstance(found, ProjectFile)
    file.write_text(HARMFUL)
    record_trust(found)
    assert store_url() is None
    file.write_text("window_tokens = 6000\n")
    assert is_trusted(found)


def test_records_are_private_and_others_may_not_make_them(project: Path) -> None:
    write_trusted(HARMFUL)
    (record,) = trust_folder().iterdir()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(trust_folder().stat().st_mode) == 0o700
    assert store_url() is not None
    record.chmod(0o666)
    assert store_url() is None, "others could have written it"
    record.chmod(0o600)
    trust_folder().chmod(0o777)
    assert store_url() is None, "others could have put it there"
    with pytest.raises(SettingsError, match="that you own"):
        write_trusted(HARMFUL)
    trust_folder().chmod(0o700)
    assert store_url() is not None
    real = trust_folder().rename(project / "theirs")
    trust_folder().symlink_to(real, target_is_directory=True)
    assert store_url() is None, "a link could lead anywhere"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_record_of_another_user_does_not_count() -> None:
    write_trusted(HARMFUL)
    (record,) = trust_folder().iterdir()
    os.chown(record, 65534, 65534)
    assert store_url() is None
    os.chown(record, 0, 0)
    os.chown(trust_folder(), 65534, 65534)
    assert store_url() is None


def test_the_notice_of_a_folder_with_a_hostile_name_moves_no_cursor(tmp_path: Path) -> None:
    name = tmp_path / "a\x1b[2J\nb\u202e"
    name.mkdir()
    (name / "recollect.toml").write_text(HARMFUL)
    assert load_settings(environment={}, folder=name).project_notice.isprintable()


def test_init_trusts_what_it_writes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-none")
    assert CliRunner().invoke(main, ["init", "--yes"]).exit_code == 0
    assert load_settings().settings.models.provider == "anthropic"
    file = project / "recollect.toml"
    file.write_text(file.read_text() + 'base_url = "http://evil.test"\n')
    assert load_settings().settings.models.provider is None


def test_the_users_own_folder_holds_no_project(monkeypatch: pytest.MonkeyPatch) -> None:
    own = user_settings_file()
    own.parent.mkdir(parents=True)
    own.write_text(HARMFUL)
    monkeypatch.chdir(own.parent)
    loaded = load_settings(environment={})
    assert (loaded.settings.store.url is not None, loaded.project_notice) == (True, "")


def test_the_users_own_file_is_in_the_platforms_config_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RECOLLECT_HOME")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_settings_file().is_relative_to(tmp_path)
    assert user_settings_file().name == "recollect.toml"
    user_settings_file().parent.mkdir(parents=True)
    user_settings_file().write_text('store.url = "mine.db"\n')
    assert store_url() == "mine.db"
