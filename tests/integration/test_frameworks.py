"""Frameworks as they are installed, on a scripted model over real HTTP, through the memory.

Each holds the conversation of `tests/harness/frameworks.py`, and must make the same of it as the
library alone does: the same edits, the same recalled text."""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.harness.frameworks import (
    PAGES,
    SESSION,
    SYSTEM,
    TURNS,
    Conversation,
    Held,
    answer,
    check,
    opened,
    page,
    plain_chat,
    plain_messages,
    said,
)
from tests.harness.model_server import Asked, ModelServer, Step

from recollect import BlockingEngine, open_memory
from recollect.adapters.wiring import open_store
from recollect.core.values.model import Usage
from recollect.frameworks.turns import ShownRow
from recollect.testing.scripted_model import Says, ScriptedCall

TOOL = {
    "name": "read_page",
    "description": "Reads a page of the log.",
    "parameters": {
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
    },
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Held:
    """The conversation without a framework, over Chat Completions."""
    tools = [{"type": "function", "function": TOOL}]
    return plain_chat(tmp_path_factory.mktemp("plain"), tools)


def same(held: Held, plain: Held) -> None:
    """What the memory did with both is one and the same."""
    assert held.blocks == plain.blocks
    for turn, (mine, theirs) in enumerate(zip(held.edits, plain.edits, strict=True), 1):
        assert mine == theirs, f"after turn {turn}"
    assert any(plain.edits), "nothing was edited: the test shows nothing"


def test_openai(plain: Held) -> None:
    """What the others are compared with is right itself."""
    check(plain, "openai-chat")


SAME_TURNS = 20


def test_anthropic(tmp_path: Path, plain: Held) -> None:
    """On this wire neighbours of one role are joined, which weighs less: at turn 21, when it is
    trimmed a second time, a message more has room. Until then all is the same but the names, since
    here results of tools are a user's."""
    schema = {"type": "custom", "input_schema": TOOL["parameters"]}  # weighs the same, so spelled
    tools = [{"name": TOOL["name"], "description": TOOL["description"], **schema}]
    held = plain_messages(tmp_path, tools)
    check(held, "anthropic")
    kept_once(tmp_path)
    requests = SAME_TURNS + sum(turn <= SAME_TURNS for turn in PAGES)
    assert held.blocks[:requests] == plain.blocks[:requests]
    theirs = plain.edits_by_place(SAME_TURNS)
    assert held.edits_by_place(SAME_TURNS) == theirs
    assert len(theirs[-1]) > 10, "next to nothing was edited: the test shows nothing"


def read_page(number: int) -> str:
    """Reads a page of the log."""
    return page(number)


def langchain_agent(model: Any, memory: BlockingEngine) -> Any:
    from langchain.agents import create_agent

    from recollect.frameworks.langchain import RecollectMiddleware

    return create_agent(
        model,
        [read_page],
        system_prompt=SYSTEM,
        middleware=[RecollectMiddleware(memory, session=SESSION)],
    )


@contextmanager
def langchain_openai(url: str) -> Iterator[Any]:
    """LangChain shares its HTTP clients and leaves them open."""
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="gpt-x", base_url=f"{url}/v1", api_key="k", max_retries=0)  # type: ignore[arg-type]
    yield model
    model.root_client.close()


def test_langchain(tmp_path: Path, plain: Held) -> None:
    pytest.importorskip("langchain")
    with (
        ModelServer(answer) as server,
        langchain_openai(server.url) as model,
        opened(tmp_path / "langchain") as memory,
    ):
        agent = langchain_agent(model, memory)
        conversation = Conversation(server, memory)
        messages: list[Any] = []
        for turn in range(1, TURNS + 1):
            messages.append({"role": "user", "content": said(turn)})
            messages = agent.invoke({"messages": messages})["messages"]
            conversation.turn_ended()
        held = conversation.held
    check(held, "openai-chat")
    assert len(messages) == 2 * TURNS + 2 * len(PAGES), "the agent's own state lacks messages"
    same(held, plain)
    kept_once(tmp_path / "langchain")


PICTURE = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


