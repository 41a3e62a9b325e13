"""Imported before numpy: products of matrices run in one thread, on both sides of the bench.

Two threads of a small product mostly wait for each other where the cores are busy, and a figure
would then tell how busy they were. Where numpy is loaded already this changes nothing.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
