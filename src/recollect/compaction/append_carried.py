"""Puts behind a summary what code carries, and takes it off again.

Owns the layout and the bounds of a whole summary. Code's sections are made anew each time: a model
that updates a summary is given the body alone (`strip_carried`), so that no list is summarised.
What always holds: within `most_chars` and the token budget; code's sections go before the body's
length, none of them over a quarter, all together at most three fifths; each section of a body that
is too long gives way by its length, none vanishes; no text can close the tags around it. Code's
sections are known by where they stand, at the very end, and a body can hold none that looks like
one: what it says about them is spelled otherwise, so that taking them off leaves all of the body.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from recollect.compaction.fit import HEADINGS, fit, whole_lines
from recollect.compaction.prompts import IDENTIFIERS_HEADING
from recollect.compaction.render import defuse
from recollect.compaction.telling_lines import tell
from recollect.formats.summaries import (
    LINES_TAG,
    MODIFIED_TAG,
    NAMES_TAG,
    PINNED_HEADING,
    READ_TAG,
    RULES_TAG,
    part_pinned,
    without_block,
)
from recollect.values.compaction import Carried, ToolFailure

SUMMARY_CHARS: Final = 16_000
RULES_CHARS: Final = 2000
FILE_LIST_CHARS: Final = 900
"""These three and the quarter are OpenClaw's (notes/formats.md B)."""
SECTION_SHARE: Final = 0.25
SUFFIX_SHARE: Final = 0.6
"""Ours: four full quarters would leave nothing of the summary itself."""
MOST_NAMES: Final = 12
"""So many bare names, as the audit asks for: the lines that `tell` puts behind them hold others."""
FAILURES_HEADING: Final = "## Tool failures"
_VERBATIM: Final = "- Verbatim: "
"""Opens the line of identifiers that code adds to what the model lists."""
_ROUNDS: Final = 3
_FROM_THE_END: Final = (LINES_TAG, NAMES_TAG, RULES_TAG, MODIFIED_TAG, READ_TAG)
"""The blocks at the end of a whole summary, the last first."""
_OWN_HEADING: Final = re.compile(rf"^(?={FAILURES_HEADING}|{PINNED_HEADING})", re.M)
_OWN_LINE: Final = re.compile(rf"^-(?={_VERBATIM[1:]})", re.M)


