"""Answers a hook without a daemon, in a process that ends when all messages are stored."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from zlib import crc32

from recollect.core.formats.json_text import decode, encode
from recollect.hosts.hooks.memory import FINISH_SECONDS, STORING_EVENTS, HookMemory
from recollect.hosts.hooks.transcript_file import AgentName
from recollect.hosts.memories import enter_data_folder
from recollect.system.config import load_settings


def answer_alone(
    agent: AgentName, raw: bytes, send: Callable[[bytes], object], lock_path: str
) -> None:
    """Answer a hook with memories that are opened only for this hook. Call `send` with the answer,
    then store what is left. One process at a time serves hooks that only store; per event and
    transcript, one more waits for it. They lock bytes of the file at `lock_path`."""

    async def answer() -> None:
        enter_data_folder()
        settings = load_settings(folder=None).settings
        # The next daemon runs the jobs, and the ledger does not record the request of each hook.
        memory = HookMemory(
            replace(
                settings,
                jobs=replace(settings.jobs, in_process=False),
                ledger=replace(settings.ledger, enabled=False),
                store=replace(settings.store, close_seconds=FINISH_SECONDS),
            )
        )
        try:
            send(encode(await memory.answer(agent, payload)))
        finally:
            await memory.close()

    payload = decode(raw)
    if not isinstance(payload, dict):
        return
    event = payload.get("hook_event_name")
    if event in STORING_EVENTS:
        lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        waiter = 1 + crc32(f"{event} {payload.get('transcript_path')}".encode())
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, waiter)
        except (BlockingIOError, PermissionError):
            return  # the process that waits has not read this transcript yet
        fcntl.lockf(lock, fcntl.LOCK_EX, 1, 0)
        fcntl.lockf(lock, fcntl.LOCK_UN, 1, waiter)
    signal.alarm(int(2 * FINISH_SECONDS))  # if it hangs
    asyncio.run(answer())
