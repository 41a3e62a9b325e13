"""What the documents on pruning, sessions, workspaces and settings describe (003 and 004).

Through the library, the agent and the command line. Values are those of the documents."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.harness.model_server import ModelServer
from tests.harness.waiting import eventually
from tests.integration.long_talk import Clock
from tests.integration.test_openclaw_preset import DAY, START, spoken
from tests.unit.agent.agent_harness import AgentHarness, collected, of
from tests.unit.agent.test_agent_window import SMALL
from tests.unit.agent.test_agent_window import TALK as LONG_TALK

from recollect import open_memory
from recollect.adapters.session.files import sessions_file, transcript_file
from recollect.adapters.session.transcript import open_transcript
from recollect.agent.events import Prepared, Told
from recollect.agent.opening import open_agent
from recollect.cli import main
from recollect.system.config import load_settings
from recollect.system.config.settings import Redaction
from recollect.testing.scripted_model import Says, ScriptedCall, ScriptedModel

PLACEHOLDER = "[Old tool result content cleared]"
IMAGE = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


def tool(number: int, chars: int, *, name: str = "read", image: bool = False) -> list[Any]:
    """A call and its result of so many characters, whose every line is another."""
    call = {"type": "tool_use", "id": f"t{number}", "name": name, "input": {"n": number}}
    text = "".join(f"{number}:{line} crane winch\n" for line in range(chars))[:chars]
    content: Any = [{"type": "text", "text": text}]
    if image:
        content.append({"type": "image", "source": IMAGE})
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": content}
    return [
        spoken("user", f"look at {number}"),
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        spoken("assistant", f"module {number} moves cargo"),
    ]


async def pruned(tmp_path: Path, talk: list[Any], *, later: float = 0.0, **settings: Any) -> Any:
    """The second request of this talk, so many seconds after the first."""
    clock = Clock(START)
    chosen = {"pruning.hard_clear.line_chars": 0, "recall.enabled": False}
    chosen |= {name.replace("__", "."): value for name, value in settings.items()}
    async with open_memory(store=tmp_path / "m.db", clock=clock, settings=chosen) as memory:
        await memory.prepare("s", {"messages": [*talk, spoken("user", "and?")]})
        clock.seconds += later
        more = [*talk, spoken("user", "and?"), spoken("assistant", "Well."), spoken("user", "so?")]
        context = await memory.prepare("s", {"messages": more})
        await memory.settle()
        stored = [message.text for message in await memory.messages("s", limit=500)]
    assert all(any(f"{n}:0 crane" in text for text in stored) for n in range(len(talk) // 4))
    return context


def results(context: Any) -> list[str]:
    return [
        part["content"] if isinstance(part["content"], str) else part["content"][0]["text"]
        for message in context.request["messages"]
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == "tool_result"
    ]


ADAPTIVE: dict[str, Any] = {"window_tokens": 60_000, "pruning__mode": "adaptive"}


async def test_a_long_result_keeps_1500_characters_at_both_ends(tmp_path: Path) -> None:
    talk = [line for n in range(8) for line in tool(n, 12_000)]
    context = await pruned(tmp_path, talk, **ADAPTIVE, pruning__hard_clear_ratio=1.0)
    whole = [message["content"][0]["content"][0]["text"] for message in talk[2::4]]
    pairs = zip(results(context), whole, strict=True)
    shortened = [(text, raw) for text, raw in pairs if text != raw]
    assert shortened
    for text, raw in shortened:
        head, gap, rest = text.partition("\n...\n")
        tail, _, note = rest.partition("\n[Tool result shortened")
        assert gap
        assert (head, tail) == (raw[:1500], raw[-1500:])
        assert "12" in note, "the size is noted"
    assert results(context)[-3:] == whole[-3:], "keepLastAssistants: 3"


async def test_a_result_of_4000_characters_is_not_shortened(tmp_path: Path) -> None:
    talk = [line for n in range(30) for line in tool(n, 4_000)]
    context = await pruned(tmp_path, talk, **ADAPTIVE, pruning__hard_clear_ratio=1.0)
    assert not any("\n...\n" in text for text in results(context))


async def test_old_results_are_cleared_from_half_of_the_window_on(tmp_path: Path) -> None:
    """hardClearRatio 0.5, minPrunableToolChars 50,000, and the placeholder."""
    talk = [line for n in range(40) for line in tool(n, 3_900)]
    context = await pruned(tmp_path, talk, **ADAPTIVE)
    cleared = [text == PLACEHOLDER for text in results(context)]
    assert True in cleared
    assert cleared == sorted(cleared, reverse=True), "the oldest first"
    assert not any(cleared[-3:])
    (tmp_path / "few").mkdir()
    few = [line for n in range(12) for line in tool(n, 3_900)]
    context = await pruned(tmp_path / "few", few, **{**ADAPTIVE, "window_tokens": 40_000})
    report = context.report
    assert 0.5 < report.tokens_after / 40_000 < report.limit_tokens / 40_000
    assert PLACEHOLDER not in results(context)


async def test_only_results_are_pruned_and_images_never(tmp_path: Path) -> None:
    talk = [line for n in range(8) for line in tool(n, 12_000, image=n == 1)]
    long = "the user wrote much " * 400
    talk[4] = spoken("user", long)
    context = await pruned(tmp_path, talk, **ADAPTIVE, pruning__hard_clear_ratio=1.0)
    sent = json.dumps(context.request["messages"])
    assert long in sent
    assert IMAGE["data"] in sent
    assert "\n...\n" in "".join(results(context))


@pytest.mark.parametrize(
    ("mode", "later", "acts"),
    [
        ("off", 3_600.0, False),
        ("cache-ttl", 0.0, False),
        ("cache-ttl", 299.0, False),
        ("cache-ttl", 301.0, True),
        ("adaptive", 0.0, True),
        ("aggressive", 0.0, True),
    ],
)
async def test_each_mode_prunes_at_its_moment(
    tmp_path: Path, mode: str, later: float, acts: bool
) -> None:
    """ttl 5m: a cache of the provider has expired five minutes after the last request."""
    talk = [line for n in range(8) for line in tool(n, 12_000)]
    settings: dict[str, Any] = {"window_tokens": 100_000, "pruning__mode": mode}
    context = await pruned(tmp_path, talk, later=later, **settings)
    changed = any("\n...\n" in text or text == PLACEHOLDER for text in results(context))
    assert changed is acts


async def test_below_three_tenths_of_the_window_nothing_is_pruned(tmp_path: Path) -> None:
    talk = [line for n in range(8) for line in tool(n, 12_000)]
    settings: dict[str, Any] = {"window_tokens": 200_000, "pruning__mode": "adaptive"}
    assert not any("\n...\n" in text for text in results(await pruned(tmp_path, talk, **settings)))


@pytest.mark.parametrize(
    ("tools", "acts"),
    [
        ({"pruning__tools__allow": ["exec", "read"]}, True),
        ({"pruning__tools__allow": ["exec"]}, False),
        ({"pruning__tools__deny": ["*ea*"]}, False),
        ({"pruning__tools__allow": ["*"], "pruning__tools__deny": ["*image*"]}, True),
    ],
)
async def test_tools_are_named_by_patterns(
    tmp_path: Path, tools: dict[str, Any], acts: bool
) -> None:
    talk = [line for n in range(8) for line in tool(n, 12_000)]
    context = await pruned(tmp_path, talk, **ADAPTIVE, pruning__hard_clear_ratio=1.0, **tools)
    assert any("\n...\n" in text for text in results(context)) is acts


# sessions


def test_entries_of_each_type_are_in_the_context_or_not(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with open_transcript(path, session_id="s", redaction=Redaction(), cwd=tmp_path) as transcript:
        kept = transcript.append_message(spoken("user", "a message"))
        transcript.append_custom("state", {"note": "a custom entry"})
    common = {"timestamp": "2026-02-10T14:31:00.000Z"}
    lines: list[dict[str, Any]] = [
        {"type": "custom_message", "id": "c1", "parentId": "", "customType": "x",
         "content": "a custom message", "display": False, **common},
        {"type": "branch_summary", "id": "b1", "parentId": "c1", "fromId": "c1",
         "summary": "a branch summary", **common},
    ]  # fmt: skip
    with path.open("a", encoding="utf-8") as file:
        last = json.loads(path.read_text("utf-8").splitlines()[-1])["id"]
        lines[0]["parentId"] = last
        file.writelines(json.dumps(line) + "\n" for line in lines)
    with open_transcript(path, session_id="s", redaction=Redaction(), cwd=tmp_path) as transcript:
        before = json.dumps(transcript.context().messages)
        transcript.append_compaction(
            summary="a compaction", first_kept_entry_id=kept.id, tokens_before=9, tokens_after=3
        )
        after = json.dumps(transcript.context().messages)
    kinds = [json.loads(line)["type"] for line in path.read_text("utf-8").splitlines()[1:]]
    assert kinds == ["message", "custom", "custom_message", "branch_summary", "compaction"]
    assert all(text in before for text in ("a message", "a custom message", "a branch summary"))
    assert "a custom entry" not in before
    assert "a compaction" in after and "a message" in after


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    return (tmp_path / "work").resolve()


async def test_a_session_is_a_file_of_its_agent(workspace: Path) -> None:
    async with open_agent(workspace, model=ScriptedModel(["Hello."])) as agent:
        await collected(agent, "hello there")
        session = agent.conversation.session_id
    path = transcript_file(str(workspace), session)
    assert path.parent == sessions_file(str(workspace)).parent
    assert path.name == f"{session}.jsonl"
    assert path.parent.name == "sessions"
    assert path.parent.parent.parent.name == "agents"
    roles = [
        json.loads(line)["message"]["role"]
        for line in path.read_text("utf-8").splitlines()
        if json.loads(line)["type"] == "message"
    ]
    assert roles == ["user", "assistant"]


# the workspace


def test_agents_md_says_how_memory_works(workspace: Path) -> None:
    done = CliRunner().invoke(main, ["init", "--workspace", str(workspace)])
    assert done.exit_code == 0, done.output
    names = {path.name for path in workspace.iterdir()}
    always = {"AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", "HEARTBEAT.md"}
    assert always <= names
    text = " ".join((workspace / "AGENTS.md").read_text("utf-8").split())
    for trigger, file in (
        ('"remember this"', "memory/YYYY-MM-DD.md"),
        ("prefers something", "USER.md"),
        ("learned", "AGENTS.md"),
        ("learned", "TOOLS.md"),
        ("fact will stay true", "memory.md"),
    ):
        assert file in text[text.index(trigger) :]
    assert "begins without the last one" in text


@pytest.mark.parametrize("skip", [True, False])
async def test_skip_bootstrap_creates_no_file_and_loads_existing_ones(
    workspace: Path, skip: bool
) -> None:
    (workspace / "USER.md").write_text("The user is called Ottoline.\n")
    model = ScriptedModel(["Hello."])
    settings: dict[str, Any] = {"workspace.skip_bootstrap": skip}
    async with open_agent(workspace, model=model, settings=settings) as agent:
        await collected(agent, "hello")
    assert (workspace / "AGENTS.md").exists() is not skip
    assert "Ottoline" in str(model.requests[0]["system"])


def test_workspace_files_are_rebuilt_and_never_summarized(tmp_path: Path) -> None:
    model = ScriptedModel([*("fine" for _ in LONG_TALK), "after", "later"])
    harness = AgentHarness(tmp_path, model, settings=SMALL)
    (harness.root / "AGENTS.md").write_text("# Rules\nThe crane is called ZANZIBAR.\n")
    harness.say(*LONG_TALK, "/compact", "go on")
    assert harness.summary.prompts
    assert not any("ZANZIBAR" in prompt.text for prompt in harness.summary.prompts)
    assert "ZANZIBAR" in str(model.requests[-1]["system"])
    (harness.root / "AGENTS.md").write_text("# Rules\nThe crane is called QUETZAL.\n")
    harness.say("and now?")
    assert "QUETZAL" in str(model.requests[-1]["system"])
    assert "ZANZIBAR" not in str(model.requests[-1]["system"])


# settings


def test_every_way_to_an_openclaw_json(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = workspace / "openclaw.json"
    path.write_text("{agents: {defaults: {contextTokens: 64000}}}")
    named = load_settings(environment={"RECOLLECT_CONFIG": str(path)}, folder=None)
    given = load_settings(environment={}, openclaw=path, folder=None)
    assert named.settings.window_tokens == given.settings.window_tokens == 64_000
    for option in ("--config", "--openclaw"):
        done = CliRunner().invoke(main, ["doctor", option, str(path), "--json"])
        assert json.loads(done.stdout)["settings"]["window_tokens"]["value"] == 64_000

    async def window() -> int:
        async with open_memory(store=workspace / "m.db", openclaw=path) as memory:
            report = (await memory.prepare("s", {"messages": [spoken("user", "hi")]})).report
            return report.window_tokens

    assert asyncio.run(window()) == 64_000


async def test_a_switch_that_is_off_stores_and_recalls_nothing(workspace: Path) -> None:
    path = workspace / "openclaw.json"
    said = [spoken("user", "The lighthouse keeper is called Ottoline.")]
    for config, stores, recalls in (
        ({"autoCapture": True, "autoRecall": True}, True, True),
        ({"autoCapture": False, "autoRecall": True}, False, False),
        ({"autoCapture": True, "autoRecall": False}, True, False),
    ):
        entry = {"memory-lancedb": {"enabled": True, "config": config}}
        plugins = {"slots": {"memory": "memory-lancedb"}, "entries": entry}
        path.write_text(json.dumps({"plugins": plugins}))
        store = workspace / f"{stores}{recalls}.db"
        async with open_memory(store=store, openclaw=path) as memory:
            await memory.prepare("s", {"messages": said})
            await memory.settle()
            count = (await memory.stats()).segments if store.exists() else 0
            asked = [spoken("user", "What is the lighthouse keeper called?")]
            context = await memory.prepare("s", {"messages": asked})
        assert bool(count) is stores
        assert ("<recalled-context" in json.dumps(context.request)) is recalls


async def test_sources_that_are_not_listed_are_not_found(workspace: Path) -> None:
    (workspace / "MEMORY.md").write_text("# Notes\nThe walrus eats at noon.\n")
    said = [spoken("user", "The lighthouse keeper is called Ottoline.")]
    path = workspace / "openclaw.json"
    for search, files, sessions in (
        ({"sources": ["memory", "sessions"]}, True, True),
        ({"sources": ["memory"]}, True, False),
        ({"experimental": {"sessionMemory": False}}, True, False),
        ({"sources": ["sessions"]}, False, True),
    ):
        path.write_text(json.dumps({"agents": {"defaults": {"memorySearch": search}}}))
        store = workspace / f"{hash(str(search))}.db"
        async with open_memory(store=store, openclaw=path, workspace=workspace) as memory:
            await memory.prepare("s", {"messages": said})
            await memory.settle()
            walrus = await memory.search("when does the walrus eat?", session="s")
            keeper = await memory.search("lighthouse keeper name", session="s")
        assert any("noon" in passage.text for passage in walrus.passages) is files
        assert any("Ottoline" in passage.text for passage in keeper.passages) is sessions


async def test_a_decision_is_found_after_a_day_in_another_session(workspace: Path) -> None:
    """The lifecycle of 004: load, build, ask, append; what was said before is there again."""
    clock = Clock(START)
    model = ScriptedModel(["Noted.", "As you said."])
    settings: dict[str, Any] = {"recall.scope": "space"}
    async with open_agent(workspace, model=model, clock=clock, settings=settings) as agent:
        await collected(agent, "The lighthouse keeper is called Ottoline.")
    clock.seconds += DAY
    async with open_agent(
        workspace, model=model, clock=clock, settings=settings, key="other"
    ) as agent:
        await collected(agent, "What is the lighthouse keeper called?")
    assert "Ottoline" in str(model.requests[-1]["messages"])


def told(events: list[Any]) -> str:
    return str(of(events, Told)[-1].text)


async def test_remember_this_goes_into_the_notes_of_the_day(workspace: Path) -> None:
    """A model that follows AGENTS.md writes the note, and it is in the next system prompt."""
    CliRunner().invoke(main, ["init", "--workspace", str(workspace)])
    note = ScriptedCall(
        id="w", name="write", input={"path": "memory/2026-02-10.md", "content": "Gate: 4711.\n"}
    )
    model = ScriptedModel([Says(calls=[note]), "I wrote it down.", "It is 4711."])
    clock = Clock(START)
    async with open_agent(workspace, model=model, clock=clock) as agent:
        await collected(agent, "Remember this: the gate code is 4711.")
    assert (workspace / "memory" / "2026-02-10.md").read_text("utf-8") == "Gate: 4711.\n"
    async with open_agent(workspace, model=model, clock=clock, key="next") as agent:
        events = await collected(agent, "What is the gate code?")
        assert of(events, Prepared)
        assert "Gate: 4711" in str(model.requests[-1]["system"])


async def test_the_models_server_is_asked_over_http_and_history_is_appended(
    workspace: Path,
) -> None:
    with ModelServer([Says(text="Hello.")], pages={}) as server:
        settings: dict[str, Any] = {
            "models.provider": "openai-chat",
            "models.base_url": server.url,
            "models.main": "scripted",
            "window_tokens": 32_000,
        }
        async with open_agent(workspace, settings=settings) as agent:
            await collected(agent, "hello there")
            path = transcript_file(str(workspace), agent.conversation.session_id)
        assert [one.body["model"] for one in server.asked if one.wire] == ["scripted"]
    await eventually(path.exists)
    assert '"Hello."' in path.read_text("utf-8")


@pytest.mark.parametrize(
    ("citations", "of_file", "of_message"),
    [("auto", True, False), ("on", True, True), ("off", False, False)],
)
async def test_citations_name_the_source_of_a_recalled_line(
    workspace: Path, citations: str, of_file: bool, of_message: bool
) -> None:
    (workspace / "MEMORY.md").write_text("# Notes\n\nThe walrus code is 4711-Q.\n")
    path = workspace / "openclaw.json"
    path.write_text(json.dumps({"memory": {"citations": citations}}))
    async with open_memory(
        store=workspace / "m.db",
        openclaw=path,
        workspace=workspace,
        settings={"recall.scope": "space"},
    ) as memory:
        await memory.prepare("a", {"messages": [spoken("user", "The otter code is 8152-Z.")]})
        await memory.settle()
        await memory.search("walrus", session="a")
        (message,) = await memory.messages("a")
        blocks = []
        for animal in ("walrus", "otter"):
            asked = [spoken("user", f"What is the {animal} code?")]
            context = await memory.prepare(animal, {"messages": asked})
            blocks.append(json.dumps(context.request))
    assert "4711-Q" in blocks[0] and "8152-Z" in blocks[1]
    assert ("MEMORY.md:1" in blocks[0]) is of_file
    assert (message.id[:8] in blocks[1]) is of_message


def test_the_memory_tools_have_openclaws_names() -> None:
    from recollect.tools import memory_tools

    memory = open_memory(store=None)
    names = [one["name"] for one in memory_tools(memory).definitions("anthropic")]
    assert {"memory_search", "memory_store", "memory_recall", "memory_forget"} <= {*names}
