"""Settings into an engine: the one place that knows which adapter stands behind which seam."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recollect.blocking import BlockingEngine
from recollect.config import Settings, load_settings
from recollect.engine import Engine
from recollect.errors import SettingsError
from recollect.ports import Clock, Recaller, TokenCounter
from recollect.providers.overflow import recognise_overflow
from recollect.values.history import SpaceId


def open_memory(
    *,
    space: SpaceId = "default",
    config: Path | str | None = None,
    openclaw: Path | str | None = None,
    clock: Clock | None = None,
    recaller: Recaller | None = None,
    counter: TokenCounter | None = None,
    off_the_loop: bool = False,
    settings: Settings | Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Engine:
    """An engine for one space, with settings from arguments, environment and files.

    Top-level settings are arguments (`window_tokens=200_000`, `preset="seeds"`); deeper ones go
    into `settings` by their dotted names: `settings={"trim.protect_messages": 8}`. A `Settings`
    is taken as it is, and nothing else is read.
    """
    if isinstance(settings, Settings):
        if arguments or config or openclaw:
            raise SettingsError("give either a Settings or what it is to be made of, not both")
        chosen = settings
    else:
        chosen = load_settings(
            arguments={**(settings or {}), **arguments},
            file=None if config is None else Path(config),
            openclaw=None if openclaw is None else Path(openclaw),
        ).settings
    return Engine(
        chosen,
        space=space,
        clock=clock,
        recaller=recaller,
        counter=counter,
        recognise_overflow=recognise_overflow,
        off_the_loop=off_the_loop,
    )


def open_blocking_memory(**arguments: Any) -> BlockingEngine:
    """As `open_memory`, for code without an event loop."""
    return BlockingEngine(open_memory(**arguments))
