"""A user's machine with a hostile repository on it, and every way in which Recollect runs there.

Real processes, a real server of the attacker's and a real provider. Each way says something
ordinary and something secret, so that it can be seen that memory works, and what is kept."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.acceptance.recollect_cli import environment as plain_environment
from tests.harness.forked_cli import run_forked
from tests.harness.model_server import ModelServer

from recollect.testing.scripted_model import Says

CANARY: Final = "canary-heron-7f3a9c"
"""Stands in every file that the project has no business with."""
KEY: Final = "sk-ant-api03-" + "Qz7LmT4xWv9B" * 7 + "-heronAA"
"""The user's key: in the environment, and sent to the provider."""
TYPED_SECRET: Final = "ghp_" + "Zk4Rw8TnQ2Xv6Bm1Lc9Hs3Jd7Fp5Gy0Ae2Ui"
"""What the user types, and no disk may hold."""
SENTENCE: Final = "The ferry to Ravensholm leaves from pier nine."
SAID: Final = f"{SENTENCE} My token is {TYPED_SECRET} for the registry."
TOKEN: Final = "token-of-the-gateway-51"
RECOLLECT: Final = Path(sys.executable).with_name("recollect")
"""The program as it is installed: `python -m` would look for modules in the project."""
_SECONDS: Final = 90

WATCHED: Final = ("outside", "home/.aws", "home/.netrc")
"""Where the user's private files are; each has the canary in it."""
AUDIT: Final = """
import os, sys

WATCHED, LOG = {watched!r}, {log!r}
NAMES = {{"secret.md", "credentials", ".netrc"}}

def watch(event, given):
    if event not in ("open", "sqlite3.connect") or not isinstance(given[0], (str, bytes)):
        return
    path = os.fsdecode(given[0])
    flags = given[2] if event == "open" else 0
    if path == LOG or flags & (os.O_DIRECTORY | getattr(os, "O_PATH", 0)):
        return
    folder, name = os.path.split(path)
    # a link that is not to be followed is not, and a name alone may be in a folder that is open
    real = os.path.join(os.path.realpath(folder), name)
    real = real if flags & (os.O_NOFOLLOW | os.O_EXCL) else os.path.realpath(path)
    if real.startswith(WATCHED) or (not folder and name in NAMES):
        with open(LOG, "a") as log:
            log.write(f"{{sys.argv}}: {{path}}\\n")

sys.addaudithook(watch)
"""
"""What every Python process on the machine runs first: it writes down which private files are
opened, also by a read of which nothing is stored or shown."""

AGENT: Final = f"""#!{sys.executable} -P
import json, os, sys, urllib.request
content = json.loads(os.environ.get("OPENCODE_CONFIG_CONTENT", "{{}}"))
url = os.environ.get("ANTHROPIC_BASE_URL", "") + "/v1"
if content:
    url = content["provider"]["anthropic"]["options"]["baseURL"]
body = {{"model": "claude-x", "max_tokens": 9, "messages": [
    {{"role": "user", "content": {SAID!r}}}]}}
head = {{"content-type": "application/json", "x-api-key": os.environ["ANTHROPIC_API_KEY"],
         "anthropic-version": "2023-06-01", "x-session-id": "one"}}
for line in os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "").splitlines():
    name, _, value = line.partition(":")
    head[name.strip()] = value.strip()
asked = urllib.request.Request(url + "/messages", json.dumps(body).encode(), head)
print("answered", urllib.request.urlopen(asked, timeout=60).status)
"""

LIBRARY: Final = f"""
import asyncio, logging, recollect
logging.basicConfig()
async def main():
    async with recollect.open_memory(workspace=".") as memory:
        request = {{"model": "claude-x", "max_tokens": 9,
                   "messages": [{{"role": "user", "content": {SAID!r}}}]}}
        await memory.prepare("one", request)
        reply = {{"role": "assistant", "content": [{{"type": "text", "text": "Noted."}}]}}
        await memory.observe("one", reply)
        print(await memory.search("{CANARY} ferry"))
asyncio.run(main())
"""


