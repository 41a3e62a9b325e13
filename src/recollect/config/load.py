"""Joins all sources of settings: argument > environment > file > openclaw.json > preset > default.

Owns the precedence and the record of it: for every key its value, its source, and one notice
for each key that was set and does nothing (yet).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.config.effects import EFFECTS
from recollect.config.keys import build, known_keys
from recollect.config.openclaw import read_openclaw
from recollect.config.presets import PRESETS
from recollect.config.sources import (
    Given,
    Notice,
    Source,
    read_arguments,
    read_environment,
    read_file,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recollect.config.settings import Settings

CONFIG_VARIABLE = "RECOLLECT_CONFIG"
DEFAULT_FILE = "recollect.toml"

_DEFAULT = Source(kind="default")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """The settings in force, where each came from, and what should be said about them."""

    settings: Settings
    sources: Mapping[str, Source]
    notices: tuple[Notice, ...]


def load_settings(
    *,
    arguments: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
    openclaw: Path | None = None,
) -> LoadedSettings:
    """Read every source that there is; `SettingsError` names the first key that is wrong.

    Without `file`, RECOLLECT_CONFIG names it, else recollect.toml in the current folder is read
    if it is there. Without `environment`, the process's own is read.
    """
    variables = os.environ if environment is None else environment
    path = file or _found_file(variables)
    # Lowest first: each later one wins over the earlier.
    explicit = {
        **(read_file(path) if path else {}),
        **read_environment(variables),
        **read_arguments(arguments or {}),
    }
    preset = explicit["preset"].value if "preset" in explicit else known_keys()["preset"].default
    imported, notices = read_openclaw(openclaw, preset=preset) if openclaw else ({}, [])
    from_preset = {
        key: Given(value=value, source=Source(kind="preset", name=preset))
        for key, value in PRESETS[preset].items()
    }
    given = {**from_preset, **imported, **explicit}
    return LoadedSettings(
        settings=build({key: one.value for key, one in given.items()}),
        sources={key: given[key].source if key in given else _DEFAULT for key in known_keys()},
        notices=(*notices, *_notices_without_effect(given)),
    )


def preset_settings(preset: str) -> Settings:
    """The settings of a preset with nothing else set, whatever files and variables say."""
    return build({**PRESETS.get(preset, {}), "preset": preset})


def _found_file(environment: Mapping[str, str]) -> Path | None:
    named = environment.get(CONFIG_VARIABLE)
    if named:
        return Path(named).expanduser()
    usual = Path(DEFAULT_FILE)
    return usual if usual.is_file() else None


def _notices_without_effect(given: Mapping[str, Given]) -> list[Notice]:
    """One for each key set on purpose, and one for all that a preset set besides."""
    notices: list[Notice] = []
    by_preset: dict[str, list[str]] = {}
    for key in known_keys():
        message = EFFECTS[key].notice()
        if not message or key not in given or given[key].value == known_keys()[key].default:
            continue
        if given[key].source.kind == "preset":
            by_preset.setdefault(message, []).append(key)
        else:
            notices.append(Notice(key=key, message=message))
    notices += [
        Notice(key="preset", message=f"{', '.join(keys)}: {message}")
        for message, keys in by_preset.items()
    ]
    return notices
