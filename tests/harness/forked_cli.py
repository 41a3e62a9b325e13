"""`recollect` as a process of its own, without the second that starting Python takes.

A process that has the command line imported forks one child a call: its arguments, environment,
folder and streams are the caller's, and nothing of one call is in the next. It opens nothing
itself, since a fork would share it.
"""

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

MESSAGE_BYTES = 1 << 20
MODULES = (
    *("recollect.cli", "recollect.cli.sessions", "recollect.cli.memory", "recollect.core.engine"),
    *("recollect.core.facts.book", "recollect.adapters.stores.sqlite"),
    *("recollect.adapters.wiring.memory", "numpy", "rich.console", "rich.table"),
)
_forking: subprocess.Popen[bytes] | None = None
_line: socket.socket | None = None


def run_forked(
    arguments: Sequence[str], *, stdin: bytes, env: Mapping[str, str], cwd: Path, timeout: float
) -> subprocess.CompletedProcess[bytes]:
    """Run `recollect` with these arguments; as `subprocess.run` gives it."""
    line = _forker()
    order = {"arguments": list(arguments), "env": dict(env), "cwd": str(cwd)}
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(stdin)
        given.seek(0)
        handed = [given.fileno(), out.fileno(), err.fileno()]
        socket.send_fds(line, [json.dumps(order).encode()], handed)
        pid = int(line.recv(1024))
        line.settimeout(timeout)
        try:
            code = int(line.recv(1024))
        except TimeoutError:
            line.settimeout(None)
            os.kill(pid, signal.SIGKILL)
            line.recv(1024)
            raise subprocess.TimeoutExpired(list(arguments), timeout) from None
        line.settimeout(None)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(list(arguments), code, out.read(), err.read())


def _forker() -> socket.socket:
    """The process that forks, started at the first call and ended with this one."""
    global _forking, _line
    if _line is None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        root = Path(__file__).parents[2]
        _forking = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.forked_cli", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=root,
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        )
        theirs.close()
        assert ours.recv(1024) == b"ready"
        _line = ours
        atexit.register(ours.close)  # it ends when nobody is at the other end
    return _line


def _serve(line: socket.socket) -> None:
    while True:
        data, handed, _, _ = socket.recv_fds(line, MESSAGE_BYTES, 3)
        if not data:
            return
        pid = os.fork()
        if pid == 0:
            line.close()
            _be_child(json.loads(data), handed)
        for number in handed:
            os.close(number)
        line.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        line.send(str(os.waitstatus_to_exitcode(status)).encode())


def _be_child(order: dict[str, Any], handed: Sequence[int]) -> NoReturn:
    code = 1
    try:
        for number, stream in enumerate(handed):
            os.dup2(stream, number)
        os.environ.clear()
        os.environ.update(order["env"])
        os.chdir(order["cwd"])
        sys.stdin, sys.stdout, sys.stderr = (
            TextIOWrapper(os.fdopen(number, mode), encoding="utf-8", write_through=mode == "wb")
            for number, mode in enumerate(("rb", "wb", "wb"))
        )
        sys.argv = ["recollect", *order["arguments"]]
        for folder in order["env"].get("PYTHONPATH", "").split(os.pathsep):
            own = Path(folder, "sitecustomize.py")
            if folder and own.is_file():  # as Python runs it when it starts
                exec(own.read_text(), {})
        from recollect.cli import main

        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - the last frame of a process: told, then it ends
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _main() -> None:
    import importlib

    for module in MODULES:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as line:
        line.send(b"ready")
        _serve(line)


if __name__ == "__main__":
    _main()