def thoughtful(asked: Asked) -> Step:
    """Thinks, calls its tool once, then answers."""
    if "toolu_1" in asked.content.decode():
        return Says(text="It is in good order.", usage=Usage(input_tokens=900, output_tokens=8))
    call = ScriptedCall(id="toolu_1", name="read_page", input={"number": 9})
    return Says(thinking="I look into the log.", text="One moment.", calls=(call,), id="7")


def test_langchain_loses_nothing_of_what_nobody_touched(tmp_path: Path) -> None:
    """Thinking with its signature, pictures, calls and results: what goes out with a memory is
    what goes out without one, also after restarts; and asynchronous code is served alike."""
    pytest.importorskip("langchain")
    from langchain.agents import create_agent
    from langchain_anthropic import ChatAnthropic
    from langgraph.checkpoint.memory import InMemorySaver

    from recollect.frameworks.langchain import RecollectMiddleware

    picture = {"type": "image", "source_type": "base64", "mime_type": "image/gif", "data": PICTURE}
    asked = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]}]
    again = [{"role": "user", "content": "And the log?"}]
    config: Any = {"configurable": {"thread_id": "berth-17"}}

    async def talk(url: str, *middleware: Any) -> None:
        model = ChatAnthropic(
            model="claude-x",  # type: ignore[call-arg]
            base_url=url,
            api_key="k",  # type: ignore[arg-type]
            max_retries=0,
            thinking={"type": "enabled", "budget_tokens": 1024},
            max_tokens=2048,
        )
        agent: Any = create_agent(
            model, [read_page], middleware=middleware, checkpointer=InMemorySaver()
        )
        await agent.ainvoke({"messages": asked}, config)
        await agent.ainvoke({"messages": again}, config)
        await model._async_client.close()

    with ModelServer(thoughtful) as server:
        asyncio.run(talk(server.url))
        bare = [one.body for one in server.asked]
    with ModelServer(thoughtful) as server, opened(tmp_path) as memory:
        asyncio.run(talk(server.url, RecollectMiddleware(memory)))
        assert [one.body for one in server.asked] == bare
        observation = memory.session("berth-17").observation
    assert observation is not None
    assert observation.usage == Usage(input_tokens=900, output_tokens=8, reports_cache=True)
    assert observation.archived == "store"
    signed = [block for row in bare[-1]["messages"] for block in row["content"]]
    assert any(isinstance(block, dict) and block.get("signature") for block in signed)
    kept = asyncio.run(texts(tmp_path / "m.db"))
    assert [text for text in kept if "One moment." in text and "read_page" in text]
    assert len(kept) == 6, "each message is kept once"


def kept_once(folder: Path) -> None:
    """Every message of the conversation is in the store, and none is there twice."""
    kept = asyncio.run(texts(folder / "m.db"))
    assert len(kept) == 2 * TURNS + 2 * len(PAGES)
    assert len(set(kept)) == len(kept)


async def texts(file: Path) -> list[str]:
    store = await open_store(str(file), space="default")
    held = [one.segment.text for one in await store.page(limit=500)]
    await store.close()
    return held


def test_a_conversation_without_a_name_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("langchain")
    from langchain.agents import create_agent

    from recollect.frameworks.langchain import RecollectMiddleware

    with (
        ModelServer(lambda _: Says(text="Aye.")) as server,
        langchain_openai(server.url) as model,
        opened(tmp_path) as memory,
    ):
        agent: Any = create_agent(model, [], middleware=[RecollectMiddleware(memory)])
        with pytest.raises(ValueError, match="thread_id"):
            agent.invoke({"messages": [{"role": "user", "content": "Hello"}]})
        assert server.asked == []
    with pytest.raises(TypeError, match="open_blocking_memory"):
        RecollectMiddleware(open_memory(store=tmp_path / "other.db"))  # type: ignore[arg-type]


def agents_model(url: str) -> Any:
    import openai
    from agents import OpenAIResponsesModel, set_tracing_disabled

    set_tracing_disabled(True)
    client = openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0)
    return client, OpenAIResponsesModel(model="gpt-x", openai_client=client)


