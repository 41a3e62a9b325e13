"""`recollect wrap` as a person runs it, with a program in the agent's place."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.harness.model_server import ModelServer

from recollect.core.values.model import Usage
from recollect.testing.scripted_model import Says

AGENT = """#!{python}
import json, os, sys, urllib.error, urllib.request
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
body = {{"model": "m", "max_tokens": 9, "messages": [{{"role": "user", "content": "hello"}}]}}
head = {{"content-type": "application/json", "x-session-id": "one"}}
print("[agent starts]", file=sys.stderr, flush=True)
for _ in range(int(sys.argv[1])):
    try:
        asked = urllib.request.Request(url, json.dumps(body).encode(), head)
        print(urllib.request.urlopen(asked).status)
    except urllib.error.HTTPError as error:
        print(error.code, flush=True)
print("[agent ends]", file=sys.stderr, flush=True)
sys.exit(7)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of its own, with an agent called claude on it."""
    programs, project = tmp_path / "bin", tmp_path / "project"
    programs.mkdir()
    project.mkdir()
    for name in ("claude", "pi"):
        (programs / name).write_text(AGENT.format(python=sys.executable), encoding="utf-8")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("RECOLLECT_RECALL__EMBEDDER", "none")
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return project


def wrap(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "recollect", "wrap", *arguments],
        cwd=project,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@contextmanager
def nobody() -> Iterator[str]:
    """The address of a port on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_a_provider_that_is_away_is_told_after_the_agent_ended(home: Path) -> None:
    with nobody() as address:
        done = wrap(home, "claude", "--", "3", ANTHROPIC_BASE_URL=f"http://{address}")
    before, _, rest = done.stderr.partition("[agent starts]\n")
    during, _, after = rest.partition("[agent ends]\n")
    away = f"{address} cannot be reached (connection refused)"
    assert (done.returncode, done.stdout.split()) == (7, ["502"] * 3)
    assert (
        f"recollect: requests are sent to http://{address}, as set by ANTHROPIC_BASE_URL\n"
        in before
    )
    assert during == ""
    expected = f"the provider at {away}: requests are answered with 502 until it is back"
    assert after == f"recollect: {expected}\n"


def test_a_provider_that_answers_is_not_spoken_of(home: Path) -> None:
    says = Says(id="1", text="hi", usage=Usage(input_tokens=1, output_tokens=1))
    with ModelServer([says]) as server:
        named = {"RECOLLECT_GATEWAY__UPSTREAM__ANTHROPIC": server.url}
        done = wrap(home, "claude", "--", "1", ANTHROPIC_BASE_URL="http://127.0.0.1:1", **named)
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout.split()) == (7, ["200"])
    assert (
        lines[0]
        == f"recollect: requests are sent to {server.url}, as set by gateway.upstream.anthropic"
    )
    assert lines[1].startswith(f"recollect: memory of {home} ")
    assert lines[2:] == ["[agent starts]", "[agent ends]"]
    # nothing that could end under a stream was asked: no daemon was started for it
    assert {one.name for one in (home.parent / "data").iterdir()} >= {"spaces"}
    assert not (home.parent / "data" / "daemon").exists()


def test_an_agent_that_is_stopped_gives_the_terminal_back_and_goes_on(tmp_path: Path) -> None:
    """As a terminal program does on Ctrl-Z: it stops itself, and the shell has to notice."""
    agent = "kill -STOP $$; echo back; exit 3"
    program = (
        "from recollect.cli.gateway import run_agent; import os, sys; "
        f"sys.exit(run_agent(['sh', '-c', {agent!r}], dict(os.environ)))"
    )
    output = tmp_path / "output"
    with output.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-c", program], stdout=file)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        _, status = os.waitpid(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert (process.returncode, output.read_text()) == (3, "back\n")


def test_a_run_of_which_nothing_passed_through_says_so(home: Path) -> None:
    with nobody() as address:
        quiet = wrap(home, "claude", "--", "0", ANTHROPIC_BASE_URL=f"http://{address}")
        busy = wrap(home, "claude", "--", "1", ANTHROPIC_BASE_URL=f"http://{address}")
    said = "no model request passed through Recollect in this run"
    assert said in quiet.stderr.partition("[agent ends]")[2]
    assert said not in busy.stderr
