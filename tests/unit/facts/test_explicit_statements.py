"""What the rules take for a fact, with its type, its words and what it replaces."""

from __future__ import annotations

import pytest
from tests.unit.facts.saying import only, said

from recollect.facts.statements import find_statements


@pytest.mark.parametrize(
    ("text", "type_", "content"),
    [
        (
            "ok so please remember that the staging api listens on 8443, thanks!",
            "config",
            "the staging api listens on 8443",
        ),
        ("btw we decided to go with Postgres", "decision", "we decided to go with Postgres"),
        ("Please never push to main directly", "preference", "never push to main directly"),
        ("I prefer short answers", "preference", "I prefer short answers"),
        ("no emojis in commit messages", "preference", "no emojis in commit messages"),
        ("from now on write commits in English", "preference", None),
        ("the config lives in /etc/app/main.toml", "config", None),
        ("we're on Node 20", "config", None),
        ("nightly backups run at 03:30", "config", None),
        ("refund logic isn't implemented yet", "task_state", None),
        ("the payment rework is blocked by legal", "task_state", None),
        ("记住测试环境端口是9000", "config", "测试环境端口是9000"),
        ("我们决定改用 PostgreSQL", "decision", "我们决定改用 PostgreSQL"),
        ("以后提交信息一律用英文", "preference", "以后提交信息一律用英文"),
        ("退款逻辑还没做", "task_state", "退款逻辑还没做"),
        ("訂單服務的埠號是 8443", "config", "訂單服務的埠號是 8443"),
        ("請記住，別在週五發佈", "preference", "別在週五發佈"),
        ("staging 的 API 端口是 9000", "config", "staging 的 API 端口是 9000"),
        ("commit message 一律用 English", "preference", None),
    ],
)
def test_a_plain_statement_is_taken(text: str, type_: str, content: str | None) -> None:
    draft = only(text)
    assert draft.type == type_
    assert draft.content == (content or text)
    assert (draft.made_by, draft.trust, draft.session) == ("rules", "high", "work")
    assert draft.at == 1_700_000_000.0


@pytest.mark.parametrize(
    ("text", "replaces"),
    [
        ("sorry, the port is 9000, not 8000", "8000"),
        ("we're going with Postgres instead of MySQL", "MySQL"),
        ("let's switch from Jenkins to Buildkite", "Jenkins"),
        ("说错了，端口不是8000，而是9000", "8000"),
        ("数据库从 MySQL 换成 PostgreSQL 了", "MySQL"),
    ],
)
def test_a_correction_names_what_it_replaces(text: str, replaces: str) -> None:
    draft = only(text)
    assert draft.corrects
    assert draft.replaces == replaces


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("The timeout is 30 seconds", "config"),
        ("The port is 8080", "config"),
        ("端口是 8080", "config"),
        ("超时时间是 30 秒", "config"),
        ("The staging port is 8080", "config"),
        ("minSdkVersion is 24", "config"),
        ('The theme is "solarized"', "config"),
        ("The entry point is `main.py`", "config"),
        ("Output goes to /srv/media/subs", "config"),
        ("Use 4 spaces for indentation", "decision"),
        ("It's fine to skip tests", "preference"),
        ("Every commit must be signed", "preference"),
        ("we never deploy on Fridays", "preference"),
        ("you must never push to main", "preference"),
        ("We picked a monorepo", "decision"),
        ("let's call it Marten", "decision"),
    ],
)
def test_an_explicit_form_is_taken(text: str, type_: str) -> None:
    draft = only(text)
    assert (draft.content, draft.type) == (text, type_)


def test_a_value_of_something_unnamed_meets_no_other() -> None:
    assert only("The timeout is 30 seconds").subject == ""


@pytest.mark.parametrize(
    ("text", "subject", "attribute"),
    [
        ("Version 2.3 is broken", "2.3 version", "state"),
        ("We're moving to Postgres 16", "postgresql", "version"),
        ("We use Postgres 16", "postgresql", "version"),
        ("port 8443 is blocked", "8443 port", "state"),
    ],
)
def test_the_subject_is_what_the_sentence_is_about(text: str, subject: str, attribute: str) -> None:
    draft = only(text)
    assert (draft.subject, draft.attribute) == (subject, attribute)


def test_a_sentence_in_the_middle_of_chatter_is_its_own_evidence() -> None:
    text = "hey! long day. the staging api listens on 8443. can you look at the login page?"
    draft = only(text)
    (evidence,) = draft.evidence
    assert text[evidence.start : evidence.end] == "the staging api listens on 8443."


def test_a_list_of_values_makes_a_draft_of_each() -> None:
    drafts = find_statements(said("the api runs on 8080 and the web app runs on 3000")).drafts
    assert [draft.content for draft in drafts] == [
        "the api runs on 8080",
        "the web app runs on 3000",
    ]
    assert len({draft.evidence for draft in drafts}) == 1


def test_what_stands_below_a_heading_of_ones_own_is_taken() -> None:
    text = "Please remember these:\n- tabs in Go files\n- the demo is for Halvorsen\n\nthanks"
    contents = [draft.content for draft in find_statements(said(text)).drafts]
    assert contents == ["tabs in Go files", "the demo is for Halvorsen"]


def test_what_an_agent_did_is_taken_with_its_trust() -> None:
    draft = only("I've moved the retry logic to `lib/retry.py`.", "assistant")
    assert (draft.type, draft.trust) == ("implementation", "medium")


def test_own_words_behind_a_paste_are_read_again() -> None:
    text = "their README says:\n\nWe decided to use Oracle.\n\nAnyway, we decided to use Postgres."
    assert only(text).content == "we decided to use Postgres."


def test_the_same_statement_twice_in_a_message_is_one_draft() -> None:
    text = "the staging api listens on 8443.\nhello\nThe staging API listens on 8443."
    assert only(text).content == "the staging api listens on 8443."


def test_a_long_sentence_is_kept_around_what_it_states() -> None:
    chatter = (
        "Tamara and Joost and everybody at the offsite read all of the notes with great care, "
    )
    text = chatter * 3 + "we decided to use Postgres for the ledger"
    draft = only(text)
    assert len(draft.content) <= 200
    assert "we decided to use Postgres" in draft.content


@pytest.mark.parametrize(
    "text",
    [
        "We agreed to disagree.",
        "In the end we agreed to disagree about tabs and spaces.",
        "We decided to sleep on it.",
        "We decided not to decide yet.",
        "Everyone agreed in principle.",
        "We have agreed to meet again.",
        "我们决定求同存异。",
    ],
)
def test_an_agreement_that_settles_nothing_is_no_decision(text: str) -> None:
    assert find_statements(said(text)).drafts == ()


@pytest.mark.parametrize(
    "text",
    [
        "We decided to wait for version 3 before upgrading.",
        "We agreed to meet every Monday at 10:00.",
        "We decided to postpone the release.",
        "We settled on Grammarly.",
    ],
)
def test_an_agreement_on_something_is_a_decision(text: str) -> None:
    assert only(text).type == "decision"
