"""What is written and what is asked for must meet in the same words."""

import re
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.core.search import tokenize as tokenize_module
from recollect.core.search.tokenize import STOP_WORDS, tokenize


def words(text: str) -> list[str]:
    return sorted(tokenize(text))


def test_plain_english_gives_one_stem_per_word_without_stop_words_and_apostrophes() -> None:
    assert words("The children were RUNNING to their schools, again!") == [
        *("again", "children", "run", "school")
    ]
    assert words("Caroline's don't I'll you've") == ["carolin", "don"]
    assert words("Caroline’s") == ["carolin"]


@pytest.mark.parametrize("text", ["", "   \n\t", "!!! --- ???", "the of and", "____"])
def test_a_text_without_words_gives_none(text: str) -> None:
    assert tokenize(text) == []


class TestIdentifiers:
    def test_a_name_or_path_gives_itself_and_its_pieces_however_it_is_separated(self) -> None:
        assert words("getUserName") == ["get", "getusernam", "name", "user"]
        assert words("see src/payment/webhook.ts:42.") == sorted(
            ["see", "src/payment/webhook.ts", "webhook.ts", "src", "payment", "webhook", "ts", "42"]
        )
        assert words(r"src\payment\webhook.ts") == words("src/payment/webhook.ts")
        assert words(r"src\\payment\\webhook.ts") == words("src/payment/webhook.ts")
        assert words("os.path.join") == ["join", "os", "os.path.join", "path"]
        assert words("std::vector") == ["std", "std::vector", "vector"]
        digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
        assert tokenize(digest) == [digest]
        assert max(map(len, tokenize("x" * 1000))) == len(digest)

    @pytest.mark.parametrize("spelling", ["get_user_name", "GetUserName", "GET_USER_NAME"])
    def test_every_spelling_of_a_name_meets_every_other(self, spelling: str) -> None:
        assert words(spelling) == words("getUserName")

    @pytest.mark.parametrize(
        ("name", "pieces"),
        [
            ("HTTPServer", ["http", "httpserver", "server"]),
            ("parseJSON", ["json", "pars", "parsejson"]),
            ("utf8Decoder", ["decod", "utf8", "utf8decoder"]),
            ("URLs", ["url"]),
            ("NASA", ["nasa"]),
            ("sha256", ["sha256"]),
            ("__init__", ["init"]),
            ("x_1", ["x1"]),
        ],
    )
    def test_where_a_name_is_cut(self, name: str, pieces: list[str]) -> None:
        assert words(name) == pieces


class TestScripts:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("東京都", ["東", "京", "都", "東京", "京都"]),
            ("ひらがな", ["ひ", "ら", "が", "な", "ひら", "らが", "がな"]),
            ("カタ", ["カ", "タ", "カタ"]),
            ("한국어", ["한", "국", "어", "한국", "국어"]),
            ("𠮷野", ["𠮷", "野", "𠮷野"]),
            ("好", ["好"]),
        ],
    )
    def test_unspaced_scripts_give_characters_and_pairs(
        self, text: str, expected: list[str]
    ) -> None:
        assert words(text) == sorted(expected)

    def test_spellings_of_a_script_meet_each_other(self) -> None:
        assert words("ｶﾞｲﾄﾞ") == words("ガイド") == words(unicodedata.normalize("NFD", "ガイド"))
        found = tokenize("使用getUserName函数")
        assert {"getusernam", "user", "使用", "函数"} <= set(found)
        assert "用g" not in found
        assert words("cafe\u0301") == words("café") == ["café"]
        assert words("STRASSE ΣΊΣΥΦΟΣ МОСКВА") == words("straße Σίσυφος Москва")
        assert words("हिन्दी भाषा") == sorted(["हिन्दी", "भाषा"])


@given(st.text())
def test_words_are_never_empty_never_spaced_and_never_a_lone_stop_word(text: str) -> None:
    for word in tokenize(text):
        assert word
        assert not any(character.isspace() for character in word)
        # but for what stemming makes one: "ORS"
        longer = [run for run in re.findall(r"\w+", text) if run.casefold() not in STOP_WORDS]
        stemmed = {each for run in longer for each in tokenize(run)}
        assert word not in STOP_WORDS or not word.isascii() or word in stemmed


@given(st.text(alphabet=st.sampled_from("abcXYZ019_./\\: é東カ한\u0301")))
def test_what_is_asked_for_as_it_was_written_is_found(text: str) -> None:
    assert words(f"before {text} after") == sorted(
        [*tokenize("before"), *tokenize(text), *tokenize("after")]
    )


def test_threads_get_the_words_that_one_thread_gets() -> None:
    endings = ("ations", "fulness", "ically", "izers", "ing", "edly")
    texts = [f"{a}{b}{ending}" for a in "bcdfglm" for b in "aeiou" for ending in endings]
    alone = [tokenize(text) for text in texts]
    tokenize_module._words_of_chunk.cache_clear()
    tokenize_module._stem.cache_clear()
    switch_interval_seconds = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # the stemmer works in place: threads must not meet inside it
    try:
        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(tokenize, texts)) == alone
    finally:
        sys.setswitchinterval(switch_interval_seconds)
