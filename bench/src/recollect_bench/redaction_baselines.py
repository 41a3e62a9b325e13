"""What the redaction bench is held against: OpenClaw's six patterns, and detect-secrets.

Owns both as plain functions from text to text. Neither is product code, and nothing outside
the bench imports them.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from recollect.errors import MissingExtra

if TYPE_CHECKING:
    from types import TracebackType

# The patterns of OpenClaw's memory-context plugin, in their order (docs/sources.md).
_OPENCLAW_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b(Authorization\s*[:=]\s*)(Bearer\s+)\S{20,}", re.I), r"\1\2[REDACTED]"),
    (re.compile(r"\bBearer\s+[A-Za-z0-9_\-.]{20,}"), "Bearer [REDACTED]"),
    (
        re.compile(r"\b(api[_-]?key\s*[:=]\s*[\"']?)[A-Za-z0-9_\-./+]{16,}[\"']?", re.I),
        r"\1[REDACTED]",
    ),
    (re.compile(r"\b(token\s*[:=]\s*[\"']?)[A-Za-z0-9_\-./+]{20,}[\"']?", re.I), r"\1[REDACTED]"),
    (re.compile(r"\b[0-9a-f]{32,}\b", re.I), "[REDACTED_HEX]"),
    (re.compile(r"\b[A-Za-z0-9+/]{64,}={0,2}\b"), "[REDACTED_B64]"),
)


def redact_by_openclaw(text: str) -> str:
    """Mask what OpenClaw's six patterns match."""
    for pattern, replacement in _OPENCLAW_PATTERNS:
        text = pattern.sub(replacement, text)
    return text


class DetectSecrets:
    """detect-secrets with its default plugins and filters, as a redactor of texts.

    It scans files, so every text becomes one; each secret it reports is masked wherever it
    stands in the text.
    """

    def __init__(self) -> None:
        try:
            from detect_secrets.core import scan
            from detect_secrets.settings import default_settings
        except ImportError as missing:
            raise MissingExtra(
                feature="the baseline of `recollect bench redaction`", extra="bench"
            ) from missing
        self._scan_file: Any = scan.scan_file
        self._settings: Any = default_settings()
        self._folder = tempfile.TemporaryDirectory()
        self._files = 0

    def __enter__(self) -> Self:
        self._settings.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._settings.__exit__(kind, error, trace)
        self._folder.cleanup()

    def redact(self, text: str) -> str:
        """Mask what it reports."""
        self._files += 1
        path = Path(self._folder.name) / f"text-{self._files}.txt"
        path.write_text(text, encoding="utf-8", errors="replace")
        for secret in self._scan_file(str(path)):
            if secret.secret_value:
                text = text.replace(secret.secret_value, "[REDACTED]")
        path.unlink()
        return text
