"""A client that resends its history gets the same view: marks moved, strings turned into
blocks, its own compaction, a retry, a branch. Same edits, and never a false merge."""

import asyncio
import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conversations.resends import move_cache_marks, reorder_keys, strings_to_blocks
from tests.conversations.strategies import bodies, resends
from tests.sizes import at_size

from recollect.core.engine import Context, Engine, Session
from recollect.core.rules.identity import ROOT, chain
from recollect.core.turn.align import align
from recollect.core.values.edit import LeaveOut, Shorten
from recollect.core.values.history import SessionState
from recollect.core.values.message import MessageId
from recollect.core.values.model import FormatName
from recollect.system.config import build

FORMATS: tuple[FormatName, ...] = ("anthropic", "openai-chat", "openai-responses", "pi")
SECRET_NAMES = ["cobalt", "heron", "lattice", "marlin", "nutmeg", "opal", "quartz", "saffron"]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def prepare(engine: Engine, session: Session, body: Any, format_name: FormatName) -> Context:
    return asyncio.run(engine.prepare(session, json.dumps(body).encode(), format=format_name))


def long_history(turns: int, seed: int = 3) -> list[dict[str, Any]]:
    """An Anthropic history in which every fourth message is a long tool result."""
    rng = random.Random(seed)
    held: list[dict[str, Any]] = []
    for turn in range(turns):
        call = f"toolu_{turn}"
        words = " ".join(rng.choices(SECRET_NAMES, k=30))
        held += [
            user(f"step {turn}: {words}"),
            assistant(
                [
                    {"type": "text", "text": f"reading for step {turn}"},
                    {"type": "tool_use", "id": call, "name": "read", "input": {"path": f"{turn}"}},
                ]
            ),
            user(
                [{"type": "tool_result", "tool_use_id": call, "content": f"{turn} {words} " * 60}]
            ),
            assistant([{"type": "text", "text": f"done {turn}: {words}"}]),
        ]
    return [*held, user("what is next?")]


def anthropic(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"model": "claude-sonnet-4-5", "system": "be brief", "messages": messages}


def edited_session(turns: int = 40) -> tuple[Engine, Session, list[dict[str, Any]], Context]:
    """A session over its limit, so that edits stand."""
    engine = Engine(build({"window_tokens": 5_000}))
    session = Session("s")
    held = long_history(turns)
    context = prepare(engine, session, anthropic(held), "anthropic")
    kinds = {type(edit) for edit in context.edits if edit.stage != "stand"}
    assert kinds == {LeaveOut, Shorten}, "the history must be long enough to need both"
    return engine, session, held, context


@pytest.mark.parametrize("format_name", FORMATS)
def test_resent_with_other_marks_and_spellings(format_name: FormatName) -> None:
    @settings(max_examples=at_size(ci=25, full=250))
    @given(st.data(), bodies(format_name))
    def check(data: st.DataObject, body: dict[str, Any]) -> None:
        engine = Engine(build({"window_tokens": 4_000}))
        session = Session("s")
        first = prepare(engine, session, body, format_name)
        resent = data.draw(resends(format_name, body))
        second = prepare(engine, session, resent, format_name)
        assert second.state.path == first.state.path, "the same messages, however spelled"
        assert second.edits == first.edits

    check()


@pytest.mark.parametrize(
    "again",
    [
        lambda body: move_cache_marks("anthropic", body, random.Random(1)),
        lambda body: strings_to_blocks("anthropic", body),
        lambda body: reorder_keys(body, random.Random(2)),
    ],
    ids=["moved cache marks", "strings turned into blocks", "reordered keys"],
)
def test_standing_edits_are_applied_to_the_resent_history(again: Any) -> None:
    engine, session, held, first = edited_session()
    second = prepare(engine, session, again(anthropic(held)), "anthropic")
    assert second.edits == first.edits
    assert [f.fate for f in second.report.fates()] == [f.fate for f in first.report.fates()]
    assert second.report.new_edits == ()
    assert second.report.ended_edits == ()


