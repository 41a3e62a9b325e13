"""Python: two calls around each model call.

pip install . anthropic
ANTHROPIC_API_KEY=... python examples/python_client.py "The crane is red." "Which color is it?"
"""

import os
import sys

import anthropic

import recollect

MODEL = os.environ.get("MODEL", "claude-sonnet-5-5")

messages = []
with (
    anthropic.Anthropic() as client,
    recollect.open_blocking_memory(space="examples", window_tokens=32_000) as memory,
):
    for line in sys.argv[1:]:
        messages.append({"role": "user", "content": line})
        request = {"model": MODEL, "max_tokens": 1_000, "messages": messages}

        context = memory.prepare("python", request)
        reply = client.messages.create(**context.request)
        memory.observe("python", reply)

        messages.append({"role": "assistant", "content": reply.to_dict()["content"]})
        print("".join(block.text for block in reply.content if block.type == "text"))
