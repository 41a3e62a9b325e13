"""An agent of Pydantic AI with a memory: a capability.

OPENAI_API_KEY=... python examples/pydantic_ai_agent.py "The crane is red." "Which colour is it?"
"""

import os
import sys

from pydantic_ai import Agent

import recollect
from recollect.frameworks.pydantic_ai import RecollectCapability

MODEL = os.environ.get("MODEL", "gpt-6-luna")

with recollect.open_blocking_memory(space="examples", window_tokens=32_000) as memory:
    capability = RecollectCapability(memory, session="pydantic-ai")
    agent = Agent(f"openai-chat:{MODEL}", capabilities=[capability])
    messages = []
    for line in sys.argv[1:]:
        done = agent.run_sync(line, message_history=messages)
        messages = done.all_messages()
        print(done.output)