def test_openai_agents(tmp_path: Path, plain: Held) -> None:
    pytest.importorskip("agents")
    from agents import Agent, Runner, function_tool

    from recollect.frameworks.openai_agents import RecollectSession

    async def talk(server: ModelServer, memory: BlockingEngine) -> Held:
        client, model = agents_model(server.url)
        agent = Agent(
            name="harbour", instructions=SYSTEM, model=model, tools=[function_tool(read_page)]
        )
        session = RecollectSession(SESSION, memory)
        conversation = Conversation(server, memory)
        for turn in range(1, TURNS + 1):
            if turn % 2:
                await Runner.run(
                    agent, said(turn), session=session, run_config=session.run_config()
                )
            else:
                streamed = Runner.run_streamed(
                    agent, said(turn), session=session, run_config=session.run_config()
                )
                async for _ in streamed.stream_events():
                    pass
            conversation.turn_ended()
        await client.close()
        assert len(await session.get_items()) == 2 * TURNS + 2 * len(PAGES)
        return conversation.held

    with ModelServer(answer) as server, opened(tmp_path / "agents") as memory:
        held = asyncio.run(talk(server, memory))
        observation = memory.session(SESSION).observation
    assert observation is not None
    assert observation.usage is not None
    assert observation.usage.input_tokens == 100
    check(held, "openai-responses")
    same(held, plain)
    kept_once(tmp_path / "agents")


def test_openai_agents_over_chat_completions(tmp_path: Path, plain: Held) -> None:
    """The SDK gives all items of these models one id, and takes no reply without one: what nobody
    touched goes back as it was, and what was shortened or recalled is taken as well."""
    pytest.importorskip("agents")
    from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool

    from recollect.frameworks.openai_agents import RecollectSession

    async def talk(server: ModelServer, memory: BlockingEngine) -> Held:
        client, _ = agents_model(server.url)
        model = OpenAIChatCompletionsModel("gpt-x", client)
        agent = Agent(
            name="harbour", instructions=SYSTEM, model=model, tools=[function_tool(read_page)]
        )
        session = RecollectSession(SESSION, memory)
        shaped = session.run_config().call_model_input_filter
        views: list[tuple[list[Any], list[Any]]] = []

        async def watched(data: Any) -> Any:
            made: Any = await shaped(data)  # type: ignore[misc]
            views.append((data.model_data.input, made.input))
            return made

        conversation = Conversation(server, memory)
        for turn in range(1, TURNS + 1):
            config = RunConfig(call_model_input_filter=watched)
            if turn % 2:
                await Runner.run(agent, said(turn), session=session, run_config=config)
            else:
                streamed = Runner.run_streamed(
                    agent, said(turn), session=session, run_config=config
                )
                async for _ in streamed.stream_events():
                    pass
            conversation.turn_ended()
        await client.close()
        for given, shown in views[:6]:
            assert [id(item) for item in shown] == [id(item) for item in given]
        given, shown = views[-1]
        assert len(shown) < len(given), "nothing was left out: the test shows nothing"
        assert any(item is one for item in shown for one in given)
        assert len(await session.get_items()) == 2 * TURNS + 2 * len(PAGES)
        return conversation.held

    with ModelServer(answer) as server, opened(tmp_path / "agents") as memory:
        held = asyncio.run(talk(server, memory))
    check(held, "openai-chat")
    same(held, plain)
    kept_once(tmp_path / "agents")


def test_openai_agents_takes_every_reply_that_was_changed() -> None:
    """For Chat Completions it wants an id with a reply's text; for Responses it takes off the one
    that it was given."""
    pytest.importorskip("agents")
    from agents.models.chatcmpl_converter import Converter

    from recollect.frameworks.openai_agents import _view

    short = {"type": "message", "role": "assistant", "status": "completed"}
    short["content"] = [{"type": "output_text", "text": "short", "annotations": []}]  # type: ignore[assignment]
    items: list[Any] = [
        {"role": "user", "content": "one"},
        {**short, "id": "msg_1"},
        {"role": "assistant", "content": "long"},
    ]
    easy = {"role": "assistant", "content": short["content"]}
    rows = [
        ShownRow(wire=items[0], place=0, touched=False),
        ShownRow(wire=short, place=1, touched=True),
        ShownRow(wire={"type": "message", **easy}, place=2, touched=True),
        ShownRow(wire={"type": "message", **easy}, place=None, touched=True),
    ]
    shown = _view(items, rows)
    assert shown[0] is items[0]
    sent = Converter.items_to_messages(shown)
    assert [row.get("content") for row in sent] == ["one", "short", "short", "short"]
    client, model = agents_model("http://127.0.0.1:9")
    cleaned = model._remove_openai_responses_api_incompatible_fields([dict(one) for one in shown])
    asyncio.run(client.close())
    assert not [one for one in cleaned if "id" in one]


