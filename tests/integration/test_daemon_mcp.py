"""Processes of MCP clients that share a daemon with hooks."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.daemon_lab import DECISION, KEPT_FILES, QUESTION, Lab, Talk, soon
from tests.sizes import only_in_full

import recollect


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    made.end()


class McpClient:
    """A client with its `recollect mcp`."""

    def __init__(self, lab: Lab, *options: str, **environment: str) -> None:
        pytest.importorskip("mcp")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "recollect", "mcp", *options],
            env={**lab.environment, **environment},
            cwd=lab.project,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        lab.started_processes.append(self.process)
        self._number = 0
        client = {"name": "c", "version": "1"}
        asked = {"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}}
        self.read(self.send("initialize", {**asked, "clientInfo": client}))
        self.write({"method": "notifications/initialized"})

    def write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def send(self, method: str, params: dict[str, Any]) -> int:
        self._number += 1
        self.write({"id": self._number, "method": method, "params": params})
        return self._number

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def read(self, number: int) -> dict[str, Any]:
        message = self.line()
        assert message["id"] == number, message
        result: dict[str, Any] = message["result"]
        return result

    def call(self, tool: str, **arguments: Any) -> str:
        return self.told(self.send("tools/call", {"name": tool, "arguments": arguments}))

    def told(self, number: int) -> str:
        result = self.read(number)
        text: str = result["content"][0]["text"]
        assert not result["isError"], text
        return text

    def libraries(self) -> str:
        """The compiled modules that it has loaded."""
        return " ".join(one.path for one in psutil.Process(self.process.pid).memory_maps())


def test_mcp_processes_share_what_hooks_have_open(lab: Lab) -> None:
    """What a hook kept is found through two of them, neither of which loads store or SDK."""
    talk = Talk(lab)
    talk.turn(DECISION)
    assert lab.hook(talk.event(lab, "Stop")) == {}
    clients = [McpClient(lab), McpClient(lab)]
    for client in clients:
        assert "integers in cents" in client.call("memory_search", query=QUESTION)
        assert not any(name in client.libraries() for name in ("apsw", "pydantic", "numpy"))
    health = lab.health()
    assert (health["mcp_clients"], health["spaces"]) == (2, [str(lab.project)])
    for client in clients:
        client.process.communicate(timeout=30)
        assert client.process.returncode == 0
    assert soon(lambda: lab.health()["mcp_clients"] == 0)
    assert "without the daemon" not in lab.log()
    # keys and settings of its own are not the daemon's: it serves itself
    other = McpClient(lab, RECOLLECT_RECALL__SCOPE="session")
    assert "integers in cents" in other.call("memory_search", query=QUESTION)
    assert "apsw" in other.libraries()
    assert "client is served without the daemon" in lab.log()


def test_a_daemon_that_dies_under_an_mcp_call_is_replaced_and_then_done_without(lab: Lab) -> None:
    client = McpClient(lab)
    client.call("memory_store", text="The quay master is Ada Lovelace.")
    for replaced in (True, False):
        daemon = psutil.Process(lab.health()["pid"])
        daemon.suspend()
        number = client.send("tools/call", {"name": "memory_recall", "arguments": {}})
        time.sleep(0.3)
        daemon.kill()
        if not replaced:  # and the next one, too
            assert soon(lambda first=daemon.pid: _next_is_killed(lab, first))  # type: ignore[misc]
        assert "Ada Lovelace" in client.told(number)
    assert "Ada Lovelace" in client.call("memory_recall")


def _next_is_killed(lab: Lab, first: int) -> bool:
    """Kill the daemon that came after the first; False where there is none yet."""
    pid = int((lab.home / "daemon" / "lock").read_text() or first)
    if pid == first or not lab.socket().exists():
        return False
    try:
        psutil.Process(pid).kill()
    except psutil.NoSuchProcess:  # the one that only starts it
        return False
    return True


@only_in_full
def test_an_idle_mcp_process_keeps_no_daemon_and_finds_the_next(lab: Lab) -> None:
    lab.environment["RECOLLECT_DAEMON__IDLE_SECONDS"] = "1"
    client = McpClient(lab)
    client.call("memory_store", text="The quay master is Ada Lovelace.")
    assert soon(lambda: [one.pid for one in lab.processes()] == [client.process.pid])
    assert lab.left() == KEPT_FILES
    # what is asked of a person in the middle of a call keeps it
    fact = client.call("memory_recall").split("[")[1].split("]")[0]
    number = client.send("tools/call", {"name": "memory_forget", "arguments": {"ids": [fact]}})
    question = client.line()
    assert question["method"] == "elicitation/create"
    time.sleep(2.5)
    answer = {"action": "accept", "content": {"forget": True}}
    client.write({"id": question["id"], "result": answer})
    assert "Forgotten permanently" in client.told(number)


@only_in_full
def test_what_a_person_says_is_taken_for_no_other_daemons_question(lab: Lab) -> None:
    client = McpClient(lab)
    client.call("memory_store", text="The quay master is Ada Lovelace.")
    fact = client.call("memory_recall").split("[")[1].split("]")[0]
    number = client.send("tools/call", {"name": "memory_forget", "arguments": {"ids": [fact]}})
    first = client.line()
    psutil.Process(lab.health()["pid"]).kill()
    second = client.line()
    assert second["method"] == "elicitation/create" and second["id"] != first["id"]
    yes = {"action": "accept", "content": {"forget": True}}
    client.write({"id": first["id"], "result": yes})
    client.write({"id": second["id"], "result": {"action": "decline"}})
    assert "did not confirm" in client.read(number)["content"][0]["text"]
    assert "Ada Lovelace" in client.call("memory_recall")


@only_in_full
def test_after_an_upgrade_an_mcp_process_has_the_new_daemon(lab: Lab) -> None:
    old = McpClient(lab, STUB_VERSION="0.0.1")
    old.call("memory_store", text="The quay master is Ada Lovelace.")
    assert lab.health()["version"] == "0.0.1"
    assert "Ada Lovelace" in McpClient(lab).call("memory_recall")
    assert lab.health()["version"] == recollect.__version__
    assert "Ada Lovelace" in old.call("memory_recall")
    assert lab.health()["mcp_clients"] == 2
    assert "without the daemon" not in lab.log()


def test_without_a_daemon_an_mcp_process_serves_itself(lab: Lab) -> None:
    client = McpClient(lab, STUB_NO_UVICORN="1")
    client.call("memory_store", text="The quay master is Ada Lovelace.")
    assert "Ada Lovelace" in client.call("memory_recall")
    assert [one.pid for one in lab.processes()] == [client.process.pid]
    assert "client is served without the daemon" in lab.log()
