"""What models cost beside the turns: who is asked for what, how often, and where that is told."""

import asyncio
import json
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.harness.model_server import ModelServer
from tests.harness.waiting import PATIENCE_SECONDS
from tests.sizes import at_size
from tests.unit.providers.wire_models import WIRES, model_at

from recollect import Engine, open_memory
from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.adapters.wiring import open_store
from recollect.cli import main
from recollect.core.boundary import Failure, SystemClock
from recollect.core.engine.archive import DurableArchive
from recollect.core.engine.background import MeteredModel, meter_model
from recollect.core.rules.tokens import count_text
from recollect.core.values.edit import Cut
from recollect.core.values.model import Answer, ModelUse, Prompt
from recollect.core.values.reason import Cause
from recollect.errors import ModelError, ModelUnavailable, StoreUnavailable
from recollect.system.config import build
from recollect.testing.scripted_model import Fails, Says, ScriptedModel, Step, WireName

REQUESTS = at_size(ci=90, full=230)
NOON = 1_760_011_200.0
WINDOW = 12_000
_NUMBERED = re.compile(r"^\[(\d+)\] user: (.+)$", re.MULTILINE)
SERVICES = ("billing", "search", "mail", "reports", "login", "orders", "stock", "ledger")


class Clock:
    time = NOON

    def now(self) -> float:
        return self.time


def asked_for(prompt: Prompt) -> str:
    """What a prompt is for, by the answer that it wants."""
    return "extraction" if "quote" in json.dumps(prompt.schema or {}) else "summary"


def answered(prompt: Prompt) -> Answer:
    """Without a count of its tokens, so that ours counts."""
    return Answer(text=_answer(prompt))


def _answer(prompt: Prompt) -> str:
    """As a model that finds a fact in every line it may quote, and never with what is known."""
    kind = asked_for(prompt)
    if kind == "extraction":
        lines = _NUMBERED.findall(prompt.text)
        return json.dumps({"facts": [_claim(int(number), words) for number, words in lines[:12]]})
    parts = re.findall(r"Part (\d+) says", prompt.text)
    return f"## Goal\nKeep the services running.\n\n## Progress\nRead up to part {parts[-1:]}.\n"


def _claim(number: int, words: str) -> dict[str, Any]:
    return {
        "line": number,
        "quote": words,
        "type": "implementation",
        "content": words,
        "subject": " ".join(words.split()[1:3]),
        "attribute": "",
    }


def spoken(number: int) -> str:
    service = SERVICES[number % len(SERVICES)]
    if number % 5 == 0:
        return f"The {service} service keeps its files under /srv/{service}/{number}."
    return (
        f"The {service} team looked at part {number} of the plan, and the nightly import "
        f"touches {service} before the others do. Could you read on with part {number}?"
    )


async def a_session(folder: Path, **opened: Any) -> list[Any]:
    """A session of so many requests, with a pause now and then; jobs beside it, as shipped."""
    clock, reports = Clock(), []
    path = folder / "use.db"
    memory = open_memory(
        space="use",
        store=path,
        clock=clock,
        window_tokens=WINDOW,
        settings={"recall.embedder": "none"},
        **opened,
    )
    store = await open_store(str(path), space="use")
    async with memory:
        messages: list[dict[str, Any]] = []
        for number in range(REQUESTS):
            messages.append({"role": "user", "content": spoken(number)})
            context = await memory.prepare("s", {"model": "m", "messages": messages})
            reports.append(context.report)
            said = f"Part {number} says: " + f"nothing of note in row {number}, as it was. " * 8
            messages.append({"role": "assistant", "content": said})
            await memory.observe(
                "s", {"role": "assistant", "content": [{"type": "text", "text": said}]}
            )
            clock.time += 700 if number % 80 == 79 else 20
            await memory.settle()
            memory.parts.wake_jobs()  # the clock went on alone: nobody knows what is due
            await until_done(store, clock)
        memory.parts.wake_jobs()
        await until_done(store, clock)
    await store.close()
    return reports


