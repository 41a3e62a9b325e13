"""A framework: a LangChain agent with a middleware.

pip install '.[langchain]' langchain-openai
OPENAI_API_KEY=... python examples/langchain_agent.py "The crane is red." "Which color is it?"
"""

import os
import sys

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

import recollect
from recollect.frameworks.langchain import RecollectMiddleware

model = ChatOpenAI(model=os.environ.get("MODEL", "gpt-6-luna"))

with recollect.open_blocking_memory(space="examples", window_tokens=32_000) as memory:
    middleware = [RecollectMiddleware(memory)]  # last in the list: next to the model
    agent = create_agent(model, [], middleware=middleware, checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "langchain"}}
    for line in sys.argv[1:]:
        state = agent.invoke({"messages": [{"role": "user", "content": line}]}, config)
        print(state["messages"][-1].text)
