"""What redaction masks in a message reaches the disk by no other way.

A secret is often known by what stands beside it (`DB_PASSWORD=…`), so whatever is taken from a
message (a name, a probe, an edit, an entity) has to be taken from the masked text.
"""

from __future__ import annotations

import asyncio
import json
import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner
from tests.integration.long_talk import SESSION, Talk, notes, opened, scribe
from tests.integration.planted_secrets import Planted, bytes_below

from recollect.rules.redaction import redact
from recollect.surfaces.cli import main
from recollect.values.model import Prompt

NAMES = ("DB_PASSWORD", "API_TOKEN", "STRIPE_SECRET", "SIGNING_KEY", "SESSION_SECRET")
EMBEDDED = string.ascii_letters + string.digits


def environment(seed: int) -> tuple[str, list[str]]:
    """What `env` prints, and the secrets in it: every one known by its name alone."""
    chance = random.Random(seed)
    held = {name: "".join(chance.choices(EMBEDDED, k=26)) + "9a" for name in NAMES}
    lines = ["PATH=/usr/bin:/bin", "HOME=/home/ada", *(f"{n}={v}" for n, v in held.items())]
    text = "\n".join(lines)
    assert not any(value in redact(text).text for value in held.values())
    return text, list(held.values())


def holding(folder: Path, secrets: list[str]) -> list[tuple[str, str]]:
    """Which files below a folder hold which secret."""
    return [
        (str(path.relative_to(folder)), secret)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        for data in [path.read_bytes()]
        for secret in secrets
        if secret.encode() in data
    ]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_a_compaction_takes_names_probes_and_failures_from_masked_text(home: Path) -> None:
    dump, secrets = environment(1)
    told, more = environment(2)
    failed, others = environment(3)
    asked: list[str] = []

    def repeats(prompt: Prompt) -> str:
        asked.append(prompt.text)
        return f"{notes(prompt)}\n- the value is {secrets[0]} and {more[1]}"

    async def run() -> dict[str, Any]:
        talk = Talk()
        talk.ask(f"We must always use these:\n{told}").answer("Noted.")
        talk.call("bash", dump, command="env")
        talk.messages[-1]["content"][0]["is_error"] = True
        talk.call("write", "ok", path=f"/srv/{others[0]}.env", content=failed)
        talk.call("bash", f"Error: exit code 1\n{failed}", command=f"export {failed}")
        async with opened(home / "m.db", scribe(repeats)) as memory:
            for _ in range(2):
                await memory.prepare(SESSION, talk.exchange(5).body("go on"))
            done = await memory.compact(SESSION, instructions=f"look after {dump}")
            assert done.compacted, done.reason
            again = await memory.prepare(SESSION, talk.exchange(1).body("which crane is free?"))
            await memory.settle()
            return {"done": done, "context": again}

    made = asyncio.run(run())
    every = [*secrets, *more, *others]
    assert holding(home, every) == []
    assert [one for one in every for text in asked if one in text] == []
    assert [one for one in every if one in made["done"].summary] == []
    shown = CliRunner().invoke(main, ["receipt", SESSION, "--json", "--store", str(home / "m.db")])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)
    assert [one for one in every if one in shown.output] == []


def test_what_is_repeated_without_its_label_is_masked_too(home: Path) -> None:
    dump, secrets = environment(4)

    async def run() -> None:
        talk = Talk().call("bash", dump, command="env")
        talk.answer(f"I put {secrets[0]} into the client and {secrets[1]} beside it.")
        async with opened(home / "m.db", None) as memory:
            await memory.prepare(SESSION, talk.body("and now?"))
            await memory.observe(
                SESSION, {"role": "assistant", "content": f"curl -H 'X-Thing: {secrets[2]}'"}
            )
            await memory.settle()

    asyncio.run(run())
    assert holding(home, secrets) == []


