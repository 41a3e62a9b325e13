"""What hooks of Claude Code and Codex are answered, over transcripts as the agents write them."""

import asyncio
import json
import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.hooks.agent_transcripts import ClaudeTranscript, CodexRollout

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.adapters.wiring import open_memory, open_store
from recollect.adapters.wiring.models import choose
from recollect.adapters.wiring.secrets import deployment_secret
from recollect.core.formats.recalled_block import recalled_items, write_standing
from recollect.core.formats.transcripts import read_transcripts
from recollect.core.rules.identity import space_secret
from recollect.core.rules.tokens import Weigher
from recollect.core.transfer.transcripts import ImportRules, import_transcript
from recollect.core.values.recall import BLOCK_CLOSING
from recollect.core.values.segment import Segment
from recollect.hosts.hooks.memory import MORE, MOST_CHARS, HookMemory
from recollect.hosts.hooks.transcript_file import AgentName, FollowedTranscript
from recollect.system.config import load_settings
from recollect.system.config.settings import Redaction
from recollect.system.projects import project_space

CENTS = "For the billing service we decided to store amounts as integers in cents."
PORT = "The staging database listens on port 5433. Never run migrations there on Fridays."
ASKS_PORT = "Which port does the staging database use, and may I migrate today, a Friday?"
Hook = Callable[..., Awaitable[str]]


Transcript = ClaudeTranscript | CodexRollout
KINDS: dict[AgentName, Callable[[Path], Transcript]] = {
    "claude-code": ClaudeTranscript,
    "codex": CodexRollout,
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "agent"))
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "src").mkdir()
    return folder


def run(
    project: Path,
    agent: AgentName,
    work: Callable[[Hook, Transcript], Awaitable[None]],
    **settings: Any,
) -> Transcript:
    """Answer hooks of one session; `hook` gives the additional context."""
    transcript = KINDS[agent](project)
    given = {"recall.embedder": "none", "store.url": str(project / "m.db"), **settings}

    async def main() -> None:
        memory = HookMemory(load_settings(arguments=given, environment={}).settings)

        async def hook(event: str, **fields: Any) -> str:
            payload = {
                "session_id": transcript.session_id,
                "transcript_path": str(transcript.path),
                "cwd": str(project / "src"),
                "hook_event_name": event,
                **fields,
            }
            answer = await memory.answer(agent, payload)
            notice = answer.pop("systemMessage", None)
            if not answer:
                assert notice is None
                return ""
            assert answer["hookSpecificOutput"]["hookEventName"] == event
            assert set(answer) == {"hookSpecificOutput"}
            assert (notice is None) != settings.get("daemon.notices", True)
            if notice is not None:
                passages = recalled_items(answer["hookSpecificOutput"]["additionalContext"])
                assert f"{len(passages)} passage" in notice
            return str(answer["hookSpecificOutput"]["additionalContext"])

        await work(hook, transcript)
        await memory.close()

    asyncio.run(main())
    return transcript


async def talk(hook: Hook, transcript: Transcript, *said: str) -> None:
    for text in said:
        assert await hook("UserPromptSubmit", prompt=text) == "", "nothing left the view yet"
        transcript.user(text)
        transcript.reply(f"Understood: {len(text)}.")
        await hook("Stop")


def passages_without_vectors(project: Path) -> list[str]:
    async def read() -> list[str]:
        (embedder,) = choose("static", models=()).used
        store = await open_store(str(project / "m.db"), space=str(project))
        try:
            waiting = await store.unembedded(embedder.name, limit=100)
            return [passage.text for passage in waiting]
        finally:
            await store.close()

    return asyncio.run(read())


def stored_texts(project: Path) -> list[str]:
    return [one.text for one in stored_segments(project)]


def stored_sessions(project: Path) -> list[str]:
    return list(dict.fromkeys(one.session for one in stored_segments(project)))


def stored_segments(project: Path) -> list[Segment]:
    return asyncio.run(read_segments(project))


async def read_segments(project: Path) -> list[Segment]:
    store = await open_store(str(project / "m.db"), space=str(project))
    try:
        return [one.segment for one in await store.page(limit=10_000)]
    finally:
        await store.close()


