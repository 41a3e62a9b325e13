"""An agent of the OpenAI Agents SDK with a memory: a session.

OPENAI_API_KEY=... python examples/openai_agents_session.py "The crane is red." "Which colour?"
"""

import os
import sys

from agents import Agent, Runner

import recollect
from recollect.frameworks.openai_agents import RecollectSession

agent = Agent(name="harbour", model=os.environ.get("MODEL", "gpt-6-luna"))

with recollect.open_blocking_memory(space="examples", window_tokens=32_000) as memory:
    session = RecollectSession("openai-agents", memory)
    for line in sys.argv[1:]:
        done = Runner.run_sync(agent, line, session=session, run_config=session.run_config())
        print(done.final_output)
