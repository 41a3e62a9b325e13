"""The engine: its boundary, deadlines, sessions, and what it learns."""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import Any

import pytest

import recollect.engine.turn_path as turn_path
from recollect import BlockingEngine, Engine, Session
from recollect.config import build
from recollect.errors import StaleSession
from recollect.values.overflow import Overflow
from recollect.values.recalled import Recalled, RecalledFact


class Memory:
    """A recaller that answers after `seconds`, or raises."""

    def __init__(self, seconds: float = 0.0, error: Exception | None = None) -> None:
        self.seconds = seconds
        self.error = error
        self.asked: list[str] = []

    async def recall(self, *, query: str, **_: Any) -> Recalled:
        self.asked.append(query)
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


def test_a_slow_memory_does_not_hold_up_a_turn() -> None:
    memory = Memory(seconds=30)
    engine = Engine(build({"turn.stage_deadline_seconds": 0.05}), recaller=memory)
    given = request("which port does the server use?")

    async def timed() -> tuple[Any, float]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        context = await engine.prepare("s", given)
        return context, loop.time() - started

    context, seconds = run(timed())
    assert seconds < 1
    assert context.request is given
    late = [line for line in context.report.lines if line.outcome == "late"]
    assert [line.stage for line in late] == ["recall"]


def test_the_whole_turn_has_a_deadline_too() -> None:
    settings = build({"turn.deadline_seconds": 0.05, "turn.stage_deadline_seconds": 20.0})
    context = run(
        Engine(settings, recaller=Memory(seconds=30)).prepare("s", request("which port?"))
    )
    assert [line.stage for line in context.report.failures] == ["recall"]


def test_a_failing_memory_does_not_stop_a_turn_and_is_told() -> None:
    secret = "hunter2-in-an-error-message"
    engine = Engine(recaller=Memory(error=RuntimeError(secret)))
    given = request("which port does the server use?")
    context = run(engine.prepare("s", given))
    assert context.request is given
    (line,) = context.report.failures
    assert (line.stage, line.outcome) == ("recall", "failed")
    assert "RuntimeError" in line.said
    assert secret not in line.said, "an error may quote what it choked on"


@pytest.mark.parametrize("off_the_loop", [False, True])
@pytest.mark.parametrize("stage", ["query", "trim", "prune", "inject"])
def test_a_stage_that_fails_leaves_its_input_unchanged(
    stage: str, off_the_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(turn_path, stage, broken)
    long = ["the harbour crane moves cargo " * 200, "done"] * 10
    given = request(*long, "which port does the server use?")
    engine = Engine(build({"window_tokens": 8_000}), recaller=Memory(), off_the_loop=off_the_loop)
    context = run(engine.prepare("s", given))
    assert stage in [line.stage for line in context.report.failures]
    assert context.request["messages"][-1] is not None


@pytest.mark.parametrize("stage", ["read", "align", "apply"])
def test_a_request_that_cannot_be_shaped_goes_out_as_it_came(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(turn_path, stage, broken)
    given = request("hello there")
    session = Session("s")
    context = run(Engine().prepare(session, given))
    assert context.request is given
    assert context.report.failures
    monkeypatch.undo()
    assert run(Engine().prepare(session, given)).report.failures == ()


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b'{"model":"x"}', b'{"input":7}'])
def test_what_is_no_request_goes_through_and_is_told(body: bytes) -> None:
    context = run(Engine().prepare("s", body))
    assert context.request == body
    assert [line.stage for line in context.report.failures][:1] == ["read"]


@pytest.mark.parametrize("messages", [7, {"role": "user"}, [object()], [print]])
def test_what_is_no_list_of_messages_goes_through_and_is_told(messages: Any) -> None:
    given = {"messages": messages}
    context = run(Engine().prepare("s", given))
    assert context.request is given
    assert [line.stage for line in context.report.failures][:1] == ["read"]


