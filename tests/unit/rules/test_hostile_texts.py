"""Redaction of texts that crowd keywords, as a hostile web page could: its speed, and what it finds
between them."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.harness.waiting import processor_seconds
from tests.sizes import at_size

from recollect.core.rules.redaction import redact
from recollect.core.rules.secret_rows import KEYED, SIGNING
from recollect.core.rules.secret_table import keys

KEYWORDS = sorted(
    {
        f"{sign}{keyword}="
        for sign in "?&;"
        for keyword in keys(f"{SIGNING}|{KEYED}|pwd|password|token|secret")
    }
)
OPENINGS = (
    "--password '",
    "password is ",
    "openssl -passin pass:",
    "keytool -storepass ",
    "token:\n'",
)
"""How commands and sentences announce a password."""
SIGNS = (*"./-_=:,;?&%#@!+~$^|*'\"`<>[](){}\\ \t\n", "\r\n")
LETTERS = (
    "a",
    "Z",
    "7",
    "aB3",
    "q9-",
    "é",
    "密",
    "\\n",
    "%3D",
    "://",
    "0123456789abcdef",
    "x.y/",
    "..",
)
FILLERS = ("", *SIGNS, *LETTERS, *(f"{letter}{sign}" for letter in "a7Z" for sign in SIGNS))
PAIRS = [(keyword, filler) for keyword in KEYWORDS for filler in FILLERS]
SMALL_CHARS, LARGE_CHARS = 10_000, 40_000
# In CI, other processes slow the measurement, so its limits find only what is far from linear.
LEAST_BYTES_PER_SECOND = at_size(ci=500_000, full=1_000_000)
MOST_GROWTH = at_size(ci=1.3, full=1.2)
"""Seconds per byte of the large text, over those of the small one."""


def seconds_per_byte(unit: str, chars: int, runs: int) -> float:
    text = unit * (chars // len(unit) + 1)  # whole units: a text cut in one may hold a secret
    return processor_seconds(lambda: redact(text), runs=runs) / len(text.encode())


def is_slow(unit: str, runs: int) -> bool:
    small, large = (seconds_per_byte(unit, chars, runs) for chars in (SMALL_CHARS, LARGE_CHARS))
    if max(small, large) * LEAST_BYTES_PER_SECOND > 1:
        return True
    # The last value of a text is cut at its end. It may be a secret in one of two sizes, and then
    # it is masked everywhere: that takes more time, but does not grow.
    larger = 4 * LARGE_CHARS
    most = MOST_GROWTH * small
    return large > most and seconds_per_byte(unit, larger, runs) > most


@pytest.mark.timeout(at_size(ci=400, full=7200))
def test_no_repeated_keyword_slows_redaction() -> None:
    pairs = random.Random(39).sample(PAIRS, at_size(ci=500, full=len(PAIRS)))
    units = [keyword + filler for keyword, filler in pairs]
    # A pair is slow if every measurement is: other processes disturb one, and sometimes two.
    assert [unit for unit in units if all(is_slow(unit, runs) for runs in (1, 7, 7, 7))] == []


@pytest.mark.timeout(at_size(ci=400, full=1200))
def test_no_repeated_announcement_takes_more_than_linear_time() -> None:
    """Their speed has no limit of its own; they reach about half of that of parameters."""
    pairs = [f"{opening}{filler}" for opening in OPENINGS for filler in FILLERS]
    units = random.Random(40).sample(pairs, at_size(ci=40, full=len(pairs)))

    def grows(unit: str, runs: int) -> bool:
        small, large = (seconds_per_byte(unit, size, runs) for size in (SMALL_CHARS, LARGE_CHARS))
        return large > MOST_GROWTH * small

    assert [unit for unit in units if all(grows(unit, runs) for runs in (1, 7, 7, 7))] == []


PASSWORD = "".join(("Hunter", "7-", "Ranch!x"))
TOKEN = "".join(("q7Rz", "P2xW9", "vLk3", "TbN8", "mYc5"))
LABELED = (
    (";password=", PASSWORD, " "),
    (";password=", PASSWORD, "\n"),
    ("&api_key=", TOKEN, " "),
    ("?token=", TOKEN, "\n"),
    ("\npassword: ", PASSWORD, "\n"),
    (" the password is ", PASSWORD, " "),
    ("\nDB_PASSWORD=", PASSWORD, "\n"),
    (' "secret": "', TOKEN, '" '),
    (" --password ", PASSWORD, " "),
    ("\nAuthorization: Bearer ", TOKEN, "\n"),
)
CROWDS = (
    *(";pwd=.", "?hmac==", ";password=,", "&secret=Z}", "?passcode=Z ", "&password=Z=", ";key="),
    *("&password=7>", "&key=Z-", "?sig=0123456789abcdef&", ";api_key=7\n", 'key="', "auth_key="),
    *("pass", "token: ", "secret ", "password is ", '"password": "'),
)


@pytest.mark.parametrize(("label", "secret", "end"), LABELED)
def test_crowded_keywords_do_not_hide_a_secret(label: str, secret: str, end: str) -> None:
    varied = "".join(random.Random(7).choices(CROWDS, k=500))
    crowds = [varied, *(crowd * 500 for crowd in CROWDS)]
    texts = [f"{crowd}{label}{secret}{end}{crowd}" for crowd in crowds]
    assert [text[:20] for text in texts if secret in redact(text).text] == []


def test_texts_read_at_once_do_not_share_verdicts() -> None:
    texts = [
        f"{crowd * 200};password={PASSWORD}{n} {crowd * 200}" for n, crowd in enumerate(CROWDS)
    ]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(redact, texts * 3)) == [redact(text) for text in texts] * 3
