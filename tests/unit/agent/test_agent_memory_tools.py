"""The memory tools among the agent's own: used, sized by the window, never kept twice."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_harness import AgentHarness

from recollect.agent.events import CallEnded
from recollect.core.values.recall import TOOL_OPENING
from recollect.testing.scripted_model import Says, ScriptedCall, ScriptedModel

NAMES = ["memory_search", "memory_get", "memory_store", "memory_recall", "memory_forget"]


def offered(request: Mapping[str, Any]) -> list[str]:
    return [tool["name"] for tool in request["tools"] if tool["name"].startswith("memory_")]


def calls(name: str, **arguments: Any) -> Says:
    return Says(calls=[ScriptedCall(id=f"c-{name}", name=name, input=arguments)])


def test_a_model_finds_in_a_new_session_what_was_said_in_an_earlier_one(tmp_path: Path) -> None:
    model = ScriptedModel(
        [
            Says(text="Noted, berth 17."),
            calls("memory_search", query="Which berth does the pilot want?"),
            Says(text="Berth 17."),
            calls("memory_search", query="Which berth does the pilot want?"),
            Says(text="Still berth 17."),
        ]
    )
    harness = AgentHarness(tmp_path, model)
    harness.say("The pilot wants berth 17 for the night.")
    harness.say("/new", "Which berth does the pilot want?", "Are you sure about that berth?")
    first, second = (event.text for event in harness.events if isinstance(event, CallEnded))
    assert "The pilot wants berth 17 for the night." in first
    assert second.count(TOOL_OPENING) == 1, "an answer is not found by the next search"
    assert second.count("The pilot wants berth 17") == 1


@pytest.mark.parametrize(("window", "names"), [(64_000, NAMES), (4_096, NAMES[:1])])
def test_small_window_gets_the_search_alone(tmp_path: Path, window: int, names: list[str]) -> None:
    model = ScriptedModel([Says(text="ok")])
    AgentHarness(tmp_path, model, settings={"window_tokens": window}).say("hello")
    assert offered(model.requests[0]) == names


def test_nothing_kept_means_no_memory_tools(tmp_path: Path) -> None:
    model = ScriptedModel([Says(text="ok")])
    settings = {"ingest.enabled": False, "window_tokens": 64_000}
    AgentHarness(tmp_path, model, settings=settings).say("hello")
    assert offered(model.requests[0]) == []


@pytest.mark.parametrize("agrees", [True, False])
def test_the_person_is_asked_before_anything_is_forgotten(tmp_path: Path, agrees: bool) -> None:
    asked: list[str] = []

    def confirm(wanted: Any) -> bool:
        asked.append(str(wanted))
        return agrees

    found: list[str] = []

    def reply(request: Any) -> Says:
        text = json.dumps(request["messages"], ensure_ascii=False)
        if "Forgotten permanently" in text or "did not confirm" in text:
            return Says(text="done")
        if "Stored:" in text:
            found.append(text.split("Stored:\\n[")[1][:24])
            return calls("memory_forget", ids=[found[0]])
        return calls("memory_store", text="The pilot prefers berth 17", type="preference")

    harness = AgentHarness(
        tmp_path, ScriptedModel(reply), settings={"window_tokens": 64_000}, confirm_forget=confirm
    )
    harness.say("Remember the berth, then forget it.")
    assert "berth 17" in asked[0]
    ended = [event for event in harness.events if isinstance(event, CallEnded)]
    assert ended[-1].is_error is not agrees
