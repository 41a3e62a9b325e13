"""Real and generated text of many kinds, cut into samples for measuring the token counter.

Owns where text comes from: the data folder (`RECOLLECT_DATA`), the standard library's sources,
a seeded generator, our own short texts, and any folder of unpacked packages with translations
(`RECOLLECT_TOKEN_CORPUS`: gettext catalogues, HTML, manual pages, YAML). It must never write
text anywhere. The same sources give the same samples.
"""

from __future__ import annotations

import gettext
import gzip
import html
import json
import os
import random
import re
import struct
import sysconfig
import tarfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect_bench import token_texts
from recollect_bench.data import data_folder
from recollect_bench.token_generated import generated_documents, unseen_documents

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HELD_KINDS = ("english", "python", "hex_json", "base64", "chinese", "japanese", "korean")
"""The kinds for which the bounds of `recollect.core.rules.tokens` are promised."""

UNSEEN_KINDS = ("scripts", "scripts_held", "shapes", "shapes_held")
"""Generated kinds that the tables of pairs are not fitted on."""

_SAMPLES_PER_SIZE = {300: 240, 1000: 300, 2000: 300, 20_000: 40}
# The promised kinds are looked at more closely: their worst samples are what counts.
_MORE_OF_HELD_KINDS = 3
_SMALLEST_DOCUMENT_CHARS = 200
_SHORTEST_PROSE_CHARS = 40
_MOST_TILES_PER_KIND = 14_000

