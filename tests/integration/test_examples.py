"""The files of `examples/`, run as they are: one program per way in, against a scripted model."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.harness.model_server import Asked, ModelServer, Step
from tests.integration.service.nodes import Node, add_tenant
from tools.clients.lab import GatewayProcess

from recollect.system.durable import own_secret
from recollect.testing.scripted_model import Says
from recollect_bench.postgres_server import PostgresServer

EXAMPLES = Path(__file__).parents[2] / "examples"
SAID = ["The red crane stands at quay nine.", "Where does the crane stand?"]
WAYS = {"gateway_client", "langchain_agent", "mcp_client", "python_client", "service_client"}


def answers(asked: Asked) -> Step:
    text = asked.content.decode()
    return Says(text="At quay nine." if SAID[0] in text and SAID[1] in text else "Noted.")


def test_the_examples_run(tmp_path: Path, server: PostgresServer) -> None:
    pytest.importorskip("langchain")
    files = sorted(EXAMPLES.glob("*.py"))
    assert {file.stem for file in files} == WAYS
    assert all(len(file.read_text().splitlines()) <= 60 for file in files)
    database = asyncio.run(server.migrated_database())
    _, key = add_tenant(database, "acme")
    with ModelServer(answers) as provider, Node(database) as node:
        gateway = GatewayProcess(tmp_path / "gateway", provider.url)
        env = {
            **{key: text for key, text in os.environ.items() if key != "RECOLLECT_HOME"},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(tmp_path),  # MCP clients pass it on, and no variable of ours
            "RECOLLECT_RECALL__EMBEDDER": "none",
            "ANTHROPIC_BASE_URL": provider.url,
            "OPENAI_BASE_URL": f"{provider.url}/v1",
            "ANTHROPIC_API_KEY": "k",
            "OPENAI_API_KEY": "k",
            "GATEWAY_URL": gateway.url.partition("/~")[0],
            "RECOLLECT_GATEWAY_TOKEN": own_secret(gateway.home / "gateway" / "token"),
            "SERVICE_URL": node.url,
            "RECOLLECT_KEY": key,
        }
        try:
            for file in files:
                done = subprocess.run(
                    [sys.executable, "-W", "error::DeprecationWarning:__main__", file, *SAID],
                    capture_output=True,
                    text=True,
                    env=env,
                    cwd=tmp_path,
                    timeout=100,
                )
                assert done.returncode == 0, done.stderr
                assert "deprecated" not in done.stderr, "an example names a model that goes soon"
                found = SAID[0] in done.stdout if file.stem == "mcp_client" else False
                assert found or done.stdout.splitlines() == ["Noted.", "At quay nine."], file.stem
        finally:
            gateway.stop()
