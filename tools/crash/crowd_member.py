"""One of many processes on one store, doing a little of everything: `python -m ...crowd_member`.

Prints what it wrote as a writer does, `+ KEY 1` for a job it completed, and at the end
`= queries N`. Any error ends it with a traceback and a status that the parent sees.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from random import Random

from recollect.core.ports import Store
from recollect.core.values.recall import AskedVector, CandidateQuery
from tools.crash.effects import effect_of
from tools.crash.places import open_place
from tools.crash.plan import (
    DIMENSIONS,
    EMBEDDER,
    JOB_KIND,
    WORDS,
    planned_batch,
    planned_ids,
    session_of,
)
from tools.crash.writer import say

LEASE_SECONDS = 30.0


class Member:
    """What one process does, round after round."""

    def __init__(self, store: Store, *, name: str, others: int) -> None:
        self.store = store
        self.name = name
        self.others = others
        self.random = Random(name)
        self.number = 0
        self.queries = 0

    async def round(self) -> None:
        """Write a batch and see it, ask, look at a session, and sometimes do a job."""
        await self.write()
        await self.ask()
        await self.look()
        if self.number % 3 == 0:
            await self.do_job()

    async def write(self) -> None:
        """The next batch, which this process must then see."""
        say(f"> {self.number}")
        written = await self.store.write(planned_batch(self.name, self.number))
        say(f"< {self.number} {len(written.stored)} {len(written.known)}")
        ids = planned_ids(self.name, self.number)
        if await self.store.known(ids) != frozenset(ids):
            raise AssertionError("what was just written is not there")
        self.number += 1

    async def ask(self) -> None:
        """A query that the newest message answers, every other time by vector too."""
        newest = planned_batch(self.name, self.number - 1).segments[-1]
        word = newest.passages[0].words[0]
        vectors: tuple[AskedVector, ...] = ()
        if self.queries % 2:
            values = b"\0\0\0\x3e" * DIMENSIONS  # 64 times an eighth: length one
            vectors = (AskedVector(embedder=EMBEDDER, values=values),)
        common = tuple(self.random.sample(WORDS, 2))
        await self.store.candidates(CandidateQuery(words=common, vectors=vectors))
        # Alone: a long passage may stand behind fifty short ones that hold the common words.
        found = await self.store.candidates(CandidateQuery(words=(word,)))
        if newest.segment.id not in {passage.segment for passage in found.passages}:
            raise AssertionError("a query for a word that only one message holds did not find it")
        self.queries += 2

    async def look(self) -> None:
        """Another member's session, its newest segments, and now and then all sessions."""
        other = f"member-{self.random.randrange(self.others)}"
        session = session_of(other, 0)
        await self.store.session(session)
        await self.store.page(limit=20, session=session, descending=True)
        if self.number % 10 == 0:
            await self.store.sessions()
            await self.store.stats()
        self.queries += 2

    async def do_job(self) -> None:
        """Take a job of anybody's and do it."""
        now = time.time()
        lease = await self.store.claim(now=now, lease_seconds=LEASE_SECONDS, kinds=(JOB_KIND,))
        if lease is not None and await self.store.complete(lease, effect_of(lease, at=now)):
            say(f"+ {lease.key} 1")


async def _run(options: argparse.Namespace) -> None:
    store = await open_place(options.opener, options.location, options.space)
    try:
        member = Member(store, name=options.writer, others=options.others)
        while time.time() < options.until_time or member.number < options.rounds:
            await member.round()
        say(f"= {member.queries}")
    finally:
        await store.close()


def main(arguments: Sequence[str]) -> int:
    """Go on until the time named, and for so many rounds at least."""
    parser = argparse.ArgumentParser(prog="tools.crash.crowd_member")
    parser.add_argument("--opener", required=True, help="module:function that opens the store")
    parser.add_argument("--location", required=True, help="file or URL")
    parser.add_argument("--space", required=True)
    parser.add_argument("--writer", required=True)
    parser.add_argument("--others", type=int, required=True)
    parser.add_argument("--until-time", type=float, required=True)
    parser.add_argument("--rounds", type=int, default=0)
    asyncio.run(_run(parser.parse_args(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