class EvilServer:
    """Takes every connection, keeps every byte, and answers as a friendly server would."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.url = f"http://{self.host}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self.received.append(b"")
                threading.Thread(target=self._take, args=(connection,), daemon=True).start()

    def _take(self, connection: socket.socket) -> None:
        body = b'{"data": [{"id": "m"}]}'
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        with connection, suppress(OSError):
            connection.settimeout(2)
            while data := connection.recv(1 << 16):
                self.received.append(data)
                connection.sendall(head % len(body) + body)

    def close(self) -> None:
        self._socket.close()


@dataclass(slots=True)
class Machine:
    """The user's home, the project in it, the provider, and the attacker's server."""

    folder: Path
    project: Path
    provider: ModelServer
    evil: EvilServer
    variables: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    """What processes printed."""

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def outside(self) -> Path:
        return self.folder / "outside"

    @property
    def opened(self) -> str:
        """Which private files were opened, and by which command."""
        log = self.folder / "opened"
        return log.read_text() if log.exists() else ""

    @property
    def environment(self) -> dict[str, str]:
        kept = plain_environment(self.folder)
        for name in ("RECOLLECT_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
            kept.pop(name, None)
        return {
            **kept,
            "HOME": str(self.home),
            "PYTHONPATH": str(self.folder / "audit"),
            "PATH": f"{self.folder / 'bin'}:{RECOLLECT.parent}:{os.environ['PATH']}",
            "ANTHROPIC_API_KEY": KEY,
            "OPENAI_API_KEY": KEY,
            "AWS_SECRET_ACCESS_KEY": KEY,
            "PGPASSWORD": KEY,
            "RECOLLECT_GATEWAY_TOKEN": TOKEN,
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
            **self.variables,
        }

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program in the project's folder to its end."""
        done = subprocess.run(
            words,
            cwd=self.project,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        self.told += [done.stdout, done.stderr]
        return done

    def recollect(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return self.run(str(RECOLLECT), *words, stdin=stdin)

    def stored(self) -> str:
        """Everything that memory holds, as an export gives it, and every other file of ours."""
        data = self.home / ".local" / "share" / "recollect"
        texts: list[str] = []
        for number, database in enumerate(sorted(data.glob("spaces/*.db"))):
            target = self.folder / f"export-{len(self.told)}-{number}"
            words = ["export", str(target), "--store", str(database)]
            clean = {**plain_environment(self.folder), "RECOLLECT_RECALL__EMBEDDER": "none"}
            done = run_forked(words, stdin=b"", env=clean, cwd=self.folder, timeout=_SECONDS)
            assert done.returncode == 0, done.stderr
            texts += [one.read_text(errors="replace") for one in target.glob("*.jsonl")]
        for path in (one for one in data.rglob("*") if one.is_file()):
            texts.append(path.read_bytes().decode("utf-8", "replace"))
        return "\n".join(texts)

    def assert_unharmed(self, *, kept: bool = True) -> None:
        """Nothing reached the attacker, nothing from outside was taken, no secret was kept."""
        assert self.evil.received == [], "the attacker's server was asked"
        assert self.opened == "", "a file outside of the project was opened"
        stored = self.stored()
        sent = "\n".join(asked.content.decode("utf-8", "replace") for asked in self.provider.asked)
        told = "\n".join(self.told)
        for place, text in (("stored", stored), ("sent", sent), ("told", told)):
            assert CANARY not in text, f"a file outside of the project was {place}"
        assert TYPED_SECRET not in stored, "redaction was switched off"
        assert KEY not in stored + told
        if kept:
            assert SENTENCE in stored, "the user's own memory did not take it"
        planted = [self.outside / "stolen.db", self.project / "planted.db"]
        assert not any(path.exists() for path in planted)


@contextmanager
def machine(folder: Path, name: str = "project") -> Iterator[Machine]:
    """A machine whose user has settings, keys and private files, and an empty project."""
    home, outside = folder / "home", folder / "outside"
    audit = folder / "audit"
    for one in (home / ".aws", home / ".config" / "recollect", outside, folder / "bin", audit):
        one.mkdir(parents=True)
    watched = tuple(str(folder.resolve() / name) for name in WATCHED)
    (audit / "sitecustomize.py").write_text(
        AUDIT.format(watched=watched, log=str(folder / "opened"))
    )
    private = [home / ".netrc", home / ".aws" / "credentials", outside / "secret.md"]
    for path in private:
        path.write_text(f"# Notes\n\n## Red Lines\n\n- The {CANARY} nests in the reeds.\n")
    for program in ("claude", "opencode"):
        (folder / "bin" / program).write_text(AGENT)
        (folder / "bin" / program).chmod(0o755)
    project = folder / name
    project.mkdir()
    evil = EvilServer()
    with ModelServer(lambda _: Says(text="Noted.")) as provider:
        (home / ".config" / "recollect" / "recollect.toml").write_text(
            f'[gateway.upstream]\nanthropic = "{provider.url}"\nopenai = "{provider.url}/v1"\n'
            "[gateway]\nport = 0\n"
            f'[models]\nprovider = "openai-chat"\nbase_url = "{provider.url}"\nmain = "m"\n'
            '[recall]\nembedder = "hash"\n'
        )
        made = Machine(folder, project, provider, evil)
        try:
            yield made
        finally:
            if (home / ".local" / "share" / "recollect" / "daemon").exists():
                made.recollect("daemon", "stop")
            evil.close()


# The ways in


def wrap(machine: Machine) -> None:
    done = machine.recollect("wrap", "claude")
    assert "answered 200" in done.stdout, done.stderr
    assert machine.provider.asked


def wrap_opencode(machine: Machine) -> None:
    done = machine.recollect("wrap", "opencode")
    assert "answered 200" in done.stdout, done.stderr
    assert machine.provider.asked


def chat(machine: Machine) -> None:
    done = machine.recollect("chat", "-m", SAID, "--bash", "off")
    assert done.returncode == 0, done.stderr
    assert machine.provider.asked


def gateway(machine: Machine) -> None:
    process = subprocess.Popen(
        [RECOLLECT, "gateway"],
        cwd=machine.project,
        env=machine.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        lines: list[str] = []
        while "listens on" not in "".join(lines):
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        found = re.search(r"listens on (http://127\.0\.0\.1:\d+)", lines[-1])
        assert found, "it listens on this machine alone"
        url = found[1]
        for token, answered in (("", False), (TOKEN, True)):
            client = {
                **machine.environment,
                "ANTHROPIC_BASE_URL": url,
                "ANTHROPIC_CUSTOM_HEADERS": f"x-recollect-token: {token}",
            }
            program = [str(machine.folder / "bin" / "claude")]
            done = subprocess.run(program, env=client, capture_output=True, text=True, check=False)
            assert ("answered 200" in done.stdout) is answered, done.stderr
    finally:
        process.terminate()
        _, rest = process.communicate(timeout=_SECONDS)
        machine.told += [*lines, rest]


def hooks(machine: Machine) -> None:
    transcript = machine.home / ".claude" / "projects" / "p" / "one.jsonl"
    transcript.parent.mkdir(parents=True)
    common = {"sessionId": "one", "isSidechain": False, "timestamp": "2026-11-17T01:00:00.000Z"}
    said = {"role": "user", "content": SAID}
    reply = {"id": "m1", "role": "assistant", "content": [{"type": "text", "text": "Noted."}]}
    lines: list[dict[str, Any]] = [
        {**common, "uuid": "a", "parentUuid": None, "type": "user", "message": said},
        {**common, "uuid": "b", "parentUuid": "a", "type": "assistant", "message": reply},
    ]
    transcript.write_text("".join(json.dumps(line) + "\n" for line in lines))
    payload = {"session_id": "one", "transcript_path": str(transcript), "cwd": str(machine.project)}
    for event, more in (
        ("SessionStart", {"source": "startup"}),
        ("UserPromptSubmit", {"prompt": "From which pier does the ferry to Ravensholm leave?"}),
        ("Stop", {}),
        ("SessionEnd", {"reason": "exit"}),
    ):
        given = json.dumps({**payload, "hook_event_name": event, **more})
        done = machine.recollect("hook", "claude-code", stdin=given)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert not done.stdout or json.loads(done.stdout)
    assert machine.recollect("daemon", "stop").returncode == 0  # it writes what is left


def mcp(machine: Machine) -> None:
    def asked(number: int, method: str, params: Mapping[str, Any]) -> str:
        return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})

    client = {"name": "c", "version": "1"}
    begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    store = {"name": "memory_store", "arguments": {"text": SAID, "kind": "note"}}
    find = {"name": "memory_search", "arguments": {"query": f"{CANARY[:6]} ferry"}}
    given = [
        asked(1, "initialize", begin),
        '{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        asked(2, "tools/call", store),
        asked(3, "tools/call", find),
    ]
    process = subprocess.Popen(
        [RECOLLECT, "mcp"],
        cwd=machine.project,
        env=machine.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    answers = []
    for line in given:
        process.stdin.write(line + "\n")
        process.stdin.flush()
        if '"id"' in line:
            answers.append(json.loads(process.stdout.readline()))
    rest, errors = process.communicate(timeout=_SECONDS)
    machine.told += [json.dumps(answers), rest, errors]
    assert rest == "", "standard output holds nothing but the protocol"
    assert [one["result"].get("isError", False) for one in answers[1:]] == [False, False], answers


def commands(machine: Machine) -> None:
    said = [{"role": "user", "content": "Which pier?"}, {"role": "assistant", "content": "Nine."}]
    given = json.dumps({"model": "claude-x", "max_tokens": 9, "messages": said}).encode()
    for words in (
        ("memory", "add", SAID),
        ("import", "--all", "--yes"),
        ("import", "."),
        ("init", "--yes", "--workspace"),
        ("install", "claude-code", "--project"),
        ("install", "codex", "--project"),
        ("explain", "-"),
        ("memory", "index", "."),
        ("memory", "reindex"),
        ("memory", "search", "ferry", "--json"),
        ("worker", "--once"),
        ("doctor", "--json"),
    ):
        done = run_forked(
            words, stdin=given, env=machine.environment, cwd=machine.project, timeout=_SECONDS
        )
        machine.told += [done.stdout.decode(), done.stderr.decode()]
        assert done.returncode in (0, 1, 2), (words, done.stderr)
        assert b"Traceback" not in done.stderr, (words, done.stderr)


def library(machine: Machine) -> None:
    done = machine.run(sys.executable, "-P", "-c", LIBRARY)
    assert done.returncode == 0, done.stderr


SURFACES: Final[Mapping[str, Callable[[Machine], None]]] = {
    "wrap": wrap,
    "wrap opencode": wrap_opencode,
    "chat": chat,
    "gateway": gateway,
    "hooks": hooks,
    "mcp": mcp,
    "commands": commands,
    "library": library,
}
"""Every way in which Recollect runs in a folder."""