def test_a_result_that_is_shortened_holds_no_half_of_a_secret(home: Path) -> None:
    value = "".join(random.Random(5).choices(EMBEDDED, k=3_000))
    lines = "the crane moves cargo over the quay\n"
    long = lines * 35 + f'signing_secret = "{value}"\n' + lines * 60

    async def run() -> str:
        talk = Talk().ask("what does it print?").call("bash", long, command="cat settings.py")
        async with opened(home / "m.db", None, pruning__mode="adaptive") as memory:
            for _ in range(2):
                await memory.prepare(SESSION, talk.exchange(4).body("go on"))
            context = await memory.prepare(SESSION, talk.exchange(1).body("go on"))
            await memory.settle()
        return json.dumps(context.request)

    shown = asyncio.run(run())
    assert "[REDACTED:" in shown
    pieces = [value[at : at + 24] for at in range(0, len(value), 24)]
    assert holding(home, pieces) == []


def test_an_imported_entity_is_no_way_around_its_message(home: Path, tmp_path: Path) -> None:
    dump, secrets = environment(6)
    line = {
        "id": "a1",
        "sessionId": "old",
        "timestamp": 1_700_000_000_000,
        "role": "user",
        "content": f"my environment:\n{dump}",
        "tokens": 40,
        "metadata": {
            "topics": [secrets[0], "deploy"],
            "entities": [secrets[1], "DB_PASSWORD", f"host-{secrets[2]}"],
            "note": {"tried": [secrets[3]], "password": "Tr0ub4dor&3x"},
        },
        "label": secrets[4],
    }
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "segments.jsonl").write_text(json.dumps(line) + "\n")
    run = CliRunner()
    store = ["--store", str(home / "m.db")]
    done = run.invoke(main, ["import", str(tmp_path / "in"), *store])
    assert done.exit_code == 0, done.output
    done = run.invoke(main, ["export", str(home / "out"), *store])
    assert done.exit_code == 0, done.output
    exported = (home / "out" / "segments.jsonl").read_text()
    assert "deploy" in exported
    assert "DB_PASSWORD" in exported
    assert holding(home, [*secrets, "Tr0ub4dor&3x"]) == []


def test_what_was_taken_before_the_message_was_masked_is_found_and_masked(home: Path) -> None:
    """A store as it was left when names and probes came from the text as it was said."""
    dump, secrets = environment(7)
    store = ["--store", str(home / "m.db")]
    run = CliRunner()

    async def plant() -> None:
        talk = Talk().call("bash", dump, command="env")
        async with opened(home / "m.db", scribe()) as memory:
            await memory.prepare(SESSION, talk.exchange(5).body("go on"))
            done = await memory.compact(SESSION)
            assert done.compacted, done.reason
            await memory.settle()

    asyncio.run(plant())
    assert run.invoke(main, ["redact", *store]).exit_code == 0
    database = apsw.Connection(str(home / "m.db"))
    database.execute(
        "update compaction set body = cast(replace(cast(body as text), '/usr/bin', ?) as blob)",
        (secrets[0],),
    )
    database.execute(
        "update segment set entities = ? where text like '%[REDACTED:%'",
        (json.dumps([secrets[1], "/usr/bin"]),),
    )
    database.close()
    assert {one for _, one in holding(home, secrets)} == set(secrets[:2])
    found = run.invoke(main, ["redact", "--json", *store])
    assert found.exit_code == 1, found.output
    assert not any(one in found.output for one in secrets)
    done = run.invoke(main, ["redact", "--apply", "--json", *store])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["secrets"] >= 2
    assert holding(home, secrets) == []
    again = run.invoke(main, ["redact", *store])
    assert "No secret stands in clear" in again.output, again.output


TurnPlace = Callable[[Talk, str], object]


def answered_with(*blocks: dict[str, Any]) -> Callable[[Talk], object]:
    return lambda talk: talk.ask("And?").messages.append(
        {"role": "assistant", "content": [*blocks, {"type": "text", "text": "Done."}]}
    )


def shown_with(*blocks: dict[str, Any]) -> Callable[[Talk], object]:
    said = {"type": "text", "text": "What do you see?"}
    return lambda talk: talk.messages.append({"role": "user", "content": [*blocks, said]})


def document(**more: Any) -> dict[str, Any]:
    source = {"type": "text", "media_type": "text/plain", "data": more.pop("data", "a quay")}
    return {"type": "document", "source": source, **more}


