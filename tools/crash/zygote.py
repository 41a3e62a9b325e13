"""A small process that has everything imported and forks children on request.

Starting Python for every kill would cost more than the kill. Owns the children's lives: it is
the only one that kills and reaps them, so no pid is ever reused under the harness. It must
never open a store, a loop or a thread itself: a fork would share them. Always holds: when the
harness goes away, its children go too.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

MESSAGE_BYTES = 65_536


def serve(connection: socket.socket) -> None:
    """Answer orders until the other end goes away, then end every child."""
    alive: set[int] = set()
    while True:
        order, handed = _receive(connection)
        if order is None:
            break
        if order["do"] == "fork":
            answer: dict[str, Any] = {"pid": _fork(connection, order, handed[0])}
            alive.add(answer["pid"])
        elif order["do"] == "kill":
            os.kill(order["pid"], signal.SIGKILL)
            answer = {"status": _reap(order["pid"], alive)}
        else:
            answer = {"status": _reap(order["pid"], alive)}
        connection.send(json.dumps(answer).encode())
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


def _receive(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    try:
        data, handed, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 1)
    except ConnectionError:
        return None, []
    return (json.loads(data) if data else None), handed


def _reap(pid: int, alive: set[int]) -> int:
    _, status = os.waitpid(pid, 0)
    alive.discard(pid)
    return os.waitstatus_to_exitcode(status)


def _fork(connection: socket.socket, order: dict[str, Any], output: int) -> int:
    pid = os.fork()
    if pid == 0:
        connection.close()
        _be_child(order["module"], order["arguments"], output)
    os.close(output)
    return pid


def _be_child(module: str, arguments: Sequence[str], output: int) -> NoReturn:
    """Run a child's `main` with its standard output on the pipe, and never come back."""
    code = 1
    try:
        os.dup2(output, 1)
        os.close(output)
        code = importlib.import_module(module).main(arguments)
    except BaseException:  # noqa: BLE001 - the last frame of a process: told, then it ends
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main(arguments: Sequence[str]) -> None:
    """`zygote FD MODULE...`: import the modules, then serve on the socket."""
    for module in arguments[1:]:
        importlib.import_module(module)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Children then share these pages instead of copying them at their first collection.
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(arguments[0])) as connection:
        connection.send(b"{}")
        serve(connection)


if __name__ == "__main__":
    main(sys.argv[1:])
