"""OpenClaw itself with our context engine, over a recorded connection to a scripted provider.

A decision is said, the window fills, the past is compacted through us by OpenClaw's own model, and
the decision stands in the requests that follow. Then the daemon is killed and its program taken
away, the plugin is broken, and the plugin is absent: every turn is answered all the same, and what
was said meanwhile is handed over when the daemon is back.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import psutil
from tests.harness.model_server import Asked, Step

from recollect.adapters.wiring import open_store
from recollect.core.formats.blocks import texts_of
from recollect.core.values.recall import BLOCK_OPENING
from recollect.testing.scripted_model import Says, WireName
from tools.clients.agents import KEY, AgentHome
from tools.clients.hop import RecordingHop
from tools.clients.lab import Lab
from tools.clients.provider import ScriptedProvider, scripted_server

PLUGIN: Final = Path(__file__).parents[2] / "plugins" / "openclaw"
DECISION: Final = "We decided that the staging database listens on port 5433, never on 5432."
ASKS: Final = "Which port does the staging database use?"
AWAY: Final = "Said while nobody kept it: the quay master is called Ada."
_SUMMARIZED: Final = ("<conversation>", "<partial-summary>")
"""What a summary is asked of: what was said, or what was made of parts of it."""
MARK: Final = "SUMMARY-BY-OPENCLAWS-MODEL"
WINDOW_TOKENS: Final = 26_000
"""OpenClaw's prompt, tools and reserve take all but some 10,000 of it."""


class OpenClaw(AgentHome):
    """OpenClaw, one process a turn, all of them in one session."""

    slot = "recollect"
    plugin = PLUGIN

    @property
    def data(self) -> Path:
        """Recollect's data folder."""
        return self.folder / "recollect"

    @property
    def recollect(self) -> Path:
        """The program that the plugin starts."""
        return self.folder / "bin" / "recollect"

    def _configure(self) -> None:
        self.recollect.parent.mkdir(parents=True, exist_ok=True)
        paths = os.pathsep.join(path for path in sys.path if path)
        self.recollect.write_text(
            f'#!/bin/sh\nPYTHONPATH="{paths}" exec "{sys.executable}" -m recollect "$@"\n',
            encoding="utf-8",
        )
        self.recollect.chmod(0o755)
        self.environment |= {
            "OPENCLAW_DISABLE_UPDATE_CHECK": "1",
            "RECOLLECT_RECALL__EMBEDDER": "none",
        }
        self.configure()

    def configure(self, plugin: Path | None = PLUGIN) -> None:
        """Write its configuration: with this plugin, or with one selected that is not there."""
        model = {
            "id": "scripted",
            "name": "Scripted",
            "reasoning": False,
            "input": ["text"],
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
            "contextWindow": WINDOW_TOKENS,
            "maxTokens": 8_000,
        }
        provider = {
            "baseUrl": self.url,
            "apiKey": KEY,
            "api": "anthropic-messages",
            "models": [model],
        }
        plugins: dict[str, Any] = {"slots": {"contextEngine": "recollect", "memory": "none"}}
        if plugin is not None:
            config: dict[str, Any] = {"command": str(self.recollect), "home": str(self.data)}
            config["waitForCompaction"] = True
            plugins["load"] = {"paths": [str(plugin)]}
            plugins["entries"] = {"recollect": {"enabled": True, "config": config}}
        defaults = {"model": {"primary": "lab/scripted"}, "workspace": str(self.project)}
        written = {
            "models": {"mode": "merge", "providers": {"lab": provider}},
            "agents": {"defaults": defaults},
            "plugins": plugins,
        }
        path = self.home / ".openclaw" / "openclaw.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(written), encoding="utf-8")

    def command(self, words: str, *, resume: bool = False) -> list[str | Path]:
        """One turn of the agent's one session."""
        program = self.lab.program("openclaw")
        return [program, "agent", "--local", "--agent", "main", "--message", words]

    def daemons(self) -> list[psutil.Process]:
        """Processes of our daemon in this data folder."""
        found = []
        for process in psutil.process_iter(["cmdline", "environ"]):
            environment = process.info["environ"] or {}
            if environment.get("RECOLLECT_HOME") == str(self.data) and "daemon" in (
                process.info["cmdline"] or ()
            ):
                found.append(process)
        return found


class SummarizingProvider(ScriptedProvider):
    """Writes summaries for us, none the same as the one before, as a real model does. OpenClaw
    puts a message of its own behind the prompt, which providers join: that is not refused."""

    allowed = frozenset({"roles-not-alternating"})

    def _scripted(self, wire: WireName, asked: Asked, body: Mapping[str, Any]) -> Step:
        step = super()._scripted(wire, asked, body)
        if not isinstance(step, Says) or not _is_ours(body):
            return step
        self.summaries += 1
        return replace(step, text=f"{MARK}: so far {self.summaries} times something was read.")