_LANGUAGE_KINDS = {
    "zh": "chinese", "chinese": "chinese", "traditionalchinese": "chinese", "ja": "japanese",
    "japanese": "japanese", "ko": "korean", "korean": "korean", "ru": "cyrillic",
    "uk": "cyrillic", "bg": "cyrillic", "russian": "cyrillic", "ar": "arabic", "fa": "arabic",
    "ur": "arabic", "el": "greek", "he": "hebrew", "hi": "devanagari", "mr": "devanagari",
    "ne": "devanagari", "hindi": "devanagari", "th": "thai", "thai": "thai", "bn": "indic",
    "ta": "indic", "te": "indic", "kn": "indic", "ml": "indic", "ka": "georgian",
    "hy": "armenian", "de": "european", "fr": "european", "es": "european", "pl": "european",
    "tr": "european", "pt": "european", "cs": "european", "vi": "vietnamese",
}  # fmt: skip
_OWN_SCRIPT = {
    "chinese": "\u4e00-\u9fff", "japanese": "\u3040-\u30ff\u4e00-\u9fff", "korean": "\uac00-\ud7a3",
    "cyrillic": "\u0400-\u04ff", "arabic": "\u0600-\u06ff", "greek": "\u0370-\u03ff",
    "hebrew": "\u0590-\u05ff", "devanagari": "\u0900-\u097f", "thai": "\u0e00-\u0e7f",
    "indic": "\u0980-\u0d7f", "georgian": "\u10a0-\u10ff", "armenian": "\u0530-\u058f",
    "vietnamese": "\u00c0-\u01b0\u1ea0-\u1ef9",
}  # fmt: skip
# A translated page keeps commands and names in ASCII; a line mostly in ASCII is not of its kind.
_OWN_SCRIPT_SHARE = {"vietnamese": 0.1}
_USUAL_OWN_SCRIPT_SHARE = 0.35


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One piece of text of one kind; `size_chars` is the size it was cut to, 0 for a whole one."""

    kind: str
    size_chars: int
    text: str


def gather_documents(corpus: Path | None = None) -> dict[str, list[str]]:
    """Every document at hand, by kind, without duplicates."""
    found: dict[str, list[str]] = defaultdict(list)
    sources: list[Iterator[tuple[str, str]]] = [
        _own(),
        _python(),
        generated_documents(list(python_sources())),
        unseen_documents(),
    ]
    if (data := data_folder()).is_dir():
        sources += [_memory_data(data), _transcripts(data)]
    if corpus is None and (named := os.environ.get("RECOLLECT_TOKEN_CORPUS")):
        corpus = Path(named)
    if corpus is not None:
        sources.append(_translations(corpus))
    for source in sources:
        for kind, text in source:
            if len(text) >= _SMALLEST_DOCUMENT_CHARS:
                found[kind].append(text)
    return {kind: list(dict.fromkeys(texts)) for kind, texts in sorted(found.items())}


def cut_samples(documents: dict[str, list[str]], *, seed: int = 11) -> list[Sample]:
    """Random slices at each size, and whole documents; another seed gives other slices."""
    samples = []
    for kind, texts in documents.items():
        chooser = random.Random(f"{seed}:{kind}")
        more = _MORE_OF_HELD_KINDS if kind in HELD_KINDS else 1
        for size_chars, how_many in _SAMPLES_PER_SIZE.items():
            large = [text for text in texts if len(text) >= size_chars]
            for _ in range(more * how_many if large else 0):
                text = chooser.choice(large)
                start = chooser.randrange(len(text) - size_chars + 1)
                piece = text[start : start + size_chars]
                samples.append(Sample(kind=kind, size_chars=size_chars, text=piece))
        whole = [text for text in texts if 1000 <= len(text) <= 30_000]
        samples += [
            Sample(kind=kind, size_chars=0, text=text)
            for text in chooser.sample(whole, min(100 * more, len(whole)))
        ]
    return samples


def tile_documents(documents: dict[str, list[str]], *, size_chars: int = 1000) -> list[Sample]:
    """Consecutive stretches over all of the text, at most some thousands of each kind."""
    tiles = []
    for kind, texts in documents.items():
        stride = max(size_chars // 2, sum(map(len, texts)) // _MOST_TILES_PER_KIND)
        for text in texts:
            starts = range(0, len(text) - size_chars + 1, stride)
            tiles += [
                Sample(kind=kind, size_chars=size_chars, text=text[start : start + size_chars])
                for start in starts
            ]
    return tiles


def _own() -> Iterator[tuple[str, str]]:
    for kind in ("chinese", "japanese", "korean", "english"):
        paragraphs: tuple[str, ...] = getattr(token_texts, kind.upper())
        for order in range(len(paragraphs)):
            yield kind, "\n\n".join(paragraphs[order:] + paragraphs[:order])


_PYTHON_PACKAGES = ("asyncio", "email", "json", "importlib", "unittest", "idlelib", "xml", "http",
                    "logging", "concurrent/futures", "multiprocessing", "urllib", "tkinter",
                    "wsgiref", "ctypes", "sqlite3", "zoneinfo", "collections")  # fmt: skip


def python_sources(folders: tuple[str, ...] = (".", *_PYTHON_PACKAGES)) -> Iterator[str]:
    """The standard library's modules, package by package."""
    library = Path(sysconfig.get_path("stdlib"))
    for folder in folders:
        for path in sorted((library / folder).glob("*.py")):
            try:
                yield path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def _python() -> Iterator[tuple[str, str]]:
    for text in python_sources():
        yield "python", text
    # The library's own tests are full of tables, escapes and odd literals: a kind of their own.
    for text in list(python_sources(("test",)))[::3]:
        yield "python_tests", text


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _joined(texts: Iterable[str], *, at_once: int, smallest_chars: int = 1) -> Iterator[str]:
    kept = [text for text in texts if len(text) >= smallest_chars]
    for start in range(0, len(kept), at_once):
        yield "\n".join(kept[start : start + at_once])


