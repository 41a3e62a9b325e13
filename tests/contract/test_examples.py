"""The example values are the same in every process, so a number says what must be there."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.store_contract.examples import full_batch, ids, segments, text

from recollect.core.formats.stored_records import read_batch, write_batch

SCRIPT = """
from hashlib import sha256
from recollect.core.formats.stored_records import write_batch
from tests.store_contract.examples import full_batch
print(sha256(b"".join(write_batch(full_batch(number)) for number in range(3))).hexdigest())
"""


def test_examples_do_not_depend_on_the_process() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    assert len(printed.pop().strip()) == 64


def test_numbers_share_nothing() -> None:
    batches = [full_batch(number) for number in range(4)]
    every = [one for batch in batches for one in ids(batch.segments)]
    assert len(set(every)) == len(every) == 16
    assert len({text(number) for number in range(500)}) == 500
    assert ids(segments(3, session="a")) != ids(segments(3, session="b"))


def test_full_batch_is_a_whole_batch() -> None:
    batch = full_batch(3)
    assert read_batch(write_batch(batch)) == batch
    assert all(
        (batch.segments, batch.vectors, batch.facts, batch.jobs, batch.session, batch.pieces,
         batch.turns, batch.compactions)
    )  # fmt: skip
