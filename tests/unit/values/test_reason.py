"""A reason is a cause with its numbers: people read the sentence, code reads neither words."""

import json

import pytest

from recollect.core.values.reason import Cause, Reason


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (Reason(Cause.TRIMMED, messages=1), "1 message left out of the request"),
        (Reason(Cause.TRIMMED, messages=7), "7 messages left out of the request"),
        (
            Reason(Cause.TERMS_LOST, terms=1),
            "a term of the question is in memory, but no longer in the request",
        ),
        (
            Reason(Cause.TERMS_LOST, terms=3),
            "3 terms of the question are in memory, but no longer in the request",
        ),
        (
            Reason(Cause.UNCERTAIN, certainty=0.4999, threshold=0.5),
            "memory has an answer with a certainty of only 0.49 (0.50 needed)",
        ),
        (
            Reason(Cause.OLD_RESULT, moment=Reason(Cause.OVER_LIMIT, limit=12_000)),
            "an old tool result was cleared: the request is over the limit of 12,000 tokens",
        ),
    ],
)
def test_the_sentence_is_rendered_from_cause_and_numbers(reason: Reason, sentence: str) -> None:
    assert str(reason) == sentence
    assert Reason.from_dict(json.loads(json.dumps(reason.to_dict()))) == reason


def test_a_reason_that_a_newer_program_stored_is_refused() -> None:
    with pytest.raises(ValueError, match="newer"):
        Reason.from_dict({"cause": "nobody knows", "numbers": {}})


def test_a_reason_of_a_development_version_is_still_read() -> None:
    read = Reason.from_dict({"cause": "summarised", "numbers": {"messages": 3}})
    assert str(read) == "3 messages replaced by a summary"


@pytest.mark.parametrize(
    ("cause", "field"),
    [("result_blank", "content"), ("calls_empty", "tool_calls"), ("output_missing", "output")],
)
def test_a_repair_of_a_development_version_names_its_field(cause: str, field: str) -> None:
    read = Reason.from_dict({"cause": cause, "numbers": {}})
    assert str(read) == f"rewritten in the form that the provider requires: {field}"
