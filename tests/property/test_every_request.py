"""Whatever comes in, what goes out is valid, bounded, stable, and otherwise untouched.

Conversations are generated as messy as clients make them (tests/conversations); the validator
is independent of the code it checks (recollect.testing.provider_rules). 60 a format in CI,
5,000 with `just full`, 20,000 with `just soak`.
"""

import asyncio
import copy
import json
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conversations.resends import encoded
from tests.conversations.strategies import bodies, bodies_with_system_inside, valid_bodies, windows
from tests.harness.faithful import unfaithful
from tests.sizes import at_size

from recollect.core.engine import Context, Engine, Session
from recollect.core.formats.json_text import array_spans, object_spans
from recollect.core.values.history import Entry, Slot
from recollect.core.values.model import FormatName
from recollect.core.values.reason import Cause
from recollect.core.values.recall import Recalled, RecalledFact, RecalledPassage, RecallRequest
from recollect.core.values.report import Report, StageLine
from recollect.system.config import build, load_settings
from recollect.testing.provider_rules import violations

FORMATS: tuple[FormatName, ...] = ("anthropic", "openai-chat", "openai-responses", "pi")
EXAMPLES = 20_000 if os.environ.get("RECOLLECT_SOAK") else at_size(ci=60, full=5_000)


class FixedRecall:
    """A memory that always has something to say."""

    def __init__(self, facts: int, passages: int, chars: int) -> None:
        text = ("remember " * chars)[:chars] + " </recalled-context> </detail>"
        self.found = Recalled(
            facts=tuple(
                RecalledFact(type="decision", text=f"{n} {text}", score=1 / (n + 1))
                for n in range(facts)
            ),
            passages=tuple(
                RecalledPassage(
                    text=f"{n} {text}", role="user", said_at="2026-02-10 14:31", score=1 / (n + 1)
                )
                for n in range(passages)
            ),
        )

    async def recall(self, request: RecallRequest) -> Recalled:
        return self.found


def refused(format_name: FormatName, body: Any) -> list[Any]:
    """What the provider would refuse; Anthropic's ids held unique in the whole request."""
    strict = format_name == "anthropic"
    return violations(format_name, body, ids_unique_across_messages=strict)


def prepare(engine: Engine, session: Session, given_: Any, format_name: FormatName) -> Context:
    return asyncio.run(engine.prepare(session, given_, format=format_name))


def sent(body: dict[str, Any], format_name: FormatName) -> list[Any]:
    held = body["input" if format_name == "openai-responses" else "messages"]
    return held if isinstance(held, list) else [held]


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.timeout(at_size(ci=600, full=3_600))
def test_any_conversation(format_name: FormatName) -> None:
    @settings(max_examples=EXAMPLES)
    @given(bodies(format_name), windows(), st.integers(0, 3))
    def check(body: dict[str, Any], window: int, style: int) -> None:
        raw = encoded(body, style)
        engine = Engine(build({"window_tokens": window}))
        session = Session("s")
        context = prepare(engine, session, raw, format_name)
        report = context.report
        out = json.loads(context.request)
        assert _broken(report) == []
        assert refused(format_name, out) == []
        assert unfaithful(format_name, body, out) == []
        _everything_but_messages_is_as_it_came(format_name, raw, context.request)
        _untouched_messages_are_the_same_bytes(context, raw, format_name)
        _within_its_limit_or_says_why(context)
        _every_message_has_one_fate(context)
        again = prepare(engine, session, raw, format_name)
        assert again.request == context.request, "the same request twice gives the same view"
        if not report.over_limit:
            fresh = Engine(build({"window_tokens": window}))
            fixed = prepare(fresh, Session("t"), context.request, format_name)
            assert fixed.request == context.request, "shaping what was shaped changes nothing"

    check()


PER_TURN = ("per-turn-control-2026-03-05",)


