"""What redaction masks in a message reaches the disk by no other way.

A secret is often known by what stands beside it (`DB_PASSWORD=…`), so whatever is taken from a
message (a name, a probe, an edit, an entity) has to be taken from the masked text."""

import asyncio
import json
import random
import string
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner
from tests.disk import bytes_of
from tests.integration.long_talk import SESSION, Clock, Talk, notes, opened, scribe
from tests.integration.planted_secrets import Planted, bytes_below, kinds_of
from tests.unit.agent.agent_harness import AgentHarness, filling

from recollect.adapters.wiring import open_store
from recollect.cli import main
from recollect.core.engine.background import runner_of
from recollect.core.engine.lookup import keep_note
from recollect.core.rules import redaction
from recollect.core.rules.redaction import redact
from recollect.core.rules.secret_table import SecretMatch
from recollect.core.rules.tokens import Weigher
from recollect.core.values.model import Prompt
from recollect.system.config import load_settings
from recollect.system.config.settings import Redaction
from recollect.testing.scripted_model import Says, ScriptedCall, ScriptedModel

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
        for data in [bytes_of(path)]
        for secret in secrets
        if secret.encode() in data
    ]


@pytest.fixture(autouse=True)
def _each_text_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules run once a text, however many places read it: their answer hangs on it alone."""

    @cache
    def matches(text: str, pii: bool) -> tuple[SecretMatch, ...]:
        return tuple(find(text, pii=pii))

    find = redaction._matches
    monkeypatch.setattr(redaction, "_matches", lambda text, *, pii: matches(text, pii))
    monkeypatch.setattr(redaction, "_looks_random", cache(redaction._looks_random))


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


def files_below(folder: Path) -> bytes:
    """The files as they are on the disk: a database that somebody has locked too."""
    return b"".join(bytes_of(path) for path in sorted(folder.rglob("*")) if path.is_file())


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
    assert planted.share(place) > 0.9

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
    told.append(cli("memory", "forget", "--matching", "On it.", "--yes", store=file))
    assert planted.found_in(b"".join([bytes_below(home), *told, caplog.text.encode()])) == []


class RefusedError(Exception):
    """As a client raises it: the provider's answer quotes the request."""

    def __init__(self, quoted: str) -> None:
        super().__init__(f"Error code: 400 - {quoted}")
        self.status_code = 400
        self.body = {"type": "error", "error": {"type": "invalid", "message": quoted}}


