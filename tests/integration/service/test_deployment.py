"""The files for containers, without containers: what they name exists, and their commands, run one
after the other on this machine with the secrets they take, make a service that answers."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
import yaml
from tests.harness.waiting import wait_until
from tests.meta.test_documented import wrong_in
from tests.sizes import at_size

from recollect.client import MemoryClient
from recollect.system.config import load_settings
from recollect.system.config.load import NOT_SETTINGS
from recollect_bench.postgres_server import PostgresServer

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
OURS = {name: one for name, one in COMPOSE["services"].items() if one["image"] == "recollect"}
PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
OWNER, APP, SECRET = "owner-9f3c1a", "app-77b1d0", "deployment-0c4e22"


def stages() -> list[list[str]]:
    """The instructions of each stage of the image, one a line."""
    whole = re.sub(r"\\\n\s*", " ", DOCKERFILE)
    lines = [line for line in whole.splitlines() if line and not line.startswith("#")]
    starts = [at for at, line in enumerate(lines) if line.startswith("FROM ")]
    return [lines[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]


def value(stage: list[str], instruction: str) -> str:
    (line,) = [line for line in stage if line.startswith(f"{instruction} ")]
    return line.removeprefix(f"{instruction} ")


def test_the_image_installs_extras_that_exist_and_runs_as_nobody_in_particular() -> None:
    build, pooler, image = stages()
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = value(build, "ARG").removeprefix("EXTRAS=").split(",")
    assert set(extras) <= set(declared["optional-dependencies"])
    assert "serve" in extras
    assert int(value(image, "USER")) >= 1_000
    assert value(pooler, "USER") == "nobody"
    assert "/healthz" in value(image, "HEALTHCHECK --interval=10s --timeout=4s --start-period=20s")
    for line in (*build, *pooler, *image):
        if line.startswith("COPY ") and "--from" not in line:
            for source in re.sub(r"--\S+ ", "", line).split()[1:-1]:
                assert (ROOT / source).exists(), source
    assert not wrong_in(" ".join(["recollect", *json.loads(value(image, "CMD"))]))


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_service_of_the_compose_file_is_a_command_and_settings_of_ours(name: str) -> None:
    service = OURS[name]
    assert not wrong_in(" ".join(["recollect", *service["command"]]))
    given = {key: filled(text) for key, text in service["environment"].items()}
    files = {key for key in given if key.endswith("_FILE")}
    script = (DEPLOY / "entrypoint.sh").read_text()
    for key in files:
        assert f" {key.removesuffix('_FILE')}" in script
        assert given[key].removeprefix("/run/secrets/") in service["secrets"]
    settings = {key: text for key, text in given.items() if key not in files}
    assert not set(settings) & NOT_SETTINGS
    load_settings(environment=settings, folder=None)  # refuses what is no setting
    assert set(service["secrets"]) <= set(COMPOSE["secrets"])


def test_the_example_names_every_variable_of_the_compose_file() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    wanted = {one["environment"] for one in COMPOSE["secrets"].values()}
    wanted |= set(re.findall(r"\$\{(\w+)", text))
    named = re.findall(r"^(\w+)=", (DEPLOY / "example.env").read_text(), re.MULTILINE)
    assert set(named) == wanted


def filled(text: str) -> str:
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


class Deployment:
    """The compose file's services as processes here."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.store = server.url("recollect", user="recollect_app")
        given = {"owner_password": OWNER, "app_password": APP, "deployment_secret": SECRET}
        for name, text in given.items():
            (folder / name).write_text(f"{text}\n")

    def environment(self, service: str) -> dict[str, str]:
        """Its variables, with this machine's places for those of containers."""
        here = {
            key: filled(text).replace("/run/secrets", str(self.folder)).replace("0.0.0.0", "::1")
            for key, text in OURS[service]["environment"].items()
        }
        here |= {"RECOLLECT_TELEMETRY__METRICS_PORT": "0"} if service != "init" else {}
        here |= {"RECOLLECT_TELEMETRY__METRICS_HOST": "127.0.0.1"} if service != "init" else {}
        here |= {"RECOLLECT_STORE__URL": self.store} if service != "init" else {}
        kept = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("PG", "RECOLLECT_"))
        }
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
        home = {"RECOLLECT_HOME": str(self.folder), "RECOLLECT_RECALL__EMBEDDER": "none"}
        return {**kept, **here, **home, "PATH": path}

    def command(self, service: str, *instead: str) -> list[str]:
        owner = self.server.url("recollect", user="recollect_owner")
        words = instead or OURS[service]["command"]
        here = [
            owner if word.startswith("postgresql://") else word.replace("0.0.0.0", "127.0.0.1")
            for word in (word.replace("/run/secrets", str(self.folder)) for word in words)
        ]
        port = ["--port", "0"] if here[0] == "serve" else []
        return ["sh", str(DEPLOY / "entrypoint.sh"), *here, *port]

    def run(self, service: str, *instead: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(service, *instead),
            env={**self.environment(service), **more},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    @contextmanager
    def started(self, *services: str) -> Iterator[list[dict[str, Any]]]:
        """Services that go on; the first line of each. They have to end in order."""
        with ExitStack() as ending:
            processes = [
                ending.enter_context(
                    subprocess.Popen(
                        self.command(service),
                        env={**self.environment(service), "RECOLLECT_SERVE__DRAIN_SECONDS": "0.1"},
                        stderr=subprocess.PIPE,
                        text=True,
                    )
                )
                for service in services
            ]
            try:
                yield [json.loads(said(process)) for process in processes]
            finally:
                for process in processes:
                    process.send_signal(signal.SIGTERM)
                rests = [process.communicate(timeout=30)[1] for process in processes]
            assert [process.returncode for process in processes] == [0] * len(services), rests
            for rest in rests:
                assert all(json.loads(line)["event"] for line in rest.splitlines())
                assert SECRET not in rest
                assert APP not in rest


def said(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    """A server that lets nobody of ours in without a password."""
    with PostgresServer(18) as server:
        with psycopg.connect(server.admin_url, autocommit=True) as admin:
            admin.execute(f"CREATE ROLE recollect_owner SUPERUSER LOGIN PASSWORD '{OWNER}'")
            admin.execute("CREATE DATABASE recollect OWNER recollect_owner")
            rules = server.data / "pg_hba.conf"
            asks = "local all recollect_owner,recollect_app scram-sha-256\n"
            rules.write_text(asks + rules.read_text())
            admin.execute("SELECT pg_reload_conf()")
        yield Deployment(server, tmp_path)


@contextmanager
def pooled(deployment: Deployment) -> Iterator[str]:
    """The URL through PgBouncer, started as the compose file starts it."""
    server = deployment.server
    folder = server.folder / "pgbouncer"
    folder.mkdir()
    (folder / "password").write_text(APP)
    port = free_port()
    who: dict[str, Any] = {}
    if server._user is not None:
        for path in (folder, folder / "password"):
            os.chown(path, server._user.pw_uid, server._user.pw_gid)
        who = {"user": server._user.pw_uid, "group": server._user.pw_gid, "extra_groups": []}
    shutil.copy(DEPLOY / "pgbouncer.sh", folder / "run.sh")  # its user may not reach the checkout
    given = COMPOSE["services"]["pgbouncer"]["environment"]
    given = {**given, "UPSTREAM": f"{server.folder}:5432", "PASSWORD_FILE": f"{folder}/password"}
    process = subprocess.Popen(
        ["sh", str(folder / "run.sh")],
        env={
            "PATH": f"{os.environ['PATH']}:/usr/sbin",
            "PGBOUNCER_FOLDER": str(folder),
            "LISTEN": "127.0.0.1",
            "PORT": str(port),
            **given,
        },
        cwd=folder,
        stderr=subprocess.DEVNULL,
        **who,
    )
    try:
        yield f"postgresql://recollect_app@127.0.0.1:{port}/recollect"
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("version", "prepares"), [("1.18.0", False), ("1.21.0", True), ("1.24.1", True)]
)
def test_pgbouncer_keeps_prepared_statements_if_its_version_can(
    tmp_path: Path, version: str, prepares: bool
) -> None:
    stand_in = tmp_path / "pgbouncer"
    stand_in.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "PgBouncer {version}"\ntrue\n')
    stand_in.chmod(0o755)
    (tmp_path / "password").write_text(APP)
    given = {"UPSTREAM": "db:5432", "DATABASE": "recollect", "ROLE": "recollect_app",
             "PASSWORD_FILE": str(tmp_path / "password"), "PGBOUNCER_FOLDER": str(tmp_path),
             "PATH": f"{tmp_path}:{os.environ['PATH']}"}  # fmt: skip
    subprocess.run(["sh", str(DEPLOY / "pgbouncer.sh")], env=given, check=True)
    told = (tmp_path / "pgbouncer.ini").read_text()
    assert ("\nmax_prepared_statements = 200\n" in told) == prepares


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> str:
    """What a node says of itself when it is ready."""
    ready = f"{url}/readyz"
    wait_until(lambda: httpx2.get(ready, trust_env=False, timeout=30).status_code == 200)
    return str(httpx2.get(ready, trust_env=False, timeout=30).json()["status"])


def test_the_commands_of_the_compose_file_make_a_service(deployment: Deployment) -> None:
    made = deployment.run("init")
    assert made.returncode == 0, made.stderr
    tenant = deployment.run("admin", "tenant", "create", "acme", "--json")
    assert tenant.returncode == 0, tenant.stderr
    if at_size(ci=False, full=True):
        refused = deployment.run("admin", "tenant", "list", PGPASSWORD="wrong", PGPASSWORD_FILE="")
        assert refused.returncode == 2
        assert "password" in refused.stderr
    key = json.loads(deployment.run("admin", "key", "create", "acme", "--json").stdout)["key"]
    with ExitStack() as running:
        if PGBOUNCER is not None:
            deployment.store = running.enter_context(pooled(deployment))
        nodes = at_size(ci=["node-1"], full=["node-1", "node-2"])
        lines = running.enter_context(deployment.started(*nodes, "worker"))
        urls = [each["address"] for each in lines[:-1]]
        ports = [each["metrics_port"] for each in lines]
        assert {answers(url) for url in urls} == {"ok"}
        request = {
            "model": "claude-sonnet-4-5",
            "max_tokens": 100,
            "messages": [{"role": "user", "content": "The launch word is heron."}],
        }
        with MemoryClient(urls[0], key) as client:
            assert client.prepare("user-17", "chat-3", request).archived == "store"
        with MemoryClient(urls[-1], key) as client:  # any node knows it
            found = client.search("user-17", "What is the launch word?")
            assert found.passages[0].text == "The launch word is heron."
        for port in ports:
            page = httpx2.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=30).text
            assert "recollect_store_available 1.0" in page
