"""Identifiers in text: paths, symbols, hashes, URLs, codes, versions. If memory contains an
identifier that the request lacks, that is a reason to recall (docs/contributing/ranking.md).
Ordinary words, dates and small numbers are not identifiers. Found identifiers do not overlap."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from recollect.core.search.tokenize import tokenize
from recollect.core.values.compaction import ProbeKind

_LINK: Final = r"(?:\.|::|->)"
_CHAIN: Final = rf"\b[A-Za-z_$][\w$]{{0,60}}(?:{_LINK}[A-Za-z_$][\w$]{{0,60}}){{1,8}}"
_SNAKE: Final = r"\b[A-Za-z$]\w{0,60}_\w{1,60}\b"
_PRIVATE: Final = r"\b_\w{3,60}\b"
_CAMEL: Final = r"(?<!\\)\b[a-z][a-z0-9]{0,40}[A-Z]\w{0,60}\b"
_PASCAL: Final = r"\b[A-Z][a-z0-9]{1,40}[A-Z]\w{0,60}\b"
_VERSION: Final = r"v?\d{1,4}\.\d{1,5}(?:\.\d{1,6}){1,3}"
_ERROR: Final = r"E[A-Z]{4,20}"
_TICKET: Final = r"\#\d{2,8}\b"
_OPTION: Final = r"(?<![\w-])--[a-z][\w-]{2,40}"
_CALLED: Final = r"(?:\(\))?"


def _hash(max_chars: int, digits: str = "a-f") -> str:
    lookahead = f"[0-9{digits}]{{0,{max_chars - 1}}}"
    return rf"\b(?={lookahead}\d)(?={lookahead}[{digits}])[0-9{digits}]{{7,{max_chars}}}\b"


_SHAPES: Final = re.compile(
    rf"""
    [a-z][a-z0-9+]{{1,12}}://[^\s"'<>()\[\]{{}}`]{{3,200}}                  # an address
    |(?:~|\.{{1,2}})?/?(?:[\w@.+-]{{1,80}}[/\\]){{1,20}}[\w@.+-]{{2,80}}    # a path
    |(?<![\w.])[\w-]{{2,80}}\.[A-Za-z]\w{{0,4}}\b(?!\()                     # a file's name
    |{_CHAIN}|{_SNAKE}|{_PRIVATE}|{_CAMEL}|{_PASCAL}                        # a name in code
    |{_hash(64)}
    |\b\d{{5,20}}\b                                                         # a long number
    |\b{_VERSION}(?:-[\w.]{{1,20}})?\b
    |\b(?:{_ERROR}|[A-Z]{{1,6}}-?\d{{3,8}})\b                               # or a ticket
    |{_TICKET}|{_OPTION}
    |\b[A-Za-z]\w{{0,40}}(?:[-.]\w{{1,40}}){{1,6}}(?<=[-.]\d)\b             # us-east-1
    |\b[A-Za-z]\w{{0,40}}(?:-\w{{1,40}}){{0,4}}-\w{{0,20}}\d\w{{0,20}}\b    # biscuit-01, pool-b2
    |\bX-[A-Z]\w{{1,30}}(?:-[A-Z]\w{{0,30}}){{0,5}}\b                       # X-Ledger-Once
    |\b[A-Z]\w{{0,30}}(?:-[A-Z]\w{{0,30}}){{2,6}}\b                         # Idempotency-Key-Id
    """,
    re.VERBOSE | re.ASCII,
)
# Not identifiers, although they look like some: and/or, 7/22, 2023/05/07, 22.07.2023, U.S.
_PLAIN: Final = re.compile(
    r"[A-Za-z][a-z]*/[A-Za-z][a-z]*|\d{1,4}(?:[/-]\d{1,4})+|\d{1,2}\.\d{1,2}\.(?:19|20)\d\d"
    r"|(?:[A-Za-z]\.)+[A-Za-z]?|[A-Za-z]+-(?:19|20)\d\d|top-\d+|[A-Z]{2,}-\d{1,2}"
)
_RUNS: Final = re.compile(r"\S+", re.ASCII)
_LEAST_CHARS: Final = 4  # shorter ones are words
_PIECES: Final = re.compile(r"[^\w./:\\]+")
_MOST: Final = 24  # not measured; bounds the query
_READ_CHARS: Final = 8_000
"""Only this many characters are searched: longer text is mostly a log with many identifiers."""

_LINKS: Final = re.compile(_LINK)
_WHOLE_CHAIN: Final = re.compile(rf"[A-Za-z_$][\w$]*(?:{_LINK}[A-Za-z_$][\w$]*)+")
_CODE_FILE: Final = re.compile(
    r"[\w-]+\.(?:tsx?|m?jsx?|jsonl?|md|py|sh|css|html|ya?ml|toml|lock|txt|rs|go|java|c|h|cpp|rb|php"
    r"|sql|cfg|ini|csv)"
)
_LINKED: Final = re.compile(r"[A-Za-z$]*[a-z0-9][A-Z]\w*|\w*[A-Za-z]_\w+|_\w{3,}")
_MOST_NAME_CHARS: Final = 120  # not measured; longer ones are data

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
_ESCAPED: Final = r"[nrt](?:\\|[A-Z]|[^\w.-]|$)"
"""Letters after a backslash that are an escape such as `\\n` in code, not a folder."""
_EXACT: Final = re.compile(
    rf"""
    (?P<url>[A-Za-z][A-Za-z0-9+.-]{{1,12}}://[^\s"'<>()\[\]{{}}`|]{{3,300}}
        |\b(?:[A-Za-z0-9-]{{2,40}}\.){{1,4}}(?:{_HOST_ENDINGS})\b(?![\w(])(?::\d{{2,5}})?)
    |(?P<path>(?<![\w/])(?:~/|\.{{1,2}}/|/)?(?:[\w@.+-]{{1,80}}/){{1,20}}[\w@.+*-]{{1,80}}/?
        |(?<!\w)(?:[A-Za-z]:|\.{{1,2}})\\(?!{_ESCAPED})(?:[\w@.+-]{{1,80}}\\){{0,20}}[\w@.+-]{{1,80}}
        |(?<![\w.])[\w-]{{1,80}}(?:\.[\w-]{{1,40}}){{0,3}}\.(?:{_FILE_ENDINGS})\b(?![\w(]))
    |(?P<hash>\b[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}\b
        |\b0x[0-9a-fA-F]{{4,64}}\b|{_hash(128)}|{_hash(128, "A-F")})
    |(?P<port>(?<=port\ )\d{{2,5}}\b|(?<=localhost:)\d{{2,5}}\b|(?<=\d\.\d:)\d{{2,5}}\b)
    |(?P<number>(?<![\w.-]){_VERSION}(?:[-+][\w.]{{1,20}})?\b
        |(?<![\w.-])\d{{4}}-\d{{2}}-\d{{2}}(?:T[\d:.]{{4,15}}Z?)?\b
        |[$€£]\s?\d[\d.,]{{0,15}}\d?[kKmM]?\b
        |(?<![\w.,-])\d[\d,_.]{{0,20}}\s?(?:{_UNITS})
        |(?<![\w.,-])\d[\d,_]{{2,20}}\d(?:\.\d{{1,12}})?\b(?![-/]\d)
        |(?<![\w.,-])\d{{1,8}}\.\d{{3,12}}\b)
    |(?P<symbol>\b[A-Za-z_$][\w$]{{0,60}}(?:{_LINK}[A-Za-z_$][\w$]{{1,60}}){{1,8}}{_CALLED}
        |{_SNAKE}{_CALLED}|{_PRIVATE}|{_CAMEL}{_CALLED}|{_PASCAL}{_CALLED}|\b[a-z]\w{{2,60}}\(\)
        |\b{_ERROR}\b|\b[A-Z]{{2,8}}-\d{{1,8}}(?:-\w{{1,20}}){{0,4}}\b|(?<!\w){_TICKET}|{_OPTION})
    """,
    re.VERBOSE | re.ASCII,
)
# Not exact names: and/or, 7/22, U.S., a sentence without a space after its end.
_NOT_EXACT: Final = re.compile(
    r"[A-Za-z][a-z]*(?:/[A-Za-z][a-z]*){1,2}|[A-Z][A-Za-z]*(?:/[A-Za-z]+){1,3}"
    r"|\d{1,4}(?:[/-]\d{1,4}){1,2}|(?:[A-Za-z]\.)+[A-Za-z]?|[a-z]+\.[A-Z][a-z]+|(?:19|20)\d\d"
)
_BRAND_LINES: Final = """
GitHub GitLab JavaScript TypeScript OpenAI PostgreSQL MySQL MongoDB YouTube LinkedIn WhatsApp
iPhone iPad macOS iOS JetBrains PyPI DevOps FastAPI GraphQL NumPy
"""
_BRANDS: Final = frozenset(_BRAND_LINES.split())
_KINDS: Final[dict[str, tuple[ProbeKind, int]]] = {
    "url": ("url", 6),
    "path": ("path", 3),
    "hash": ("hash", 6),
    "port": ("number", 2),
    "number": ("number", 2),
    "symbol": ("symbol", 4),
}
_LEAST_DIGITS: Final = 4  # shorter numbers are counts
_UNIT_END: Final = re.compile(rf"\d\s?(?:{_UNITS})$")
_EXACT_RUNS: Final = re.compile(r"\S+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactThing:
    """An exact name or number in a text, and its position."""

    kind: ProbeKind
    text: str = field(repr=False)
    start: int
    end: int


def identifiers_in(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for identifier in shapes_in(text[:_READ_CHARS]):
        words = tokenize(identifier)
        if words:
            found.setdefault(max(words, key=len), identifier)
            if len(found) == _MOST:
                break
    return found


def shapes_in(text: str) -> Iterator[str]:
    # No pattern contains white space, so most of a text can be skipped.
    searched_text = " ".join([run for run in _RUNS.findall(text) if not _is_plain_word(run)])
    for shape in _SHAPES.finditer(searched_text):
        shape_text = shape[0].rstrip(".,:;/")
        if len(shape_text) < _LEAST_CHARS and not shape_text.startswith("#"):
            continue
        if not _PLAIN.fullmatch(shape_text):
            yield shape_text


def names_in(text: str) -> Iterator[str]:
    """Yield identifiers as people search for them: `a.b` in code gives its parts."""
    for identifier in shapes_in(text):
        if not _LEAST_CHARS <= len(identifier) <= _MOST_NAME_CHARS:
            continue
        if _WHOLE_CHAIN.fullmatch(identifier) and not _CODE_FILE.fullmatch(identifier):
            for piece in _LINKS.split(identifier):
                if len(piece) >= _LEAST_CHARS and _LINKED.fullmatch(piece):
                    yield piece
            continue
        yield identifier


def words_of(identifier: str) -> tuple[str, ...]:
    """Return the index words that every text with this identifier contains, one per part.
    `src/app.py` gives one word; `ABC-123` and `--dry-run` give two words."""
    pieces = filter(None, map(tokenize, _PIECES.split(identifier)))
    return tuple(dict.fromkeys(max(words, key=len) for words in pieces))


def exact_things(text: str) -> Iterator[ExactThing]:
    done = 0
    for run in _EXACT_RUNS.finditer(text):
        if run.start() < done or _is_plain_word(run[0].rstrip(".,;:!?")):
            continue
        # only a number may be separated from its unit by a space
        until = min(len(text), run.end() + 12) if run[0][-1].isdigit() else run.end()
        for shape in _EXACT.finditer(text, run.start(), until):
            if shape.start() >= run.end() or shape.start() < done:
                continue
            thing = _exact_thing(shape)
            if thing is not None:
                done = thing.end
                yield thing


def _is_plain_word(run: str) -> bool:
    return run.isalpha() and (run[1:] or "a").islower()


def _exact_thing(shape: re.Match[str]) -> ExactThing | None:
    assert shape.lastgroup is not None
    kind, least_chars = _KINDS[shape.lastgroup]
    shape_text = shape[0].rstrip(".,:;")
    if len(shape_text) < least_chars or _NOT_EXACT.fullmatch(shape_text):
        return None
    if shape_text.removesuffix("()") in _BRANDS:
        return None
    if shape.lastgroup == "number" and not _says_more_than_a_count(shape_text):
        return None
    start = shape.start()
    return ExactThing(kind=kind, text=shape_text, start=start, end=start + len(shape_text))


def _says_more_than_a_count(number: str) -> bool:
    if number[0] in "$€£" or _UNIT_END.search(number):
        return True
    digits = "".join(sign for sign in number if sign.isdigit()).lstrip("0")
    return len(digits) >= _LEAST_DIGITS or number.count(".") > 1 or number[0] == "v"
