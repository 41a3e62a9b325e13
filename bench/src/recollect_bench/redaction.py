"""`recollect bench redaction`: how much of what is secret is masked, and of what is not.

Owns the measures, for our rules and for two baselines in the same run (OpenClaw's six patterns and
detect-secrets). Never prints a secret, and types in no figure. A true example counts as masked only
when no eight consecutive characters of any secret marked in it survive in the output (shorter
secrets: the whole). The examples say which rule they belong to but not where the secret stands, so
the marks are ours: drafted from the spans of our own rules, read through one by one and corrected,
and kept as offsets beside this module (`redaction_labels.json`), where later rules cannot move
them.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from recollect.core.rules.redaction import redact
from recollect.core.rules.secret_values import is_published_sample
from recollect.errors import MissingExtra, RecollectError
from recollect_bench.redaction_data import (
    FILLED,
    HALVES,
    Corpora,
    CredentialFile,
    Example,
    Half,
    load_corpora,
    load_kinds,
)
from recollect_bench.result import BenchResult

if TYPE_CHECKING:
    from types import TracebackType


# What the redaction bench is held against


# The patterns of OpenClaw's memory-context plugin, in their order (docs/contributing/sources.md).
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


_SURVIVING_CHARS = 8
_TIMED_RUNS = 3
_SLOW_SAMPLE_CHARS = 60_000

Redactor = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """The four figures of one redactor."""

    true_masked: float
    false_touched: float
    clean_touched: float
    mb_per_s: float

    def flat(self, prefix: str = "") -> dict[str, float]:
        """The figures under their names, which a baseline prefixes with its own."""
        return {f"{prefix}{name}": getattr(self, name) for name in self.__slots__}


def run(progress: Callable[[str], None] = lambda _: None) -> BenchResult:
    """Measure our rules, OpenClaw's six patterns and detect-secrets on `data/secrets`."""
    progress("reading the data")
    corpora = load_corpora()
    marks = _secret_marks(corpora.examples)
    progress(f"our rules on {len(corpora.examples)} examples and {len(corpora.clean)} clean texts")
    ours = _measure(_ours, corpora, marks, timed=corpora.transcript_texts)
    figures = ours.flat() | _more_figures(corpora, marks) | kind_figures()
    progress("OpenClaw's six patterns")
    patterns = _measure(redact_by_openclaw, corpora, marks, timed=corpora.transcript_texts)
    progress("detect-secrets, a file for each example: about a minute")
    sample = _first_chars(corpora.transcript_texts, _SLOW_SAMPLE_CHARS)
    with DetectSecrets() as detector:
        theirs = _measure(detector.redact, corpora, marks, timed=sample, timed_runs=1)
    return BenchResult(
        bench="redaction",
        figures=figures,
        baselines=patterns.flat("openclaw_") | theirs.flat("detect_secrets_"),
        notes=_notes(sample),
    )


def _ours(text: str) -> str:
    return redact(text).text


def _measure(
    redactor: Redactor,
    corpora: Corpora,
    marks: dict[str, tuple[str, ...]],
    *,
    timed: Sequence[str],
    timed_runs: int = _TIMED_RUNS,
) -> _Measured:
    true = [example.text for example in corpora.examples if example.is_true]
    false = [example.text for example in corpora.examples if not example.is_true]
    return _Measured(
        true_masked=_share([is_masked(redactor(text), marks[text]) for text in true]),
        false_touched=_share([redactor(text) != text for text in false]),
        clean_touched=_share([redactor(text) != text for text in corpora.clean]),
        mb_per_s=_speed(redactor, timed, timed_runs),
    )


def is_masked(output: str, secrets: Sequence[str]) -> bool:
    """Whether no secret, nor eight consecutive characters of one, survives in the output."""
    for secret in secrets:
        size = min(_SURVIVING_CHARS, len(secret))
        if any(secret[at : at + size] in output for at in range(len(secret) - size + 1)):
            return False
    return True


def _share(outcomes: Sequence[bool]) -> float:
    return round(sum(outcomes) / len(outcomes), 4)


def _speed(redactor: Redactor, texts: Sequence[str], runs: int) -> float:
    """Megabytes of UTF-8 per second of processor time, the best of some runs."""
    size_bytes = sum(len(text.encode("utf-8", "replace")) for text in texts)
    best_seconds = float("inf")
    for _ in range(runs):
        started = time.process_time()
        for text in texts:
            redactor(text)
        best_seconds = min(best_seconds, time.process_time() - started)
    return round(size_bytes / 1e6 / best_seconds, 3)


