"""Agents as a person starts them: `recollect wrap AGENT -- …`.

A scenario gives the faults that it found. Nothing of the agent's is set up for the gateway but by
the command itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.harness.model_server import ModelServer

from tools.clients.agents import KEY, TALKS, ClaudeTalk
from tools.clients.lab import Lab, Ran, run_agent
from tools.clients.provider import ScriptedProvider, scripted_server

WORDS: Final = "remember that the north crane has the code word pelican-42"
_MARK: Final = "LAB_MARK"
END_SECONDS: Final = 5.0
"""What an agent started is gone this long after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedCase:
    """An agent: what it is started with, and a configuration as somebody wrote it."""

    name: str
    arguments: tuple[str, ...]
    configuration: str
    """Its path in the home."""
    content: bytes
    """With comments, where the agent allows them, and in a spelling that no program writes."""


CASES: Final = {
    case.name: case
    for case in (
        WrappedCase(
            name="claude",
            arguments=("-p", WORDS, "--output-format", "json"),
            configuration=".claude/settings.json",
            content=b'{"env" : {"DISABLE_AUTOUPDATER":"1"},\r\n\t'
            b'"permissions": {"allow":[ "Bash" ]}}',
        ),
        WrappedCase(
            name="codex",
            arguments=("exec", "--json", "--skip-git-repo-check", WORDS),
            configuration=".codex/config.toml",
            content=b'# mine\nmodel="gpt-5.5-codex"   # the one\n'
            b"check_for_update_on_startup=false\n\n[ analytics ]\nenabled=false",
        ),
        WrappedCase(
            name="pi",
            arguments=("--provider", "anthropic", "--model", "claude-sonnet-4-5", "-p", WORDS),
            configuration=".pi/agent/models.json",
            content=b'// my models\n{ "providers" : { } }\n\n',
        ),
        WrappedCase(
            name="opencode",
            arguments=("run", "-m", "anthropic/claude-sonnet-4-5", WORDS),
            configuration=".config/opencode/opencode.jsonc",
            content=b'{\n  "$schema": "https://opencode.ai/config.json", // else it adds that\n'
            b'  "autoupdate": false,"share" : "disabled",\n}',
        ),
    )
}


