"""A child that writes its batches one after the other and says so: `python -m ...crash.writer`.

It prints `> N` before batch N and `< N STORED KNOWN` after the store took it, each line in one
write to the pipe. Started with the first batch that was not acknowledged, it sends that one
again, as a client would. Always holds: `<` is printed only after `write` has returned.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from recollect.core.ports import Store
from recollect.errors import StoreUnavailable
from tools.crash.places import open_place
from tools.crash.plan import planned_batch

RETRY_SECONDS = 0.05


def say(line: str) -> None:
    """One whole line to the parent, unbuffered."""
    os.write(1, f"{line}\n".encode())


async def write_on(
    store: Store, *, writer: str, first: int, until: int | None, retry: bool
) -> None:
    """Write from batch `first` on, up to but not including `until`."""
    number = first
    while until is None or number < until:
        batch = planned_batch(writer, number)
        say(f"> {number}")
        try:
            written = await store.write(batch)
        except StoreUnavailable as error:
            if not retry:
                raise
            say(f"? {number} {type(error).__name__}")
            await asyncio.sleep(RETRY_SECONDS)
            continue
        say(f"< {number} {len(written.stored)} {len(written.known)}")
        number += 1


async def _run(options: argparse.Namespace) -> None:
    store = await open_place(options.opener, options.location, options.space)
    try:
        await write_on(
            store,
            writer=options.writer,
            first=options.first,
            until=options.until,
            retry=options.retry,
        )
    finally:
        await store.close()


def main(arguments: Sequence[str]) -> int:
    """Write until killed, or until the batch named."""
    parser = argparse.ArgumentParser(prog="tools.crash.writer")
    parser.add_argument("--opener", required=True, help="module:function that opens the store")
    parser.add_argument("--location", required=True, help="file or URL")
    parser.add_argument("--space", required=True)
    parser.add_argument("--writer", required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--until", type=int)
    parser.add_argument("--retry", action="store_true", help="go on when the store is away")
    asyncio.run(_run(parser.parse_args(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
