"""How each agent is started for one question, for the next one, and for a fork."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import Any, Final, Self

from tools.clients.lab import Lab, Ran, run_agent

KEY = "sk-ant-lab-4f19c0d2b7e84a55"
"""What the agents take for a key; it must reach the provider and no file."""

COMPACTS_AT_TOKENS = 60_000
"""From here on Codex compacts; pi and opencode do near the 100,000 of their models."""


@dataclass(slots=True, kw_only=True)
class AgentHome:
    """A home and a project of an agent's own."""

    lab: Lab
    folder: Path
    url: str
    extra: tuple[str, ...] = ()
    """Arguments of every run."""
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.project.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "init", "-q", "."], cwd=self.project, check=False)
        self.environment = {"PATH": self.lab.path, "HOME": str(self.home), "TERM": "xterm"}
        self._configure()

    @property
    def home(self) -> Path:
        """HOME of the agent."""
        return self.folder / "home"

    @property
    def project(self) -> Path:
        """Where it is started."""
        return self.folder / "project"

    def _configure(self) -> None:
        """Write what the agent reads at its start."""
        raise NotImplementedError

    def command(self, words: str, *, resume: bool = False) -> list[str | Path]:
        """The command line of one question."""
        raise NotImplementedError

    def fork_command(self, words: str) -> list[str | Path]:
        """The command line of a question in a copy of the last conversation."""
        raise NotImplementedError

    def fork(self, words: str) -> Ran:
        """One question in a copy of the last conversation."""
        return run_agent(
            self.fork_command(words), environment=self.environment, folder=self.project
        )

    def ask(
        self, words: str, *, resume: bool = False, interrupt: threading.Event | None = None
    ) -> Ran:
        """One question in a process of its own, perhaps in the last conversation."""
        return run_agent(
            self.command(words, resume=resume),
            environment=self.environment,
            folder=self.project,
            interrupt=interrupt,
        )


class ClaudeCode(AgentHome):
    """Claude Code, headless."""

    def _configure(self) -> None:
        self.environment |= {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }

    def command(self, words: str, *, resume: bool = False) -> list[str | Path]:
        again = ["--continue"] if resume else []
        return [
            self.lab.program("claude"),
            "-p",
            words,
            "--output-format",
            "json",
            "--allowedTools",
            "Bash",
            *again,
            *self.extra,
        ]

    def talk(self, *arguments: str) -> ClaudeTalk:
        """A conversation in one process."""
        command = [str(self.lab.program("claude")), *TALKS, *self.extra, *arguments]
        return ClaudeTalk(command, self.environment, self.project)


TALKS: Final = (
    *("-p", "--input-format", "stream-json", "--output-format", "stream-json"),
    *("--verbose", "--allowedTools", "Bash"),
)
"""How Claude Code is started that takes one turn after the other."""


class ClaudeTalk:
    """Claude Code fed turn by turn over standard input."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> None:
        self._process = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.events: list[dict[str, Any]] = []
        self.session: str | None = None
        self.confirms = False
        """What the person says to a server's form that asks for a yes."""
        self._results: Queue[dict[str, Any]] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._reader.join(10)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def say(self, words: str, *, seconds: float = 120.0) -> dict[str, Any]:
        """One turn; what Claude Code says of its end."""
        assert self._process.stdin is not None
        row = {"type": "user", "message": {"role": "user", "content": words}}
        self._process.stdin.write(json.dumps(row) + "\n")
        self._process.stdin.flush()
        try:
            return self._results.get(timeout=seconds)
        except Empty:
            return {"is_error": True, "result": "[no result in time]"}

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            self.events.append(event)
            self.session = event.get("session_id") or self.session
            if event.get("type") == "control_request":
                self._fill_in(event)
            if event.get("type") == "result":
                self._results.put(event)

    def _fill_in(self, event: Mapping[str, Any]) -> None:
        """Answer a form as the person would."""
        names = event["request"].get("requested_schema", {}).get("properties", {})
        said = {"action": "accept", "content": dict.fromkeys(names, True)}
        response = {
            "subtype": "success",
            "request_id": event["request_id"],
            "response": said if self.confirms else {"action": "decline"},
        }
        assert self._process.stdin is not None
        row = {"type": "control_response", "response": response}
        self._process.stdin.write(json.dumps(row) + "\n")
        self._process.stdin.flush()