def _read_gzip(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode("utf-8")


def _memory_data(data: Path) -> Iterator[tuple[str, str]]:
    questions = data / "memory_qa"
    for conversation in json.loads(_read_gzip(questions / "locomo10.json.gz")):
        for sitting in conversation["conversation"].values():
            if isinstance(sitting, list):
                yield "english", "\n".join(f"{t['speaker']}: {t['text']}" for t in sitting)
    for name in ("longmemeval_oracle_evidence_turns", "madial_en"):
        prose = _strings(json.loads(_read_gzip(questions / f"{name}.json.gz")))
        for text in _joined(prose, at_once=20, smallest_chars=60):
            yield "english", text
    chats = _strings(json.loads(_read_gzip(data / "no_licence_file" / "beam_100K.json.gz")))
    for text in list(chats)[::5]:
        yield "chat_markdown", text
    for path in (questions / "madial_zh.json.gz", data / "no_licence_file" / "memdaily_zh.json.gz"):
        chinese = (t for t in _strings(json.loads(_read_gzip(path))) if not t.isascii())
        for text in list(_joined(chinese, at_once=100))[:300]:
            yield "chinese", text


def _transcripts(data: Path) -> Iterator[tuple[str, str]]:
    folder = data / "transcripts"
    for path in sorted(folder.glob("*.jsonl.gz")):
        for line in _read_gzip(path).splitlines():
            yield "jsonl", line[:60_000] if '"image"' not in line else ""
            for text in _strings(json.loads(line)):
                if not re.fullmatch(r"[A-Za-z0-9+/=_\s-]+", text):
                    yield "coding_session", text
                elif len(text) > 1000 and " " not in text:
                    yield "base64", text[:60_000]
    log = _read_gzip(folder / "aider_chat-history.md.gz")
    for start in range(0, len(log), 40_000):
        yield "coding_session", log[start : start + 40_000]
    for run in json.loads(_read_gzip(folder / "taubench_gpt-4o-airline.json.gz"))[:60]:
        yield "json", json.dumps(run, indent=random.Random(len(run)).choice([None, 2]))[:30_000]
    with tarfile.open(folder / "swe_agent_traj.tgz") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".traj") else None
            for text in _strings(json.load(file)) if file is not None else ():
                yield "coding_session", text


def _translations(corpus: Path) -> Iterator[tuple[str, str]]:
    """Text below a folder, its language told by a path component such as `ko`, `ko-KR`, `ja`."""
    for path in sorted(p for p in corpus.rglob("*") if p.is_file()):
        folders = path.relative_to(corpus).parts[:-1]
        words = [re.split("[-_.]", folder)[0].lower() for folder in folders]
        words += path.name.split(".")[1:-1]
        kind = next((_LANGUAGE_KINDS[w] for w in reversed(words) if w in _LANGUAGE_KINDS), None)
        is_english = "en" in words and path.suffix == ".html"
        if is_english or kind is not None:
            yield from _told_apart("english" if kind is None else kind, path)


def _told_apart(kind: str, path: Path) -> Iterator[tuple[str, str]]:
    """A file's text under its kind; of a catalogue only what is long enough to be prose."""
    if path.suffix == ".mo":
        messages = _catalogue(path)
        labels = [message for message in messages if len(message) < _SHORTEST_PROSE_CHARS]
        yield "interface_strings", "\n".join(labels)
        prose = [message for message in messages if len(message) >= _SHORTEST_PROSE_CHARS]
        yield kind, _own_lines(kind, "\n".join(prose))
    else:
        yield kind, _own_lines(kind, _plain_text(path))


def _catalogue(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            messages: dict[Any, str] = vars(gettext.GNUTranslations(file))["_catalog"]
    except (UnicodeDecodeError, struct.error, OSError):
        return []
    return [text for key, text in messages.items() if key]


def _plain_text(path: Path) -> str:
    try:
        if path.suffix in (".html", ".yml", ".txt"):
            text = path.read_text(encoding="utf-8")
            text = re.sub(r"(?s)<(script|style|head).*?</\1>|<[^>]+>", "", text)
            return re.sub(r"[ \t]+", " ", re.sub(r"\n\s*\n+", "\n\n", html.unescape(text)))
        if path.suffix == ".gz" and "man" in path.parts:
            text = _read_gzip(path)
            return re.sub(r"(?m)^\.\S+ ?|\\f.|\\", "", text)
    except (UnicodeDecodeError, struct.error, OSError):
        return ""  # an old encoding, a broken link: not text we can measure
    return ""


def _own_lines(kind: str, text: str) -> str:
    if kind not in _OWN_SCRIPT:
        return text
    own = re.compile(f"[{_OWN_SCRIPT[kind]}]")
    share = _OWN_SCRIPT_SHARE.get(kind, _USUAL_OWN_SCRIPT_SHARE)

    def is_own(line: str) -> bool:
        return len(own.findall(line)) >= share * max(1, len(line) - line.count(" "))

    return "\n".join(line for line in text.splitlines() if is_own(line))