def _first_chars(texts: Sequence[str], most_chars: int) -> list[str]:
    """Some of the texts, spread over all of them, up to a total size."""
    stride = max(1, sum(map(len, texts)) // most_chars)
    return list(texts)[::stride]


def _secret_marks(examples: Sequence[Example]) -> dict[str, tuple[str, ...]]:
    """The secrets of every true example, cut out by the marks kept beside this module."""
    stored = resources.files("recollect_bench").joinpath("redaction_labels.json")
    offsets = json.loads(stored.read_text(encoding="utf-8"))
    marks: dict[str, tuple[str, ...]] = {}
    for example in examples:
        if example.is_true:
            key = hashlib.sha256(example.text.encode()).hexdigest()[:12]
            if key not in offsets:
                raise RecollectError(
                    f"an example of gitleaks' rule {example.rule} has no marked secret; the "
                    "data differ from those the marks in redaction_labels.json were made for"
                )
            marks[example.text] = tuple(example.text[a:b] for a, b in offsets[key])
    return marks


def _more_figures(corpora: Corpora, marks: dict[str, tuple[str, ...]]) -> dict[str, float]:
    """What explains the four figures: exceptions, contradictions, the other data sets."""
    false = [example.text for example in corpora.examples if not example.is_true]
    known = {secret for secrets in marks.values() for secret in secrets}
    touched = [text for text in false if _ours(text) != text]
    spared = [text for text in false if is_published_sample(text) and _ours(text) == text]
    also_true = [text for text in touched if any(secret in text for secret in known)]
    spans = sum(len(redact(text).spans) for text in corpora.transcript_texts)
    megabytes = sum(map(len, corpora.transcript_texts)) / 1e6
    return {
        "false_touched_without_sample_list": round((len(touched) + len(spared)) / len(false), 4),
        "false_touched_but_true_elsewhere": round(len(also_true) / len(false), 4),
        "clean_texts": float(len(corpora.clean)),
        "transcript_spans_per_mb": round(spans / megabytes, 2),
        "credsweeper_masked": _credsweeper_masked(corpora.credential_files),
        "detect_secrets_true_cases_touched": _share(
            [_ours(text) != text for text, is_true in corpora.detector_cases if is_true]
        ),
        "detect_secrets_false_cases_touched": _share(
            [_ours(text) != text for text, is_true in corpora.detector_cases if not is_true]
        ),
    }


def kind_figures(halves: Sequence[Half] = HALVES) -> dict[str, float]:
    """How many ways of writing a secret are known, and what only looks like one is touched."""
    figures: dict[str, float] = {}
    for half in halves:
        masked: list[bool] = []
        touched: list[bool] = []
        for kind in load_kinds(half):
            for seed in range(FILLED):
                text, secrets = kind.fill(seed)
                output = _ours(text)
                if kind.lookalike:
                    touched.append(output != text)
                else:
                    masked.append(is_masked(output, secrets))
        figures[f"kinds_masked_{half}"] = _share(masked)
        figures[f"lookalikes_touched_{half}"] = _share(touched)
    return figures


def _credsweeper_masked(files: Sequence[CredentialFile]) -> float:
    """The share of CredSweeper's own findings that overlap one of our spans."""
    outcomes: list[bool] = []
    for file in files:
        spans = redact(file.text).spans
        outcomes += [
            any(span.start < end and start < span.end for span in spans)
            for start, end in file.findings
        ]
    return _share(outcomes)


def _notes(sample: Sequence[str]) -> tuple[str, ...]:
    sample_chars = sum(map(len, sample))
    return (
        "masked: no 8 consecutive characters of a marked secret survive",
        "marks: drafted from our own rules' spans, then checked by eye; may favour our rules",
        "true_masked, false_touched: not held out; rules were adjusted after all were seen",
        "false_touched: 14 false examples, Google keys of public test code, are spared by hashes",
        "  taken from these examples; false_touched_without_sample_list is the share without them",
        "kinds_masked, lookalikes_touched: templates by an author who never saw the rules, five",
        "  values each; rules were written with the tune half in view, the held-out half was never",
        "  read, only its totals",
        "speed: processor time on the texts of the pi and Codex transcripts, one call a text",
        f"detect-secrets: speed on {sample_chars} characters of them",
        "detect-secrets reports a private key by its first line; the body counts as not masked",
        "credsweeper's labels are that tool's findings, domains, nonces and PEM marks among them",
        "the transcripts hold no images; the clean texts' images are generated",
    )
