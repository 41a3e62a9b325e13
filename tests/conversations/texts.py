"""Texts of any size, built cheaply: a drawn line repeated with changing words.

Always: the same arguments give the same text; a text is never blank and never ends in whitespace.
"""

from collections.abc import Sequence
from functools import cache

_WORDS: Sequence[str] = (
    *("lantern", "harbor", "quartz", "meadow", "ticket", "orbit", "velvet", "copper", "signal"),
    *("garden", "mirror", "basket", "thunder", "pepper", "window", "cactus", "puzzle", "ribbon"),
    *("falcon", "saddle", "anchor", "biscuit", "candle", "dolphin", "ember", "forest", "glacier"),
    *("hammer", "island", "jungle", "kettle", "ladder", "magnet", "needle", "oyster", "parcel"),
)

_LINES: Sequence[str] = (
    "We agreed to keep the old table until the migration has run twice.",
    "def load(path: str) -> dict[str, int]:\n    return json.loads(open(path).read())  # \t tab",
    '{"level":"error","at":"2026-03-01T10:00:00Z","sha":"9f86d081884c7d659a2feaa0c55ad015","n":17}',
    "請把舊的資料表保留到遷移執行兩次之後，然後再刪除它。",
    "マイグレーションが二回終わるまで、古いテーブルを残しておいてください。",
    "마이그레이션이 두 번 끝날 때까지 이전 테이블을 그대로 두세요.",
    "done 🎉👩‍👩‍👧‍👦 ok 👍🏽 \U0001f1ea\U0001f1fa, naïve café, e\u0301 vs \u00e9",
    'a "quoted" back\\slash, a /slash/, </recalled-context> and <b>tags</b>\u2028next\u2029line',
    "control \x0b\x1b[31mred\x1b[0m, zero\u200bwidth, \u00a0nbsp, \ufeffbom, \ufffd",
    "  at Object.<anonymous> (/srv/app/src/index.ts:41:17)\nError: ENOENT: no such file",
    "aGVsbG8gd29ybGQhIHRoaXMgaXMgYmFzZTY0IHRleHQgdGhhdCBnb2VzIG9uIGFuZCBvbg==",
)

RECALLED = (
    '<recalled-context source="memory-context">\n'
    "The user asked before about {word}.\n\n- [fact] {line}\n</recalled-context>"
)
"""A block that an earlier turn put into the view and the client sent back (OpenClaw's design)."""


def short_text(size: int, salt: int) -> str:
    """A few words: `size` 0 to 255 makes it longer, `salt` picks words and script."""
    if salt == 0:
        return f"{_WORDS[size % len(_WORDS)]} {size}"
    line = _LINES[salt % len(_LINES)]
    return f"{_WORDS[(salt >> 5) % len(_WORDS)]} {size} {line}"[: 8 + size].strip()


@cache
def _stanza(line_at: int, first: int) -> str:
    """Eight lines of one kind, each with another word; few exist, so they are kept."""
    line = _LINES[line_at]
    return "\n".join(f"{_WORDS[(first + i * 5) % len(_WORDS)]} {line}" for i in range(8))


def long_text(chars: int, salt: int) -> str:
    """About `chars` characters of one line, each time with other words around it."""
    line_at = salt % len(_LINES)
    stanzas: list[str] = []
    missing = chars
    while missing > 0:
        stanza = f"{salt & 0xFFF:x}.{len(stanzas)} {_stanza(line_at, (salt + len(stanzas)) % 36)}"
        stanzas.append(stanza)
        missing -= len(stanza) + 1
    return "\n".join(stanzas)[:chars].strip() or "ok"


def sized_text(size: int, salt: int) -> str:
    """A text whose length follows `size`: mostly short, at 255 some 40,000 characters."""
    if size < 160:
        return short_text(size, salt)
    if size < 220:
        return long_text(200 + (size - 160) * 30, salt)
    if size < 248:
        return long_text(2_000 + (size - 220) * 300, salt)
    return long_text(10_000 + (size - 248) * 4_300, salt)


def big_text(size: int, salt: int) -> str:
    """A tool's long output: 5,000 characters at `size` 0, about 80,000 at 255."""
    return long_text(5_000 + size * 294, salt)


def recalled_block(salt: int) -> str:
    """A recalled block as an earlier turn left it."""
    return RECALLED.format(word=_WORDS[salt % len(_WORDS)], line=_LINES[salt % len(_LINES)])
