"""The engine: its boundary, deadlines, sessions, and what it learns."""

import asyncio
import inspect
import json
import pickle
import random
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.harness.faithful import unfaithful

from recollect import BlockingEngine, Engine, Session, open_memory, read_state, write_state
from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.engine import batch_moment, prepare
from recollect.core.values.edit import Cut, Insert, Shorten
from recollect.core.values.message import EntryKey
from recollect.core.values.model import LimitDoubt, Overflow
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.recall import (
    CandidateQuery,
    Candidates,
    Recalled,
    RecalledFact,
    RecallRequest,
)
from recollect.errors import StaleSession, StoreError
from recollect.system.config import build


class Memory:
    """A recaller that answers after `seconds`, or raises."""

    def __init__(self, seconds: float = 0.0, error: Exception | None = None) -> None:
        self.seconds = seconds
        self.error = error
        self.asked: list[str] = []

    async def recall(self, request: RecallRequest) -> Recalled:
        self.asked.append(request.query)
        await asyncio.sleep(self.seconds)
        if self.error:
            raise self.error
        fact = RecalledFact(type="config", text="the port is 3000", score=1.0)
        return Recalled(facts=(fact,))


def request(*texts: str) -> dict[str, Any]:
    roles = ["user", "assistant"]
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    return {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": messages}


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def test_an_untouched_request_is_the_same_object() -> None:
    given = request("which port does the server use?")
    context = run(Engine().prepare("s", given))
    assert context.request is given


def test_a_recalled_block_is_put_before_the_newest_user_message() -> None:
    given = request("which port does the server use?")
    context = run(Engine(recaller=Memory()).prepare("s", given))
    blocks = context.request["messages"][0]["content"]
    assert "the port is 3000" in blocks[0]["text"]
    assert blocks[0]["text"].startswith('<recalled-context source="memory-context">')
    assert blocks[1] == {"type": "text", "text": "which port does the server use?"}
    assert given["messages"][0]["content"] == "which port does the server use?"


def test_the_block_stays_where_it_is_on_the_next_turn() -> None:
    engine = Engine(recaller=Memory())
    session = Session("s")
    first = run(engine.prepare(session, request("which port does the server use?")))
    second = run(
        engine.prepare(
            session, request("which port does the server use?", "3000", "and which host, then?")
        )
    )
    assert second.request["messages"][0] == first.request["messages"][0]


async def test_a_slow_memory_does_not_hold_up_a_turn() -> None:
    memory = Memory(seconds=30)
    engine = Engine(build({"turn.deadline_seconds": 0.06}), recaller=memory)
    given = request("which port does the server use?")
    loop = asyncio.get_running_loop()
    started = loop.time()
    context = await engine.prepare("s", given)
    seconds = loop.time() - started
    assert seconds < 1
    assert context.request is given
    late = [line for line in context.report.lines if line.outcome == "late"]
    assert [line.stage for line in late] == ["recall"]


def test_a_failing_memory_does_not_stop_a_turn_and_is_told() -> None:
    (line,) = run(Engine().prepare("s", {"messages": [{"role": "user"}]})).report.failures
    assert "may be refused" in line.said
    secret = "hunter2-in-an-error-message"
    engine = Engine(recaller=Memory(error=RuntimeError(secret)))
    given = request("which port does the server use?")
    context = run(engine.prepare("s", given))
    assert context.request is given
    (line,) = context.report.failures
    assert (line.stage, line.outcome) == ("recall", "failed")
    assert "RuntimeError" in line.said
    assert secret not in line.said, "an error may quote what it choked on"


class Answering(Memory):
    """A recaller whose answers may be something else than findings and facts."""

    def __init__(self, found: Any, standing: Any) -> None:
        super().__init__()
        self.found, self.stands = found, standing

    async def recall(self, request: RecallRequest) -> Recalled:
        found: Recalled = self.found
        return found

    async def standing(self, session: str) -> tuple[RecalledFact, ...]:
        facts: tuple[RecalledFact, ...] = self.stands
        return facts


@pytest.mark.parametrize(
    ("found", "standing", "stage"),
    [
        (None, (), "recall"),
        ({"facts": []}, (), "recall"),
        (Recalled(), None, "stand"),
        (Recalled(), ("a fact",), "stand"),
    ],
)
def test_a_memory_that_answers_with_something_else_stops_no_turn(
    found: Any, standing: Any, stage: str
) -> None:
    given = request("which port does the server use?")
    context = run(Engine(recaller=Answering(found, standing)).prepare("s", given))
    assert context.request is given
    (line,) = context.report.failures
    assert (line.stage, line.outcome) == (stage, "failed")


def test_a_counter_that_fails_on_the_system_prompt_leaves_the_request() -> None:
    """Without the tokens of the system prompt, every limit would be wrong."""

    class Strict:
        def count_text(self, text: str) -> int:
            if "<|endoftext|>" in text:
                raise ValueError("special token")
            return len(text) // 4 + 1

    texts = [f"turn {n}: " + "crane winch " * 100 for n in range(61)]
    given = request(*texts) | {"system": "never write <|endoftext|>"}
    settings = build({"window_tokens": 4_000})
    assert run(Engine(settings).prepare("s", given)).request is not given, "it is too long"
    context = run(Engine(settings, counter=Strict()).prepare("s", given))
    assert context.request is given
    assert [line.stage for line in context.report.failures] == ["read"]


@pytest.mark.parametrize("off_the_loop", [False, True])
@pytest.mark.parametrize("stage", ["query", "trim", "prune", "inject"])
def test_a_stage_that_fails_leaves_its_input_unchanged(
    stage: str, off_the_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(batch_moment if hasattr(batch_moment, stage) else prepare, stage, broken)
    long = ["the harbour crane moves cargo " * 200, "done"] * 10
    given = request(*long, "which port does the server use?")
    engine = Engine(build({"window_tokens": 8_000}), recaller=Memory(), off_the_loop=off_the_loop)
    context = run(engine.prepare("s", given))
    assert stage in [line.stage for line in context.report.failures]
    assert context.request["messages"][-1] is not None


@pytest.mark.parametrize("stage", ["read", "align", "extend"])
def test_a_request_that_cannot_be_shaped_goes_out_as_it_came(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError

    engine = Engine(build({"window_tokens": 4_000}))
    session = Session("s")
    long = [f"turn {n}: " + "crane winch " * 40 for n in range(61)]
    before = run(engine.prepare(session, request(*long)))
    assert before.edits
    monkeypatch.setattr(batch_moment if hasattr(batch_moment, stage) else prepare, stage, broken)
    given = request(*long, "reply", "hello there")
    context = run(engine.prepare(session, given))
    assert context.request is given
    assert [x.stage for x in context.report.failures if x.stage != "check"]
    assert context.report.over_limit, "what went out unshaped is not said to fit"
    assert context.edits == before.edits, "one failed turn does not end the edits"
    assert context.state.path == before.state.path
    monkeypatch.undo()
    after = run(engine.prepare(session, given))
    assert after.report.failures == ()
    assert after.edits == before.edits


def test_usage_calibrates_the_count() -> None:
    engine = Engine()
    session = Session("s")
    given = request("the harbour crane moves cargo " * 200)
    first = run(engine.prepare(session, given))
    reported = first.report.tokens_after * 2
    run(engine.observe(session, {"usage": {"input_tokens": reported, "output_tokens": 5}}))
    second = run(engine.prepare(session, given))
    assert second.report.tokens_after == reported


def test_an_overflow_teaches_the_window() -> None:
    engine = Engine()
    session = Session("s")
    given = request("hello")
    assert run(engine.prepare(session, given)).report.window_tokens == 200_000
    run(engine.observe(session, Overflow(pattern_name="x", limit_tokens=32_768)))
    assert run(engine.prepare(session, given)).report.window_tokens == 32_768


@pytest.mark.parametrize(
    "reply",
    [
        {"usage": {"input_tokens": float("nan")}},
        {"usage": {"input_tokens": float("inf")}},
        {"usage": {"prompt_tokens": "many"}},
        RuntimeError("a bug of the caller's"),
        [{"no": "event"}],
    ],
)
def test_observing_nonsense_never_raises(reply: Any) -> None:
    memory = open_memory()
    assert run(memory.observe("s", reply)).usage is None


def test_an_unknown_format_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="openai-chat"):
        run(Engine().prepare("s", request("hello"), format="openai"))  # type: ignore[arg-type]


def test_a_block_is_recalled_once_a_turn_not_at_every_tool_step() -> None:
    memory = Memory()
    engine = Engine(recaller=memory)
    session = Session("s")
    messages: list[Any] = [{"role": "user", "content": "which port does the server use?"}]
    for step in range(6):
        run(engine.prepare(session, {"messages": messages}))
        call = {"type": "tool_use", "id": f"t{step}", "name": "read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"t{step}", "content": "x"}
        messages = [
            *messages,
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
    assert len(memory.asked) == 1
    context = run(engine.prepare(session, {"messages": messages}))
    assert json.dumps(context.request).count("<recalled-context") == 1


def test_state_survives_a_process() -> None:
    engine = Engine(build({"window_tokens": 4_000}))
    session = engine.session("s")
    given = request(*[f"turn {n}: " + "crane winch " * 40 for n in range(61)])
    first = run(engine.prepare(session, given))
    run(engine.observe(session, {"usage": {"input_tokens": 2_000}}))
    assert first.edits
    kept = write_state(session.state)
    assert read_state(kept) == session.state
    other = Engine(build({"window_tokens": 4_000}))
    second = run(other.prepare(other.session("s", read_state(kept)), given))
    assert second.request == first.request
    assert pickle.loads(pickle.dumps(session.state)) == session.state


def test_a_state_changed_behind_our_back_is_refused() -> None:
    engine = Engine()
    session = Session("s")

    class Meddler(Memory):
        async def recall(self, request: RecallRequest) -> Recalled:
            session.state = type(session.state)()
            return Recalled()

    engine = Engine(recaller=Meddler())
    with pytest.raises(StaleSession):
        run(engine.prepare(session, request("which port does the server use?")))


async def test_a_cancelled_turn_changes_nothing() -> None:
    engine = Engine(recaller=Memory(seconds=5))
    session = Session("s")
    before = session.state
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(
            engine.prepare(session, request("which port does the server use?")), 0.05
        )
    assert session.state is before


def test_reprs_never_show_what_was_said() -> None:
    context = run(Engine().prepare("s", request("my password is swordfish, keep it")))
    for shown in (context, context.report, context.state, *context.report.entries):
        assert "swordfish" not in repr(shown)
    assert len(repr(context)) < 4_000


def test_reprs_of_edits_never_show_what_was_said() -> None:
    reason, key = Reason(Cause.NOT_RUN), EntryKey("k")
    told: dict[str, Any] = {"anchor": key, "stage": "trim", "reason": reason, "turn": 1}
    edits = (
        Shorten(**told, part=0, text="swordfish"),
        Insert(**told, placement="after", text="swordfish"),
        Cut(**told, summary="swordfish"),
    )
    for edit in edits:
        assert "swordfish" not in repr(edit)


def test_tokens_that_the_provider_cleared_count_as_sent() -> None:
    """Otherwise a request of which the provider dropped tool results looks counted too high."""
    engine = Engine()
    run(engine.prepare("s", request("word " * 3_000)))
    cleared = {"type": "clear_tool_uses_20250919", "cleared_input_tokens": 1_000}
    usage = {"input_tokens": 2_000, "output_tokens": 5}
    reply = {"type": "message", "role": "assistant", "content": [], "usage": usage}
    seen = run(engine.observe("s", {**reply, "context_management": {"applied_edits": [cleared]}}))
    assert seen.usage is not None
    assert seen.usage.input_tokens == 2_000
    assert engine.session("s").state.calibration.reported_tokens == 3_000


def test_a_provider_s_own_compaction_is_passed_through() -> None:
    """Its settings go out as they came, and what it made is kept whatever is trimmed."""
    long = "crane winch quay cargo " * 120
    held: list[dict[str, Any]] = []
    for turn in range(6):
        held.append({"role": "user", "content": f"question {turn} {long}"})
        held.append({"role": "assistant", "content": f"answer {turn} {long}"})
    summary = {"type": "compaction", "content": "What was decided."}
    held[7]["content"] = [summary, {"type": "text", "text": "So we begin."}]
    managed: dict[str, Any] = {"edits": [{"type": "compact_20260112"}]}
    given = {"model": "m", "max_tokens": 100, "messages": [*held, held[0]]}
    engine = Engine(build({"window_tokens": 4_000}))
    made = run(engine.prepare("a", {**given, "context_management": managed}))
    assert len(made.request["messages"]) < len(held)
    assert made.request["context_management"] == managed
    assert any(summary in one["content"] for one in made.request["messages"])
    items = [{"type": "message", "role": "user", "content": f"{n} {long}"} for n in range(8)]
    summary = {"type": "compaction", "id": "cmp_1", "encrypted_content": "abc"}
    settings = {"context_management": [{"type": "compaction"}], "truncation": "auto"}
    given = {"model": "m", "input": [*items[:4], summary, *items[4:]]}
    made = run(engine.prepare("r", {**given, **settings}))
    assert len(made.request["input"]) <= len(items)  # the summary is one more
    assert summary in made.request["input"]
    assert settings.items() <= made.request.items()


class TestBlocking:
    def test_it_offers_what_the_engine_offers(self) -> None:
        own = {"engine", "submit", "wait_for"}
        mine = {n for n in vars(BlockingEngine) if not n.startswith("_")} - own
        theirs = {n for n in dir(Engine) if not n.startswith("_")}
        assert mine == theirs
        for name in theirs:
            asked = inspect.signature(getattr(Engine, name))
            offered = inspect.signature(getattr(BlockingEngine, name))
            assert list(asked.parameters) == list(offered.parameters), name
            given = str(offered.return_annotation).removeprefix("Blocking")
            assert str(asked.return_annotation) == given, name

    def test_it_gives_the_same_answers(self) -> None:
        given = request("which port does the server use?")
        awaited = run(Engine(recaller=Memory()).prepare("s", given))
        with BlockingEngine(Engine(recaller=Memory())) as blocking:
            waited = blocking.prepare("s", given)
            assert waited.request == awaited.request
            assert blocking.observe("s", {"usage": {"input_tokens": 50}}).usage is not None
            assert blocking.session("s").state.calibration.reported_tokens == 50

    def test_it_can_be_closed_twice_and_says_so_afterwards(self) -> None:
        blocking = BlockingEngine(Engine())
        blocking.close()
        blocking.close()
        with pytest.raises(RuntimeError, match="closed"):
            blocking.prepare("s", request("hello"))


def observed(error: Any, *said: str, model: str = "some-model") -> tuple[Any, int]:
    """What an error teaches after a request, and the window of the next one."""
    memory = open_memory()
    messages = [{"role": "user", "content": text} for text in said or ("hello",)]
    given = {"model": model, "max_tokens": 100, "messages": messages}
    run(memory.prepare("s", given))
    seen = run(memory.observe("s", error))
    return seen, run(memory.prepare("s", given)).report.window_tokens


@pytest.mark.parametrize("limit", [1, 16, 1_023])
def test_no_window_is_learned_that_no_model_has(limit: int) -> None:
    seen, window = observed(f"This model's maximum context length is {limit} tokens.")
    assert (seen.learned_window_tokens, window) == (None, 200_000)
    assert seen.doubted_limit is LimitDoubt.BELOW_FLOOR
    assert observed("maximum context length is 1024 tokens")[1] == 1_024, "the smallest there is"


def test_a_refusal_never_makes_the_window_wider() -> None:
    seen, window = observed("maximum context length is 9000000 tokens")
    assert (seen.doubted_limit, window) == (LimitDoubt.WIDER, 200_000)
    named = "prompt is too long: 1000213 tokens > 1000000 maximum"
    assert observed(named)[1] == 1_000_000, "the provider counted more than that"


def test_a_limit_that_the_request_speaks_of_is_not_learned() -> None:
    quoted = "The log says: maximum context length is 8192 tokens. Why?"
    error = {"error": {"message": f"400 messages.0.content: cannot parse {quoted!r}"}}
    seen, window = observed(error, quoted)
    assert (seen.doubted_limit, window) == (LimitDoubt.ECHOED, 200_000)
    talk = "This model's maximum context length is 8192 tokens. " * 1_000
    own = "maximum context length is 8192 tokens. However, your messages resulted in 9500 tokens"
    seen, window = observed(own, talk)
    assert (seen.doubted_limit, window) == (None, 8_192), "it names what we sent"
    assert observed("maximum context length is 8192 tokens", "hello")[1] == 8_192


async def test_who_goes_back_sees_what_was_left_out_since() -> None:
    """Chats edit an earlier question: what was trimmed for a later one is recent again."""
    talk = [f"number {n}: " + "the quay has a crane and a winch " * 12 for n in range(120)]
    engine = Engine(build({"window_tokens": 6_000}))
    for end in range(1, len(talk) - 1, 2):
        await engine.prepare("s", request(*talk[:end]))
    context = await engine.prepare("s", request(*talk[:-1]))
    assert len(context.request["messages"]) < len(talk) // 2, "it was trimmed"
    back = request(*talk[:20], "let us go another way: what do you suggest?")
    context = await engine.prepare("s", back)
    assert context.request["messages"] == back["messages"], "all of it fits"
    again = await engine.prepare("s", back)
    assert again.request["messages"] == back["messages"]


async def test_a_block_never_takes_a_request_over_its_limit(tmp_path: Path) -> None:
    """With a provider that counts otherwise than we do: rounding once made it a token too many."""
    answer = "Understood. " + "word " * 30 + "done."
    async with open_memory(store=tmp_path / "m.db", window_tokens=4_000) as memory:
        talk: list[dict[str, str]] = [{"role": "system", "content": "You help."}]
        for n in range(40):
            asked = f"Tell me about item {n}, ticket QX-{n * 11}. " + "more text here " * 20
            talk.append({"role": "user", "content": asked})
            context = await memory.prepare("s", {"model": "gpt-4o", "messages": list(talk)})
            assert not context.report.over_limit, str(context.report)
            tokens = len(json.dumps(context.request)) // 4
            usage = {"prompt_tokens": tokens, "completion_tokens": 40}
            message = {"role": "assistant", "content": answer}
            reply = {"id": "r", "object": "chat.completion", "choices": [{"message": message}]}
            await memory.observe("s", {**reply, "usage": usage})
            talk.append(message)


WORDS = ("service", "port", "config", "deploy", "handler", "index", "cache", "query", "ledger")
TURNS = 200


def test_a_full_view_does_not_break_the_cache_turn_after_turn() -> None:
    """A tool agent without a model to summarise: pruning results, then trimming messages.

    When pruning only just came below the limit, the next turn was over it again: 10 breaks in 10
    turns.
    """
    rng = random.Random(7)

    def text(words: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(words))

    async def run() -> list[int]:
        engine = Engine(build({"window_tokens": 16_000}))
        history: list[dict[str, Any]] = []
        before: list[Any] = []
        broken: list[int] = []
        for turn in range(TURNS):
            call = {"type": "tool_use", "id": f"t{turn}", "name": "read", "input": {"n": turn}}
            result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": text(90)}
            history += [
                {"role": "user", "content": f"turn {turn}: {text(40)}"},
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result]},
            ]
            request = {"model": "claude-x", "max_tokens": 100, "messages": list(history)}
            context = await engine.prepare("s", request)
            shown = context.request["messages"]
            if shown[: len(before)] != before:
                broken.append(turn)
                assert context.report.moment is not None, "only at a batch moment"
            before = shown
            history.append({"role": "assistant", "content": text(30)})
        return broken

    broken = asyncio.run(run())
    assert 1 < len(broken) <= TURNS // 8, broken
    assert min(after - at for at, after in pairwise(broken)) > 3, broken


def reasoning(n: int) -> dict[str, Any]:
    said = [{"type": "summary_text", "text": f"signal {n} " * 4}]
    return {"type": "reasoning", "summary": said, "encrypted_content": f"g{n}", "id": f"re_{n}"}


def call(n: int, call_id: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": "read",
        "arguments": json.dumps({"path": f"src/signal {n}.py", "limit": 40}),
        "id": f"fu_{n}",
    }


def test_a_call_hidden_behind_its_twin_leaves_with_its_reasoning() -> None:
    items: list[dict[str, Any]] = [
        {"role": "user", "content": "lantern 0"},
        {"role": "user", "content": "374 lantern level error " * 400},
    ]
    for n in (2, 3):  # the second hides behind the first: the provider takes an id once
        items += [reasoning(n), call(n, "call_000")]
    for n in range(4, 10):
        items += [
            reasoning(n),
            call(n, f"call_{n}"),
            {"type": "function_call_output", "call_id": f"call_{n}", "output": f"mirror {n} " * 60},
        ]
    body = {"model": "gpt-5", "input": items}
    for window in range(3_000, 9_000, 250):
        engine = Engine(build({"window_tokens": window}))
        raw = json.dumps(body).encode()
        context = asyncio.run(engine.prepare("s", raw, format="openai-responses"))
        assert unfaithful("openai-responses", body, json.loads(context.request)) == []


TOLD = "the green crane stands at the north quay, says the keeper"
ASKS = "which crane stands at the north quay, by the way?"


def asked(folder: Path, embedder: str = "none") -> Any:
    """The context of a new session that asks what an earlier one was told."""
    settings: dict[str, Any] = {
        "recall.embedder": embedder,
        "recall.scope": "space",
        "jobs.in_process": False,
    }

    async def say(session: str, text: str) -> Any:
        async with open_memory(store=folder / "m.db", settings=settings) as memory:
            messages = [{"role": "user", "content": text}]
            return await memory.prepare(session, {"model": "m", "messages": messages})

    asyncio.run(say("before", TOLD))
    return asyncio.run(say("after", ASKS))


@pytest.mark.parametrize("broken", ["candidates", "around", "segments", "fact_candidates"])
def test_the_turn_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    async def fail(self: SQLiteStore, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{TOLD} is not to be told")

    monkeypatch.setattr(SQLiteStore, broken, fail)
    context = asked(tmp_path)
    assert context.request["messages"][-1]["content"] == ASKS
    failed = [line for line in context.report.failures if line.stage == "recall"]
    assert len(failed) == 1
    assert "crane" not in str(failed), "a failure never quotes what was said"


class WhereCounted:
    """A counter that notes the threads it is asked in."""

    def __init__(self) -> None:
        self.threads: set[str] = set()

    def count_text(self, text: str) -> int:
        self.threads.add(threading.current_thread().name)
        return len(text) // 4 + 1


def test_off_the_loop_only_what_takes_long_goes_into_a_thread() -> None:
    """A history that is sent again with a few messages more is no work; a new one is."""
    texts = [f"turn {n}: " + "crane winch " * 400 for n in range(61)]
    counter = WhereCounted()
    engine = Engine(build({"window_tokens": 400_000}), counter=counter, off_the_loop=True)

    def threads(session: str, *texts: str) -> bool:
        counter.threads.clear()
        run(engine.prepare(session, json.dumps(request(*texts)).encode()))
        return threading.current_thread().name not in counter.threads

    assert not threads("short", "one more")
    assert threads("long", *texts)
    assert not threads("long", *texts, "done", "go on")
    assert threads("long", *[f"another {text}" for text in texts])


def test_vectors_that_cannot_be_compared_leave_the_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = SQLiteStore.candidates

    async def compare(self: SQLiteStore, query: CandidateQuery) -> Candidates:
        if query.vectors:
            raise StoreError("vectors of 64 dimensions, not 256")
        return await search(self, query)

    monkeypatch.setattr(SQLiteStore, "candidates", compare)
    context = asked(tmp_path, "hash")
    assert TOLD in str(context.request)
    assert "searched by words only: vectors of 64 dimensions" in "".join(
        line.said for line in context.report.lines
    )
