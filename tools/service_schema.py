"""Requests that schemathesis makes from the OpenAPI document of the service: no 500.

`python -m tools.service_schema --seconds 120`; CI has schemathesis beside its environment,
else `pip install schemathesis` first. A node runs on a PostgreSQL of its own, with a tenant that
has every scope.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.integration.service.nodes import Node, add_tenant

from recollect_bench.postgres_server import PostgresServer

CHECKS: Final = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,ignored_auth"
)
SECONDS: Final = 120


FOLDER: Final = Path(__file__).parent.parent / ".ci" / "schemathesis"
"""Where CI puts it: beside the environment, since its plugin would load with every test."""
_RUN: Final = "from schemathesis.cli import schemathesis as run; run()"


def run_schemathesis(url: str, key: str, folder: Path, *, seconds: int, seed: int = 1) -> int:
    """Its own status, over the document of the node at `url`."""
    return subprocess.run(
        [
            *(sys.executable, "-c", _RUN, "run", f"{url}/openapi.json"),
            *("--header", f"Authorization: Bearer {key}", "--checks", CHECKS),
            *("--max-time", str(seconds), "--seed", str(seed)),
            *("--phases", "coverage,fuzzing", "--continue-on-failure"),
            *("--request-timeout", "30", "--no-color", "--suppress-health-check", "all"),
        ],
        cwd=folder,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")]),
        },
    ).returncode


def main(arguments: Sequence[str]) -> int:
    """Run it; its own status, or 2 where it is not installed."""
    parser = argparse.ArgumentParser(prog="python -m tools.service_schema")
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if not FOLDER.is_dir() and find_spec("schemathesis") is None:
        sys.stderr.write("no schemathesis: pip install schemathesis\n")
        return 2
    with PostgresServer(18) as server, tempfile.TemporaryDirectory() as folder:
        database = asyncio.run(server.migrated_database())
        _, key = add_tenant(database, "schema")
        with Node(database) as node:
            return run_schemathesis(
                node.url, key, Path(folder), seconds=options.seconds, seed=options.seed
            )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
