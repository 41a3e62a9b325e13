"""How agents are started through the gateway, and where they would go without it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from recollect.cli import main
from recollect.cli.gateway import AGENT_NAMES, lines_of, settings_for_wrap, sums_of
from recollect.hosts.gateway.agents import AGENTS, OwnUpstream, prepare_launch
from recollect.hosts.hooks.install import carry_out, plan_install, settings_file
from recollect.system.config import Settings

URL = "http://127.0.0.1:8788"
MODELS = b'{"providers": {"openai": {"apiKey": "k"}, "own": {"baseUrl": "http://x/v1"}}}\n\n'
FILES = {
    "claude": ".claude/settings.json",
    "codex": ".codex/config.toml",
    "pi": ".pi/agent/models.json",
    "opencode": ".config/opencode/opencode.jsonc",
}


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_pi_sees_its_own_folder_with_another_table_of_models() -> None:
    own = Path(os.environ["HOME"]) / ".pi/agent/models.json"
    own.parent.mkdir(parents=True)
    own.write_bytes(MODELS)
    (own.parent / "auth.json").write_text("{}")
    with prepare_launch(AGENTS["pi"], URL) as launch:
        shown = Path(launch.environment["PI_CODING_AGENT_DIR"])
        providers = json.loads((shown / "models.json").read_text())["providers"]
        assert providers["own"] == {"baseUrl": "http://x/v1"}
        assert providers["openai"] == {"apiKey": "k", "baseUrl": f"{URL}/v1"}
        assert (shown / "auth.json").read_text() == "{}"
        (shown / "sessions" / "kept.jsonl").write_text("a session")
        (shown / "auth.json").unlink()
        (shown / "auth.json").write_text('{"renewed": 1}')
        (shown / "new").mkdir()
    assert not shown.exists()
    assert (own.parent / "auth.json").read_text() == '{"renewed": 1}'
    assert (own.parent / "new").is_dir()
    assert (own.parent / "sessions" / "kept.jsonl").read_text() == "a session"
    assert own.read_bytes() == MODELS


def test_every_agent_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = CliRunner().invoke(main, ["wrap", "codex"])
    assert (result.exit_code, "codex is not installed" in result.output) == (2, True)
    assert sorted(AGENT_NAMES) == sorted(AGENTS)


def test_codex_signed_in_with_chatgpt_goes_where_it_went() -> None:
    home = Path(os.environ["HOME"]) / ".codex"
    home.mkdir(parents=True)
    assert AGENTS["codex"].upstreams() == {}
    (home / "auth.json").write_text('{"OPENAI_API_KEY": null, "tokens": {"access_token": "x"}}')
    own = AGENTS["codex"].upstreams()["openai"]
    assert own.url == "https://chatgpt.com/backend-api/codex"


@pytest.mark.parametrize(
    ("name", "read"),
    [("claude", ["anthropic"]), ("codex", []), ("pi", []), ("opencode", ["anthropic", "openai"])],
)
def test_a_base_url_in_the_environment_counts_where_the_agent_reads_it(
    name: str, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
    own = AGENTS[name].upstreams()
    assert list(own) == read
    for family in own:
        assert own[family] == OwnUpstream(
            url="http://127.0.0.1:1", named_by=f"{family.upper()}_BASE_URL"
        )


def test_a_variable_that_the_agent_does_not_read_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
    settings_for_wrap(AGENTS["pi"], {})
    ignored = "pi does not read ANTHROPIC_BASE_URL: requests go to https://api.anthropic.com. "
    assert ignored + "To change it, set gateway.upstream.anthropic" in capsys.readouterr().err


def test_a_record_says_what_was_done_and_why() -> None:
    record = {
        **dict.fromkeys(("model", "turn", "space")),
        "at": 0.0,
        "session": "claude-code:0123456789abcdef0123456789",
        "path": "/v1/messages",
        "status": 200,
        "tokens_came": 310_000,
        "tokens_sent": 14_250,
        "usage": {"input_tokens": 15_000, "cache_read_tokens": 12_000, "output_tokens": 40},
        "dollars": 0.0131,
        "handling": "shaped",
        "kind": "a turn of the conversation",
        "why": "",
        "done": ["41 messages left out"],
        "overflows": 1,
        "failed": [],
        "outcome": "",
        "added_ms": 12.4,
        "first_byte_ms": 803.0,
    }
    numbers, *notes = lines_of(record)
    assert numbers.split()[1:] == [
        *("…bcdef0123456789", "200", "310k", "→", "14250", "80%", "40", "0.0131", "12", "ms"),
        *("803", "ms"),
    ]
    assert sums_of([record, {**record, "dollars": None}]) == (
        "2 requests · 620,000 tokens received, 28,500 sent · 80% of the input read from the cache "
        "· 80 output tokens · $0.01 (1 of them have a known price)"
    )
    assert sums_of([record]).startswith("1 request · ")
    assert [note.strip() for note in notes] == [
        "41 messages left out",
        "the provider refused it for its size once",
    ]
    away = {**record, "handling": "without memory", "why": "memory failed", "overflows": 0}
    assert "without memory: memory failed" in lines_of(away)[1]


@pytest.mark.parametrize(
    ("name", "configuration", "family"),
    [
        ("claude", '{"env": {"ANTHROPIC_BASE_URL": "http://own"}}', "anthropic"),
        ("codex", 'openai_base_url = "http://own"', "openai"),
        ("pi", '{"providers": {"openai": {"baseUrl": "http://own"}}}', "openai"),
        (
            "opencode",
            '{"provider": {"anthropic": {"options": {"baseURL": "http://own"}}}}',
            "anthropic",
        ),
    ],
)
def test_provider_of_ones_own_stays_provider(name: str, configuration: str, family: str) -> None:
    """Its key must not go to somebody else."""
    path = Path(os.environ["HOME"]) / FILES[name]
    path.parent.mkdir(parents=True)
    path.write_text(configuration)
    own = AGENTS[name].upstreams()
    assert [(key, one.url) for key, one in own.items()] == [(family, "http://own")]


def test_an_agent_in_a_folder_of_a_project_has_the_projects_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "src").mkdir()
    monkeypatch.chdir(project / "src")
    spaces: list[str] = []

    def run(_agent: Any, settings: Settings, *_: Any) -> int:
        spaces.append(settings.gateway.space)
        return 0

    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr("recollect.cli.gateway.run_wrapped", run)
    assert CliRunner().invoke(main, ["wrap", "claude"]).exit_code == 0
    assert CliRunner().invoke(main, ["wrap", "claude", "--space", "mine"]).exit_code == 0
    assert spaces == [str(project), "mine"]


def test_hooks_of_the_same_agent_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claude Code adds reminders to messages on the wire: both forms would be stored."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr("recollect.cli.gateway.run_wrapped", lambda *_: 0)
    path = settings_file("claude-code", "project", tmp_path)
    carry_out(plan_install("claude-code", path, "/opt/bin/recollect-hook"))
    told = CliRunner().invoke(main, ["wrap", "claude"]).output
    assert f"hooks ({path})" in told
    assert "`recollect uninstall claude-code --project`" in told
    assert "hooks" not in CliRunner().invoke(main, ["wrap", "codex"]).output
    assert "hooks" not in CliRunner().invoke(main, ["wrap", "pi"]).output


CODEX = """
model_provider = "lab"
[model_providers.lab]
base_url = "http://lab/v1"
env_key = "LAB_KEY"
[model_providers."with space"]
base_url = "http://other/v1"
[profiles.local]
model_provider = "ollama"
"""
PI = {
    "providers": {
        "lab": {"baseUrl": "http://lab", "api": "anthropic-messages", "models": [{"id": "m"}]},
        "lab-o": {"baseUrl": "http://lab/v1", "models": [{"id": "m", "api": "openai-responses"}]},
        "lab-g": {"baseUrl": "http://lab", "api": "google-generative-ai"},
    }
}
OWN_OPENCODE = {
    "model": "lab/m",
    "provider": {
        "lab": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": "{env:LAB_URL}", "apiKey": "k"},
        }
    },
}


def _write(path: str, content: object) -> None:
    file = Path(os.environ["HOME"]) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.mark.parametrize(
    ("arguments", "redirected", "direct"),
    [
        ((), {"openai": ("lab", "http://lab/v1")}, ""),
        (("-c", 'model_provider="openai"'), {"openai": ("openai", "")}, ""),
        (("-c", 'model_provider="with space"'), {}, "with space"),
        (("--profile", "local"), {}, "ollama"),
        (("--oss",), {}, "oss"),
    ],
)
def test_codex_is_redirected_at_the_provider_that_it_uses(
    arguments: tuple[str, ...], redirected: dict[str, tuple[str, str]], direct: str
) -> None:
    _write(".codex/config.toml", CODEX)
    routes = AGENTS["codex"].read_routes(arguments, ())
    assert {f: (one.provider, one.url) for f, one in routes.redirected.items()} == redirected
    assert all(direct in line and "do not pass through" in line for line in routes.direct)
    assert bool(direct) == bool(routes.direct)
    with prepare_launch(AGENTS["codex"], URL, routes) as launch:
        keys = {"lab": "model_providers.lab.base_url", "openai": "openai_base_url"}
        wanted = [f'{keys[name]}="{URL}/v1"' for name, _ in redirected.values()]
        assert list(launch.arguments) == (["-c", *wanted] if wanted else [])


@pytest.mark.parametrize(
    ("default", "arguments", "redirected", "direct"),
    [
        ("lab", (), {"anthropic": ("lab", "http://lab"), "openai": ("openai", "")}, ""),
        (
            "lab",
            ("--provider", "lab-o"),
            {"anthropic": ("anthropic", ""), "openai": ("lab-o", "http://lab/v1")},
            "",
        ),
        ("lab-g", (), {"anthropic": ("anthropic", ""), "openai": ("openai", "")}, "lab-g"),
        (
            "openrouter",
            (),
            {"anthropic": ("anthropic", ""), "openai": ("openai", "")},
            "openrouter",
        ),
        ("openai", (), {"anthropic": ("anthropic", ""), "openai": ("openai", "")}, ""),
    ],
)
def test_pi_is_redirected_at_the_provider_that_it_uses(
    default: str,
    arguments: tuple[str, ...],
    redirected: dict[str, tuple[str, str]],
    direct: str,
) -> None:
    _write(".pi/agent/models.json", PI)
    _write(".pi/agent/settings.json", {"defaultProvider": default})
    routes = AGENTS["pi"].read_routes(arguments, ())
    assert {f: (one.provider, one.url) for f, one in routes.redirected.items()} == redirected
    assert [direct in line for line in routes.direct] == [True] * bool(direct)
    with prepare_launch(AGENTS["pi"], URL, routes) as launch:
        file = Path(launch.environment["PI_CODING_AGENT_DIR"]) / "models.json"
        shown = json.loads(file.read_text())["providers"]
    for family, (name, _) in redirected.items():
        assert shown[name]["baseUrl"] == (URL if family == "anthropic" else f"{URL}/v1")
    changed = {name for name, _ in redirected.values()}
    assert all(shown[name] == own for name, own in PI["providers"].items() if name not in changed)


def test_opencode_is_redirected_at_the_provider_that_it_uses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAB_URL", "http://lab/v1")
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", '{"theme": "dark"}')
    _write(".config/opencode/opencode.json", OWN_OPENCODE)
    agent = AGENTS["opencode"]
    routes = agent.read_routes((), ())
    assert agent.upstreams(routes)["openai"].url == "http://lab/v1"
    with prepare_launch(agent, URL, routes) as launch:
        content = json.loads(launch.environment["OPENCODE_CONFIG_CONTENT"])
    assert content["theme"] == "dark", "the user's own settings stay"
    base = {"options": {"baseURL": f"{URL}/v1"}}
    assert content["provider"] == {"anthropic": base, "lab": base}, "nothing for openai: its key"


def test_an_address_in_a_projects_opencode_file_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "src").mkdir()
    base = {"options": {"baseURL": "http://lab/v1"}}
    (project / "opencode.json").write_text(json.dumps({"provider": {"openai": base}}))
    monkeypatch.chdir(project / "src")
    agent = AGENTS["opencode"]
    settings, _, routes = settings_for_wrap(agent, {})
    assert settings.gateway.upstream.openai != "http://lab/v1"
    with prepare_launch(agent, URL, routes) as launch:
        content = json.loads(launch.environment["OPENCODE_CONFIG_CONTENT"])
    assert list(content["provider"]) == ["anthropic"], "opencode goes where it went"
    told = capsys.readouterr().err
    assert "do not pass through Recollect" in told
    assert "gateway.upstream.openai" in told
    settings, _, routes = settings_for_wrap(agent, {"gateway.upstream.openai": "http://lab/v1"})
    assert routes.redirected["openai"].provider == "openai"
    assert settings.gateway.upstream.openai == "http://lab/v1"
