"""A data folder with the processes of a daemon in it, and a transcript whose hooks it answers."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from recollect.hosts.daemon.client import socket_path

DECISION = "For the billing service we decided to store amounts as integers in cents."
QUESTION = "How does the billing service store amounts?"
KEPT_FILES = {"daemon.log", "lock", "socket.path", "start.lock"}
STUB = '''
"""Loaded by every Python of a test: hooks are answered by a script, or the version is another."""
import os, sys, types

if os.environ.get("STUB_VERSION"):
    import recollect
    recollect.__version__ = os.environ["STUB_VERSION"]
if os.environ.get("STUB_INSTALLED"):
    import recollect
    recollect.__file__ = os.environ["STUB_INSTALLED"]
if os.environ.get("STUB_SLOW_MASKING"):
    import time
    from recollect.core.rules import redaction
    matches = redaction._matches

    def slow_matches(text, **options):
        if "takes long to mask" in text:
            time.sleep(float(os.environ["STUB_SLOW_MASKING"]))
        return matches(text, **options)

    redaction._matches = slow_matches
if os.environ.get("STUB_NO_UVICORN"):
    sys.modules["uvicorn"] = None
if os.environ.get("STUB_ANSWERS"):
    import asyncio

    class HookMemory:
        spaces = types.SimpleNamespace(keys=("stub",))

        def __init__(self, settings):
            pass

        async def answer(self, agent, payload):
            if payload.get("fail"):
                raise ValueError("a secret of the user")
            if payload.get("sleep"):
                open(os.environ["STUB_ANSWERS"] + ".asked", "w").close()
            await asyncio.sleep(payload.get("sleep", 0))
            with open(os.environ["STUB_ANSWERS"], "a") as file:
                file.write(payload["prompt"] + "\\n")
            print("a library that prints")
            return {"told": payload["prompt"], "pid": os.getpid()}

        async def close(self):
            pass

    def rest_of_it(name):  # all else is as in the module itself, with this class in it
        from importlib.util import find_spec, module_from_spec, spec_from_file_location
        folder = find_spec("recollect.hosts.hooks").submodule_search_locations[0]
        spec = spec_from_file_location("real_memory", os.path.join(folder, "memory.py"))
        real = module_from_spec(spec)
        sys.modules["real_memory"] = real
        spec.loader.exec_module(real)
        real.HookMemory = HookMemory
        return getattr(real, name)

    stub = types.ModuleType("recollect.hosts.hooks.memory")
    stub.HookMemory = HookMemory
    stub.__getattr__ = rest_of_it
    sys.modules["recollect.hosts.hooks.memory"] = stub
'''


class Lab:
    """A data folder of its own, and the processes of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.project = folder / "project"
        self.project.mkdir(parents=True)
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.answered = folder / "answered.txt"
        self.started_processes: list[subprocess.Popen[bytes]] = []
        site = folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(STUB)
        self.environment = {
            **os.environ,
            "RECOLLECT_HOME": str(self.home),
            "RECOLLECT_RECALL__EMBEDDER": "none",
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": os.pathsep.join([str(site), *sys.path]),
        }
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)  # a daemon starts many times here

    def socket(self) -> Path:
        """Where its daemon listens."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RECOLLECT_HOME", str(self.home))
            return Path(socket_path())

    def scripted(self) -> Lab:
        """Hooks are answered by the script above."""
        self.environment["STUB_ANSWERS"] = str(self.answered)
        return self

    @property
    def asked(self) -> Path:
        """Appears when the script began an answer that takes time."""
        return self.answered.with_name(f"{self.answered.name}.asked")

    def command(
        self, *words: str, stdin: bytes = b"", **environment: str
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "recollect", *words],
            input=stdin,
            env={**self.environment, **environment},
            cwd=self.project,
            capture_output=True,
            timeout=120,
            check=False,
        )

    def hook(
        self, payload: dict[str, Any] | bytes, agent: str = "claude-code", **environment: str
    ) -> dict[str, Any]:
        """What a hook prints; {} where it prints nothing."""
        raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        done = subprocess.run(
            [sys.executable, "-m", "recollect", "hook", agent],
            input=raw,
            env={**self.environment, **environment},
            cwd=self.project,
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        told: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
        return told

    def ask(self, prompt: str, **fields: Any) -> dict[str, Any]:
        """A hook of the script."""
        return self.hook({"prompt": prompt, **fields})

    def health(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.command("daemon", "status", "--json").stdout)
        return told

    def started(self) -> dict[str, Any]:
        done = self.command("daemon", "start", "--json")
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def processes(self) -> list[psutil.Process]:
        """Every process of this data folder but those that the test runs in."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("RECOLLECT_HOME") == str(self.home):
                    found.append(process)
            except psutil.Error:
                continue
        return [one for one in found if one.pid != os.getpid()]

    def left(self) -> set[str]:
        """What stands in the daemon's folder and among the temporary files."""
        names = {path.name for path in (self.home / "daemon").iterdir()}
        return names | {str(path) for path in self.temporary.rglob("*")}

    def log(self) -> str:
        path = self.home / "daemon" / "daemon.log"
        return path.read_text() if path.exists() else ""

    def end(self) -> None:
        for started in self.started_processes:  # first: whoever asks may start another daemon
            started.kill()
            started.communicate()
        while left := self.processes():
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
                    process.wait(10)


def soon(what: Callable[[], bool], seconds: float = 30.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if what():
            return True
        time.sleep(0.02)
    return False


class Talk:
    """A transcript as Claude Code writes it, and the hooks that tell of it."""

    def __init__(self, lab: Lab) -> None:
        self.session = str(uuid.uuid4())
        self.path = lab.folder / f"{self.session}.jsonl"
        self._last: str | None = None

    def line(self, role: str, content: Any) -> None:
        own = str(uuid.uuid4())
        line = {
            "parentUuid": self._last,
            "isSidechain": False,
            "sessionId": self.session,
            "version": "2.1.325",
            "uuid": own,
            "timestamp": "2026-11-17T01:00:00.000Z",
            "type": role,
            "message": {"role": role, "content": content},
        }
        self._last = own
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def turn(self, said: str) -> None:
        self.line("user", said)
        self.line("assistant", [{"type": "text", "text": f"Understood: {len(said)} characters."}])

    def event(self, lab: Lab, name: str, **fields: Any) -> dict[str, Any]:
        return {
            "session_id": self.session,
            "transcript_path": str(self.path),
            "cwd": str(lab.project),
            "hook_event_name": name,
            **fields,
        }