def test_the_view_only_grows_at_its_end() -> None:
    """Promise 12: between batch moments nothing before the tail changes, byte for byte."""
    engine, session, held, first = edited_session()
    before = json.loads(first.request)["messages"]
    held = [
        *held,
        assistant([{"type": "text", "text": "next is the parser"}]),
        user("then do that"),
    ]
    second = prepare(engine, session, anthropic(held), "anthropic")
    after = json.loads(second.request)["messages"]
    assert second.report.moment is None
    assert json.dumps(after[: len(before)]) == json.dumps(before)
    assert len(after) == len(before) + 2


def test_a_restarted_process_applies_the_kept_state() -> None:
    """State is a value: another engine that is handed it shows the same view."""
    _, _, held, first = edited_session()
    engine = Engine(build({"window_tokens": 5_000}))
    session = engine.session("s", first.state)
    second = prepare(engine, session, anthropic(held), "anthropic")
    assert second.request == first.request


def test_the_client_compacts_by_itself() -> None:
    engine, session, held, first = edited_session()
    kept = held[-41:]
    summary = user("Summary of the session so far: steps 0 to 19 are done.")
    reply = assistant("Understood, going on.")
    compacted = [summary, reply, *kept]
    second = prepare(engine, session, anthropic(compacted), "anthropic")
    assert second.state.path[2:] == first.state.path[-41:], "the kept messages are recognised"
    kept_keys = set(first.state.path[-41:])
    expected = [edit for edit in first.edits if edit.anchor in kept_keys]
    assert expected
    assert [edit for edit in second.edits if edit.anchor in kept_keys] == expected
    rest = {edit for edit in first.edits if edit.stage != "stand"} - set(expected)
    assert rest <= {edit for edit, _ in second.state.dormant}, "told, not forgotten"
    third = prepare(
        engine, session, anthropic([*compacted, assistant("ok"), user("go")]), "anthropic"
    )
    assert third.state.path[: len(compacted)] == second.state.path


def test_the_client_keeps_only_some_user_messages() -> None:
    """As Codex does: user messages in order, then a summary."""
    engine, session, held, first = edited_session()
    mine = [m for m in held if m["role"] == "user" and isinstance(m["content"], str)][-8:-1]
    compacted = [*mine, user("Another model began this; its summary: ...")]
    second = prepare(engine, session, anthropic(compacted), "anthropic")
    known = set(first.state.path)
    assert [key in known for key in second.state.path] == [True] * 7 + [False]


def test_the_client_clears_an_old_result_in_place() -> None:
    engine, session, held, first = edited_session()
    changed = copy.deepcopy(held)
    changed[42]["content"][0]["content"] = "[cleared by the client]"
    second = prepare(engine, session, anthropic(changed), "anthropic")
    assert second.state.path[:42] == first.state.path[:42]
    assert second.state.path[42] != first.state.path[42]
    assert second.state.path[43:] == first.state.path[43:]
    assert [e for e in second.edits if e.anchor != first.state.path[42]] == [
        e for e in first.edits if e.anchor != first.state.path[42]
    ]


def test_a_retry_and_a_branch_and_back() -> None:
    engine, session, held, first = edited_session()
    retried = [*held[:-1], user("no: undo the last step first")]
    second = prepare(engine, session, anthropic(retried), "anthropic")
    assert second.state.path[:-1] == first.state.path[:-1]
    assert second.state.path[-1] != first.state.path[-1]
    assert set(second.edits) == {e for e in first.edits if e.anchor != first.state.path[-1]}
    branch = [*held[:40], user("let us go another way from here")]
    third = prepare(engine, session, anthropic(branch), "anthropic")
    assert third.state.path[:40] == first.state.path[:40]
    back = prepare(engine, session, anthropic(held), "anthropic")
    assert back.state.path == first.state.path
    assert back.request == first.request, "coming back to a branch shows what it showed"


@pytest.mark.parametrize("compacted", [False, True])
def test_a_side_request_does_not_end_the_edits(compacted: bool) -> None:
    """Clients ask for a title in the same session; the long history comes back unharmed,
    however old its edits are."""
    engine, session, held, first = edited_session()
    if compacted:
        held = [user("Summary so far: steps 0 to 19."), *held[-40:]]
        first = prepare(engine, session, anthropic(held), "anthropic")
    for turn in range(60):
        held = [*held, assistant(f"{turn}"), user(f"{turn}?")]
        first = prepare(engine, session, anthropic(held), "anthropic")
    assert min(edit.turn for edit in first.edits) < 3
    title = [user("Write a title for this conversation in five words.")]
    prepare(engine, session, anthropic(title), "anthropic")
    back = prepare(engine, session, anthropic(held), "anthropic")
    assert back.request == first.request


