"""Rules of redaction that a text cannot start are skipped, and none that it can."""

from __future__ import annotations

import pytest

from recollect.rules import redaction, secret_triggers
from recollect.rules.redaction import redact
from recollect.rules.secret_triggers import trigger, triggers_in


def test_a_word_and_a_part_set_their_bits() -> None:
    whole, part = trigger("login"), trigger(parts=("my passphrase",))
    assert triggers_in("please login now") & whole
    assert not triggers_in("please log in, logins fail") & whole
    assert triggers_in("all my paraphrases") & part == 0
    assert triggers_in("the passphrases") & part
    assert triggers_in("é login—“passphrases”") & (whole | part) == whole | part


def test_words_that_were_read_are_forgotten_before_they_fill_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(secret_triggers, "_MOST_WORDS", 50)
    bit = trigger("needle")
    for n in range(300):
        letters = "".join(chr(97 + int(digit)) for digit in str(n))
        assert not triggers_in(f"word{letters} hay") & bit
    assert triggers_in("hay needle") & bit
    assert len(secret_triggers._known) <= 50


@pytest.mark.parametrize("label", ["password", "PASSWORD", "Password"])
@pytest.mark.parametrize("around", ["{}", "a lot of plain words\n{}\nand more", "Ünïcode {} 密码"])
def test_a_secret_is_masked_whatever_stands_around_it(label: str, around: str) -> None:
    text = around.format(f'{label}="xK9#mQ2$vL7p"')
    assert "xK9#mQ2$vL7p" not in redact(text).text


COMMANDS = (
    *(f"{name} -u app -pq7Rk2vLx9Zt" for name in ("mysqlsh", "mysqlpump", "mysqlcheck")),
    *(f"{name} -u app -p q7Rk2vLx9Zt" for name in ("mongoexport", "mongostat", "mongofiles")),
    *(f"{name} -x -w q7Rk2vLx9Zt" for name in ("ldapmodrdn", "ldapcompare", "ldapexop")),
    *(f"{name} -v3 -A q7Rk2vLx9Zt host" for name in ("snmpbulkget", "snmpgetnext", "snmptrap")),
    "wlfreerdp /u:app /p:q7Rk2vLx9Zt",
    "https://app.example.com/invites/q7Rk2vLx9Ztq7Rk2vLx9Zt77",
    "docker login -u app -p q7Rk2vLx9Zt",
    "redis-cli -a q7Rk2vLx9Zt",
)


@pytest.mark.parametrize("text", COMMANDS)
def test_a_skipped_rule_would_have_found_nothing(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filtered = redact(text).text
    assert "q7Rk2vLx9Zt" not in filtered
    monkeypatch.setattr(redaction, "triggers_in", lambda _: -1)
    assert redact(text).text == filtered
