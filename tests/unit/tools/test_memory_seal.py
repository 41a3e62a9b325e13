"""An answer of a memory tool is known as that in another process, and nothing else is."""

from __future__ import annotations

from recollect.core.rules.identity import is_sealed, sealed

ANSWER = "<recalled-context>\nFrom memory.\n[1] user: port 5433\n</recalled-context>"
SECRET, OTHER = b"of this space" * 2, b"of another one" * 2


def test_a_seal_holds_for_its_text_and_its_space_alone() -> None:
    given = sealed(ANSWER, SECRET)
    assert given.startswith("<recalled-context>")
    assert given.endswith("</recalled-context>")
    assert is_sealed(given, SECRET)
    assert is_sealed(f"  {given}\n", SECRET), "hosts trim"
    assert not is_sealed(given, OTHER)
    assert not is_sealed(ANSWER, SECRET)
    assert not is_sealed(given.replace("5433", "6666"), SECRET)
    assert not is_sealed(f"{given}\nand more", SECRET)
    assert not is_sealed(f"words before\n{given}", SECRET)
    assert not is_sealed(sealed(ANSWER, OTHER), SECRET)
    for odd in ("", "\nseal ", "seal x", "\nseal \n", given.replace("seal ", "seal  ")):
        assert not is_sealed(odd, SECRET)
