"""The inspector's pages over real HTTP: who is let in, and what each page shows."""

import html
import re
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from hashlib import sha512
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.harness.inspector import (
    FOREIGN,
    FORM_TOKEN,
    Visit,
    every_route,
    inspector,
    said,
    store_session,
)
from tests.unit.agent.agent_harness import notes

from recollect.testing.scripted_model import Says, ScriptedModel

TALK = [said("user", "Where does the harbour light burn?"), said("assistant", "On the north mole.")]
QUESTION = said("user", "And who keeps it?")


@pytest.fixture
def visit() -> Iterator[Visit]:
    store_session("harbour", "chat-1", [TALK[:1], [*TALK, QUESTION]])
    with inspector() as visitor:
        yield visitor


def test_a_link_lets_one_browser_in_once(visit: Visit) -> None:
    assert "1 session" in visit.page().words
    stranger = Visit(visit.address, visit.link)
    assert stranger.ask("/").status == 401
    again = stranger.ask(visit.link.removeprefix(visit.address))
    assert again.status == 401
    assert "recollect ui" in again.words


def test_other_hosts_and_sites_are_refused_at_every_route(visit: Visit) -> None:
    """DNS rebinding sends the name of another host; a page of another site names itself."""
    given = "?space=harbour&session=chat-1&turn=1&look=1&pattern=x&matching=x&token="
    routes = every_route()
    assert len(routes) > 15
    for route in (*routes, "/unknown"):
        for status, headers in FOREIGN:
            refused = visit.ask(route + given, **headers)
            assert (refused.status, "harbour" in refused.text) == (status, False), (route, headers)
    link = visit.link.removeprefix(visit.address)
    assert visit.ask(link, sec_fetch_site="cross-site").status == 403


def test_the_ways_of_a_person_are_open(visit: Visit) -> None:
    own = visit.address
    for headers in (
        {"sec_fetch_site": "none"},
        {"sec_fetch_site": "same-origin", "referer": f"{own}/x", "origin": own},
        {"host": f"localhost:{urlsplit(own).port}"},
        {"host": f"[::1]:{urlsplit(own).port}"},
    ):
        assert visit.ask("/", **headers).status == 200, headers


def test_an_address_without_the_secret_path_shows_how_to_sign_in(visit: Visit) -> None:
    """A cookie below an own path is not sent to servers on other ports."""
    signing = Visit(visit.address, visit.link).ask("/?token=old")
    assert "set-cookie" not in signing.headers
    bare = Visit(visit.address, visit.address, visit.cookie)
    for path in ("/", "/session?space=harbour", "/live?space=harbour", "/inspector.css"):
        shown = bare.ask(path)
        assert (shown.status, "harbour" in shown.text) == (401, False)
        assert "recollect ui" in shown.words


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
    for page in ("session", "messages", "turn", "wire", "receipt", "live", "forget", "redact"):
        unknown = visit.ask(f"/{page}?space=unknown&session=chat-1&look=1&matching=x&turn=1")
        assert (unknown.status, "No such memory" in unknown.words) == (404, True), page


SECRET = (
    "sk-ant-api03-" + urlsafe_b64encode(sha512(b"harbour").digest()).decode().rstrip("=") + "AA"
)


def long_talk(turns: int) -> list[list[dict[str, Any]]]:
    """The requests of a session whose results outgrow a small window."""
    history: list[dict[str, Any]] = []
    requests = []
    for number in range(1, turns + 1):
        path = f"/srv/tides/{number}/north.csv"
        question = f"Question {number}: which tide is at berth {number}? See {path}"
        history.append(said("user", question))
        requests.append([*history])
        call = {"type": "tool_use", "id": f"c{number}", "name": "tide", "input": {"berth": number}}
        history.append(said("assistant", [call]))
        text = f"Berth {number}: the tide table of day {number}. "
        text += f"row {number} of the log. " * 150
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": text}
        history.append(said("user", [result]))
        requests.append([*history])
        history.append(said("assistant", f"The tide at berth {number} is high."))
    return requests


