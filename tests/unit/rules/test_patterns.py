"""Regular expressions and globs from outside: found as Python writes them, in bounded time."""

import json
import random
import re
import threading
import time
from pathlib import Path

import pytest
from tests.harness.hostile_patterns import GLOBS, PATTERNS, TEXTS
from tests.unit.config.test_settings_act import AGGRESSIVE, browsed, prepare, shortened

from recollect.core.rules import patterns
from recollect.core.rules.patterns import TextPattern, compile_patterns
from recollect.core.transfer.file_walk import FollowedFiles
from recollect.errors import SettingsError

MOST_SECONDS = 8.0
"""Processor time of a pattern over four texts of 30 KB, each twice; a busy machine doubles it."""


@pytest.mark.parametrize("written", PATTERNS, ids=range(len(PATTERNS)))
def test_a_hostile_pattern_is_refused_or_ends(written: str) -> None:
    began = time.process_time()
    try:
        pattern = TextPattern(written)
        for text in TEXTS:
            pattern.occurs_in(text)
            list(pattern.spans(text))
    except SettingsError as refusal:
        assert written not in str(refusal)
    assert time.process_time() - began < MOST_SECONDS


def test_other_threads_run_while_a_pattern_is_matched() -> None:
    pattern = TextPattern("[ab]*a[ab]{300}c")
    text = "".join(random.Random(1).choices("ab", k=300_000))
    matching = threading.Thread(target=pattern.occurs_in, args=(text,))
    spent = time.thread_time()
    matching.start()
    beats = 0
    while matching.is_alive():
        beats += 1
        time.sleep(0.001)
    assert beats > 20, "the search takes hundreds of milliseconds"
    assert time.thread_time() - spent < 5


CASES = [
    *((r"Grüner \w+", "Grüner Würfel. Grüner Öl"), (r"\d+", "x 42 ٤٢"), (r"a\sb", "a\u00a0b a b")),
    *((r"\u00fc+", "Rüü"), (r"\U0001f99c", "a 🦜 b"), (r"a{,3}b", "aab b aaaab"), (r"x\Z", "xx")),
    *((r"[\w.-]+@[\w.]+", "é.m-x@ü.de, a@b"), (r"[]x]+", "]]x"), (r"[^]]+", "ab]cd"), ("^a", "aa")),
    *((r"[$]\d", "$5 a$"), (r"(?m)^k=.*$", "k=1\nj=2\nk=3"), (r"\W+", "a¿? b"), (r"\[\d\]", "[3]")),
    *(("(?i)größe", "GRÖSSE GRÖßE größe"), ("日本\\w", "日本語"), (r"[\d\s]+x", "1 2\u00a03x")),
    *(
        (r"(?P<a>x)|y", "xy"),
        (r"\bAnn\b", "Ann, planning"),
        ("[a[]b", "[b ab"),
        (r"a\.b", "a.b axb"),
    ),
    *(("🦜+x?", "🦜🦜x🦜"), ("a.b", "a\ud800b"), (r"[^\n]{2,4}", "äöü\näb"), (r"\x41+", "AA")),
]


@pytest.mark.parametrize(("written", "text"), CASES)
def test_a_pattern_finds_what_python_finds(written: str, text: str) -> None:
    expected = [match.span() for match in re.finditer(written, text)]
    pattern = TextPattern(written)
    assert list(pattern.spans(text)) == expected
    assert pattern.occurs_in(text) is bool(expected)


def test_the_end_of_a_text_is_also_before_its_last_line_break() -> None:
    assert list(TextPattern(r"password: \w+$").spans("password: abc\n")) == [(0, 14)]


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        *(("(?=secret)x", "look-ahead"), ("(?<!secret)x", "look-behind"), (r"(s)\1", "groups")),
        *(("(?>secret)", "possessive"), ("secret++", "write a+"), ("secret{1001}", "1,000 rounds")),
        *(("(?x)secret", "flags"), (r"\N{DASH}secret", "flags"), ("secret)", "brackets")),
        *((r"[^\Wsecret]", "P{L}"), ("secret|", "the empty text"), ("secret*" * 200, "split it")),
        *(("(secret.{0,90}){9}", "shorter repeats"), ("secret[z-a]", "ranges")),
        *((r"\Csecret", "write ."), (r"\bÉsecret\b", "ASCII letters"), (r"ä\Bsecret", "ASCII")),
        *(("secret\ud800", "brackets"), ("(?(1)secret|x)", "groups"), ("*secret", "repeats")),
    ],
)
def test_a_refusal_says_what_to_write_and_quotes_nothing(written: str, advice: str) -> None:
    with pytest.raises(SettingsError, match=r"^pattern 2 ") as refused:
        compile_patterns(["fine", written])
    assert advice in str(refused.value)
    assert "secret" not in str(refused.value)


def test_matches_and_time_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="10,000 times"):
        list(TextPattern("a").spans("a" * 20_000))
    monkeypatch.setattr(patterns, "MAX_SECONDS", 0.05)
    quadratic = TextPattern("a(?:.*b)?")
    assert quadratic.occurs_in("a" * 300_000)
    with pytest.raises(SettingsError, match=r"leave out parts such as \.\*"):
        list(quadratic.spans("a" * 300_000))


@pytest.mark.parametrize("written", [r"sk-\w+", "BEGIN[\\s\\S]{0,20}?END", "^a|b$", r"é\w+", "日"])
def test_a_long_text_is_searched_in_windows_without_a_cut(
    monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.setattr(patterns, "WINDOW_COST", 0)
    monkeypatch.setattr(patterns, "MIN_WINDOW_BYTES", 128)
    pattern, pieces = (
        TextPattern(written),
        ("sk-abc", "BEGIN", "END", " ", " ", "b", "é", "x", "日"),
    )
    for seed in range(60):
        text = "".join(random.Random(seed).choices(pieces, k=300))
        assert list(pattern.spans(text)) == [one.span() for one in re.finditer(written, text)]


@pytest.mark.parametrize("written", GLOBS, ids=range(len(GLOBS)))
def test_a_glob_for_tools_takes_linear_time(written: str) -> None:
    named = json.loads(json.dumps(browsed).replace("browser_open", "a" * 5_000))
    given = {**AGGRESSIVE, "pruning.tools.allow": ("*",)}
    allowed = shortened(prepare(named, given))
    began = time.process_time()
    denied = shortened(prepare(named, {**given, "pruning.tools.deny": (written,)}))
    assert time.process_time() - began < MOST_SECONDS
    assert len(denied) == (0 if written == "[a-z]*" else len(allowed))


def test_a_glob_for_files_takes_linear_time(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["a"] * 40)
    folder.mkdir(parents=True)
    (folder / "b.md").write_text("The crane.\n")
    began = time.process_time()
    for written, count in (("**/a/" * 20 + "**/b.md", 1), ("**/a/" * 20 + "**/c.md", 0)):
        files = FollowedFiles(tmp_path, [written], own_files=False).find().files
        assert len(files) == count
    assert time.process_time() - began < MOST_SECONDS


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
@pytest.mark.parametrize("inside", ["{[", "a[", "[", "[^", "^[", r"\[", "[a-z", "]["])
@pytest.mark.parametrize("after", [r"\w+", r"\s\w", r"\d", "b"])
def test_a_bracket_in_a_class_is_a_character(inside: str, after: str) -> None:
    written = f"[{inside}]{after}"
    for text in ("{abc def", "a x1", "[b", "[9", "]b", "^ w", "qb", "zb7"):
        expected = re.search(written, text) is not None
        assert TextPattern(written).occurs_in(text) is expected, (written, text)
