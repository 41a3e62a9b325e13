"""A hook answered without the daemon: memories are opened in this process, for it alone."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from recollect.system.config import load_settings
from recollect.system.config.load import named_file
from recollect.system.config.places import data_home

if TYPE_CHECKING:
    from recollect.hosts.hooks.transcript_file import AgentName


def stand_in_data_folder() -> None:
    """Leave the folder that an agent works in: names in the settings mean the data folder."""
    named = named_file(None)
    if named:
        os.environ["RECOLLECT_CONFIG"] = str(named)
    home = data_home()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chdir(home)


def answer_alone(agent: AgentName, raw: bytes, seconds: float) -> bytes:
    """Answer a hook in this process, with memories opened for it alone."""
    from recollect.core.formats.json_text import decode, encode
    from recollect.hosts.gateway.spaces import CLOSE_SECONDS
    from recollect.hosts.hooks.memory import HookMemory

    async def answered() -> dict[str, Any]:
        stand_in_data_folder()
        settings = load_settings(folder=None).settings
        memory = HookMemory(
            replace(
                settings,
                # The agent waits for this process to end: what can be done later is, by the next
                # daemon, and what the agent sends is not written down whole for every hook.
                jobs=replace(settings.jobs, in_process=False),
                ledger=replace(settings.ledger, enabled=False),
            )
        )
        try:
            async with asyncio.timeout(seconds):
                return await memory.answer(agent, payload)
        finally:
            await asyncio.wait_for(memory.close(), CLOSE_SECONDS)

    payload = decode(raw)
    return encode(asyncio.run(answered())) if isinstance(payload, dict) else b""