@pytest.mark.parametrize("format_name", FORMATS)
def test_what_is_remembered_only_saves_time(format_name: FormatName) -> None:
    """A session that grows step by step sends what one without any memory of bytes sends."""
    field = "input" if format_name == "openai-responses" else "messages"

    @settings(max_examples=at_size(ci=25, full=250))
    @given(bodies(format_name), st.lists(st.integers(1, 6), min_size=1, max_size=8), st.booleans())
    def check(body: dict[str, Any], steps: list[int], tight: bool) -> None:
        held = body[field]
        if not isinstance(held, list):
            return
        engine = Engine(build({"window_tokens": 4_000 if tight else 400_000}))
        warm = Session("warm")
        state = SessionState()
        end = 0
        for step in steps:
            end = min(len(held), end + step)
            request = {**body, field: held[:end]}
            first = prepare(engine, warm, request, format_name)
            second = prepare(engine, Session("cold", state), request, format_name)
            assert first.request == second.request
            assert first.edits == second.edits
            assert set(first.report.repairs) == set(second.report.repairs)
            state = second.state

    check()


SPELLINGS: list[tuple[FormatName, Any]] = [
    ("anthropic", lambda text: user(text)),
    ("anthropic", lambda text: user([{"type": "text", "text": text}])),
    ("openai-chat", lambda text: user([{"type": "text", "text": text}])),
    (
        "openai-responses",
        lambda text: {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": text}],
        },
    ),
    ("pi", lambda text: {"role": "user", "content": text, "timestamp": 1770000000000}),
]


@pytest.mark.parametrize(("format_name", "user"), SPELLINGS)
def test_two_conversations_that_share_ok_are_not_merged(format_name: FormatName, user: Any) -> None:
    engine, session = Engine(), Session("s")
    field = "input" if format_name == "openai-responses" else "messages"
    reply = assistant([{"type": "output_text", "text": "a reply"}])
    if format_name != "openai-responses":
        reply = assistant([{"type": "text", "text": "a reply"}])
    one = [user("about the harbour and its cranes"), reply, user("ok"), reply, user("and so on")]
    two = [user("about something else entirely"), reply, user("ok"), reply, user("further")]
    first = prepare(engine, session, {field: one}, format_name)
    second = prepare(engine, session, {field: two}, format_name)
    assert not set(first.state.path) & set(second.state.path)


def ids(words: str) -> list[MessageId]:
    return [MessageId(word) for word in words.split()]


def state_of(words: str) -> SessionState:
    known = ids(words)
    keys = []
    parent = ROOT
    for identity in known:
        parent = chain(parent, identity)
        keys.append(parent)
    return SessionState(path=tuple(keys), ids=tuple(known))


def test_a_short_message_alone_is_never_recognised_out_of_place() -> None:
    known = state_of("a b c ok d e")
    found = align(known, ids("x ok"), [100, 5])
    assert found.rejoined == 0
    assert not set(found.keys) & set(known.path)


@settings(max_examples=at_size(ci=50, full=500))
@given(st.lists(st.integers(0, 6), max_size=40), st.lists(st.integers(0, 6), max_size=40))
def test_alignment_keeps_order_and_identity(old: list[int], new: list[int]) -> None:
    known = state_of(" ".join(f"m{n}" for n in old))
    incoming = [MessageId(f"m{n}") for n in new]
    found = align(known, incoming, [100] * len(incoming))
    place = {key: at for at, key in enumerate(known.path)}
    recognised = [(at, place[key]) for at, key in enumerate(found.keys) if key in place]
    assert [b for _, b in recognised] == sorted({b for _, b in recognised}), "order, no repeats"
    for at, before in recognised:
        assert incoming[at] == known.ids[before], "never two different messages under one key"
    assert len(set(found.keys)) == len(found.keys), "two places never share a key"
    again = align(
        SessionState(path=found.keys, ids=tuple(incoming), aliases=found.aliases),
        incoming,
        [100] * len(incoming),
    )
    assert again.keys == found.keys, "the same history again aligns with itself"
