"""The document of the HTTP API, and how a node is started."""

import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.harness.fact_reader import reader_server
from tests.harness.waiting import wait_until
from tests.integration.service.nodes import Caller, Node, add_tenant
from tests.sizes import at_size
from tools.service_schema import FOLDER, run_schemathesis

from recollect.cli import main
from recollect.hosts.service.api import ROUTES, openapi
from recollect_bench.postgres_server import TestDatabase


def test_the_document_names_every_route() -> None:
    done = CliRunner().invoke(main, ["serve", "--openapi"])
    document = json.loads(done.stdout)
    assert document == openapi()
    assert document["openapi"] == "3.1.0"
    named = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert {(route.method, "/v1" + route.path) for route in ROUTES} <= named
    ids = [one["operationId"] for item in document["paths"].values() for one in item.values()]
    assert len(ids) == len(set(ids))
    for name, schema in document["components"]["schemas"].items():
        for field, told in schema.get("properties", {}).items():
            assert told.get("description"), f"{name}.{field}"
    for item in document["paths"].values():
        for one in item.values():
            assert all(parameter["description"] for parameter in one.get("parameters", ()))
            assert one["operationId"] in {"healthz", "readyz"} or "500" in one["responses"]
    assert "/mcp" in document["info"]["description"]
    text = json.dumps(document)
    for name in {one.split('"')[0] for one in text.split("#/components/schemas/")[1:]}:
        assert name in document["components"]["schemas"]


@pytest.mark.skipif(not FOLDER.is_dir(), reason="schemathesis is not here: .ci/run fetches it")
def test_requests_made_from_the_document_meet_no_500(
    caller: Caller, node: Node, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = run_schemathesis(node.url, caller.key, tmp_path, seconds=at_size(ci=12, full=120))
    told = capfd.readouterr().out
    assert done == 0, told
    assert "Server error" not in told
    assert re.search(r"[1-9]\d* generated", told), told


def test_a_service_without_a_server_says_what_to_set() -> None:
    done = CliRunner().invoke(main, ["serve"])
    assert done.exit_code == 2
    assert "store.url" in done.output
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        given = ["serve", "--store", "postgresql://nobody@127.0.0.1:9/none", "--port", port]
        code = "import sys; from recollect.cli import main; "
        code += "main(sys.argv[1:], standalone_mode=False)"
        refused = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", code, *given],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert f"port {port}" in refused.stderr
    assert "recollect.core.engine" not in refused.stderr  # said before the long imports


def test_jobs_wait_for_a_worker_unless_a_node_is_told_to_do_them(database: TestDatabase) -> None:
    key = add_tenant(database, "with jobs")[1]
    said = [{"role": "user", "content": "We decided that the staging port is 9443."}]
    with reader_server() as reader:
        given = {
            "jobs.in_process": True,
            "facts.idle_seconds": 0.05,
            "models.provider": "openai-chat",
            "models.extraction": "reader",
            "models.base_url": reader.url,
        }
        with Node(database, given=given) as node:
            caller = Caller(node.url, key)
            caller.post("/v1/spaces/jobs/sessions/one/ingest", {"messages": said})
            time.sleep(1.0)
            assert not caller.get("/v1/spaces/jobs/facts")["facts"]
        with Node(database, given=given, jobs=True) as node:
            caller = Caller(node.url, key)
            said.append({"role": "assistant", "content": "Noted."})
            caller.post("/v1/spaces/jobs/sessions/one/ingest", {"messages": said})
            wait_until(lambda: caller.get("/v1/spaces/jobs/facts")["facts"])
