"""Joins all sources of settings: argument > environment > file > openclaw.json > preset > default.

Owns the precedence and the record of it: for every key its value, its source, and one notice
for each key that was set and does nothing (yet).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from recollect.config.fields import EFFECTS
from recollect.config.keys import build, known_keys
from recollect.config.openclaw import read_openclaw
from recollect.config.sources import (
    Given,
    Notice,
    Source,
    read_arguments,
    read_environment,
    read_file,
)

if TYPE_CHECKING:
    from recollect.config.settings import Settings


# The presets: values that belong together, applied below every explicit source.
#
# Each table holds only what differs from the defaults in `settings`. What OpenClaw does and its
# preset does not restore stands in `NOT_RESTORED`: docs/settings.md and `recollect doctor` show it.


OPENCLAW: Mapping[str, Any] = {
    # Whole messages by OpenClaw's score, none of our evidence, in its own lines.
    "recall.method": "openclaw",
    "recall.embedder": "hash",
    "recall.scope": "session",
    # Recall on every turn, its block after the system prompt, gone on the next turn.
    "recall.every_turn": True,
    "recall.placement": "after-system",
    "recall.sticky": False,
    # OpenClaw fills the block up to the hard cap.
    "recall.block_tokens": 4000,
    "recall.standing_tokens": 0,
    "recall.min_score": 0.7,
    "recall.decay_per_day": 0.995,
    "recall.hybrid.vector_weight": 0.7,
    "recall.hybrid.text_weight": 0.3,
    # Trim before compaction on every turn, and stop as soon as the limit is met.
    "turn.trim_first": True,
    "trim.low_water_ratio": 1.0,
    "trim.protect_first_user": False,
    # Of an old result that is cleared nothing stays.
    "pruning.hard_clear.line_chars": 0,
    # ceil(len/3), never corrected by what the provider reports.
    "tokens.counter": "openclaw",
    "tokens.calibrate": False,
    # Summaries in one pass, with nothing of ours added to them.
    "compaction.mode": "default",
    "compaction.audit": False,
    "compaction.pin_ratio": 0.0,
    "index.max_segments": 20_000,
    "index.eviction_days": 90,
}
"""How OpenClaw does it, by its design documents and, where they are silent, by its code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRestored:
    """Something that OpenClaw does and `preset = "openclaw"` does otherwise."""

    openclaw: str
    here: str
    why: str


def _otherwise(openclaw: str, here: str, why: str) -> NotRestored:
    return NotRestored(openclaw=openclaw, here=here, why=why)


NOT_RESTORED: Final = (
    _otherwise(
        "archives messages at a compaction or after a trim, beside the turn",
        "every message is archived on arrival, and none leaves the view before it is durable",
        "a crash in between loses what was only in the view",
    ),
    _otherwise(
        "archives the words of user and assistant alone",
        "tool calls and results are archived too; its recall leaves them out",
        "they could never be searched, exported or restored",
    ),
    _otherwise(
        "replaces the history by a fixed text when summarising fails",
        "the history stays and the view is trimmed",
        "a failed call of a model must not wipe a session",
    ),
    _otherwise(
        "may reset the session when a compaction fails",
        "the session goes on, and the report says what failed",
        "nothing that was said is lost without being asked",
    ),
    _otherwise(
        "masks secrets by six patterns",
        "our rules mask them, unless redaction is off",
        "the six miss most secrets and destroy commit ids (docs/figures.md)",
    ),
    _otherwise(
        "puts recalled text into the block as it is",
        "tags in it that could close the block, or open another, are defused",
        "an old message could speak for the block around it",
    ),
    _otherwise(
        "chooses anew on every turn what to trim, and leaves no trace of it",
        "what was trimmed stays out until the view is over its limit again; a gap leaves one line "
        "that says so; calls and results leave together",
        "a view that changes everywhere breaks the provider's cache, and a silent gap misleads",
    ),
    _otherwise(
        "shows facts of all sessions",
        "facts keep to the scope of recall: this session's and those of none",
        "what one session said must not show in another by default",
    ),
    _otherwise(
        "supersedes and rewrites facts by the share of words they have in common",
        "a fact is replaced by one of the same subject and attribute, and never rewritten",
        "unrelated facts of one type superseded each other",
    ),
    _otherwise(
        "re-ranks by maximal marginal relevance",
        "there is no such step",
        "it never changes anything there: its limit is never below the number of candidates, and "
        "the block is filled by score and written by time",
    ),
    _otherwise(
        "dates a message by when it was archived",
        "by when it was said",
        "decay and the block's dates would tell of compactions",
    ),
    _otherwise(
        "embeds the first 2,000 characters of a message with any embedder",
        "with hash it does; with another one the message's nearest passage counts",
        "passages are embedded already, and a model's time is dear",
    ),
    _otherwise(
        "keeps the whole reserve of any window",
        "the reserve is at most a quarter of the window",
        "a window of 20,000 tokens would hold nothing",
    ),
    _otherwise(
        "prompts models in its own sentences",
        "the prompts are ours; tags and placeholders are its own",
        "only literals of a protocol are taken over",
    ),
)
"""What `preset = "openclaw"` does not restore, and why."""

PRESETS: Mapping[str, Mapping[str, Any]] = {"recollect": {}, "openclaw": OPENCLAW}


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
