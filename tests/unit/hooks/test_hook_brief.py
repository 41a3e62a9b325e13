"""What a new session is told at its start, prompts about time, and the hooks of subagents."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.hooks.agent_transcripts import ClaudeTranscript

from recollect.core.formats.recalled_block import recalled_items
from recollect.core.rules.tokens import count_text
from recollect.core.turn.brief import BRIEF_TOKENS
from recollect.hosts.hooks.memory import BLOCK_TOKENS, MORE, HookMemory
from recollect.system.config import load_settings

RULE = "Never edit the generated parser by hand."
IMPORTER = "The importer reads CAMT files. Not done yet: statements with several accounts."
Work = Callable[["Agent"], Awaitable[None]]


class Session:
    """A session of Claude Code whose hooks are answered."""

    def __init__(self, agent: "Agent") -> None:
        self.agent = agent
        self.transcript = ClaudeTranscript(agent.project)

    async def hook(self, event: str, **fields: Any) -> dict[str, Any]:
        payload = {
            "session_id": self.transcript.session_id,
            "transcript_path": str(self.transcript.path),
            "cwd": str(self.agent.project),
            "hook_event_name": event,
            **fields,
        }
        answer = await self.agent.memory.answer("claude-code", payload)
        self.notice = str(answer.get("systemMessage") or "")
        return dict(answer.get("hookSpecificOutput") or {})

    async def start(self, source: str = "startup", **fields: Any) -> str:
        answer = await self.hook("SessionStart", source=source, **fields)
        return str(answer.get("additionalContext") or "")

    async def ask(self, prompt: str) -> str:
        answer = await self.hook("UserPromptSubmit", prompt=prompt)
        return str(answer.get("additionalContext") or "")

    async def turn(self, prompt: str, reply: str) -> None:
        await self.ask(prompt)
        self.transcript.user(prompt)
        self.transcript.reply(reply)
        await self.hook("Stop")


class Agent:
    """Claude Code in a project."""

    def __init__(self, project: Path, memory: HookMemory) -> None:
        self.project = project
        self.memory = memory

    async def past_session(self) -> Session:
        session = Session(self)
        await session.start()
        await session.turn(RULE, "Understood, I run `make parser`.")
        await session.turn("Write the importer for bank statements.", IMPORTER)
        await session.hook("SessionEnd", reason="exit")
        return session


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "agent"))
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    given = {"recall.embedder": "none", "store.url": str(tmp_path / "m.db")}

    def play(work: Work, **settings: bool) -> None:
        async def main() -> None:
            arguments = {**given, **settings}
            memory = HookMemory(load_settings(arguments=arguments, environment={}).settings)
            await work(Agent(project, memory))
            await memory.close()

        asyncio.run(main())

    return play


def test_new_session_gets_rules_and_where_the_last_one_ended(play: Callable[[Work], None]) -> None:
    async def work(agent: Agent) -> None:
        assert await Session(agent).start() == "", "memory is empty"
        await agent.past_session()
        session = Session(agent)
        brief = await session.start()
        assert RULE.rstrip(".") in brief
        assert "Write the importer" in brief
        assert count_text(brief) <= BRIEF_TOKENS
        assert await session.start() == "", "once"
        # What the brief has is not given again with a prompt.
        again = await session.ask("May I edit the generated parser by hand?")
        assert set(recalled_items(brief)).isdisjoint(recalled_items(again))

    play(work)


def test_forgotten_rule_is_in_no_brief(play: Callable[[Work], None]) -> None:
    async def work(agent: Agent) -> None:
        await agent.past_session()
        space = next(iter(agent.memory.spaces.keys))
        memory = await agent.memory.spaces.get(space)
        await memory.engine.forget(matching="generated parser")  # type: ignore[union-attr]
        brief = await Session(agent).start()
        assert "generated parser" not in brief
        assert "Write the importer" in brief

    play(work)


def test_rule_withdrawn_long_ago_stays_gone(
    play: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.core.engine.past.MAX_SEGMENTS", 6)

    async def work(agent: Agent) -> None:
        session = Session(agent)
        await session.start()
        await session.turn("Always squash the commits before merging from now on.", "Ok.")
        await session.turn("Drop the squash rule.", "Ok.")
        for number in range(4):
            await session.turn(f"Look at file number {number}, please.", IMPORTER * 2)
        brief = await Session(agent).start()
        assert "squash" not in brief
        assert "file number 3" in brief

    play(work)


def test_answer_to_another_request_is_no_outcome(play: Callable[[Work], None]) -> None:
    async def work(agent: Agent) -> None:
        session = Session(agent)
        await session.start()
        await session.turn("Write the importer for bank statements.", IMPORTER)
        await session.turn("Write a love letter to Zoraida.", "The garden and her eyes. Not sent.")
        await session.turn("<command-name>/review</command-name>", "The payment module is open.")
        space = next(iter(agent.memory.spaces.keys))
        memory = await agent.memory.spaces.get(space)
        await memory.engine.forget(matching="Zoraida")  # type: ignore[union-attr]
        brief = await Session(agent).start()
        assert "Outcome: The importer reads CAMT files" in brief
        assert "garden" not in brief
        assert "payment module" not in brief

    play(work)


def test_running_session_is_not_called_ended(play: Callable[[Work], None]) -> None:
    async def work(agent: Agent) -> None:
        session = Session(agent)
        await session.start()
        await session.turn("Write the importer for bank statements.", IMPORTER)
        brief = await Session(agent).start()
        assert "The newest session, last active" in brief
        assert "ended" not in brief

    play(work)


@pytest.mark.parametrize("is_withdrawn", [False, True])
def test_compacted_session_gets_the_rules_that_hold(
    play: Callable[[Work], None], *, is_withdrawn: bool
) -> None:
    async def work(agent: Agent) -> None:
        await agent.past_session()
        session = Session(agent)
        await session.start()
        await session.turn("Never rename the exporter.", "I will not rename it.")
        if is_withdrawn:
            await session.turn("Drop the generated parser rule.", "Noted, it is dropped.")
        await session.turn("Write the CSV exporter.", "Done, it is in exporter.py now.")
        await session.hook("PreCompact", trigger="manual")
        given = await session.start("compact")
        assert (RULE.rstrip(".") in rules_in(given)) is not is_withdrawn
        assert "exporter" not in rules_in(given), "rules of this session are in its summary"

    play(work)


def rules_in(text: str) -> str:
    return text.partition("standing rules:")[2].partition("</detail>")[0]


def test_prompts_about_time_are_answered_from_other_sessions(play: Callable[[Work], None]) -> None:
    async def work(agent: Agent) -> None:
        past = await agent.past_session()
        session = Session(agent)
        await session.start()
        assert "several accounts" in await session.ask("where did we leave off?")
        assert "several accounts" in await session.ask("continue with the importer")
        # The window of a resumed session has its own end.
        await past.start("resume")
        assert await past.ask("where did we leave off?") == ""

    play(work)


def test_statement_about_the_last_time_is_recalled(play: Callable[[Work], None]) -> None:
    async def work(agent: Agent) -> None:
        past = Session(agent)
        await past.start()
        key = "The staging deploy key was moved to vault path kv/stage7 by Henrik last time."
        await past.turn(key, "Ok.")
        await past.hook("SessionEnd", reason="exit")
        assert key in await Session(agent).ask("Where is the staging deploy key? which vault path")

    play(work)


def test_prompt_to_continue_also_gets_memories(play: Callable[[Work], None]) -> None:
    async def work(agent: Agent) -> None:
        past = Session(agent)
        await past.start()
        await past.turn("The upload handler stores its parts in bucket zeta-44.", "Understood.")
        long_answer = "The upload handler retries. " + "It logs each part and its size. " * 20
        await past.turn("Let the upload handler retry three times.", long_answer)
        await past.hook("SessionEnd", reason="exit")
        other = Session(agent)
        await other.turn("Write the importer.", IMPORTER)
        await other.hook("SessionEnd", reason="exit")
        given = await Session(agent).ask("Which bucket did the upload handler use last time?")
        assert "retry three times" in given, "the order of sessions"
        assert "zeta-44" in given, "memories of the subject"
        assert given.count("Let the upload handler retry three times") == 1
        assert count_text(given) <= BLOCK_TOKENS + count_text(MORE)

    play(work)


def test_times_are_those_of_the_clock_at_the_time(
    play: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(agent: Agent) -> None:
        for subject, month in (("importer", "01"), ("dashboard", "07")):
            past = Session(agent)
            said_at = {"timestamp": f"2026-{month}-15T10:30:00.000Z"}
            message = {"role": "user", "content": f"Write the {subject}."}
            past.transcript.line(type="user", message=message, **said_at)
            text = {"type": "text", "text": f"The {subject} is written, with tests for all of it."}
            reply = {"id": subject, "role": "assistant", "model": "x", "content": [text]}
            past.transcript.line(type="assistant", message=reply, **said_at)
            await past.hook("SessionEnd", reason="exit")
        assert "15 Jan 11:30" in await Session(agent).ask("continue with the importer")
        assert "15 Jul 12:30" in await Session(agent).ask("continue with the dashboard")

    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        play(work)
    time.tzset()


def test_resumed_session_gets_nothing_that_is_in_its_window(play: Callable[[Work], None]) -> None:
    async def work(agent: Agent) -> None:
        past = await agent.past_session()
        await agent.past_session()
        assert await past.start("resume", prompt_cache_likely_expired=True) == ""

    play(work)


def test_subagent_gets_rules_and_its_result_is_found(play: Callable[[Work], None]) -> None:
    async def work(agent: Agent) -> None:
        await agent.past_session()
        session = Session(agent)
        await session.start()
        given = {"description": "x", "prompt": "Add a case to the parser.", "subagent_type": "g"}
        task = {"tool_name": "Agent", "tool_input": given, "tool_use_id": "t"}
        answer = await session.hook("PreToolUse", **task)
        updated = answer["updatedInput"]
        assert updated["prompt"].startswith(given["prompt"])
        assert RULE.rstrip(".") in updated["prompt"]
        assert {**updated, "prompt": ""} == {**given, "prompt": ""}
        assert "permissionDecision" not in answer, "the user's permissions decide"
        added = updated["prompt"].removeprefix(given["prompt"])
        passages = len(recalled_items(added))
        expected = f"recollect: {passages} passages, {count_text(added)} tokens for a subagent"
        assert session.notice == expected, "the user sees that the task has changed"
        bash = {"tool_name": "Bash", "tool_input": {"command": "ls"}}
        assert await session.hook("PreToolUse", **bash) == {}
        assert session.notice == ""

        folder = session.transcript.path.with_suffix("") / "subagents"
        folder.mkdir(parents=True)
        own = folder / "agent-a1.jsonl"
        line = {
            "type": "user",
            "uuid": "u",
            "isSidechain": True,
            "timestamp": "2026-11-17T01:00:00Z",
        }
        line["message"] = {"role": "user", "content": updated["prompt"]}
        own.write_text(json.dumps(line) + "\n")
        result = "The parser accepts nested quotes up to depth 17, see tests/parser/deep.txt."
        ended = {
            "agent_id": "a1",
            "agent_type": "general-purpose",
            "agent_transcript_path": str(own),
            "last_assistant_message": result,
        }
        await session.hook("SubagentStop", **ended)
        await session.hook("SubagentStop", **ended)
        await session.hook("SubagentStop", **{**ended, "agent_id": "a2", "agent_type": ""})
        space = next(iter(agent.memory.spaces.keys))
        memory = await agent.memory.spaces.get(space)
        stored = await memory.engine.messages("agent-a1")  # type: ignore[union-attr]
        assert [message.role for message in stored] == ["assistant"]
        assert stored[0].text.startswith("Task of a subagent: Add a case to the parser.")
        assert stored[0].text.endswith(result)
        assert RULE not in stored[0].text, "what was added to the task"
        sessions = {one.session for one in await memory.engine.sessions()}  # type: ignore[union-attr]
        assert "agent-a2" not in sessions, "the summary of a compaction"
        assert "nested quotes" not in await Session(agent).start(), "not the user's last session"

    play(work)


def test_tasks_and_notices_can_be_left_alone(play: Callable[..., None]) -> None:
    async def work(agent: Agent) -> None:
        await agent.past_session()
        session = Session(agent)
        task = {"tool_name": "Agent", "tool_input": {"prompt": "Add a case to the parser."}}
        answers.append((await session.hook("PreToolUse", **task), session.notice))

    answers: list[tuple[dict[str, Any], str]] = []
    play(work, **{"daemon.tasks": False})
    play(work, **{"daemon.notices": False})
    assert answers[0] == ({}, "")
    assert answers[1][0]["updatedInput"]
    assert answers[1][1] == ""
