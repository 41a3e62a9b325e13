"""The inspector's pages over real HTTP: who is let in, and what each page shows."""

from __future__ import annotations

import pytest
from tests.harness.inspector import Visit, inspector, said, store_session

TALK = [said("user", "Where does the harbour light burn?"), said("assistant", "On the north mole.")]
QUESTION = said("user", "And who keeps it?")


@pytest.fixture
def visit() -> object:
    store_session("harbour", "chat-1", [TALK[:1], [*TALK, QUESTION]])
    with inspector() as visitor:
        yield visitor


def test_a_link_lets_one_browser_in_once(visit: Visit) -> None:
    assert "chat-1" in visit.page().words
    stranger = Visit(visit.address, visit.link)
    assert stranger.ask("/").status == 401
    again = stranger.ask(visit.link.removeprefix(visit.address))
    assert again.status == 401
    assert "recollect ui" in again.words


def test_another_host_or_origin_is_refused(visit: Visit) -> None:
    """DNS rebinding sends the name of another host; a foreign page sends its origin."""
    assert visit.ask("/", host="evil.example").status == 421
    for headers in ({"origin": "https://evil.example"}, {"origin": "null"}):
        assert visit.ask("/", **headers).status == 403
    cookie = visit.ask("/", sec_fetch_site="none")
    assert cookie.status == 200


def test_every_answer_carries_the_policy(visit: Visit) -> None:
    for path in ("/", "/inspector.css", "/inspector.js", "/session?space=harbour&session=chat-1"):
        answer = visit.ask(path)
        rules = answer.headers["content-security-policy"]
        assert "default-src 'none'" in rules
        assert "require-trusted-types-for 'script'" in rules
        assert "unsafe" not in rules
        assert "access-control-allow-origin" not in answer.headers


def test_a_session_shows_its_turns(visit: Visit) -> None:
    shown = visit.page("session", space="harbour", session="chat-1").words
    assert "2 turns with claude-opus-4-5" in shown
    assert "And who keeps it?" in shown
    assert visit.ask("/session?space=harbour&session=unknown").status == 404
    assert visit.ask("/session?space=unknown&session=chat-1").status == 400
