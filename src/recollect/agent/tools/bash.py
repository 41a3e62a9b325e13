"""The tool `bash`: one command in the workspace, bounded in time and in what it answers.

Always holds: no process of a command outlives its call: the whole group is killed at its end,
at its deadline and when the turn is aborted. A command is not confined to the workspace; who
cannot trust the model with the machine runs the agent in a container.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recollect.agent.tools.confine import Ground
from recollect.agent.tools.outcome import (
    Tool,
    ToolOutcome,
    failed,
    number_given,
    schema,
    text_given,
)

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
    """What a command printed: head and tail in memory, all of it in a file once it is long."""

    head: bytearray = field(default_factory=bytearray, repr=False)
    tail: bytearray = field(default_factory=bytearray, repr=False)
    size: int = 0
    file: Any = field(default=None, repr=False)

    def add(self, data: bytes) -> None:
        whole = bytes(self.head) + bytes(self.tail) if self.file is None else b""
        self.size += len(data)
        if self.file is None and self.size > HEAD_BYTES + TAIL_BYTES:
            self.file = tempfile.NamedTemporaryFile(  # noqa: SIM115 - it outlives the call
                prefix="recollect-bash-", suffix=".log", delete=False
            )
            self.file.write(whole)
        if self.file is not None:
            self.file.write(data)
        room = HEAD_BYTES - len(self.head)
        self.head += data[:room]
        self.tail += data[max(0, room) :]
        del self.tail[: max(0, len(self.tail) - TAIL_BYTES)]

    def close(self) -> str | None:
        """Where all of it is; None where it is shown whole."""
        if self.file is None:
            return None
        self.file.close()
        return str(self.file.name)

    def shown(self, kept: str | None) -> str:
        if kept is None:
            return bytes(self.head + self.tail).decode("utf-8", "replace")
        left_out = self.size - len(self.head) - len(self.tail)
        notice = f"\n[… {left_out} bytes left out; all of the output is in {kept} …]\n"
        head = bytes(self.head).decode("utf-8", "replace")
        return head + notice + bytes(self.tail).decode("utf-8", "replace")


def bash_tool(ground: Ground, *, seconds: float = DEFAULT_SECONDS) -> Tool:
    """The tool, bound to a workspace."""

    async def run(arguments: Mapping[str, Any]) -> ToolOutcome:
        command = text_given(arguments, "command")
        if not command or "\0" in command:
            return failed("`command` is missing; give one command for bash.")
        if ground.read_only:
            return failed("The workspace is read-only; no commands are run in it.")
        asked = number_given(arguments, "timeout")
        limit = min(asked, MAX_SECONDS) if asked and asked > 0 else seconds
        return await _run(command, ground, limit)

    return Tool(
        name="bash",
        description=(
            "Run a command with bash in the workspace and see what it prints, stdout and stderr "
            f"together. It is stopped after {seconds:g} seconds unless timeout says otherwise. "
            "Nothing keeps running in the background."
        ),
        parameters=schema(
            ("command",),
            command={"type": "string", "description": "The command"},
            timeout={"type": "integer", "description": "Seconds after which it is stopped"},
        ),
        run=run,
    )


async def _run(command: str, ground: Ground, seconds: float) -> ToolOutcome:
    output = _Output()
    # A pipe of our own: asyncio's would make waiting for the command wait for whoever holds it.
    ours, theirs = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", command, cwd=ground.root, stdin=DEVNULL, stdout=theirs, stderr=theirs,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        os.close(ours)
        return failed(f"bash cannot be started: {error.strerror or type(error).__name__}.")
    finally:
        os.close(theirs)
    late = False
    ended = _listen(ours, output)
    try:
        await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        late = True
    finally:  # also when the turn is aborted
        _kill_group(process)
        await asyncio.wait({ended}, timeout=_LAST_WORDS_SECONDS)
        asyncio.get_running_loop().remove_reader(ours)
        ended.cancel()
        os.close(ours)
        await process.wait()
        kept = output.close()
    return _outcome(output, kept, process.returncode, seconds if late else None)


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


def _outcome(
    output: _Output, kept: str | None, code: int | None, late_after: float | None
) -> ToolOutcome:
    lines = [output.shown(kept).rstrip("\n") or "(no output)"]
    if late_after is not None:
        lines.append(f"[stopped after {late_after:g} seconds; ask for a longer timeout if needed]")
    elif code:
        lines.append(f"[exit code {code}]")
    details = {"exitCode": code, **({"fullOutputPath": kept} if kept else {})}
    return ToolOutcome(
        text="\n".join(lines), is_error=bool(code) or late_after is not None, details=details
    )
