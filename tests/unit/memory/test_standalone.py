"""A fact can be understood without the conversation that it was said in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.memory.facts_room import segment, talk

from recollect.facts.extract import Extracted, extract
from recollect.facts.stating.settle_type import settle_type
from recollect.facts.stating.standalone import Standalone, standalone
from recollect.values.fact import EvidenceSpan, FactDraft, FactType
from recollect.values.message import Role
from recollect.values.segment import Segment


def drafted(said: Segment, content: str, type: FactType, *, corrects: bool = False) -> FactDraft:  # noqa: A002
    """What rules make of a sentence that stands in a message."""
    start = said.text.index(content)
    line = said.text.find("\n", start)
    return FactDraft(
        type=type,
        content=content,
        at=said.said_at,
        evidence=(
            EvidenceSpan(segment=said.id, start=start, end=line if line >= 0 else len(said.text)),
        ),
        trust=said.trust,
        made_by="rules",
        corrects=corrects,
    )


def verdict(
    role: Role,
    content: str,
    type: FactType = "implementation",  # noqa: A002
    *,
    before: Sequence[Segment] = (),
    corrects: bool = False,
) -> Standalone:
    (said,) = talk((role, content))
    return standalone(drafted(said, content, type, corrects=corrects), said, before)


def read(*turns: tuple[Role, str]) -> Extracted:
    return asyncio.run(extract(talk(*turns), (), model=None, max_output_tokens=100, now=1e9))


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
        ("user", "dimGray should be that, no need for linkGray"),
        ("user", "it listens on 8081 in the lab"),
        ("user", "the reason is a family emergency"),
        ("user", "它监听 8081 端口"),
        ("user", "这个是放在 /srv/data 下面的"),
    ],
)
def test_what_points_elsewhere_is_refused(role: Role, content: str) -> None:
    found = verdict(role, content)
    assert not found.stands
    assert found.reason


@pytest.mark.parametrize(
    ("role", "content", "kind"),
    [
        ("user", "this repo uses pnpm, never npm", "preference"),
        ("user", "both staging and prod run Postgres 15", "config"),
        ("user", "it's important that we never commit to main", "preference"),
        ("user", "here's the staging URL: https://stage.example/api", "config"),
        ("user", "the problem is that the importer drops rows with umlauts", "issue"),
        ("user", "the main branch is protected", "config"),
        ("user", "I like short answers, show code first", "preference"),
        ("user", "don't touch the legacy folder", "preference"),
        ("user", "we need to migrate the invoices before June", "task_state"),
        ("user", "we go with plan B.", "decision"),
        ("user", "Postgres it is", "decision"),
        ("user", "别碰 legacy 目录，那是老周的", "preference"),
        ("assistant", "The payment bug is fixed in `billing/totals.py`.", "task_state"),
        ("assistant", "I've created `themes/custom.json` from the dark theme.", "implementation"),
        ("assistant", "The cause is settled: the ingress closes idle sockets after 60 s.", "issue"),
        ("assistant", "Your order service listens on 8443.", "config"),
        ("assistant", "发票模块还没做，卡在税务接口的证书上", "task_state"),
    ],
)
def test_what_names_its_subject_stands(role: Role, content: str, kind: FactType) -> None:
    assert verdict(role, content, kind) == Standalone(stands=True)


@pytest.mark.parametrize("content", ["make that 9000", "it's 9000, sorry", "是 7020"])
def test_a_users_correction_in_half_a_sentence_passes(content: str) -> None:
    assert verdict("user", content, "config", corrects=True).stands


def test_an_assistant_corrects_nothing_by_half_a_sentence() -> None:
    assert not verdict("assistant", "It uses port 9000 instead.", "config", corrects=True).stands


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
    assert not verdict("user", content, "config").stands


def test_what_the_message_goes_on_with_was_cut_off() -> None:
    text = "The build supports two genomes only, exposes three surfaces, serves the API on 8443."
    (said,) = talk(("assistant", text))
    piece = drafted(said, "The build supports two genomes only, exposes three surfaces", "config")
    assert standalone(piece, said, ()).stands
    shorter = drafted(said, "The build supports two genomes only, exposes three", "config")
    assert standalone(shorter, said, ()).reason == "it ends in the middle"


@pytest.mark.parametrize(
    "line",
    [
        "+ 8 - **Text Color**: User messages now respect `userMessageText`",
        "14 - **Width**: Fixed the `TruncatedText` component",
        "270 | the port is 8080 in `config.py`",
        "E TypeError: '>' is not supported between instances",
    ],
)
def test_a_line_of_a_listing_is_refused(line: str) -> None:
    (said,) = talk(("user", f"look:\n{line}\nthanks"))
    found = standalone(drafted(said, line, "implementation"), said, ())
    assert found.reason == "a line of a listing"


def test_a_line_broken_for_its_length_is_half_a_sentence() -> None:
    lines = [
        "The gateway of the shop is now at shop.example and reads its routes from the",
        "folder of the release, where a nightly job of the warehouse puts the newest one",
        "before it tells the balancer that it may send customers there again, each night",
    ]
    (said,) = talk(("user", "\n".join(lines)))
    wrapped = drafted(said, lines[1], "architecture")
    assert standalone(wrapped, said, ()).reason == "it ends in the middle"
    (typed,) = talk(("user", f"{lines[1]}\ncan you look at it"))
    assert standalone(drafted(typed, lines[1], "architecture"), typed, ()).stands


@pytest.mark.parametrize(
    ("role", "content", "kind"),
    [
        ("user", "be dimmer, don't modify the theme, look into the footer sources", "preference"),
        ("user", "we still need to port selector.ts based on the other files", "task_state"),
        ("user", "remove `cache_missing` and use tqdm below 95%", "config"),
        ("user", "don't modify `send_with_retries`", "preference"),
        ("assistant", "The build is failing because the TUI package exports no themes.", "issue"),
        ("assistant", "The suite passes: `ruff`, `mypy` and `pytest` all passed.", "task_state"),
        ("assistant", "We need to modify `scrape_with_playwright` in `scrape.py`.", "config"),
        ("assistant", "Added /tmp/tmpfrgq2hoe/notes.txt to the read-only files.", "config"),
    ],
)
def test_what_ends_with_the_turn_is_refused(role: Role, content: str, kind: FactType) -> None:
    assert not verdict(role, content, kind).stands


def test_an_acknowledgement_adds_nothing() -> None:
    before = talk(("user", "We decided to keep the invoices in Postgres 15, not in Mongo."))
    said = "understood: we decided to keep the invoices in Postgres 15"
    found = verdict("assistant", said, "decision", before=before)
    assert found.reason == "it says again what the user said"
    more = "The invoices moved to Postgres 15 in `billing/store.py`, with a nightly dump."
    assert verdict("assistant", more, before=before).stands


def test_the_answer_to_a_question_is_the_assistants_own() -> None:
    before = talk(("user", "does the ledger listen on port 8443?"))
    assert verdict("assistant", "The ledger listens on port 8443.", "config", before=before).stands


COUNTER = talk(
    ("user", "Hi, I want to change something."),
    ("assistant", "Of course! Please share your user ID and your reservation number."),
    ("assistant", "Refunds go back to the card, and a cancellation takes a day."),
)


@pytest.mark.parametrize(
    ("role", "content", "kind"),
    [
        ("user", "my email is yara@example.com", "config"),
        ("user", "I prefer an aisle seat", "preference"),
        ("assistant", "The total price is $243.", "config"),
    ],
)
def test_a_customers_case_at_a_counter_is_nobodys(role: Role, content: str, kind: FactType) -> None:
    found = verdict(role, content, kind, before=COUNTER)
    assert found.reason == "the case of somebody who is not named"
    assert verdict(role, content, kind).stands


def test_what_holds_for_every_customer_stands() -> None:
    policy = "Basic economy tickets cannot be canceled unless booked within 24 hours."
    assert verdict("assistant", policy, "config", before=COUNTER).stands


def test_a_developers_talk_of_orders_is_no_counter() -> None:
    before = talk(
        ("assistant", "Your AWS account ID goes into the profile; the order table has a number."),
    )
    assert verdict("user", "my email is dev@example.com", "config", before=before).stands


@pytest.mark.parametrize(
    ("role", "content", "taken_for", "kind"),
    [
        ("user", "My name is Mohamed Silva", "preference", "config"),
        ("user", "websocket drops every 60s in prod, never locally", "preference", "issue"),
        ("user", "never drop a table in prod, always rename it", "preference", "preference"),
        ("assistant", "the client ping interval is now 25s", "implementation", "config"),
        ("assistant", "upstream 已改为 7020", "implementation", "config"),
        ("assistant", "Dedupe now compares ids by case", "implementation", "implementation"),
        ("assistant", "The selector caches its theme", "config", "implementation"),
        ("assistant", "The ledger has port 8443", "config", "config"),
        ("assistant", "The strategy is to keep all UI code", "config", "decision"),
        ("assistant", "The amount is fixed at $50 a passenger", "task_state", "config"),
    ],
)
def test_the_type_is_that_of_what_is_said(
    role: Role, content: str, taken_for: FactType, kind: FactType
) -> None:
    (said,) = talk((role, content))
    assert settle_type(drafted(said, content, taken_for), by_user=role == "user") == kind


def test_extraction_refuses_with_the_reason_and_without_the_words() -> None:
    found = read(
        ("user", "hello"),
        ("assistant", "I've moved the loader to `src/world/loader.rs`."),
        ("assistant", "It now uses `getThemesDir()` from `src/paths.ts`."),
    )
    assert [draft.content for draft in found.drafts] == [
        "I've moved the loader to `src/world/loader.rs`."
    ]
    assert all("getThemesDir" not in one.reason for one in found.refused)


def test_extraction_settles_the_type_and_the_subject_with_it() -> None:
    found = read(("user", "hi"), ("assistant", "The client ping interval is now 25s in `net.ts`."))
    (draft,) = found.drafts
    assert draft.type == "config"


@given(st.text(min_size=1, max_size=300), st.sampled_from(["user", "assistant"]))
def test_any_words_get_a_verdict_with_a_reason(text: str, role: Role) -> None:
    said = segment(role, text)
    found = standalone(drafted(said, said.text, "config"), said, ())
    assert found.stands == (not found.reason)
