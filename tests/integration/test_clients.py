"""Agents that nobody changed, through the gateway: what was captured of them, and two of them live.

`just clients` runs all of them, and more of each."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.harness.gateway import connect, gateway
from tests.harness.model_server import ModelServer
from tests.harness.waiting import wait_until
from tests.sizes import at_size
from tools.clients.for_ever import by_sdk, long_talk
from tools.clients.lab import Lab
from tools.clients.scenarios import SCENARIOS
from tools.clients.sdks import sdk_faults

from recollect.hosts.gateway.running import BackgroundGateway
from recollect.testing.scripted_model import Says

ROOT = Path(__file__).parents[2]
LAB = Lab(folder=Path(os.environ.get("CLIENTS_FOLDER", ROOT / ".ci" / "agents")))
_BETWEEN_TWO = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding"}
_TURN = "a turn of the conversation"
_SIDE = "a side request without tools"
_COMPACTION = "the client compacts its history itself"
KINDS = {
    "claude-2.1.325-interactive-tmux": {_TURN: 3, _SIDE: 2, _COMPACTION: 1},
    "claude-2.1.325-tool-manual-compact": {_TURN: 4, _COMPACTION: 1},
    "codex-0.166.0-hooks-compaction-fork": {_TURN: 9, _SIDE: 2},
    "opencode-1.18.33": {_TURN: 4, _SIDE: 2},
    "pi-0.87.1-and-0.73.1": {_TURN: 18},
}
"""What some captures hold. Texts are cut there, so that a compaction by its words is not seen."""


AGENTS = at_size(
    ci=["claude", "claude-mcp", "pi", "wrap-claude"],
    full=["claude", "claude-mcp", "pi", "wrap-claude", "wrap-pi"],
)


def captured(folder: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for path in sorted(folder.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        yield path.stem, [row for row in rows if row.get("method") == "POST"]


def test_what_was_captured_of_real_agents_passes_as_it_is(data: Path) -> None:
    """Every request of the agents, with its headers: the same bytes reach the provider. Those in
    Gemini's format reach none, because none is configured that reads it."""
    slim = data / "clients" / "slim"
    if not slim.is_dir():
        pytest.skip(f"no captured requests at {slim}")
    with (
        ModelServer(lambda _: Says(text="Aye.")) as server,
        gateway(server, **{"recall.enabled": False}) as running,
    ):
        for name, rows in captured(slim):
            rows = [row for row in rows if row["path"] != "/api/show"]  # to a server of Ollama
            if name.startswith("gemini"):
                assert not [row["n"] for row in rows if _reaches(running.url, server, row)]
                _kinds(running, len(rows))  # wait for their records
                running.gateway.activity._records.clear()
                continue
            changed = [row["n"] for row in rows if not _passes(running.url, server, row)]
            # OpenClaw's user speaks twice in a row, which hosts of the format refuse: joined
            assert name.startswith("openclaw") or not changed, name
            kinds = Counter(record.partition(":")[0] for record in _kinds(running, len(rows)))
            assert kinds == KINDS.get(name, kinds), name
            running.gateway.activity._records.clear()


def _kinds(running: BackgroundGateway, count: int) -> list[str]:
    """What the newest requests were taken for, once their replies are read."""
    newest = running.gateway.activity.newest_records
    wait_until(lambda: len(newest(1_000)) >= count)
    assert not [record.failed for record in newest(1_000) if record.failed]
    return [record.kind for record in newest(1_000)]


def _with_ids_once(body: dict[str, Any]) -> dict[str, Any]:
    """A body whose items have ids of their own: the captures' provider gave each the same."""
    given: Counter[str] = Counter()
    items = body.get("input")
    for item in items if isinstance(items, list) else ():
        if "id" in item:
            given[item["id"]] += 1
            item["id"] += f"_{given[item['id']]}" if given[item["id"]] > 1 else ""
    return body


def _reaches(url: str, server: ModelServer, row: dict[str, Any]) -> bool:
    """Send a request, and return whether the provider got one."""
    connection, prefix = connect(url)
    body = json.dumps(_with_ids_once(row["body"]), ensure_ascii=False).encode()
    headers = {key: value.encode() for key, value in _sent_headers(row).items()}
    before = len(server.asked)
    try:
        connection.request("POST", prefix + row["path"], body, headers)
        connection.getresponse().read()
    finally:
        connection.close()
    return len(server.asked) > before


def _sent_headers(row: dict[str, Any]) -> dict[str, str]:
    return {key: value for key, value in row["headers"] if key.lower() not in _BETWEEN_TWO}


def _passes(url: str, server: ModelServer, row: dict[str, Any]) -> bool:
    """Whether a request reaches the provider with its bytes and its headers."""
    if not _reaches(url, server, row):
        return False
    got, body = server.asked[-1], json.dumps(row["body"], ensure_ascii=False).encode()
    given = _sent_headers(row)
    names = {key.lower() for key in given if not key.lower().startswith("x-recollect-")}
    return got.content == body and got.path == row["path"] and names <= got.headers.keys()


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_runs_through_the_gateway_as_without_it(name: str, tmp_path: Path) -> None:
    """Tools, errors, resume, cancel: the same bytes on both sides, and sessions as they are; or
    started by `recollect wrap`: its turn is in memory, nothing runs on, all is put back."""
    agent, scenario = SCENARIOS[name]
    if not LAB.has(agent):
        pytest.skip(f"{agent} is not at {LAB.folder}: .ci/run installs it where npm can")
    assert list(scenario(LAB, tmp_path)) == []


@pytest.mark.parametrize("sdk", ["anthropic", "openai"])
def test_a_program_on_an_official_sdk_is_answered_alike(sdk: str, tmp_path: Path) -> None:
    pytest.importorskip(sdk)
    assert list(sdk_faults(Path(sys.executable), sdk, tmp_path)) == []


@pytest.mark.parametrize(("sdk", "summaries"), [("anthropic", False), ("openai", True)])
def test_a_loop_on_an_official_sdk_talks_beyond_its_window(
    sdk: str, summaries: bool, tmp_path: Path
) -> None:
    """`just clients --for-ever --sdk` says twenty times as much."""
    pytest.importorskip(sdk)
    talk = long_talk(
        by_sdk(Path(sys.executable), sdk),
        tmp_path,
        client=sdk,
        window_tokens=8_000,
        summaries=summaries,
        tokens=at_size(ci=12_000, full=16_000),
        facts=6,
    )
    assert list(talk.faults) == [], talk
    assert talk.largest_seen < 8_000 < talk.tokens_sent
    assert bool(talk.summaries_asked) == summaries
