"""A memory on disk that an MCP server serves, and the processes around it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from recollect.core.compaction.ask import REQUIRED_HEADINGS

pytest.importorskip("mcp")


DECIDED = "We decided that invoices are printed by the Kestrel service on port 4711."
FOREIGN = "The neighbour's vault stands in room 99-88-77, nobody else may know it."
SPACE, SESSION = "harbour", "work/1 of »quay«"
TOOLS = {*("memory_search", "memory_get", "memory_store", "memory_recall", "memory_forget")}
SAID = ("rebuild the quay", "oil the winches", "paint it", "plain English", "crane", "none")
SUMMARY = "\n".join(
    f"{heading}\n- {line}" for heading, line in zip(REQUIRED_HEADINGS, SAID, strict=True)
)
SETTINGS = {
    "window_tokens": 8_000,
    "recall.embedder": "none",
    "compaction.keep_recent_tokens": 500,
    "compaction.background": False,
    "compaction.audit": False,
}
SECONDS = 60.0


def history() -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"role": "user", "content": DECIDED}]
    for n in range(12):
        filler = f"The winch number {n} is oiled and the crane beside it is painted again. " * 6
        said += [
            {"role": "assistant", "content": f"I edited src/crane_{n}.py. {filler}"},
            {"role": "user", "content": f"go on with the quay, part {n}, port {8000 + n * 7}"},
        ]
    return said


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory on disk, and ids of the space beside it."""

    store: Path
    foreign_message: str
    foreign_fact: str

    @property
    def arguments(self) -> list[str]:
        return ["mcp", "--space", SPACE, "--store", str(self.store)]


def environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    own = {"RECOLLECT_HOME": str(home), "RECOLLECT_RECALL__EMBEDDER": "none"}
    return {**kept, **own}


def text_of(result: Any) -> str:
    (content,) = result.content
    return str(content.text)


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}
