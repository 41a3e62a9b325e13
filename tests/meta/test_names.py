"""Names say what a value is: vague names, private uses and unexplained numbers stay few."""

import pytest
from tools import names

VAGUE = """
SOON = 5


def _settled(given, found: int):
    for one in given:
        left = read(one)
        kept = 0
        kept += left.store._rows
    return [at for at in given]
"""
CLEAR = '''
SOON_SECONDS = 5
"""Not measured; bounds how long a test waits."""
# Both bound the work of one turn.
MAX_ROWS = 7
MAX_WORDS = 9


def count_unchanged(messages, closed: bool) -> int:
    for message in messages:
        stored_row = read(message)
        seen = set()
    return sum(index for index in range(3))
'''


def test_the_package_stays_within_the_limits() -> None:
    counts = names.check_files(sorted(names.PACKAGE.rglob("*.py")))
    for kind, share in names.shares(list(counts.values())).items():
        assert share <= names.LIMITS[kind], f"{kind}: run `python -m tools.names --lines`"


def test_vague_names_are_found() -> None:
    findings = names.check_source(VAGUE).findings
    assert {(finding.kind, finding.name) for finding in findings} == {
        *(("values", name) for name in ("given", "one", "left", "at")),
        ("functions", "_settled"),
        ("private uses", "left.store._rows"),
        ("constants", "SOON"),
    }


def test_clear_names_are_accepted() -> None:
    assert names.check_source(CLEAR).findings == []


@pytest.mark.parametrize("source", [VAGUE, CLEAR])
def test_the_program_fails_above_a_limit(source: str, tmp_path) -> None:
    (tmp_path / "sample.py").write_text(source)
    assert names.main([str(tmp_path / "sample.py")]) == (source == VAGUE)
