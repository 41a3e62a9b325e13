"""The tool `bash`: runs one command in the workspace, with limits on time and output.

The command's process group is killed when the command ends, at its deadline, and on abort. The
scope's `ShellRule` decides whether and where a command may run."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from recollect.agent.tools.confine import (
    Tool,
    ToolOutcome,
    ToolScope,
    number_argument,
    schema,
    text_argument,
    tool_failure,
)

# Not measured: most builds and test runs end within two minutes; a call may ask for up to an hour.
DEFAULT_SECONDS = 120.0
MAX_SECONDS = 3600
# Not measured: together about as much as one call of `read` returns.
HEAD_BYTES = 16 * 1024
TAIL_BYTES = 32 * 1024
"""A long output is shortened to its start and a larger part of its end, where errors are."""
_DRAIN_SECONDS = 0.5
"""How long to read output after the command ended, if another process has its pipe open."""
# The capacity of a pipe in Linux.
_READ_BYTES = 65536


@dataclass(slots=True)
class _Output:
    head: bytearray = field(default_factory=bytearray, repr=False)
    tail: bytearray = field(default_factory=bytearray, repr=False)
    size: int = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        space_left = HEAD_BYTES - len(self.head)
        self.head += data[:space_left]
        self.tail += data[max(0, space_left) :]
        del self.tail[: max(0, len(self.tail) - TAIL_BYTES)]

    def text(self) -> str:
        left_out = self.size - len(self.head) - len(self.tail)
        if not left_out:
            return bytes(self.head + self.tail).decode("utf-8", "replace")
        notice = (
            f"\n[… {left_out} bytes left out; to see them, run it again with its output in a "
            "file …]\n"
        )
        head = bytes(self.head).decode("utf-8", "replace")
        return head + notice + bytes(self.tail).decode("utf-8", "replace")


def bash_tool(scope: ToolScope) -> Tool:
    async def run(arguments: Mapping[str, Any]) -> ToolOutcome:
        command = text_argument(arguments, "command")
        if not command or "\0" in command:
            return tool_failure("`command` is missing; give one command for bash.")
        if scope.read_only:
            return tool_failure("The workspace is read-only; no commands are run in it.")
        if refusal := await _refusal(command, scope):
            return tool_failure(refusal)
        asked_seconds = number_argument(arguments, "timeout")
        has_limit = asked_seconds is not None and asked_seconds > 0
        limit = min(asked_seconds or 0, MAX_SECONDS) if has_limit else DEFAULT_SECONDS
        return await _run(command, scope, limit)

    return Tool(
        name="bash",
        description=(
            "Run a command with bash in the workspace and see what it prints, stdout and stderr "
            f"together. It is stopped after {DEFAULT_SECONDS:g} seconds unless timeout says "
            "otherwise. Nothing keeps running in the background."
            + _CONFINED[scope.shell.mode == "confined"]
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
    "Not run: commands cannot be confined on this machine, and no user is here to allow one. Do it "
    "with the other tools, or tell the user what to run."
)
NOT_ALLOWED = "Not run: the user did not allow this command. Ask what to do instead."
SHELL_OFF = "Not run: commands are turned off. Do it with the other tools."


async def _refusal(command: str, scope: ToolScope) -> str:
    rule = scope.shell
    if rule.mode == "off":
        return SHELL_OFF
    if rule.mode != "asked":
        return ""
    if rule.confirm is None:
        return NOBODY_ASKED
    return "" if await rule.confirm(command) else NOT_ALLOWED


async def _run(command: str, scope: ToolScope, seconds: float) -> ToolOutcome:
    output = _Output()
    # Use a separate pipe: asyncio's own would wait for every process that has the pipe open.
    read_end, write_end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *scope.shell.command(command, scope), cwd=scope.root, stdin=DEVNULL,
            stdout=write_end, stderr=write_end, start_new_session=True,
            env=scope.shell.environment(),
        )  # fmt: skip
    except OSError as error:
        os.close(read_end)
        return tool_failure(f"bash cannot be started: {error.strerror or type(error).__name__}.")
    except asyncio.CancelledError:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    late = False
    drained_future = _read_into(output, read_end)
    try:
        await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        late = True
    finally:  # end the processes even if the turn was aborted
        try:
            # The id of the process group is the process id of its first process.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.wait({drained_future}, timeout=_DRAIN_SECONDS)
            await process.wait()
        finally:
            asyncio.get_running_loop().remove_reader(read_end)
            drained_future.cancel()
            os.close(read_end)
    code = process.returncode
    lines = [output.text().rstrip("\n") or "(no output)"]
    if late:
        lines.append(f"[stopped after {seconds:g} seconds; ask for a longer timeout if needed]")
    elif code:
        lines.append(f"[exit code {code}]")
    return ToolOutcome(
        text="\n".join(lines), is_error=bool(code) or late, details={"exitCode": code}
    )


def _read_into(output: _Output, pipe: int) -> asyncio.Future[None]:
    """Read the pipe as output arrives. The future is done when no process can write any more."""
    loop = asyncio.get_running_loop()
    drained_future: asyncio.Future[None] = loop.create_future()
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
        if not drained_future.done():
            drained_future.set_result(None)

    loop.add_reader(pipe, readable)
    return drained_future
