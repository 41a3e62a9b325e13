"""The official conformance suite of the Model Context Protocol against `recollect mcp --http`.

    python -m tools.mcp_conformance [--agents FOLDER]

Needs Node and the suite: `npm i --prefix .ci/agents/misc @modelcontextprotocol/conformance`. The
suite brings no token, so one is put into its requests on their way in; hosts and origins reach the
server as the suite sends them. Most of its scenarios call tools, prompts and
resources of a server made for it (`test_image_content`): those cannot pass here, and are told apart
by name. Ends with 1 where one fails that can pass.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from recollect.hosts.mcp import MemoryOrder
from recollect.hosts.mcp.server import app_with_checks, open_client_memory, server_over

NEEDS: Final = {
    "completion-complete": "prompts of its own: there are none here",
    "elicitation-sep1034-defaults": "a tool of its own",
    "elicitation-sep1330-enums": "a tool of its own",
    "json-schema-2020-12": "a tool of its own",
    "logging-set-level": "logging, which the newest revision has dropped",
    "prompts-get-embedded-resource": "prompts of its own: there are none here",
    "prompts-get-simple": "prompts of its own: there are none here",
    "prompts-get-with-args": "prompts of its own: there are none here",
    "prompts-get-with-image": "prompts of its own: there are none here",
    "prompts-list": "prompts of its own: there are none here",
    "resources-read-binary": "resources of its own",
    "resources-read-text": "resources of its own",
    "resources-subscribe": "subscriptions: nothing is pushed here",
    "resources-templates-read": "resources of its own",
    "resources-unsubscribe": "subscriptions: nothing is pushed here",
    "tools-call-audio": "a tool of its own",
    "tools-call-elicitation": "a tool of its own",
    "tools-call-embedded-resource": "a tool of its own",
    "tools-call-error": "a tool of its own",
    "tools-call-image": "a tool of its own",
    "tools-call-mixed-content": "a tool of its own",
    "tools-call-sampling": "a tool of its own",
    "tools-call-simple-text": "a tool of its own",
    "tools-call-with-logging": "a tool of its own",
    "tools-call-with-progress": "a tool of its own",
}
"""Scenarios that want what this server has not, and what that is."""
_TOKEN: Final = "conformance"
_LINE: Final = re.compile(r"(✓|✗)\s+(\S+): (\d+) passed, (\d+) failed")


class WithToken:
    """Brings the token for a client that has none."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            bearer = (b"authorization", f"Bearer {_TOKEN}".encode())
            scope = {**scope, "headers": [*scope["headers"], bearer]}
        await self._app(scope, receive, send)


async def run(agents: Path, folder: Path) -> int:
    import uvicorn

    order = MemoryOrder(space="conformance", store=str(folder / "memory.db"))
    async with open_client_memory(order) as memory:
        server = server_over(memory)
        app = WithToken(app_with_checks(server, token=_TOKEN, local=True))
        config = uvicorn.Config(app, port=0, lifespan="on", log_level="error", ws="none")
        serving = uvicorn.Server(config)
        running = asyncio.ensure_future(serving.serve())
        while not serving.started:  # noqa: ASYNC110 - it has no event to wait for
            await asyncio.sleep(0.05)
        port = serving.servers[0].sockets[0].getsockname()[1]
        try:
            told = await asyncio.to_thread(_suite, agents, f"http://127.0.0.1:{port}/mcp", folder)
        finally:
            serving.should_exit = True
            await running
    return _judged(told)


def _suite(agents: Path, url: str, folder: Path) -> str:
    programs = [agents / "node24" / "node_modules" / ".bin", agents / "misc/node_modules/.bin"]
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    done = subprocess.run(
        ["conformance", "server", "--suite", "all", "--url", url, "-o", str(folder / "results")],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
        timeout=500,
        check=False,
    )
    return done.stdout + done.stderr


def _judged(told: str) -> int:
    found = {name: (int(good), int(bad)) for _, name, good, bad in _LINE.findall(told)}
    if not found:
        print(told)
        return 1
    failed = {name for name, (_, bad) in found.items() if bad}
    for name, (good, bad) in sorted(found.items()):
        why = f" (wants {NEEDS[name]})" if name in NEEDS and bad else ""
        word = "failed" if bad else "passed" if good else "nothing checked"
        print(f"{word:15} {name}: {good} passed, {bad} failed{why}")
    surprising = sorted(failed - NEEDS.keys())
    stale = sorted(name for name in NEEDS if name in found and name not in failed)
    passed = sum(bool(good and not bad) for good, bad in found.values())
    print(
        f"{passed} of {len(found)} scenarios pass; {len(failed & NEEDS.keys())} want another server"
    )
    if surprising:
        print(f"failed, and should not: {', '.join(surprising)}")
    if stale:
        print(f"passed, although listed as wanting another server: {', '.join(stale)}")
    return 1 if surprising else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=Path, default=Path(".ci/agents"))
    given = parser.parse_args()
    os.environ.setdefault("RECOLLECT_RECALL__EMBEDDER", "none")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RECOLLECT_HOME"] = folder
        return asyncio.run(run(given.agents, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