async def until_done(store: Any, clock: Clock) -> None:
    """Until nothing is due; jobs of the engine do it."""
    for _ in range(400):
        jobs = await store.jobs(limit=100)
        busy = [one for one in jobs if one.state == "leased" or one.run_at <= clock.time]
        if not [one for one in busy if one.kind == "extract" and one.state != "dead"]:
            return
        await asyncio.sleep(0.01)


def spent(path: Path, *command: str) -> dict[str, Any]:
    """What a command says of models in JSON."""
    done = CliRunner().invoke(main, [*command, "--json"], env={"RECOLLECT_STORE__URL": str(path)})
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)["model_use"]
    assert isinstance(told, dict)
    return told


def test_only_the_summaries_are_asked_of_a_model_that_was_given_for_them(tmp_path: Path) -> None:
    model = ScriptedModel(answered)
    asyncio.run(a_session(tmp_path, model=model))
    asked = Counter(map(asked_for, model.prompts))
    assert asked["summary"] > 1, "the session is long enough to be compacted"
    assert set(asked) == {"summary"}, asked
    assert set(map(asked_for, model.prompts)) == {one.purpose for one in model.prompts}


def test_a_model_that_reads_for_facts_is_asked_once_in_fifteen_requests(tmp_path: Path) -> None:
    model, reader = ScriptedModel(answered), ScriptedModel(answered)
    reports = asyncio.run(a_session(tmp_path, model=model, extraction_model=reader))
    assert set(map(asked_for, model.prompts)) == {"summary"}
    asked = Counter(map(asked_for, reader.prompts))
    assert asked["extraction"] >= 1
    assert sum(asked.values()) <= REQUESTS // 15, asked
    assert {asked_for(one) == one.purpose for one in (*reader.prompts, *model.prompts)} == {True}
    total = spent(tmp_path / "use.db", "memory", "stats", "--space", "use")["total"]
    counted = {purpose: one["calls"] for purpose, one in total.items()}
    assert counted == {**asked, "summary": len(model.prompts)}
    read = sum(count_text(one.system) + count_text(one.text) for one in reader.prompts)
    assert total["extraction"]["input_tokens"] == read
    told = [
        one.reasons[0].numbers
        for report in reports
        for one in report.lines
        if one.reasons and one.reasons[0].cause is Cause.MODELS_ASKED
    ]
    assert 1 <= len(told) < REQUESTS / 2, "a line where something was asked since, and no other"
    assert sum(one["calls"] for one in told) <= sum(counted.values())
    assert sum(one["calls"] for one in told) >= sum(counted.values()) - 4, "but for the last turn's"


def test_stats_say_what_was_asked_today_and_in_all(tmp_path: Path) -> None:
    path = tmp_path / "doctor.db"

    async def ask() -> None:
        store = await open_store(str(path), space=str(Path.cwd()), create=True)
        await store.add_model_use(
            ModelUse(purpose="summary", calls=2, input_tokens=900, output_tokens=80),
            day="2020-01-01",
        )
        steps: list[Step] = [Answer(text="text"), ModelUnavailable("away")]
        model = meter_model(ScriptedModel(steps), store, SystemClock())
        await model.ask(Prompt(text="some words", purpose="extraction"))
        with pytest.raises(ModelUnavailable):
            await model.ask(Prompt(text="some words", purpose="extraction"))
        await store.close()

    asyncio.run(ask())
    told = spent(path, "memory", "stats")
    assert set(told["today"]) == {"extraction"}
    assert told["today"]["extraction"]["calls"] == 2, "one that failed was sent, too"
    assert told["today"]["extraction"]["input_tokens"] == count_text("some words")
    assert told["total"]["summary"] == {"calls": 2, "input_tokens": 900, "output_tokens": 80}
    drawn = CliRunner().invoke(main, ["memory", "stats"], env={"RECOLLECT_STORE__URL": str(path)})
    assert "2 calls (extraction 2)" in drawn.stdout


