"""Programs on official SDKs, run direct and through the gateway: they must be answered alike."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.harness.model_server import Asked, ModelServer, Step

from recollect.core.values.model import Usage
from recollect.testing.scripted_model import Says, ScriptedCall
from tools.clients.agents import KEY
from tools.clients.hop import RecordingHop
from tools.clients.lab import GatewayProcess, LabError
from tools.clients.provider import newest, tool_names

PROGRAMS: Final = Path(__file__).parent / "programs"
PACKAGES: Final = (
    "anthropic",
    "openai",
    "openai-agents",
    "pydantic-ai-slim[anthropic,openai]",
)
SDKS: Final = ("anthropic", "openai", "openai_agents", "pydantic_ai")
TALKING_SDKS: Final = ("anthropic", "openai")
"""Those with which `programs/talk.py` holds a conversation."""
_SETTINGS: Final = {"recall.enabled": False, "recall.embedder": "none"}
"""Without recall: a program that asks the same thing twice would be reminded of the answer."""
_MODELS: Final = {"object": "list", "data": [{"id": "gpt-x", "object": "model", "created": 1}]}


def answer(asked: Asked) -> Step:
    """What is answered to a request, always the same to the same."""
    words, after_tool = newest(asked.body)
    calls: tuple[ScriptedCall, ...] = ()
    if "CALL weigh" in words and not after_tool and "weigh" in tool_names(asked.body):
        calls = (ScriptedCall(id="call_1", name="weigh", input={}),)
    text = "" if calls else f"You said: {words}" + (" And it was weighed." if after_tool else "")
    return Says(text=text, calls=calls, usage=Usage(input_tokens=20, output_tokens=9))


def python_with_sdks(folder: Path) -> Path:
    """The interpreter of an environment with every SDK in it; LabError where pip cannot."""
    python, whole = folder / "sdks" / "bin" / "python", folder / "sdks" / "installed"
    if not whole.exists():
        made = subprocess.run(
            [sys.executable, "-m", "venv", str(folder / "sdks")], capture_output=True, check=False
        )
        done = subprocess.run(
            [str(python), "-m", "pip", "install", "-q", *PACKAGES],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode or done.returncode:
            raise LabError(f"pip could not install the SDKs: {done.stderr[-300:]}")
        whole.touch()
    return python


def python_to_talk(folder: Path) -> Path:
    """The interpreter that has what talks are held with: this one, or as above."""
    here = all(importlib.util.find_spec(sdk) is not None for sdk in TALKING_SDKS)
    return Path(sys.executable) if here else python_with_sdks(folder)


def environment_for(url: str) -> dict[str, str]:
    """What makes programs on SDKs go to this base URL."""
    return {
        **{name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
        "ANTHROPIC_BASE_URL": url,
        "OPENAI_BASE_URL": f"{url}/v1",
        "ANTHROPIC_API_KEY": KEY,
        "OPENAI_API_KEY": KEY.replace("sk-ant-", "sk-"),
        "PYTHONPATH": "",
    }


class SdkTalk:
    """A conversation by a loop on an SDK, in a process of its own."""

    def __init__(self, python: Path, sdk: str, url: str, project: Path) -> None:
        project.mkdir(parents=True, exist_ok=True)
        self.project = project
        self._log = (project / "errors.txt").open("wb")
        self._process = subprocess.Popen(
            [str(python), str(PROGRAMS / "talk.py"), sdk],
            env=environment_for(url),
            cwd=project,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()
        self._log.close()

    def turn(self, words: str) -> str | None:
        """One turn with its tools, to the end; the error that the program saw."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        ended: str | None = json.loads(line)["error"] if line else "the program ended"
        return ended


def told(python: Path, sdk: str, url: str) -> object:
    """What a program was answered at this base URL; its error where it ended with one."""
    done = subprocess.run(
        [str(python), str(PROGRAMS / f"with_{sdk}.py")],
        env=environment_for(url),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr[-600:]


def sdk_faults(python: Path, sdk: str, folder: Path) -> Iterator[str]:
    """Where a program is answered otherwise through the gateway than direct."""
    with ModelServer(answer, pages={"/v1/models": _MODELS}) as server:
        direct = told(python, sdk, server.url)
        count = len(server.asked)
        gateway = GatewayProcess(folder / sdk, server.url, **_SETTINGS)
        try:
            with RecordingHop(gateway.url) as hop:
                through = told(python, sdk, hop.url)
                ours = [one for one in hop.exchanges() if not one.request_id]
        finally:
            gateway.stop()
        if isinstance(direct, str):
            yield f"{sdk}: it fails even direct: {direct}"
        if direct != through:
            yield f"{sdk}: answered otherwise through the gateway: {str(through)[:300]}"
        sent, again = server.asked[:count], server.asked[count:]
        if [one.content for one in sent] != [one.content for one in again]:
            yield f"{sdk}: the provider got other requests through the gateway"
        yield from (f"{sdk}: {one.target} was answered {one.status} by the gateway" for one in ours)