class Codex(AgentHome):
    """Codex, headless."""

    def _configure(self) -> None:
        folder = self.home / ".codex"
        folder.mkdir(exist_ok=True)
        (folder / "config.toml").write_text(
            'model = "gpt-5.5-codex"\nmodel_provider = "lab"\napproval_policy = "never"\n'
            'sandbox_mode = "danger-full-access"\ncheck_for_update_on_startup = false\n'
            f"model_auto_compact_token_limit = {COMPACTS_AT_TOKENS}\n"
            "[analytics]\nenabled = false\n"
            f'[model_providers.lab]\nname = "lab"\nbase_url = "{self.url}/v1"\n'
            'env_key = "LAB_KEY"\nwire_api = "responses"\n',
            encoding="utf-8",
        )
        self.environment |= {"CODEX_HOME": str(folder), "LAB_KEY": KEY}

    def command(self, words: str, *, resume: bool = False) -> list[str | Path]:
        again = ["resume", "--last"] if resume else []
        return [
            self.lab.program("codex"),
            "exec",
            *again,
            "--json",
            "--skip-git-repo-check",
            *self.extra,
            words,
        ]

    def fork_command(self, words: str) -> list[str | Path]:
        kept = max(self.home.rglob("rollout-*.jsonl"), key=lambda path: path.stat().st_mtime)
        thread = kept.stem[-36:]
        options = ("--json", "--skip-git-repo-check", *self.extra)
        return [self.lab.program("codex"), "exec", "fork", *options, thread, words]


class Pi(AgentHome):
    """pi on one of its three wires."""

    wire = "anthropic"
    _APIS: Mapping[str, tuple[str, str]] = {
        "anthropic": ("anthropic-messages", ""),
        "openai-chat": ("openai-completions", "/v1"),
        "openai-responses": ("openai-responses", "/v1"),
    }

    def _configure(self) -> None:
        folder = self.home / ".pi" / "agent"
        folder.mkdir(parents=True, exist_ok=True)
        free = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
        model = {"reasoning": False, "input": ["text"], "cost": free}
        model |= {"contextWindow": 100_000, "maxTokens": 8_000}
        providers = {
            wire: {
                "baseUrl": self.url + version,
                "api": api,
                "apiKey": KEY,
                "models": [{"id": f"scripted-{wire}", "name": wire, **model}],
            }
            for wire, (api, version) in self._APIS.items()
        }
        (folder / "models.json").write_text(json.dumps({"providers": providers}), encoding="utf-8")
        compaction = {"enabled": True, "keepRecentTokens": 10}
        settings = json.dumps({"compaction": compaction})
        (folder / "settings.json").write_text(settings, encoding="utf-8")
        self.environment |= {"PI_SKIP_VERSION_CHECK": "1", "PI_OFFLINE": "1"}

    def command(self, words: str, *, resume: bool = False) -> list[str | Path]:
        return [
            self.lab.program("pi"),
            "--provider",
            self.wire,
            "--model",
            f"scripted-{self.wire}",
            *(["-c"] if resume else []),
            *self.extra,
            "-p",
            words,
        ]

    def fork_command(self, words: str) -> list[str | Path]:
        kept = max(self.home.rglob("*.jsonl"), key=lambda path: path.stat().st_mtime)
        command = self.command(words)
        return [*command[:-2], "--fork", kept, *command[-2:]]


class PiChat(Pi):
    """pi on Chat Completions."""

    wire = "openai-chat"


class PiResponses(Pi):
    """pi on Responses."""

    wire = "openai-responses"


class OpenCode(AgentHome):
    """opencode on Chat Completions."""

    def _configure(self) -> None:
        options = {"baseURL": f"{self.url}/v1", "apiKey": KEY}
        models = {"scripted": {"name": "S", "limit": {"context": 100_000, "output": 8_000}}}
        provider = {"npm": "@ai-sdk/openai-compatible", "name": "lab", "options": options}
        config = {
            "autoupdate": False,
            "share": "disabled",
            "model": "lab/scripted",
            "provider": {"lab": {**provider, "models": models}},
        }
        (self.project / "opencode.json").write_text(json.dumps(config), encoding="utf-8")
        self.environment |= {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        }

    def command(self, words: str, *, resume: bool = False) -> list[str | Path]:
        return [
            self.lab.program("opencode"),
            "run",
            *(["-c"] if resume else []),
            *self.extra,
            words,
        ]

    def fork_command(self, words: str) -> list[str | Path]:
        return [self.lab.program("opencode"), "run", "-c", "--fork", words]


class OpenClaw(AgentHome):
    """OpenClaw on Messages, without its gateway."""

    def _configure(self) -> None:
        workspace = self.home / ".openclaw" / "workspace"
        workspace.mkdir(parents=True, exist_ok=True)
        free = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
        model = {"id": "scripted", "name": "S", "reasoning": False, "input": ["text"]}
        model |= {"cost": free, "contextWindow": 100_000, "maxTokens": 8_000}
        provider = {"baseUrl": self.url, "apiKey": KEY, "api": "anthropic-messages"}
        defaults = {"model": {"primary": "lab/scripted"}, "workspace": str(workspace)}
        config = {
            "models": {"mode": "merge", "providers": {"lab": {**provider, "models": [model]}}},
            "agents": {"defaults": defaults},
        }
        path = workspace.parent / "openclaw.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        self.environment |= {"OPENCLAW_DISABLE_UPDATE_CHECK": "1"}

    def command(self, words: str, *, resume: bool = False) -> list[str | Path]:
        options = ("--local", "--agent", "main", "--json")
        return [self.lab.program("openclaw"), "agent", *options, "--message", words, *self.extra]


def until(condition: Any, *, seconds: float) -> bool:
    """Whether it comes true within so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())