def test_messages_that_refer_to_themselves_go_through() -> None:
    loop: dict[str, Any] = {"role": "user"}
    loop["content"] = [loop]
    given = {"messages": [loop]}
    assert run(Engine().prepare("s", given)).request is given


def test_a_long_session_does_not_pile_up() -> None:
    """Thousands of turns, several batch moments: what is remembered stays in proportion."""
    engine = Engine(build({"window_tokens": 4_000}))
    session = Session("s")
    messages: list[dict[str, Any]] = []
    for turn in range(400):
        messages.append({"role": "user", "content": f"turn {turn}: " + "crane winch " * 30})
        run(engine.prepare(session, {"messages": messages}))
        messages.append({"role": "assistant", "content": f"reply {turn}"})
        if len(messages) > 80:
            messages = [{"role": "user", "content": f"summary {turn}"}, *messages[-39:]]
    remembered = session.remembered
    assert len(remembered.readings) <= 2 * len(messages) + 64
    assert len(remembered.composed) <= len(messages) + 300
    assert len(session.state.aliases) <= len(messages)
    assert len(session.state.dormant) <= 60 * len(messages)


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


def test_turns_of_one_session_are_serialised() -> None:
    memory = Memory(seconds=0.02)
    engine = Engine(recaller=memory)
    session = Session("s")
    given = request("which port does the server use?")

    async def both() -> list[Any]:
        return await asyncio.gather(*(engine.prepare(session, given) for _ in range(3)))

    contexts = run(both())
    assert sorted(context.report.turn for context in contexts) == [1, 2, 3]
    assert len({json.dumps(context.request) for context in contexts}) == 1


def test_a_state_changed_behind_our_back_is_refused() -> None:
    engine = Engine()
    session = Session("s")

    class Meddler(Memory):
        async def recall(self, **_: Any) -> Recalled:
            session.state = type(session.state)()
            return Recalled()

    engine = Engine(recaller=Meddler())
    with pytest.raises(StaleSession):
        run(engine.prepare(session, request("which port does the server use?")))


def test_a_cancelled_turn_changes_nothing() -> None:
    engine = Engine(recaller=Memory(seconds=5))
    session = Session("s")
    before = session.state

    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(
                engine.prepare(session, request("which port does the server use?")), 0.05
            )

    run(cancelled())
    assert session.state is before


def test_reprs_never_show_what_was_said() -> None:
    context = run(Engine().prepare("s", request("my password is swordfish, keep it")))
    for shown in (context, context.report, context.state, *context.report.entries):
        assert "swordfish" not in repr(shown)
    assert len(repr(context)) < 4_000


class TestBlocking:
    def test_it_offers_what_the_engine_offers(self) -> None:
        mine = {n for n in vars(BlockingEngine) if not n.startswith("_")} - {"close", "engine"}
        theirs = {n for n in vars(Engine) if not n.startswith("_")}
        assert mine == theirs
        for name in theirs:
            asked = inspect.signature(getattr(Engine, name))
            offered = inspect.signature(getattr(BlockingEngine, name))
            assert list(asked.parameters) == list(offered.parameters), name
            assert str(asked.return_annotation) == str(offered.return_annotation), name

    def test_it_gives_the_same_answers(self) -> None:
        given = request("which port does the server use?")
        awaited = run(Engine(recaller=Memory()).prepare("s", given))
        with BlockingEngine(Engine(recaller=Memory())) as blocking:
            waited = blocking.prepare("s", given)
            assert waited.request == awaited.request
            assert blocking.observe("s", {"usage": {"input_tokens": 50}}).usage is not None
            assert blocking.session("s").state.calibration.samples == 1

    def test_it_can_be_closed_twice_and_says_so_afterwards(self) -> None:
        blocking = BlockingEngine(Engine())
        blocking.close()
        blocking.close()
        with pytest.raises(RuntimeError, match="closed"):
            blocking.prepare("s", request("hello"))
