"""The files of `examples/`, run as they are against a scripted model over real HTTP."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.harness.model_server import Asked, ModelServer, Step

from recollect.adapters.wiring import open_store
from recollect.testing.scripted_model import Says

EXAMPLES = Path(__file__).parents[2] / "examples"
SAID = ["The red crane stands at quay nine.", "Where does the crane stand?"]


def answers(asked: Asked) -> Step:
    text = asked.content.decode()
    return Says(text="At quay nine." if SAID[0] in text and SAID[1] in text else "Noted.")


def test_the_examples_run(tmp_path: Path) -> None:
    """One after another in a process of their own: frameworks leave their clients open."""
    pytest.importorskip("langchain")
    files = sorted(EXAMPLES.glob("*.py"))
    assert len(files) == 6
    code = (
        f"import runpy\nfor file in {[str(file) for file in files]}:\n"
        "    print('#', file)\n    runpy.run_path(file, run_name='__main__')\n"
    )
    with ModelServer(answers) as server:
        env = {
            **os.environ,
            "RECOLLECT_HOME": str(tmp_path),
            "RECOLLECT_RECALL__EMBEDDER": "none",
            "ANTHROPIC_BASE_URL": server.url,
            "OPENAI_BASE_URL": f"{server.url}/v1",
            "ANTHROPIC_API_KEY": "k",
            "OPENAI_API_KEY": "k",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
        }
        command = [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", code, *SAID]
        done = subprocess.run(
            command, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=200
        )
        assert done.returncode == 0, done.stderr
        assert len(server.asked) == 10, "two requests of each but the store"
    for told in done.stdout.split("# ")[1:]:
        name, *printed = told.splitlines()
        if "langgraph_store" in name:
            assert printed == [f"{SAID[0]} (known: [])", f"{SAID[1]} (known: ['{SAID[0]}'])"]
        else:
            assert printed == ["Noted.", "At quay nine."], name
    assert "deprecated" not in done.stderr, "an example names a model that goes soon"
    (file,) = tmp_path.rglob("*.db")
    assert asyncio.run(sessions(file)) == {
        "anthropic", "openai", "langchain", "openai-agents", "pydantic-ai", "langgraph:users.ada",
    }  # fmt: skip


async def sessions(file: Path) -> set[str]:
    store = await open_store(str(file), space="examples")
    names = {one.session for one in await store.sessions()}
    await store.close()
    return names
