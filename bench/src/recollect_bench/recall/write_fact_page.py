"""Writes docs/figures_recall_facts.md: what facts and digests bring to recall.

    python -m recollect_bench.recall.write_fact_page RESULT.json … > docs/figures_recall_facts.md

Takes what `recollect bench recall --facts … --json` printed. The page is never edited by hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from recollect_bench.recall.fact_page import page


def main() -> None:
    """Print the page of the results that are named."""
    if len(sys.argv) < 2:
        sys.exit("name the files that `recollect bench recall --facts … --json` printed")
    read = [json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]]
    sys.stdout.write(page(read))


if __name__ == "__main__":
    main()