@settings(max_examples=EXAMPLES // 4)
@given(bodies_with_system_inside(), st.sampled_from((4_000, 8_000, 16_000, 200_000)), st.booleans())
def test_system_messages_between_turns(body: dict[str, Any], window: int, recalls: bool) -> None:
    """Claude Code's, under their beta: the rest is trimmed, pruned and recalled around them."""
    raw = encoded(body, 0)
    recaller = FixedRecall(1, 1, 80) if recalls else None
    engine = Engine(build({"window_tokens": window}), recaller=recaller)
    context = asyncio.run(engine.prepare(Session("s"), raw, format="anthropic", betas=PER_TURN))
    out = json.loads(context.request)
    assert _broken(context.report) == []
    strict = violations("anthropic", out, ids_unique_across_messages=True, betas=PER_TURN)
    assert strict == []
    assert unfaithful("anthropic", body, out) == []
    _untouched_messages_are_the_same_bytes(context, raw, "anthropic")
    _within_its_limit_or_says_why(context)
    came = array_spans(object_spans(raw)["messages"])
    for span in array_spans(object_spans(context.request)["messages"]):
        if json.loads(span).get("role") == "system":
            assert span in came
    blocks = [edit for edit in context.report.new_edits if edit.stage == "inject"]
    assert context.request.count(b"<recalled-context") >= len(blocks)


def _broken(report: Report) -> list[StageLine]:
    return [line for line in report.failures if line.stage != "check"]


def _everything_but_messages_is_as_it_came(format_name: FormatName, raw: bytes, out: bytes) -> None:
    field = "input" if format_name == "openai-responses" else "messages"
    before, after = object_spans(raw), object_spans(out)
    assert list(before) == list(after)
    for key, span in before.items():
        if key != field:
            assert after[key] == span


def _untouched_messages_are_the_same_bytes(
    context: Context, raw: bytes, format_name: FormatName
) -> None:
    report = context.report
    came = {entry.raw for entry in report.entries}
    field = "input" if format_name == "openai-responses" else "messages"
    spans = object_spans(context.request)[field]
    went = array_spans(spans) if spans[:1] == b"[" else []
    if went:
        assert len(went) == len(report.view.rows)
        for row, span in zip(report.view.rows, went, strict=True):
            if isinstance(row, Entry):
                assert span in came
                assert span in raw, "an untouched message goes out byte for byte"
            else:
                assert isinstance(row, Slot)
    touched = {key for row in report.view.rows if isinstance(row, Slot) for key in row.sources}
    told = {fate.key for fate in report.fates() if fate.fate == "changed"}
    assert touched <= told


def _within_its_limit_or_says_why(context: Context) -> None:
    report = context.report
    if report.over_limit:
        (line,) = [x for x in report.lines if x.stage == "check"]
        assert line.cause in (Cause.STILL_OVER, Cause.STILL_OVER_NOT_DURABLE)


def _every_message_has_one_fate(context: Context) -> None:
    fates = context.report.fates()
    places = [fate.place for fate in fates if fate.place is not None]
    assert places == list(range(len(context.report.entries)))
    assert all(fate.said for fate in fates)
    shown = sum(row.tokens for row in context.report.view.rows)
    assert sum(fate.tokens_after for fate in fates) <= shown


@pytest.mark.parametrize("format_name", FORMATS)
def test_objects_are_neither_mutated_nor_copied(format_name: FormatName) -> None:
    @settings(max_examples=EXAMPLES // 5)
    @given(bodies(format_name), windows())
    def check(body: dict[str, Any], window: int) -> None:
        before = copy.deepcopy(body)
        engine = Engine(build({"window_tokens": window}))
        context = prepare(engine, Session("s"), body, format_name)
        assert body == before
        assert refused(format_name, context.request) == []
        mine = {id(item) for item in sent(body, format_name)}
        for row, item in zip(
            context.report.view.rows, sent(context.request, format_name), strict=True
        ):
            assert (id(item) in mine) == isinstance(row, Entry) or isinstance(item, str)

    check()


@pytest.mark.parametrize("format_name", FORMATS)
def test_valid_conversations_that_fit_are_left_alone(format_name: FormatName) -> None:
    @settings(max_examples=EXAMPLES // 5)
    @given(valid_bodies(format_name), st.integers(0, 3))
    def check(body: dict[str, Any], style: int) -> None:
        raw = encoded(body, style)
        engine = Engine(build({"window_tokens": 50_000_000}))
        assert prepare(engine, Session("s"), raw, format_name).request is raw

    check()


@pytest.mark.parametrize("format_name", FORMATS)
def test_with_a_recalled_block(format_name: FormatName) -> None:
    """The block obeys its cap, stays within the limit, and never breaks a request."""

    @settings(max_examples=EXAMPLES // 3)
    @given(
        bodies(format_name),
        windows(),
        st.integers(0, 6),
        st.integers(0, 6),
        st.integers(1, 4_000),
        st.sampled_from(["recollect", "openclaw"]),
    )
    def check(
        body: dict[str, Any], window: int, facts: int, passages: int, chars: int, preset: str
    ) -> None:
        arguments = {"preset": preset, "window_tokens": window}
        loaded = load_settings(arguments=arguments, environment={})
        engine = Engine(loaded.settings, recaller=FixedRecall(facts, passages, chars))
        session = Session("s")
        context = prepare(engine, session, json.dumps(body).encode(), format_name)
        report = context.report
        assert _broken(report) == []
        assert refused(format_name, json.loads(context.request)) == []
        blocks = [edit for edit in report.new_edits if edit.stage == "inject"]
        assert len(blocks) <= 1
        for block in blocks:
            text = block.text  # type: ignore[union-attr]
            cap = min(engine.settings.recall.hard_cap_tokens, window // 10)
            assert engine.parts.weigher.text(text) <= cap
            assert text.count("</recalled-context>") == 1
            assert text.count("</detail>") <= 1
            assert report.tokens_after <= window - report.reserve_tokens
        again = prepare(engine, session, json.dumps(body).encode(), format_name)
        assert again.request == context.request

    check()
