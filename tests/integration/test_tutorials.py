"""Every command of the README and the tutorials, typed as written in an empty HOME.

A scripted provider answers for the model and PostgreSQL of the test group for the database of the
compose file. Each command has to succeed. What it prints has to be what the page shows: numbers,
dates and ids may differ, and a line `…` stands for any number of lines."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.harness.model_server import Asked, ModelServer, Step
from tools.clients.lab import Lab

from recollect.core.values.model import Usage
from recollect.testing.scripted_model import Says
from recollect_bench.gateway.processes import free_port
from recollect_bench.postgres_server import PostgresServer

ROOT = Path(__file__).parents[2]
LAB = Lab(folder=Path(os.environ.get("CLIENTS_FOLDER", ROOT / ".ci" / "agents")))
TUTORIALS = ("claude-code", "python", "service")
PAGES = ("README.md", *(f"docs/tutorials/{name}.md" for name in TUTORIALS))
NOT_RUN = {
    "pip install": "downloads packages; the test environment has them",
    "python3 -m venv": "the test environment stands for it",
    ". ~/.recollect-venv": "the test environment stands for it",
}
BEFORE = """
docker() {  # images are downloads: the commands of the compose file's services run here instead
  local -x RECOLLECT_STORE__URL=$SERVICE_STORE
  case "$*" in
    *" up "*) $METRICS recollect serve --port $PORT &>/dev/null & ;;
    *" down "*) kill %1 ;;
    *) recollect "${@:7}" ;;
  esac
}
"""
MY_SESSION = """
python - <<'END-OF-FILE'
import json, recollect
said = [f"We read page {number} of the log of the harbour: all is well." for number in range(60)]
rows = [{"role": ("user", "assistant")[at % 2], "content": said[at]} for at in range(59)]
settings = {"models.provider": "anthropic", "models.main": "claude-x"}
with recollect.open_blocking_memory(window_tokens=4_000, settings=settings) as memory:
    for last in range(1, 60, 2):
        memory.prepare("my-session", {"model": "claude-x", "messages": rows[:last]})
    memory.compact("my-session")
with open("SESSION.jsonl", "w") as file:
    file.writelines(json.dumps(row) + chr(10) for row in rows)
