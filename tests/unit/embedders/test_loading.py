"""Loading in threads: once, shared, remembered when it fails, waited for by nobody else."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tests.unit.embedders.onnx_files import WORDS, graph, write_model

from recollect.adapters.embedders.local import RETRY_SECONDS, LoadedEmbedder, embed_in_chunks
from recollect.errors import EmbedderError


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


class Mine(LoadedEmbedder[int]):
    def __init__(self, attempts: Attempts) -> None:
        super().__init__("mine")
        self._load = attempts  # type: ignore[method-assign]


async def test_all_who_ask_share_one_load() -> None:
    attempts = Attempts()
    attempts.go_on.clear()
    loading = Mine(attempts)
    waiting = [asyncio.ensure_future(loading.model()) for _ in range(10)]
    await asyncio.sleep(0.02)
    assert not loading.ready
    attempts.go_on.set()
    assert await asyncio.gather(*waiting) == [1] * 10
    assert loading.ready
    assert await loading.model() == 1  # in another event loop too


async def test_a_failed_load_is_told_to_everyone_and_tried_again_only_later() -> None:
    attempts = Attempts(failing=OSError("the disk is gone"))
    loading = Mine(attempts)

    async def ask() -> int:
        return await loading.model()

    for _ in range(3):
        with pytest.raises(EmbedderError, match=r"mine could not be loaded.*OSError.*disk is gone"):
            await ask()
    assert not loading.ready
    assert attempts.made == 1
    loading._failed_at -= RETRY_SECONDS - 10
    with pytest.raises(EmbedderError):
        await ask()
    assert attempts.made == 1
    loading._failed_at -= 10
    attempts.failing = None
    assert await ask() == 2
    assert loading.ready


def test_a_program_ends_although_a_load_hangs() -> None:
    program = (
        "import asyncio, threading\n"
        "from recollect.adapters.embedders.local import LoadedEmbedder\n"
        "class Hanging(LoadedEmbedder):\n"
        "    def _load(self):\n"
        "        threading.Event().wait()\n"
        "async def run():\n"
        "    loading = Hanging('hanging')\n"
        "    try:\n"
        "        await asyncio.wait_for(loading.model(), 0.05)\n"
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
        "graph = asyncio.run(embedder.model())\n"
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


@pytest.mark.parametrize("inline_chars", [0, 100])
async def test_a_failure_while_embedding_never_quotes_the_text(inline_chars: int) -> None:
    def fail(texts: Sequence[str]) -> Sequence[bytes]:
        raise ValueError("cannot embed 'my secret'")

    with pytest.raises(EmbedderError, match=r"^mine failed \(ValueError\)$"):
        await embed_in_chunks(fail, ["mine"], size=1, name="mine", inline_chars=inline_chars)
