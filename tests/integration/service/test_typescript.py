"""The TypeScript client: its types are those of the API now, and it talks to a live node."""

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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


def test_a_busy_server_is_asked_again_after_a_pause_but_never_for_a_second_key(built: Path) -> None:
    asked: list[tuple[str, float]] = []

    class Busy(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            asked.append((self.path, time.monotonic()))
            is_first = [path for path, _ in asked].count(self.path) == 1
            self.send_response(503 if is_first else 200)
            self.send_header("retry-after", "Thu, 19 Nov 2026 00:00:00 GMT")
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        done = run("built/test/retries.js", url, folder=built)
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [200, 503]
    (_, first), (_, second), _ = asked
    assert second - first >= 0.1
