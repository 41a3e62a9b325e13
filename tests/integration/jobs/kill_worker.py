"""A worker to be killed: each job writes a segment that no other execution could write."""

import asyncio
import secrets
import sys
import time
from contextlib import suppress
from functools import partial
from random import Random

from tests.store_contract import examples

from recollect.adapters.wiring import open_store
from recollect.core.boundary import SystemClock
from recollect.core.upkeep.jobs import JobRunner, retry_seconds
from recollect.core.values.batch import Batch, Lease
from recollect.errors import StoreError

LEASE_SECONDS = 0.3


async def main(path: str) -> None:
    store = await open_store(path, space="jobs")
    random = Random()

    async def handler(lease: Lease) -> Batch:
        await asyncio.sleep(random.uniform(0, 0.03))
        if random.random() < 0.1:
            raise OSError
        new = examples.segment(f"{lease.key} by {secrets.token_hex(8)}")
        return Batch(at=time.time(), segments=(new,))

    runner = JobRunner(
        store,
        {"work": handler},
        SystemClock(),
        lease_seconds=LEASE_SECONDS,
        max_attempts=1000,
        backoff=partial(retry_seconds, base=0.01, factor=1.0),
    )
    while True:
        with suppress(StoreError):
            await runner.run_due()
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
