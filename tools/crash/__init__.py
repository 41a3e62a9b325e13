"""The crash harness: real processes, real kills, and a count of what was lost.

`python -m tools.crash` kills writers, workers and database servers at random
points and then compares what the store holds with what was acknowledged. It owns the plan of
what is written, the children that write it and the comparison; it must never repair anything.
Always holds: what a child acknowledged was read from a pipe that outlives the child.
"""

from __future__ import annotations