PARTIAL = "Half of a sum"
FAILURES: dict[str, tuple[list[Says | Fails], bool]] = {
    "answered": ([Says(text=PARTIAL, usage=None)], True),
    "overloaded": ([Fails(status=529)] * 3, False),
    "too many requests": ([Fails(status=429)] * 3, False),
    "server error": ([Fails(status=500)] * 3, False),
    "wrong key": ([Fails(status=401)], False),
    "no such model": ([Fails(status=404)], False),
    "empty account": ([Fails(status=402)], False),
    "invalid": ([Fails(status=400)], False),
    "too large": ([Fails(status=413)], False),
    "no reply of a model": ([Fails(status=200, body={"status": "ok"})], False),
    "broken off": (
        [Fails(status=200, body='{"id": "m1', headers={"content-length": "900"})] * 3,
        True,
    ),
    "too late": ([Says(text=PARTIAL, hang_after_events=0)], True),
    "given up by the caller": ([Says(text=PARTIAL, hang_after_events=0)], True),
    "no server": ([], False),
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("case", FAILURES)
async def test_a_prompt_counts_only_if_a_model_may_have_read_it(case: str, wire: WireName) -> None:
    steps, is_read = FAILURES[case]
    uses: list[ModelUse] = []

    async def record(use: ModelUse, day: str) -> None:
        uses.append(use)

    with ModelServer(steps) as server:
        deadline = 0.3 if case == "too late" else PATIENCE_SECONDS
        at = "http://127.0.0.1:9" if case == "no server" else server
        asked = model_at(wire, at, deadline_seconds=deadline)
        model = MeteredModel(asked, SystemClock(), record)
        prompt = Prompt(text="Sum up these words.", system="You sum up.")
        with suppress(ModelError, TimeoutError):
            wait = 0.3 if case == "given up by the caller" else None
            await asyncio.wait_for(model.ask(prompt), wait)
        await model.close()
    (use,) = uses
    assert use.calls == 1
    read_tokens = count_text(prompt.system) + count_text(prompt.text) if is_read else 0
    assert use.input_tokens == read_tokens
    assert use.output_tokens == (count_text(PARTIAL) if case == "answered" else 0)


async def test_a_call_that_could_not_be_counted_is_counted_with_the_next() -> None:
    counted: list[ModelUse] = []
    down = [StoreUnavailable("down")]

    async def record(use: ModelUse, day: str) -> None:
        if down:
            raise down.pop()
        counted.append(use)

    model = MeteredModel(ScriptedModel(["one", "two"]), SystemClock(), record)
    assert (await model.ask(Prompt(text="a"))).text == "one"
    await model.ask(Prompt(text="b"))
    assert [one.calls for one in counted] == [1, 1]


class SlowCount(SQLiteStore):
    """A real store that may hold its counts, and refuses the first `fails` of them."""

    go_on = asyncio.Event()
    fails = 0

    async def add_model_use(self, use: ModelUse, *, day: str) -> None:  # type: ignore[misc]
        await self.go_on.wait()
        self.fails -= 1
        if self.fails >= 0:
            raise StoreUnavailable("locked")
        await super().add_model_use(use, day=day)


def compacted_twice(
    path: Path, settings: dict[str, Any], *, held: bool = False, fails: int = 0
) -> int:
    """How many calls of two compactions were counted. The store is read right after each; with
    `held` it counts only after both."""

    async def run() -> int:
        store = await SlowCount.open(path, space="default")
        assert isinstance(store, SlowCount)
        store.go_on, store.fails = asyncio.Event(), fails
        if not held:
            store.go_on.set()

        async def opened() -> SlowCount:
            return store

        chosen = build({"window_tokens": 8_000, "compaction.background": False, **settings})
        archive = DurableArchive(opened, None, chosen.store)
        model = ScriptedModel(lambda _: Answer(text="## Goal\nKeep the services running.\n"))
        async with Engine(chosen, archive=archive, model=model) as engine:
            messages: list[dict[str, Any]] = []
            for part in range(2):
                for number in range(12):
                    messages.append({"role": "user", "content": f"{part} " + spoken(number) * 3})
                    messages.append({"role": "assistant", "content": f"Part {number} says: so."})
                asked = [*messages, {"role": "user", "content": "And now?"}]
                await engine.prepare("s", {"model": "m", "messages": asked})
                await asyncio.wait_for(engine.compact("s"), PATIENCE_SECONDS)
                assert not isinstance(await archive.ask(lambda one: one.session("s")), Failure)
            assert model.prompts
            store.go_on.set()
            await engine.settle()
        return len(model.prompts)

    asked = asyncio.run(run())
    total = spent(path, "memory", "stats")["total"]
    counted: int = total["summary"]["calls"] if total else 0
    assert counted in (0, asked), "each call once"
    return counted


def test_counting_delays_no_call_and_no_read_and_counts_once(tmp_path: Path) -> None:
    assert compacted_twice(tmp_path / "slow.db", {}, held=True) >= 2


def test_a_count_that_the_store_refused_is_written_later(tmp_path: Path) -> None:
    assert compacted_twice(tmp_path / "locked.db", {}, fails=2) >= 2


def test_nothing_is_counted_where_nothing_may_be_kept(tmp_path: Path) -> None:
    assert compacted_twice(tmp_path / "off.db", {"ingest.enabled": False}) == 0


MARKED = re.compile(r"<<m(\d+)>>")
TURN = "**Turn Context (split turn):**"


def noted(prompt: Prompt) -> str:
    """Notes that pass every check and say what was read for them."""
    read = f"{' '.join(MARKED.findall(prompt.text))} of {len(prompt.text)}"
    if "first part of a turn" in prompt.text or "as short notes" in prompt.text:
        return f"The user asked to mend the harbour import. Read {read}."
    return (
        f"## Goal\nMend the harbour import.\n\n## Decisions\nnone\n\n## Progress\nRead {read}.\n\n"
        "## Open TODOs\n- go on\n\n## Constraints/Rules\nnone\n\n## Pending user asks\n"
        "- Mend the harbour import, round 0 and 1\n\n## Exact identifiers\nnone"
    )


async def long_turns(folder: Path, model: ScriptedModel) -> list[str]:
    """Two turns of many tool calls, of which each is longer than the window; the summaries."""
    summaries: list[str] = []
    settings = {"recall.enabled": False, "compaction.background": False, "jobs.in_process": False}
    messages: list[dict[str, Any]] = []

    def add(role: str, *parts: dict[str, Any]) -> None:
        messages.append({"role": role, "content": list(parts)})

    def text(words: str) -> dict[str, Any]:
        return {"type": "text", "text": f"<<m{len(messages)}>> {words}"}

    memory = open_memory(
        store=folder / "turns.db", model=model, window_tokens=8_000, settings=settings
    )
    async with memory:
        for turn in range(2):
            add("user", text(f"Mend the harbour import, round {turn}."))
            for step in range(60):
                context = await memory.prepare("s", {"model": "m", "messages": messages})
                for edit in context.state.edits:
                    if isinstance(edit, Cut) and edit.summary not in summaries:
                        summaries.append(edit.summary)
                use = {"type": "tool_use", "id": f"c{turn}-{step}", "name": "read", "input": {}}
                add("assistant", text(f"Row {step}, then."), use)
                rows = text("the quay was grey and wet " * 30)["text"]
                add("user", {"type": "tool_result", "tool_use_id": use["id"], "content": rows})
            add("assistant", text(f"That is all of round {turn}."))
    return summaries


def test_no_message_is_summarized_twice_however_often_its_turn_is_split(tmp_path: Path) -> None:
    model = ScriptedModel(noted)
    summaries = asyncio.run(long_turns(tmp_path, model))
    read = Counter(int(mark) for one in model.prompts for mark in set(MARKED.findall(one.text)))
    assert len(read) > 150
    assert set(read.values()) == {1}, [mark for mark, times in read.items() if times > 1]
    assert len(summaries) >= 5
    assert [one.count(TURN) for one in summaries if one.count(TURN) > 1] == []
    again = [one.text for one in model.prompts if "first part of a turn" in one.text]
    going_on = [one for one in again if "<previous-summary>" in one]
    assert len(going_on) >= 3, "a turn that is split again goes on from its own notes"
    assert not [one for one in going_on if "## Goal" in one], "and not from those of the history"