@pytest.fixture
def talk() -> Iterator[Visit]:
    """A session that was trimmed, and one that was compacted."""
    store_session("harbour", "trimmed", long_talk(14), window_tokens=8_000)
    model = ScriptedModel(lambda prompt: Says(text=notes(prompt)), window_tokens=100_000)
    store_session("harbour", "compacted", long_talk(14), window_tokens=10_000, model=model)
    with inspector() as visitor:
        yield visitor


def test_a_turn_says_what_became_of_each_message_and_why(talk: Visit) -> None:
    where = {"space": "harbour", "session": "trimmed"}
    last = talk.page("turn", **where, turn=28)
    assert "Turn 28 of 28" in last.words
    assert re.search(r"[\d,]+ tokens received, [\d,]+ sent, within the limit", last.words)
    assert "Dropped" in last.words or "Shortened" in last.words
    shown = talk.page("turn", **where, turn=28, show="all").words
    assert "Question 14: which tide" in shown
    found = talk.page("turn", **where, turn=28, q="tide table of day 1. ").words
    assert re.search(r"\d messages? with “tide table of day 1.”", found)
    assert re.search(r"(Dropped|Shortened|Summarized).*old tool result|left out|relevant", found)
    for turn in ("99", "abc", "0"):
        assert talk.ask(f"/turn?space=harbour&session=trimmed&turn={turn}").status == 400


def test_every_sent_row_is_listed_once_with_its_message(talk: Visit) -> None:
    where = {"space": "harbour", "session": "trimmed"}
    for turn in (5, 20, 28):
        shown = talk.page("turn", **where, turn=turn, show="all").words
        received, sent = re.findall(r"(\d+) messages? received, (\d+) sent", shown)[0]
        numbers = {int(one) for one in re.findall(r"#(\d+) (?:=|Kept|Shortened|Dropped)", shown)}
        assert numbers == set(range(1, int(received) + 1))
        kept = len(re.findall(r"(?:#\d+|added) (?:Kept|Shortened|Inserted)", shown))
        assert kept == int(sent)


def test_a_message_says_what_the_model_saw_of_it(talk: Visit) -> None:
    found = talk.page("memory", q="tide table of day 1", space="harbour").text
    links = re.findall(r'href="(/[^"]*message\?[^"]+)"', found)
    assert links
    shown = talk.ask(html.unescape(links[0])).words
    assert re.search(r"In turn 28 (as message #|this message was sent unchanged)", shown)
    reply = {"role": "assistant", "content": [{"type": "text", "text": "Aye, it is."}]}
    asked = said("user", "tide " * 900 + "The beacon is red. " + "tide " * 300)
    store_session("quay", "long", [[asked]], after=lambda memory: memory.observe("long", reply))
    assert "The beacon is red." in talk.page("turn", space="quay", session="long", q="BEACON").words
    listed = talk.page("messages", space="quay", session="long")
    links = re.findall(r"/message\?[^\"]+", listed.text)
    pages = [talk.ask(html.unescape(link)).words for link in links]
    assert ["This is the reply to turn 1." in one for one in pages] == [True, False]


def test_the_wire_diff_shows_both_sides_and_the_first_changed_byte(talk: Visit) -> None:
    where = {"space": "harbour", "session": "trimmed"}
    timeline = talk.page("session", **where).text
    broken = re.findall(r'turn=(\d+)" aria-label="Turn \d+: cache broken"', timeline)
    assert broken
    shown = talk.page("wire", **where, turn=broken[0])
    assert re.search(r"The cache is broken at byte [\d,]+", shown.words)
    place = re.search(r'href="(/[^"]*wire[^"]+)#break"', shown.text)
    assert place
    assert "First changed byte" in talk.ask(html.unescape(place[1])).words
    assert re.search(r"<del>.*row 1 of the log", shown.text)
    for turn in range(1, 29):
        shown = talk.page("wire", **where, turn=turn)
        client = re.findall(r'<div class="side was">(.*?)</div>', shown.text, re.DOTALL)
        assert not any("recalled-context" in one for one in client), "a block is not the client's"
    store_session("harbour", "plain", long_talk(14), window_tokens=8_000, cached_tokens=0)
    plain = {"space": "harbour", "session": "plain"}
    assert "cache broken" not in talk.page("session", **plain).text
    for turn in (5, 28):
        words = talk.page("turn", **plain, turn=turn).words
        assert "From the provider's cache 0% no cache" in words
        assert "cache is broken" not in talk.page("wire", **plain, turn=turn).words
    quiet = talk.page("wire", **where, turn=1).words
    assert "byte for byte as the client sent it" in quiet


