"""The texts of the redaction bench: labelled examples, clean texts, real transcripts.

Owns reading `data/secrets` and `data/transcripts` and making the clean corpus. Never changes
an example. Generated texts come from a fixed seed, so that every run sees the same ones.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect_bench.data import DataNotFoundError, data_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

_TRANSCRIPTS = (
    "pi_before-compaction.jsonl.gz",
    "pi_large-session.jsonl.gz",
    "codex_session.jsonl.gz",
    "codex_session_patches.jsonl.gz",
)
_GENERATED_OF_EACH = 400
_LEAST_TEXT_CHARS = 40
_FOUND_IN_TRANSCRIPTS = {
    "hash": re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)(?:[0-9a-f]{40}|[0-9a-f]{7,12})\b"),
    "uuid": re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
    "path": re.compile(r"(?<![\w:/.])~?(?:/[\w.@+-]+){2,}"),
    "base64": re.compile(r"[A-Za-z0-9+/]{100,}={0,2}"),
}
_CONTEXTS = {
    "hash": ("{}", "commit {}", "git checkout {}", '{{"sha": "{}"}}', "index {}..{} 100644"),
    "uuid": ("{}", '{{"id": "{}"}}', "session {} resumed", "parentId={}"),
    "path": ("{}", "cat {}", '{{"path": "{}"}}', "{}:42: error", "file={}"),
    "base64": ("{}", "data:image/png;base64,{}", '{{"type": "image", "data": "{}"}}'),
    "call": ("{}", '{{"tool_use_id": "{}"}}', "call_id={}"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One of gitleaks' examples: true ones hold a secret of the rule, false ones none of it."""

    rule: str
    text: str
    is_true: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialFile:
    """One of CredSweeper's sample files, with the places of that tool's findings."""

    text: str
    findings: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpora:
    """Everything the bench measures on."""

    examples: tuple[Example, ...]
    detector_cases: tuple[tuple[str, bool], ...]
    credential_files: tuple[CredentialFile, ...]
    clean: tuple[str, ...]
    transcript_texts: tuple[str, ...]


def load_corpora() -> Corpora:
    """Read and generate all texts of the bench."""
    folder = _secrets_folder()
    texts = tuple(_transcript_texts(folder))
    detector = _read_json(folder / "secrets" / "detect_secrets.json.gz")
    return Corpora(
        examples=tuple(
            Example(rule=row["rule"], text=row["text"], is_true=row["label"] == 1)
            for row in _read_json(folder / "secrets" / "gitleaks_rule_examples.json.gz")
        ),
        detector_cases=tuple(
            (case["text"], case["label"] == 1) for case in detector["plugin_cases"]
        ),
        credential_files=tuple(_credential_files(folder)),
        clean=tuple(dict.fromkeys(_clean_texts(texts))),
        transcript_texts=texts,
    )


def _secrets_folder() -> Path:
    folder = data_folder()
    if not (folder / "secrets").is_dir():
        raise DataNotFoundError(
            f"no secrets/ in {folder}: set RECOLLECT_DATA to the folder that holds "
            "secrets/ and transcripts/"
        )
    return folder


def _read_json(path: Path) -> Any:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def _transcript_texts(folder: Path) -> Iterator[str]:
    """Every text of some length in the transcripts, wherever in an entry it stands."""
    for name in _TRANSCRIPTS:
        with gzip.open(folder / "transcripts" / name, "rt", encoding="utf-8") as file:
            for line in file:
                if line.strip():
                    yield from _strings(json.loads(line))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if len(value) >= _LEAST_TEXT_CHARS:
            yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from _strings(member)
    elif isinstance(value, list):
        for member in value:
            yield from _strings(member)


def _credential_files(folder: Path) -> Iterator[CredentialFile]:
    stored = _read_json(folder / "secrets" / "credsweeper_samples.json.gz")
    findings: dict[str, list[tuple[int, int]]] = {path: [] for path in stored["files"]}
    for label in stored["labels_ml"]:
        text = stored["files"].get(label["path"])
        if text is None:  # three labels belong to files that are no text
            continue
        before = sum(len(line) + 1 for line in text.split("\n")[: label["line_num"] - 1])
        start = text.find(label["value"], before)
        if start >= 0:
            findings[label["path"]].append((start, start + len(label["value"])))
    for path, places in findings.items():
        yield CredentialFile(text=stored["files"][path], findings=tuple(places))


def _clean_texts(transcript_texts: tuple[str, ...]) -> Iterator[str]:
    """Hashes, UUIDs, paths, base64 and call ids, found and generated, bare and in context."""
    for kind, pattern in _FOUND_IN_TRANSCRIPTS.items():
        found = dict.fromkeys(
            m.group() for text in transcript_texts for m in pattern.finditer(text)
        )
        for item in found:
            yield from _in_contexts(kind, item)
    for kind, item in _generated(random.Random(2)):
        yield from _in_contexts(kind, item)


def _in_contexts(kind: str, item: str) -> Iterator[str]:
    for context in _CONTEXTS[kind]:
        yield context.format(item, item)


def _generated(rng: random.Random) -> Iterator[tuple[str, str]]:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    words = "src lib main test build node_modules site-packages app index token auth keys v2"
    for _ in range(_GENERATED_OF_EACH):
        for size_bytes in (16, 20, 32, 64):
            yield "hash", rng.randbytes(size_bytes).hex()
        yield "uuid", str(uuid.UUID(bytes=rng.randbytes(16), version=4))
        yield "path", "/" + "/".join(rng.choices(words.split(" "), k=rng.randint(3, 14))) + ".py"
        head = rng.choice((b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", b"\xff\xd8\xff\xe0\x00\x10JFIF"))
        image = head + rng.randbytes(rng.choice((60, 600, 6000)))
        yield "base64", base64.b64encode(image).decode()
        opening = rng.choice(("toolu_01", "call_", "msg_01", "chatcmpl-", "fc_", "resp_", "req_01"))
        yield "call", opening + "".join(rng.choices(letters, k=rng.choice((22, 24, 29, 48))))
