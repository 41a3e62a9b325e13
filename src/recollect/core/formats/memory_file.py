"""Sections of a Markdown file with their line numbers. Text is cut at headings, a long section at
paragraphs, else at lines. Each section repeats the headings above it; only blank lines are lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

SECTION_CHARS = 4_000
HEADING_CHARS = 200

_LEAST_BODY_CHARS = 1_000
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSection:
    """A piece of a file that is stored as one: its headings on one line, then its body."""

    headings: tuple[str, ...] = field(repr=False)
    text: str = field(repr=False)
    first_line: int
    """From 1; the line of the heading if one begins the section."""
    last_line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _SectionHeading:
    level: int
    title: str


def read_sections(text: str) -> tuple[FileSection, ...]:
    """Split a file's text into sections."""
    return tuple(_MarkdownLines(text).sections())


class _MarkdownLines:
    def __init__(self, text: str) -> None:
        self.lines = [line.removesuffix("\r") for line in text.split("\n")]
        self.sizes = [0, *accumulate(len(line) + 1 for line in self.lines)]
        self.fenced: set[int] = set()
        self.headings = dict(self._headings())

    def sections(self) -> Iterator[FileSection]:
        """Yield the text before the first heading, then heading by heading."""
        marks = [*sorted(self.headings), len(self.lines)]
        yield from self._section((), 0, 0, marks[0])
        above: list[_SectionHeading] = []
        for at, following in pairwise(marks):
            heading = self.headings[at]
            while above and above[-1].level >= heading.level:
                above.pop()
            above.append(heading)
            path = tuple(one.title[:HEADING_CHARS] for one in above if one.title)
            below = self.headings.get(following)
            parent = below is not None and below.level > heading.level
            body = at if len(heading.title) > HEADING_CHARS else at + 1
            yield from self._section(path, at, body, following, alone=not parent)

    def _section(
        self, path: tuple[str, ...], at: int, body: int, end: int, *, alone: bool = False
    ) -> Iterator[FileSection]:
        crumbs = " › ".join(path)
        most_chars = max(SECTION_CHARS - len(crumbs), _LEAST_BODY_CHARS)
        first: int | None = at
        for start, last, words in self._pieces(body, end, most_chars):
            yield FileSection(
                headings=path,
                text=f"{crumbs}\n\n{words}" if crumbs else words,
                first_line=(start if first is None or not path else first) + 1,
                last_line=last + 1,
            )
            first = None
        if first is not None and alone and crumbs:
            yield FileSection(headings=path, text=crumbs, first_line=at + 1, last_line=body)

    def _pieces(self, body: int, end: int, most_chars: int) -> Iterator[tuple[int, int, str]]:
        begun: tuple[int, int] | None = None
        for first, last in self._units(body, end, most_chars):
            if begun is not None and self._size(begun[0], last) <= most_chars:
                begun = (begun[0], last)
                continue
            if begun is not None:
                yield from self._written(*begun, most_chars)
            begun = (first, last)
        if begun is not None:
            yield from self._written(*begun, most_chars)

    def _units(self, body: int, end: int, most_chars: int) -> Iterator[tuple[int, int]]:
        for first, last in self._blocks(body, end):
            if self._size(first, last) <= most_chars:
                yield first, last
            else:
                yield from ((at, at) for at in range(first, last + 1) if self.lines[at].strip())

    def _blocks(self, body: int, end: int) -> Iterator[tuple[int, int]]:
        first: int | None = None
        last = body
        for at in range(body, end):
            if first is not None and self._goes_on(at):
                last = at
            elif self.lines[at].strip():
                if first is not None:
                    yield first, last
                first = last = at
            elif first is not None:
                yield first, last
                first = None
        if first is not None:
            yield first, last

    def _goes_on(self, at: int) -> bool:
        if at in self.fenced:
            return True
        return bool(self.lines[at].strip()) and bool(self.lines[at - 1].strip())

    def _size(self, first: int, last: int) -> int:
        return self.sizes[last + 1] - self.sizes[first] - 1

    def _written(self, first: int, last: int, most_chars: int) -> Iterator[tuple[int, int, str]]:
        if first < last or len(self.lines[first]) <= most_chars:
            yield first, last, "\n".join(self.lines[first : last + 1])
            return
        line = self.lines[first]
        at = 0
        while at < len(line):
            stop = at + most_chars
            space = line.rfind(" ", at + most_chars // 2, stop) if stop < len(line) else -1
            stop = space if space > 0 else stop
            if words := line[at:stop].strip():
                yield first, last, words
            at = stop

    def _headings(self) -> Iterator[tuple[int, _SectionHeading]]:
        fence = ""
        for at in range(len(self.lines)):
            line = self.lines[at]
            if fence:
                self.fenced.add(at)
                stripped = line.strip()
                closes = stripped.startswith(fence) and not stripped.strip(fence[0])
                if closes and not line.startswith("    "):
                    fence = ""
            elif opened := _FENCE.match(line):
                fence = opened[1]
            elif atx := _ATX.fullmatch(line):
                title = (atx[2] or "").strip()
                yield at, _SectionHeading(level=len(atx[1]), title=title)
