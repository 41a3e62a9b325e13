"""Facts as a folder of Markdown files that people read and edit (OpenClaw's memory design).

    memory/preferences.md          what the user prefers
    memory/facts.md                everything else that holds, by type
    memory/research_history.md     digests, by subject
    memory/daily/YYYY-MM-DD.md     what was learnt that day, also what was replaced since
    memory/.exported               ids and marks of what was written: what people changed since

Owns the layout. Pure: texts in, texts out, by their paths in the folder. Never decides what
becomes of a changed line. Always holds: the same facts give the same bytes, in whatever order
they come; reading what was written gives every id with its text. A fact whose words leave open what
they are about shows its subject in brackets behind them, which reading takes off again.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final
from urllib.parse import quote, unquote

from recollect.values.fact import Fact, FactId, FactType, MadeBy
from recollect.values.segment import Trust

# One statement as an item of a Markdown list, and back


BULLET: Final = "- "
_CONTINUED: Final = "\n  "
_MOST_CODE_POINT: Final = 0x10FFFF
# What is read as something else than itself, in the order of trying.
_SPELLED: Final = re.compile(
    r"\\(?P<escaped>[\\<&])"
    r"|&#(?P<number>[0-9]{1,7});"
    r"|[ \t]*<!-- fact (?P<id>[^\s,<>]+)(?:, (?P<note>[^<>\n]*?))? -->"
)
_SEPARATORS: Final = frozenset("\u2028\u2029")
_BOX: Final = re.compile(r"\[[ xX]\](?:[ \t]+|$)")
"""A task list's box: people's sign beside a statement, no part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListItem:
    """A list item as it was read."""

    content: str = field(repr=False)
    id: str | None = None
    """The id that its marker names; None for an item that people added."""
    note: str = field(default="", repr=False)
    """What else stands in the marker."""


def write_item(content: str, *, id: str, note: str) -> str:  # noqa: A002
    """The item's lines, without a line end at the end."""
    lines: list[str] = []
    held = ""
    for line in content.split("\n"):
        if not line:
            held += "&#10;"
            continue
        lines.append(held + _escaped(line))
        held = ""
    if lines and _BOX.match(lines[0]):
        lines[0] = f"&#91;{lines[0][1:]}"
    text = _CONTINUED.join(_with_breaks(lines, held))
    return f"{BULLET}{text} <!-- fact {spelled_id(id)}, {note} -->"


def read_item(lines: list[str]) -> ListItem:
    """An item from its lines: the first without its bullet, all with their white space."""
    found: list[tuple[str, str]] = []

    def plain(match: re.Match[str]) -> str:
        if match["id"] is not None:
            found.append((match["id"], match["note"] or ""))
            return ""
        if match["number"] is not None:
            code = int(match["number"])
            return chr(code) if code <= _MOST_CODE_POINT else match[0]
        return match["escaped"]

    text = "\n".join(line.strip() for line in lines)
    box = _BOX.match(text)
    content = _SPELLED.sub(plain, text if box is None else text[box.end() :])
    if not found:
        return ListItem(content=content)
    named, note = found[0]
    return ListItem(content=content, id=read_id(named), note=note)


def spelled_id(id: str) -> str:  # noqa: A002
    """An id that neither ends a comment nor a word."""
    return quote(id, safe=":", errors="surrogatepass")


def read_id(spelled: str) -> str:
    """What `spelled_id` spelled; anything else as it stands, which is no fact's id."""
    try:
        return unquote(spelled, errors="surrogatepass")
    except UnicodeDecodeError:
        return spelled


def _with_breaks(lines: list[str], held: str) -> list[str]:
    """The lines, with breaks at the very end; nothing but breaks is a line of its own."""
    if not lines:
        # n breaks make n + 1 empty lines
        return [held.removesuffix("&#10;")]
    return [*lines[:-1], lines[-1] + held]


def _escaped(line: str) -> str:
    line = line.replace("\\", "\\\\").replace("<!--", "\\<!--").replace("&#", "\\&#")
    kept = line.lstrip()
    before, line = line[: len(line) - len(kept)], kept
    kept = line.rstrip()
    after = line[len(kept) :]
    return _numbers(before) + "".join(map(_visible, kept)) + _numbers(after)


def _numbers(text: str) -> str:
    return "".join(f"&#{ord(sign)};" for sign in text)


def _visible(sign: str) -> str:
    """A sign that editors, terminals and decoders leave alone, or its number."""
    if sign.isprintable() or sign == "\t":
        return sign
    odd = unicodedata.category(sign) in ("Cc", "Cs") or sign in _SEPARATORS
    return f"&#{ord(sign)};" if odd else sign


FOLDER: Final = "memory"
PREFERENCES: Final = f"{FOLDER}/preferences.md"
FACTS: Final = f"{FOLDER}/facts.md"
RESEARCH: Final = f"{FOLDER}/research_history.md"
EXPORTED: Final = f"{FOLDER}/.exported"
MAIN_FILES: Final = (PREFERENCES, FACTS, RESEARCH)

