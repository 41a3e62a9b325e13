"""Node's view of a session file, to compare ours with."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from recollect.core.formats.json_text import stringify
from recollect.core.formats.pi_session import PiContext, PiSession

NODE = Path(__file__).parents[2] / "node"


def session_bytes(session: PiSession) -> bytes:
    """The session as a file: each line as it stands, or as migration spelled it."""
    lines = [session.header.line] if session.header is not None else []
    lines += [entry.line for entry in session.entries]
    return b"".join(line + b"\n" for line in lines)


def node(script: str, data: bytes) -> bytes:
    program = shutil.which("node")
    if program is None:
        pytest.skip("no Node here to compare with")
    done = subprocess.run(
        [program, str(NODE / script)], input=data, capture_output=True, check=True, timeout=60
    )
    return done.stdout


def node_reads(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(node("rebuild_pi_context.mjs", data))
    return found


def assert_node_agrees(data: bytes, context: PiContext) -> None:
    """Every line is spelled as JavaScript would, and the model is shown the same."""
    theirs = node_reads(data)
    assert theirs["respelled"] == []
    assert [stringify(m) for m in theirs["shown"]] == [stringify(m) for m in context.messages]
