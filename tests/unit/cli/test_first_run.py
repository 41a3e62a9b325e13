"""`recollect init`, what `recollect doctor` tries out, and shell completion."""

import json
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.trusted_settings import write_trusted

from recollect.adapters.wiring.stores import sqlite_path
from recollect.agent.chat.opening import choose_settings
from recollect.cli import main
from recollect.system.config import load_settings
from recollect.system.places import user_settings_file

KEY = "sk-ant-a-key-that-nobody-may-see"


@pytest.fixture(autouse=True)
def in_an_empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("recollect.agent.chat.opening.LOCAL_URL", "http://127.0.0.1:9/v1")


class Listing(BaseHTTPRequestHandler):
    """Lists one model, as llama.cpp's server does."""

    def do_GET(self) -> None:
        body = json.dumps({"data": [{"id": "tiny.gguf"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Quiet."""


@pytest.fixture
def local_url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Listing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def run(*arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=given)


def models() -> dict[str, Any]:
    return dict(tomllib.loads(Path("recollect.toml").read_text()).get("models", {}))


def test_init_finds_a_key_and_writes_no_word_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    done = run("init", "--yes")
    assert done.exit_code == 0, done.output
    assert models() == {"provider": "anthropic", "main": "claude-sonnet-5-5"}
    assert KEY not in done.output + Path("recollect.toml").read_text()
    assert load_settings().settings.models.main == "claude-sonnet-5-5"
    made = {one.name for one in Path().iterdir()}
    assert made == {"recollect.toml", "home"}, "and no other file but the user's own"
    done = run("init", "--yes", "--workspace")
    assert done.exit_code == 0, done.output
    assert "Where things are written down" in Path("AGENTS.md").read_text()


def test_init_offers_the_server_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, local_url: str
) -> None:
    monkeypatch.setattr("recollect.agent.chat.opening.LOCAL_URL", local_url)
    monkeypatch.setattr("recollect.agent.chat.opening.PROBE_SECONDS", 20.0)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    done = run("init", given="2\n")
    assert done.exit_code == 0, done.output
    assert models() == {"provider": "openai-chat", "main": "tiny.gguf", "base_url": local_url}


def test_init_never_overwrites(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("recollect.toml").write_text("window_tokens = 5\n")
    Path("AGENTS.md").write_text("mine\n")
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    done = run("init", "--yes", "--workspace")
    assert done.exit_code == 0
    assert "kept     recollect.toml" in done.output
    assert Path("recollect.toml").read_text() == "window_tokens = 5\n"
    assert Path("AGENTS.md").read_text() == "mine\n"
    assert Path("USER.md").exists()


def test_init_without_any_model_still_leaves_a_file_that_can_be_read() -> None:
    done = run("init", "new/place", "--yes")
    assert done.exit_code == 0
    assert "No model was found" in done.output
    assert load_settings(file=Path("new/place/recollect.toml")).settings.models.main is None
    assert "# base_url = " in Path("new/place/recollect.toml").read_text()
    assert "cd new/place" in done.output


def test_a_chat_reads_the_settings_of_the_folder_it_is_in() -> None:
    write_trusted('models = { provider = "openai-chat", main = "mine" }\n')
    for name in ("with", "without"):
        Path(name).mkdir()
    write_trusted('models = { provider = "openai-chat", main = "its" }\n', "with")

    def asked(folder: str) -> str | None:
        chosen = choose_settings(provider=None, model=None, window_tokens=None, folder=Path(folder))
        return chosen.models.main

    assert (asked("with"), asked("without")) == ("its", "mine")


def checks() -> tuple[int, dict[str, dict[str, str]]]:
    done = run("doctor", "--json")
    return done.exit_code, {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def test_doctor_says_what_to_do_on_a_fresh_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    code, told = checks()
    assert code == 0
    assert set(told) == {
        "settings",
        "data",
        "hooks",
        "store",
        "embedder",
        "provider",
        "permissions",
    }
    assert "recollect init" in told["provider"]["todo"]
    assert "recollect init" in run("doctor").output
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    run("memory", "add", "The crane lifts forty tons.")
    _, told = checks()
    assert told["provider"]["todo"] == "run `recollect init`"
    assert told["store"]["said"].endswith(": 1 session")
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    run("init", "--yes")
    _, told = checks()
    todo = told["provider"]["todo"]
    assert "recollect init" not in todo, "init would keep the file"
    assert "[models]" in todo and str(user_settings_file()) in todo


def test_doctor_steers_nobody_towards_a_file_of_others() -> None:
    Path("recollect.toml").write_text(
        '[models]\nprovider = "openai-chat"\nmain = "m"\nbase_url = "http://evil.test"\n'
    )
    _, told = checks()
    todo = told["provider"]["todo"]
    assert "recollect trust" not in todo
    assert str(user_settings_file()) in todo and "RECOLLECT_MODELS__MAIN" in todo
    write_trusted("window_tokens = 5000\n")
    _, told = checks()
    assert "recollect.toml" in told["provider"]["todo"], "the user wrote or read that one"


def test_doctor_tries_the_provider_and_names_what_is_wrong(local_url: str) -> None:
    write_trusted('[models]\nprovider = "anthropic"\nmain = "m"\n')
    code, told = checks()
    assert code == 1
    assert "ANTHROPIC_API_KEY" in told["provider"]["said"]
    named = '[models]\nprovider = "openai-chat"\nmain = "m"\nbase_url = "{}"\n'
    write_trusted(named.format("http://127.0.0.1:9/v1"))
    code, told = checks()
    assert (code, told["provider"]["state"]) == (1, "broken")
    assert "127.0.0.1:9" in told["provider"]["said"]
    write_trusted(named.format("http://127.0.0.1:99999/v1"))
    code, told = checks()
    assert (code, told["provider"]["state"]) == (1, "broken")
    write_trusted(named.format(local_url))
    code, told = checks()
    assert (code, told["provider"]["state"]) == (0, "ok")


def test_doctor_looks_at_the_store_and_at_who_may_read_it(tmp_path: Path) -> None:
    Path("notes.db").write_text("this is no database, by far not one")
    write_trusted('store.url = "notes.db"\n')
    code, told = checks()
    assert (code, told["store"]["state"]) == (1, "broken")
    assert told["store"]["todo"]
    Path("recollect.toml").unlink()
    own = sqlite_path(None, str(Path.cwd()))
    own.parent.mkdir(parents=True)
    own.write_text("this is no database, by far not one")
    code, told = checks()
    assert (code, told["store"]["state"]) == (1, "broken"), "the folder's own memory is looked at"
    own.unlink()
    spaces = tmp_path / "home" / "spaces"
    spaces.mkdir(parents=True, exist_ok=True)
    spaces.chmod(0o755)
    _, told = checks()
    assert told["permissions"]["todo"] == f"chmod 700 {spaces}"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands(shell: str) -> None:
    asked = {"_RECOLLECT_COMPLETE": f"{shell}_complete", "COMP_WORDS": "recollect rec"}
    asked |= {"COMP_CWORD": "1" if shell != "fish" else "rec"}
    done = CliRunner().invoke(main, [], env=asked, prog_name="recollect")
    assert "receipt" in done.output
    assert "doctor" not in done.output


def test_a_gateway_without_its_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other extras bring its HTTP server, but not its client."""
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    done = CliRunner().invoke(main, ["gateway", "--port", "0"])
    assert done.exit_code == 2
    assert "pip install 'recollect[gateway]'" in done.output
    assert "listens" not in done.output
