"""What a message names: files, addresses, versions, issues, commits, identifiers, people.

Owns the shapes of names (OpenClaw's design: by regular expressions, when added); knows no list of
names. Works on redacted text, and never names a mask. At most `MOST_ENTITIES`, the most often
named first. Always pure and deterministic; every shape is bounded and a message is read up to
a bound, so the time is linear and does not grow with a log's size.
"""

from __future__ import annotations

import re
from collections import Counter

MOST_ENTITIES = 16
MOST_ENTITY_CHARS = 120
HEAD_CHARS = 4_000
TAIL_CHARS = 1_000

# A chunk is what white space and brackets leave; ASCII, so that it ends where Chinese begins.
# Most chunks are plain words, and each is looked at once however often it is said. A key of
# JSON is its schema's word, not the message's.
_CHUNKS = re.compile(
    r"(?<![\w@#~./\\:+&=?%-])[\w@#~./\\][\w@#~./\\:+&=?%-]{1,200}+(?!\"[ ]?:)", re.ASCII
)
_TRAILING = ".,;:!?=&-/\\"
_ENDINGS = (
    "py pyi js mjs cjs ts tsx jsx json jsonl json5 yaml yml toml md rst txt html htm css scss go "
    "rs java kt rb php sh bash sql c h cc cpp hpp cs lock ini cfg conf env log xml csv tsv ipynb "
    "swift vue svelte proto pdf png jpg svg zip gz tar tgz db sqlite patch diff"
)
_DOMAINS = "com org net io dev ai app cn local internal edu gov co uk de"
_SHAPES = re.compile(
    rf"""
    [a-z][a-z0-9+]{{1,12}}://[\w\[].{{2,}}                                # an address of the web
    |[\w.+-]{{1,64}}@[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{1,4}}                # of a mailbox
    |(?:\d{{1,3}}\.){{3}}\d{{1,3}}(?::\d{{2,5}})?                         # of a machine
    |(?:[a-z0-9-]{{1,63}}\.){{1,5}}(?:{"|".join(_DOMAINS.split())})(?::\d{{2,5}})?(?:/\S*)?
    |localhost:\d{{2,5}}
    |[vV]?\d{{1,4}}\.\d{{1,5}}\.\d{{1,6}}(?:[-+.]?[a-z]{{1,6}}\.?\d{{0,4}})?   # a version
    |[vV]\d{{1,4}}\.\d{{1,5}}
    |(?:[\w.-]{{1,40}}/[\w.-]{{1,60}})?\#\d{{1,7}}                        # an issue
    |[A-Z][A-Z0-9]{{1,9}}-\d{{1,6}}
    |(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{{7,40}}                             # a commit
    |@[A-Za-z][\w-]{{1,38}}                                               # a person's handle
    |(?:~|\.{{1,2}}|[A-Za-z]:)?(?:[/\\]{{1,2}}[\w.@+-]{{1,80}}){{2,20}}(?::\d{{1,6}})?    # a path
    |(?:[\w@.+-]{{1,80}}[/\\]){{0,20}}[\w@+.-]{{1,80}}\.(?:{"|".join(_ENDINGS.split())})(?::\d{{1,6}})?
    |(?:[\w@.+-]{{1,80}}/){{2,20}}[\w@.+-]{{1,80}}
    |[a-z][a-z0-9]{{0,30}}(?:[A-Z][a-z0-9]{{0,30}}){{1,8}}(?:\.\w{{1,40}})?   # a name in code
    |(?:[A-Z][a-z0-9]{{1,30}}){{2,8}}(?:\.\w{{1,40}})?
    |[A-Za-z][A-Za-z0-9]{{0,30}}(?:_[A-Za-z0-9]{{1,30}}){{1,8}}(?:\.\w{{1,40}})?
    |[A-Za-z_]\w{{0,40}}(?:(?:\.|::)[A-Za-z_]\w{{0,40}}){{1,6}}
    """,
    re.VERBOSE | re.ASCII,
)
_QUOTED = re.compile(
    r"`([^`\s][^`\n]{0,60})`|[「『《【“]([^「」『』《》【】“”\n]{1,40})[」』》】”]"
    r'|"([A-Z\u4e00-\u9fff][^"\n]{1,40})"'
)
_PROPER = re.compile(
    r"(?<![\w.])[A-Z][a-z]{1,20}(?: (?:[A-Z][a-z]{1,20}|[A-Z]\.)){1,3}"
    r"|(?<=[a-z,;] )[A-Z][a-z]{2,20}\b"
)
_DAY_OR_MONTH = re.compile(
    "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|January|February|March|April|May|June|July"
    "|August|September|October|November|December"
)
_MASKED = "REDACTED"


def entities_of(text: str) -> tuple[str, ...]:
    """What a text names, the most often named first, then in reading order of each shape."""
    if len(text) > HEAD_CHARS + TAIL_CHARS:
        text = f"{text[:HEAD_CHARS]}\n{text[-TAIL_CHARS:]}"
    named: Counter[str] = Counter()
    for chunk, count in Counter(_CHUNKS.findall(text)).items():
        if chunk.isalpha() and (chunk.islower() or chunk[1:].islower() or len(chunk) > 60):
            continue  # a word, perhaps at the beginning of a sentence
        name = chunk.rstrip(_TRAILING)
        if _SHAPES.fullmatch(name) is not None:
            named[name] += count
    for quoted in _QUOTED.finditer(text):
        named[(quoted[1] or quoted[2] or quoted[3]).strip()] += 1
    for proper in _PROPER.findall(text):
        if _DAY_OR_MONTH.fullmatch(proper) is None:
            named[proper] += 1
    kept = [name for name in named if 1 < len(name) <= MOST_ENTITY_CHARS and _MASKED not in name]
    kept.sort(key=lambda name: -named[name])
    return tuple(kept[:MOST_ENTITIES])
