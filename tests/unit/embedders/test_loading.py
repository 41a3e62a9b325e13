"""Loading in threads: once, shared, remembered when it fails, waited for by nobody else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tests.unit.embedders.onnx_files import WORDS, graph, write_model

from recollect.adapters.embedders.local import (
    RETRY_SECONDS,
    Loading,
    aside,
    imported,
    package_folder,
)
from recollect.errors import EmbedderError, MissingExtra


class Attempts:
    """A load that counts how often it ran, and fails as long as it is told to."""

    def __init__(self, *, failing: BaseException | None = None) -> None:
        self.made = 0
        self.failing = failing
        self.go_on = threading.Event()
        self.go_on.set()

    def __call__(self) -> int:
        self.made += 1
        assert self.go_on.wait(30)
        if self.failing is not None:
            raise self.failing
        return self.made


def test_all_who_ask_share_one_load() -> None:
    attempts = Attempts()
    attempts.go_on.clear()
    loading = Loading(attempts, name="mine")

    async def run() -> list[int]:
        waiting = [asyncio.ensure_future(loading.value()) for _ in range(10)]
        await asyncio.sleep(0.02)
        assert not loading.ready
        attempts.go_on.set()
        return await asyncio.gather(*waiting)

    assert asyncio.run(run()) == [1] * 10
    assert loading.ready
    assert asyncio.run(loading.value()) == 1  # in another event loop too


def test_one_who_gives_up_waiting_does_not_end_the_load_for_the_others() -> None:
    attempts = Attempts()
    attempts.go_on.clear()
    loading = Loading(attempts, name="mine")

    async def run() -> int:
        patient = asyncio.ensure_future(loading.value())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loading.value(), 0.02)
        attempts.go_on.set()
        return await patient

    assert asyncio.run(run()) == 1
    assert attempts.made == 1


def test_a_failed_load_is_told_to_everyone_and_tried_again_only_later() -> None:
    seconds = [1000.0]
    attempts = Attempts(failing=OSError("the disk is gone"))
    loading = Loading(attempts, name="mine", now=lambda: seconds[0])

    async def ask() -> int:
        return await loading.value()

    for _ in range(3):
        with pytest.raises(EmbedderError, match=r"mine could not be loaded.*OSError.*disk is gone"):
            asyncio.run(ask())
    assert not loading.ready
    assert attempts.made == 1
    seconds[0] += RETRY_SECONDS - 1
    with pytest.raises(EmbedderError):
        asyncio.run(ask())
    assert attempts.made == 1
    seconds[0] += 1
    attempts.failing = None
    assert asyncio.run(ask()) == 2
    assert loading.ready


def test_an_error_of_ours_arrives_as_it_is() -> None:
    loading = Loading(Attempts(failing=MissingExtra(feature="it", extra="static")), name="mine")
    for _ in range(2):
        with pytest.raises(MissingExtra, match=r"recollect\[static\]"):
            asyncio.run(loading.value())


def test_a_load_that_hangs_holds_up_neither_loop_nor_others() -> None:
    hanging = Attempts()
    hanging.go_on.clear()
    loading, other = Loading(hanging, name="hanging"), Loading(Attempts(), name="other")

    async def run() -> int:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loading.value(), 0.05)
        return await other.value()

    began = time.monotonic()
    assert asyncio.run(run()) == 1
    assert time.monotonic() - began < 5
    assert not loading.ready
    hanging.go_on.set()


def test_a_program_ends_although_a_load_hangs() -> None:
    program = (
        "import asyncio, threading\n"
        "from recollect.adapters.embedders.local import Loading\n"
        "async def run():\n"
        "    loading = Loading(lambda: threading.Event().wait(), name='hanging')\n"
        "    try:\n"
        "        await asyncio.wait_for(loading.value(), 0.05)\n"
        "    except TimeoutError:\n"
        "        print('gave up')\n"
        "asyncio.run(run())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "gave up\n"
    assert done.stderr == ""


@pytest.mark.skipif(find_spec("onnxruntime") is None, reason="the extra onnx is not installed")
def test_a_program_that_ends_while_a_graph_runs_does_not_abort(tmp_path: Path) -> None:
    """A thread that comes back from C++ into an interpreter that is going would end it so."""
    table = np.random.default_rng(4).random((len(WORDS), 64))
    write_model(tmp_path, model=graph(table))
    program = (
        "import asyncio, sys, time\n"
        "from pathlib import Path\n"
        "from recollect.adapters.embedders.local import start\n"
        "from recollect.adapters.embedders.onnx import OnnxEmbedder\n"
        "embedder = OnnxEmbedder(Path(sys.argv[1]))\n"
        "graph = asyncio.run(embedder._loading.value())\n"
        "def work():\n"
        "    until = time.monotonic() + 0.5\n"
        "    while time.monotonic() < until:\n"
        "        graph._run([[2, 3, 4] * 80] * 32)\n"
        "    print('finished')\n"
        "for _ in range(4):\n"
        "    start(work, name='onnx')\n"
        "print('ends')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ends\n")
    assert done.stdout.count("finished") == 4
    assert done.stderr == ""


def test_nothing_is_begun_once_the_program_ends() -> None:
    """A loop in a thread of the host's would go on starting threads while we wait for them."""
    program = (
        "import asyncio, threading, time\n"
        "from recollect.adapters.embedders.local import aside\n"
        "async def run():\n"
        "    while True:\n"
        "        await aside(lambda: time.sleep(0.01), name='x', failing='x')\n"
        "def told():\n"
        "    try:\n"
        "        asyncio.run(run())\n"
        "    except Exception as error:\n"
        "        print(error, flush=True)\n"
        "threading.Thread(target=told, daemon=True).start()\n"
        "time.sleep(0.2)\n"
        "import recollect.adapters.embedders.local as module\n"
        "began = time.monotonic()\n"
        "module._await_end()\n"
        "assert time.monotonic() - began < module.END_SECONDS\n"
        "time.sleep(0.2)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "the program ends: nothing more is begun\n"


def test_a_failure_while_embedding_never_quotes_the_text() -> None:
    def fail() -> None:
        raise ValueError("cannot embed 'my secret'")

    with pytest.raises(EmbedderError, match=r"^mine failed \(ValueError\)$"):
        asyncio.run(aside(fail, name="mine", failing="mine failed"))


def test_a_package_is_found_without_importing_it() -> None:
    found = package_folder("this")
    assert found is not None
    assert "this" not in sys.modules
    assert package_folder("no_such_package_at_all") is None


def test_a_folder_of_that_name_is_no_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "onnxmodels").mkdir()
    assert package_folder("onnxmodels") is None


def test_a_missing_package_names_its_extra() -> None:
    with pytest.raises(MissingExtra, match=r"the thing needs .*recollect\[extra\]"):
        imported("no_such_package_at_all", feature="the thing", extra="extra")
