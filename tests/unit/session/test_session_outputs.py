"""Long outputs of commands that an earlier version kept next to a transcript are forgotten too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recollect.adapters.session.clean_files import (
    OUTPUTS,
    FilesChanged,
    FilesOrder,
    forget_in_files,
)
from recollect.adapters.session.files import outputs_folder, transcript_file
from recollect.adapters.session.transcript import open_transcript
from recollect.core.values.upkeep import ForgetOrder
from recollect.system.config.settings import Redaction

SPACE = "me"


def planted() -> dict[str, Path]:
    """Two sessions with an output each."""
    made: dict[str, Path] = {}
    for name, word in (("one", "zanzibarquokka"), ("two", "nothing")):
        path = transcript_file(SPACE, name)
        with open_transcript(path, session_id=name, redaction=Redaction()) as transcript:
            outputs_folder(path).mkdir()
            made[name] = outputs_folder(path) / f"{name}-1b2c3d4e5f.log"
            made[name].write_text(f"1\nall about {word}\n2\n")
            shown = f"1\n[… 9 bytes left out; all of the output is in {made[name]} …]\n2"
            content = [{"type": "text", "text": shown}]
            transcript.append_message({"role": "user", "content": content, "timestamp": 1})
    return made


def forget(*, only_look: bool = False, **order: Any) -> FilesChanged:
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
    assert forget(only_look=True, **order).counts[f"{OUTPUTS}, deleted"] == 1
    assert made["one"].exists()
    assert forget(**order).counts[f"{OUTPUTS}, deleted"] == 1
    assert not made["one"].exists()
    assert made["two"].exists()
    assert made["one"].parent.exists() is (way in ("matching", "said"))
