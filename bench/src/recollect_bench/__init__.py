"""Measurements behind the documentation: what anyone can run to check a figure."""

import os

__version__ = "0.1.0.dev0"

# Before numpy is loaded: products of matrices run in one thread, on both sides of a bench. Two
# threads of a small product mostly wait for each other where the cores are busy, and a figure
# would then tell how busy they were.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