def test_openai_agents_goes_on_where_the_sdk_would_refuse_the_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("agents")
    from agents import Agent, OpenAIChatCompletionsModel, Runner

    from recollect.frameworks import turns
    from recollect.frameworks.openai_agents import RecollectSession

    strange = ShownRow(wire={"type": "of another kind"}, place=None, touched=True)
    monkeypatch.setattr(turns, "_rows", lambda _: iter([strange]))

    async def talk(url: str) -> Any:
        client, _ = agents_model(url)
        agent = Agent(name="harbour", model=OpenAIChatCompletionsModel("gpt-x", client))
        session = RecollectSession(SESSION, memory)
        config = session.run_config()
        await Runner.run(agent, "Is anybody there?", session=session, run_config=config)
        done = await Runner.run(agent, "Still?", session=session, run_config=config)
        await client.close()
        return done.final_output

    with (
        ModelServer(lambda _: Says(text="Aye.")) as server,
        opened(tmp_path) as memory,
        caplog.at_level("INFO", logger="recollect"),
    ):
        assert asyncio.run(talk(server.url)) == "Aye."
        told = [row["content"] for row in server.asked[-1].body["messages"]]
    assert told == ["Is anybody there?", "Aye.", "Still?"]
    warned = [one for one in caplog.records if one.name == "recollect.openai_agents"]
    assert "does not accept the prepared messages" in warned[0].getMessage()


@asynccontextmanager
async def pydantic_model(url: str, wire: str) -> AsyncIterator[Any]:
    import anthropic
    import openai
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    if wire == "openai-chat":
        async with openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as gpt:
            yield OpenAIChatModel("gpt-x", provider=OpenAIProvider(openai_client=gpt))
    else:
        async with anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0) as claude:
            provider = AnthropicProvider(anthropic_client=claude)
            yield AnthropicModel("claude-x", provider=provider)


def test_pydantic_ai(tmp_path: Path, plain: Held) -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import Agent

    from recollect.frameworks.pydantic_ai import RecollectCapability

    async def talk(server: ModelServer, memory: BlockingEngine) -> Held:
        conversation = Conversation(server, memory)
        async with pydantic_model(server.url, "openai-chat") as model:
            agent: Any = Agent(
                model,
                instructions=SYSTEM,
                tools=[read_page],
                capabilities=[RecollectCapability(memory, session=SESSION)],
            )
            messages: list[Any] = []
            for turn in range(1, TURNS + 1):
                if turn % 2:
                    done = await agent.run(said(turn), message_history=messages)
                    messages = done.all_messages()
                else:
                    async with agent.run_stream(said(turn), message_history=messages) as stream:
                        await stream.get_output()
                        messages = stream.all_messages()
                conversation.turn_ended()
        assert len(messages) == 2 * TURNS + 2 * len(PAGES), "the run's own messages lack some"
        return conversation.held

    with ModelServer(answer) as server, opened(tmp_path / "pydantic_ai") as memory:
        held = asyncio.run(talk(server, memory))
    check(held, "openai-chat")
    same(held, plain)
    kept_once(tmp_path / "pydantic_ai")


def test_pydantic_ai_loses_nothing_of_what_nobody_touched(tmp_path: Path) -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import Agent, BinaryContent

    from recollect.frameworks.pydantic_ai import RecollectCapability

    picture = BinaryContent(base64.b64decode(PICTURE), media_type="image/gif")

    async def talk(url: str, *capabilities: Any) -> Any:
        async with pydantic_model(url, "anthropic") as model:
            thinking = {"type": "enabled", "budget_tokens": 1024}
            settings: Any = {"anthropic_thinking": thinking, "max_tokens": 2048}
            agent: Any = Agent(
                model, tools=[read_page], capabilities=capabilities, model_settings=settings
            )
            first = await agent.run(["What is this?", picture])
            await agent.run("And the log?", message_history=first.all_messages())
            return first.all_messages()[0].conversation_id

    with ModelServer(thoughtful) as server:
        asyncio.run(talk(server.url))
        bare = [one.body for one in server.asked]
    with ModelServer(thoughtful) as server, opened(tmp_path) as memory:
        session = asyncio.run(talk(server.url, RecollectCapability(memory)))
        assert [one.body for one in server.asked] == bare
        observation = memory.session(session).observation
    assert observation is not None
    assert observation.usage is not None
    assert observation.usage.input_tokens == 900
    assert len(asyncio.run(texts(tmp_path / "m.db"))) == 6, "each message is kept once"