END-OF-FILE
"""
"""What the README looks at: a session with a compaction, and a transcript."""
SUMMARY = (
    "## Goal\nCheck the logs of the harbour, day by day.\n\n## Decisions\nNone.\n\n"
    "## Progress\nThe first days look normal.\n\n## Open TODOs\nThe days that follow.\n\n"
    "## Constraints/Rules\nNone.\n\n## Pending user asks\nNone.\n"
)


def answer(asked: Asked) -> Step:
    """What the scripted model says."""
    rows = asked.body["messages"]
    prompt = texts([row for row in rows if row["role"] == "user"][-1]["content"])[-1]
    if day := re.match(r"Check the log of day (\d+)", prompt):
        text = f"Day {day[1]} looks normal."
    elif "Which port" in prompt:
        known = "8443" in json.dumps(rows)
        text = "It runs on port 8443, behind the proxy." if known else "I do not know."
    else:
        text = SUMMARY if "## Goal" in json.dumps(asked.body) else "Noted."
    return Says(text=text, usage=Usage(input_tokens=len(asked.content) // 4, output_tokens=20))


def texts(content: Any) -> list[str]:
    return [content] if isinstance(content, str) else [one["text"] for one in content]


def typed(page: str) -> Iterator[tuple[str, str | None]]:
    """Each command of a page in order, and what the page shows below it; None: it shows nothing."""
    fence = r'^```(\w*)(?: title="([^"\n]+)")?\n(.*?)^```'
    for language, title, text in re.findall(fence, (ROOT / page).read_text(), re.M | re.S):
        if title:
            yield f"cat > {title} <<'END-OF-FILE'\n{text}END-OF-FILE", None
        elif language == "python":
            yield f"python - <<'END-OF-FILE'\n{text}END-OF-FILE", None
        elif language == "sh":
            yield from ((line, None) for line in text.splitlines())
        elif language == "console":
            command, shown = "", list[str]()
            for line in text.splitlines():
                if is_open(command):
                    command += f"\n{line}"
                elif line.startswith("$ "):
                    if command:
                        yield command, "\n".join(shown)
                    command, shown = line[2:], []
                else:
                    shown.append(line)
            yield command, "\n".join(shown)


def is_open(command: str) -> bool:
    return command.count("'") % 2 == 1 or command.endswith(("\\", "|"))


def same(text: str) -> list[str]:
    """Lines without what differs from run to run."""
    differs = r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b[0-9a-f]{32,64}\b|[▒█]+"
    text = re.sub(differs, "#", text.strip())
    return [" ".join(re.sub(r"-?\d[\d.,:]*", "#", line).split()) for line in text.splitlines()]


def shows(shown: list[str], printed: list[str]) -> bool:
    pattern = "".join(r"(?:.*\n)*" if line == "…" else re.escape(f"{line}\n") for line in shown)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


class Machine:
    """An empty HOME in which a page is typed."""

    def __init__(self, home: Path, provider: str, store: str) -> None:
        self.home = home
        (home / "deploy").mkdir(parents=True)
        (home / "deploy" / "example.env").touch()
        programs = (Path(sys.executable).parent, LAB.program("claude").parent, LAB.path)
        self.ports = {"8789": free_port(), "8790": 0, "9464": free_port()}
        self.ports["8790"] = self.ports["8789"]  # one node plays both
        self.environment = {
            "PATH": ":".join(map(str, programs)),
            "HOME": str(home),
            "COLUMNS": "110",
            "LANG": "C.UTF-8",
            "ANTHROPIC_BASE_URL": provider,
            "ANTHROPIC_API_KEY": "sk-ant-scripted",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "RECOLLECT_MODELS__BASE_URL": provider,
            "RECOLLECT_RECALL__EMBEDDER": "none",
            "RECOLLECT_SECRET": "0c4e22" * 6,
            "SERVICE_STORE": store,
            "PORT": str(self.ports["8789"]),
            "METRICS": f"env RECOLLECT_TELEMETRY__METRICS_PORT={self.ports['9464']}",
        }

    def type(self, page: str) -> Iterator[tuple[str, str | None, str, int]]:
        """Each command, what the page shows, what it printed, and its status."""
        commands = [one for one in typed(page) if not one[0].startswith(tuple(NOT_RUN))]
        script = BEFORE + (MY_SESSION if page == "README.md" else "")
        for number, (command, _) in enumerate(commands):
            here = re.sub(r"(?<=127.0.0.1:)\d{4}", lambda port: str(self.ports[port[0]]), command)
            out = f"{self.home}/{number}"
            script += f"{{ {here}\n}} >{out}.out 2>&1 </dev/null; echo $? >{out}.status\n"
        told: dict[str, Any] = {
            "cwd": self.home,
            "env": self.environment,
            "stderr": subprocess.PIPE,
        }
        with subprocess.Popen(["bash", "-c", script], start_new_session=True, **told) as bash:
            try:
                assert not bash.communicate(timeout=500)[1]
            finally:
                with suppress(ProcessLookupError):  # a node that a page left running
                    os.killpg(bash.pid, signal.SIGKILL)
        for number, (command, shown) in enumerate(commands):
            printed = (self.home / f"{number}.out").read_text().replace(str(self.home), "/home/ada")
            yield command, shown, printed, int((self.home / f"{number}.status").read_text())


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_page_runs(page: str, tmp_path: Path, server: PostgresServer) -> None:
    if "claude" in page and not LAB.has("claude"):
        pytest.skip("Claude Code is not installed here")
    store = asyncio.run(server.migrated_database()).app_url
    with ModelServer(answer) as provider:
        here = Machine(tmp_path / "ada", provider.url, store)
        for command, shown, printed, status in here.type(page):
            assert status == 0, f"{command}\n{printed}"
            if shown is not None:
                assert shows(same(shown), same(printed)), f"{command}\n{printed}"
