"""User-facing text follows the word table: pages, help, settings, reports, errors, subjects."""

import ast

import pytest
from tools import voice


@pytest.mark.parametrize(
    "check",
    [
        *(voice.check_pages, voice.check_help, voice.check_sentences),
        *(voice.check_messages, voice.check_subjects),
    ],
)
def test_text_follows_the_word_table(check) -> None:
    assert not list(check())


def test_a_sentence_in_dialect_is_found() -> None:
    found = list(voice._check("page", "What was said goes on beside it."))
    assert {line.split("'")[1] for line in found} == {"What was said", "goes on", "beside"}


@pytest.mark.parametrize(
    "text", ["Where the file is.", "How to run it.", "Only this one.", "If set."]
)
def test_help_that_starts_with_neither_verb_nor_noun_is_found(text: str) -> None:
    assert voice.OPENINGS.match(text)
    assert not voice.OPENINGS.match(f"Print {text.lower()}")
    assert not voice.OPENINGS.match("Items to print.")


def test_the_words_of_an_error_are_read_without_its_values() -> None:
    raised = ast.parse('raise ValueError(f"{name} must be {kind}")').body[0]
    assert isinstance(raised, ast.Raise)
    assert isinstance(raised.exc, ast.Call)
    assert [voice._literal(text) for text in raised.exc.args] == ["x must be x"]