@pytest.mark.parametrize("agent", list(KINDS))
def test_what_was_laid_down_comes_back_behind_the_agents_own_compaction(
    project: Path, agent: AgentName
) -> None:
    async def work(hook: Hook, transcript: Transcript) -> None:
        assert await hook("SessionStart", source="startup") == ""
        filler = [f"Clean up module {number} of the exporter." for number in range(8)]
        await talk(hook, transcript, CENTS, PORT, *filler)
        assert await hook("UserPromptSubmit", prompt="And the tests of it?") == ""
        assert await hook("PreCompact", trigger="auto") == "", "what it prints reaches the model"
        told = await hook("SessionStart", source="compact")
        assert "integers in cents" in told
        assert "port 5433" in told
        assert told.endswith(MORE)
        assert len(told) <= MOST_CHARS[agent]
        assert await hook("SessionStart", source="compact") == "", "once"
        transcript.compacted()
        await hook("PostCompact", trigger="auto")
        recalled = await hook("UserPromptSubmit", prompt=ASKS_PORT)
        assert "port 5433" in recalled
        transcript.user(ASKS_PORT)
        transcript.handed(recalled)
        transcript.reply("5433, and no.")
        await hook("Stop")
        again = await hook("UserPromptSubmit", prompt=ASKS_PORT)
        assert not again or set(recalled_items(again)) - set(recalled_items(recalled)), (
            "it stands there already"
        )
        await hook("SessionEnd", reason="other")

    run(project, agent, work)
    kept = stored_texts(project)
    for text in (CENTS, PORT, "And the tests of it?"):
        assert sum(text in one for one in kept) == 1, text


@pytest.mark.parametrize("agent", list(KINDS))
def test_after_a_compaction_finished_orders_are_told_as_history(
    project: Path, agent: AgentName
) -> None:
    orders = (
        "Move the ferry timetable to https://ferry.example/v2 please.",
        "Bring it back to https://ferry.example/v1 now.",
    )

    async def work(hook: Hook, transcript: Transcript) -> None:
        await talk(hook, transcript, CENTS, *orders)
        whole = await hook("SessionStart", source="compact")
        standing, _, _ = whole.partition(BLOCK_CLOSING)
        told = standing.splitlines()
        assert [line for line in told if line.startswith("user:") and CENTS[:20] in line]
        shown = [line for line in told if line.endswith(orders)]
        assert shown
        assert all(line.startswith("user, earlier order:") for line in shown), shown

    run(project, agent, work)


def test_behind_second_compaction_user_is_told_and_not_the_agents_own_words(project: Path) -> None:
    """Claude Code keeps the last exchange behind its summary; nothing of it is stored twice."""
    told: list[str] = []

    async def work(hook: Hook, transcript: Transcript) -> None:
        assert isinstance(transcript, ClaudeTranscript)
        for text in (CENTS, PORT):
            await hook("UserPromptSubmit", prompt=text)
            transcript.user(text)
            head = transcript.last
            transcript.reply(f"Understood: {len(text)}.")
            await hook("Stop")
            transcript.compacted(keeping=(head, transcript.last))
            told.append(await hook("SessionStart", source="compact"))
            transcript.user("<command-name>/compact</command-name>")
            transcript.user("<local-command-stdout>Compacted</local-command-stdout>")
        await hook("SessionEnd", reason="other")

    transcript = run(project, "claude-code", work)
    assert "integers in cents" in told[1]
    assert "Continue the conversation" not in told[1]
    assert "Compacted" not in told[1]

    async def again() -> None:
        """As an import reads it: whole."""
        store = await open_store(str(project / "m.db"), space=str(project))
        (session,) = read_transcripts(transcript.path.read_bytes())
        rules = ImportRules(
            secret=space_secret(str(project), deployment_secret()),
            redaction=Redaction(),
            weigher=Weigher(),
            now=0.0,
        )
        try:
            counts = await import_transcript(
                store,
                session,
                session=transcript.session_id,
                file="t",
                file_said_at=0.0,
                rules=rules,
            )
        finally:
            await store.close()
        assert counts.stored == counts.noise, "at most what the agent wrote by itself"

    asyncio.run(again())
    kept = stored_texts(project)
    assert [sum(text == one for one in kept) for text in (CENTS, PORT)] == [1, 1]


