"""A child that holds a conversation through the engine: `python -m ...crash.talker`.

Prints `> N` before turn N and `< N 0 0` once the engine says that all that was said is durable,
in the store or in the spool; `? N` where it is neither, and then it sends the turn again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from recollect.adapters.wiring import open_memory
from recollect.core.engine import Engine
from tools.crash.places import HOME
from tools.crash.spoken import reply_of, request_of, session_of_turn
from tools.crash.writer import say

LINGER_SECONDS = 0.5
"""At a good end: time for what waits in the spool to reach the store."""


async def talk(memory: Engine, *, talker: str, first: int, until: int | None) -> None:
    """Turn after turn, from `first` on."""
    turn = first
    while until is None or turn < until:
        say(f"> {turn}")
        session = session_of_turn(talker, turn)
        await memory.prepare(session, request_of(talker, turn))
        observed = await memory.observe(session, reply_of(talker, turn))
        if observed.archived in ("store", "spool"):
            say(f"< {turn} 0 0")
            turn += 1
        else:
            say(f"? {turn}")
            await asyncio.sleep(0.05)


async def _run(options: argparse.Namespace) -> None:
    os.environ[HOME] = options.home
    async with open_memory(store=options.location, space=options.space) as memory:
        await talk(memory, talker=options.talker, first=options.first, until=options.until)
        await asyncio.sleep(LINGER_SECONDS)


def main(arguments: Sequence[str]) -> int:
    """Talk until killed, or until the turn named."""
    parser = argparse.ArgumentParser(prog="tools.crash.talker")
    parser.add_argument("--home", required=True, help="data folder, with the spool")
    parser.add_argument("--location", required=True, help="file or URL")
    parser.add_argument("--space", required=True)
    parser.add_argument("--talker", required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--until", type=int)
    asyncio.run(_run(parser.parse_args(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