def test_pydantic_ai_puts_every_part_back_at_its_place() -> None:
    """Shortened results, our own words between parts, calls that are not shown."""
    pytest.importorskip("pydantic_ai")
    from pydantic_ai.messages import (
        InstructionBaselinePart,
        ModelRequest,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

    from recollect.frameworks.pydantic_ai import _rows_of, _view

    steering = InstructionBaselinePart.__new__(InstructionBaselinePart)
    calls = [ToolCallPart("read_page", {"number": at}, f"c{at}") for at in (1, 2)]
    results = [ToolReturnPart("read_page", "long " * 9, f"c{at}") for at in (1, 2)]
    messages: list[Any] = [
        ModelRequest(parts=[UserPromptPart("one"), steering]),
        ModelResponse(parts=[TextPart("I read."), *calls]),
        ModelRequest(parts=[*results, UserPromptPart("two")]),
    ]
    wires = [wire for message in messages for _, wire in _rows_of(message)]
    own = ShownRow(wire={"role": "user", "content": "from memory"}, place=None, touched=True)
    untouched = [ShownRow(wire=wire, place=at, touched=False) for at, wire in enumerate(wires)]
    assert all(
        mine is theirs for mine, theirs in zip(_view(messages, untouched), messages, strict=True)
    )
    short = {**wires[3], "content": "short"}
    rows = [
        *untouched[:3], ShownRow(wire=short, place=3, touched=True), own, untouched[4],
    ]  # fmt: skip
    shown = _view(messages, rows)
    assert shown[:2] == messages[:2]
    assert [getattr(part, "content", None) for part in shown[2].parts] == [
        "long " * 9, "short", "from memory", "two",
    ]  # fmt: skip
    assert shown[2].parts[0] is results[0]
    fewer = {**wires[1], "tool_calls": wires[1]["tool_calls"][:1]}
    rows = [untouched[0], ShownRow(wire=fewer, place=1, touched=True), untouched[2], untouched[4]]
    shown = _view(messages, rows)
    assert shown[1].parts == [TextPart("I read."), calls[0]]
    assert shown[2].parts == [results[0], messages[2].parts[2]]


@pytest.mark.parametrize("framework", ["openai_agents", "pydantic_ai"])
def test_frameworks_go_on_without_their_memory(
    framework: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = opened(tmp_path)
    memory.close()

    async def by_agents(url: str) -> Any:
        from agents import Agent, Runner

        from recollect.frameworks.openai_agents import RecollectSession

        client, model = agents_model(url)
        session = RecollectSession(SESSION, memory)
        agent = Agent(name="harbour", model=model)
        config = session.run_config()
        await Runner.run(agent, "Is anybody there?", session=session, run_config=config)
        done = await Runner.run(agent, "Still?", session=session, run_config=config)
        await client.close()
        return done.final_output

    async def by_pydantic(url: str) -> Any:
        from pydantic_ai import Agent

        from recollect.frameworks.pydantic_ai import RecollectCapability

        async with pydantic_model(url, "openai-chat") as model:
            agent: Any = Agent(model, capabilities=[RecollectCapability(memory, session=SESSION)])
            await agent.run("Is anybody there?")
            return (await agent.run("Still?")).output

    talk = by_agents if framework == "openai_agents" else by_pydantic
    with (
        ModelServer(lambda _: Says(text="Aye.")) as server,
        caplog.at_level("INFO", logger="recollect"),
    ):
        assert asyncio.run(talk(server.url)) == "Aye."
        assert "Still?" in server.asked[-1].content.decode()
    warned = [one for one in caplog.records if one.name == f"recollect.{framework}"]
    assert len(warned) == 1, "it is told once"
