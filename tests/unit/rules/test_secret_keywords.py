"""Rules of redaction that a text cannot start are skipped, and none that it can."""

import pytest
from tests.harness.waiting import processor_seconds

from recollect.core.rules import redaction, secret_table
from recollect.core.rules.redaction import redact
from recollect.core.rules.secret_table import Keywords, declare, keywords_in


def test_a_keyword_sets_its_bit_wherever_it_stands_and_ends_with_its_sign() -> None:
    login, phrase, han = declare("login"), declare("my passphrase"), declare("密码")
    assert keywords_in("please login now") & login
    assert keywords_in("the LOGINS fail") & login
    assert not keywords_in("please log in") & login
    assert keywords_in("all my passphrases") & phrase == phrase
    assert keywords_in("é login—“密码”") & (login | han) == login | han
    rules = Keywords([("session=", 1), (" -q", 2), ("vault login", 3)])
    held = [rule for _, rule in rules.find_held(keywords_in("my_session=1"))]
    assert held == [1]
    assert rules.find_held(keywords_in("sessions a-q login vaults")) == []
    assert [rule for _, rule in rules.find_held(keywords_in("vault login -q"))] == [2, 3]


def test_runs_read_are_forgotten_before_they_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_table, "_MOST_RUNS", 50)
    bit = declare("needle")
    for n in range(300):
        assert not keywords_in(f"word{n} login{n} hay") & bit
    assert keywords_in("hay needle") & bit
    assert len(secret_table._known) + len(secret_table._plain) <= 50


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
def test_skipped_rule_would_have_found_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    filtered = redact(text).text
    assert "q7Rk2vLx9Zt" not in filtered
    every = (1 << secret_table._declared) - 1
    monkeypatch.setattr(secret_table, "keywords_in", lambda _: every)
    monkeypatch.setattr(redaction, "keywords_in", lambda _: every)
    assert redact(text).text == filtered


PROSE = (
    "The harbour master opens the lock at seven, and the first barge leaves an hour later. "
    "def berth_of(barge: Barge) -> Berth:\n    return sorted(barge.berths, key=len)[0]\n"
    '{"berth": 12, "crane": "green", "path": "src/quay/berths.py", "lines": [3, 9]}\n'
)


def test_ordinary_text_costs_a_fraction_of_what_all_rules_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every stored message is masked: this is a large part of what an import takes."""
    text = "".join(PROSE.replace("12", str(n)) for n in range(400))

    def mask() -> None:
        assert redact(text).text == text

    filtered = processor_seconds(mask, runs=5)
    every = (1 << secret_table._declared) - 1
    monkeypatch.setattr(secret_table, "keywords_in", lambda _: every)
    monkeypatch.setattr(redaction, "keywords_in", lambda _: every)
    assert filtered < 0.6 * processor_seconds(mask, runs=5)
