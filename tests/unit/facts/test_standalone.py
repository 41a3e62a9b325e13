"""A fact can be understood without the conversation that it was said in."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.facts.fact_segments import talk
from tests.unit.facts.saying import said

from recollect.facts.extract import Extracted, extract
from recollect.facts.statements import find_statements
from recollect.values.message import Role


def read(*turns: tuple[Role, str]) -> Extracted:
    return asyncio.run(extract(talk(*turns), (), model=None, max_output_tokens=100, now=1e9))


def contents(found: Extracted) -> list[str]:
    return [draft.content for draft in found.drafts]


@pytest.mark.parametrize(
    ("role", "content"),
    [
        ("assistant", "Added them to the `ThemeColor` type"),
        ("assistant", "All three use the same accent color."),
        ("assistant", "This uses the bash-executor we created in WP1"),
        ("assistant", "It uses `getThemesDir()` which we fixed."),
        ("assistant", "The fix is to make `Text.invalidate()` invalidate when called."),
        ("assistant", "When the file changes, it reloads the theme and calls `onThemeChange`"),
        ("assistant", "The new method retrieves the map using `self.coder.get_repo_map()`."),
        ("assistant", "Reads output asynchronously and writes it to stdout in real-time."),
        ("assistant", "It uses port 9000 instead."),
        ("user", "dimGray should be that, no need for linkGray"),
        ("user", "it listens on 8081 in the lab"),
        ("user", "the reason is a family emergency"),
        ("user", "它监听 8081 端口"),
        ("user", "这个是放在 /srv/data 下面的"),
    ],
)
def test_what_points_elsewhere_is_refused(role: Role, content: str) -> None:
    assert contents(read((role, content))) == []


@pytest.mark.parametrize(
    ("role", "content"),
    [
        ("user", "this repo uses pnpm, never npm"),
        ("user", "both staging and prod are on port 5432"),
        ("user", "never touch the legacy folder"),
        ("user", "we decided to go with plan B."),
        ("user", "Postgres it is"),
        ("user", "以后别碰 legacy 目录"),
        ("assistant", "The payment bug is fixed in `billing/totals.py`."),
        ("assistant", "I've created `themes/custom.json` from the dark theme."),
        ("assistant", "The cause is settled: the ingress closes idle sockets after 60 s."),
    ],
)
def test_what_names_its_subject_stands(role: Role, content: str) -> None:
    assert contents(read((role, content))) == [content]


@pytest.mark.parametrize("content", ["make that 9000", "sorry, it's 9000", "说错了，是 7020"])
def test_a_users_correction_in_half_a_sentence_passes(content: str) -> None:
    (draft,) = read(("user", content)).drafts
    assert draft.corrects


@pytest.mark.parametrize(
    "content",
    [
        "the venture-scale thesis is not “better Shields.io.” It is",
        "Fixed the `TruncatedText` component to",
        "New York City is served by three major airports: John F.",
        "the @packages/coding-agent/docs/refactor.md file",
        "All slash command implementations (/export, /copy, /session)",
        "The limit of `upload is 20 MB",
        "the limit (for uploads is 20 MB",
        "my dog's name?",
    ],
)
def test_a_piece_of_a_sentence_is_refused(content: str) -> None:
    assert contents(read(("user", content))) == []


def test_what_the_message_goes_on_with_was_cut_off() -> None:
    whole = "We decided to support two genomes only and to expose three surfaces"
    assert contents(read(("user", whole))) == [whole]
    assert contents(read(("user", f"{whole} of"))) == []


@pytest.mark.parametrize(
    "line",
    [
        "+ 8 - **Text Color**: User messages now respect `userMessageText`",
        "14 - **Width**: Fixed the `TruncatedText` component",
        "270 | the port of the API is 8080 in `config.py`",
        "E TypeError: '>' is not supported between instances",
    ],
)
def test_a_line_of_a_listing_is_refused(line: str) -> None:
    for text in (f"look:\n{line}\nthanks", f"have a look\n{line}\nthanks", line):
        assert contents(read(("user", text))) == []


def test_a_line_broken_for_its_length_is_half_a_sentence() -> None:
    lines = [
        "We decided that the gateway of the shop reads its routes from the folder of the",
        "release, where a nightly job of the warehouse puts the newest one each night, too",
    ]
    assert contents(read(("user", "\n".join(lines)))) == []
    (draft,) = read(("user", f"{lines[0]} release\ncan you look at it")).drafts
    assert draft.content.endswith("release")


@pytest.mark.parametrize(
    ("role", "content"),
    [
        ("user", "be dimmer, don't modify the theme, look into the footer sources"),
        ("user", "we still need to port selector.ts based on the other files"),
        ("user", "remove `cache_missing` and use tqdm below 95%"),
        ("user", "don't modify `send_with_retries` yet"),
        ("user", "TODO write the docs for the CLI"),
        ("user", "TODO: never call the old API here"),
        ("assistant", "The build is failing because the TUI package exports no themes."),
        ("assistant", "The suite passes: `ruff`, `mypy` and `pytest` all passed."),
        ("assistant", "We need to modify `scrape_with_playwright` in `scrape.py`."),
        ("assistant", "I'll put the config into `/tmp/notes.txt`."),
    ],
)
def test_what_ends_with_the_turn_is_refused(role: Role, content: str) -> None:
    assert contents(read((role, content))) == []


def test_an_acknowledgement_adds_nothing() -> None:
    said = "We decided to keep the invoices in Postgres 15, not in Mongo."
    found = read(("user", said), ("assistant", "We decided to keep the invoices in Postgres 15"))
    assert contents(found) == [said]
    assert "it says again what the user said" in [one.reason for one in found.refused]
    more = "I've moved the invoices to Postgres 15 in `billing/store.py`, with a nightly dump."
    assert contents(read(("user", said), ("assistant", more))) == [said, more]


def test_the_answer_to_a_question_is_the_assistants_own() -> None:
    asked = "does the ledger listen on port 8443?"
    answer = "The ledger's port is now 8443."
    assert contents(read(("user", asked), ("assistant", answer))) == [answer]


COUNTER: tuple[tuple[Role, str], ...] = (
    ("user", "Hi, I want to change something."),
    ("assistant", "Of course! Please share your user ID and your reservation number."),
)


@pytest.mark.parametrize("content", ["my email is yara@example.com", "I prefer an aisle seat"])
def test_a_customers_case_at_a_counter_is_nobodys(content: str) -> None:
    found = read(*COUNTER, ("user", content))
    assert contents(found) == []
    assert "the case of somebody who is not named" in [one.reason for one in found.refused]
    assert contents(read(("user", content))) == [content]


def test_what_holds_for_every_customer_is_left_to_a_model() -> None:
    policy = "Basic economy tickets cannot be canceled unless booked within 24 hours."
    assert contents(read(*COUNTER, ("assistant", policy))) == []


def test_a_developers_talk_of_orders_is_no_counter() -> None:
    aws = "Your AWS account ID goes into the profile; the order table has a number."
    mail = "my email is dev@example.com"
    assert contents(read(("assistant", aws), ("user", mail))) == [mail]


@pytest.mark.parametrize(
    ("role", "content", "kind"),
    [
        ("user", "My name is Mohamed Silva", "config"),
        ("user", "never drop a table in prod, always rename it", "preference"),
        ("user", "refund logic is not implemented yet", "task_state"),
        ("user", "Anna owns the billing service", "architecture"),
        ("assistant", "the client ping interval is now 25s", "config"),
        ("assistant", "I've moved the selector to `src/theme.ts`", "implementation"),
    ],
)
def test_the_type_is_that_of_what_is_said(role: Role, content: str, kind: str) -> None:
    (draft,) = read((role, content)).drafts
    assert draft.type == kind


def test_extraction_refuses_with_the_reason_and_without_the_words() -> None:
    found = read(
        ("user", "hello"),
        ("assistant", "I've moved the loader to `src/world/loader.rs`."),
        ("assistant", "It now uses `getThemesDir()` from `src/paths.ts`."),
    )
    assert contents(found) == ["I've moved the loader to `src/world/loader.rs`."]
    assert all("getThemesDir" not in one.reason for one in found.refused)


@given(st.text(min_size=1, max_size=300), st.sampled_from(["user", "assistant"]))
def test_any_words_can_be_read(text: str, role: Role) -> None:
    found = read((role, text))
    assert all(draft.content for draft in found.drafts)
    assert all(one.reason for one in found.refused)


@given(
    st.sampled_from(["remember that {}", "we decided to use {}", "always {}", "I prefer {}"]),
    st.text("abcdfklm", min_size=3, max_size=20),
    st.text(max_size=300),
)
def test_any_words_get_a_verdict_with_a_reason(form: str, word: str, rest: str) -> None:
    found = find_statements(said(f"{form.format(word)} {rest}"))
    assert found.drafts or all(one.reason for one in found.refused)
    assert found.drafts or found.refused
