"""What always holds of the rules, whatever they are given."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.facts.saying import said

from recollect.facts.statements import MOST_CONTENT_CHARS, MOST_DRAFTS, find_statements

STATEMENTS = st.sampled_from(
    [
        "the staging api listens on 8443",
        "We decided to use Postgres instead of MySQL.",
        "please never push to main",
        "sorry, the port is 9000, not 8000",
        "记住测试环境端口是9000，不是8000",
        "我們決定改用 PostgreSQL。",
        "退款逻辑还没做",
        "nice weather today",
        "İ remember that the İ port is 80",
    ]
)
PIECES = st.one_of(
    STATEMENTS,
    st.sampled_from(["\n", "\n\n", " ", "> ", "```\n", "- ", "; ", "“", "”", '"', "。", ":", "\t"]),
    st.text(max_size=12),
)
TEXTS = st.lists(PIECES, max_size=14).map("".join)
SECRET_PLACE = "remember that the hidden port is 4711"


@given(TEXTS, st.sampled_from(["user", "assistant"]))
def test_a_draft_is_words_of_its_span(text: str, role: str) -> None:
    segment = said(text, role)  # type: ignore[arg-type]
    found = find_statements(segment)
    assert len(found.drafts) <= MOST_DRAFTS
    for draft in found.drafts:
        (evidence,) = draft.evidence
        assert evidence.segment == segment.id
        assert 0 <= evidence.start < evidence.end <= len(text)
        span = " ".join(text[evidence.start : evidence.end].split())
        assert draft.content
        assert draft.content in span
        assert draft.replaces in text[evidence.start : evidence.end]
        assert len(draft.content) <= MOST_CONTENT_CHARS
        assert draft.trust == segment.trust
        assert draft.made_by == "rules"
    assert find_statements(segment) == found


@given(TEXTS)
def test_a_tool_never_makes_a_draft(text: str) -> None:
    assert find_statements(said(text, "tool")).drafts == ()
    assert find_statements(said(text, "tool", tool="bash")).drafts == ()


@given(
    TEXTS,
    st.sampled_from(["```\n{}\n```", "~~~ sh\n{}\n~~~", "> {}", "    {}", "<doc>\n{}\n</doc>"]),
)
def test_nothing_comes_out_of_code_or_quotes(before: str, around: str) -> None:
    for mark in ("`", "~", '"', "'", "<"):  # what opens a block of its own before ours
        before = before.replace(mark, "")
    text = f"{before}\n\n{around.format(SECRET_PLACE)}\n"
    assert not any("4711" in draft.content for draft in find_statements(said(text)).drafts)


@given(TEXTS, TEXTS, st.booleans())
def test_nothing_comes_out_of_a_recalled_block(before: str, inside: str, closed: bool) -> None:
    opening = '<recalled-context source="memory-context">'
    inside = inside.replace("</recalled-context>", "")
    end = "</recalled-context>" if closed else ""
    text = f"{before}\n{opening}\n{inside}\n{SECRET_PLACE}\n{end}"
    start = text.index(opening)
    for draft in find_statements(said(text)).drafts:
        assert draft.evidence[0].end <= start


MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    "unit",
    [
        "the port is 9000. ",
        "the port is 9000\n",
        "a",
        "a ",
        "a/",
        "1,",
        "don't ",
        "，端口是",
        "没有",
        "`",
        '"',
        "[",
        "<a ",
        " ",
        "we decided to use a, ",
        "<recalled-context ",
        "[thinking]\n",
        "x" * 590 + ". ",
        "端口是" * 190 + "。",
        "a-" * 290 + ". ",
    ],
    ids=lambda unit: repr(unit[:12]),
)
def test_a_megabyte_takes_well_under_a_second(unit: str) -> None:
    segment = said(unit * (MEGABYTE // len(unit)))
    spent = []
    for _ in range(3):  # the fastest: others use this machine, too
        started = time.process_time()
        find_statements(segment)
        spent.append(time.process_time() - started)
        if spent[-1] < 0.5:
            break
    assert min(spent) < 0.5
