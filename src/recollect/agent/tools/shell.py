"""The tool `bash`: one command in the workspace, bounded in time and in what it answers.

Always holds: at its end, at its deadline and when the turn is aborted the command's process group
is killed, and on Linux every process of this user that still carries its environment, also one
that began a session of its own (`setsid`, a daemon) and so is in no group that could be killed.
What another service starts on its behalf is out of reach. How far a command is trusted is the
scope's `ShellRule`: as far as its user, inside bubblewrap, when a person allows it, or not at all.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.agent.durably import durably
from recollect.agent.tools.confine import ToolScope
from recollect.agent.tools.outcome import (
    MAX_BYTES,
    Tool,
    ToolOutcome,
    failed,
    number_given,
    schema,
    text_given,
    whole_lines,
)

# Processes that a command left running, found by a mark that they inherit


NAME = "RECOLLECT_CALL"
_ROUNDS = 5
"""What is killed may have begun another process just before."""
_PROCESSES = Path("/proc")
_SEPARATOR = ":"


def new_mark() -> str:
    """A mark that no other call has."""
    return secrets.token_hex(8)


def environment(mark: str) -> dict[str, str]:
    """Ours with the mark; an agent that a command started keeps the marks of that command."""
    marks = [text for text in (os.environ.get(NAME), mark) if text]
    return {**os.environ, NAME: _SEPARATOR.join(marks)}


def kill_survivors(mark: str) -> int:
    """End every process that carries the mark; how many there were."""
    killed = 0
    for _ in range(_ROUNDS):
        found = _marked(mark.encode())
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
                killed += 1
            except (ProcessLookupError, PermissionError):
                continue
        if not found:
            break
    return killed


def _marked(mark: bytes) -> list[int]:
    try:
        numbers = [int(name) for name in os.listdir(_PROCESSES) if name.isdigit()]  # noqa: PTH208
    except OSError:  # no such folder: not Linux
        return []
    return [pid for pid in numbers if pid != os.getpid() and mark in _marks(pid)]


def _marks(pid: int) -> list[bytes]:
    """None for a process that has ended, and for one of another user."""
    try:
        held = (_PROCESSES / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
    ours = f"{NAME}=".encode()
    values = [raw.removeprefix(ours) for raw in held if raw.startswith(ours)]
    return [mark for value in values for mark in value.split(_SEPARATOR.encode())]


DEFAULT_SECONDS = 120.0
MAX_SECONDS = 3600
HEAD_BYTES = 16 * 1024
TAIL_BYTES = 32 * 1024
"""What is shown of a long output: its beginning, and more of its end, where errors stand."""
_LAST_WORDS_SECONDS = 0.5
"""How long output is still read when the command has ended but something holds its pipe."""
_READ_BYTES = 65536


@dataclass(slots=True)
class _Output:
    """What a command printed: head, tail, and as much of it as may be kept."""

    keeps: bool
    """Somebody wants the whole of it."""
    head: bytearray = field(default_factory=bytearray, repr=False)
    tail: bytearray = field(default_factory=bytearray, repr=False)
    whole: bytearray = field(default_factory=bytearray, repr=False)
    size: int = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        if self.keeps:
            self.whole += data[: MAX_BYTES - len(self.whole)]
        room = HEAD_BYTES - len(self.head)
        self.head += data[:room]
        self.tail += data[max(0, room) :]
        del self.tail[: max(0, len(self.tail) - TAIL_BYTES)]

    @property
    def left_out(self) -> int:
        """How many bytes are not shown."""
        return self.size - len(self.head) - len(self.tail)

    def kept(self) -> bytes:
        """What may be kept of it, in whole lines."""
        data = bytes(self.whole)
        return data if len(data) == self.size else whole_lines(data)

    def shown(self, where: str) -> str:
        if not self.left_out:
            return bytes(self.head + self.tail).decode("utf-8", "replace")
        notice = f"\n[… {self.left_out} bytes left out; {where} …]\n"
        head = bytes(self.head).decode("utf-8", "replace")
        return head + notice + bytes(self.tail).decode("utf-8", "replace")


def bash_tool(scope: ToolScope, *, seconds: float = DEFAULT_SECONDS) -> Tool:
    """The tool, bound to a workspace."""

    async def run(arguments: Mapping[str, Any]) -> ToolOutcome:
        command = text_given(arguments, "command")
        if not command or "\0" in command:
            return failed("`command` is missing; give one command for bash.")
        if scope.read_only:
            return failed("The workspace is read-only; no commands are run in it.")
        if refusal := await _refusal(command, scope):
            return failed(refusal)
        asked = number_given(arguments, "timeout")
        limit = min(asked, MAX_SECONDS) if asked and asked > 0 else seconds
        return await _run(command, scope, limit)

    return Tool(
        name="bash",
        description=(
            "Run a command with bash in the workspace and see what it prints, stdout and stderr "
            f"together. It is stopped after {seconds:g} seconds unless timeout says otherwise. "
            "Nothing keeps running in the background." + _CONFINED[scope.shell.mode == "confined"]
        ),
        parameters=schema(
            ("command",),
            command={"type": "string", "description": "The command"},
            timeout={"type": "integer", "description": "Seconds after which it is stopped"},
        ),
        run=run,
    )


_CONFINED = {False: "", True: " It can write in the workspace and in /tmp, and read the system."}
NOBODY_ASKED = (
    "Not run: commands cannot be confined on this machine, and nobody is here to allow one. Do it "
    "with the other tools, or tell the user what to run."
)
NOT_ALLOWED = "Not run: the user did not allow this command. Ask what to do instead."
SHELL_OFF = "Not run: commands are turned off. Do it with the other tools."


async def _refusal(command: str, scope: ToolScope) -> str:
    """Why a command is not run; empty where it is."""
    rule = scope.shell
    if rule.mode == "off":
        return SHELL_OFF
    if rule.mode != "asked":
        return ""
    if rule.confirm is None:
        return NOBODY_ASKED
    return "" if await rule.confirm(command) else NOT_ALLOWED


async def _run(command: str, scope: ToolScope, seconds: float) -> ToolOutcome:
    output = _Output(keeps=scope.outputs is not None)
    mark = new_mark()
    # A pipe of our own: asyncio's would make waiting for the command wait for whoever holds it.
    ours, theirs = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *scope.shell.command(command, scope), cwd=scope.root, stdin=DEVNULL,
            stdout=theirs, stderr=theirs, start_new_session=True,
            env=scope.shell.environment(environment(mark), NAME),
        )  # fmt: skip
    except OSError as error:
        os.close(ours)
        return failed(f"bash cannot be started: {error.strerror or type(error).__name__}.")
    except asyncio.CancelledError:  # it may have begun all the same
        os.close(ours)
        await durably(kill_survivors, mark)
        raise
    finally:
        os.close(theirs)
    late = False
    ended = _listen(ours, output)
    try:
        await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        late = True
    finally:  # also when the turn is aborted
        try:
            await _stop(process, mark, ended)
        finally:
            asyncio.get_running_loop().remove_reader(ours)
            ended.cancel()
            os.close(ours)
    return await _outcome(output, scope, process.returncode, seconds if late else None)


async def _stop(process: Process, mark: str, ended: asyncio.Future[None]) -> None:
    """Kill what is left of the command, and take in its last words."""
    _kill_group(process)
    await durably(kill_survivors, mark)
    await asyncio.wait({ended}, timeout=_LAST_WORDS_SECONDS)
    await process.wait()


def _listen(pipe: int, output: _Output) -> asyncio.Future[None]:
    """Take in what is printed; the future is done when nobody can print any more."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    os.set_blocking(pipe, False)

    def readable() -> None:
        try:
            data = os.read(pipe, _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            output.add(data)
            return
        loop.remove_reader(pipe)
        if not ended.done():
            ended.set_result(None)

    loop.add_reader(pipe, readable)
    return ended


def _kill_group(process: Process) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)  # the session's leader names its group
    except (ProcessLookupError, PermissionError):
        return


