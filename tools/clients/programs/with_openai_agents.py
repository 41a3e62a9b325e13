# mypy: ignore-errors
"""`openai-agents`: an agent with a tool on Responses and Chat Completions, whole and streamed."""

import asyncio
import json

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

set_tracing_disabled(True)


@function_tool
def weigh(cargo: str = "coal") -> str:
    """Weighs a cargo."""
    return f"12 tons of {cargo}"


async def main() -> None:
    client = AsyncOpenAI()
    told = []
    for kind in (OpenAIResponsesModel, OpenAIChatCompletionsModel):
        model = kind(model="gpt-x", openai_client=client)
        agent = Agent(name="harbour", instructions="Be brief.", tools=[weigh], model=model)
        for question in ("Where does the crane stand?", "CALL weigh, please."):
            told.append((await Runner.run(agent, question)).final_output)
            streamed = Runner.run_streamed(agent, question)
            kinds = [event.type async for event in streamed.stream_events()]
            told.append([kinds, streamed.final_output])
    print(json.dumps(told))


asyncio.run(main())
