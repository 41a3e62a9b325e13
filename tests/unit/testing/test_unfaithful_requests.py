"""Provider rules that need the request as it was before it was changed."""

import pytest
from tests.harness.faithful import unfaithful
from tests.unit.testing.test_provider_rules import (
    HI,
    MARK,
    MODEL_SAYS,
    THOUGHT,
    Body,
    assistant,
    call,
    function_call,
    output,
    result,
    text,
    thinking,
    user,
)


def test_thinking_that_went_out_as_it_came_is_faithful() -> None:
    original = {"messages": [HI, assistant(thinking(**MARK), call()), user(result())]}
    body = {"messages": [HI, assistant(thinking(), call()), user(result())]}
    assert unfaithful("anthropic", original, body) == []


@pytest.mark.parametrize(
    "block",
    [{"type": "thinking", "thinking": "hm"}, thinking(thinking="hmm"), thinking(signature="")],
)
def test_thinking_that_changed_is_reported(block: Body) -> None:
    original = {"messages": [HI, assistant(thinking(), text()), HI]}
    body = {"messages": [HI, assistant(block, text()), HI]}
    reported = unfaithful("anthropic", original, body)
    assert [(item.rule, item.where) for item in reported] == [
        ("thinking-altered", "messages[1].content[0]")
    ]


def test_thinking_may_be_dropped_from_old_answers_but_not_from_the_latest() -> None:
    old = [HI, assistant(thinking(), call("a")), user(result("a"))]
    latest = [assistant(thinking(signature="Zz"), call("b")), user(result("b"))]
    without_old = [HI, assistant(call("a")), user(result("a")), *latest]
    without_latest = [*old, assistant(call("b")), user(result("b"))]
    original = {"messages": [*old, *latest]}
    assert unfaithful("anthropic", original, {"messages": without_old}) == []
    reported = unfaithful("anthropic", original, {"messages": without_latest})
    assert [(item.rule, item.where) for item in reported] == [
        ("thinking-lost-in-latest", "messages[3]")
    ]


def test_an_item_keeps_the_reasoning_it_came_with() -> None:
    original = {"input": [HI, THOUGHT, function_call(id="fc_1"), output()]}
    kept = {"input": [THOUGHT, function_call(id="fc_1"), output()]}
    lost = {"input": [function_call(id="fc_1"), output()]}
    nameless = {"input": [function_call(), output()]}
    assert unfaithful("openai-responses", original, kept) == []
    assert unfaithful("openai-responses", original, nameless) == []
    reported = unfaithful("openai-responses", original, lost)
    assert [(item.rule, item.where) for item in reported] == [
        ("item-without-its-reasoning", "input[0]")
    ]
    twice = {"input": [HI, function_call(id="fc_1"), *original["input"][1:]]}
    first = {"input": [function_call(id="fc_1"), THOUGHT, function_call(), output()]}
    reported = unfaithful("openai-responses", twice, first)
    assert [item.where for item in reported] == ["input[0]"]


@pytest.mark.parametrize("format_name", ["anthropic", "openai-chat"])
def test_the_assistant_speaks_last_only_where_it_did(format_name: str) -> None:
    asked, answered = {"messages": [HI]}, {"messages": [HI, MODEL_SAYS]}
    assert unfaithful(format_name, answered, answered) == []
    assert unfaithful(format_name, answered, asked) == []
    reported = unfaithful(format_name, asked, answered)
    assert [(item.rule, item.where) for item in reported] == [
        ("ends-with-assistant", "messages[1]")
    ]


def test_what_must_stand_alone_at_the_end_does() -> None:
    code = {"type": "server_tool_use", "id": "srv_1", "name": "code_execution", "input": {}}
    made = {**call("a"), "caller": {"type": "code_execution_20260120", "tool_id": "srv_1"}}
    begun = [HI, assistant(code, made)]
    alone, mixed = [*begun, user(result("a"))], [*begun, user(result("a"), text())]
    reported = unfaithful("anthropic", {"messages": alone}, {"messages": mixed})
    assert [item.rule for item in reported] == ["results-not-alone"]
    assert unfaithful("anthropic", {"messages": alone}, {"messages": alone}) == []
    by_itself = [HI, assistant(call("a")), user(result("a"), text())]
    assert unfaithful("anthropic", {"messages": alone}, {"messages": by_itself}) == []
    trigger = {"type": "compaction_trigger"}
    reported = unfaithful("openai-responses", {"input": [HI, trigger]}, {"input": [trigger, HI]})
    assert [item.rule for item in reported] == ["trigger-not-last"]