async def _outcome(
    output: _Output, scope: ToolScope, code: int | None, late_after: float | None
) -> ToolOutcome:
    where, path = await _kept(output, scope)
    lines = [output.shown(where).rstrip("\n") or "(no output)"]
    if late_after is not None:
        lines.append(f"[stopped after {late_after:g} seconds; ask for a longer timeout if needed]")
    elif code:
        lines.append(f"[exit code {code}]")
    details = {"exitCode": code, **({"fullOutputPath": path} if path else {})}
    return ToolOutcome(
        text="\n".join(lines), is_error=bool(code) or late_after is not None, details=details
    )


async def _kept(output: _Output, scope: ToolScope) -> tuple[str, str | None]:
    """Where the whole of a long output is, in words and as a path."""
    again = "to see them, run it again with its output in a file"
    if scope.outputs is None or not output.left_out:
        return again, None
    data, path = output.kept(), scope.outputs.place()
    try:
        await durably(scope.outputs.keep, path, data)
    except OSError as error:
        why = error.strerror or type(error).__name__
        return f"they could not be kept ({why}); {again}", None
    except asyncio.CancelledError:  # nobody will ever be told of it
        path.unlink(missing_ok=True)
        raise
    if len(data) == output.size:
        return f"all of the output is in {path}", str(path)
    return f"its first {len(data)} bytes are in {path}", str(path)
