"""Facts as Markdown: written, edited as people edit, and read back."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from hypothesis import example, given
from hypothesis import strategies as st

from recollect.formats.memory_folder import (
    EXPORTED,
    FACTS,
    MAIN_FILES,
    PREFERENCES,
    RESEARCH,
    belongs,
    read_folder,
    write_folder,
)
from recollect.values.fact import EXTRACTED_TYPES, Fact, FactId, FactType, MadeBy
from recollect.values.segment import Trust

NOON = 1_794_744_000.0  # 2026-11-15 12:00 UTC
AWKWARD = (
    "",
    "[x] done [maybe]",
    "[ ]",
    "\n",
    "a\n\nb\n",
    "- a list\n# a heading\n  indented\n",
    "ends --> and begins <!-- fact abc -->",
    "C:\\new\\<tab> \\\\server &#10; &amp;",
    "用户偏好深色主题。\n第二行",
    "\ufeff\u2028\x85\r\n\x00\x1b[31m\u3000",
    "trailing  ",
)


def fact(content: str, **changes: object) -> Fact:
    made = Fact(id=FactId("f1"), type="decision", content=content, at=NOON)
    return replace(made, **changes)  # type: ignore[arg-type]


ANY_FACT = st.builds(
    Fact,
    id=st.text(min_size=1).map(FactId),
    type=st.sampled_from((*EXTRACTED_TYPES, "digest")),
    content=st.one_of(
        st.text(), st.text(alphabet="\\<!->&#10; \n\tx-fact"), st.sampled_from(AWKWARD)
    ),
    subject=st.text(),
    at=st.floats(min_value=0, max_value=4e9),
    trust=st.sampled_from(get_args(Trust)),
    made_by=st.sampled_from(get_args(MadeBy)),
    pinned=st.booleans(),
    valid_to=st.none() | st.floats(min_value=0, max_value=4e9),
)


@given(st.lists(ANY_FACT, max_size=6, unique_by=lambda one: one.id))
@example([fact(text, id=FactId(str(number))) for number, text in enumerate(AWKWARD)])
@example([fact(text, id=FactId(str(number)), type="digest") for number, text in enumerate(AWKWARD)])
def test_what_was_written_is_read_back(facts: list[Fact]) -> None:
    texts = write_folder(facts)
    assert texts == write_folder(reversed(facts))
    encoded = {path: text.encode("utf-8") for path, text in texts.items()}
    folder = read_folder({path: data.decode("utf-8") for path, data in encoded.items()})
    assert folder.passed_over == ()
    main = [line for line in folder.lines if line.path in MAIN_FILES]
    current = {one.id: one for one in facts if one.valid_to is None}
    assert {line.id for line in main} == set(current) == set(folder.exported)
    assert len(main) == len(current)
    for line in main:
        assert line.id is not None
        meant = current[line.id]
        assert (line.content, line.type, line.trust) == (meant.content, meant.type, meant.trust)
        shown = meant.type == "digest" or line.subject != ""
        assert line.subject == (meant.subject if shown else "")
    daily = {line.id: line.content for line in folder.lines if line.day is not None}
    assert daily == {one.id: one.content for one in facts if one.type != "digest"}


@given(st.text())
@example("# a\n\n - b\n-\n- c")
def test_any_text_can_be_read(text: str) -> None:
    folder = read_folder(dict.fromkeys((*MAIN_FILES, EXPORTED), text))
    for line in folder.lines:
        assert text.split("\n")[line.number - 1].lstrip("\ufeff")[:1] in ("-", "*", "+")


def test_files_hold_what_their_names_say() -> None:
    texts = write_folder(
        [
            fact("tabs, never spaces", id=FactId("p"), type="preference", pinned=True),
            fact("deploys go through Fly", id=FactId("d")),
            fact("port is 8000", id=FactId("c1"), type="config", valid_to=NOON + 86_400),
            fact("port is 9000", id=FactId("c2"), type="config", at=NOON + 86_400),
            fact("what is known of Fly", id=FactId("g"), type="digest", subject="fly"),
        ]
    )
    assert sorted(texts) == [
        "memory/.exported",
        "memory/daily/2026-11-15.md",
        "memory/daily/2026-11-16.md",
        "memory/facts.md",
        "memory/preferences.md",
        "memory/research_history.md",
    ]
    assert (
        "- tabs, never spaces <!-- fact p, 2026-11-15, said by the assistant, imported, pinned -->"
        in texts[PREFERENCES]
    )
    assert "## Decisions\n\n- deploys go through Fly <!--" in texts[FACTS]
    assert "port is 8000" not in texts[FACTS]
    assert "port is 8000" in texts["memory/daily/2026-11-15.md"]
    assert "until 2026-11-16" in texts["memory/daily/2026-11-15.md"]
    assert "## fly\n\n- what is known of Fly" in texts[RESEARCH]
    assert all(belongs(path) for path in texts)
    assert not belongs("memory/daily/../../etc/2026-11-15.md")


def test_lines_are_read_as_people_write_them() -> None:
    page = (
        "\ufeff# My facts\r\n\r\n"
        "Some prose of my own.\r\n\r\n"
        "## task STATE\r\n"
        "*   the import is half done\r\n"
        "    and waits for Ana\r\n"
        "- ship on Friday\r\n"
        "-\r\n\r\n"
        "## Birds\r\n"
        "- a path C:\\new <!-- fact f%2F9, whatever --> added behind the mark\r\n"
    )
    folder = read_folder({FACTS: page, "memory/other.md": "- not ours"})
    assert [(line.number, line.type, line.id, line.content) for line in folder.lines] == [
        (6, "task_state", None, "the import is half done\nand waits for Ana"),
        (8, "task_state", None, "ship on Friday"),
        (12, None, "f/9", "a path C:\\new added behind the mark"),
    ]
    assert folder.passed_over == (f"{FACTS}:3",)


def test_every_type_has_its_place() -> None:
    types: tuple[FactType, ...] = (*EXTRACTED_TYPES, "digest")
    texts = write_folder([fact("x", id=FactId(type_), type=type_) for type_ in types])
    folder = read_folder(texts)
    assert {line.id: line.type for line in folder.lines if line.path in MAIN_FILES} == {
        type_: type_ for type_ in types
    }


def test_a_subject_that_the_words_leave_open_is_shown_and_taken_off() -> None:
    carried = fact("it's port 9000.", subject="api billing", type="config")
    plain = fact("the API is on 9000", id=FactId("f2"), subject="api", type="config")
    texts = write_folder([carried, plain])
    assert "- it's port 9000. [api billing] <!--" in texts[FACTS]
    assert "- the API is on 9000 <!--" in texts[FACTS]
    first, second = (line for line in read_folder(texts).lines if line.path == FACTS)
    assert (first.content, first.subject) == ("it's port 9000.", "api billing")
    assert (second.content, second.subject) == ("the API is on 9000", "")


def test_a_box_is_no_part_of_a_statement() -> None:
    page = "## Task state\n- [x] buy milk\n* [ ] [draft] send it\n- [y] keep\n- [ ]\n"
    lines = read_folder({FACTS: page}).lines
    assert [line.content for line in lines] == ["buy milk", "[draft] send it", "[y] keep"]
