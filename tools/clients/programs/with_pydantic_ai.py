# mypy: ignore-errors
"""`pydantic-ai`: an agent with a tool on three providers' wires, whole and streamed."""

import asyncio
import json

from pydantic_ai import Agent


def weigh(cargo: str = "coal") -> str:
    """Weighs a cargo."""
    return f"12 tons of {cargo}"


async def main() -> None:
    told = []
    for model in ("anthropic:claude-x", "openai-chat:gpt-x", "openai-responses:gpt-x"):
        agent = Agent(model, instructions="Be brief.", tools=[weigh])
        for question in ("Where does the crane stand?", "CALL weigh, please."):
            first = await agent.run(question)
            told.append(first.output)
            async with agent.run_stream(
                "And where now?", message_history=first.all_messages()
            ) as stream:
                told.append([text async for text in stream.stream_text(delta=True)])
    print(json.dumps(told))


asyncio.run(main())