def thought(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": f"Let me see:\n{text}", "signature": "c2ln"}


def failed(talk: Talk, text: str) -> None:
    talk.ask("Run it.").call("bash", text, command="./run.sh")
    talk.messages[-1]["content"][0]["is_error"] = True


def image(address: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "url", "url": address}}


def found(talk: Talk, text: str) -> None:
    hit = {"type": "search_result", "source": "wiki", "title": text, "content": []}
    talk.ask("Look.").call("search", "", query="crane")
    talk.messages[-1]["content"][0]["content"] = [hit]


TURN_PLACES: dict[str, TurnPlace] = {
    "user": lambda talk, text: talk.ask(f"Look at this:\n{text}"),
    "assistant": lambda talk, text: talk.ask("And?").answer(f"It says:\n{text}"),
    "thinking": lambda talk, text: answered_with(thought(text))(talk),
    "result": lambda talk, text: talk.ask("Run it.").call("bash", text, command="./run.sh"),
    "error": failed,
    "arguments": lambda talk, text: talk.ask("Write it.").call(
        "write", "ok", path="n", content=text
    ),
    "path": lambda talk, text: talk.ask("Read it.").call("read", "no such file", path=text),
    "tool name": lambda talk, text: talk.ask("Go.").call(text, "ok"),
    "document title": lambda talk, text: shown_with(document(title=text))(talk),
    "document caption": lambda talk, text: shown_with(document(context=text))(talk),
    "document text": lambda talk, text: shown_with(document(data=text))(talk),
    "image address": lambda talk, text: shown_with(image(text))(talk),
    "search result": found,
}
TURNS = 3
"""Requests of a session, each with more of what was planted."""


def cli(*arguments: str | Path, store: Path, code: int | None = 0, stdin: str = "") -> bytes:
    """What a command prints."""
    given = [*map(str, arguments), "--store", str(store)]
    done = CliRunner().invoke(main, given, input=stdin)
    assert code is None or done.exit_code == code, f"{arguments[:2]}: {done.exit_code}"
    assert not done.exception or isinstance(done.exception, SystemExit)
    return done.output.encode()


def replayed(store: Path) -> bytes:
    """The newest request of the ledger, and the list of them."""
    listed = cli("replay", SESSION, "--list", "--json", store=store)
    newest = json.loads(listed)["turns"][-1]["turn"]
    return listed + cli("replay", SESSION, "--turn", str(newest), store=store)


@pytest.mark.parametrize("place", TURN_PLACES)
def test_no_kind_of_secret_in_a_message_reaches_the_disk(
    place: str, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Turns, compactions and their undo, forgetting, what commands print, exports and logs."""
    caplog.set_level("DEBUG")
    planted, talk, file = Planted(), Talk(), home / "m.db"
    ends: list[int] = []
    texts = planted.texts(place)
    for at, text in enumerate(texts, 1):
        TURN_PLACES[place](talk, text)
        if talk.messages[-1]["role"] == "user":
            talk.answer("Done.")
        if at % (len(texts) // TURNS + 1) == 0 or at == len(texts):
            ends.append(len(talk.messages))
    assert planted.kinds(place) > 300

    def repeats(prompt: Prompt) -> str:
        return f"{notes(prompt)}\n- {planted.told_apart(2)}"

    async def run() -> None:
        async with opened(file, scribe(repeats), window_tokens=24_000) as memory:
            for end in ends:
                body = Talk()
                body.messages = talk.messages[:end]
                await memory.prepare(SESSION, body.body("go on"))
                await memory.observe(SESSION, {"role": "assistant", "content": "On it."})
            done = await memory.compact(SESSION)
            assert done.compacted, done.reason
            await memory.undo(SESSION)
            await memory.settle()

    asyncio.run(run())
    told = [cli("receipt", SESSION, "--json", store=file), replayed(file)]
    told.append(cli("export", home / "out", store=file))
    told.append(cli("memory", "forget", "--matching", "Done.", "--yes", store=file))
    assert planted.found_in(b"".join([bytes_below(home), *told, caplog.text.encode()])) == []
