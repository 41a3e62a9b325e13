"""Ask: what a turn tells memory of itself."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.turn.memories import NOW, entries, settings, user

from recollect.core.turn.query import ask, query, uses_tools
from recollect.core.values.edit import Edit
from recollect.core.values.history import Entry
from recollect.core.values.recall import RecallRequest

CALL = {
    "role": "assistant",
    "content": [
        {"type": "text", "text": "I look into retry_policy.py"},
        {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "src/hidden.py"}},
    ],
}
RESULT = {
    "role": "user",
    "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "limit = 3"}],
}


def asked(view: tuple[Entry, ...], edits: Sequence[Edit] = (), **changed: Any) -> RecallRequest:
    return ask(
        view,
        query(view),
        settings(**changed),
        edits=edits,
        among_tools=uses_tools(view),
        space="mine",
        session="s",
        now=NOW,
        budget_tokens=lambda _, **__: 500,
        count_tokens=len,
    )


def test_the_newest_message_asks_and_what_stands_before_it_is_the_view() -> None:
    view = entries(["the crane is green", "noted, it is green", "and the quay?"])
    request = asked(view)
    assert request.newest == "and the quay?"
    assert request.query == "the crane is green\nand the quay?"
    assert request.recent == ("noted, it is green",)
    assert tuple(request.view) == ("the crane is green",)
    assert request.shown == {entry.key for entry in view}
    assert request.asking == view[-1].key
    assert (request.now, request.budget_tokens, request.count_tokens("abc")) == (NOW, 500, 3)


def test_in_mid_turn_the_message_that_began_it_asks_and_a_short_one_for_itself_alone() -> None:
    view = entries([user("why does it retry?"), CALL, RESULT])
    request = asked(view)
    assert request.newest == "why does it retry?"
    assert request.asking == view[0].key
    assert request.recent == ("I look into retry_policy.py",)
    assert tuple(request.view) == ("limit = 3",)
    # Otherwise "thanks" would ask again what the message before it asked.
    request = asked(entries(["where is the crane?", "at the quay", "ok"]))
    assert request.newest == "ok"
    assert request.query == "where is the crane?"
    assert "crane" not in repr(asked(entries(["the crane", "a crane", "which crane?"])))


@pytest.mark.parametrize(
    ("newest", "asks"),
    [
        ("Ada: how was your trip to the quay?", "other"),
        ("Ada: when does the crane lift?", "question"),
        ("Ada: do you remember what we agreed on the crane?", "question"),
        ("how was your trip to the quay?", "question"),
    ],
)
def test_what_people_ask_each_other_asks_nothing_of_the_model(newest: str, asks: str) -> None:
    reply = "It is painted every spring."
    talk = ["Ada: the crane is green", reply] + ["Ben: it is, since May", reply] * 2
    talk.append(newest)
    assert asked(entries(talk)).asks == asks


def test_a_model_that_only_takes_note_is_asked_nothing() -> None:
    talk = ["Ada: the crane is green", "Noted."] + ["Ben: it is, since May", "Noted."] * 2
    for said in ("when does the crane lift?", "did you paint it?", "our crane is the best"):
        assert asked(entries([*talk, f"Ada: {said}"])).asks == "other"
    assert asked(entries([*talk, "when does the crane lift?"])).asks == "question"
    assert asked(entries([*talk, "Ada: what did we decide on the crane?"])).asks == "question"
    short = [said.replace("Noted.", "Berth 7.") for said in talk]
    assert asked(entries([*short, "Ada: when does the crane lift?"])).asks == "question"


def test_a_request_does_not_show_what_was_said() -> None:
    assert "crane" not in repr(asked(entries(["the crane", "a crane", "which crane?"])))
