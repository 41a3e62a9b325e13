"""Settings into an engine: the one place that knows which adapter stands behind which seam."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recollect.blocking import BlockingEngine
from recollect.config import load_settings
from recollect.engine import Engine
from recollect.ports import Clock, Recaller, TokenCounter
from recollect.values.history import SpaceId


def open_memory(
    *,
    space: SpaceId = "default",
    config: Path | None = None,
    clock: Clock | None = None,
    recaller: Recaller | None = None,
    counter: TokenCounter | None = None,
    off_the_loop: bool = False,
    settings: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Engine:
    """An engine for one space, with settings from arguments, environment and file.

    Top-level settings are arguments (`window_tokens=200_000`, `preset="seeds"`); deeper ones go
    into `settings` by their dotted names: `settings={"trim.protect_messages": 8}`.
    """
    loaded = load_settings(arguments={**(settings or {}), **arguments}, file=config)
    return Engine(
        loaded.settings,
        space=space,
        clock=clock,
        recaller=recaller,
        counter=counter,
        off_the_loop=off_the_loop,
    )


def open_blocking_memory(**arguments: Any) -> BlockingEngine:
    """As `open_memory`, for code without an event loop."""
    return BlockingEngine(open_memory(**arguments))
