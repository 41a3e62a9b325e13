"""What all tests share: hypothesis profiles, the evaluation data, and no network."""

import asyncio
import inspect
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.harness.waiting import PATIENCE_SECONDS
from tests.sizes import at_size

from recollect.core.engine import Engine
from recollect.system.config.settings import Recall, StoreSettings, Turn
from recollect_bench.postgres_server import PostgresServer

# before any test imports it: its assertions show their values
pytest.register_assert_rewrite("tests.store_contract")

ROOT = Path(__file__).parent
STARTED = time.monotonic()
DATA = Path(os.environ.setdefault("RECOLLECT_DATA", str(ROOT.parent / "shared" / "data")))

PATIENT: dict[Any, dict[str, float]] = {
    Recall: {"deadline_seconds": 20.0},
    StoreSettings: {"read_seconds": 30.0, "write_seconds": 30.0},
    Turn: {"deadline_seconds": 60.0},
}

settings.register_profile(
    "default",
    deadline=None,  # two cores shared with other suites: time is asserted where it matters
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.register_profile(
    "ci",
    settings.get_profile("default"),
    derandomize=True,  # the same conversations on every machine; `just soak` draws new ones
    max_examples=at_size(ci=30, full=100),  # where a test does not say how many
)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session")
def data() -> Path:
    """The evaluation data; a test that needs it skips, saying so, where it is absent."""
    if not DATA.is_dir():
        pytest.skip(f"no evaluation data at {DATA}: set RECOLLECT_DATA")
    return DATA


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """PostgreSQL 18, one a test process: a test takes a database of its own from it, and one that
    stops it or reads its files has a server of its own."""
    with PostgresServer(18) as running:
        yield running


_CONNECT = socket.socket.connect


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test reads or writes the memory of the person who runs it."""
    home = tmp_path_factory.getbasetemp() / f"home-{secrets.token_hex(6)}"
    monkeypatch.setenv("RECOLLECT_HOME", str(home))


def _deadlines() -> Iterator[tuple[Any, str, float, str]]:
    for group, deadlines in PATIENT.items():
        name = group.__name__.removesuffix("Settings").upper()
        for deadline, seconds in deadlines.items():
            yield group, deadline, seconds, f"RECOLLECT_{name}__{deadline.upper()}"


@pytest.fixture(scope="session", autouse=True)
def _patient_deadlines() -> Iterator[None]:
    """No default deadline ends work because the machine is slow; a test of one sets its own."""
    with pytest.MonkeyPatch.context() as patch:
        for group, deadline, seconds, variable in _deadlines():
            patch.setitem(group.__init__.__kwdefaults__, deadline, seconds)
            patch.setenv(variable, str(seconds))
        patch.setattr(Engine.settle, "__defaults__", (PATIENCE_SECONDS,))
        yield


@pytest.fixture
def usual_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the default deadlines that users have."""
    for group, deadline, _, variable in _deadlines():
        default = group.__dataclass_fields__[deadline].default
        monkeypatch.setitem(group.__init__.__kwdefaults__, deadline, default)
        monkeypatch.delenv(variable)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in these suites talks to anybody but servers of their own on this machine."""

    def local_only(self: socket.socket, address: Any) -> None:
        local = isinstance(address, str | bytes) or address[0] in {"127.0.0.1", "::1"}
        assert local, f"a test tried to reach the network: {address}"
        _CONNECT(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What could not be tested here; minutes of each suite: test time, summed over both cores."""
    from recollect.agent.tools.confine import bubblewrap_works

    if not bubblewrap_works(ROOT):
        warning = "bubblewrap is not here or not allowed: no test tried to break out of it"
        terminalreporter.write_line(f"WARNING: {warning}", red=True)
    if shutil.which("tmux") is None:
        warning = "tmux is not here: the chat was tried in a terminal of our own alone"
        terminalreporter.write_line(f"WARNING: {warning}", red=True)
    seconds: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                suite = "/".join(report.nodeid.split("/")[:2])
                seconds[suite] = seconds.get(suite, 0.0) + report.duration
    for suite, taken in sorted(seconds.items()):
        terminalreporter.write_line(f"suite {suite}: {taken / 60:.1f} min of test time")
    before = os.environ.get("CI_SECONDS_BEFORE")
    if before is not None:
        wall = float(before) + time.monotonic() - STARTED
        terminalreporter.write_line(f"CI in all: {wall / 60:.1f} min")
