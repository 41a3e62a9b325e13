"""Before messages are masked: which repeat a word that could be a secret of an earlier one."""

import random
import string
import time

import pytest

from recollect.core.rules.message_redaction import RepeatedWords
from recollect.core.values.message import EntryKey, Message, Text

SECRET = "-".join(("tR9", "mQ4x", "Zw8Lp", "Vk2"))
RANDOM = random.Random(7)


def messages(*texts: str) -> dict[EntryKey, Message]:
    return {
        EntryKey(f"k{number}"): Message(role="user", parts=(Text(text=text),), raw=b"{}")
        for number, text in enumerate(texts)
    }


def waiting(*texts: str) -> list[int]:
    """Which of these messages wait for an earlier one."""
    read = messages(*texts)
    repeats = RepeatedWords(read)
    return [number for number, key in enumerate(read) if repeats.may_repeat(key, read)]


@pytest.mark.parametrize(
    "told",
    [
        "DB_PASSWORD={}",
        "mysql -p{} -u root",
        "postgres://user:{}@host/db",
        '{{"key":"{}\\n"}}',
        "x" * 1_000 + "={};y",
    ],
)
@pytest.mark.parametrize("words", ["{} is wrong", "use '{}'.", "(key {})", "KEY={};x", "[{}]"])
def test_a_message_waits_for_an_earlier_one_with_its_random_word(told: str, words: str) -> None:
    assert waiting("an answer", told.format(SECRET), words.format(SECRET), "hello") == [2]
    assert waiting(words.format(SECRET), told.format(SECRET).replace("=", " = ")) == [1]


def test_a_message_does_not_wait_for_stored_messages_or_for_ordinary_words() -> None:
    read = messages(f"password={SECRET}", f"{SECRET} is wrong")
    first, second = read
    assert not RepeatedWords(read).may_repeat(second, {second})
    assert RepeatedWords(read).may_repeat(second, {first})
    assert waiting("which config.yaml do you mean?", "the config.yaml of configuration") == []


def random_words(count: int) -> str:
    letters = string.ascii_letters + string.digits
    return " ".join("".join(RANDOM.choices(letters, k=24)) for _ in range(count))


@pytest.mark.parametrize("long", ["function(a,t){return a.b(t)}", "a page of ordinary words "])
def test_the_time_is_linear(long: str) -> None:
    took = []
    for size in (1, 4):
        page, words = long * (size * 8_000), random_words(size * 400)
        read = messages(page, words, words)
        begun = time.process_time()
        repeats = RepeatedWords(read)
        _, second, third = read
        assert not repeats.may_repeat(second, read)
        assert repeats.may_repeat(third, {second}), "the texts are equal"
        took.append(time.process_time() - begun)
    assert took[1] < 9 * took[0], "quadratic time would be 16 times as long"