def test_no_kind_of_secret_beside_the_messages_reaches_the_disk(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """System prompts, tools, questions, replies, errors, instructions; at first in the spool."""
    caplog.set_level("DEBUG")
    planted, talk, file = Planted(), Talk().exchange(12), home / "m.db"
    places = ("system", "description", "schema", "question", "reply", "client's error")
    texts = {place: planted.texts(place) for place in places}
    instructions = planted.joined("instructions")

    async def turn(memory: Any, at: int) -> None:
        part = {place: held[at::TURNS] for place, held in texts.items()}
        system = [{"type": "text", "text": text} for text in part["system"]]
        pairs = zip(part["description"], part["schema"], strict=True)
        tools = [tool(f"tool_{n}", *pair) for n, pair in enumerate(pairs)]
        asked = [{"type": "text", "text": text} for text in part["question"]]
        talk.messages.append({"role": "user", "content": asked})
        await memory.prepare(SESSION, talk.body(system=system, tools=tools))
        for n, one in enumerate(part["client's error"]):
            quoted = one if n % 2 else f"prompt is too long: 99999 tokens\n{one}"
            await memory.observe(SESSION, RefusedError(quoted))
        said = [{"type": "text", "text": text} for text in part["reply"]]
        await memory.observe(SESSION, {"role": "assistant", "content": said})
        talk.messages.append({"role": "assistant", "content": said})

    def tool(name: str, description: str, inner: str) -> dict[str, Any]:
        given = {"type": "string", "description": inner, "default": inner, "enum": [inner]}
        schema = {"type": "object", "properties": {"path": given}}
        return {"name": name, "description": description, "input_schema": schema}

    async def run() -> bytes:
        async with opened(file, scribe(), window_tokens=60_000) as memory:
            await memory.prepare(SESSION, talk.body("go on"))
            await memory.settle()
            other = apsw.Connection(str(file))
            other.execute("BEGIN IMMEDIATE")
            await turn(memory, 0)
            assert await memory.settle(0) > 0, "they wait in the spool"
            seen = files_below(home)
            other.execute("ROLLBACK")
            other.close()
            for at in range(1, TURNS):
                await turn(memory, at)
            await memory.prepare(SESSION, talk.exchange(4).body("go on"))
            done = await memory.compact(SESSION, instructions=instructions)
            assert done.compacted, done.reason
            assert await memory.settle() == 0
            return seen

    seen = asyncio.run(run())
    assert all(planted.share(place) > 0.9 for place in places)
    assert planted.share("instructions") > 0.85
    told = [cli("receipt", SESSION, "--json", store=file), replayed(file)]
    told.append(CliRunner().invoke(main, ["doctor", "--json"]).output.encode())
    assert planted.found_in(b"".join([bytes_below(home), seen, *told])) == []
    assert planted.found_in(caplog.text.encode()) == []


STAMP = "2026-01-01T00:00:00.000Z"


def claude_code(text: str, at: int) -> dict[str, Any]:
    who = "assistant" if at % 2 else "user"
    message: dict[str, Any] = {"role": who, "content": [{"type": "text", "text": text}]}
    if who == "assistant":
        message |= {"id": f"r{at}", "type": "message", "model": "claude-x"}
    before = f"u{at - 1}" if at else None
    line = {"type": who, "uuid": f"u{at}", "parentUuid": before, "message": message}
    return {**line, "sessionId": "old", "timestamp": STAMP, "isSidechain": False, "version": "2"}


def codex(text: str, at: int) -> dict[str, Any]:
    if at == 0:
        meta = {"id": "old", "base_instructions": {"text": text}}
        return {"timestamp": STAMP, "type": "session_meta", "payload": meta}
    call = {"name": "sh", "call_id": f"c{at - at % 3}"}
    payload: dict[str, Any] = (
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},
        {"type": "function_call", **call, "arguments": json.dumps({"command": text})},
        {"type": "function_call_output", **call, "output": text},
    )[at % 3]
    return {"timestamp": STAMP, "type": "response_item", "payload": payload}


def pi(text: str, at: int) -> dict[str, Any]:
    if at == 0:
        return {"type": "session", "version": 3, "id": "old", "timestamp": STAMP, "cwd": "/w"}
    who = "user" if at % 2 else "assistant"
    message = {"role": who, "content": [{"type": "text", "text": text}], "timestamp": at}
    link = {"id": f"e{at}", "parentId": f"e{at - 1}" if at > 1 else None, "timestamp": STAMP}
    return {"type": "message", **link, "message": message}


def plain_message(text: str, at: int) -> dict[str, Any]:
    line = {"timestamp": STAMP, "content": text}
    if at % 3 == 2:
        return {"role": "tool", "tool_call_id": f"c{at}", **line}
    return {"role": "assistant" if at % 3 else "user", **line}


def segment_line(text: str, at: int) -> dict[str, Any]:
    held = {"id": f"a{at}", "sessionId": "old", "timestamp": 1_700_000_000_000 + at}
    metadata = {"entities": [text, "quay"], "topics": [text], "note": {"said": [text]}}
    return {**held, "role": "user", "content": text, "tokens": 9, "metadata": metadata}


def knowledge_line(text: str, at: int) -> dict[str, Any]:
    held = {"id": f"k{at}", "type": "decision", "timestamp": 1_700_000_000_000 + at}
    return {**held, "content": text, "context": text}


SOURCES: dict[str, tuple[str, Callable[[str, int], dict[str, Any]]]] = {
    "Claude Code": ("old.jsonl", claude_code),
    "Codex": ("rollout-old.jsonl", codex),
    "pi": ("old.jsonl", pi),
    "messages": ("old.jsonl", plain_message),
    "segments": ("segments.jsonl", segment_line),
    "knowledge": ("knowledge.jsonl", knowledge_line),
}


