"""Where the whole of a long output is kept: a private folder beside the session's transcript.

Owns the files in it. Must never let a secret reach the disk, nor more than its limit: what a
command prints is held in memory until it has ended, then masked and written at once. Always holds:
a command that was aborted leaves no file; the folder goes with its session.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from recollect.config.settings import Redaction
from recollect.rules.redaction import redact
from recollect.session.files import outputs_folder, private_folder, write_new_file

MAX_BYTES = 16 * 1024 * 1024
"""More of one output is not kept: `yes` prints gigabytes a second."""
_PIECE_CHARS = 1024 * 1024
"""Masked at once; other threads have their turn in between."""
_KEY_BEGINS, _KEY_ENDS = "-----BEGIN", "-----END"


@dataclass(slots=True, kw_only=True)
class Outputs:
    """The folder of the session under way."""

    folder: Path
    redaction: Redaction = field(default_factory=Redaction)

    def follow(self, transcript: Path) -> None:
        """From now on outputs belong to this transcript."""
        self.folder = outputs_folder(transcript)

    def place(self) -> Path:
        """Where the next output may be kept; nothing is there yet."""
        return self.folder / f"{os.urandom(6).hex()}.log"

    def keep(self, path: Path, data: bytes) -> None:
        """Write an output, masked; OSError where the disk does not take it."""
        text = data.decode("utf-8", "surrogateescape")
        if self.redaction.enabled:
            text = "".join(redact(one, pii=self.redaction.pii).text for one in _pieces(text))
        private_folder(path.parent)
        write_new_file(path, text.encode("utf-8", "surrogateescape"))

    def clear(self) -> None:
        """Delete what was kept for this session."""
        shutil.rmtree(self.folder, ignore_errors=True)


def whole_lines(data: bytes) -> bytes:
    """What was cut off at a limit, up to its last whole line: half a secret is not known as one."""
    return data[: data.rfind(b"\n") + 1] or data


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces of whole lines, none of which ends inside a private key."""
    begin = 0
    while begin < len(text):
        end = text.rfind("\n", begin, begin + _PIECE_CHARS) + 1
        if end <= begin or begin + _PIECE_CHARS >= len(text):
            end = len(text)
        opened = text.rfind(_KEY_BEGINS, begin, end)
        if end < len(text) and opened >= 0 and text.find(_KEY_ENDS, opened, end) < 0:
            end = opened if opened > begin else _line_end(text, text.find(_KEY_ENDS, end))
        yield text[begin:end]
        begin = end


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at) if at >= 0 else -1
    return len(text) if end < 0 else end + 1