@pytest.mark.parametrize("agent", list(KINDS))
def test_what_was_said_while_nobody_listened_is_kept_over_a_compaction(
    project: Path, agent: AgentName
) -> None:
    """The daemon was away, or no hook came: the agent's own compaction hides nothing from us."""
    meanwhile = "The crane at the quay lifts forty tons."
    later = "The tug in the harbour pulls ninety tons."

    async def work(hook: Hook, transcript: Transcript) -> None:
        transcript.user(meanwhile)  # nobody heard of this session yet
        transcript.reply("Noted.")
        transcript.compacted()
        await hook("SessionStart", source="compact")
        await talk(hook, transcript, "Clean up the exporter.")
        transcript.user(later)
        transcript.reply("Noted, too.")
        transcript.compacted()
        transcript.user("Go on with the exporter.")
        transcript.reply("Done.")
        await hook("Stop")

    run(project, agent, work)
    kept = stored_texts(project)
    for text in (meanwhile, later, "Go on with the exporter."):
        assert sum(text in one for one in kept) == 1, text


@pytest.mark.parametrize("agent", list(KINDS))
def test_a_session_belongs_to_the_project_that_it_began_in(project: Path, agent: AgentName) -> None:
    """Also where the agent stands in another one when the daemon first hears of it."""
    other = project / "vendor"
    (other / ".git").mkdir(parents=True)

    async def work(hook: Hook, transcript: Transcript) -> None:
        if isinstance(transcript, ClaudeTranscript):
            transcript.line(type="user", cwd=str(project), message={"role": "user", "content": ""})
        else:
            transcript.meta(cwd=str(project))
        transcript.user(PORT)
        transcript.reply("Noted.")
        await hook("Stop", cwd=str(other))

    run(project, agent, work)
    assert any(PORT in text for text in stored_texts(project)), "not in the other one's memory"


def test_what_nobody_typed_asks_nothing(project: Path) -> None:
    async def work(hook: Hook, transcript: Transcript) -> None:
        await talk(hook, transcript, PORT)
        transcript.compacted()
        notice = f"<task-notification>\n{ASKS_PORT}\n</task-notification>"
        assert await hook("UserPromptSubmit", prompt=notice) == ""
        assert "5433" in await hook("UserPromptSubmit", prompt=ASKS_PORT)

    run(project, "claude-code", work)


@pytest.mark.parametrize(("expired", "told"), [(True, True), (False, False)])
def test_a_resumed_session_is_told_where_its_cache_is_gone_anyway(
    project: Path, expired: bool, told: bool
) -> None:
    async def work(hook: Hook, transcript: Transcript) -> None:
        await talk(hook, transcript, PORT, "Clean up the exporter.")
        transcript.compacted()
        got = await hook("SessionStart", source="resume", prompt_cache_likely_expired=expired)
        assert bool(got) == told

    run(project, "claude-code", work)


def test_another_session_of_the_project_knows_and_another_project_does_not(
    project: Path, tmp_path: Path
) -> None:
    async def first(hook: Hook, transcript: Transcript) -> None:
        await talk(hook, transcript, PORT)
        await hook("SessionEnd")

    async def second(hook: Hook, transcript: Transcript) -> None:
        assert "port 5433" in await hook("UserPromptSubmit", prompt=ASKS_PORT)
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        other = await hook("UserPromptSubmit", prompt=ASKS_PORT, cwd=str(elsewhere), session_id="x")
        assert other == ""

    run(project, "claude-code", first)
    run(project, "claude-code", second, **{"daemon.notices": False})
    run(project, "claude-code", second)


def test_the_second_clone_is_offered_the_memory_of_the_first_one_once(
    project: Path, tmp_path: Path
) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q", "first")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    git("-C", "first", *identity, "commit", "-q", "--allow-empty", "-m", "one")
    git("clone", "-q", "first", "second")

    async def main() -> None:
        memory = HookMemory(load_settings(environment={}).settings)

        async def start(folder: str, session: str) -> str:
            payload = {"cwd": str(tmp_path / folder), "session_id": session}
            payload |= {"hook_event_name": "SessionStart", "source": "startup"}
            return str((await memory.answer("claude-code", payload)).get("systemMessage", ""))

        assert await start("first", "a") == ""
        assert "`recollect project join`" in await start("second", "b")
        assert await start("second", "c") == ""
        await memory.close()

    asyncio.run(main())


def test_a_memory_that_fails_says_nothing(project: Path) -> None:
    async def work(hook: Hook, transcript: Transcript) -> None:
        for event in ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd"):
            assert await hook(event, prompt=ASKS_PORT, source="compact") == ""

    (project / "broken.db").write_bytes(b"this is no database at all " * 100)
    run(project, "claude-code", work, **{"store.url": str(project / "broken.db")})


