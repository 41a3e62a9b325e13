"""A graph of LangGraph whose store is a memory: what it learns of a user outlasts the process.

python examples/langgraph_store.py "I moor at quay nine." "My boat is the Heron."
"""

import sys
from typing import TypedDict

from langgraph.graph import StateGraph
from langgraph.runtime import Runtime

import recollect
from recollect.frameworks.langgraph import RecollectStore

USER = ("users", "ada")


class State(TypedDict):
    """What goes through the graph."""

    said: str
    known: list[str]


def remember(state: State, runtime: Runtime) -> State:
    """Look up what bears on what is said, then keep it."""
    found = runtime.store.search(USER, query=state["said"], limit=3)
    runtime.store.put(USER, state["said"], {"text": state["said"]})
    return {"said": state["said"], "known": [item.value["text"] for item in found]}


with recollect.open_blocking_memory(space="examples") as memory:
    builder = StateGraph(State).add_node("remember", remember).set_entry_point("remember")
    graph = builder.compile(store=RecollectStore(memory))
    for line in sys.argv[1:]:
        print(f"{line} (known: {graph.invoke({'said': line, 'known': []})['known']})")