def append_carried(
    summary: str,
    carried: Carried,
    rules_text: str = "",
    *,
    most_tokens: int,
    count_tokens: Callable[[str], int],
    lines_tokens: int = 0,
    most_chars: int = SUMMARY_CHARS,
) -> str:
    """The whole summary: its body, then what code carries, within both bounds; the lines that it
    does not tell come on top, within a bound of their own."""
    body = _spelled_otherwise(defuse(strip_carried(summary)))
    chars = most_chars
    while True:
        whole = _assembled(body, carried, rules_text, chars)
        tokens = count_tokens(whole)
        if tokens <= most_tokens or chars <= 1:
            break
        # how many characters a token takes differs by script: approach it from what was counted
        chars = max(1, min(chars - 1, len(whole) * most_tokens * 98 // (tokens * 100)))
    lines = tell(carried.lines, whole, most_tokens=lines_tokens, count_tokens=count_tokens)
    return f"{whole}\n\n{lines.text}" if lines.text else whole


def strip_carried(summary: str) -> str:
    """The body of a summary, without what code makes anew; what was pinned stays behind it."""
    body, pinned = part_pinned(summary.strip())
    for tag in _FROM_THE_END:
        body = without_block(body, tag)
    body = _without_failures(body)
    above, _, last = body.rpartition("\n")
    if last.startswith(_VERBATIM):
        body = above.rstrip()
    above, _, last = body.rpartition("\n")
    if last.rstrip() == IDENTIFIERS_HEADING:
        body = above.rstrip()
    return "\n\n".join(one for one in (body.strip(), pinned) if one)


def without_bare_names(summary: str) -> str:
    """A summary without the names that code lists in it: a name alone says nothing of its thing."""
    return "\n".join(line for line in summary.split("\n") if not line.startswith(_VERBATIM))


def _without_failures(body: str) -> str:
    lines = body.rstrip().split("\n")
    first = len(lines)
    while first and lines[first - 1].startswith("- "):
        first -= 1
    if first == len(lines) or not first or lines[first - 1] != FAILURES_HEADING:
        return body
    return "\n".join(lines[: first - 1]).rstrip()


def _spelled_otherwise(body: str) -> str:
    """The body with what would look like code's own at the beginning of a line."""
    return _OWN_LINE.sub("*", _OWN_HEADING.sub("#", body))


def _assembled(body: str, carried: Carried, rules_text: str, chars: int) -> str:
    body, listed = _without_identifiers(body)
    section, left = int(chars * SECTION_SHARE), int(chars * SUFFIX_SHARE)
    rules = _rules(rules_text, min(section, left, RULES_CHARS))
    left -= len(rules)
    room_for_names = min(section, left)
    left -= room_for_names if carried.identifiers or listed else 0
    failed = _failures(carried.failures, min(section, left))
    left -= len(failed)
    files = _files(carried, min(section, left))
    kept = body
    suffix: list[str] = []
    for _ in range(_ROUNDS):
        # a name that the body loses by its length has to be among the names
        named = _identifiers(listed, carried.identifiers[:MOST_NAMES], kept, room_for_names)
        suffix = [one for one in (named, failed, files, rules) if one]
        kept = fit(kept, chars - sum(len(one) + 2 for one in suffix))
    return "\n\n".join([one for one in (kept, *suffix) if one])[:chars]


def _without_identifiers(body: str) -> tuple[str, str]:
    """The body without its list of identifiers, and the lines of that list."""
    kept: list[str] = []
    listed: list[str] = []
    for section in HEADINGS.split(body):
        heading, _, below = section.partition("\n")
        if heading.strip().rstrip(":").casefold() == IDENTIFIERS_HEADING.casefold():
            # the split turn's part follows behind a rule
            lines, ruled, rest = f"\n{below}".partition("\n---\n")
            listed.extend(line for line in lines.split("\n") if line.strip())
            kept.append(f"---\n{rest}" if ruled else "")
        else:
            kept.append(section)
    return "".join(kept).strip(), "\n".join(line for line in listed if not _says_none(line))


def _says_none(line: str) -> bool:
    return line.strip("-* .").casefold() in {"", "none", "n/a"}


def _identifiers(listed: str, names: Sequence[str], known: str, most: int) -> str:
    """The model's list, then the names that stand nowhere else, best first."""
    room = most - len(IDENTIFIERS_HEADING) - 1
    held = whole_lines(listed, room // 2 if names else room)
    folded = f"{known}\n{held}".casefold()
    missing = [name for name in names if name.casefold() not in folded]
    room -= len(held) + (1 if held else 0) + len(_VERBATIM)
    chosen: list[str] = []
    for name in missing:
        spelled = defuse(" ".join(name.split()))
        if len(spelled) + 2 <= room:
            chosen.append(spelled)
            room -= len(spelled) + 2
    lines = [held] if held else []
    if chosen:
        lines.append(_VERBATIM + ", ".join(chosen))
    return "\n".join([IDENTIFIERS_HEADING, *lines]) if lines else ""


def _failures(failed: Sequence[ToolFailure], most: int) -> str:
    """Newest first in what is kept, oldest first in how it reads."""
    room = most - len(FAILURES_HEADING)
    lines: list[str] = []
    for one in reversed(failed):
        line = defuse(" ".join(f"- {one.tool}: {one.said}".split()))
        if len(line) + 1 > room:
            break
        lines.append(line)
        room -= len(line) + 1
    return "\n".join([FAILURES_HEADING, *reversed(lines)]) if lines else ""


def _files(carried: Carried, most: int) -> str:
    """Both lists as pi spells them; the modified ones first served."""
    modified = _listed(MODIFIED_TAG, carried.modified_files, min(most, FILE_LIST_CHARS))
    left = most - len(modified) - 2
    read = _listed(READ_TAG, carried.read_files, min(left, FILE_LIST_CHARS))
    return "\n\n".join([one for one in (read, modified) if one])


def _listed(tag: str, paths: Sequence[str], most: int) -> str:
    room = most - 2 * len(tag) - 8
    lines: list[str] = []
    for path in (defuse(" ".join(path.splitlines())) for path in paths):
        if len(path) + 1 > room:
            continue
        lines.append(path)
        room -= len(path) + 1
    return "\n".join([f"<{tag}>", *lines, f"</{tag}>"]) if lines else ""


def _rules(rules_text: str, most: int) -> str:
    tag = RULES_TAG
    text = whole_lines(defuse(rules_text.strip()), most - 2 * len(tag) - 8)
    return f"<{tag}>\n{text}\n</{tag}>" if text else ""
