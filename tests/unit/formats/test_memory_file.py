"""Where a memory file is cut, and what each section says of itself."""

import re

from hypothesis import given
from hypothesis import strategies as st

from recollect.core.transfer.file_sections import SECTION_CHARS, FileSection, read_sections


def told(text: str) -> list[tuple[int, str]]:
    return [(one.first_line, one.text) for one in read_sections(text)]


def test_a_section_is_a_heading_with_its_body_and_names_what_stands_above() -> None:
    text = "Before.\n\n# Projects\nAll of them.\n\n## Payments\nRetry.\n\n# Home ##\nRoses.\n"
    assert told(text) == [
        (1, "Before."),
        (3, "Projects\n\nAll of them."),
        (6, "Projects › Payments\n\nRetry."),
        (9, "Home\n\nRoses."),
    ]


def test_a_heading_without_body_is_kept_only_where_nothing_stands_below_it() -> None:
    text = "# Notes\n\n## Call Bob on Tuesday\n\n## Ideas\nA boat.\n"
    assert told(text) == [(3, "Notes › Call Bob on Tuesday"), (5, "Notes › Ideas\n\nA boat.")]


def test_code_holds_no_headings() -> None:
    code = "```sh\n# not a heading\nmake\n\n~~~\n## nor this\n```\n    # nor code\n"
    text = f"# Run\n{code}# Stop\nNow.\n"
    found = read_sections(text)
    assert [one.headings for one in found] == [("Run",), ("Stop",)]
    assert "## nor this" in found[0].text


def test_a_long_section_is_cut_at_its_paragraphs() -> None:
    paragraphs = [f"Paragraph {n}. " + "The crane lifts the cargo. " * 50 for n in range(6)]
    text = "# Quay\n\n" + "\n\n".join(paragraphs) + "\n"
    found = read_sections(text)
    assert len(found) == 3
    assert [one.first_line for one in found] == [1, 7, 11]
    lines = text.split("\n")
    for one in found:
        assert one.text.startswith("Quay\n\nParagraph")
        assert len(one.text) <= SECTION_CHARS + 10
    for one in found[1:]:
        assert lines[one.first_line - 1] in one.text


def test_the_text_is_not_in_the_repr() -> None:
    assert "Retry" not in repr(read_sections("# Pay\nRetry\n"))


SHAPES = """# A|## B|### C|| |text|more words|```|~~~|---|===|- item|    code|key: value|> quote
+++|#|Title"""
LINES = st.sampled_from([*SHAPES.replace("\n", "|").split("|"), "\r", "x" * 3_000])


@given(st.lists(LINES, max_size=40))
def test_every_line_with_words_is_in_a_section_or_in_its_headings(lines: list[str]) -> None:
    numbered = [
        f"{line} n{at}" if line.strip("\r `~-=+#") else line for at, line in enumerate(lines)
    ]
    text = "\n".join(numbered)
    found = read_sections(text)
    assert [one.first_line for one in found] == sorted(one.first_line for one in found)
    bodies = "\n".join(_body(one) for one in found)
    for at, line in enumerate(numbered):
        mark = f"n{at}"
        if re.search(rf"\b{mark}\b", line):
            in_body = re.search(rf"\b{mark}\b", bodies)
            in_headings = any(re.search(rf"\b{mark}\b", h) for one in found for h in one.headings)
            assert in_body or in_headings, (at, line)
    assert found == read_sections(text)


def _body(section: FileSection) -> str:
    crumbs = " › ".join(section.headings)
    return section.text.removeprefix(crumbs)


def test_a_heading_longer_than_a_line_is_not_lost() -> None:
    title = " ".join(f"word{n}" for n in range(100))
    (found,) = read_sections(f"# {title}\nbody\n")
    assert title in found.text
    assert len(found.headings[0]) < len(title)


def test_one_endless_line_is_cut_and_nothing_is_lost() -> None:
    line = " ".join(f"w{n}" for n in range(5_000))
    found = read_sections(line)
    assert {one.first_line for one in found} == {1}
    assert all(len(one.text) <= SECTION_CHARS for one in found)
    assert " ".join(one.text for one in found) == line
