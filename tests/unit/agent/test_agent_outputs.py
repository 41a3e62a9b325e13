"""Long outputs of commands: kept masked beside the transcript, bounded, readable, and forgotten."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_harness import AgentHarness, of

from recollect.adapters.session import open_transcript, transcript_file
from recollect.adapters.session.files import outputs_folder
from recollect.adapters.session.forget_files import (
    OUTPUTS,
    FilesForgotten,
    FilesOrder,
    forget_in_files,
)
from recollect.agent.events import CallEnded
from recollect.agent.tools import outcome as outputs_module
from recollect.agent.tools import shell as bash_module
from recollect.agent.tools.confine import ToolScope
from recollect.agent.tools.files import read_tool, write_tool
from recollect.agent.tools.outcome import MAX_BYTES, Outputs, Tool, ToolOutcome
from recollect.agent.tools.shell import bash_tool
from recollect.core.values.upkeep import ForgetOrder
from recollect.system.config.settings import Redaction
from recollect.testing.scripted_model import Says, ScriptedCall, ScriptedModel

SECRET = "ghp_x7Kq9ZtR2mVb4Lw8Yc1Nf6Hd3Js5Pg0AeUiT"
LONG = f"seq 1 9000; echo token {SECRET}; seq 1 9000"
SPACE = "me"


@pytest.fixture(autouse=True)
def _nothing_is_left_in_tmp() -> Iterator[None]:
    def ours() -> set[Path]:
        return set(Path(tempfile.gettempdir()).glob("recollect-bash-*"))

    before = ours()
    yield
    assert ours() <= before


def ground(tmp_path: Path, **given: Any) -> ToolScope:
    root = tmp_path / "root"
    root.mkdir(exist_ok=True)
    return ToolScope(root=root, outputs=Outputs(folder=tmp_path / "one.outputs"), **given)


def use(tool: Tool, **given: Any) -> ToolOutcome:
    async def run() -> ToolOutcome:
        return await tool.run(given)

    return asyncio.run(run())


def test_a_long_output_is_kept_masked_for_its_owner_and_can_be_read(tmp_path: Path) -> None:
    here = ground(tmp_path)
    outcome = use(bash_tool(here), command=LONG)
    assert outcome.details is not None
    kept = Path(outcome.details["fullOutputPath"])
    assert str(kept) in outcome.text
    assert kept.parent == tmp_path / "one.outputs"
    assert (kept.parent.stat().st_mode & 0o777, kept.stat().st_mode & 0o777) == (0o700, 0o600)
    text = kept.read_text()
    assert SECRET not in text
    assert (text.count("\n9000\n"), text[:4]) == (2, "1\n2\n")
    assert use(read_tool(here), path=str(kept), offset=2, limit=1).text.startswith("2\n")
    assert use(write_tool(here), path=str(kept), content="mine").is_error
    other = tmp_path / "two.outputs"
    other.mkdir()
    (other / "a.log").write_text("theirs")
    for way in (other / "a.log", kept.parent / ".." / "two.outputs" / "a.log"):
        assert use(read_tool(here), path=str(way)).is_error
    (kept.parent / "link.log").symlink_to(other / "a.log")
    assert use(read_tool(here), path=str(kept.parent / "link.log")).is_error


def test_an_output_without_an_end_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_BYTES == 16 * 1024 * 1024
    limit = 1_000_000
    monkeypatch.setattr(bash_module, "MAX_BYTES", limit)
    here = ground(tmp_path)
    outcome = use(bash_tool(here), command=f"yes {'fog ' * 2000} | head -c {3 * limit}")
    [kept] = (tmp_path / "one.outputs").iterdir()
    assert 0.9 * limit < kept.stat().st_size <= limit
    assert f"its first {kept.stat().st_size} bytes are in" in outcome.text
    assert kept.read_bytes().endswith(b"\n")


def test_an_aborted_command_leaves_no_file(tmp_path: Path) -> None:
    here = ground(tmp_path)

    async def aborted() -> None:
        command = "seq 1 30000; touch printed; sleep 60"
        task = asyncio.ensure_future(_run(bash_tool(here), {"command": command}))
        while not (here.root / "printed").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(aborted())
    assert not (tmp_path / "one.outputs").exists()


async def _run(tool: Tool, given: dict[str, Any]) -> ToolOutcome:
    return await tool.run(given)


def test_where_nothing_can_be_kept_that_is_told(tmp_path: Path) -> None:
    (tmp_path / "one.outputs").write_text("a file is in the way")
    outcome = use(bash_tool(ground(tmp_path)), command=LONG)
    assert "could not be kept" in outcome.text
    assert outcome.text.endswith("9000")
    alone = use(bash_tool(ToolScope(root=tmp_path)), command=LONG)
    assert "bytes left out" in alone.text
    assert alone.details == {"exitCode": 0}


def test_a_key_is_masked_wherever_the_pieces_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs_module, "_PIECE_CHARS", 500)
    body = "\n".join(
        f"MIIEpAIBAAKCAQEA{number:04d}" + "q8Zt3LmX0vRb7KpWn2Yc" * 2 for number in range(9)
    )
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----\n"
    lines = "".join(f"line {number}\n" for number in range(55))
    kept = Outputs(folder=tmp_path / "one.outputs")
    path = kept.place()
    kept.keep(path, (lines + key + lines).encode() + b"\xff\n")
    data = path.read_bytes()
    assert b"MIIEpAIBAAKCAQEA" not in data
    assert data.count(b"line 54\n") == 2
    assert data.endswith(b"\xff\n")


def test_a_new_session_has_outputs_of_its_own_and_leaves_those_of_the_old(tmp_path: Path) -> None:
    def call(command: str) -> Says:
        return Says(calls=[ScriptedCall(id="c", name="bash", input={"command": command})])

    model = ScriptedModel([call(LONG), "seen", call(LONG), "seen again"])
    harness = AgentHarness(tmp_path, model)
    harness.say("go", "/new", "go")
    first, second = tmp_path / "session-1.outputs", tmp_path / "session-2.outputs"
    assert first.exists(), "its transcript names them, and it may go on"
    [kept] = second.iterdir()
    assert SECRET not in kept.read_text()
    model = ScriptedModel(
        [Says(calls=[ScriptedCall(id="r", name="read", input={"path": str(kept)})]), "read"]
    )
    harness.model = model
    [read] = of(harness.say("look"), CallEnded)
    assert read.text.startswith("1\n2\n")


def planted() -> dict[str, Path]:
    """Two sessions with an output each."""
    made: dict[str, Path] = {}
    for name, word in (("one", "zanzibarquokka"), ("two", "nothing")):
        path = transcript_file(SPACE, name)
        with open_transcript(path, session_id=name, redaction=Redaction()) as transcript:
            kept = Outputs(folder=outputs_folder(path))
            made[name] = kept.place()
            kept.keep(made[name], f"1\nall about {word}\n2\n".encode())
            shown = f"1\n[… 9 bytes left out; all of the output is in {made[name]} …]\n2"
            content = [{"type": "text", "text": shown}]
            transcript.append_message({"role": "user", "content": content, "timestamp": 1})
    return made


def forget(*, only_look: bool = False, **order: Any) -> FilesForgotten:
    said = order.pop("said", ())
    files = FilesOrder(order=ForgetOrder(at=1.0, **order), said=said, all_said=said)
    return forget_in_files(SPACE, files, only_look=only_look)


@pytest.mark.parametrize("way", ["matching", "sessions", "said", "left over"])
def test_forgetting_reaches_outputs(way: str) -> None:
    made = planted()
    order: dict[str, Any] = {"matching": "Zanzibarquokka"}
    if way == "said":
        order = {"said": (f"all of the output is in {made['one']}",)}
    elif way == "sessions":
        order = {"sessions": ("one",)}
    elif way == "left over":
        order = {"sessions": ("named-" + made["one"].parent.stem.removeprefix("named-"),)}
        transcript_file(SPACE, "one").unlink()
    assert forget(only_look=True, **order).counts[OUTPUTS] == 1
    assert made["one"].exists()
    assert forget(**order).counts[OUTPUTS] == 1
    assert not made["one"].exists()
    assert made["two"].exists()
    assert made["one"].parent.exists() is (way in ("matching", "said"))


def test_outputs_go_by_their_age() -> None:
    made = planted()
    later = made["one"].stat().st_mtime + 60
    assert forget(said_before=later - 3600).counts[OUTPUTS] == 0
    assert forget(said_before=later).counts[OUTPUTS] == 2


@pytest.mark.parametrize("deep", [False, True])
def test_a_process_that_left_its_group_does_not_outlive_the_call(
    tmp_path: Path, deep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_CALL", "of-an-agent-around-us")
    command = (
        "setsid bash -c 'echo $$ > child; exec sleep 60' > /dev/null 2>&1 & "
        "while [ ! -s child ]; do sleep 0.02; done"
    )
    given = f"bash -c {shlex.quote(command)}" if deep else command
    use(bash_tool(ground(tmp_path)), command=given)
    pid = int((tmp_path / "root" / "child").read_text())
    try:
        assert _is_gone(pid)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _is_gone(pid: int) -> bool:
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False
