"""The contract on SQLite once more, with the plain build of apsw that most people have.

Without the properties over generated cases: they hold on the other build.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sizes import at_size

_QUICK = "not any_ and (write or search or candidate or session or forget or word or vector)"
"""What asks most of the build: its transactions, its search and its secure delete."""
ROOT = Path(__file__).parent.parent.parent
PLAIN = ROOT / ".ci" / "plain-apsw"


@pytest.mark.skipif(not PLAIN.is_dir(), reason="no plain apsw at .ci/plain-apsw: CI puts it there")
def test_contract_holds_on_plain_apsw() -> None:
    environment = {**os.environ, "PYTHONPATH": str(PLAIN)}
    which = "import apsw; print(apsw.__file__, hasattr(apsw, 'mc_version'))"
    used = subprocess.run(
        [sys.executable, "-c", which], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert used.startswith(str(PLAIN))
    assert used.strip().endswith("False"), "a build with ciphers stands where the plain one should"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
         "-k", at_size(ci=_QUICK, full="not any_"), "tests/contract/test_sqlite.py"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