def test_a_receipt_leads_to_its_messages_and_can_be_undone(talk: Visit) -> None:
    where = {"space": "harbour", "session": "compacted"}
    first = talk.page("receipt", **where, number=1)
    checked = re.search(r"(\d+) of (\d+) details checked", first.words)
    assert checked
    assert checked[1] == checked[2]
    assert "Not checked" not in first.words.partition("All compactions")[0]
    source = re.search(r'href="(/[^"]*message\?[^"]+)"', first.text)
    assert source
    assert "As it is stored" in talk.ask(html.unescape(source[1])).words
    shown = talk.page("receipt", **where)
    asked = talk.act("undo", shown, **where)
    assert "Undo the newest compaction?" in asked.words
    assert "undone" not in talk.page("receipt", **where).words
    done = talk.act("undo", asked, **where, confirmed="yes")
    assert "Undone" in done.words
    assert "undone" in talk.page("receipt", **where).words


def test_a_receipt_shows_how_many_details_were_not_checked(visit: Visit) -> None:
    paths = "\n".join(f"The crane {n} is described in docs/crane_{n}.md." for n in range(200))
    model = ScriptedModel(lambda prompt: Says(text=notes(prompt)), window_tokens=100_000)
    requests = [[said("user", paths)], *([said("user", paths), *one] for one in long_talk(14))]
    store_session("harbour", "long", requests, window_tokens=20_000, model=model)
    words = visit.page("receipt", space="harbour", session="long", number=1).words
    checked = re.search(r"(\d+) of (\d+) details checked", words)
    assert checked
    assert f"Not checked {int(checked[2]) - int(checked[1])} " in words
    assert "Nothing was lost" not in words


def test_search_finds_the_session_that_said_it(talk: Visit) -> None:
    for name in ("a", "b"):
        store_session("quay", name, [[said("user", "Remember which tide is at berth 7.")]])
    found = talk.page("memory", q="which tide is at berth 7")
    assert "score" in found.words
    assert {"<h3>harbour</h3>", "<h3>quay</h3>"} <= set(re.findall("<h3>.*?</h3>", found.text))
    assert found.words.count("Remember which tide is at berth 7.") == 1
    assert re.search(r"/session\?space=harbour&amp;session=(trimmed|compacted)", found.text)
    one = talk.page("memory", q="berth 7", space="harbour").words
    assert "In a new session, this question" in one
    assert talk.ask("/memory?q=%2C%2C").status == 400


def test_facts_are_written_corrected_pinned_and_forgotten(visit: Visit) -> None:
    facts = visit.page("facts", space="harbour")
    made = visit.act("fact", facts, space="harbour", text="The harbour master is Anna.")
    assert "The harbour master is Anna." in made.words
    id_ = re.search(r'name="id" value="([^"]+)"', made.text)
    assert id_
    fixed = visit.act("fact", made, space="harbour", id=id_[1], text="The harbour master is Ben.")
    assert "The harbour master is Ben." in fixed.words
    assert "The harbour master is Anna." in fixed.words, "its history"
    newest = re.search(r'name="id" value="([^"]+)"', fixed.text)
    assert newest
    pinned = visit.act("fact", fixed, space="harbour", id=newest[1], act="pin")
    assert "Pinned" in pinned.words
    ended = visit.act("fact", pinned, space="harbour", id=newest[1], act="expire")
    assert "Expired" in ended.words
    assert "Ben" not in visit.page("facts", space="harbour").words
    assert "Ben" in visit.page("facts", space="harbour", past="1").words
    preview = visit.page("forget", space="harbour", fact=newest[1])
    assert "1 fact" in preview.words
    gone = visit.act("forget", preview, space="harbour", fact=newest[1], expected="1 fact")
    assert "Forgotten" in gone.words
    assert "Ben" not in visit.page("facts", space="harbour", past="1").words