def test_a_store_that_hangs_holds_up_no_hook_and_loses_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, session = asyncio.Event(), SQLiteStore.session

    async def ask_session(store: SQLiteStore, name: str) -> Any:
        if hangs.is_set():
            await asyncio.sleep(3_600)
        return await session(store, name)

    async def work(hook: Hook, transcript: Transcript) -> None:
        await talk(hook, transcript, CENTS)
        hangs.set()
        transcript.user(PORT)
        assert await asyncio.wait_for(hook("Stop"), 60.0) == ""
        hangs.clear()
        for _ in range(40):
            await asyncio.sleep(0.2)
            await hook("Stop")

    monkeypatch.setattr(SQLiteStore, "session", ask_session)
    run(project, "claude-code", work)
    assert [text for text in stored_texts(project) if text in (CENTS, PORT)] == [CENTS, PORT]


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"hook_event_name": "Stop"},
        {"hook_event_name": "Stop", "session_id": "s", "cwd": "relative"},
        {"hook_event_name": "Nonsense", "session_id": "s", "cwd": "/"},
        {"hook_event_name": ["Stop"], "session_id": {"a": 1}, "cwd": 7},
        {"hook_event_name": "Stop", "session_id": "s", "cwd": "/", "transcript_path": "/dev/null"},
        {"hook_event_name": "Stop", "session_id": "s", "cwd": "/", "transcript_path": "/"},
    ],
)
async def test_odd_payloads_are_answered_with_nothing(
    project: Path, payload: dict[str, Any]
) -> None:
    given = {"recall.embedder": "none", "store.url": str(project / "m.db")}
    memory = HookMemory(load_settings(arguments=given, environment={}).settings)
    for agent in KINDS:
        assert await memory.answer(agent, payload) == {}
    await memory.close()


def test_a_folder_that_may_not_be_looked_into_is_its_own_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, real = tmp_path / "closed", os.stat

    def stat(path: Any, **options: Any) -> os.stat_result:
        if Path(path).parent == closed:  # no mode stops root, whom tests may run as
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, **options)

    monkeypatch.setattr(os, "stat", stat)
    assert project_space(str(closed)) == str(closed)
    too_long = str(tmp_path / ("x" * 300))
    assert project_space(too_long) == too_long


def test_a_transcript_that_grows_reads_as_it_would_whole(tmp_path: Path) -> None:
    """Piece by piece, cut anywhere, over a compaction; rewritten and shortened, too."""
    written = ClaudeTranscript(tmp_path)
    for number in range(12):
        written.user(f"question {number} on {PORT}")
        written.reply(f"answer {number}")
        if number == 6:
            written.compacted()
    data = written.path.read_bytes()
    grown = tmp_path / "grown.jsonl"
    followed = FollowedTranscript("claude-code", str(grown))
    for end in (1, 300, 301, data.index(b"\n"), *range(1_000, len(data), 777), len(data)):
        grown.write_bytes(data[:end])  # the same file, as an agent goes on writing it
        look = followed.look()
        fresh = FollowedTranscript("claude-code", str(grown)).look()
        assert look == fresh
    look = followed.look()
    assert look.session is not None
    assert [item.raw for item in look.session.items][-1].count(b"answer 11") == 1
    assert look.session.compactions == 1
    assert len(look.session.items) < 15, "from the compaction on"
    for other in (
        data[:700],
        data.replace(b"question", b"QUESTION"),
        data[: data.index(b"\n") + 1],
    ):
        grown.write_bytes(other)
        assert followed.look() == FollowedTranscript("claude-code", str(grown)).look()


def test_what_the_gateway_kept_is_kept_once(project: Path) -> None:
    """It saw the same words with reminders around them; a hook or an import adds the rest."""
    reminder = "<system-reminder>\nToday is Tuesday.\n</system-reminder>"
    content = [{"type": "text", "text": text} for text in (reminder, CENTS)]
    names: list[str] = []

    async def through_gateway(session: str) -> None:
        given = {"recall.embedder": "none", "store.url": str(project / "m.db")}
        settings = load_settings(arguments=given, environment={}).settings
        async with open_memory(space=str(project), settings=settings) as engine:
            request = {"model": "m", "messages": [{"role": "user", "content": content}]}
            await engine.prepare(session, request, format="anthropic")

    async def work(hook: Hook, transcript: Transcript) -> None:
        names.append(transcript.session_id)
        await through_gateway(names[0])
        transcript.user(CENTS)
        transcript.reply("Noted.")
        transcript.user("Clean up the exporter.")
        transcript.reply("Done.")
        await hook("Stop")

    run(project, "claude-code", work)
    kept = stored_texts(project)
    assert sum(CENTS in one for one in kept) == 1
    assert sum(one == "Clean up the exporter." for one in kept) == 1
    assert stored_sessions(project) == names


