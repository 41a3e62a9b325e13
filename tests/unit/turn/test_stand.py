"""Stand: which messages the block tells whole, so that nobody has to recall them."""

import pytest

from recollect.core.rules.tokens import Weigher
from recollect.core.turn.standing_block import stand, states
from recollect.core.values.history import Entry
from recollect.core.values.message import EntryKey, Message, MessageId, Part, Role, Text


def entry(key: str, role: Role, *parts: Part) -> Entry:
    message = Message(role=role, parts=parts, raw=b"")
    return Entry(
        key=EntryKey(key), id=MessageId(key), message=message, tokens=1, role=role, raw=b""
    )


def test_the_block_keeps_within_its_budget_and_the_assistant_within_its_part() -> None:
    left = [entry(f"u{n}", "user", Text(text=f"Never use pier {n} at night.")) for n in range(60)]
    left += [
        entry(f"a{n}", "assistant", Text(text=f"I would call crane {chr(97 + n)}{n} first."))
        for n in range(26)
    ]
    weigher = Weigher()
    for tokens in (100, 300, 900):
        made = stand(left, (), weigher, anchor=left[0].key, budget_tokens=tokens, turn=1)
        assert made.edit is not None
        assert weigher.text(made.edit.text) <= tokens
        assert made.edit.text.count("user:") > made.edit.text.count("assistant:")


def test_in_a_chat_only_rules_stand_and_nothing_of_people_who_talk_to_each_other() -> None:
    said = ["We met Hanneke Prins at pier 7 in 2019.", "Never wake the harbour master."]
    left = [entry(f"u{n}", "user", Text(text=text)) for n, text in enumerate(said)]
    made = stand(
        left, (), Weigher(), anchor=left[0].key, budget_tokens=900, turn=1, among_tools=False
    )
    assert made.edit is not None
    assert said[0] not in made.edit.text
    assert said[1] in made.edit.text
    named = [entry(f"p{n}", "user", Text(text=f"Caroline: {text}")) for n, text in enumerate(said)]
    made = stand(named, (), Weigher(), anchor=named[0].key, budget_tokens=900, turn=1)
    assert made.edit is None


ONE_OFF = (
    "Rename load_tariffs to read_tariffs in harbour/rates.py.",
    "Now undo that rename, the old name was better.",
    "Move the berth table to its own schema.",
    "Please add a column for the draught of a vessel.",
    "Squash both commits on the branch berth-table.",
)
LASTING = (
    "Never touch the table of the harbour master.",
    "Tariffs are rounded to 50 cents.",
    "Use metric tons, not short tons.",
    "We decided to keep the berth numbers of 1998.",
    "Reply in Dutch when the mail is from Vlissingen.",
)


REQUESTS = (
    "Book us a table at Osteria Bacco for 8 pm.",
    "book me a flight to Lisbon on 2027-03-12",
    "Order a cake with 12 candles for Marta.",
    "get us two seats in row 14, near the window",
)


@pytest.mark.parametrize("text", REQUESTS)
def test_a_request_is_an_order_and_never_a_decision(text: str) -> None:
    assert not states(text)
    left = [entry("asked", "user", Text(text=text)), entry("rule", "user", Text(text=LASTING[0]))]
    made = stand(left, (), Weigher(), anchor=left[0].key, budget_tokens=900, turn=1)
    assert made.edit is not None
    lines = made.edit.text.splitlines()
    assert f"user: {LASTING[0]}" in lines
    assert [line for line in lines if text in line and line.startswith("user:")] == []


def test_orders_that_were_carried_out_are_marked_and_rules_are_not() -> None:
    left = [
        entry(f"u{at}", "user", Text(text=text)) for at, text in enumerate((*ONE_OFF, *LASTING))
    ]
    made = stand(left, (), Weigher(), anchor=left[0].key, budget_tokens=2_000, turn=1)
    assert made.edit is not None
    lines = made.edit.text.splitlines()
    for text in LASTING:
        assert f"user: {text}" in lines
    assert [line for line in lines if line.endswith(ONE_OFF) and line.startswith("user:")] == []
    assert "do not repeat" in made.edit.text