def test_forgetting_previews_everything_and_gives_a_certificate(visit: Visit) -> None:
    preview = visit.page("forget", space="harbour", matching="north mole")
    assert "On the north mole." in preview.words
    expected = re.search(r'name="expected" value="([^"]+)"', preview.text)
    assert expected
    either = visit.page("forget", space="harbour", matching="north mole", forget_session="chat-1")
    assert "And who keeps it?" in either.words
    assert "messages that meet any of these conditions" in either.words
    for age in ("-5", "0.5", "0", "soon", "90e"):
        refused = visit.ask(f"/forget?space=harbour&matching=north+mole&older_days={age}")
        assert (refused.status, f"'{age}': give days" in refused.words) == (400, True), age
    for age in ("90", "90d"):
        assert "so nothing" in visit.page("forget", space="harbour", older_days=age).words
    given = {"space": "harbour", "matching": "north mole"}
    stale = visit.act("forget", preview, **given, expected="2 messages")
    assert stale.status == 409
    assert "On the north mole." in visit.page("forget", **given).words
    done = visit.act("forget", preview, **given, expected=expected[1])
    assert "checksum" in done.words
    assert "Nothing in this memory matches" in visit.page("forget", **given).words


def test_redaction_counts_secrets_and_then_masks_them() -> None:
    store_session(
        "keys", "s", [[said("user", f"Use {SECRET} for it")]], settings={"redaction.enabled": False}
    )
    with inspector() as visit:
        looked = visit.page("redact", space="keys", look=1)
        assert "stored unmasked" in looked.words
        assert SECRET not in looked.text
        assert SECRET not in visit.page("session", space="keys", session="s").text
        assert SECRET not in visit.page("turn", space="keys", session="s", turn=1, show="all").text
        done = visit.act("redact", looked, space="keys")
        assert "Masked" in done.words
        assert "No unmasked secret was found" in visit.page("redact", space="keys", look=1).words


def test_health_shows_checks_sizes_and_jobs(visit: Visit) -> None:
    shown = visit.page("health", space="harbour", check=1).words
    assert "Nothing is broken." in shown
    assert "The store is intact." in shown
    assert "Messages" in shown


def test_other_commands_load_none_of_it() -> None:
    names = ("memory", "facts", "forgetting", "sessions", "doctor", "daemon", "import_", "upkeep")
    code = (
        f"import sys, {', '.join(f'recollect.cli.{name}' for name in names)}; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded.isdisjoint({"jinja2", "markupsafe", "starlette", "uvicorn"})


def test_no_get_changes_anything_and_no_form_without_its_token(visit: Visit) -> None:
    given = {"space": "harbour", "matching": "north mole", "expected": "1 message"}
    for name in ("forget", "redact", "fact", "undo"):
        refused = visit.ask(f"/{name}", {**given, "form_token": "0" * 64})
        assert refused.status == 403, name
        assert visit.ask(f"/{name}", given).status == 403, name
    own = visit.page("forget", space="harbour", matching="north mole")
    token = FORM_TOKEN.search(own.text)
    assert token
    with_token = {**given, "form_token": token[1]}
    foreign = {"origin": "https://evil.example"}, {"origin": "http://localhost:1"}
    for headers in (*foreign, {"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"}):
        assert visit.ask("/forget", with_token, **headers).status == 403, headers
    assert visit.ask("/undo?space=harbour&session=chat-1").status == 405
    assert "On the north mole." in visit.page("forget", **given).words
