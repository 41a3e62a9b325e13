"""A reason is a cause with its numbers: people read the sentence, code reads neither words."""

from __future__ import annotations

import json

import pytest

from recollect.core.formats.stored_records import read_state, write_state
from recollect.core.values.edit import Cut, Insert, LeaveOut
from recollect.core.values.history import SessionState
from recollect.core.values.message import EntryKey
from recollect.core.values.reason import NOT_RUN, Cause, Reason

KEY = EntryKey("k" * 32)


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (Reason(Cause.TRIMMED, messages=1), "1 message left out of the view"),
        (Reason(Cause.TRIMMED, messages=7), "7 messages left out of the view"),
        (Reason(Cause.TERMS_LOST, terms=1), "a term of it left the view"),
        (Reason(Cause.TERMS_LOST, terms=3), "3 terms of it left the view"),
        (
            Reason(Cause.UNCERTAIN, certainty=0.4999, threshold=0.5),
            "certainty 0.49, 0.50 needed",
        ),
        (
            Reason(Cause.OLD_RESULT, moment=Reason(Cause.OVER_LIMIT, limit=12_000)),
            "an old tool result, over the limit of 12,000 tokens",
        ),
    ],
)
def test_the_sentence_is_rendered_from_cause_and_numbers(reason: Reason, sentence: str) -> None:
    assert str(reason) == sentence
    assert Reason.from_dict(json.loads(json.dumps(reason.to_dict()))) == reason


def test_a_reason_that_a_newer_program_stored_is_refused() -> None:
    with pytest.raises(ValueError, match="newer"):
        Reason.from_dict({"cause": "nobody knows", "numbers": {}})


def test_a_state_of_an_older_version_is_read_with_its_sentences() -> None:
    block = Insert(anchor=KEY, placement="before", text="b", stage="inject", reason=NOT_RUN, turn=1)
    state = SessionState(
        turn=2,
        edits=(
            LeaveOut(
                anchor=KEY,
                part=None,
                stage="trim",
                reason=Reason(Cause.LEAST_RELEVANT, score=1.25),
                turn=1,
            ),
            Cut(anchor=KEY, summary="s", stage="compact", reason=NOT_RUN, turn=2, ended=(block,)),
        ),
    )
    assert read_state(write_state(state)) == state
