"""How large the long tests run: small enough for CI, or as large as they come.

`RECOLLECT_FULL=1` (`just full`) asks for the large sizes. What a test shows is the same in both;
a case that runs in full only has a smaller one beside it that always runs.
"""

import os
from typing import TypeVar

import pytest

FULL = bool(os.environ.get("RECOLLECT_FULL"))
only_in_full = pytest.mark.skipif(not FULL, reason="takes minutes: set RECOLLECT_FULL=1")

Size = TypeVar("Size")


def at_size(ci: Size, full: Size) -> Size:
    """The first in CI, the second where everything is asked for."""
    return full if FULL else ci