class WrappedHome:
    """A machine of an agent's own, with a provider on it."""

    def __init__(self, lab: Lab, folder: Path, case: WrappedCase, server: ModelServer) -> None:
        self.case = case
        self.home, self.project = folder / "home", folder / "project"
        self.configuration = self.home / case.configuration
        self.configuration.parent.mkdir(parents=True)
        self.configuration.write_bytes(case.content)
        self.project.mkdir()
        subprocess.run(["git", "init", "-q", "."], cwd=self.project, check=False)
        programs = lab.program(case.name).parent
        kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        self.environment = {
            **kept,
            _MARK: str(folder),
            "PATH": f"{programs}:{lab.path}",
            "HOME": str(self.home),
            "TERM": "xterm",
            "ANTHROPIC_API_KEY": KEY,
            "OPENAI_API_KEY": KEY,
            "CODEX_API_KEY": KEY,
            "RECOLLECT_HOME": str(folder / "data"),
            "RECOLLECT_RECALL__EMBEDDER": "none",
            "RECOLLECT_GATEWAY__UPSTREAM__ANTHROPIC": server.url,
            "RECOLLECT_GATEWAY__UPSTREAM__OPENAI": f"{server.url}/v1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "PI_OFFLINE": "1",
            "PI_SKIP_VERSION_CHECK": "1",
        }

    def recollect(self, *arguments: str) -> Ran:
        """Run a command of ours in the project."""
        command = [sys.executable, "-m", "recollect", *arguments]
        return run_agent(command, environment=self.environment, folder=self.project)

    def told(self, *arguments: str) -> Any:
        """The JSON of a command of ours; None where it failed."""
        ran = self.recollect(*arguments, "--json")
        return None if ran.status else json.loads(ran.output[ran.output.index("{") :])

    def left_running(self) -> list[str]:
        """Processes that were started here and are still there."""
        until = time.monotonic() + END_SECONDS
        while (found := list(self._processes())) and time.monotonic() < until:
            time.sleep(0.1)
        return found

    def _processes(self) -> Iterator[str]:
        mark = f"{_MARK}={self.environment[_MARK]}".encode()
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (path / "environ").read_bytes().split(b"\0"):
                    yield (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue


def wrapped(name: str) -> Callable[[Lab, Path], Iterator[str]]:
    """Prompts through `recollect wrap`, into a memory that stays; then for good and back."""

    def run(lab: Lab, folder: Path) -> Iterator[str]:
        provider = ScriptedProvider()
        with scripted_server(provider) as server:
            home = WrappedHome(lab, folder, CASES[name], server)
            ran = home.recollect("wrap", name, "--", *home.case.arguments)
            if ran.status or "Answer" not in ran.output:
                yield f"{name}: ended with {ran.status}: {ran.output[-300:]}"
            yield from (f"{name}: still running: {one}" for one in home.left_running())
            yield from _asked(name, server)
            yield from _remembered(home)
            yield from _recalled_elsewhere(home, server)
            if name == "claude":
                yield from _recalled_at_once(home, server)
            yield from _imported_once(home)
            if home.configuration.read_bytes() != home.case.content:
                yield f"{name}: a run changed {home.case.configuration}"
        yield from (f"{name}: refused: {rule}" for rule in provider.refused)

    return run


def _asked(name: str, server: ModelServer) -> Iterator[str]:
    """The provider was asked what was said, with the agent's own key."""
    asked = [one for one in server.asked if WORDS.encode() in one.content]
    if not asked:
        yield f"{name}: the provider was never asked"
    for one in asked:
        keys = (one.headers.get("x-api-key"), one.headers.get("authorization"))
        if KEY not in keys and f"Bearer {KEY}" not in keys:
            yield f"{name}: the agent's key did not reach the provider"


def _remembered(home: WrappedHome) -> Iterator[str]:
    """The folder's memory holds the turn."""
    name, space = home.case.name, str(home.project)
    spaces: Sequence[Mapping[str, Any]] = (home.told("space", "list") or {}).get("spaces", [])
    if [one["space"] for one in spaces if one["segments"]] != [space]:
        yield f"{name}: the memories are {spaces}, not that of the folder"
    found = home.told("memory", "search", "code word of the north crane", "--space", space) or {}
    if not any("pelican-42" in str(hit) for hit in found.get("hits", [])):
        yield f"{name}: memory does not find what was said: {str(found)[:200]}"


def _recalled_elsewhere(home: WrappedHome, server: ModelServer) -> Iterator[str]:
    """Another session of the project is told what was said in the first."""
    name, words = home.case.name, "Which code word does the north crane have?"
    given = [words if one == WORDS else one for one in home.case.arguments]
    ran = home.recollect("wrap", name, "--", *given)
    asked = [one.content for one in server.asked if words.encode() in one.content]
    if ran.status or not any(b"pelican-42" in content for content in asked):
        yield f"{name}: another session is not told: {ran.status} {ran.output[-200:]}"


def _recalled_at_once(home: WrappedHome, server: ModelServer) -> Iterator[str]:
    """The first prompt of a session is told what an earlier one said; the first after a compaction
    of the agent's own, what was said before it."""
    command = [sys.executable, "-m", "recollect", "wrap", "claude", "--", *TALKS]
    first = "Tell me which code word the north crane has"
    later = "Tell me the number of the south gate"
    with ClaudeTalk(command, home.environment, home.project) as talk:
        for words in (first, "remember that the south gate has the number heron-17", "/compact"):
            if talk.say(words).get("is_error"):
                yield f"claude: {words!r} ended with an error"
        talk.say(later)
    for words, wanted in ((first, b"pelican-42"), (later, b"heron-17")):
        asked = [one.content for one in server.asked if words.encode() in one.content]
        if not asked or wanted not in asked[0]:
            yield f"claude: {words!r}: {wanted.decode()} is not in the {len(asked)} requests' first"


def _imported_once(home: WrappedHome) -> Iterator[str]:
    """What the agent wrote down itself is in memory already, every word of it."""
    totals: Mapping[str, Any] = (home.told("import", "--all", "--yes") or {}).get("totals", {})
    if not totals.get("read") or totals["stored"] > totals["noise"]:
        yield f"{home.case.name}: imported again after wrap: {dict(totals)}"
