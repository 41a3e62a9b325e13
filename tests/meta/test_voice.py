"""User-facing text follows the word table: pages, help, settings, report sentences, subjects."""

from __future__ import annotations

import pytest
from tools import voice


@pytest.mark.parametrize(
    "check", [voice.check_pages, voice.check_help, voice.check_sentences, voice.check_subjects]
)
def test_text_follows_the_word_table(check) -> None:
    assert not list(check())


def test_a_sentence_in_dialect_is_found() -> None:
    found = list(voice._check("page", "What was said goes on beside it."))
    assert {line.split("'")[1] for line in found} == {"What was said", "goes on", "beside"}
