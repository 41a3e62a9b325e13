"""What hooks give back, and what receipts say, when Claude Code or Codex compacts by itself."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.hooks.agent_transcripts import ClaudeTranscript, CodexRollout

from recollect.adapters.wiring import open_memory, open_store
from recollect.core.formats.recalled_block import EARLIER_ORDER
from recollect.core.rules.tokens import Weigher
from recollect.core.values.compaction import Receipt
from recollect.core.values.recall import BLOCK_CLOSING
from recollect.hosts.hooks.left_out import BLOCK_TOKENS, OPEN_NOTE
from recollect.hosts.hooks.memory import HookMemory
from recollect.hosts.hooks.transcript_file import AgentName
from recollect.hosts.inspect.sessions import Receipts, read_receipts
from recollect.system.config import load_settings

RULE = "Never push to the release branch without asking me."
DECISION = "We decided that the webhook listens on port 18443, never on 8080."
RETRIES = "Please raise the retry limit to 9 in deploy/eu.yaml, then run the smoke test."
SMOKE = "make -n smoke CHANNEL=eu-west-2"
SUMMARY = "The user works on the billing service. The webhook listens on port 18443, never on 8080."
Hook = Callable[..., Awaitable[str]]
Work = Callable[[Hook, Any], Awaitable[None]]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "agent"))
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    return folder


def run(project: Path, agent: AgentName, transcript: Any, work: Work) -> None:
    """Answer hooks of one session, then wait for work in the background."""
    given = {"recall.embedder": "none", "store.url": str(project / "m.db")}

    async def main() -> None:
        memory = HookMemory(load_settings(arguments=given, environment={}).settings)

        async def hook(event: str, **fields: Any) -> str:
            payload = {
                "session_id": transcript.session_id,
                "transcript_path": str(transcript.path),
                "cwd": str(project),
                "hook_event_name": event,
                **fields,
            }
            answer = await memory.answer(agent, payload)
            return str(answer["hookSpecificOutput"]["additionalContext"]) if answer else ""

        await work(hook, transcript)
        await memory.close()

    asyncio.run(main())


def receipts(project: Path, session: str) -> Receipts:
    async def read() -> Receipts:
        store = await open_store(str(project / "m.db"), space=str(project))
        try:
            return await read_receipts(store, session)
        finally:
            await store.close()

    return asyncio.run(read())


def details(receipt: Receipt | None, standing: str, *, pinned: bool = False) -> set[str]:
    assert receipt is not None
    return {
        finding.probe.text
        for finding in receipt.findings
        if (finding.standing, finding.pinned) == (standing, pinned)
    }


async def summarized(hook: Hook, summary: str = SUMMARY, trigger: str = "auto") -> str:
    """Let Claude Code summarize: its hooks in their order. Return what it is given."""
    assert await hook("PreCompact", trigger=trigger) == ""
    written = f"<summary>\n{summary}\n</summary>"
    await hook("SubagentStop", agent_id="a1", agent_type="", last_assistant_message=written)
    return await hook("SessionStart", source="compact")


async def worked(hook: Hook, transcript: ClaudeTranscript) -> None:
    """Talk about the service, with a decision, a rule and a command."""
    for text in (DECISION, RULE, "Look at the exporter."):
        await hook("UserPromptSubmit", prompt=text)
        transcript.user(text)
        if text.startswith("Look"):
            transcript.call("t0", SMOKE)
            transcript.result("t0", "smoke: ok, 41 checks in 3 s")
        transcript.reply("Understood.")
        await hook("Stop")


def test_a_request_in_progress_is_given_back_first_and_as_such(project: Path) -> None:
    """Between two tool calls, Claude Code keeps not even the request."""

    async def work(hook: Hook, transcript: ClaudeTranscript) -> None:
        await worked(hook, transcript)
        await hook("UserPromptSubmit", prompt=RETRIES)
        transcript.user(RETRIES)
        transcript.call("t1", "sed -n 1,400p deploy/eu.yaml")
        transcript.result("t1", "retries: 7")
        block = await summarized(hook)
        told = block.splitlines()
        assert told.index(OPEN_NOTE) < told.index(f"user: {RETRIES}") < told.index(f"user: {RULE}")
        assert EARLIER_ORDER not in block
        assert block.count("retry limit") == 1

    run(project, "claude-code", ClaudeTranscript(project), work)


def test_a_prompt_that_waits_for_its_answer_is_no_earlier_order(project: Path) -> None:
    """Claude Code keeps it word for word after its summary, so it is not given back."""

    async def work(hook: Hook, transcript: ClaudeTranscript) -> None:
        await worked(hook, transcript)
        await hook("UserPromptSubmit", prompt=RETRIES)
        transcript.user(RETRIES)
        block, _, _ = (await summarized(hook)).partition(BLOCK_CLOSING)
        assert RULE in block
        assert "retry limit" not in block

    run(project, "claude-code", ClaudeTranscript(project), work)


def test_the_block_is_short_and_lacks_what_the_summary_states(project: Path) -> None:
    async def work(hook: Hook, transcript: ClaudeTranscript) -> None:
        for number in range(60):
            text = f"Invoice INV-{204817 + number} belongs to src/billing/part_{number}.py."
            transcript.user(text)
            transcript.call(f"c{number}", f"pytest -q tests/test_part_{number}.py")
            transcript.result(f"c{number}", "1 passed")
            transcript.reply(f"compute_total_{number} is done.")
        await worked(hook, transcript)
        block = await summarized(hook, trigger="manual")
        assert RULE in block
        assert SMOKE in block
        assert "18443" not in block, "the summary has it"
        assert OPEN_NOTE not in block, "every request was answered"
        left_out = block[: block.index(BLOCK_CLOSING) + len(BLOCK_CLOSING)]
        assert BLOCK_TOKENS / 2 < Weigher().text(left_out) <= BLOCK_TOKENS

    run(project, "claude-code", ClaudeTranscript(project), work)


def test_a_compaction_before_any_prompt_gets_its_block(project: Path) -> None:
    """A session that is resumed and compacted at once, also after the brief of its start."""

    async def work(hook: Hook, transcript: ClaudeTranscript) -> None:
        await hook("SessionStart", source="startup")
        for text in (DECISION, RULE):
            transcript.user(text)
            transcript.reply("Understood.")
        assert RULE in await summarized(hook, trigger="manual")
        assert await hook("SessionStart", source="compact") == "", "once"
        transcript.compacted(summary=SUMMARY)
        assert RULE in await summarized(hook, trigger="manual"), "the next one"

    run(project, "claude-code", ClaudeTranscript(project), work)


def test_only_the_summarizing_subagent_tells_the_summary(project: Path) -> None:
    async def work(hook: Hook, transcript: ClaudeTranscript) -> None:
        await worked(hook, transcript)
        forged = {"agent_id": "a", "agent_type": "", "last_assistant_message": SUMMARY}
        await hook("SubagentStop", **forged)  # outside of a compaction
        await hook("PreCompact", trigger="auto")
        await hook("SubagentStop", **{**forged, "agent_type": "general-purpose"})
        assert "18443" in await hook("SessionStart", source="compact")

    run(project, "claude-code", ClaudeTranscript(project), work)


@pytest.mark.parametrize("words", ["retry limit", "release branch", "smoke"])
def test_forgotten_text_is_not_given_back_and_in_no_receipt(project: Path, words: str) -> None:
    """Neither a request in progress, nor a rule, nor a command, nor a quoted detail."""
    transcript = ClaudeTranscript(project)

    async def work(hook: Hook, transcript: ClaudeTranscript) -> None:
        await worked(hook, transcript)
        await hook("UserPromptSubmit", prompt=RETRIES)
        transcript.user(RETRIES)
        transcript.call("t1", "sed -n 1,400p deploy/eu.yaml")
        transcript.result("t1", "retries: 7")
        await hook("Stop")
        async with open_memory(store=project / "m.db", space=str(project)) as memory:
            assert (await memory.forget(matching=words)).counts
        block = await summarized(hook)
        assert "user: " in block
        assert words not in block
        transcript.compacted(summary=f"{SUMMARY} {words} {RETRIES}")
        transcript.handed(block)
        transcript.reply("Done.")
        await hook("Stop")
        await hook("SessionEnd", reason="other")

    run(project, "claude-code", transcript, work)
    assert receipts(project, transcript.session_id).records == ()


def test_each_compaction_of_claude_code_leaves_one_receipt(project: Path) -> None:
    transcript = ClaudeTranscript(project)

    async def work(hook: Hook, transcript: ClaudeTranscript) -> None:
        for number in (1, 2):
            await worked(hook, transcript)
            block = await summarized(hook)
            transcript.compacted(summary=SUMMARY, tokens=(97_000 + number, 2_600 + number))
            transcript.handed(block)
            await hook("PostCompact", trigger="auto", compact_summary=SUMMARY)
            transcript.reply("Going on.")
            await hook("Stop")
        await hook("SessionEnd", reason="other")

    run(project, "claude-code", transcript, work)
    found = receipts(project, transcript.session_id)
    assert [row["host"] for row in found.rows()] == ["Claude Code", "Claude Code"]
    assert [row["undone"] for row in found.rows()] == [False, False]
    sizes = [(row["tokens_before"], row["tokens_after"]) for row in found.rows()]
    assert sizes == [(97_001, 2_601), (97_002, 2_602)]
    result = found.page(1).recorded.result
    assert result.summary == SUMMARY
    assert DECISION in details(result.receipt, "in summary")
    assert {RULE, SMOKE} <= details(result.receipt, "in summary", pinned=True), "given back"
    assert result.receipt is not None
    assert result.receipt.pinned_tokens > 0

    async def resumed(hook: Hook, transcript: ClaudeTranscript) -> None:
        await hook("SessionStart", source="resume")
        await hook("Stop")

    run(project, "claude-code", transcript, resumed)
    assert receipts(project, transcript.session_id).records == found.records


def test_a_session_from_before_the_installation_gets_its_receipts(project: Path) -> None:
    """Without hooks, nothing was given back: the details are recallable, or lost."""
    transcript = ClaudeTranscript(project)
    secret = "sk-proj-q7Rk2vXw9LmT4bNz8PdY3hJc6FsG1aUe5QoW0tKi"
    for text in (DECISION, RULE, f"The staging key is {secret}, for the harbour gateway."):
        transcript.user(text)
        transcript.reply("Understood.")
    transcript.compacted(summary=SUMMARY, tokens=(150_000, 3_000))
    transcript.reply("Going on.")

    async def work(hook: Hook, transcript: ClaudeTranscript) -> None:
        await hook("SessionStart", source="resume")

    run(project, "claude-code", transcript, work)
    (record,) = receipts(project, transcript.session_id).records
    assert secret.encode() not in record.body
    result = receipts(project, transcript.session_id).page().recorded.result
    assert RULE in details(result.receipt, "recallable") | details(result.receipt, "lost")
    assert details(result.receipt, "in summary", pinned=True) == set()


def test_codex_repeats_no_line_that_it_kept(project: Path) -> None:
    rollout = CodexRollout(project)
    summary = f"Another language model started to solve this problem; its own analysis:\n{SUMMARY}"

    async def work(hook: Hook, rollout: CodexRollout) -> None:
        for text in (DECISION, RULE, "Look at the exporter."):
            await hook("UserPromptSubmit", prompt=text)
            rollout.user(text)
            rollout.call("t1", SMOKE)
            rollout.reply("Understood.")
            await hook("Stop")
        await hook("PreCompact", trigger="auto")
        rollout.compacted(kept=(RULE, summary))
        block = await hook("SessionStart", source="compact")
        assert SMOKE in block
        assert RULE not in block
        assert "18443" not in block
        rollout.handed(block)
        rollout.reply("Going on.")
        await hook("Stop")

    run(project, "codex", rollout, work)
    result = receipts(project, rollout.session_id).page().recorded.result
    assert result.summary == SUMMARY
    assert {DECISION, RULE} <= details(result.receipt, "in summary")
    assert SMOKE in details(result.receipt, "in summary", pinned=True)


def test_a_receipt_says_that_codex_encrypted_its_summary(project: Path) -> None:
    rollout = CodexRollout(project)

    async def work(hook: Hook, rollout: CodexRollout) -> None:
        rollout.user(DECISION)
        rollout.reply("Understood.")
        rollout.compacted(kept=(), encrypted="gAAAAABmxyz")
        rollout.reply("Going on.")
        await hook("Stop")

    run(project, "codex", rollout, work)
    page = receipts(project, rollout.session_id).page()
    assert page.recorded.result.receipt is None
    assert "encrypted" in json.dumps(page.as_json()["notes"])
