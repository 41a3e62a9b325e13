"""The TypeScript client: its types are those of the API now, and it talks to a live node."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.service.nodes import Node, add_tenant

from recollect.hosts.service.api import openapi
from recollect_bench.postgres_server import TestDatabase

ROOT = Path(__file__).parents[3]
CLIENT = ROOT / "clients" / "typescript"
PACKAGES = Path(os.environ.get("CLIENTS_FOLDER", ROOT / ".ci" / "agents")) / "openapi"
NODE = shutil.which("node")
OLDEST_NODE = (20, 3)

pytestmark = pytest.mark.skipif(
    NODE is None or not (PACKAGES / "node_modules" / "openapi-typescript").exists(),
    reason="no Node with openapi-typescript here: .ci/run fetches it",
)


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    assert NODE is not None
    return subprocess.run(
        [NODE, *command], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The client as JavaScript, next to the packages that it needs."""
    folder = tmp_path_factory.mktemp("client")
    shutil.copytree(CLIENT, folder, dirs_exist_ok=True)
    (folder / "node_modules").symlink_to(PACKAGES.resolve() / "node_modules")
    compiler = str(folder / "node_modules" / "typescript" / "bin" / "tsc")
    done = run(compiler, "-p", "tsconfig.json", "--outDir", "built", folder=folder)
    assert done.returncode == 0, done.stdout
    yield folder


def test_the_types_are_those_of_the_api(tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_text(json.dumps(openapi()))
    script = json.loads((CLIENT / "package.json").read_text())["scripts"]["generate"]
    options = [word for word in script.split() if word.startswith("--") and word != "--openapi"]
    program = PACKAGES / "node_modules" / "openapi-typescript" / "bin" / "cli.js"
    done = run(str(program), "openapi.json", "-o", "schema.d.ts", *options, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    made = (tmp_path / "schema.d.ts").read_text()
    told = "npm run generate in clients/typescript"
    assert made == (CLIENT / "src" / "schema.d.ts").read_text(), told


def test_a_typescript_program_uses_a_live_node(built: Path, database: TestDatabase) -> None:
    assert NODE is not None
    version = subprocess.run([NODE, "--version"], capture_output=True, text=True, check=True).stdout
    if tuple(map(int, version.lstrip("v").split(".")[:2])) < OLDEST_NODE:
        pytest.skip("the client needs a newer Node")
    _, key = add_tenant(database, "typescript")
    with Node(database) as node:
        done = run("built/test/live.js", node.url, f"{key}\n", folder=built)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["turn"] == 1
    assert found["request"]["messages"][0]["content"] == "The deploy key is under the mat."
    assert found["texts"] == ["The deploy key is under the mat."]
    assert found["spaces"] == ["a/b"]
    assert (found["status"], found["problem"]) == (404, "urn:recollect:problem:not-found")
