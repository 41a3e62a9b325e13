"""What the imports of the seeds' two JSONL files share: counts, batches, and masking of a line.

A line that holds a secret is never kept as it came: it is masked value by value and spelled
again, so that what is kept is still a line of its file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from recollect.config.settings import Redaction
from recollect.engine.import_path import BATCH_SEGMENTS, ImportCounts
from recollect.formats.js_json import stringify
from recollect.rules.redaction import redact

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedCounts:
    """What became of one of the seeds' files."""

    messages: ImportCounts = field(default_factory=ImportCounts)
    vectors: int = 0
    altered: int = 0
    """Lines that held a secret: they are kept masked, and an export differs there."""
    passed_over: tuple[str, ...] = ()

    def plus(self, other: SeedCounts) -> SeedCounts:
        """Both together."""
        return SeedCounts(
            messages=self.messages.plus(other.messages),
            vectors=self.vectors + other.vectors,
            altered=self.altered + other.altered,
            passed_over=self.passed_over + other.passed_over,
        )


def chunks(lines: Iterator[T]) -> Iterator[list[T]]:
    """The lines, as many at a time as are written at once."""
    while chunk := list(islice(lines, BATCH_SEGMENTS)):
        yield chunk


def masked_object(
    value: dict[str, Any], fields: frozenset[str], settings: Redaction
) -> tuple[dict[str, Any], bool]:
    """The object of a line without secrets, and whether there were any."""
    if not settings.enabled:
        return value, False
    masked: dict[str, Any] = {}
    for key, item in value.items():
        done = _masked_value(item, pii=settings.pii)
        if key not in fields:  # what is unknown may be a secret by its name
            named = redact(f"{stringify(key)}:{stringify(done)}", pii=settings.pii)
            done = named.spans[0].replacement if named.spans else done
        masked[key] = done
    return masked, masked != value


def _masked_value(item: Any, *, pii: bool) -> Any:
    if isinstance(item, str):
        return redact(item, pii=pii).text
    if isinstance(item, list):
        return [_masked_value(inner, pii=pii) for inner in item]
    if isinstance(item, dict):
        return {key: _masked_value(inner, pii=pii) for key, inner in item.items()}
    return item


def line_again(value: dict[str, Any], line: str) -> str:
    """A masked object as its line, with the line end it had."""
    return stringify(value) + line[len(line.rstrip("\r\n")) :]
