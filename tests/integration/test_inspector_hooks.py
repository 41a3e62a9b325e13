"""What the inspector, `replay` and `explain` say about a session of an agent with hooks: what
Recollect added, and that the rest is a reconstruction: it never saw the agent's own requests."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.harness.inspector import inspector
from tests.unit.hooks.agent_transcripts import ClaudeTranscript

from recollect.cli import main
from recollect.hosts.hooks.memory import HookMemory
from recollect.system.config import load_settings

PORT = "The staging database listens on port 5433, behind the proxy of the harbour."
ASKED = "Which port does the staging database of the harbour use?"
UNTRUE = (
    "Sent to the provider",
    "Broken by",
    "Cache broken",
    "byte for byte",
    "Shortened",
    "exact",
    "Nothing added",
    "Nothing was added",
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RECOLLECT_RECALL__EMBEDDER", "none")
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "agent"))
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def hooked(project: Path) -> ClaudeTranscript:
    """Two sessions with hooks: the second asks what the first said. Then Claude Code compacts."""
    transcript = ClaudeTranscript(project)

    async def work() -> None:
        memory = HookMemory(load_settings(folder=None).settings)

        async def hook(written: ClaudeTranscript, event: str, **fields: Any) -> str:
            payload = {
                "session_id": written.session_id,
                "transcript_path": str(written.path),
                "cwd": str(project),
                "hook_event_name": event,
                **fields,
            }
            answer = await memory.answer("claude-code", payload)
            return str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))

        async def say(written: ClaudeTranscript, text: str) -> str:
            added = await hook(written, "UserPromptSubmit", prompt=text)
            written.user(text)
            if added:
                written.handed(added)
            written.reply("Understood.")
            await hook(written, "Stop")
            return added

        await say(ClaudeTranscript(project), PORT)
        await say(transcript, "Good morning.")
        assert "5433" in await say(transcript, ASKED)
        transcript.compacted(summary="The user asked for a port.", tokens=(97_018, 2_612))
        transcript.reply("Going on.")
        await hook(transcript, "SessionEnd")
        await memory.close()

    asyncio.run(work())
    return transcript


def run(*arguments: str) -> Result:
    done = CliRunner().invoke(main, arguments, env={"COLUMNS": "100"})
    assert done.exit_code == 0, done.output
    return done


def test_pages_of_a_hooked_session_say_what_was_added_and_claim_no_more(project: Path) -> None:
    session = hooked(project).session_id
    where = {"space": str(project), "session": session}
    with inspector() as visit:
        pages = {
            "session": visit.page("session", **where).words,
            "turn": visit.page("turn", **where, turn=2).words,
            "wire": visit.page("wire", **where, turn=2).words,
            "receipt": visit.page("receipt", **where).words,
            "sessions": visit.page("").words,
        }
    for name, words in pages.items():
        assert not [claim for claim in UNTRUE if claim in words], name
    assert "Cost" not in pages["session"]
    assert "No memories added" in pages["session"]
    assert "The brief, answers about time" in pages["session"]
    assert "Recollect added" in pages["turn"]
    assert "a reconstruction" in pages["turn"]
    assert "Extended" in pages["turn"] or "Inserted" in pages["turn"]
    assert "never saw the agent's own request" in pages["wire"]
    assert "5433" in pages["wire"]
    assert "Claude Code compacted by itself" in pages["receipt"]
    assert "Undo" not in pages["receipt"]


def test_replay_and_explain_call_a_hooked_request_a_reconstruction(project: Path) -> None:
    transcript = hooked(project)
    done = run("replay", transcript.session_id, "--turn", "2")
    assert "reconstructed from the agent's transcript" in done.stderr
    assert "exact" not in done.stderr
    value = json.loads(run("replay", transcript.session_id, "--turn", "2", "--json").stdout)
    assert (value["exact"], value["reconstructed"]) == (False, True)
    text = " ".join(run("explain", str(transcript.path)).stdout.split())
    assert "a reconstruction: the agent sends its requests itself" in text
    assert "hooks added 1 block," in text