def _is_ours(body: Mapping[str, Any]) -> bool:
    """Whether OpenClaw's model is asked for a summary of ours."""
    text = json.dumps(body.get("messages"))
    return not body.get("tools") and any(mark in text for mark in _SUMMARIZED)


def openclaw(lab: Lab, folder: Path) -> Iterator[str]:
    """OpenClaw with our context engine; then without a daemon, with a broken plugin, without it."""
    provider = SummarizingProvider()
    with scripted_server(provider) as server, RecordingHop(server.url) as hop:
        home = OpenClaw(lab=lab, folder=folder / "openclaw", url=hop.url)
        try:
            yield from _compacted(home, hop, provider)
            yield from _goes_on(home, hop)
        finally:
            for daemon in home.daemons():
                daemon.terminate()
        yield from (f"refused: {rule}" for rule in provider.refused)
        yield from _kept(home)


def _compacted(home: OpenClaw, hop: RecordingHop, provider: SummarizingProvider) -> Iterator[str]:
    """Assembled, compacted and recalled, in captured requests."""
    yield from _turn(home, hop, DECISION)
    for name in ("crate", "barrel", "sack"):
        yield from _turn(home, hop, _report(name))
    if not provider.summaries:
        yield "openclaw: a full window was not compacted"
    yield from _turn(home, hop, "Bake some bread.")
    after = _newest(hop)
    if MARK not in after:
        yield "openclaw: no summary stands in the request after the compaction"
    if "crate5x35" in after:
        yield "openclaw: what was summarized is still in the request"
    if "5433" not in after:
        yield "openclaw: the decision does not stand behind the compaction"
    yield from _turn(home, hop, ASKS)
    asked = _newest(hop)
    if "1970" in asked:
        yield "openclaw: a message of ours has no time"
    if BLOCK_OPENING not in asked or "5433" not in asked.partition(BLOCK_OPENING)[2]:
        yield "openclaw: the decision is not recalled for a question about it"


def _goes_on(home: OpenClaw, hop: RecordingHop) -> Iterator[str]:
    """Daemon killed and not to be had, plugin broken, plugin absent; and all well again."""
    for daemon in home.daemons():
        daemon.kill()
    away = home.recollect.with_name("away")
    home.recollect.rename(away)
    yield from _turn(home, hop, AWAY)
    broken = home.folder / "broken"
    shutil.copytree(PLUGIN, broken)
    engine = '() => { throw new Error("broken"); }'
    (broken / "index.ts").write_text(
        f'export default (api) => api.registerContextEngine("recollect", {engine});\n',
        encoding="utf-8",
    )
    home.configure(broken)
    yield from _turn(home, hop, "A turn with a broken plugin.")
    home.configure(None)
    yield from _turn(home, hop, "A turn without the plugin.")
    away.rename(home.recollect)
    home.configure()
    yield from _turn(home, hop, f"All is well again. {ASKS}")
    if BLOCK_OPENING not in _newest(hop) or "5433" not in _newest(hop):
        yield "openclaw: the engine is not back after the daemon is"


def _turn(home: OpenClaw, hop: RecordingHop, words: str) -> Iterator[str]:
    """One turn; what is wrong where it is not answered, or is not in a request."""
    ran = home.ask(words)
    sys.stderr.write(f"    {words[:40]!r}: status {ran.status}\n")
    if ran.status or "Answer " not in ran.output:
        yield f"openclaw: {words[:40]!r} ended with {ran.status}: {ran.output[-300:]}"
    elif words not in _newest(hop):
        yield f"openclaw: {words[:40]!r} is not in the newest request"


def _newest(hop: RecordingHop) -> str:
    """What the newest request of the conversation says, its texts as they are."""
    bodies = [json.loads(one.body) for one in hop.exchanges() if one.path.endswith("/messages")]
    asked: dict[str, Any] = next((body for body in reversed(bodies) if body.get("tools")), {})
    contents = [message["content"] for message in asked.get("messages", ())]
    parts = [[one] if isinstance(one, str) else texts_of(one) for one in contents]
    return "\n".join(text for part in parts for text in part)


def _report(name: str) -> str:
    return f"Read this report: {' '.join(f'{name}{at}x{at * 7}' for at in range(600))}"


def _kept(home: OpenClaw) -> Iterator[str]:
    """Every turn is in memory once, also what was said while no daemon ran."""
    texts = asyncio.run(_stored(home))
    for words in (DECISION, _report("crate"), ASKS, AWAY, "A turn without the plugin."):
        found = sum(text == words for text in texts)
        if found != 1:
            yield f"openclaw: {words[:40]!r} is kept {found} times"


async def _stored(home: OpenClaw) -> list[str]:
    os.environ["RECOLLECT_HOME"] = str(home.data)
    store = await open_store(None, space=str(home.project))
    try:
        return [one.segment.text for one in await store.page(limit=10_000)]
    finally:
        await store.close()
