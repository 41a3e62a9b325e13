"""The two halves of the case set: one to tune rules on, one that is held out.

Owns where they are kept and what a half is called. Always holds: no case is in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Final

from recollect_bench.facts.cases import Case, read_cases

TUNE: Final = "tune"
HELD_OUT: Final = "held-out"
BOTH: Final = "both"
_FILES: Final = {TUNE: "cases_tune.jsonl", HELD_OUT: "cases_held_out.jsonl"}


def load_halves(half: str = BOTH) -> Mapping[str, tuple[Case, ...]]:
    """The cases of each half that is meant."""
    meant = _FILES if half == BOTH else {half: _FILES[half]}
    folder = resources.files("recollect_bench.facts")
    return {
        name: read_cases(folder.joinpath(file).read_text(encoding="utf-8"))
        for name, file in meant.items()
    }