def test_sessions_that_nobody_heard_of_are_kept_when_the_next_one_begins(
    project: Path, tmp_path: Path
) -> None:
    """Their daemon was dead to their end. What is older than the hooks stays out, and so does what
    was said in another project."""
    old, heard, unheard, elsewhere = (ClaudeTranscript(project) for _ in range(4))
    for one in (old, heard, unheard):
        one.line(type="user", cwd=str(project), message={"role": "user", "content": one.session_id})
    (tmp_path / "other" / ".git").mkdir(parents=True)
    said = {"role": "user", "content": elsewhere.session_id}
    elsewhere.line(type="user", cwd=str(tmp_path / "other"), message=said)
    os.utime(old.path, (1, 1))
    installed = tmp_path / "home" / "hooks" / "0.json"
    installed.parent.mkdir(parents=True)
    installed.write_text(json.dumps({"agent": "claude-code", "installed_at": 2}))

    async def work(hook: Hook, transcript: Transcript) -> None:
        whose = {"session_id": heard.session_id, "transcript_path": str(heard.path)}
        await hook("Stop", **whose)
        heard.user("And this after the daemon was killed.")
        unheard.reply("Noted.")
        await hook("SessionStart", source="startup")
        heard.user("Said while its own hooks come: they keep it.")

    run(project, "claude-code", work)
    kept = stored_texts(project)
    assert sorted(kept) == sorted([heard.session_id, unheard.session_id, "Noted."])

    async def again(hook: Hook, transcript: Transcript) -> None:
        await hook("SessionStart", source="startup")

    run(project, "claude-code", again)
    kept = stored_texts(project)
    assert sum("after the daemon was killed" in one for one in kept) == 1
    assert len(kept) == 5, "nothing twice"


def test_what_one_project_passes_over_the_other_keeps(project: Path, tmp_path: Path) -> None:
    """Both have their transcripts in one folder, as Codex has them."""
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    unheard, theirs = ClaudeTranscript(project), ClaudeTranscript(project)
    for one in (unheard, theirs):
        said = {"role": "user", "content": one.session_id}
        one.line(type="user", cwd=str(other), message=said)
    installed = tmp_path / "home" / "hooks" / "0.json"
    installed.parent.mkdir(parents=True)
    installed.write_text(json.dumps({"agent": "claude-code", "installed_at": 2}))

    async def work(hook: Hook, transcript: Transcript) -> None:
        del transcript
        await hook("SessionStart", source="startup")
        await asyncio.sleep(0.3)  # it is passed over beside the answer
        whose = {"session_id": theirs.session_id, "transcript_path": str(theirs.path)}
        await hook("SessionStart", source="startup", cwd=str(other), **whose)
        await asyncio.sleep(0.3)

    run(project, "claude-code", work, **{"store.url": None})

    async def kept() -> list[str]:
        store = await open_store(None, space=project_space(str(other)))
        try:
            return [one.segment.text for one in await store.page(limit=100)]
        finally:
            await store.close()

    assert unheard.session_id in asyncio.run(kept())


@pytest.mark.parametrize("agent", list(KINDS))
def test_prompt_does_not_recall_what_the_brief_has(project: Path, agent: AgentName) -> None:
    rule = "Never push to the main branch of the harbour repository."
    asks_rule = "May I push to the main branch of the harbour repository?"

    async def first(hook: Hook, transcript: Transcript) -> None:
        await talk(hook, transcript, rule, PORT, CENTS, "Clean up module 1 of the exporter.")
        await hook("UserPromptSubmit", prompt=ASKS_PORT)
        told = await hook("SessionStart", source="compact")
        assert told.count("port 5433") == told.count("on Fridays") == told.count(rule) == 1
        assert told.count(BLOCK_CLOSING) == 1, "the neighbours of what stands there are no answer"

    async def of_the_rule(hook: Hook, transcript: Transcript) -> None:
        told = await hook("SessionStart", source="startup")
        told += await hook("UserPromptSubmit", prompt=asks_rule)
        assert told.count(rule.rstrip(".")) == 1, "what stands there is not quoted again"

    async def of_the_port(hook: Hook, transcript: Transcript) -> None:
        told = await hook("SessionStart", source="startup")
        told += await hook("UserPromptSubmit", prompt=ASKS_PORT)
        assert told.count(rule.rstrip(".")) == 1
        assert told.count("port 5433") == 1, "what answers is recalled"

    for work in (first, of_the_rule, of_the_port):
        run(project, agent, work)