WRITTEN_MARK: Final = "<!-- Written by `recollect facts export`."
_HOW: Final = (
    f"{WRITTEN_MARK} Edit a line, or add one that begins with a dash,\n"
    "     and `recollect facts import` takes it in. The mark at the end of a line is its name. -->"
)
HEADINGS: Final[Mapping[FactType, str]] = {
    "decision": "Decisions",
    "config": "Configuration",
    "architecture": "Architecture",
    "implementation": "Implementation",
    "issue": "Issues",
    "task_state": "Task state",
    "preference": "Preferences",
}
SAID: Final[Mapping[Trust, str]] = {
    "high": "said by you",
    "medium": "said by the assistant",
    "low": "said by a tool",
    "outside": "fetched from outside",
}
MADE: Final[Mapping[MadeBy, str]] = {
    "rules": "found by rules",
    "model": "found by a model",
    "user": "written by you",
    "import": "imported",
}
_TYPES: Final = {heading.casefold(): type_ for type_, heading in HEADINGS.items()}
_TRUSTS: Final = {text: trust for trust, text in SAID.items()}
_UNTIL: Final = "until "
_WITH_SUBJECT: Final = "subject in brackets"
_SUBJECT: Final = re.compile(r" \[([^\[\]\n]+)\]\Z")
_PAST: Final = "past"
_MARK_BYTES: Final = 8
_DAILY: Final = re.compile(rf"{FOLDER}/daily/([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})\.md")
_ITEM: Final = re.compile(r"[-*+](?:[ \t]+(?=\S)|[ \t]*$)")
_HEADING: Final = re.compile(r"#{1,6}[ \t]+(.*?)[ \t]*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderLine:
    """A list item of the folder: a statement, as it stands there now."""

    path: str
    number: int
    """Of its first line, from 1."""
    content: str = field(repr=False)
    id: FactId | None = None
    """None for a line that people added."""
    type: FactType | None = None
    """What its file and heading say; None where they say nothing."""
    subject: str = field(default="", repr=False)
    """The heading that a digest stands under, or what a mark says stands in brackets."""
    day: str | None = None
    """The day of a daily file."""
    trust: Trust | None = None
    """Who said it, as its mark tells; None where it has none."""
    replaced: bool = False
    """Its mark says until when it held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderRead:
    """A folder as it was read."""

    lines: tuple[FolderLine, ...] = field(default=(), repr=False)
    exported: frozenset[FactId] = frozenset()
    """What stood in the three main files when the folder was written."""
    written: Mapping[FactId, str] = field(default_factory=dict, repr=False)
    """The mark (`line_mark`) of the words that were written for each fact, past ones too."""
    absent: tuple[str, ...] = ()
    """Main files that an export wrote and that are not there."""
    passed_over: tuple[str, ...] = ()
    """Places of lines that are no list items."""


def day_of(path: str) -> str | None:
    """The day of a daily file's path; None for any other path."""
    match = _DAILY.fullmatch(path)
    return None if match is None else match[1]


def belongs(path: str) -> bool:
    """Whether a path is one that this folder has; others are nobody's business."""
    return path in MAIN_FILES or path == EXPORTED or day_of(path) is not None


def line_mark(content: str) -> str:
    """What tells words from others, but for their white space: editors break lines."""
    said = " ".join(content.split()).encode("utf-8", "surrogatepass")
    return blake2b(said, digest_size=_MARK_BYTES, person=b"recollect-line").hexdigest()


def without_subject(content: str) -> str:
    """Words without what stands in brackets behind them."""
    return _SUBJECT.sub("", content)


def write_folder(facts: Iterable[Fact]) -> dict[str, str]:
    """Every file of the folder with its text, by path; `facts` with those replaced since."""
    every = sorted(facts, key=lambda fact: (fact.at, fact.id))
    current = [fact for fact in every if fact.current]
    digests = [fact for fact in current if fact.type == "digest"]
    others = [fact for fact in current if fact.type not in ("digest", "preference")]
    preferences = [fact for fact in current if fact.type == "preference"]
    texts = {
        PREFERENCES: _page("Preferences", "\n".join(map(_line, preferences))),
        FACTS: _page("Facts", *_by_type(others)),
        RESEARCH: _page("Research history", *_by_subject(digests)),
    }
    days: dict[str, list[Fact]] = {}
    for fact in every:
        if fact.type != "digest":
            days.setdefault(_day(fact.at), []).append(fact)
    for day, learnt in sorted(days.items()):
        texts[f"{FOLDER}/daily/{day}.md"] = _page(day, *_by_type(learnt))
    texts[EXPORTED] = "".join(map(_exported_line, every))
    return texts


def read_folder(texts: Mapping[str, str]) -> FolderRead:
    """The lines of a folder's files, by path; paths that are not of the layout are left alone."""
    lines: list[FolderLine] = []
    passed_over: list[str] = []
    for path in sorted(texts):
        if path in MAIN_FILES or day_of(path) is not None:
            lines += _read_page(path, texts[path], passed_over)
    exported = [text.split() for text in texts.get(EXPORTED, "").split("\n") if text.strip()]
    ids = [FactId(read_id(words[0])) for words in exported]
    return FolderRead(
        lines=tuple(lines),
        exported=frozenset(
            id_ for id_, words in zip(ids, exported, strict=True) if _PAST not in words[2:]
        ),
        written={id_: words[1] for id_, words in zip(ids, exported, strict=True) if len(words) > 1},
        absent=tuple(path for path in MAIN_FILES if exported and path not in texts),
        passed_over=tuple(passed_over),
    )


def _page(title: str, *sections: str) -> str:
    return "\n\n".join((f"# {title}", _HOW, *filter(None, sections))) + "\n"


def _by_type(facts: Sequence[Fact]) -> Iterator[str]:
    for type_, heading in HEADINGS.items():
        lines = [_line(fact) for fact in facts if fact.type == type_]
        if lines:
            yield "\n".join((f"## {heading}", "", *lines))


def _by_subject(digests: Sequence[Fact]) -> Iterator[str]:
    """Those without a subject first: nothing stands above them."""
    for subject in sorted({fact.subject for fact in digests}):
        lines = [_line(fact) for fact in digests if fact.subject == subject]
        yield "\n".join((f"## {_escaped(subject)}", "", *lines) if subject else lines)


def _line(fact: Fact) -> str:
    lines = [_day(fact.at), SAID[fact.trust], MADE[fact.made_by]]
    if fact.pinned:
        lines.append("pinned")
    if fact.valid_to is not None:
        lines.append(f"{_UNTIL}{_day(fact.valid_to)}")
    words = fact.content if fact.type == "digest" else fact.told
    if words != fact.content and without_subject(words) == fact.content:
        lines.append(_WITH_SUBJECT)
    else:
        words = fact.content
    return write_item(words, id=fact.id, note=", ".join(lines))


def _exported_line(fact: Fact) -> str:
    past = "" if fact.current else f" {_PAST}"
    return f"{spelled_id(fact.id)} {line_mark(fact.content)}{past}\n"


def _day(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d").rjust(10, "0")
    except (ValueError, OverflowError, OSError):  # no day of this calendar
        return "0001-01-01"


def _read_page(path: str, text: str, passed_over: list[str]) -> Iterator[FolderLine]:
    heading = ""
    for number, kind, lines in _blocks(text):
        if kind == "heading":
            heading = lines[0]
        elif kind == "item":
            item = read_item(lines)
            if item.content or item.id is not None:
                yield _folder_line(path, number, heading, item)
        else:
            passed_over.append(f"{path}:{number}")


def _folder_line(path: str, number: int, heading: str, item: ListItem) -> FolderLine:
    type_: FactType | None = _TYPES.get(heading.strip().casefold())
    if path == PREFERENCES:
        type_ = "preference"
    elif path == RESEARCH:
        type_ = "digest"
    lines = item.note.split(", ")
    about = _SUBJECT.search(item.content) if _WITH_SUBJECT in lines else None
    subject = read_item([heading]).content if path == RESEARCH else ""
    trusts = (_TRUSTS.get(text) for text in lines)
    return FolderLine(
        path=path,
        number=number,
        content=item.content if about is None else item.content[: about.start()],
        id=None if item.id is None else FactId(item.id),
        type=type_,
        subject=subject if about is None else about[1],
        day=day_of(path),
        trust=next((trust for trust in trusts if trust is not None), None),
        replaced=any(text.startswith(_UNTIL) for text in lines),
    )


def _blocks(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Headings, items and stray lines, each with the number of its first line.

    A title, `# …`, is a heading of nothing. What follows an item without a blank line, or is
    indented, belongs to it.
    """
    item: tuple[int, list[str]] | None = None
    in_comment = after_blank = False
    for number, ended in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = ended.rstrip()
        bare = line.lstrip()
        starts = not line[:1].isspace()
        if in_comment or (starts and bare.startswith("<!--")):
            in_comment = "-->" not in bare
            continue
        if not bare:
            after_blank = True
            continue
        bullet = _ITEM.match(line) if starts else None
        heading = _HEADING.match(bare) if starts else None
        if item is not None and (bullet or heading or (starts and after_blank)):
            yield item[0], "item", item[1]
            item = None
        if bullet:
            item = (number, [line[bullet.end() :]])
        elif heading:
            yield number, "heading", ["" if bare.startswith("# ") else heading[1]]
        elif item is not None:
            item[1].append(line)
        else:
            yield number, "stray", [line]
        after_blank = False
    if item is not None:
        yield item[0], "item", item[1]
