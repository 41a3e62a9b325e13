"""Finds what is only known by its exact spelling: paths, addresses, symbols, hashes, numbers.

Owns the shapes that a receipt asks about. Must never take an ordinary word, a year or a small
number for one. What always holds: things come in the order of the text and do not overlap, so a
hash inside an address is the address's; the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from recollect.values.compaction import ProbeKind

_FILE_ENDINGS: Final = (
    "py|pyi|ipynb|js|jsx|mjs|cjs|ts|tsx|json|jsonl|toml|ya?ml|ini|cfg|conf|env|lock|md|rst|txt|csv"
    "|tsv|html?|css|scss|svg|xml|sql|db|sqlite|sh|bash|zsh|ps1|bat|c|h|cc|cpp|hpp|cs|go|rs|java|kt"
    "|swift|rb|php|lua|r|jl|scala|vue|svelte|proto|tf|gradle|log|png|jpe?g|gif|pdf|docx?|xlsx?"
    "|zip|gz|tar|whl|so|dll|exe|bin|onnx|gguf|parquet|service|patch|diff"
)
_HOST_ENDINGS: Final = "com|org|net|io|dev|ai|app|edu|gov|internal|local"
_UNITS: Final = (
    r"%|°C|°F|[kKMGT]i?B\b|[kMG]?Hz\b|[mµn]s\b|s\b|secs?\b|seconds?\b|mins?\b|minutes?\b|hours?\b|h\b"
    r"|days?\b|weeks?\b|months?\b|years?\b|px\b|rpm\b|rps\b|qps\b|tokens?\b|rows?\b|bytes?\b|lines?\b"
    r"|users?\b|requests?\b|items?\b|retries\b|workers?\b|threads?\b|replicas?\b|kg\b|km\b|cm\b|mm\b"
    r"|USD\b|EUR\b|GBP\b|CHF\b|dollars?\b|euros?\b"
)

_SHAPES: Final = re.compile(
    rf"""
    (?P<url>[A-Za-z][A-Za-z0-9+.-]{{1,12}}://[^\s"'<>()\[\]{{}}`|]{{3,300}}
        |\b(?:[A-Za-z0-9-]{{2,40}}\.){{1,4}}(?:{_HOST_ENDINGS})\b(?![\w(])(?::\d{{2,5}})?)
    |(?P<path>(?<![\w/])(?:~/|\.{{1,2}}/|/)?(?:[\w@.+-]{{1,80}}/){{1,20}}[\w@.+*-]{{1,80}}/?
        |(?<!\w)(?:[A-Za-z]:|\.{{1,2}})\\(?:[\w@.+-]{{1,80}}\\){{0,20}}[\w@.+-]{{1,80}}
        |(?<![\w.])[\w-]{{1,80}}(?:\.[\w-]{{1,40}}){{0,3}}\.(?:{_FILE_ENDINGS})\b(?![\w(]))
    |(?P<hash>\b[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}\b
        |\b0x[0-9a-fA-F]{{4,64}}\b
        |\b(?=[0-9a-f]{{0,127}}\d)(?=[0-9a-f]{{0,127}}[a-f])[0-9a-f]{{7,128}}\b
        |\b(?=[0-9A-F]{{0,127}}\d)(?=[0-9A-F]{{0,127}}[A-F])[0-9A-F]{{7,128}}\b)
    |(?P<port>(?<=port\ )\d{{2,5}}\b|(?<=localhost:)\d{{2,5}}\b|(?<=\d\.\d:)\d{{2,5}}\b)
    |(?P<number>(?<![\w.-])v?\d{{1,4}}\.\d{{1,5}}(?:\.\d{{1,6}}){{1,3}}(?:[-+][\w.]{{1,20}})?\b
        |(?<![\w.-])\d{{4}}-\d{{2}}-\d{{2}}(?:T[\d:.]{{4,15}}Z?)?\b
        |[$€£]\s?\d[\d.,]{{0,15}}\d?[kKmM]?\b
        |(?<![\w.,-])\d[\d,_.]{{0,20}}\s?(?:{_UNITS})
        |(?<![\w.,-])\d[\d,_]{{2,20}}\d(?:\.\d{{1,12}})?\b(?![-/]\d)
        |(?<![\w.,-])\d{{1,8}}\.\d{{3,12}}\b)
    |(?P<symbol>\b[A-Za-z_$][\w$]{{0,60}}(?:(?:\.|::|->)[A-Za-z_$][\w$]{{1,60}}){{1,8}}(?:\(\))?
        |\b[A-Za-z$]\w{{0,60}}_\w{{1,60}}\b(?:\(\))?|\b_\w{{3,60}}\b
        |\b[a-z][a-z0-9]{{0,40}}[A-Z]\w{{0,60}}\b(?:\(\))?
        |\b[A-Z][a-z0-9]{{1,40}}[A-Z]\w{{0,60}}\b(?:\(\))?
        |\b[a-z]\w{{2,60}}\(\)
        |\bE[A-Z]{{4,20}}\b|\b[A-Z]{{2,8}}-\d{{1,8}}(?:-\w{{1,20}}){{0,4}}\b|(?<!\w)\#\d{{2,8}}\b
        |(?<![\w-])--[a-z][\w-]{{2,40}})
    """,
    re.VERBOSE | re.ASCII,
)
# What has such a shape and is none: and/or, 7/22, U.S., a sentence without a space behind its end.
_PLAIN: Final = re.compile(
    r"[A-Za-z][a-z]*(?:/[A-Za-z][a-z]*){1,2}|[A-Z][A-Za-z]*(?:/[A-Za-z]+){1,3}|\d{1,4}(?:[/-]\d{1,4}){1,2}"
    r"|(?:[A-Za-z]\.)+[A-Za-z]?|[a-z]+\.[A-Z][a-z]+|(?:19|20)\d\d"
)
_BRAND_LINES: Final = """
GitHub GitLab JavaScript TypeScript OpenAI PostgreSQL MySQL MongoDB YouTube LinkedIn WhatsApp
iPhone iPad macOS iOS JetBrains PyPI DevOps FastAPI GraphQL NumPy
"""
_BRANDS: Final = frozenset(_BRAND_LINES.split())
_KINDS: Final[dict[str, ProbeKind]] = {
    "url": "url",
    "path": "path",
    "hash": "hash",
    "port": "number",
    "number": "number",
    "symbol": "symbol",
}
_LEAST_CHARS: Final = {"path": 3, "url": 6, "hash": 6, "port": 2, "number": 2, "symbol": 4}
_LEAST_DIGITS: Final = 4
_UNIT_END: Final = re.compile(rf"\d\s?(?:{_UNITS})$")
_RUNS: Final = re.compile(r"\S+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactThing:
    """Something exact in a text, and where it stands."""

    kind: ProbeKind
    text: str = field(repr=False)
    start: int
    end: int


def exact_things(text: str) -> Iterator[ExactThing]:
    """What is exact in a text, in its order."""
    done = 0
    for run in _RUNS.finditer(text):
        if run.start() < done or _plain_word(run[0]):
            continue
        # a number may have its unit behind a space; nothing else reaches over one
        until = min(len(text), run.end() + 12) if run[0][-1].isdigit() else run.end()
        for found in _SHAPES.finditer(text, run.start(), until):
            if found.start() >= run.end() or found.start() < done:
                continue
            thing = _thing(found)
            if thing is not None:
                done = thing.end
                yield thing


def _plain_word(run: str) -> bool:
    """A word that no shape can match, as most are: each asks for a sign, a digit or a capital."""
    word = run.rstrip(".,;:!?")
    return word.isalpha() and (word[1:] or "a").islower()


def _thing(found: re.Match[str]) -> ExactThing | None:
    kind = found.lastgroup
    written = found[0].rstrip(".,:;")
    if kind is None or len(written) < _LEAST_CHARS[kind]:
        return None
    if _PLAIN.fullmatch(written) or written.removesuffix("()") in _BRANDS:
        return None
    if kind == "number" and not _tells(written):
        return None
    start = found.start()
    return ExactThing(kind=_KINDS[kind], text=written, start=start, end=start + len(written))


def _tells(number: str) -> bool:
    """Whether a number says more than a count: a unit, a sign of money, a version, four digits."""
    if number[0] in "$€£" or _UNIT_END.search(number):
        return True
    digits = "".join(sign for sign in number if sign.isdigit()).lstrip("0")
    return len(digits) >= _LEAST_DIGITS or number.count(".") > 1 or number[0] == "v"