def test_what_a_tool_said_is_told_and_once(project: Path) -> None:
    """Its line names the tool before what it said, which is of several lines."""
    log = "deploy log of the zeppelin gateway\nno success, the zeppelin gateway needs port 7741"

    async def work(hook: Hook, transcript: Transcript) -> None:
        assert isinstance(transcript, ClaudeTranscript)
        transcript.user("Deploy it.")
        call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "make it"}}
        transcript.line(
            type="assistant", message={"id": "m1", "role": "assistant", "content": [call]}
        )
        result = {"type": "tool_result", "tool_use_id": "t1", "content": log}
        transcript.line(type="user", message={"role": "user", "content": [result]})
        transcript.reply("Failed.")
        await hook("Stop")
        transcript.compacted()
        around = [("user", "Deploy it."), ("assistant", "Failed.")]
        transcript.handed(write_standing([], around))
        asks = "Which port does the zeppelin gateway need, says the deploy log?"
        told = await hook("UserPromptSubmit", prompt=asks)
        (item,) = recalled_items(told)
        assert item.startswith("Bash said: ") and "needs port 7741" in item
        transcript.user(asks)
        transcript.handed(told)
        transcript.reply("7741.")
        await hook("Stop")
        again = await hook("UserPromptSubmit", prompt=f"Again: {asks}")
        assert "needs port 7741" not in again

    run(project, "claude-code", work)


SECRET_PLAN = "We decided that the Kestrel merger is announced on 3 May."
FORGETTING: dict[str, dict[str, Any]] = {
    "text": {"matching": "Kestrel"},
    "pattern": {"pattern": "[Kk]estrel"},
    "segment": {},
    "session": {},
    "time": {"said_before": 4e9},
}


@pytest.mark.parametrize("agent", list(KINDS))
@pytest.mark.parametrize("way", FORGETTING)
def test_what_was_forgotten_does_not_come_back_behind_a_compaction(
    project: Path, agent: AgentName, way: str
) -> None:
    """Although the agent's transcript, which Recollect does not change, still has it."""

    async def work(hook: Hook, transcript: Transcript) -> None:
        await hook("SessionStart", source="startup")
        await talk(hook, transcript, SECRET_PLAN, PORT)
        stored = await read_segments(project)
        given = FORGETTING[way]
        if way == "segment":
            given = {"messages": [segment.id for segment in stored if "Kestrel" in segment.text]}
        elif way == "session":
            given = {"sessions": [transcript.session_id]}
        async with open_memory(store=project / "m.db", space=str(project)) as memory:
            certificate = await memory.forget(**given)
        assert certificate.counts
        told = ""
        for source in ("compact", "resume"):
            told = await hook(
                "SessionStart", source=source, prompt_cache_likely_expired=source == "resume"
            )
            assert "Kestrel" not in told
            transcript.compacted()
            await hook("UserPromptSubmit", prompt="Clean up module 1 of the exporter.")
        assert ("port 5433" in told) == (way in ("text", "pattern", "segment"))

    run(project, agent, work)


def test_each_message_gets_its_vectors_by_itself(project: Path) -> None:
    """Also the reply that ends a session, and messages from before the embedder was installed."""

    async def before(hook: Hook, transcript: Transcript) -> None:
        await talk(hook, transcript, CENTS)

    async def start(hook: Hook, transcript: Transcript) -> None:
        await hook("SessionStart", source="startup")
        await asyncio.sleep(0)

    async def after(hook: Hook, transcript: Transcript) -> None:
        await hook("SessionStart", source="startup")
        await talk(hook, transcript, PORT)
        await hook("SessionEnd", reason="other")

    run(project, "claude-code", before)
    assert len(passages_without_vectors(project)) == 2
    with_vectors = {"recall.embedder": "static"}
    run(project, "claude-code", start, **with_vectors)
    run(project, "claude-code", after, **with_vectors)
    assert passages_without_vectors(project) == []
    assert len(stored_texts(project)) == 4
