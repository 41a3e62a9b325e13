"""Whatever a model does, in whatever order: valid requests, a whole history, one end a run."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.agent.agent_harness import AgentHarness, of

from recollect.agent.events import Ended
from recollect.core.values.model import Overflow, Usage
from recollect.errors import ModelOverflow, ModelRefused, ModelUnavailable
from recollect.testing.provider_rules import violations
from recollect.testing.scripted_model import Says, ScriptedCall, ScriptedModel, WireName

WINDOW = 8_000
SETTINGS = {"window_tokens": WINDOW, "compaction.keep_recent_tokens": 400}
WORDS = "the pilot asks for the depth of the basin before the tide turns again "

calls = st.sampled_from(
    [
        ("write", {"path": "a.txt", "content": "one\n"}),
        ("write", {"path": "memory/2020-01-01.md", "content": "a note"}),
        ("read", {"path": "a.txt"}),
        ("edit", {"path": "a.txt", "oldText": "one", "newText": "two"}),
        ("read", {}),
        ("nothing", {"x": 1}),
    ]
)
replies = st.builds(
    lambda text, thinking, wanted, used, stop: Says(
        stop=stop,
        text=text,
        thinking=thinking,
        calls=[
            ScriptedCall(id=f"call_{at}", name=name, input=given)
            for at, (name, given) in enumerate(wanted)
        ],
        usage=Usage(input_tokens=used, output_tokens=9),
    ),
    st.sampled_from(["", "fine", "NO_REPLY", WORDS * 20]),
    st.sampled_from(["", "hm"]),
    st.lists(calls, max_size=3),
    st.sampled_from([500, int(WINDOW * 0.74), WINDOW]),
    st.sampled_from([None, None, None, "length"]),
)
troubles = st.sampled_from(
    [
        ModelOverflow("too long", Overflow(pattern_name="t", limit_tokens=5000)),
        ModelOverflow("too long"),
        ModelUnavailable("away"),
        ModelRefused("no"),
    ]
)
turns = st.lists(
    st.sampled_from(["ask", "ask", WORDS * 15, WORDS * 40, "/compact", "/undo", "restart"]),
    min_size=2,
    max_size=9,
)


@settings(max_examples=12)
@given(
    wire=st.sampled_from(["anthropic", "openai-chat", "openai-responses"]),
    script=st.lists(replies | replies | replies | troubles, min_size=1, max_size=12),
    said=turns,
)
def test_any_script_leaves_a_whole_history(
    wire: WireName, script: list[Any], said: list[str]
) -> None:
    steps = iter(script)
    model = ScriptedModel(lambda _: next(steps, Says(text="done")), format=wire)
    with tempfile.TemporaryDirectory() as folder:
        harness = AgentHarness(Path(folder), model, settings=SETTINGS)
        spoken: list[str] = []
        waiting: list[str] = []
        for number, text in enumerate([*said, "restart"]):
            if text != "restart":
                waiting.append(text if text[0] == "/" else f"{number} {text}")
                continue
            events = harness.say(*waiting)
            assert len(of(events, Ended)) == len(waiting)
            spoken.extend(one for one in waiting if one[0] != "/")
            waiting = []
        for request in model.requests:
            assert violations(wire, request) == []
        messages = harness.messages()
    users = [one["content"][0]["text"] for one in messages if one["role"] == "user"]
    assert users == spoken
    asked = [
        block["id"]
        for one in messages
        if one["role"] == "assistant" and one["stopReason"] in ("toolUse", "length")
        for block in one["content"]
        if block["type"] == "toolCall"
    ]
    assert [one["toolCallId"] for one in messages if one["role"] == "toolResult"] == asked
