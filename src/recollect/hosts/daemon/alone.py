"""Answers a hook without a daemon, in a process that ends when all messages are stored."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import replace

from recollect.core.formats.json_text import decode, encode
from recollect.hosts.hooks.memory import FINISH_SECONDS, STORING_EVENTS, HookMemory
from recollect.hosts.hooks.transcript_file import AgentName
from recollect.hosts.memories import enter_data_folder
from recollect.system.config import load_settings
from recollect.system.durable import try_lock


def answer_alone(
    agent: AgentName, raw: bytes, send: Callable[[bytes], object], lock_path: str
) -> None:
    """Answer a hook with memories that are opened only for this hook. Call `send` with the answer,
    then store what is left. Hooks that only store wait for each other at `lock_path`."""

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
    signal.alarm(int(2 * FINISH_SECONDS))  # if it hangs
    lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # Hooks in quick succession do not mask the same messages in parallel.
    if payload.get("hook_event_name") in STORING_EVENTS:
        try_lock(lock, FINISH_SECONDS)
    asyncio.run(answer())
