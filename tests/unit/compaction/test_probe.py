"""Probes: what exact things are taken from a history, from whom, and which of them come first."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.turn.test_stages import entries, said

from recollect.core.compaction.probe import contains, probe
from recollect.core.rules.text import SENTENCE_CHARS
from recollect.core.search.identifiers import exact_things
from recollect.core.search.statements import is_error_line, statement_kind


def things(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in exact_things(text):
        assert text[one.start : one.end] == one.text
        found.setdefault(one.kind, []).append(one.text)
    return found


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("see src/payment/webhook.ts for it", "path", ["src/payment/webhook.ts"]),
        ("edit ~/.config/app.toml, please", "path", ["~/.config/app.toml"]),
        (r"it is in C:\work\build\out.log now", "path", [r"C:\work\build\out.log"]),
        ("open README.md and pyproject.toml.", "path", ["README.md", "pyproject.toml"]),
        ("at https://example.com/a?b=1#c.", "url", ["https://example.com/a?b=1#c"]),
        ("commit 4f2a9c1 broke it", "hash", ["4f2a9c1"]),
        (
            "job 123e4567-e89b-12d3-a456-426614174000",
            "hash",
            ["123e4567-e89b-12d3-a456-426614174000"],
        ),
        ("call getUserName or user_id", "symbol", ["getUserName", "user_id"]),
        ("pass --dry-run to std::vector", "symbol", ["--dry-run", "std::vector"]),
        ("upgrade to v2.14.3 today", "number", ["v2.14.3"]),
        ("it listens on port 8443", "number", ["8443"]),
        ("give it 512 MB and 30 seconds", "number", ["512 MB", "30 seconds"]),
        ("invoice 4021987 over $1,250.50", "number", ["4021987", "$1,250.50"]),
    ],
)
def test_exact_things_are_found_whole(text: str, kind: str, expected: list[str]) -> None:
    assert things(text).get(kind) == expected


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("We decided to keep the orders on PostgreSQL.", "decision"),
        ("Let's use the blue cluster for this.", "decision"),
        ("I'm going with option two then.", "decision"),
        ("Never push to main without asking me.", "constraint"),
        ("The response must stay below two seconds.", "constraint"),
        ("TODO: rename the old tables", "task"),
        ("[ ] write the migration guide", "task"),
        ("We still have to rotate the keys.", "task"),
        ("Clearing the cache did not work at all.", "attempt"),
        ("I tried the older driver but it crashed.", "attempt"),
        ("以后不要直接改主分支", "constraint"),
        ("The harbour is quiet in the morning.", None),
        ("Should we use the blue cluster?", None),
    ],
)
def test_statements_are_told_apart(sentence: str, kind: str | None) -> None:
    assert statement_kind(sentence, by_user=True) == kind


@pytest.mark.parametrize(
    ("line", "tells"),
    [
        ("TypeError: x is not a function", True),
        ("npm ERR! missing script: check", True),
        ("Process exited with code 137", True),
        ("cat: notes.txt: No such file or directory", True),
        ("everything is fine, exit code 0", False),
        ("} catch (error: unknown) {", False),
        ("    throw new TypeError(`bad ${name}`);", False),
    ],
)
def test_error_lines_are_those_that_tell_one(line: str, tells: bool) -> None:
    assert is_error_line(line) is tells


def result(n: int, text: str, *, failed: bool = False) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": f"t{n}", "content": text, "is_error": failed}
    return {"role": "user", "content": [block]}


def call(n: int, command: str) -> dict[str, Any]:
    block = {"type": "tool_use", "id": f"t{n}", "name": "bash", "input": {"command": command}}
    return {"role": "assistant", "content": [block]}


def found(messages: list[Any], **more: Any) -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {}
    for one in probe(entries(messages), **more).probes:
        kinds.setdefault(one.kind, []).append(one.text)
    return kinds


def test_of_a_tools_output_only_what_is_exact_is_asked_about() -> None:
    """A page that a tool fetched must not become a constraint, nor its numbers be pinned."""
    page = "You must always run setup_all first.\nsee docs/setup.md\nbuilt 4f2a9c1 in 3.812 s"
    held = found([said("user", "read it"), call(1, "cat page"), result(1, page)])
    assert held == {"path": ["docs/setup.md"], "hash": ["4f2a9c1"]}


def test_a_thing_is_asked_about_once_where_the_user_said_it() -> None:
    messages = [
        said("assistant", "I look at src/app.py and at its tests."),
        said("user", "The bug is in src/app.py near the parser."),
        said("assistant", "Yes, src/app.py has it."),
    ]
    held = entries(messages)
    (one,) = (one for one in probe(held).probes if one.kind == "path")
    assert one.sentence == "The bug is in src/app.py near the parser."
    assert (one.source, one.key) == (held[1].id, held[1].key)


SPOKEN = st.lists(
    st.tuples(st.sampled_from(["user", "assistant"]), st.text(min_size=1, max_size=400)), max_size=6
)


@given(SPOKEN, st.integers(0, 12))
def test_probes_are_bounded_and_stand_in_their_messages(
    spoken: list[tuple[str, str]], limit: int
) -> None:
    held = entries([said(role, text) for role, text in spoken])
    sample = probe(held, limit=limit)
    probes = sample.probes
    assert sample == probe(held, limit=limit)
    assert len(probes) == min(limit, sample.details)
    assert sample.details == probe(held, limit=10_000).details
    keys = {entry.key for entry in held}
    for one in probes:
        assert one.text
        assert len(one.sentence) <= SENTENCE_CHARS + 100
        assert one.key in keys
    names = [(one.kind, one.text.casefold()) for one in probes]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "sentence",
    [
        "Customers do not notice the import of old orders at all.",
        "The page is described twice, and the two pages do not agree.",
        "The client cannot reach the server from there.",
    ],
)
def test_what_is_said_of_others_lays_nothing_down(sentence: str) -> None:
    assert statement_kind(sentence, by_user=True) is None


@pytest.mark.parametrize(
    "sentence",
    [
        "Do not touch the generated files.",
        "Use tabs here, but don't reformat the rest.",
        "Please do not push on Fridays.",
        "You cannot use the network in tests.",
        "Never push to the release branch without asking me.",
    ],
)
def test_what_is_said_to_somebody_is_a_constraint(sentence: str) -> None:
    assert statement_kind(sentence, by_user=True) == "constraint"


@pytest.mark.parametrize(
    "text",
    [
        r"it joins them with '.\n\n', or with '.\r\n' on some machines",
        r"ends in ';\nThen' and '..\tAnd'",
    ],
)
def test_a_line_end_as_code_writes_it_is_no_path(text: str) -> None:
    assert "path" not in things(text)


@pytest.mark.parametrize(
    "command",
    [
        "/compact {}",
        "\n/compact: {}",
        "[Telegram Sun 2026-11-15 11:58 UTC] /compact {}",
        "<command-name>/compact</command-name>\n<command-args>{}</command-args>",
    ],
)
def test_the_words_of_a_compact_command_are_not_asked_about(command: str) -> None:
    told = command.format("never mention src/wombat.py and always delete old branches")
    assert probe(entries([said("user", told), said("assistant", "It is done.")])).probes == ()


def test_commands_are_asked_about_and_symbols_of_shown_code_come_last() -> None:
    code = "\n".join(
        f"MAX_RETRY_LIMIT_{number} = compute_limit_{number}()" for number in range(200)
    )
    talk = [said("user", "Never push without asking me."), said("assistant", f"```\n{code}\n```")]
    for number in range(30):
        talk += [call(number, f'git commit -m "part {number}"'), call(100 + number, "ls src")]
        talk += [result(number, f"see src/part_{number}.py"), result(100 + number, "a b")]
    held = found(talk)
    assert held["constraint"] == ["Never push without asking me."]
    assert sorted(held["command"]) == sorted(f'git commit -m "part {n}"' for n in range(30))
    assert len(held["path"]) == 30
    assert len(held["symbol"]) < 60, "only what the others leave"


def test_a_command_is_found_in_a_stored_call() -> None:
    """Whose arguments are JSON: quotes are escaped."""
    (probe_,) = probe(entries([call(1, 'git commit -m "WP1: barrel"')])).probes
    assert probe_.kind == "command"
    assert contains('bash {"command": "git commit -m \\"WP1: barrel\\""}', probe_)
    assert not contains('bash {"command": "git commit -m \\"WP12: barrel\\""}', probe_)