@pytest.mark.parametrize("place", SOURCES)
def test_no_kind_of_secret_that_is_imported_reaches_the_disk(
    place: str, home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    planted, file = Planted(), home / "m.db"
    name, line = SOURCES[place]
    given = tmp_path / "given"
    given.mkdir()
    lines = [line(text, at) for at, text in enumerate(["the quay", *planted.texts(place)])]
    (given / name).write_text("".join(json.dumps(one) + "\n" for one in lines))
    before = (given / name).read_bytes()
    done = json.loads(cli("import", given, "--json", store=file))
    kept = done["totals"]["facts" if place == "knowledge" else "stored"]
    assert kept > 0.73 * len(kinds_of(place)), kept
    told = [cli("export", home / "out", store=file)]
    told.append(cli("facts", "read", store=file, code=None))
    if place not in ("segments", "knowledge"):
        shown = CliRunner().invoke(main, ["explain", str(given / name), "--json"])
        assert shown.exit_code == 0
        told.append(shown.output.encode())
    assert (given / name).read_bytes() == before, "what is imported is never altered"
    everything = [bytes_below(tmp_path, but=frozenset({given})), *told, caplog.text.encode()]
    assert planted.found_in(b"".join(everything)) == []


def test_no_kind_of_secret_in_files_notes_and_facts_reaches_the_disk(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Memory files; notes and facts people write; facts that a quoting model finds."""
    caplog.set_level("DEBUG")
    planted, file, given = Planted(), home / "m.db", tmp_path / "given"
    (given / "memory").mkdir(parents=True)
    (given / "MEMORY.md").write_text(sections(planted.texts("MEMORY.md")))
    (given / "memory" / "quay.md").write_text(sections(planted.texts("memory/quay.md")))
    stated = [f"Remember that we use this:\n{text}" for text in planted.texts("stated")]
    talk = Talk()

    def quotes(prompt: Prompt) -> str:
        said = [line for line in prompt.text.splitlines() if len(line) > 20]
        found = [{"type": "config", "content": one, "quote": one} for one in [*said, *stated]]
        return json.dumps({"facts": found[-60:]})

    async def run() -> None:
        async with opened(
            file, None, workspace=given, window_tokens=200_000, reader=scribe(quotes)
        ) as memory:
            for text in stated:
                talk.ask(text).answer("Noted.")
            await memory.prepare(SESSION, talk.body("what is used?"))
            book = await memory.facts(SESSION)
            for text in planted.texts("fact"):
                await book.add(text)
            await memory.settle()
        store = await open_store(str(file), space="default")
        try:
            for note in planted.texts("note"):
                await keep_note(
                    store, note, session="notes", secret=b"s" * 32, weigher=Weigher(),
                    redaction=Redaction(), now=1e9,
                )  # fmt: skip
            settings = load_settings(arguments={"jobs.in_process": False}, file=None).settings
            later = Clock(time.time() + 86_400)
            model = scribe(quotes)
            await runner_of(store, settings, later, model=model).run_due()
            assert model.prompts
        finally:
            await store.close()

    asyncio.run(run())
    told = [cli("memory", "index", given, store=file), cli("facts", "read", store=file, code=None)]
    told.append(cli("facts", "add", planted.joined("command", most=5), store=file))
    told.append(cli("facts", "list", "--json", store=file))
    told.append(cli("export", home / "out", store=file))
    told.append(cli("facts", "forget", "--matching", "quay", "--yes", store=file, code=None))
    everything = [bytes_below(tmp_path, but=frozenset({given})), *told]
    assert planted.found_in(b"".join([*everything, caplog.text.encode()])) == []


def sections(texts: list[str]) -> str:
    """A memory file with a section for each text."""
    return "".join(f"# Section {at}\n\n{text}\n\n" for at, text in enumerate(texts))


def test_no_kind_of_secret_in_our_own_agents_turns_reaches_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The transcript, the outputs beside it, the day's note of a flush, the sessions' index."""
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    caplog.set_level("DEBUG")
    planted = Planted()
    note = {"path": "memory/2026-03-11.md", "content": planted.joined("day note")}
    ran = [
        ScriptedCall(id=f"r{at}", name="look", input={"path": text})
        for at, text in enumerate(planted.texts("called"))
    ]
    steps: list[Any] = [
        Says(text="Let me see.", calls=tuple(ran)),
        filling(planted.joined("said"), 178_000),
        Says(calls=(ScriptedCall(id="w", name="write", input=note),)),
        "NO_REPLY",
        filling("ok", 100_000),
    ]
    harness = AgentHarness(tmp_path, ScriptedModel(steps), settings={"window_tokens": 200_000})
    harness.say(planted.joined("asked"), "and now?")
    written = (harness.root / "memory/2026-03-11.md").stat().st_size
    assert written > 50 * len(kinds_of("day note")), "the flush wrote its note"
    everything = bytes_below(tmp_path) + caplog.text.encode()
    assert planted.found_in(everything) == []
